"""A setting that the text states and that nearly all rows deny: said once, at the text's line."""
from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator

from seatrial.columns import COLUMNS
from seatrial.notes.lint.columns.relations import ENOUGH_ROWS, RELATIONS, SMALL, UNSAID, key_of, term
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.usual import mode, round_number
from seatrial.notes.read.outline import HEADING
from seatrial.notes.read.rows import chips_of
from seatrial.tables.tongues import in_english

_FROM_TEXT = ("gbs", "seq", "mbs", "tp")
_MAY_DENY = {relation: names for relation in RELATIONS if relation.exact and (names := tuple(
    name for name, power in relation.terms if power == -1 and name in _FROM_TEXT))}  # fmt: skip
"""Exact relations and what of them a text may state."""


def stated_otherwise(mates: list[Row]) -> list[Finding]:
    """A setting that the text states and that nearly all rows deny by one factor: once, at the text's line."""
    first = mates[0]
    told: dict[str, set[float]] = {}
    for relation, names in _MAY_DENY.items():
        rule = first.sheet.rules.get(("table", first.key, key_of(first, relation)))
        if rule is None or rule.support < ENOUGH_ROWS or abs(rule.constant) < 0.1:
            continue
        asked = [name for name in names if first.stated_above(name) and not any(row.shows(name) for row in mates)]
        if "mbs" in asked and _counted_elsewhere(first):
            asked.remove("mbs")
        if not asked:
            continue
        if UNSAID in key_of(first, relation) or any(term(first, name, {}) is None for name, _ in relation.terms):
            continue
        if any(_is_loose(first, name) for name, _ in relation.terms):
            continue
        counts = {row.world or 1 for row in mates} | {first.procs or 1}
        counts |= {4, 8, 16} if first.record.nodes and not first.record.gpus and not first.record.procs_per_node else set()
        if any(abs(abs(rule.constant) - math.log(count)) < 0.01 for count in counts):
            continue  # of one device, or of all of them
        for name in asked:
            was = first.stated_above(name)
            assert was is not None
            meant = float(was[0]) * math.exp(rule.constant)  # type: ignore[arg-type]
            whole = (round(meant), 2 ** max(0, round(math.log2(meant))))
            near = [n for n in whole if abs(n / meant - 1) < 0.01 and round_number(n)]
            if near:
                told.setdefault(name, set()).add(near[-1])
    # Where the batch and the sequence would both do, the batch is what people change, unless the FLOPs of a token tell, or the
    # tokens of the batch that its own line counts.
    longer = "seq" in told and len(told["seq"]) == 1 and (_attends(mates, first.seq or 0, int(min(told["seq"])))
                                                          or _in_tokens(first, int(min(told["seq"]))))  # fmt: skip
    name = "seq" if longer else "gbs" if "gbs" in told else next(iter(told), "")
    values = told.get(name, set())
    if len(values) != 1:
        return []
    value, line = first.stated_above(name) or (0, 0)
    meant = min(values)
    words = "\n".join(first.sheet.text(first).lines[line - 1 : line])
    clauses = [one for one in re.split(r"[,;()]", words) if re.search(rf"(?<![\d.]){meant:g}(?![\d.])", one)]
    if any(not re.search(r"hidden|dim|width|ffn|mlp|layers|embed|\bd\b|d_|\bh\b|n_", one, re.IGNORECASE) for one in clauses):
        return []  # it says both, of one thing and of another
    hints = first.sheet.text(first).hints
    loosely, surely = (hints.nearest(first.record, name, surely=sure) for sure in (False, True))
    if loosely is not None and loosely[1] > line and loosely[0] == meant:
        return []  # what is nearer to the rows says so
    value, line = surely if surely is not None and surely[1] > line else (value, line)
    message = f"line {line} says {first.column(name)} {value}, and the figures of the rows below agree on {meant:g}"
    return [Finding(file=first.record.source_file, line=line, code="header-vs-row", level="error", message=message,
                    column=first.column(name), printed=str(value), proposed=f"{meant:g}")]  # fmt: skip


_TOKENS_OF_ALL = re.compile(r"(?<![\d.,])(\d+(?:\.\d+)?) ?M(?:illion)? tok", re.IGNORECASE)


def _in_tokens(row: Row, seq: int) -> bool:
    """Whether the line that states the batch has its tokens too, as they are with sequences of a length."""
    stated = row.stated_above("gbs")
    said = _TOKENS_OF_ALL.search("".join(row.sheet.text(row).lines[stated[1] - 1 : stated[1]])) if stated else None
    return bool(said and row.record.gbs) and abs(row.record.gbs * seq / 1e6 / float(said[1]) - 1) < 0.01  # type: ignore[operator, index]


def _is_loose(row: Row, name: str) -> bool:
    """Whether only a sentence that hardly says so has a batch of the row: it may be another table's."""
    if name not in ("gbs", "mbs") or row.shows(name) or name not in row.record.inferred:
        return False
    loosely, surely = (row.sheet.text(row).hints.nearest(row.record, name, surely=sure) for sure in (False, True))
    return surely is None and loosely is not None and loosely[0] == getattr(row.record, name)


def _counted_elsewhere(row: Row) -> bool:
    """Whether the devices are counted in the text of another heading, and the batch of each below the row's own."""
    count, stated, text = row.stated_above("gpus"), row.stated_above("mbs"), row.sheet.text(row)
    if count is None or stated is None or row.shows("gpus") or row.shows("nodes"):
        return False
    return any(HEADING.match(line) for line in text.lines[count[1] : stated[1] - 1])


_STEPS = re.compile(r"\b(?:grad(?:ient)?[ _.-]*)?(?:accum\w*|acc(?:um)?\.?|GAS?|Akkumulation)(?:[ _-]*steps?)?(?: of| is)?"
                    r"\s*[:=x×]?\s*(\d{1,5})\b(?![.,]?\d|\s?[x×/%-])|(?<![\d.,x×/-])(\d{1,5})[ -]?(?:x |× )?(?:steps of )?"
                    r"(?:grad(?:ient)?[ -])?accumulation(?: steps?)?\b(?!\s*[:=]?\s*\d)", re.IGNORECASE)  # fmt: skip
_SHARED = re.compile(r"(?<!no )(?<!without )\b(?:TP|PP|CP|MP|(?:tensor|pipeline|context|model)[ -]?parallel)", re.IGNORECASE)
"""Axes by which fewer devices have a micro-batch of their own than there are."""


def accumulated_otherwise(mates: list[Row]) -> list[Finding]:
    """Steps of accumulation that the text counts, where batch, micro-batch and replicas of nearly all rows give another
    number."""
    first = mates[0]
    text = first.sheet.prose.get(first.record.source_file)
    if len(mates) < ENOUGH_ROWS or not first.record.mbs or text is None or not text.has("acc", "akku", "ga ", "ga=", "gas"):
        return []
    if any(row.beside("ga") is not None or not row.shows("gbs") for row in mates):
        return []
    told = _steps_above(first, text.lines)
    if told is None or told[0] == 1:
        return []
    given = [row.record.gbs / row.record.mbs / math.exp(dp) for row in mates
             if row.record.gbs and row.record.mbs and (dp := term(row, "dp", {})) is not None]  # fmt: skip
    usual, often = mode(round(steps) for steps in given if steps > 0.99 and abs(steps - round(steps)) < 1e-6 * steps)
    if not isinstance(usual, int) or often < max(ENOUGH_ROWS, 0.8 * len(mates)) or told[0] in map(round, given):
        return []
    shared = first.record.dp is None and not (first.record.tp and first.record.pp)
    if shared and any(_SHARED.search(line) for line in text.lines):
        return []  # an axis of which nobody says how much
    message = (f"line {told[1]} says that {told[0]} steps are accumulated, and batch, micro-batch and replicas of the rows "
               f"below give {usual}")  # fmt: skip
    return [Finding(file=first.record.source_file, line=told[1], code="header-vs-row", level="error", message=message,
                    column="GA", printed=str(told[0]), proposed=str(usual))]  # fmt: skip


def _steps_above(first: Row, lines: tuple[str, ...]) -> tuple[int, int] | None:
    """What the text between the rows and the table or the heading above them says, and in which line."""
    at = (first.record.source_line or 1) - 1
    if at > len(lines):
        return None  # a line of the notes that a collection was made from
    while at and lines[at - 1].strip():  # the headings of the table
        at -= 1
    for number in range(at, max(0, at - MOST_ABOVE), -1):
        line = lines[number - 1]
        said = {int(match[1] or match[2]) for match in _STEPS.finditer(line)}
        if said:
            return (said.pop(), number) if len(said) == 1 else None
        if line.startswith(("|", "#")):
            return None
    return None


MOST_ABOVE = 20


def either(found: list[Finding]) -> list[Finding]:
    """Without a batch that one table denies where another, with batches of its own, denies the sequence by the same factor."""
    factors = {(f.file, float(f.proposed or 0) / float(f.printed or 1)) for f in found if f.column == COLUMNS["seq"].label}
    batch = COLUMNS["gbs"].label
    return [f for f in found if f.column != batch or (f.file, float(f.proposed or 0) / float(f.printed or 1)) not in factors]


def _attends(mates: list[Row], was: int, seq: int) -> bool:
    """Whether a token needs more or less than in other tables of that sequence, as it does where it attends to another one."""
    here, there = ([math.log(row.record.tflops / tokens) for row in rows
                    if row.record.tflops and (tokens := row.record.tokens_per_s_per_process)]
                   for rows in (mates, [row for row in mates[0].elsewhere if row.key != mates[0].key and row.seq == was
                                        and row.record.size_label == mates[0].record.size_label]))  # fmt: skip
    if min(len(here), len(there)) < ENOUGH_ROWS:
        return False
    more = statistics.median(here) - statistics.median(there)
    return abs(more) > SMALL and (more > 0) == (seq > was)


_IN_ROWS = ("seq", "gbs", "mbs", "tp", "pp", "layers", "hidden")
_NOT_OF_ALL = re.compile(r"\b(?:except|unless|otherwise|other than|but|until|then|later|first|last|from .{1,20} on|up to|"
                         r"each|per|"
                         r"starts?|ramp\w*|here|row|rows|some|marked|old|was|were)\b|->|→|\*", re.IGNORECASE)  # fmt: skip


def column_otherwise(sheet: Sheet) -> list[Finding]:
    """A setting of the sentence right above a table whose rows print another, all the same one."""
    found: dict[tuple[str, int, str], Finding] = {}
    for mates in sheet.tables.values():
        rows = [row for row in mates if row.tabular]
        if len(rows) < ENOUGH_ROWS or rows[0].record.table is None:
            continue
        text = sheet.prose.get(rows[0].record.source_file)
        for name in _IN_ROWS if text is not None else ():
            value = getattr(rows[0].record, name) if rows[0].states(name) else None
            said = text.hints.nearest(rows[0].record, name, surely=True) if text is not None and value is not None else None
            if said is None or text is None or not isinstance(said[0], int) or said[0] == value:
                continue
            if any(getattr(row.record, name) != value or not row.states(name) for row in rows):
                continue
            if any(getattr(row.record, name) == said[0] for row in sheet.files[rows[0].record.source_file]):
                continue  # it is of another table
            line, top = text.lines[said[1] - 1], rows[0].record.source_line or 0
            between = text.lines[said[1] : top - 1]
            if _NOT_OF_ALL.search(in_english(line)) or any(one.startswith("#") for one in between):
                continue
            if sum(one.startswith("|") for one in between) > 2 or name in rows[0].reasons:
                continue
            message = f"line {said[1]} says {rows[0].column(name)} {said[0]}, and all {len(rows)} rows below have {value}"
            found.setdefault((rows[0].record.source_file, said[1], name), Finding(
                file=rows[0].record.source_file, line=said[1], code="header-vs-row", level="warning", message=message,
                column=rows[0].column(name), printed=str(said[0]), proposed=str(value)))  # fmt: skip
    return list(found.values())


_OF_A_NODE = re.compile(r"(?<![\w.,-])(\d{1,2}) ?(?:[x×] ?)?(?:(?:[GHN]PU|GCD|card|device|chip|rank)s? |\w*\d\w* ){0,2}"
                        r"(?:per|a|in a|in each|on each|je) (?:node|host)\b|"
                        r"\bnodes? (?:of|with|has|have) (\d{1,2})\b(?! ?(?:cores?|NICs?|TB|GB|links?|sockets?))",
                        re.IGNORECASE)  # fmt: skip
_SLICE = re.compile(r"\b(v\d[a-z]{0,2}-(\d{1,4}))\b[^\d.;|]{0,12}?(\d{1,4}) chips\b", re.IGNORECASE)


def nodes_otherwise(sheet: Sheet) -> list[Finding]:
    """Devices of a node, or of a slice that its name tells, as the text counts them and no row does."""
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        short = len(text.lines) <= MOST_LINES
        sliced = short and text.has("chips")
        its = sheet.files.get(file, ()) if sliced else ()
        counts = {row.record.gpus for row in its if "gpus" not in row.record.inferred}
        for number, line in enumerate(text.lines, 1) if sliced else ():
            match = _SLICE.search(line)
            many = chips_of(match[1]) if match else None
            if match and many and many != int(match[3]) and int(match[3]) not in counts:
                message = f"{match[3]} chips -> {many}: so many has {match[1]}"
                found.append(Finding(file=file, line=number, code="header-vs-row", level="error", message=message,
                                     column="chips", printed=match[3], proposed=str(many)))  # fmt: skip
        rows = [row for row in sheet.files.get(file, ()) if row.record.nodes and row.shows("gpus") and row.shows("nodes")]
        if not short or len(rows) < ENOUGH_ROWS:
            continue
        first = min((row.record.source_line or 0 for row in rows), default=0)
        above = max((row.record.source_line or 0 for row in sheet.files.get(file, ()) if (row.record.source_line or 0) < first),
                    default=0)  # fmt: skip
        found += _of_a_node(file, text.lines[:first], above, rows)
    return found


MOST_LINES = 4000


def _of_a_node(file: str, lines: tuple[str, ...], above: int, rows: list[Row]) -> Iterator[Finding]:
    each = {divmod(row.record.gpus or 0, row.record.nodes or 1) for row in rows}
    if len(each) != 1:
        return
    said = [(int(match[1] or match[2]), number) for number, line in enumerate(lines, 1) if not line.startswith("|")
            and len(line) < 1500 for match in _OF_A_NODE.finditer(in_english(line))]  # fmt: skip
    if len({count for count, _ in said}) != 1 or said[0][1] <= above:
        return
    (many, rest), (count, number) = each.pop(), said[0]
    if rest or many == count or many not in (2 * count, count / 2, 4 * count, count / 4):
        return
    if re.search(rf"(?<![\d.]){many}(?![\d.])", lines[number - 1]):
        return  # it says both: four cards that are eight devices
    message = f"{count} devices of a node, and all {len(rows)} rows have {many}"
    yield Finding(file=file, line=number, code="header-vs-row", level="warning", message=message, column="GPUs per node",
                  printed=str(count), proposed=str(many))  # fmt: skip
