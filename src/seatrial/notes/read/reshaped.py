"""Tables between pipes that stand otherwise than one row a run: turned round, with headings on two lines, or with two figures
in a cell.

    for number, line in reshaped(pipes_of_rst(pipes_of_html(read_lines(path)))): ...

A table is turned where its first column reads as headings of runs and its first line does not. A second line of headings is one
whose cells are units or names, with no number among them. A row with one cell alone names what those below it have in common.
A column of `9.31 → 8.77` is two, before a change and after it; one that is headed by a release is of what the text says.
"""
from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from seatrial.notes.read.captions import Units
from seatrial.notes.read.composed import TITLES, composed
from seatrial.notes.read.groups import side_by_side
from seatrial.notes.read.htmltables import row_text, titles_of
from seatrial.notes.read.parsing import is_blank, read_cell
from seatrial.tables.headings import MEASURES, NUMBER, accumulates, clean, normal, read_heading, settle
from seatrial.tables.markdown import MARK, UNTITLED_MARK
from seatrial.tables.tongues import in_english, plain_letters

Lines = Iterable[tuple[int, str]]
LONGEST_TABLE = 2000
FEWEST_HEADINGS = 3
COUNTED = ("k", "m", "tokens", "seqs", "sequences", "samples")
"""What may stand as a unit under a count."""
_DELIMITER = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?\|?\s*")
_PIPE = re.compile(r"(?<!\\)\|")
_UNIT = re.compile(r"\(.{1,30}\)|\[.{1,30}\]|%|[kKMGT]i?B|k?Wh?|°C|m?s|secs?|it/s|TFLOP\S*|[\w/]*/(?:s|sec|it|GPU|gpu|node)|"
                   r"tokens|per (?:s|sec|second|GPU|gpu|chip|device|node|step|it)")


def reshaped(lines: Lines) -> Iterator[tuple[int, str]]:
    stream = iter(lines)
    ahead: deque[tuple[int, str]] = deque()
    marked = False
    fence = ""
    above: list[str] = []
    units = Units()
    while (found := ahead.popleft() if ahead else next(stream, None)) is not None:
        bare = found[1].strip()
        if bare[:3] in ("```", "~~~"):
            fence = "" if fence else bare[:3]
        if not bare.startswith("|") or fence:
            marked = bare in (MARK, UNTITLED_MARK) or marked and not bare
            above = [bare] if bare[:1] == "#" else [*above[1 - ABOVE :], bare] if bare else above
            if bare and not fence:
                units.hear(bare)
            yield found
            continue
        block = [found]
        while (following := ahead.popleft() if ahead else next(stream, None)) is not None:
            if not following[1].strip().startswith("|") or len(block) >= LONGEST_TABLE:
                ahead.appendleft(following)
                break
            block.append(following)
        ahead.extend(islice(stream, max(0, BELOW - len(ahead))))
        yield from block if marked else _made(block, above, units, _legend([line.strip() for _, line in ahead]))
        marked, above = False, []


BELOW = 5
"""Lines below a table among which its legend is looked for."""


def _legend(below: list[str]) -> str:
    """The line right below a table that speaks of it, and not of one that follows."""
    said = [line for line in below if line]
    return said[0] if said and said[0][0] not in "#|`" and not (len(said) > 1 and said[1][0] == "|") else ""


def _made(block: list[tuple[int, str]], above: list[str], units: Units, below: str) -> list[tuple[int, str]]:
    at = next((index for index, (_, line) in enumerate(block[:4]) if _DELIMITER.fullmatch(line)), None)
    if at is None or at == 0 or len(block) < at + 2:
        return block
    heads = [_cells(line) for _, line in block[:at]]
    rows = [(number, _cells(line)) for number, line in block[at + 1 :]]
    if at == 1 and is_second(heads[0], rows[0][1]) and len(rows) > 1:
        heads.append(rows.pop(0)[1])
    elif at == 2 and any(_has_number(cells) for cells in heads):
        return block
    joined = len(heads) > 1 and len({len(cells) for cells in heads}) == 1
    titles = titles_of([_filled(heads[0], heads[1]), *heads[1:]]) if joined else heads[-1]
    if made_of := side_by_side(titles, rows):
        titles, rows, joined = *made_of, True
    if is_turned(titles, [cells for _, cells in rows]):
        names = units.titles([cells[0] for _, cells in rows], below)
        made = [row_text(cells) for cells in turned(titles, [[name, *cells[1:]] for name, (_, cells) in zip(names, rows)])]
        made.insert(1, row_text(["---"] * (made[0].count("|") - 1)))
        return [(block[0][0], text) for text in made]
    united = units.titles(_by_cells(titles, [cells for _, cells in rows]), below)
    titles, joined = united, joined or united != titles
    headings, named = _grouped(titles, rows)
    if headings:
        titles, rows, joined = [*titles, *headings], named, True
    if any(_RELEASE.fullmatch(clean(title)) for title in titles) and (measured := _measured(titles, above)) != titles:
        titles, joined = measured, True
    if (halves := _halved(titles, rows)) is not None:
        titles, rows, joined = *halves, True
    if any(arrow in line for _, line in block[at + 1 :] for arrow in _ARROWS):
        titles, rows, joined = _parted(titles, rows)
    if not joined:
        return block
    top = block[0][0]
    return [(top, row_text(titles)), (top, row_text(["---"] * len(titles))), *((n, row_text(cells)) for n, cells in rows)]


_IN_CELLS = re.compile(rf"[~≈]?(?:{NUMBER.pattern})\s?(?:[kKM万]|Tsd\.|Mio\.)?\s?"
                       r"((?<=[kKM])/s(?:ec)?(?:/(?:GPU|device|chip|card|node))?|"
                       r"(?:tok(?:en)?s?|samples?|seqs?)/s(?:ec)?(?:/(?:GPU|device|chip|card|node))?|"
                       r"TFLOPS?(?:/s)?(?:/(?:GPU|device|chip|card))?|m?s|secs?|Sek\.|秒|초)", re.IGNORECASE)
_TO_REACH = re.compile(r"\b(?:target|goal|expected|theor\w+|ideal|linear|paper|reported|peak|soll|ziel|max|old|previous|"
                       r"estimate\w*)\b", re.IGNORECASE)


def _by_cells(titles: list[str], rows: list[list[str]]) -> list[str]:
    """With the unit that all cells of a column have, where its heading says too little: `Durchsatz` of `32,4 Token/s`. A step
    that is no whole number is a time, and `s` of 4K and 8K a length."""
    fields = [read_heading(title).field for title in titles]
    made = list(titles)
    for at, (title, field) in enumerate(zip(titles, fields)):
        short = clean(title) in _LENGTHS and "seq" not in fields
        usual = field in ("", "throughput", "iteration", "tokens_per_s") and clean(title) and not _TO_REACH.search(title)
        if not short and not usual:
            continue
        cells = [clean(cells[at]) for cells in rows if at < len(cells) and not is_blank(clean(cells[at]))]
        if short and cells and all("seq" in composed(cell) for cell in cells[:MOST_ASKED]):
            made[at] = TITLES["seq"]
            continue
        if not usual:
            continue
        units = {match[1] if (match := _IN_CELLS.fullmatch(cell)) else "" for cell in cells[:MOST_ASKED]}
        unit = units.pop() if len(units) == 1 and len(cells) > 1 and field != "iteration" else ""
        if field == "iteration" and cells and all(map(_FRACTION.fullmatch, cells[:MOST_ASKED])):
            unit = "s"
        unit = f"tokens{unit}" if unit[:1] == "/" else unit  # so many thousands a second are nothing else
        new = f"{title} ({_PLAIN.get(unit.lower(), unit)})"
        meant = read_heading(new).field
        other = meant not in fields[:at] + fields[at + 1 :] and (field != "tokens_per_s" or meant != field)
        if unit and meant in MEASURES and other:
            made[at] = new
    return made


MOST_ASKED = 50
"""Cells of a column that are asked for their unit."""
_LENGTHS = frozenset({"s", "T", "n", "len", "length", "window"})
_FRACTION = re.compile(r"\d{1,4}[.,]\d{1,2}")
_PLAIN = {"sek.": "s", "秒": "s", "초": "s"}
_GROUPS = {"Model": re.compile(r"(?:\S+ ){0,3}?(\S*?\d+(?:\.\d+)?\s?[MBT])\b.{0,40}"),
           "GPUs": re.compile(r"(\d+)\s?(?:GPUs?|[AHB]\d{2,3}s?)\b.{0,40}"), "Nodes": re.compile(r"(\d+) nodes?\b.{0,40}")}


ABOVE = 8
"""Lines of text above a table that say what it holds."""
_ARROWS = ("→", "->", "⇒", "=>", "⟶")
_FIGURE = rf"[*_`~≈]*(?:{NUMBER.pattern})\s?(?:[kKM]|m?s|%|[GM]i?B)?[*_`]*"
_CHANGED = re.compile(rf"({_FIGURE})\s*(?:{'|'.join(_ARROWS)})\s*({_FIGURE})")
_RELEASE = re.compile(r"v?\d+(?:\.\d+)+\w*|main|master|baseline|before|after|old|new|(?:this )?PR|patched", re.IGNORECASE)
_OF = r"(?: ?(?:/|per|and|a) ?(?:GPU|device|chip|card|GCD|rank|node))?"
_SAID = re.compile(rf"\b(?:(?:tok(?:en)?|sample|sequence|seq)s? ?(?:/ ?|per |a )s(?:ec(?:ond)?)?{_OF}|"
                   rf"m?s(?:econds)? ?(?:/|per|a) ?(?:step|it|iter|iteration)|TFLOPs?(?:/s)?{_OF})(?![\w/])", re.IGNORECASE)


def _measured(titles: list[str], above: list[str]) -> list[str]:
    """With what the text says that columns hold whose headings are releases: `v2.3 | v2.4` in tokens/s per GPU."""
    releases = [title for title in titles if _RELEASE.fullmatch(clean(title))]
    said = {match[0].lower(): read_heading(match[0]).field for match in _SAID.finditer(clean(in_english(" ".join(above))))}
    said = {unit: field for unit, field in said.items() if field}
    if len(releases) < 2 or len({*said.values()}) != 1 or {*said.values()} & {read_heading(title).field for title in titles}:
        return titles
    return [f"{title} ({next(iter(said))})" if title in releases else title for title in titles]


def _parted(titles: list[str], rows: list[tuple[int, list[str]]]) -> tuple[list[str], list[tuple[int, list[str]]], bool]:
    """With two columns for one whose cells are figures before a change and after it; and whether there was such a one."""
    both = [sum(len(cells) == len(titles) and _CHANGED.fullmatch(clean(cells[at])) is not None for _, cells in rows)
            for at in range(len(titles))]  # fmt: skip
    two = {at for at, many in enumerate(both) if many > 1 and 2 * many >= len(rows)}
    if not two or any(len(cells) != len(titles) for _, cells in rows):
        return titles, rows, False

    def parts(at: int, cell: str) -> list[str]:
        match = _CHANGED.fullmatch(clean(cell)) if at in two else None
        return [match[1], match[2]] if match else [cell, cell] if at in two else [cell]

    heads = [text for at, title in enumerate(titles)
             for text in ([f"{title} (before)", f"{title} (after)"] if at in two else [title])]  # fmt: skip
    made = [(number, [text for at, cell in enumerate(cells) for text in parts(at, cell)]) for number, cells in rows]
    return heads, made, True


_STROKE, _INSIDE = re.compile(r"(.*\S) / (\S[^/]*)"), re.compile(r"([^()]*[^\s(]) ?\(([^()]+)\)")
_PRODUCT = re.compile(r"(?:[^()]*\()?([^()×*]*?[^()×*\s]) ?(?:[×*]| x ) ?([^()×*]+)\)?")
_BOTH = ((" / ", _STROKE, _STROKE), ("(", _INSIDE, _INSIDE), ("×", _PRODUCT, re.compile(r"(\d+) ?[x×*] ?(\d+)")),
         (" x ", _PRODUCT, re.compile(r"(\d+) ?[x×*] ?(\d+)")))  # fmt: skip
"""Two things in one cell, and in one heading: `tok/s/GPU / MFU`, `GPUs (nodes)`."""


def _halved(titles: list[str], rows: list[tuple[int, list[str]]]) -> tuple[list[str], list[tuple[int, list[str]]]] | None:
    """With two columns for one whose heading names two things and whose cells hold both, `2,580 (41.2%)`."""
    known = [read_heading(title).field for title in titles]
    if any(len(cells) != len(titles) for _, cells in rows):
        return None
    for at, title in enumerate(titles):
        for sign, heading, pattern in _BOTH:
            both = heading.fullmatch(clean(title)) if sign in title and not read_heading(title).parts else None
            found = [pattern.fullmatch(clean(cells[at])) for _, cells in rows] if both else []
            if both is None or 3 * sum(one is not None for one in found) < 2 * len(rows):
                continue
            fields = [read_heading(head).field for head in both.groups()]
            others = {*known[:at], *known[at + 1 :]} - {""}
            told = all(fields) or pattern is _STROKE
            if heading is _PRODUCT:
                told = "mbs" in fields and any(map(accumulates, both.groups()))
            if fields[0] == fields[1] or others & {*fields} or not told:
                continue
            made = [(number, [*cells[:at], *(match.groups() if match else (cells[at], "")), *cells[at + 1 :]])
                    for (number, cells), match in zip(rows, found)]  # fmt: skip
            return _halved(whole := [*titles[:at], *both.groups(), *titles[at + 1 :]], made) or (whole, made)
    return None


def _filled(groups: list[str], heads: list[str]) -> list[str]:
    """Groups as they go on where nothing stands: `A100 | | H100 |` over the headings of each."""
    filled: list[str] = []
    for group, head in zip(groups, heads):
        filled.append(group if group or not head or not filled else filled[-1])
    return filled if heads.count(heads[-1]) > 1 else groups


def _alone(cells: list[str]) -> str:
    """What the one cell of a row says that is not empty."""
    said = ""
    for cell in cells:
        if text := clean(cell):
            if said and (text != said or NUMBER.fullmatch(said)):  # a cell that spans all columns stands in each
                return ""
            said = text
    return said


def _grouped(titles: list[str], rows: list[tuple[int, list[str]]]) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Rows with one cell alone say what holds for those below them, `**13B, 8K**`: as more columns, and their headings."""
    alone = {number: said for number, cells in rows if len(cells) > 2 and (said := _alone(cells))}
    if not alone or rows[0][0] not in alone or 2 * len(alone) > len(rows):
        return [], []
    known = {read_heading(title).field for title in titles}
    settings = {number: composed(text) for number, text in alone.items()}
    first = next(iter(settings.values()))
    if first and first.keys() <= TITLES.keys() - known and all(one.keys() == first.keys() for one in settings.values()):
        labels = {number: [str(value) for value in one.values()] for number, one in settings.items()}
        return [TITLES[name] for name in first], _below(rows, labels)
    for heading, pattern in _GROUPS.items():
        matches = {number: pattern.fullmatch(text) for number, text in alone.items()}
        if all(matches.values()) and read_heading(heading).field not in known:
            return [heading], _below(rows, {number: [match[1]] for number, match in matches.items() if match})
    return [], []


def _below(rows: list[tuple[int, list[str]]], labels: dict[int, list[str]]) -> list[tuple[int, list[str]]]:
    """The rows but for those that label others, with what the one above them says."""
    made, label = [], list[str]()
    for number, cells in rows:
        label = labels.get(number, label)
        made += [] if number in labels else [(number, [*cells, *label])]
    return made


def _cells(line: str) -> list[str]:
    return [part.strip().replace("\\|", "|") for part in _PIPE.split(line.strip().removeprefix("|").removesuffix("|"))]


def _has_number(cells: list[str]) -> bool:
    return any(NUMBER.match(clean(cell)) for cell in cells)


def is_second(titles: list[str], cells: list[str]) -> bool:
    """Whether a row under the alignment is the rest of the headings: units and names, with no number."""
    said = [clean(cell) for cell in cells if clean(cell)]
    # Names, or the rest of them, as well as units where they are many; two are a glossary.
    heads = all(_UNIT.fullmatch(cell) or len(said) >= FEWEST_HEADINGS and (
        read_heading(cell).field or read_heading(f"{title} {cell}").field)
        for title, cell in zip(titles, map(clean, cells)) if cell)
    # Nothing that is counted has a unit, but for thousands.
    counts = [(column := read_heading(title)).kind == "count" and column.field != "iteration" for title in titles]
    counted = any(count and _UNIT.fullmatch(clean(cell)) and normal(cell) not in COUNTED
                  for count, cell in zip(counts, cells))  # fmt: skip
    return len(titles) == len(cells) and bool(said) and heads and not counted and not _has_number(said)


_OF_UNITS = re.compile(r"units?|einheit|unite|unidad|unita|unidade|jednostka|eenheid|birim|единица|ед\.?|单位|単位|단위")
_BESIDE = re.compile(
    r"(?:notes?|comments?|remarks?|source|where|how|bemerkung(?:en)?|anmerkung(?:en)?|remarques?|nota[es]?|uwagi|备注|備考|"
    r"(?:rel(?:ative|\.)? )?(?:change|speed-?up|delta|diff(?:erence)?|ratio|gain|improvement|factor)|[δ∆]|%|± ?%|"
    r"vs\.? .{1,20}|.{0,12} (?:vs\.?|over) .{1,12}|veranderung|anderung|faktor|differenz|ecart|variation|cambio|"
    r"diferencia|差|変化|变化|加速比|提升)(?: ?\(.{1,8}\)| ?%)?", re.IGNORECASE)
"""Columns that are no run, where runs stand side by side."""
_STATISTICS = re.compile(r"min(?:imum)?|max(?:imum)?|mean|avg|average|median|std(?:dev)?|stddev|[pq]\d{2}(?:\.\d)?|"
                         r"first|last|count|sum|default|type|description|meaning|range|allowed|limit|target|goal|from|to|"
                         r"step|epoch|rank|quantity", re.IGNORECASE)


def _of_runs(titles: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """A table of quantities without the columns that are no run: units go to the names, and words and changes go."""
    kept = [at for at, title in enumerate(titles) if not at or not _BESIDE.fullmatch(plain_letters(clean(title)))]
    units = [at for at in kept if at and _OF_UNITS.fullmatch(plain_letters(clean(titles[at])).lower())]
    if len(units) == 1:
        kept.remove(units[0])
        rows = [[_united(cells[0], clean(cells[units[0]])), *cells[1:]] for cells in rows]
    return [titles[at] for at in kept], [[cells[at] for at in kept] for cells in rows]


def _united(name: str, unit: str) -> str:
    """`throughput` in `M tokens/s`, but `sequence` in tokens is what it is."""
    column, made = read_heading(name), f"{name} ({unit})"
    if not unit or column.kind == "count" or "(" in name:
        return name
    return made if read_heading(made).field else name


def is_turned(titles: list[str], rows: list[list[str]]) -> bool:
    """Whether runs stand side by side: the first cells read as headings, and what stands above them does not."""
    from seatrial.notes.read.rows import is_table_of_runs

    if len(titles) < 2 or any(len(cells) != len(titles) for cells in rows):
        return False
    if not any(read_heading(cells[0]).field and not NUMBER.match(clean(cells[0])) for cells in rows):
        return False
    titles, rows = _of_runs(titles, rows)
    settings = _settings_of(titles[1:])
    heads = sum(bool(read_heading(title).field) for title in titles[1:])
    if len(titles) < 2 or 2 * heads >= len(titles) - 1 and not settings and not _has_number(titles[1:]):
        return False
    if any(_STATISTICS.fullmatch(clean(title)) for title in titles[1:]):
        return False
    names = [cells[0] for cells in rows]
    known = [name for name in names if read_heading(name).field and not NUMBER.match(clean(name))]
    columns = settle([read_heading(name) for name in [titles[0], *names]])
    fields, first = {column.field for column in columns}, read_heading(titles[0])
    said = bool(settings) and not settings[0].keys() & fields
    columns = settle([*columns, *(read_heading(TITLES[field]) for field in settings[0])]) if said else columns
    counted = first.field in TITLES and not any(read_cell(first, title).unread for title in titles[1:])
    few = (said or counted) and len(titles) > 2 and bool(fields & _SPEEDS)  # a data sheet has none
    most = 2 * len(known) > len(names) or few and len(known) >= FEWEST_HEADINGS
    return len(known) >= (1 if few else FEWEST_HEADINGS) and most and is_table_of_runs(columns)


_SPEEDS = {*MEASURES, "throughput"} - {"tflops", "aggr_pflops", "mem_value", "loss"}


def _settings_of(titles: list[str]) -> list[dict[str, object]]:
    """What each of several says of its run, where all say the same things and not all the same."""
    said = [composed(title) for title in titles]
    alike = said and all(one and one.keys() == said[0].keys() and one.keys() <= TITLES.keys() for one in said)
    return said if alike and (len(said) == 1 or any(one != said[0] for one in said)) else []


def turned(titles: list[str], rows: list[list[str]]) -> list[list[str]]:
    """The same with one row a run, the headings first."""
    titles, rows = _of_runs(titles, rows)
    names = [cells[0] for cells in rows]
    settings = _settings_of(titles[1:])
    if settings and not read_heading(titles[0]).field and not {*settings[0]} & {read_heading(name).field for name in names}:
        heads = [[TITLES[field] for field in settings[0]], *([str(value) for value in one.values()] for one in settings)]
    else:
        first = titles[0] if read_heading(titles[0]).field else "Model" if all(map(_is_size, titles[1:])) else "Run"
        heads = [[first], *([title] for title in titles[1:])]
    return [[*heads[0], *names], *([*heads[at], *(cells[at] for cells in rows)] for at in range(1, len(titles)))]


def _is_size(text: str) -> bool:
    return re.fullmatch(r"\d+(?:\.\d+)?\s*[mbt]", normal(text).strip()) is not None
