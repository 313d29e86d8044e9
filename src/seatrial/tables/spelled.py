"""A heading in plain words, whatever its author wrote it in: LaTeX, marks of notes, trackers' keys, options, camel case.

    without_formulas(r"$n_\\text{layers}$")      n_layers
    without_formulas("Cost ($)")                Cost ($): money is no formula
    spelled("Peak mem.† (×10³)")                Peak mem. (1e3)
    [*respelled("system.gpu.0.powerWatts")]     other ways to say it, the nearest to what stands there first
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

_FORMULA = re.compile(r"\$(?=[A-Za-z]{1,3}\$|[^$]*[\\_^{])([A-Za-z\\](?:[^$]*[^$\s\\])?)\$")
"""Between two signs of a dollar: a letter or two, or what has indices or commands."""
_TEX = re.compile(r"\\(?:text|math|mathrm|mathbf|mathit|mathsf|mathcal|operatorname|textbf|textit|textsc|texttt|emph)"
                  r"(?:rm|bf|it|sf|tt|normal)?\s*\{([^{}]*)\}")  # fmt: skip
_TEX_SIGNS = {"times": "×", "cdot": "·", "mu": "µ", "ell": "loss", "Delta": "Δ", "#": "#", "%": "%", "_": "_", "&": "&"}
_TEX_WORD = re.compile(r"\\(?:([A-Za-z]+)|([^A-Za-z\s]))\s?")
_MARKS = re.compile(r"[↑↓⇑⇓⬆⬇†‡§¶®™]+|(?<=[\w.)]\s)\[[acefg1-9*]\](?=\s|$)|(?<=[\w)\]])(?<!10)[⁰¹²³⁴-⁹ᵃᵇᶜ]+(?=\s|$|[(\[])"
                    r"|※\s?\d*|\?+$|(?<=\w)\*+(?=\s|$)")  # fmt: skip
_SHORT = re.compile(r"\b(tok|sec|samp|seq|iter|thr|Mrd|mrd|mld|Mio|mio|млн|млрд|трлн|тыс|tys|tsd|Tsd|mln)\.(?=[/ )\]]|$)")
_STUNDEN = re.compile(r"\bStd\.(?=[)\]]|$)")
_APOSTROPHE = re.compile(r"(?<=[A-Z])['’]s\b")
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_OF_TEN = re.compile(r"[x×·*]?\s?10\s?(?:\^\{?(\d{1,2})\}?|([⁰¹²³⁴-⁹]{1,2}))")
_BRACES = re.compile(r"(?<!\^)\{([^{}]*)\}")
_WIDE = str.maketrans({chr(letter + 0xFEE0): chr(letter) for letter in range(0x21, 0x7F)} | {"／": "/", "・": "·", "　": " "})


def without_formulas(text: str) -> str:
    """`$t_\\mathrm{step}$ (ms)` as `t step (ms)`: the signs around it are no money."""
    if "$" not in text and "\\" not in text:
        return text
    text = _FORMULA.sub(lambda match: match[1] if "\\$" not in match[0] else match[0], text)
    if "\\" not in text and "_{" not in text and "^{" not in text and "_" not in text:
        return text
    for _ in range(2):
        text = _TEX.sub(lambda match: {"L": "loss"}.get(match[1], match[1]) if "cal" in match[0] else match[1], text)
    text = re.sub(r"([A-Za-z0-9])_\{([^{}]*)\}", r"\1 \2", text)
    text = re.sub(r"\b([A-Za-z])_(?=[A-Za-z]+\b)", r"\1 ", text) if "\\" in text or len(text) < 4 else text
    return _TEX_WORD.sub(_tex_word, text) if "\\" in text else text


def _tex_word(match: re.Match[str]) -> str:
    if match[1]:
        return _TEX_SIGNS.get(match[1], " ")
    return match[0] if match[2] in "`*[]()<>|~+.!-{}" else _TEX_SIGNS.get(match[2], match[2] if match[2] == "$" else " ")


@lru_cache(maxsize=4096)
def spelled(text: str) -> str:
    """Without the marks of notes; a power of ten is written small: `(×10³)` as `(1e3)`."""
    if text.isascii() and not set("?^*[{|'.").intersection(text):
        return text
    if not text.isascii():
        text = text.translate(_WIDE)
    text = "vocab" if text == "|V|" else _BRACES.sub(r"(\1)", text)
    text = _OF_TEN.sub(lambda match: f"1e{match[1] or match[2].translate(_POWERS)}", text)
    text = _STUNDEN.sub("h", _APOSTROPHE.sub("s", _SHORT.sub(r"\1", text)))
    return " ".join(_MARKS.sub(" ", text).split()) if _MARKS.search(text) else text.strip()


_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_A_CAMEL = re.compile(r"[A-Za-z0-9]*(?:[a-z][A-Z]|[A-Z]{2}[a-z]{2})[A-Za-z0-9]*")
_KEY = re.compile(r"(?=[^\s(]*(?:_|\.[a-z]|[a-z][A-Z]))[A-Za-z][\w-]*(?:[./][\w-]+)+(?=$|[\s(\[])")
"""A tracker's or an engine's key of several parts, as `memory/max_active(GiB)`."""
_OF_A_DEVICE = re.compile(r"(?:throughput/)?device/(\w+)$")
_MODULES = re.compile(r"(?:system|sys|torch|cuda|timing|timers|codecarbon|stats|metrics|mem|gpu(?=\.\d)|\d{1,2}|nvidia-smi|"
                      r"entrenamiento|treino|training|trening|train|perf)[./ ]", re.IGNORECASE)  # fmt: skip
A_SYMBOL = re.compile(r"[^\W\d]{1,2}(?:[ _][A-Za-z]{1,6})?(?:\s*\[\w+\])?\s*\(([^()]{3,})\)")
"""`t (tensor-parallel size)`: what the letter stands for."""
_IN_BRACKETS = (r"train(?:ing)?(?: only)?|run|(?:full|whole) run|no remat|w/o attn(?: flops)?|with attn(?: flops)?|w/ attn|"
                r"incl\.? [\w ]+|excl\.? [\w ]+|cluster(?:[ -]wide)?|(?:whole )?job|all gpus|max|peak|bf16|fp8|fp16|6ND?|"
                r"no warm-?up|[acefgivxp]")  # fmt: skip
_AS_WORDS = (r"last \d+(?: (?:steps|it(?:er)?s?|iterations))?|steady[ -]state|p50|(?:as )?measured|observed|avg|average|mean|"
             r"median|typ(?:ical)?|achieved|sustained|est(?:imated)?|actual|wall[ -]?clock|worst rank|rank ?0|stage ?0|"
             r"vs\.? [\d.]+ ?T(?:F\w*)?(?: peak)?|w/o attn(?: flops)?|full run|whole job|@ ?end")  # fmt: skip
_BESIDE = re.compile(rf"\s*[,;–—-]?\s*(?:[(\[](?:in )?(?:{_IN_BRACKETS})[)\]]|[(\[]?\b(?:{_AS_WORDS})(?![\w/])[.)\]]*)"
                     r"\s*[,;:]?", re.IGNORECASE)  # fmt: skip
"""What is said beside a quantity and changes nothing of what it is."""


_COUNTED_IN = re.compile(r"[,;]?\s+(?:incl|excl)(?:\.|uding|uded)?\s.*$", re.IGNORECASE)


def respelled(text: str) -> Iterator[str]:
    """Other ways to say the same, the nearest first; none says less of the quantity."""
    if (known := _without_typos(text)) != text:
        yield known
    if (key := _KEY.match(text)) is not None:
        apart = re.sub(r"[./]", " ", _OF_A_DEVICE.sub(r"\1 per device", key[0])) + text[key.end() :]
        yield _MODULES.sub("", apart)
    if (apart := _A_CAMEL.sub(lambda match: _CAMEL.sub(" ", match[0]), text)) != text:
        yield apart
    if (fewer := _COUNTED_IN.sub("", text)) != text and fewer:
        yield fewer
    if (fewer := " ".join(_BESIDE.sub(" ", text).split()).strip(" ,;:-")) != text and fewer:
        yield fewer


_LONG = re.compile(r"[A-Za-z]{6,}")
_WORDS = frozenset("throughput iteration iterations sequence sequences length memory achieved parallel parallelism parameters "
                   "pipeline tensor context tokens samples seconds hidden layers attention vocabulary precision recompute "
                   "gradient accumulation utilization utilisation efficiency allocated reserved average training checkpointing "
                   "activation virtual duration training measured aggregate replicas stages number effective global devices "
                   "accelerators schedule framework elapsed microbatch second device millis dimension expert".split())
_BY_LENGTH: dict[int, list[str]] = {}
for _word in sorted(_WORDS):
    _BY_LENGTH.setdefault(len(_word), []).append(_word)


def _without_typos(text: str) -> str:
    return _LONG.sub(lambda match: _meant(match[0].lower()) or match[0], text)


@lru_cache(maxsize=4096)
def _meant(word: str) -> str:
    """The one long word that this one is but for a letter or two that changed places; empty where it is one itself."""
    if word in _WORDS:
        return ""
    near = [other for length in (-1, 0, 1) for other in _BY_LENGTH.get(len(word) + length, ()) if _is_slip(word, other)]
    return near[0] if len(near) == 1 else ""


def _is_slip(word: str, other: str) -> bool:
    """Two neighbours exchanged, or in a word of seven letters one too many, too few or another; the first letter is right."""
    if word[0] != other[0]:
        return False
    at = next((at for at, (one, its) in enumerate(zip(word, other)) if one != its), min(len(word), len(other)))
    if len(word) == len(other):
        return word[at : at + 2] == other[at + 1 : at - 1 : -1] and word[at + 2 :] == other[at + 2 :] or \
            len(word) >= 8 and word[at + 1 :] == other[at + 1 :]
    longer, shorter = (word, other) if len(word) > len(other) else (other, word)
    return len(shorter) >= 6 and longer[at + 1 :] == shorter[at:] and longer != shorter + "s"
