"""Shapes of models that many train, by the names that they were published under.

    shape_of("Qwen2.5-14B")               (48, 5120)
    named_in("## Llama-3-8B, one node")   {"llama 3 8b"}
    SIDES_OF["llama 3 8b"]["kv_heads"]    8
"""
from __future__ import annotations

import functools
import re

from seatrial.notes.labels import label_parameters
from seatrial.tables.tongues import lowered

SIDES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k", "total", "active")
"""What a line of the table below has, in this order; total and active in millions. 0 where authors count in several ways."""
_TABLE = """
llama 7b             32 4096 32 32 11008 32000
llama 8b             32 4096 32 8 14336 128256
llama 13b            40 5120 40 40 13824 32000
llama 30b            60 6656 52 52 17920 32000
llama 33b            60 6656 52 52 17920 32000
llama 65b            80 8192 64 64 22016 32000
llama 70b            80 8192 64 8 28672
llama 405b           126 16384 128 8 53248 128256
llama 2              0 0 0 0 0 32000
llama 2 7b           32 4096 32 32 11008 32000
llama 2 13b          40 5120 40 40 13824 32000
llama 2 70b          80 8192 64 8 28672 32000
llama 3              0 0 0 0 0 128256
llama 3 8b           32 4096 32 8 14336 128256
llama 3 70b          80 8192 64 8 28672 128256
llama 3 405b         126 16384 128 8 53248 128256
llama 3.2 1b         16 2048 32 8 8192 128256
llama 3.2 3b         28 3072 24 8 8192 128256
code llama 7b        32 4096 32 32 11008
code llama 13b       40 5120 40 40 13824
code llama 34b       48 8192 64 8 22016
code llama 70b       80 8192 64 8 28672
tiny llama 1.1b      22 2048 32 4 5632 32000
mistral 7b           32 4096 32 8 14336
mistral nemo 12b     40 5120 32 8 14336 131072
mixtral 8x7b         32 4096 32 8 14336 0 8 2 46700 12900
mixtral 8x22b        56 6144 48 8 16384 0 8 2 140600 39150
qwen 2 0.5b          24 896 14 2 4864 151936
qwen 2 1.5b          28 1536 12 2 8960 151936
qwen 2 7b            28 3584 28 4 18944 152064
qwen 2 72b           80 8192 64 8 29568 152064
qwen 2.5 0.5b        24 896 14 2 4864 151936
qwen 2.5 1.5b        28 1536 12 2 8960 151936
qwen 2.5 3b          36 2048 16 2 11008 151936
qwen 2.5 7b          28 3584 28 4 18944 152064
qwen 2.5 14b         48 5120 40 8 13824 152064
qwen 2.5 32b         64 5120 40 8 27648 152064
qwen 2.5 72b         80 8192 64 8 29568 152064
qwen 3 0.6b          28 1024 16 8 3072 151936
qwen 3 1.7b          28 2048 16 8 6144 151936
qwen 3 4b            36 2560 32 8 9728 151936
qwen 3 8b            36 4096 32 8 12288 151936
qwen 3 14b           40 5120 40 8 17408 151936
qwen 3 32b           64 5120 64 8 25600 151936
qwen 3 30b a3b       48 2048 32 4 0 151936 128 8 30500 3350
qwen 3 235b a22b     94 4096 64 4 0 151936 128 8 235000 22000
gemma 2b             18 2048 8 1 0 256000
gemma 7b             28 3072 16 16 0 256000
gemma 2 2b           26 2304 8 4 0 256000
gemma 2 9b           42 3584 16 8 0 256000
gemma 2 27b          46 4608 32 16 0 256000
gemma 3 4b           34 2560 8 4 0 0
gemma 3 12b          48 3840 16 8 0 0
gemma 3 27b          62 5376 32 16 0 0
phi 3 mini           32 3072 32 32 8192 32064
phi 3 medium         40 5120 40 10 17920
phi 2                32 2560 32 32 10240 51200
gpt neox 20b         44 6144 64 64 24576 50432
gpt j 6b             28 4096 16 16 16384
gpt neo 1.3b         24 2048 16 16
gpt neo 2.7b         32 2560 20 20
gpt 2 xl             48 1600 25 25
gpt 2 1.5b           48 1600 25 25
gpt 2 large          36 1280 20 20
gpt 2 774m           36 1280 20 20
gpt 2 medium         24 1024 16 16
gpt 2 345m           24 1024 16 16
gpt 2 355m           24 1024 16 16
gpt 2 124m           12 768 12 12
gpt 2 small          12 768 12 12
gpt 3 xl             24 2048
gpt 3 1.3b           24 2048
gpt 3 2.7b           32 2560
gpt 3 6.7b           32 4096 32 32
gpt 3 13b            40
gpt 3 175b           96 12288 96 96 49152
opt 1.3b             24 2048 32 32
opt 2.7b             32 2560 32 32
opt 6.7b             32 4096 32 32
opt 13b              40 5120 40 40
opt 30b              48 7168 56 56
opt 66b              64 9216 72 72
opt 175b             96 12288 96 96
bloom 560m           24 1024 16 16 0 250880
bloom 1.7b           24 2048 16 16 0 250880
bloom 3b             30 2560 32 32 0 250880
bloom 7.1b           30 4096 32 32 0 250880
bloom 7b1            30 4096 32 32 0 250880
bloom 176b           70 14336 112 112 57344 250880
pythia 160m          12 768 12 12
pythia 410m          24 1024 16 16
pythia 1b            16 2048 8 8
pythia 1.4b          24 2048 16 16
pythia 2.8b          32 2560 32 32
pythia 6.9b          32 4096 32 32
pythia 12b           36 5120 40 40
falcon 7b            32 4544 71
falcon 40b           60 8192 128 8
falcon 180b          80 14848 232 8
mpt 7b               32 4096 32 32 16384
mpt 30b              48 7168 64 64 28672
olmo 1b              16 2048 16 16
olmo 7b              32 4096 32 32
olmo 2 7b            32 4096 32 32 11008
olmo 2 13b           40 5120 40 40 13824
olmo 2 32b           64 5120 40 8 27648
olmoe 1b 7b          16 2048 16 16 1024 0 64 8 6900 1300
yi 6b                32 4096 32 4 11008 64000
yi 34b               60 7168 56 8 20480 64000
deepseek 7b          30 4096 32 32 11008 102400
deepseek 67b         95 8192 64 8 22016 102400
deepseek moe 16b     28 2048 16 16 0 102400 64 6 16400 2800
deepseek v2          60 5120 128 0 0 102400 160 6 236000 21000
deepseek v3          61 7168 128 0 0 129280 256 8 671000 37000
starcoder 2 3b       30 3072 24 2 12288 49152
starcoder 2 7b       32 4608 36 4 18432 49152
starcoder 2 15b      40 6144 48 4 24576 49152
smollm 135m          30 576 9 3 1536 49152
smollm 360m          32 960 15 5 2560 49152
smollm 1.7b          24 2048 32 32 8192 49152
internlm 2 7b        32 4096 32 8 14336 92544
internlm 2 20b       48 6144 48 8 16384 92544
dbrx                 40 6144 48 8 10752 0 16 4 132000 36000
grok 1               64 6144 48 8 32768 131072 8 2
megatron turing 530b  105 20480 128 128
palm 540b            118 18432 48
gopher 280b          80 16384 128 128
chinchilla 70b       80 8192 64 64
bert base            12 768 12 12 3072 30522
bert large           24 1024 16 16 4096 30522
"""
SIDES_OF: dict[str, dict[str, int]] = {
    name: {side: int(value) for side, value in zip(SIDES, sides.split()) if value != "0"}
    for name, sides in (line.split("  ", 1) for line in _TABLE.strip().splitlines())}  # fmt: skip
_VERSIONS = {"3": r"v?3(?:\.[013])?(?!\.\d)", "2": r"v?2(?!\.\d)"}
_ENDS = r"(?![\w]|[- ](?:like|style|ish|shaped|sized|class)\b)"


def _pattern(name: str) -> re.Pattern[str]:
    words = [_VERSIONS.get(word) or re.sub(r"(?<=\d)(?=[bm]$)", "[- ]?", re.escape(word)) for word in name.split()]
    return re.compile(r"[- _]?".join(words) + _ENDS + ("" if name[-1].isalpha() else r"(?![\w.-]*\d)"), re.IGNORECASE)


VERY_WIDE = {(sides["layers"], sides["hidden"]) for name, sides in SIDES_OF.items() if name.startswith("gemma")}
"""Layers and widths of models whose MLP may be eight times as wide, with a gate."""
_PATTERNS = {name: _pattern(name) for name in sorted(SIDES_OF, key=lambda name: (name.count(" "), len(name)), reverse=True)}
_FAMILIES = {family: [name for name in _PATTERNS if name.startswith(family)]
             for family in {name.split()[0] for name in SIDES_OF}}  # fmt: skip
_BEGINS = re.compile(rf"(?<![\w])(?:{'|'.join(sorted(_FAMILIES, key=len, reverse=True))})", re.IGNORECASE)


FAMILIES = tuple(_FAMILIES)
"""Without one of which, in small letters, a text names none."""


def places_of(text: str) -> list[tuple[str, int, int]]:
    """The published models that a text names, and from which letter to which."""
    found: list[tuple[str, int, int]] = []
    for begin in _BEGINS.finditer(text):
        if found and begin.start() < found[-1][2]:
            continue
        matches = ((name, _PATTERNS[name].match(text, begin.start())) for name in _FAMILIES[lowered(begin[0])])
        found += next(([(name, match.start(), match.end())] for name, match in matches if match is not None), [])
    return found


@functools.lru_cache(maxsize=4096)
def named_in(text: str) -> frozenset[str]:
    return frozenset(name for name, _, _ in places_of(text))


def shape_of(label: str) -> tuple[int, int] | None:
    """The layers and the width of the one published model that a label names."""
    shapes = {(sides.get("layers", 0), sides.get("hidden", 0)) for sides in (SIDES_OF[name] for name in named_in(label))}
    return shapes.pop() if len(shapes) == 1 else None


@functools.lru_cache(maxsize=1024)
def is_published(layers: int, hidden: int, size: float, half: float = 0.0, named: tuple[str, ...] = ()) -> bool:
    """Whether a model was published with this shape and so many parameters, whatever its feed-forward and vocabulary are; or
    one that is named, with those of its name."""
    for name, sides in SIDES_OF.items():
        if (sides.get("layers"), sides.get("hidden")) != (layers, hidden):
            continue
        called = label_parameters(name.rpartition(" ")[2]) if name in named else None
        if called is not None and abs(size - called[0]) <= called[1] + half:
            return True
        if sides.get("ffn") and not sides.get("experts"):
            grouped = sides.get("kv_heads", 1) / sides.get("heads", 1)
            block = hidden * hidden * (2 + 2 * grouped) + 3 * hidden * sides["ffn"]
            embedding = sides.get("vocab", 0) * hidden
            if any(abs((layers * block + times * embedding) / size - 1) < _COUNTED for times in (0, 1, 2)):
                return True
    return False


_COUNTED = 0.01
