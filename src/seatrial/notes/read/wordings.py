"""How sentences word the settings of runs: what stands before or behind a number, and what the number may be.

    values_of("40 layers, d_model 5120", SURE)       {"layers": 40, "hidden": 5120}

Each pattern has letters one of which it needs, since most lines of a long file have none of them; it is asked of a line in the
one way that `spelt` writes it.
"""
from __future__ import annotations

import re

_N = r"(\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)\s?([kK]?)(?![\w%.]*\d|,\d{3}(?!\d))"
_LENGTHS = "(?:256|512|768|1024|1536|2048|3072|4096|6144|8192|12288|16384|32768|65536|131072)"
_IS = (r"\s*(?:\b(?:of|is|was|at|has|have|counts|stays at|(?:is |was )?(?:fixed|set|kept) (?:at|to)|always|everywhere|"
       r"throughout|equal to)\b|=|:)?\s*")
_NO_TOKENS = r"(?!\s?[MBmb]\b|\s?(?:[MkB] ?)?tok)"
_ONE_DEVICE = r"(?:GPU|device|chip|rank|card|accelerator|NPU|HPU|GCD)"
DEVICE = (r"(?:[AHVBP]\d{2,3}s?|L\d{1,2}S?|RTX ?\d{4}|MI\d+X?|GH200|Gaudi ?\d?|[GNHTX]PUs?|GCDs?|chips|cards|devices|"
          r"accelerators|processes|ranks)")
_OF_EACH = rf"(?!\s?(?:per|an?|on each|on every|each|/) ?(?:micro|{_ONE_DEVICE})|\s?(?:per|each)\b)"
_OF_A_NODE = r"(?! ?(?:sequences |samples )?(?:per|on each|for each|for every) (?:[\w-]+ )?(?:nodes?|box|server)\b)"
EACH_OF = "| a| po| по| da| zu(?: je)?| om"
_NO_PART = "".join(f"(?<!{part} )" for part in ("ffn", "mlp", "head", "heads", "expert", "experts", "of", "is", "are",
                                                         "latent", "rank", "state", "key", "query", "value", "inner"))
"""How wide a part of a layer is: `heads of 128`, `experts 1408 wide`."""
_NO_STAGE = r"(?! ?(?:per|a|each|in each) (?:pipeline )?(?:stage|rank|device|GPU)| ?[x×] ?(?:wider|larger|the|as)\b)"
_NO_STEP = "".join(f"(?<!{what} {verb} )" for what in ("step", "iteration", "update", "batch")
                   for verb in ("is", "has", "sees", "takes", "=", "of"))  # fmt: skip
_NO_STEP += "".join(f"(?<!{what}s {sign})" for what in ("sequence", "sample", "seq") for sign in ("= ", "≈ ", r"\(", "→ "))
"""`a step is 16k tokens`, `8 sequences = 16k tokens`, and `2 × 2048 tokens` a pair: not the length of one sequence."""
_OF_A_DEVICE = "".join(f"(?<!{each}[ -]{one} )" for each in ("per", "a", "each")
                       for one in ("gpu", "device", "chip", "rank", "card"))  # fmt: skip
Wording = tuple[tuple[str, str], ...]

_SURE: dict[str, Wording] = {
    "layers": (
        ("layer", rf"(?<!pipeline-num-)(?<!recompute-num-)(?<!mtp-num-)\b(?:num_|n_?)?(?:hidden_)?layers?{_IS}{_N}{_NO_STAGE}"),
        (" layer|-layer", rf"{_N}[ -](?:transformer |decoder |encoder |hidden )?layers?\b{_NO_STAGE}"),
        ("block", rf"{_N} (?:transformer |decoder )?blocks\b"),
        ("=", rf"\bl\s?=\s?{_N}"),
        (" d", r"(?<![\w.])L ?=? ?(\d{1,3})()(?=,? (?:and )?d ?=? ?\d{3,5}(?!\d))"),
    ),
    "hidden": (
        ("hidden", rf"\b(?:n_?)?hidden(?:[ _-](?:size|dim(?:ension)?|width))?{_IS}{_N}"),
        ("model|dim|emb|width",
         rf"{_NO_PART}\b(?:d_?model|(?:model )?width|dim|dimension(?=[ =:]{{1,3}}\d{{3}})|"
         rf"emb(?:ed(?:ding)?)?(?:[ _-]dim(?:ension)?)?){_IS}{_N}"),
        ("width|dimension", rf"\b(?:models?|layers|transformer),? (?:(?:of|with|and)(?: an?)? )?(?:width|dimension){_IS}{_N}"),
        (" hidden|-hidden", rf"{_N}[ -]hidden\b(?! layer)"),
        ("wide", rf"{_NO_PART}(?<![\w.,])(?=\d[\d,]{{2}}){_N}[ -]wide\b"),
        ("hidden|model|dim|emb|=|layer", r"(?<![\w.])d[ =]{0,3}(\d{3,5})()(?![\d.,]\d|\w)"),
        ("layer", rf"\blayers\b ?[/×] ?(?=\d{{3}}|\d,\d){_N}"),
        ("=", rf"\bh\s?=\s?{_N}"),
    ),
    "kv_heads": (
        ("kv|key|group", rf"{_N}[ -](?:(?:kv|key[ -/]values?)[ -](?:heads?|groups?)|query[ -]groups?)\b"),
        ("group", rf"{_N} groups?(?: of)? (?:kv|key[ -/]values?)\b"),
        ("head", rf"\bheads?{_IS}\d{{1,3}} ?/ ?{_N}"),
        ("gqa", rf"\bgqa(?: with|,| \(|-)? ?{_N}(?: groups?)?\b"),
        ("head", rf"(?<![\w.]){_N} (?:heads )?(?:(?:de|of|for|fur|pour|для|per)(?: the| las| les| le)? )?"
         r"(?:kv|k/v|keys?\b|cles?\b|clave|chiav|schluss|ключ)(?! ?cache)"),
        ("kv|key", rf"\bheads?\b ?[/,(]+ ?{_N} (?:kv|key[ -/]values?)\b"),
        ("kv|key|query|gqa", rf"\b(?:(?:num_|n_)?(?:key[_ /-]value|kv)[ _-]heads?|(?:num_)?query[ _-]groups?|gqa){_IS}{_N}"),
        ("kv", rf"\bn?_?kv\s?=\s?{_N}"),
        ("kv|key", rf"{_N} (?:of them )?for (?:the )?(?:kv|keys?(?:(?: and |/)values?)?)\b"),
        (" head", rf"(?<=\d)/{_N} (?=heads\b)"),
        ("layer", r"(?<=\()\d{1,3}/(\d{1,3})()(?=, ?(?:ffn|mlp)|\))"),
    ),
    "heads": (
        ("head", r"(?<!kv )(?<!kv-)(?<!kv_)(?<!value )\b(?:(?:num_|n_?)(?:attention_)?heads?|(?:attention_)?heads|head(?= ?=))"
         rf"(?! of\b){_IS}{_N}"),
        (" head|-head", rf"{_N}[ -](?:attention |query |q )?heads?\b"),
        ("query", rf"{_N} query and\b"),
        ("=", rf"\ba\s?=\s?{_N}"),
        ("layer", r"(?<=\()(\d{1,3})()/\d{1,3}(?=, ?(?:ffn|mlp)|\))"),
    ),
    "ffn": (
        ("ffn|d_ff|dff|feed|intermediate|mlp|glu", rf"\b(?:d_?ff|ffn|feed[ -]forward|intermediate|mlp|\w+glu)"
         rf"(?:[ _-](?:hidden|size|dim(?:ension)?|width))*{_IS}{_N}"),
        ("intermediate", rf"{_N} intermediate\b"),
        ("inner", rf"\binner (?:dim(?:ension)?|width|size){_IS}{_N}"),
    ),
    "seq": (
        ("seq|context|ctx|target|block", r"\b(?:max_|train_)?(?:seq(?:uence)?(?:[ _-]?len(?:gth)?)?|(?:context|ctx)(?:[ _-]"
         rf"(?:len(?:gth)?|window))?|max_target_length|block[ _]size){_IS}{_N}"),
        ("context|sequence", rf"{_N}[ -](?:tokens? )?(?:of )?(?:context|sequence length)\b"),
        ("token", rf"{_N}[ -]tokens? ?(?:per|a|/|each) ?(?:sequence|sample)\b"),
        ("seq|context|=|token|target|block",
         rf"\b(?:sequences|samples|examples) (?:of|(?:padded|packed|truncated|cut|cropped) (?:to|at)) {_N}(?: tokens)?\b"),
        ("=", rf"\bs\s?=\s?{_N}"),
        ("=", rf"\bT\s?=\s?(?:(?={_LENGTHS}(?!\w))|(?=\d{{1,3}}k)){_N}"),
    ),
    "vocab": (
        ("vocab", rf"\bvocab(?:ulary)?(?:[ _-](?:size|length))?{_IS}{_N}"),
        ("vocab", rf"{_N} (?:tokens|words|pieces|entries) in the vocab"),
        ("=", rf"\bV\s?=\s?{_N}"),
    ),
    "gbs": (
        ("batch", r"\b(?:(?:global|total|effective|overall)[ _-]?batch|batch[ _-](?:global|total|effective))(?:[ _-]?size)?"
         rf"(?:\s*\((?=\d))?{_IS}{_N}{_NO_TOKENS}{_OF_A_NODE}"),
        ("gbs", rf"\bGBS{_IS}{_N}{_NO_TOKENS}"),
        ("batch", rf"(?<!micro )(?<!micro-)\bbatch(?:es)? of {_N}{_NO_TOKENS}\s?(?:sequences|samples)\b{_OF_EACH}"),
    ),
    "mbs": (
        ("batch", r"\b(?:micro[ _-]?|local[ _-]|per[ -](?:device|gpu|chip|rank|card)[ -])batch(?:[ _-]?size)?"
         rf"{_IS}{_N}{_NO_TOKENS}(?! micro)"),
        ("mbs", rf"\bMBS{_IS}{_N}"),
        ("batch", rf"(?<!global )\bbatch(?:[ -]?size)? (?:per|on each|a) {_ONE_DEVICE}{_IS}{_N}{_NO_TOKENS}"),
    ),
    "tp": (("tp", rf"\bTP{_IS}{_N}"),
           ("tensor", rf"\btensor[ _-](?:model[ _-])?parallel(?:ism)?(?:[ _-](?:size|degree))?{_IS}{_N}")),
    "pp": (("pp", rf"\bPP{_IS}{_N}"),
           ("pipeline", rf"\bpipeline[ _-](?:model[ _-])?parallel(?:ism)?(?:[ _-](?:size|degree))?{_IS}{_N}")),
    "gpus": (
        ("node", rf"\bnodes?\s?=\s?(\d+)()\s?(?:[\w-]+ )?{DEVICE}\b"),
        ("", rf"\b(?:on|with|using|across|,) (\d+)()\s?[x×]?\s?(?:[\w-]+ )?{DEVICE}\b(?![- ]?(?:hours?|h)\b)"
         r"(?![^.|\n\d]{0,14}?(?:\bper\b|/|\ba\b|each) ?node)"),
    ),
    "procs_per_node": (
        ("node", rf"\b(\d+)()\s?[x×]?\s?(?:[\w-]+ ){{0,3}}?{DEVICE}\b"
         r"[^.|\n\d]{0,12}?(?:\bper\b|/|\ba\b|\beach\b) ?node"),
        ("node", rf"\bnodes?\b,? ?(?:of|with|has|have|each(?: with| has)?|are|contains?{EACH_OF})? ?(\d+)()\s?[x×]?\s?"
         rf"(?:[\w-]+ ){{0,2}}?{DEVICE}\b"),
        ("x|×", rf"\b(\d)()\s?[x×]\s?(?:[\w-]+ )?{DEVICE}\b(?! \()"),
        ("node", r"\b(\d+)()-GPU nodes?\b"),
        ("node", r"\bnodes of (\d{1,2})()(?=\s*(?:[.,;)]|$))"),
        ("node", rf"\b{DEVICE}\b[^.|\n\d]{{0,4}}(?:\(?\d+ ?Gi?B\)?)?[ ,;:(]+(\d+)() (?:of them )?"
         r"(?:per|to a|in a|in each|on each) node\b"),
    ),
}  # fmt: skip
"""Field -> what a sentence may say, the surest first; each with a number and perhaps a k for thousands."""
_LOOSELY: dict[str, Wording] = {
    "layers": (("depth", rf"(?<!pipeline )\bdepth{_IS}{_N}"),),
    "seq": (
        ("token", rf"(?=\d)(?<![x×*\d.,])(?<![x×*] ){_NO_STEP}{_N}[ -]tokens?\b"
         r"(?! ?(?:per|/|a|in|of|global|for|budget)\b)(?!/)"),
        ("length", rf"(?:^|[,;(]) ?length{_IS}(?={_LENGTHS}(?!\w)){_N}"),
        ("token", rf"\b(?:sequences|samples) ?[x×] ?{_N} tokens\b"),
    ),
    "gbs": (
        ("batch", rf"(?<!micro )(?<!micro-)(?<!local )(?<!per )(?<![\w-]){_OF_A_DEVICE}batch{_IS}{_N}{_NO_TOKENS}{_OF_EACH}"
         rf"{_OF_A_NODE}(?! ?[x×*] ?\d)"),
        ("sequences|samples", rf"\b{_N} (?:sequences|samples)(?: (?:a|per|each|in each) (?:global |optimizer )?"
         r"(?:step|iteration|update|batch)\b| ?[x×] ?\d[\d,]* ?tokens|[.,;]|$)"),
    ),
    "mbs": (
        ("batch", rf"(?<!global )\bbatch(?:[ -]?size)?{_IS}{_N} (?:per|a|on each|on every) {_ONE_DEVICE}\b"),
        ("batch", rf"\bmicro[ -]?batches of {_N}\b(?! ?tok)"),
        ("seq|sample", rf"\b{_N} (?:seq(?:uence)?s?|samples?) ?(?:per|/|a|on each|on every) ?(?:{_ONE_DEVICE}|micro[ -]?batch|"
         r"(?:forward )?pass)\b"),
        ("sequences|samples", rf"\b{_ONE_DEVICE}s? (?:processes|process|sees|saw|holds?|takes?|gets?|handles?) {_N} "
         r"(?:sequences|samples)\b"),
    ),
    "gpus": (("", rf"(?:^|[\s(])(\d+)()\s?[x×]?\s?(?:[\w-]+ )?{DEVICE}(?!\w)(?![- ]?(?:hours?|h)\b)"
              r"(?![^.|\n\d]{0,14}?(?:\bper\b|/|\ba\b|each|to a|je) ?node)"),),
}  # fmt: skip
"""What a sentence hardly says surely: it may serve to read rows, and is never held against them."""
NEEDS_DEVICE = ("gpus", "procs_per_node")
OF_DEVICES = re.compile(r"[ahvbpl]\d\d|mi\d|rtx|gaudi|pu|gcd|chip|card|device|accelerator|process|rank")
"""Letters of what `DEVICE` matches."""
_CAPITAL = (r"\bV", r"\bT\s")
"""Letters that mean it where they are capital alone."""
RANGES = {"layers": (1, 1000), "hidden": (32, 200_000), "heads": (1, 1024), "kv_heads": (1, 1024), "ffn": (64, 1_000_000),
          "gbs": (1, 1_000_000), "mbs": (1, 4096), "tp": (1, 64), "pp": (1, 256), "gpus": (16, 1_000_000),
          "seq": (16, 2_000_000), "vocab": (100, 2_000_000), "procs_per_node": (1, 64)}  # fmt: skip
Compiled = dict[str, list[tuple[tuple[str, ...], re.Pattern[str]]]]


def _compiled(wanted: dict[str, Wording]) -> Compiled:
    return {name: [((*letters.split("|"),), re.compile(pattern, re.NOFLAG if pattern.startswith(_CAPITAL) else re.IGNORECASE))
                   for letters, pattern in wording] for name, wording in wanted.items()}  # fmt: skip


SURE, LOOSELY = _compiled(_SURE), _compiled(_LOOSELY)
CUES = {"sequences", "samples"} | {cue for name, wording in _SURE.items() if name not in NEEDS_DEVICE
                                   for letters, _ in wording for cue in letters.split("|")}  # fmt: skip


def _but_keys(match: re.Match[str]) -> str:
    """What is left of `heads / 8 kv` for the heads."""
    begin = match.string[match.start() : match.start(1)].rstrip(" /(,") if match[0][:4].lower() == "head" else " "
    return f"{begin} " if begin[-1:].isdigit() else begin


def values_of(text: str, wanted: Compiled) -> dict[str, object]:
    found: dict[str, object] = {}
    rest = text
    letters = text.casefold()
    devices = OF_DEVICES.search(letters)
    for name, patterns in wanted.items():
        if name in NEEDS_DEVICE and not devices:
            continue
        for cues, pattern in patterns:
            for cue in cues:  # asked of every line: no generator
                if cue in letters:
                    break
            else:
                continue
            values = set()
            for match in pattern.finditer(rest):
                number = match[1].replace(",", "")
                # 2.048 of what is counted are thousands, written as much of Europe does.
                number = number.replace(".", "") if re.fullmatch(r"\d{1,3}\.\d{3}", number) else number
                value = float(number) * (1024 if match[2] and name == "seq" else 1000 if match[2] else 1)
                low, high = RANGES[name]
                if value == int(value) and low <= value <= high:
                    values.add(int(value))
            if len(values) == 1:
                found[name] = values.pop()
                rest = pattern.sub(_but_keys, rest) if name == "kv_heads" else rest
            if name in found or len(values) > 1:
                break
    if "gbs" in found and len({match[1] for match in _BY_SIZE.finditer(letters)}) > 1:
        del found["gbs"]  # `64 on one node and 256 on four`, `256 for the small ones and 512 for 70B`
    return found


_BY_SIZE = re.compile(r"\b(\d[\d,]{0,8})(?: (?:sequences|samples))? (?:on|for) (?:the |a )?"
                      r"(?:\d|one|two|three|four|eight|small|big|large)")  # fmt: skip
