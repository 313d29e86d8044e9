"""What text states: settings such as `--num-layers 6` or `NHIDDEN=512 / NLAYERS=6`, and how a run went.

    read_statements("7B model: TP=4, PP=2, NLAYERS=32", heading=False)
        -> label "7B", fields {"tp": 4, "pp": 2, "layers": 32}
    read_status("OOM after first epoch").failed        "oom"
    read_status("too close to OOM").failed             ""

A heading is searched for settings; a line of text only counts when it is little else than settings, because a sentence that
mentions `DP=4` compares or explains. A setting that stands twice with different values, or as `0/1`, states nothing.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from seatrial.columns import COLUMNS, LAYOUT
from seatrial.notes.read.parsing import DTYPES, read_cell
from seatrial.tables.headings import Column, clean, normal, setting
from seatrial.tables.tongues import lowered

LONGEST = 1000
"""Letters beyond which a line is an essay."""
MOST_OTHER_WORDS = 3
"""How many words that are no setting a line may hold and still be a statement of settings."""


@dataclass(kw_only=True)
class Statements:
    """What one line states."""

    fields: dict[str, object] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    inexact: dict[str, str] = field(default_factory=dict)
    """Settings given as a rounded figure, such as a vocabulary of 32k: text, not a value."""
    label: str = ""
    """The size that the line is about."""
    backward: bool = False
    """`above too`: it also holds for what stands before it."""
    machine_wide: dict[str, object] = field(default_factory=dict)
    """What a sentence says of the machine, which does not change from section to section."""

    def __bool__(self) -> bool:
        return bool(self.fields or self.env or self.inexact or self.label or self.machine_wide)


_SIZE = re.compile(r"(?<![\w.*/=-])(?!910B)(\d+(?:\.\d+)?)\s?([MBT])"
                   r"(?![\w/%*]|\s?-?(?:tok|sample|word|step|batch|image|sequence))")
"""A 910B is a device."""
_OPTION = re.compile(r"--([a-z][\w-]+)(?:[ =]+([^\s\\|]+))?")
_PAIR = re.compile(
    r"(?:(?<=^)|(?<=[\s,;|/(\[`\"'{]))([A-Za-z][\w.-]*(?: [A-Za-z][\w.-]*){0,3})\s*(?:=|:(?=\s*\d))\s*"
    r"(?![=~])([\"']?[\w.+/:@~-]*\w[\"']?)(?![\w*%]|\s*[*%])"
)
_COMPACT = re.compile(r"(?<![\w=-])(DP|TP|PP|MP|VP|MBS|GBS)(\d+)(?!\w)")
_TORCH = re.compile(r"\b(?:py)?torch[ =]*v?(\d+\.\d+(?:\.\d+)?(?:\+\w+)?)", re.IGNORECASE)
_WITHOUT = r"w/o|w\\o|without|no|non"
_RECOMPUTE = re.compile(
    rf"(?:(?P<no>{_WITHOUT})|\\w|w/|with)?\s*(?P<kind>selective|full)?\s*\b(?:(?:activation|gradient|grad)s?[ -]"
    r"(?:check-?pointing|ckpt|checkpoints?|recomput\w*)|recomput(?:e|ation)(?!\w))",
    re.IGNORECASE,
)
_NODES = re.compile(r"(?<![\w.=-])(\d+)[ -]nodes?\b", re.IGNORECASE)
_REPLICAS = re.compile(r"(?<![\w.=-])(\d+)[ -]replicas?\b", re.IGNORECASE)
_GPUS = re.compile(r"(?<![\w.=-])(\d+)[ -](?:gpus|devices)\b(?! per| a )", re.IGNORECASE)
_A_NODE = re.compile(
    r"\bnodes? (?:of|with|has|have) (\d+) ?x? ?(?:[\w-]+ )?gpus?\b|"
    r"(?<![\w.=-])(\d+) ?(?:gpus?|procs|processes|ranks|devices) ?(?:per|/|a) ?node\b",
    re.IGNORECASE,
)
_DTYPE = re.compile(r"(?<![\w=-])(" + "|".join(name for name in DTYPES if name[-1].isdigit()) + r")(?![\w-])", re.IGNORECASE)
_ZERO = re.compile(r"\bzero[ _-]?(?:stage)?[ _=-]?([0-3])(?![\w/.])", re.IGNORECASE)
_CLOCK = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?GHz\b", re.IGNORECASE)
_OPTIMIZER = re.compile(
    r"(?<![\w./])((?:[a-z_]+\.)*(?:Fused|CPU|Deep[sS]peedCPU)?(?:Adam|AdamW|SGD|LAMB|Lion|Adafactor))(?![\w.])"
)
_COMPACT_FIELDS = {COLUMNS[name].label: name for name in LAYOUT if COLUMNS[name].about.kind == "count"} | {"MP": "tp"}
_RESULT = re.compile(
    r"\d\s*(?:secs?|s|ms)/(?:it|iter|step)|\d\s*tflops?\b|\d\s*(?:samples|tokens)/s|\d\s*[MG]i?B\b.*\d\s*[MG]i?B\b",
    re.IGNORECASE,
)
_VAGUE = frozenset({"batch", "batch size", "bs", "model", "time", "sequence", "context", "width", "depth"})
"""Words that head a column well enough, but in a sentence may mean the micro-batch as well as the global one."""
_FILLER = frozenset(
    "model models all the a an and with w o using use set settings setting config configuration parameters params for on "
    "of is are above below too here size export environment env setup each both "
    "hardware software cluster runs run training".split()
)


def read_statements(raw: str, *, heading: bool) -> Statements:
    """What a heading, a bullet or a line of text states; empty when it is a sentence about something."""
    result = Statements()
    if len(raw) > LONGEST:
        return result
    for match in _A_NODE.finditer(raw):
        result.machine_wide["procs_per_node"] = int(match.group(1) or match.group(2))
    if not heading and _RESULT.search(raw):
        return Statements(machine_wide=result.machine_wide)
    text = clean(re.sub(r"^\s*(?:[-*+>]|\d+[.)])\s+", "", raw))
    text = _A_NODE.sub(" ", re.sub(r"^export\s+|^set\s+-x\s+", "", text))
    stated, rest = _settings(text, result)
    sizes = {f"{number}{unit}" for number, unit in _SIZE.findall(rest)}
    rest = _SIZE.sub(" ", rest)
    if len(sizes) == 1:
        result.label = sizes.pop()
    if not (stated or result.env or result.inexact or result.label):
        return Statements(machine_wide=result.machine_wide)
    others = [word for word in re.findall(r"[^\W_][\w'.%]*", rest) if word.lower().strip(".") not in _FILLER]
    if not heading and len(others) > MOST_OTHER_WORDS:
        return Statements(machine_wide=result.machine_wide)
    result.backward = re.search(r"\babove (?:too|as well|also)\b|\balso above\b", text, re.IGNORECASE) is not None
    for name, values in stated.items():
        distinct = {repr(value) for value in values}
        if len(distinct) == 1:
            result.fields[name] = values[0]
    return result


def _settings(text: str, result: Statements) -> tuple[dict[str, list[object]], str]:
    """Every setting of the line with all the values it stands with, and the line without them."""
    stated: dict[str, list[object]] = {}

    def put(name: str, value: object) -> str:
        stated.setdefault(name, []).append(value)
        return " "

    def option(match: re.Match[str]) -> str:
        column, value = setting(match.group(1)), match.group(2)
        if column is None:
            return " "
        _put_value(column, value if value and not value.startswith("--") else "yes", put, result)
        return " "

    def recompute(match: re.Match[str]) -> str:
        return put("recompute", "none" if match.group("no") else (match.group("kind") or "full").lower())

    text = _OPTION.sub(option, text)
    text = _RECOMPUTE.sub(recompute, text) if not re.search(r"recompute\w*\s*=", text) else text
    text = _TORCH.sub(lambda m: put("torch_version", m.group(1)), text)
    for key, value, start, end in _pairs(text):
        column = setting(key) or next((c for c in map(setting, _suffixes(key)) if c is not None), None)
        if normal(key) in _VAGUE:
            continue
        name = key.split()[-1]
        if column is not None:
            if not _put_value(column, value.strip("\"'"), put, result):
                continue
        elif re.fullmatch(r"[A-Z][A-Z0-9_]{2,}", name) or (name.islower() and "_" in name):
            without = re.search(rf"(?:{_WITHOUT})\s*$", text[:start] + key[: -len(name)], re.IGNORECASE)
            result.env[name] = "" if without else value.strip("\"'")
        else:
            continue
        text = text[:start] + " " * (end - start) + text[end:]
    text = _COMPACT.sub(lambda m: put(_COMPACT_FIELDS[m.group(1)], int(m.group(2))), text)
    text = _NODES.sub(lambda m: put("nodes", int(m.group(1))), text)
    text = _REPLICAS.sub(lambda m: put("dp", int(m.group(1))), text)
    text = _GPUS.sub(lambda m: put("gpus", int(m.group(1))), text)
    text = _ZERO.sub(lambda m: put("zero_stage", int(m.group(1))), text)
    text = _CLOCK.sub(lambda m: put("freq_ghz", float(m.group(1))), text)
    text = _DTYPE.sub(lambda m: put("dtype", DTYPES[lowered(m.group(1))]), text)
    text = _OPTIMIZER.sub(lambda m: put("optimizer", m.group(1)), text)
    return stated, re.sub(r"\\w|w/o|w\\o|w/", " ", text)


def _pairs(text: str) -> Iterator[tuple[str, str, int, int]]:
    for match in _PAIR.finditer(text):
        value = match.group(2)
        # `ZeRO_STAGE=0/1` names two values, so it states none.
        if re.fullmatch(r"[\d.]+(?:/[\d.]+)+", value):
            continue
        yield match.group(1), re.sub(r"/+$", "", value), match.start(), match.end()


def _suffixes(key: str) -> Iterator[str]:
    words = key.split()
    for start in range(1, len(words)):
        yield " ".join(words[start:])


def _put_value(column: Column, text: str, put: Callable[[str, object], str], result: Statements) -> bool:
    """Whether the text is a value of that setting; a machine or an optimizer has a name, never a bare number."""
    cell = read_cell(column, text)
    if column.kind == "word" and column.field != "torch_version" and text.isdigit():
        return False
    if cell.value not in (None, "") and not cell.text:
        put(column.field, cell.value)
        return True
    if column.kind == "count" and re.fullmatch(r"~?\d+(?:\.\d+)?[kKM]", text):
        result.inexact[column.field] = text
        return True
    return False


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    failed: str = ""
    """oom, hang, crash, nan, timeout, invalid or cancelled."""
    estimated: bool = False
    planned: bool = False
    rate: tuple[int, ...] | None = None
    """`2 of 5 hang`: how often it failed."""


MOST_LETTERS = 500
"""How much of a note is searched for what happened."""
_FAILED: tuple[tuple[str, str], ...] = (
    (
        "oom",
        r"(?<![a-z0-9])oom(?:s|ed)?(?![a-z0-9_])|out[ _-]of[ _-]memory|oom_device|oom_host|"
        r"(?:显存|顯存|内存|メモリ)不足|메모리 ?부족",
    ),
    ("hang", r"\bhangs?\b|\bhung\b|\bhanging\b|\bstuck\b|\bdeadlocks?(?:ed)?\b"),
    ("nan", r"\bnans?\b|\bdiverge[sd]?\b"),
    ("timeout", r"\btime[ds]?[ -]?out\b|\bwalltime\b"),
    ("cancelled", r"\bcancell?ed\b|\bpreempted\b|\baborted by\b"),
    ("invalid", r"\binvalid\b|\bunsupported\b|\bnot supported\b|\bnot divisible\b|\bimpossible\b"),
    (
        "crash",
        r"(?:\b|_)fail(?:s|ed|ure)?\b|\bcrash(?:es|ed)?\b|\berrors?\b|\bsegfault(?:s|ed)?\b|"
        r"\bdo(?:es)? ?n[o']t work\b|\bkilled\b|\bbroken?\b",
    ),
)
_PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _FAILED)
_DENIED = re.compile(
    r"(?:\b(?:no|not|without|w/o|never|close to|near|nearly|almost|avoid(?:s|ed|ing)?|prevent(?:s|ed)?|fix(?:es|ed)?|before|"
    r"instead of|overcomes?|barely|risk(?: of)?|would|didn't|doesn't|don't|0)|n't)\W+(?:\w+\W+)?$",
    re.IGNORECASE,
)
_ESTIMATED = re.compile(
    r"\bestimat|\bextrapolat|\binterpolat|\bapprox|\bprojected\b|(?<![\d.])(?:1|one|single)\s*(?:st\s*)?(?:itr|iter|iterations?|it|step)s?"
    r"\s*(?:only|のみ)|\bonly (?:1|one) (?:it|iter|iteration|step)\b|1回のみ|推定",
    re.IGNORECASE,
)
_RATE = re.compile(r"(?<![\d.])(\d{1,6}) ?(?:of|out of|/|in) ?(\d{1,6})(?![\d.])")
_PLANNED = re.compile(
    r"\bnot (?:yet )?run\b|\bplanned\b|\bto ?do\b|\btbd\b|\bto be (?:run|done|tested|measured)\b|\bpending\b", re.IGNORECASE
)


_SILENT = RunStatus()


def read_status(text: str) -> RunStatus:
    if not text or text.isascii() and text.lower() == text.upper():
        return _SILENT  # a number, as most cells are
    text = text[:MOST_LETTERS]
    failed = ""
    for name, pattern in _PATTERNS:
        match = pattern.search(text)
        if match and not _DENIED.search(text[: match.start()]):
            failed = name
            break
    often = _RATE.search(text) if failed else None
    rate = (int(often.group(1)), int(often.group(2))) if often else None
    return RunStatus(failed=failed, estimated=_ESTIMATED.search(text) is not None,
                     planned=_PLANNED.search(text) is not None, rate=rate if rate and rate[0] <= rate[1] else None)


_HOST_CUES = re.compile(r"\bcpus?\b|a64fx|fugaku|\bxeon\b|\bepyc\b|tcmalloc|core[- ]group|[0-9.]\s?GHz|\bFreq\b", re.IGNORECASE)
_DEVICE_CUES = re.compile(r"\bgpus?\b|cuda|nccl|nvlink|\b[AVHB][1-9]00\b|\bMI[23]\d\d\b|\btpus?\b", re.IGNORECASE)


_HOST_PARTS = ("cpu", "a64fx", "fugaku", "xeon", "epyc", "tcmalloc", "core", "ghz", "freq")
_DEVICE_PARTS = ("gpu", "cuda", "nccl", "nvlink", "00", "mi2", "mi3", "tpu")
"""Without one of which a line has no cue, as most have none."""


def machine_cues(text: str) -> tuple[bool, bool]:
    """Whether a line speaks of a machine that computes on its CPUs, and whether of devices."""
    low = text.lower()
    return (any(part in low for part in _HOST_PARTS) and _HOST_CUES.search(text) is not None,
            any(part in low for part in _DEVICE_PARTS) and _DEVICE_CUES.search(text) is not None)  # fmt: skip
