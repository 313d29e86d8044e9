"""Which part of a whole some rows are, as a sentence has it: of the total of a column, and what one of shares says of a row.

    check(sheet)          findings on percentages that no column of what the sentence speaks of gives

    The 12B took 78 % of the GPU hours.               167,002 of 211,309, its three rows together
    July was 69 % of the whole                        of the one column of money
    At 128K 69 % of the FLOPs are attention.          as the column `attention` says of the row

A part agrees with any row that is named, with all of them together, and with what is left without them.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import is_extra
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import OTHERS, Claim, claims, heading_words, may_claim, scope_of
from seatrial.notes.lint.text.columns_of import Column, Columns
from seatrial.notes.lint.text.mentions import mentions
from seatrial.notes.lint.text.sentences import Sentence, each
from seatrial.notes.lint.text.sides import having_all, of_claim
from seatrial.tables.headings import clean, decimal, normal
from seatrial.tables.tongues import in_english

MOST_LINES, MOST_ROWS, NEAR, REST, OFF = 4000, 40, 1.0, 0.2, 2.6
"""Within how many points a percentage agrees, also with what is left, and from how many on it does not."""
_CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
_P = r"\s?(?:%|percent\b|per cent\b|Prozent\b|pour cent\b|por ciento\b|por cento\b|procent\w*|процент\w*)"
_OF = re.compile(rf"{_P}\s?(?:\([^()]*\) )?(?:of|der|des|du|de|d'|del|della|delle|dei|dell'|dos|das|da|do|van|von|vom|от|на|"
                 r"всех|всего)\b\s?(?P<what>[^.;:]{0,60})", re.IGNORECASE)  # fmt: skip
_BEFORE = re.compile(r"(?:\bof (?:the|all|our)|\bvon (?:den|allen)|\bdes|\bder|\bde(?:l|lle| las|"
                     r" los)?) (?P<what>[^.,;:%]{3,40})"
                     r",?[^.;:%]{0,40}$|(?P<cjk>[^\s,，。、]{2,12})(?:の|的|の約|的约)\s?$", re.IGNORECASE)  # fmt: skip
_CJK_OF = re.compile(r"\s?%(?:の|的)?(?P<what>[\u3040-\u9fff\uac00-\ud7af][^。,，]{0,16})")
_TAKES = re.compile(
    r"\b(?:was|were|is|are|took|takes?|taken|accounts?|accounted|makes? up|made up|represent\w*|uses?|used|costs?|ate|"
    r"eats?|went|"
    r"goes|needs?|needed|had|has|burn\w*|consum\w*|spent|spends?|war|waren|ist|sind|macht\w*|nahm\w*|fiel\w*|fallen|"
    r"ging\w*|floss\w*|came|comes|fell|brauch\w*|verbrauch\w*|"
    r"entfall\w*|kostet\w*|a pris|ont pris|prend|prennent|compte\w*|pese\w*|est|sont|fait|supuso|supone\w*|fue|fueron|es|son|"
    r"ha preso|rappresent\w*|vale|e stato|foi|gastou|kostte|nam|занял\w*|составля\w*|составил\w*|ушло|пришлось|zajel\w*|"
    r"stanowi\w*)\b|占|かか|차지", re.IGNORECASE)  # fmt: skip
_WHOLE = re.compile(r"\b(?:whole|total|totals|everything|all|sum|bill|spend|spending|ganzen|gesamt\w*|summe|insgesamt|"
                    r"tout|toute|"
                    r"totale?s?|todo|toda|tutto|totaal|geheel|всего|общ\w+|calosci|razem)\b|全体|总|合計|全部",
                    re.IGNORECASE)  # fmt: skip
_ALONE = re.compile(r"\b(?:alone|by itself|on its own|single|allein|a lui seul|a elle seule|seul|solo|da solo|sozinho|"
                    r"alleen|один|"
                    r"сам)\b|だけ|单独|만으로", re.IGNORECASE)  # fmt: skip
_OF_RATES = re.compile(r"peak|spitze|crete|pico|picco|ideal|linear|speed|throughput|rate|durchsatz|debit|memory|"
                       r"speicher|mfu|hfu|"
                       r"effi|perfect|time per|step|capacity|params|parameters|weights|data\b|vocab|layers?\b|flop",
                       re.IGNORECASE)  # fmt: skip
_OF_PARTS = re.compile(r"\bcomm|attention|kernel|loading|checkpoint|\bidle|overhead|wait|bubble|optimi[sz]er|restart|"
                       r"\blost\b|fail|"
                       r"wasted|\beval|compil|reserv|verloren|perdu|perdid|ausfall|leerlauf|通信|等待|待ち", re.IGNORECASE)
"""Parts of a run, of which a table of runs tells nothing."""
_KINDS = {
    "device hours": r"(?:gpu|chip|card|device|tpu|npu|karten|accelerator)[ -]?(?:hours?|stunden|uren|h\b|часов|часы)|"
                    r"heures?[ -]?(?:gpu|carte)|horas?[ -](?:de )?gpu|ore[ -]gpu|卡时|卡時|GPU ?時間",
    "node hours": r"node[ -]?hours?|knotenstunden|heures?[ -]noeud|horas?[ -]nodo",
    "money": r"cost|bill|money|spend|spent|budget|dollar|euro|[$€£]|kosten|ausgaben|cout|depense|prix|gasto|coste|costo|spesa|"
             r"custo|расход|стоим|费用|成本|費用",
    "energy": r"energ|kwh|mwh|strom|electric|энерг|电量|電力",
    "carbon": r"co2|carbon|emission",
    "tokens": r"\btok|jeton|токен",
    "hours": r"\bhours?\b|\btime\b|\bdays?\b|stunden|\bzeit\b|\btage\b|heures?\b|temps|jours\b|horas\b|tiempo|dias\b|\bore\b|"
             r"tempo|giorni|\btijd\b|dagen|врем|дней|时间|時間|天",
    "steps": r"\bsteps\b|iterations|schritte",
}
_WORDS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _KINDS.items()}


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if len(rows) > 1]
        apart = str(file).endswith((".csv", ".tsv"))
        for sentence in each(text.sentences, lines=apart) if tables and len(text.lines) <= MOST_LINES else ():
            if not may_claim(sentence.text) or OTHERS.search(in_english(sentence.text)):
                continue
            its = claims(sentence.text)
            scope = scope_of(tables, text.lines, sentence.line)
            rows = [row for row in scope.last if not is_aggregate(row)][:MOST_ROWS]
            if its and scope.near and len(rows) > 1 and not _apart(rows, text.lines, sentence.line):
                found += _sentence(file, sentence, its, rows)
    return found


def _apart(rows: list[Row], lines: Sequence[str], number: int) -> bool:
    """Whether another table stands between."""
    between = lines[(rows[-1].record.source_line or 0) : number - 1]
    return sum(line.startswith("|") for line in between) > 4


def _sentence(file: str, sentence: Sentence, its: list[Claim], rows: list[Row]) -> Iterator[Finding]:
    text = sentence.text
    some = [one for one in mentions(text, rows) if not any(one.start == other.start for other in its)]
    for claim in its:
        if claim.way not in ("share", "kept") or not claim.alone or not 0 < claim.value < 100:
            continue
        own = of_claim(text, claim, its, some)
        named = having_all(own, rows) if own else []
        if not named:
            continue
        stop = claim.start + len(claim.text)
        match = _OF.match(text, stop) or _CJK_OF.match(text, stop) or _BEFORE.search(text[: claim.start])
        what = next((one for one in match.groupdict().values() if one), "") if match is not None else ""
        shares = _shares(named, rows, text, claim) if len(named) == 1 else []
        if shares:
            yield from _as_shown(file, sentence, claim, named[0], shares)
        elif what and _TAKES.search(text) and not _OF_RATES.search(what) and not _of_a_part(text, named):
            wider = [[rows[at] for at in sorted(one.rows)] for one in own if len(one.rows) > len(named)]
            yield from _of_total(file, sentence, claim, what, named, rows, wider)


def _of_a_part(text: str, named: list[Row]) -> bool:
    """Whether it tells of a part of a run for which no row stands."""
    words = {match[0].casefold() for match in _OF_PARTS.finditer(text)}
    cells = " ".join(cell.casefold() for row in named for cell in row.worded.values())
    return any(word not in cells for word in words)


# ---- what a column of shares says

_NO_KEY = frozenset("of per in vs the a an and to on over against for from with one all max new old % gpu part share time "
                    "step".split())  # fmt: skip


_COMMON = frozenset("flops flop total tokens hours cost memory".split())


def _shares(named: list[Row], rows: list[Row], text: str, claim: Claim) -> list[tuple[str, float]]:
    """The columns of percentages whose heading the words about the number name, with what they have of the row."""
    start = max(text.rfind(mark, 0, claim.start) for mark in (";", ". ", ": ", ", ")) + 1
    ends = [at for mark in (";", ", ", ": ") if (at := text.find(mark, claim.start + len(claim.text))) > 0]
    words = {*normal(in_english(text[start : min(ends, default=len(text))])).split()}
    found = []
    for heading in rows[0].record.printed:
        cells = [row.cells.get(heading, "") for row in rows]
        if not is_extra(heading) or not ("%" in heading or 2 * sum("%" in cell for cell in cells) > len(cells)):
            continue
        keys = {word for word in heading_words(heading).split() if len(word) > 2} - _NO_KEY
        keys = keys - _COMMON or keys
        value = digits.alone(clean(named[0].record.printed.get(heading, "")).lstrip("+-−~ "))
        if keys & words and value is not None:
            found.append((heading, named[0].get("+" + heading) or value))
    return found


_POINTS = re.compile(r"\bpoints?\b|punkte?\b|puntos\b|punti\b|пункт|ポイント|百分点|\b(?:rises?|falls?|drops?|grows?|more|"
                     r"less|lower|"
                     r"higher) (?:by|from|than)\b", re.IGNORECASE)  # fmt: skip


def _as_shown(file: str, sentence: Sentence, claim: Claim, row: Row, shares: list[tuple[str, float]]) -> Iterator[Finding]:
    known = [value for _, value in shares]
    known += [value for heading, _ in shares if (value := row.figure(heading)) is not None]
    if len(shares) > 1 or any(min(abs(claim.value - one), abs(100 - claim.value - one)) <= claim.half + NEAR for one in known):
        return
    heading, value = shares[0]
    start = sentence.text.rfind(";", 0, claim.start) + 1
    clause = sentence.text[start:].partition(";")[0]
    if abs(claim.value - value) <= OFF or _given(clause, claim) or _POINTS.search(clause):
        return
    yield _finding(file, sentence, claim, value, "error", heading, f"{heading} of {row.where} is")


def _given(text: str, claim: Claim) -> bool:
    """Whether two figures of the sentence give it."""
    shown = [float(decimal(one)) for one in re.findall(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?", text) if one != claim.text][:8]
    ratios = [one / two for one in shown for two in shown if two and one != two]
    return any(abs(claim.value - 100 * way) <= claim.half + NEAR for one in ratios for way in (one, abs(one - 1)))


# ---- of the total of a column


def _of_total(file: str, sentence: Sentence, claim: Claim, what: str, named: list[Row], rows: list[Row],
              wider: list[list[Row]]) -> Iterator[Finding]:  # fmt: skip
    columns = _columns(what, rows)
    if not columns or len(named) == len(rows):
        return
    every: list[float] = []
    rest: list[float] = []
    meant: list[tuple[float, str]] = []
    for column in columns:
        for values in (column.values, column.printed):
            total = math.fsum(values.get(row, 0.0) for row in rows)
            parts = [100 * values.get(row, 0.0) / total for row in named] if total > 0 else []
            every += [*parts, math.fsum(parts)]
            rest.append(100 - math.fsum(parts))
            for some in wider:  # `of the hours of the 12B`
                its = math.fsum(values.get(row, 0.0) for row in some)
                every += [100 * math.fsum(values.get(row, 0.0) for row in named) / its] if its > 0 else []
            if values is column.values and parts and any(values.get(row) for row in named):
                meant.append((max(parts) if _ALONE.search(sentence.text) else math.fsum(parts), column.heading))
    if not meant or any(abs(claim.value - one) <= claim.half + NEAR for one in every) or _given(sentence.text, claim):
        return
    if any(abs(claim.value - one) <= claim.half + REST for one in rest):
        return
    value, heading = meant[0]
    if any(abs(other - value) > OFF for other, _ in meant) or abs(claim.value - value) <= OFF:
        return
    where = named[0].where if len(named) == 1 else f"the {len(named)} rows from {named[0].where} on"
    level: Level = "error" if len(named) == 1 or _digits(claim, value) else "warning"
    yield _finding(file, sentence, claim, value, level, heading, f"of the {heading} that all rows have {where} has")


_TIME = re.compile(r"\btime\b|\bzeit\b|temps|tiempo|tempo|\btijd\b|врем|时间|時間", re.IGNORECASE)


def _columns(what: str, rows: list[Row]) -> list[Column]:
    """Those of what the words tell; of a whole without a word for it the money, else what there is."""
    columns = Columns(tuple(rows))
    places = {kind: match.start() for kind, pattern in _WORDS.items() if (match := pattern.search(what))}
    if places.keys() == {"hours"} and _TIME.search(what) and not _WHOLE.search(what):
        return []  # the time of a step
    if places:
        first = min(places, key=lambda kind: (places[kind], [*_KINDS].index(kind)))
        return columns.of(first) or (columns.of("hours") if first == "device hours" else [])
    if _WHOLE.search(what):
        return columns.of("money") or columns.of("device hours") or columns.of("energy") or columns.of("hours")
    return []


def _digits(claim: Claim, value: float) -> bool:
    return any(slip.how in _CLEAR for slip in digits.slips(decimal(claim.text), (value - 0.7, value + 0.7)))


def _finding(file: str, sentence: Sentence, claim: Claim, value: float, level: Level, heading: str, why: str) -> Finding:
    text = f"{value:.{digits.places(claim.text)}f}"
    text = text.replace(".", ",") if "," in claim.text else text
    return Finding(file=file, line=sentence.line_at(claim.start), code="aggregate", level=level, column=heading,
                   message=f"{claim.text} % -> {text} %: {why} {text} %", printed=claim.text, proposed=text)  # fmt: skip
