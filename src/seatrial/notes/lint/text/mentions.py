"""The rows of a table that a sentence speaks of, by the columns that it takes them by: what it compares, and what both have.

    some = mentions("From 4 to 16 nodes (TP = 4) it runs 2.7 times as fast.", rows)      nodes 4, nodes 16, TP 4
    two_sides(some, rows)                            the rows of 4 nodes and those of 16, with TP 4
    spoken_of(some, rows)                            those that have all of what is named

A column of which two values are named is what is compared; one of which a single one is named holds for both sides.
"""
from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.text.claims import _COUNTS as SPELLED
from seatrial.notes.lint.text.claims import _ROW as NUMBERED
from seatrial.notes.lint.text.claims import _numbered as numbered
from seatrial.notes.lint.text.claims import heading_words, lettered, tokens
from seatrial.notes.lint.text.figures import figures
from seatrial.tables.headings import clean, decimal
from seatrial.tables.tongues import lowered, plain_letters

MOST_ROWS = 40
_TO = (r"(?:to|auf|bis|a|au|al|naar|na|do|till|til|к|до|на|->|→|-|–|から|から 1?|到|扩到|增加到|에서|and|und|et|y|e|en|и|"
       r"vs\.?|against|over|gegen|als|contre|contra|versus|than|statt|anstatt|instead of|rather than|en vez de|"
       r"en lugar de|au lieu de|invece di|em vez de|in plaats van|вместо|for|と)")  # fmt: skip
_JOINED = re.compile(rf"(?<![\w.,])(\d[\d,]*)(?:[ -]?(?!to\b|a\b|and\b)[^\W\d]+)?\s?(?:\([^()]*\) )?{_TO}\s*"
                     rf"(?:the |den |les |las )?(\d[\d,]*)(?![\d.,]*\d|\s?%)", re.IGNORECASE)  # fmt: skip
_SPELLED = re.compile(rf"\b({'|'.join(SPELLED)})(?= (?:\w+ )?(?:nodes?|gpus?|chips?|cards?|devices?|knoten|karten|"
                      rf"n(?:oe)?uds?|nodos?|nodi|cartes|tarjetas|placas|hosts?|slices?|[AHVB]\d00s?)\b)|"
                      rf"(?<= to )({'|'.join(SPELLED)})\b", re.IGNORECASE)  # fmt: skip


@dataclass(frozen=True)
class Mention:
    start: int
    end: int
    heading: str
    value: str
    rows: frozenset[int]


def spelled(text: str) -> str:
    """With digits for words before what is counted; as long as the text."""
    return _SPELLED.sub(lambda match: str(SPELLED[lowered(match[0])]).rjust(len(match[0])), text)


def mentions(text: str, rows: Sequence[Row]) -> list[Mention]:
    """In the order of the text, in plain letters."""
    rows = rows[:MOST_ROWS]
    if not rows:
        return []
    known, key = rows[0].sheet.mentioned, (text, tuple(row.index for row in rows))
    if key not in known:
        known[key] = _mentions(text, rows)
    return [*known[key]]  # type: ignore[misc]


def _mentions(text: str, rows: Sequence[Row]) -> list[Mention]:
    text = spelled(text)
    letters = text.casefold()
    found = [*_counts(text, rows), *_settings(letters, rows), *_names(letters, rows), *_numbers(text, rows),
             *_ends(letters, rows), *_letters(text, rows), *_months(letters, rows)]  # fmt: skip
    found = [one for one in found if one.rows]
    found += [*_joined(text, rows, found), *_held_against(text, rows, found)]
    found += _steps_of_a_column(text, rows, found)
    kept: dict[tuple[int, str], Mention] = {}
    for one in sorted(found, key=lambda one: (one.start, one.start - one.end)):
        kept.setdefault((one.start, one.heading), one)
    return [one for one in kept.values() if 0 < len(one.rows) < len(rows)]


_BASE = re.compile(r"\bbase ?line\b|基线|基準|ベースライン|베이스라인|\bbasislauf\b|linea (?:de )?base", re.IGNORECASE)


def _counts(text: str, rows: Sequence[Row]) -> list[Mention]:
    found = []
    for one in figures(text):
        if one.kind in ("devices", "nodes") and not one.bound:
            its = [row.record.gpus or row.world if one.kind == "devices" else row.record.nodes for row in rows]
            if one.kind == "devices" and one.value == 1 and 1 not in its:
                continue  # `per GPU`
            found.append(Mention(one.start, one.end, one.kind, one.text,
                                 frozenset(at for at, size in enumerate(its) if size == one.value)))  # fmt: skip
    for match in _FROM_TO.finditer(text):
        kind = "nodes" if match["node"] else "devices"
        its = [row.record.gpus or row.world if kind == "devices" else row.record.nodes for row in rows]
        found += [Mention(match.start(end), match.end(end), kind, match[end],
                          frozenset(at for at, size in enumerate(its) if size == int(match[end]))) for end in ("one", "other")]
    for match in _ANOTHER.finditer(text):
        place = match.start()
        kind = "nodes" if match["node"] else "devices"
        its = [row.record.gpus or row.world if kind == "devices" else row.record.nodes for row in rows]
        found += [Mention(place + 2 - many, match.end(), kind, str(many),
                          frozenset(at for at, size in enumerate(its) if size == many)) for many in (2, 1)]  # fmt: skip
    return found


_FROM_TO = re.compile(r"\b(?:(?P<node>nodes|hosts|knoten|noeuds|nodos|nodi|nos|узл\w+)|gpus|cards|chips|devices|karten|"
                      r"cartes|tarjetas|"
                      r"schede|placas|карт\w*) (?:from|von|de|da|di|od|с|от|van) (?P<one>\d{1,5}) (?:to|auf|bis|zu|a|до|"
                      r"do|naar) "
                      r"(?P<other>\d{1,5})(?![\d.,]*\d)", re.IGNORECASE)  # fmt: skip
"""`doubling the nodes from 8 to 16`"""
_ANOTHER = re.compile(r"\b(?:second|zweite[rnms]?|deuxieme|seconde|segund[ao]|second[ao]|tweede|втор\w{2}|drug[ai]|druh\w|"
                      r"andra|"
                      r"anden) (?:[^\W\d_]+ )?(?:(?P<node>nodes?|box|host|knoten|noeud|nodo|machine|rechner|узел|"
                      r"knooppunt)|gpus?|card|"
                      r"chip|karte|carte|tarjeta|scheda|placa|kaart|карта|device|[345]0[6-9]0|[AHVBL]\d{2,3}s?)\b",
                      re.IGNORECASE)  # fmt: skip
"""`a second card`: from one to two."""


def _settings(letters: str, rows: Sequence[Row]) -> list[Mention]:
    """`mbs 4`, `TP=2`, `64 experts`: by a word of the heading."""
    found = []
    for heading in rows[0].record.printed:
        values: dict[str, set[int]] = {}
        for at, row in enumerate(rows):
            cell = decimal(clean(row.record.printed.get(heading, "")).strip())
            if re.fullmatch(r"\d{1,6}", cell):
                values.setdefault(cell, set()).add(at)
        if len(values) < 2 or 2 * sum(map(len, values.values())) < len(rows):
            continue
        counted = {"gpus": "devices", "nodes": "nodes"}.get(field_of(heading), heading)
        for name in _called(heading):
            if name not in letters:
                continue
            apart = r"\s?=\s?" if len(name) == 1 else r"[ -]?(?:size )?(?:=|of|von|de)?\s?"
            for match in re.finditer(rf"(?<![^\W\d_]){re.escape(name)}{apart}(\d{{1,6}})(?![\w.]*\d)|"
                                     rf"(?<![\w.,])(\d{{1,6}}|{_SMALL}) {re.escape(name)}(?![^\W_])", letters):  # fmt: skip
                value = match[1] or str(SPELLED.get(match[2], match[2]))
                if (match[1] or len(name) > 2) and value in values:
                    found.append(Mention(match.start(1 if match[1] else 2), match.end(), counted, value,
                                         frozenset(values[value])))  # fmt: skip
    return found


_COMMON = frozenset("per of in and the a an no on size s ms step steps time tokens tok gpu gpus global local max total mem run "
                    "day days hours hour".split())


_SMALL = "|".join(word for word, count in SPELLED.items() if count > 1)
_ALSO = {"mbs": ("micro-batch", "micro batch", "microbatch", "mbs"), "gbs": ("batch", "gbs", "global batch"),
         "seq": ("sequence", "sequence length", "context", "seq")}  # fmt: skip
_ACCUMULATED = re.compile(r"\b(?:grad\w* )?acc(?:um)?\b|^ga$|^gas$")


@functools.lru_cache(maxsize=4096)
def _called(heading: str) -> list[str]:
    bare = plain_letters(clean(heading)).casefold().strip()
    words = {word for word in re.findall(r"[^\W\d_]+", f"{heading_words(heading)} {bare}") if word not in _COMMON}
    words |= {*_ALSO.get(field_of(heading), ())} | ({"accumulation", "accum"} if _ACCUMULATED.search(bare) else set())
    return sorted({*words, bare.strip("?:. ")} - {""}, key=len, reverse=True)[:8]


def _names(letters: str, rows: Sequence[Row]) -> list[Mention]:
    """Words of cells that not all rows have, and the row that others are measured against."""
    found = []
    for heading in rows[0].record.printed:
        words: dict[str, set[int]] = {}
        field = field_of(heading)
        numbered_too = field in ("", "machine", "size_label") and any(heading in row.worded for row in rows)
        versions = not field and _VERSION.search(heading) is not None
        for at, row in enumerate(rows):
            cell = row.worded.get(heading, "") or (row.cells.get(heading, "") if numbered_too else "")
            counts = row.cells.get(heading, "").casefold()
            cell = cell or (counts if _SO_MANY.fullmatch(counts) else "")
            sized = {cell.casefold()} if re.fullmatch(r"\d+(?:\.\d+)?[kKMB]|\d{3,5}", cell) else set()
            if versions and _NUMBERED.fullmatch(row.cells.get(heading, "")):
                sized = {row.cells[heading].casefold()}
            whole = row.cells.get(heading, "")
            sized |= {whole} if not row.worded.get(heading) and _A_DAY.fullmatch(whole) else set()
            begun = {cell.casefold()} if cell[:1].isdigit() and " " in cell and cell.upper() != cell.lower() else set()
            for word in tokens(cell) | sized | begun | _counted(cell) if len(cell) < 60 else ():
                words.setdefault(word, set()).add(at)
        alone = {row.cells.get(heading, "").casefold() for row in rows}
        for word in (word for word in words if word.isdecimal() and word in alone):  # `3090` beside `2x 3090` is one of them
            words[word] = {at for at in words[word] if rows[at].cells.get(heading, "").casefold() == word}
        taken: list[tuple[int, int]] = []
        for word, its in sorted(words.items(), key=lambda one: -len(one[0])):
            if len(its) == len(rows) or word not in letters or len(word) < 2:
                continue
            ends = (rf"(?<!{_LETTER})", rf"(?!{_LETTER})") if word.isascii() or not _CJK.search(word) else ("", "")
            ends = (r"(?<![\w.,])", r"(?![\w.,]*[\w%])") if _NUMBERED.fullmatch(word) else ends
            plural = "s?" if word.isascii() and word[-1].isdigit() else ""
            plural = "(?:s|es|ing|ed|en)?" if word.isascii() and word.isalpha() and len(word) > 4 else plural
            for match in re.finditer(rf"{ends[0]}{re.escape(word)}{plural}{ends[1]}", letters):
                if not any(start < match.end() and match.start() < end for start, end in taken):
                    taken.append(match.span())
                    found.append(Mention(match.start(), match.end(), heading, word, frozenset(its)))
    return found


_MONTHS = tuple(re.compile(rf"\b(?:{names})\b") for names in (
    "january|januar|janvier|enero|gennaio|janeiro|januari|jan",
    "february|februar|fevrier|febrero|febbraio|fevereiro|februari|feb",
    "march|marz|mars|marzo|marco|maart|mar", "april|avril|abril|aprile|apr", "may|mai|mayo|maggio|maio|mei",
    "june|juni|juin|junio|giugno|junho|jun", "july|juli|juillet|julio|luglio|julho|jul", "august|aout|agosto|augustus|aug",
    "september|septembre|septiembre|settembre|setembro|sep|sept", "october|oktober|octobre|octubre|ottobre|outubro|oct|okt",
    "november|novembre|noviembre|novembro|nov", "december|dezember|decembre|diciembre|dicembre|dezembro|dec|dez"))  # fmt: skip
_OF_MONTHS = re.compile(r"month|monat|mois|\bmes\b|mese|maand|месяц|月", re.IGNORECASE)


def _months(letters: str, rows: Sequence[Row]) -> list[Mention]:
    """`July` for 2025-07"""
    found = []
    for heading in rows[0].record.printed:
        cells = [row.cells.get(heading, "") for row in rows] if _OF_MONTHS.search(heading) else []
        months = [re.fullmatch(r"(?:\d{4}[-/.])?(\d{1,2})(?:[-/.]\d{4})?", cell.strip()) for cell in cells]
        for count, pattern in enumerate(_MONTHS, 1) if any(months) else ():
            its = frozenset(at for at, month in enumerate(months) if month and int(month[1]) == count)
            found += [Mention(match.start(), match.end(), heading, str(count), its) for match in pattern.finditer(letters)]
    return found


_A_DAY = re.compile(r"(?:20\d\d-)?\d\d-\d\d|\d{1,2}[./]\d{1,2}\.?(?:20\d\d)?")
"""`the job of 02-17`"""
_VERSION = re.compile(r"versi|release|branch|commit|torch|driver|nccl|cuda|rocm|version", re.IGNORECASE)
_NUMBERED = re.compile(r"v?\d{1,3}(?:\.\d{1,3}){1,2}")
_SO_MANY = re.compile(r"(\d{1,2}) ?[x×] ?(?=\w*\d)(\w[\w .-]{1,24})")


def _counted(cell: str) -> set[str]:
    """`two 3090s` for 2x 3090"""
    match = _SO_MANY.fullmatch(cell.casefold().strip())
    if match is None:
        return set()
    words = [word for word, many in SPELLED.items() if many == int(match[1])]
    named = {match[2]} if re.fullmatch(r"\d{4}", match[2]) else set()
    return {f"{count} {match[2]}" for count in (f"{match[1]}x", match[1], *words)} | named


_AT = re.compile(r"\b(?:[Aa]t|[Oo]n|[Bb]ei|[Aa]uf|[Ss]ur|[Cc]on) (\d{2,6})"
                 r"(?= (?:that|it|we|this|the|is|are|das|cela)\b|[.,;:](?!\d)|$)")  # fmt: skip
_OF_DEVICES = re.compile(r"\d ?(?:GPU|chip|card|device)s?\b")
_SHARP = re.compile(r"(?:#|\bn[°º] ?|№ ?|\bn[or]\. |第 ?)(\d{1,2})(?!\w|[.,]\d)|第 ?(\d{1,2}) ?(?:行|组|次|轮|号|个)")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_LETTER = r"[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
"""Of a script that parts its words: what stands at `BF16` in `BF16보다` is another word."""
_WITH = re.compile(r"(?:\b(?:with|by|run|config|mit|avec|con|com|met|as|than|vs|against) |#)(\d{1,3})"
                   r"(?![\w.,]*\d| ?%|[ -]?[a-z])|^(\d{2}) (?=\w)")  # fmt: skip


def _numbers(text: str, rows: Sequence[Row]) -> list[Mention]:
    """Rows by their numbers: `#8`, and where a table writes 03 also `13 beats 03`."""
    firsts = [next(iter(row.cells.values()), "").strip("#* ") for row in rows]
    sizes = [row.record.gpus or row.world for row in rows]
    alone = [(match, frozenset(at for at, size in enumerate(sizes) if size == int(match[1]))) for match in _AT.finditer(text)]
    sharp = [(match, numbered(list(rows), int(match[1] or match[2]))) for match in _SHARP.finditer(text)]
    found = [Mention(match.start(at), match.end(at), "#", match[at], frozenset(numbered(list(rows), int(match[at]))))
             for match in NUMBERED.finditer(text) for at in (1, 2) if match[at]]  # fmt: skip
    found += [Mention(match.start(at), match.end(at), "#", match[at], frozenset(its)) for match, its in sharp if its
              for at in (1 if match[1] else 2,)]  # fmt: skip
    found += [Mention(match.start(1), match.end(), "devices", match[1], its) for match, its in alone
              if len(its) == 1 or its and len(alone) == 1 and _OF_DEVICES.search(text)]
    base = _BASE.search(text)
    if base is not None and len(found) == 1:  # where no row says that it is the base, the first one is
        its = [at for at, row in enumerate(rows) if _BASE.search(row.text)]
        found += [Mention(base.start(), base.end(), "#", "base", frozenset(its or [0]))] if len(its) < 2 else []
    if any(re.fullmatch(r"0\d+", one) for one in firsts):
        for match in _WITH.finditer(text):
            place = 1 if match[1] else 2
            same = frozenset(at for at, one in enumerate(firsts) if one == match[place])
            found += [Mention(match.start(place), match.end(place), "#", match[place], same)] if same else []
    return found


_A_ROW = (r"(?:row|line|setup|run|layout|config\w*|variant|setting|entry|zeile|lauf|ligne|linea|fila|riga|linha|"
          r"configura\w+|essai|variante|regel|wiersz\w*|строк\w*)")  # fmt: skip
FIRST_ROW = re.compile(rf"\b(?:first|top|erste[rn]?|oberste[rn]?|premiere?|primer[ao]?|prim[ao]|primeir[ao]|eerste|pierwsz\w+|"
                    rf"перв\w+) {_A_ROW}\b|\b{_A_ROW} (?:prim[ao])\b|第一行|最初の行|先頭行", re.IGNORECASE)  # fmt: skip
LAST_ROW = re.compile(rf"\b(?:last|bottom|final|letzte[rn]?|unterste[rn]?|derniere?|ultim[ao]|laatste|ostatni\w*|последн\w+) "
                   rf"{_A_ROW}\b|(?<=first row and )(?:the )?last\b|(?<=first to )(?:the )?last\b|"
                   rf"最后一行|最終行|最後の行", re.IGNORECASE)  # fmt: skip


def _ends(letters: str, rows: Sequence[Row]) -> list[Mention]:
    """`the last row`"""
    return [Mention(match.start(), match.end(), "#", name, frozenset((at,)))
            for name, pattern, at in (("first", FIRST_ROW, 0), ("last", LAST_ROW, len(rows) - 1))
            for match in pattern.finditer(letters)]  # fmt: skip


def _letters(text: str, rows: Sequence[Row]) -> list[Mention]:
    """Rows that have a letter for a name: `C to D`."""
    found: list[Mention] = []
    places: dict[tuple[int, int], set[int]] = {}
    for at, match in lettered(text, rows):
        places.setdefault(match.span(), set()).add(at)
    for (start, end), its in sorted(places.items()):
        last = found[-1] if found else None
        if last is not None and re.fullmatch(r", ?|/", text[last.end : start]):  # `(e, f)` are one side
            found[-1] = Mention(last.start, end, "#", text[last.start : end], last.rows | its)
        else:
            found.append(Mention(start, end, "#", text[start:end], frozenset(its)))
    return found


_STEP = r"(\d[\d.,]*?)(?: ?(k|K|M)?(?![^\W_])| ?([^\W\d_]{1,4}))"
_STEPS = re.compile(rf"(?<![\w.,]){_STEP} {_TO} (?:the |den |les |las )?{_STEP}(?![\d.,]*\d| ?%)", re.IGNORECASE)
_BEGINS = re.compile(r"[~≈]?\s?(\d[\d.,]*?)\s?(k|K|M)?(?![\d.,\u202f ]*\d)")


def _steps_of_a_column(text: str, rows: Sequence[Row], found: list[Mention]) -> list[Mention]:
    """Two values of the one column that has both, whatever it is: `from 450 W to 300 W`, `from accum 1 to accum 8`."""
    made: list[Mention] = []
    for match in _STEPS.finditer(text):
        if any(one.start < match.end() and match.start() < one.end for one in found):
            continue
        its = [(decimal(match[at]), (match[at + 1] or "").casefold()) for at in (1, 4)]
        its[0] = (its[0][0], its[0][1] or its[1][1])
        ways: dict[tuple[frozenset[int], ...], str] = {}
        for heading in rows[0].record.printed:
            begun = [_BEGINS.match(row.cells.get(heading, "")) for row in rows]
            cells = [cell and (decimal(cell[1]), (cell[2] or "").casefold()) for cell in begun]
            both = tuple(frozenset(at for at, cell in enumerate(cells) if cell == one) for one in its)
            if all(both) and both[0] != both[1] and field_of(heading) not in _MEASURED:
                ways.setdefault(both, heading)
        if len(ways) == 1:
            (both, heading), = ways.items()
            made += [Mention(match.start(place), match.end(place), heading, match[place], side)
                     for place, side in zip((1, 4), both)]  # fmt: skip
    return made


_MEASURED = frozenset(("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops", "aggr_pflops",
                       "mfu", "hfu", "mem_value", "loss", "iteration"))  # fmt: skip


def _joined(text: str, rows: Sequence[Row], found: list[Mention]) -> list[Mention]:
    """The one of two numbers whose unit stands at the other one only: `from 16 nodes to 192`."""
    made = []
    places = {one.start: one for one in found}
    for match in _JOINED.finditer(text):
        one, other = places.get(match.start(1)), places.get(match.start(2))
        known, place = (one, 2) if one is not None else (other, 1)
        if known is None or one is not None and other is not None:
            continue
        value = match[place].replace(",", "")
        its = frozenset(at for at, row in enumerate(rows) if _has(row, known.heading, float(value)))
        made += [Mention(match.start(place), match.end(place), known.heading, value, its)] if its else []
    return made


_THAN_ONE = re.compile(rf"\b(?:than|as|быстрее|медленнее|over|against|vs\.?|versus|als|gegen(?:uber)?|statt|anstatt|que|contre|"
                       rf"au lieu d[e']|instead of|en vez de|en lugar de|invece di|em vez de|in plaats van|вместо|"
                       rf"rispetto a|di|dan|tegen|чем|niz) (?:with |at |mit |avec |con |bei |on |auf |sur |на |su |"
                       rf"op )?(?:only |just |nur )?"
                       rf"(\d{{1,5}}|one|{_SMALL}|einem|einer|un|uno|одного|одной|одном)"
                       rf"(?=[.,;:)](?!\d)|\s*$|\s(?:and|on|at|is|und|et|el|la|le|il|the|der|die|das|o|we|"
                       rf"wir|nous|on)\b)", re.IGNORECASE)  # fmt: skip


def _held_against(text: str, rows: Sequence[Row], found: list[Mention]) -> list[Mention]:
    """A number that is held against one with a unit: `5 chunks are 7 % faster than 1`."""
    made = []
    for match in _THAN_ONE.finditer(text):
        before = [one for one in found if one.end <= match.start() and one.value.isdecimal() and one.heading != "#"]
        value = SPELLED.get(match[1].casefold()) or (int(match[1]) if match[1].isdecimal() else 1)
        for one in sorted(before, key=lambda one: -one.start)[:1]:
            its = frozenset(at for at, row in enumerate(rows) if _has(row, one.heading, value))
            made += [Mention(match.start(1), match.end(1), one.heading, str(value), its)] if its else []
    return made


def _has(row: Row, heading: str, value: float) -> bool:
    if heading == "devices":
        return (row.record.gpus or row.world) == value
    if heading == "nodes":
        return row.record.nodes == value
    cell = decimal(clean(row.record.printed.get(heading, "")).strip())
    return cell.isdecimal() and float(cell) == value


def by_column(some: Sequence[Mention]) -> dict[str, list[Mention]]:
    columns: dict[str, list[Mention]] = {}
    for one in some:
        its = columns.setdefault(one.heading, [])
        if one.rows not in [other.rows for other in its]:
            its.append(one)
    return columns


def spoken_of(some: Sequence[Mention], rows: Sequence[Row]) -> list[Row]:
    """Rows that have all of what is named, each column once."""
    columns = by_column(some)
    if not columns or any(len(its) != 1 for its in columns.values()):
        return []
    left = frozenset.intersection(*(its[0].rows for its in columns.values()))
    return [rows[at] for at in sorted(left)]


def two_sides(some: Sequence[Mention], rows: Sequence[Row]) -> tuple[list[Row], list[Row]] | None:
    columns = by_column(some)
    apart = [its for its in columns.values() if len(its) == 2 and its[0].rows != its[1].rows]
    if not apart or any(len(its) > 2 for its in columns.values()):
        return None
    both = [its[0].rows for its in columns.values() if len(its) == 1]
    for order in itertools.product((0, 1), repeat=min(len(apart) - 1, 3)):
        sides = [frozenset.intersection(*(its[side ^ turned].rows for its, turned in zip(apart, (0, *order))))
                 for side in (0, 1)]  # fmt: skip
        for its in both:
            sides = [side & its or side for side in sides]
        if sides[0] and sides[1] and not sides[0] & sides[1]:
            return [rows[at] for at in sorted(sides[0])], [rows[at] for at in sorted(sides[1])]
    return None
