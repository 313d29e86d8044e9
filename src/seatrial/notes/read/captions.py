"""Units that the text around a table gives for columns whose headings have none.

    units = Units()
    units.hear("Times are in ms, memory in GiB, throughput in tokens/s/GPU.")
    units.titles(["nodes", "time", "throughput"])        ["nodes", "time (ms)", "throughput (tokens/s/GPU)"]

What a line says holds for its section and those inside it, the innermost first; a caption, and a line that ends in a colon, is
of the next table alone. A unit counts right behind `in`, a colon or a bracket, where what is measured stands just before.
"""
from __future__ import annotations

import re

from seatrial.tables.headings import MEASURES, clean, normal, read_heading
from seatrial.tables.tongues import in_english, plain_letters

LONGEST, BEFORE = 600, 48
"""Letters of a line, and of those before a unit where what is measured is looked for."""
_OF = r"(?:\s?(?:/|per\b|and|a\b|pro\b|par\b|por\b|je\b)\s?(?:GPU|device|chip|card|GCD|rank|node)s?)?"
_KINDS = {
    "time": r"ms|milli-?seconds?|millisekunden|millisecond(?:es|i)|milisegundos|secs?|seconds?|s",
    "memory": r"[GM]i?[Bo]|[GM]ib|gigabytes?",
    "rate": rf"(?:(?:[kKM]|thousands?(?: of)?|millions?(?: of)?|Tsd\.|Mio\.)[ -]?)?"
            rf"(?:tok(?:en)?s?|samples?|seq(?:uence)?s?)\s?(?:/|per|a|pro)\s?(?:s(?:ec(?:onds?)?)?){_OF}|TFLOPs?(?:/s)?{_OF}",
}
_WORDS = {kind: re.compile(rf"(?<![^\W_])(?:{words}|units?|einheit(?:en)?|unites?|unidades|unita|jednostk\w+|"
                           rf"values|单位|単位|단위|figures|numbers|entries|cells)(?![^\W_])", re.IGNORECASE)
          for kind, words in {
    "time": r"times?|latenc(?:y|ies)|durations?|zeiten|\w+zeit(?:en)?|tiempos|temp[io]s?|czasy|времена|tijden|시간\w?",
    "memory": r"mem|memory|vram|hbm|\w*speicher\w*|메모리\w?",
    "rate": r"throughputs?|speeds?|rates?|perf|performance|vitesses?|velocidad\w*|velocita|leistung|geschwindigkeit\w*|"
            r"tok(?:en)?s?|速度|속도\w?|처리량\w?",
}.items()}  # fmt: skip
_LED = r"(?:\b(?:in|en|em|im|w|v|в|is|are)\s+|[(\[（]\s?(?:in\s)?|[:：=–]\s?|[はがを为為是는은]\s?|单位|単位は?\s?)"
_ANY = "|".join(rf"(?P<{kind}>{units})" for kind, units in _KINDS.items())
_UNIT = re.compile(rf"{_LED}[`*]{{0,2}}(?:{_ANY})(?![A-Za-z/])", re.IGNORECASE)
_CUE = re.compile(r"\b(?:ms|s|secs?|seconds?|[gm]i?[bo]|tokens?|tok|samples?|seqs?|sequences?|tflops?)\b", re.IGNORECASE)
_OTHERS = {
    "time": re.compile(r"\b(?:compil\w+|start-?up|load\w*|check-?point\w*|sav(?:e|ing)|total|wall\S*|comm\w*|kernel|forward|"
                       r"backward|data|first|queue|elapsed|run ?time|until|to train|training time|waiting|restart\w*|not)\b",
                       re.IGNORECASE),
    "memory": re.compile(r"\b(?:host|cpu|disk|file|weights?|optimizer|activations?|params?|size|bandwidth|not|each|total)\b",
                         re.IGNORECASE),
    "rate": re.compile(r"\b(?:peak|not|inference|prefill|decod\w+|generation|bandwidth)\b", re.IGNORECASE),
}  # fmt: skip
"""Of a measure that is not that of a step."""
_CAPTION = re.compile(r"\W*(?:table|tab\.|tabelle|tableau|tabla|tabela|tabella|таблица|表|표)\s?\d|.*[:：]\W*$", re.IGNORECASE)
_SHORT = {"s": "s", "milli": "ms", "go": "GB", "gio": "GiB", "mo": "MB", "gb": "GB", "gib": "GiB", "mb": "MB", "mib": "MiB"}

Said = dict[str, tuple[str, str]]
"""Kind -> its unit, and the words before it."""


def units_of(line: str) -> Said:
    """What one line says; a kind with two units is left out."""
    if len(line) > LONGEST or line.isascii() and not _CUE.search(line):
        return {}
    text = in_english(clean(line))
    found: Said = {}
    twice: set[str] = set()
    last = 0
    for match in _UNIT.finditer(text):
        kind = match.lastgroup or ""
        words = re.split(r"[.;|。；](?:\s|$)", text[max(last, match.start() - BEFORE) : match.start()])[-1]
        last = match.end()
        if not _WORDS[kind].search(plain_letters(words)) or _OTHERS[kind].search(words):
            continue
        unit = _in_short(kind, match[kind])
        twice |= {kind} if found.get(kind, (unit, ""))[0] != unit else set()
        found[kind] = unit, words.casefold()
    return {kind: said for kind, said in found.items() if kind not in twice}


def _in_short(kind: str, unit: str) -> str:
    low = unit.lower()
    if kind == "time":
        return "ms" if low.startswith("m") else "s"
    if kind == "memory":
        return _SHORT.get(low, "GB")
    thousand = re.match(r"(?:k|thousands?|tsd\.)(?:\W| of|tok)", low)
    million = re.match(r"(?:m|millions?|mio\.)(?:\W| of|tok)", low)
    what = next((one for one in ("tok", "samples", "TFLOPs") if one[:3].lower() in low), "samples")
    per = next((f"/{word}" for word in ("node", "GPU", "device", "chip", "card", "GCD", "rank") if word.lower() in low), "")
    return ("k " if thousand else "M " if million else "") + what + ("" if what == "TFLOPs" else "/s") + per


class Units:
    def __init__(self) -> None:
        self._sections: list[tuple[int, Said]] = [(0, {})]
        self._caption: Said = {}

    def hear(self, line: str) -> None:
        """A line that is no row."""
        bare = line.strip()
        if bare[:1] == "#":
            level = len(bare) - len(bare.lstrip("#"))
            while self._sections[-1][0] >= level:
                self._sections.pop()
            self._sections.append((level, {}))
            self._caption = {}
        if said := units_of(bare):
            if _CAPTION.match(bare):
                self._caption |= said
            else:
                self._sections[-1][1].update(said)

    def titles(self, titles: list[str], below: str = "") -> list[str]:
        """The headings of a table, and the end of what is of it alone; `below`: the line under it."""
        said: Said = {}
        for _, section in self._sections:
            said |= section
        said |= {**units_of(below), **self._caption} if below else self._caption
        self._caption = {}
        if not said:
            return titles
        fields = [read_heading(title).field for title in titles]
        made = [_with_unit(title, said, fields) for title in titles]
        read = [read_heading(title).field for title in made]
        # Two of one kind cannot be told apart.
        return [new if read.count(field) == 1 else old for old, new, field in zip(titles, made, read)]


_UNITED = frozenset("s ms sec secs second seconds min minutes h hours gb gib mb mib go gio mo k tflops tflop mfu pct tok "
                    "tokens token samples sequences".split())  # fmt: skip


def _with_unit(title: str, said: Said, fields: list[str]) -> str:
    column, words = read_heading(title), clean(title).casefold()
    if not words or set("([%").intersection(words) or column.parts or _UNITED.intersection(normal(words).split()):
        return title
    for kind, (unit, before) in said.items():
        if kind == "time" and (column.field == "sec_per_it" or not column.field and words in before):
            field = "sec_per_it"
        elif kind == "memory" and column.field == "mem_value":
            field = "mem_value"
        elif kind == "rate" and (column.field == "throughput" or not column.field and words in before):
            field = ""
        else:
            continue
        made = f"{title} ({unit})"
        meant = read_heading(made).field
        if meant in MEASURES and field in ("", meant) and meant not in {*fields} - {column.field}:
            return made
    return title
