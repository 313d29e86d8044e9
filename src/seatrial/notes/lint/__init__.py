"""Lint: what is wrong in a table of benchmark results, with the evidence and, where it points to one value, a proposal.

    from seatrial.notes import lint
    findings, sheet = lint.look_at(["a100.md", "fugaku.md"])
    lint.lint(imported.records, imported.problems, prose={"notes.md": text})       where the rows are read already

Rules run from the certain to the plausible, and what an earlier one proposes is used by the later ones, so that a wrong DP is
reported once.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.notes.collecting import no_collecting
from seatrial.notes.lint import chapters, confirmed, digits, doubts, titles, turning
from seatrial.notes.lint.columns import (
    arrows,
    changes,
    derived,
    levels,
    matrices,
    parts,
    relations,
    repairs,
    sums,
    together,
    twins,
)
from seatrial.notes.lint.findings import CODES, LEVELS, Finding, in_order
from seatrial.notes.lint.guard import Guard
from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.models import experts, formulas, model_size, peaks, published, shapes, throughput, units, witnesses
from seatrial.notes.lint.phases import compute, cumulative, dated, lasting, ledger, reckoned, steps, totals
from seatrial.notes.lint.rows import (
    duplicates,
    grown,
    hardware_use,
    layout,
    meshes,
    of_all,
    plausible,
    shifted,
    speeds,
    status,
    titled,
    trends,
)
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text import (
    budgets,
    bytes_of,
    cells_said,
    claimed,
    clock,
    compared,
    counted,
    data_sheets,
    dates,
    denied,
    denied_shape,
    described,
    formulas_said,
    groups,
    lead_in,
    lengths,
    of_nodes,
    pairs,
    per_token,
    portions,
    reckons,
    spoken,
    summed,
    tallied,
    told,
    winners,
    within,
)
from seatrial.notes.lint.text.prose import Prose
from seatrial.notes.read import LARGEST_MIB, import_file
from seatrial.notes.read.exported import text_of_export
from seatrial.notes.read.files import SilentLog
from seatrial.notes.read.scan import heading_of_org
from seatrial.record import Record
from seatrial.tables import Problem

__all__ = ["CODES", "LEVELS", "Finding", "lint", "look", "look_at"]

Rule = Callable[[Sheet], list[Finding]]
FILLS: tuple[Callable[[Sheet], None], ...] = (
    of_nodes.fill, titles.fill, layout.fill_axes, layout.count_processes, of_all.fill, layout.fill_micro_batch,
    layout.fill_batch, layout.fill_devices, grown.fill, model_size.fill_gates, model_size.fill_shapes,
)  # fmt: skip
"""What rows do not say themselves, in the order that each needs what those before it filled."""
RULES: tuple[Rule, ...] = (
    formulas.establish, relations.learn, cumulative.check, lasting.check, layout.check_processes, meshes.check,
    shifted.check, titled.check, parts.check, repairs.check, throughput.check, duplicates.check, layout.check_divisible,
    derived.check, model_size.check, plausible.check, speeds.check, hardware_use.check, status.check, together.check,
    changes.check, steps.check, ledger.check, totals.check, summed.check, levels.check, sums.check, matrices.check,
    experts.check,
)  # fmt: skip
"""In the order that they run, the certain first: each uses what those before it proposed."""
OF_COLUMNS: tuple[Rule, ...] = (relations.learn, cumulative.check, lasting.check, parts.check, repairs.check, together.check,
                                changes.check, steps.check, ledger.check, totals.check, summed.check, levels.check,
                                sums.check, matrices.check)  # fmt: skip
"""Those that ask of no row whether it is a run."""
BESIDES: tuple[Rule, ...] = (
    dates.check, clock.check, bytes_of.check, pairs.check, compared.check, budgets.check, groups.check, reckons.check,
    compute.check, reckoned.check, winners.check, tallied.check, spoken.check, told.check, claimed.check, counted.check,
    denied_shape.check, denied.column_otherwise, denied.nodes_otherwise, shapes.check, experts.check_spread, dated.check,
    status.fits_by_need, data_sheets.check, formulas_said.check, peaks.check, arrows.check, portions.check, within.check,
    cells_said.check, per_token.check, lengths.check, meshes.check_slices, twins.check, lead_in.check,
)  # fmt: skip
"""Those that speak of lines of which nothing else was said, in either kind of table."""


def lint(
    records: Iterable[Record], problems: Iterable[Problem] = (), *, prose: Mapping[str, str] | None = None
) -> list[Finding]:
    """`prose` is the whole text of each file by the name that its records carry: it may state the device and usable memory."""
    return look(records, problems, prose=prose)[0]


def look(
    records: Iterable[Record], problems: Iterable[Problem] = (), *, prose: Mapping[str, str] | None = None
) -> tuple[list[Finding], Sheet]:
    """The findings, and the rows with what the findings propose for them."""
    with no_collecting():
        return _look(records, problems, prose)


def _look(
    records: Iterable[Record], problems: Iterable[Problem], prose: Mapping[str, str] | None
) -> tuple[list[Finding], Sheet]:
    said = {name: Prose.of(text) for name, text in (prose or {}).items()}
    files = list(said)
    records, problems, said, names = chapters.apart(records, problems, said)
    sheet = Sheet.of(records, said, names)
    guard = Guard(sheet)
    found = guard(status.check_reading, problems) + guard(described.check, problems)
    for fill in FILLS:
        guard(fill)
    mended = guard(model_size.mend_text)
    mended += [one for one in guard(published.check) if (one.file, one.line) not in {(f.file, f.line) for f in mended}]
    sides = {(f.file, f.line) for f in mended}  # layers that are wrong explain why the parameters are not theirs
    for one, lines in guard(lambda sheet: witnesses.check(sheet, problems).items()):
        described_in = {(one.file, line) for line in lines}
        if not described_in & sides:
            mended.append(one)
            sides |= described_in
    published.mend_rows(sheet, mended)
    found = [f for f in found if f.code != "label-vs-params" or (f.file, f.line) not in sides] + mended
    found += guard(units.mend)
    for rule in RULES:
        found += guard(rule)
    found = [f for f in found if f.code != "label-vs-params" or f in mended or (f.file, f.line) not in sides]
    found += [f for f in _besides(guard, found) + _left(problems, guard)
              if f.code != "label-vs-params" or (f.file, f.line) not in sides]  # fmt: skip
    found += guard(trends.check, {(f.file, f.line) for f in found if f.level != "info"}) + guard.failed
    found = _once(doubts.temper(confirmed.drop(found, sheet), sheet))
    found = [_at_its_cell(finding, sheet) for finding in doubts.weigh(found)]
    found = [replace(one, file=names[one.file]) if one.file in names else one for one in found]
    return in_order(found, files or list(sheet.files)), sheet


def _left(problems: Iterable[Problem], guard: Guard) -> list[Finding]:
    """Tables that are none of runs: whether their columns belong together as most of their rows have it."""
    sheet = guard.sheet
    rows: list[Record] = []
    thinned: set[tuple[str, int | None]] = set()
    for problem in problems:
        left = turning.upright(problem.left)
        if left == [*problem.left] and _of_quantities(left):
            continue
        # A row that has the figures of another one says nothing more of how columns belong together, but for a total of them.
        added = any(totals.is_named(cell) for record in left[-1:] for cell in record.printed.values())
        figures = {(*map(digits.alone, record.printed.values()), added and at): at
                   for at, record in reversed([*enumerate(left)])}  # fmt: skip
        rows += [replace(left[at], source_file=problem.file) for at in sorted(figures.values())]
        thinned |= {(problem.file, problem.left[0].table)} if len(figures) < len(problem.left) else set()
    side = Sheet.of(rows, sheet.prose if rows else {})
    side.thinned |= thinned
    of_side = Guard(side, guard.failed)
    found = [finding for rule in OF_COLUMNS for finding in of_side(rule)]
    # A total is one by its name, what fails by its word, and days are what the calendar has.
    known = [f for f in found if f.code in ("outcome-vs-figures", "date-order") or f.ground == "name"
             or f.proposed and f.ground == "definition"]  # fmt: skip
    lines = {key: {row.record.source_line or 0 for row in mates} for key, mates in side.tables.items()}
    wrong = {key: {(f.file, f.line) for f in found if f not in known} & {(key[0], line) for line in (*its, max(its) + 1)}
             for key, its in lines.items()}  # fmt: skip
    # Where many rows are off they are of different kinds, but for those of which a slip of the hand explains each.
    typed = {(f.file, f.line) for f in found if _TYPED.search(f.message)}
    many = {where for key, mates in side.tables.items() for where in wrong[key] if len(wrong[key]) > max(1, len(mates) // 4)
            and not (len(wrong[key]) == 2 < len(mates) - 1 and wrong[key] & typed)
            and not (2 * len(wrong[key]) <= len(mates) and len(wrong[key] - typed) < 2 and not _alike(found, wrong[key]))}
    found = [finding for finding in found if (finding.file, finding.line) not in many or finding in known]
    return [_at_its_cell(finding, side) for finding in confirmed.drop(found + _besides(of_side, found), side)]


def _besides(guard: Guard, found: Sequence[Finding]) -> list[Finding]:
    """What other rules find where nothing is said yet; of a shape that a table shows side by side one thing is enough."""
    sheet = guard.sheet
    said = [_at_its_cell(one, sheet) for one in found if one.level != "info"]
    told = {(one.file, one.line) for one in said}
    shapes_told = [one for one in said if one.code == "label-vs-params"]
    others: list[Finding] = []
    of_a_step: list[Finding] = []
    labelled: set[tuple[str, int | None]] = set()
    for rule in BESIDES:
        if rule is spoken.check:  # figures beside a wrong label are right
            told |= labelled
        if rule is reckoned.check:  # what a named row tells of a sentence, its own figures need not
            told |= {(one.file, one.line) for one in others}
        new = [one for one in guard(rule) if (one.file, one.line) not in told and not (
            one.code == "label-vs-params" and any(_in_one_table(one, other, sheet) for other in shapes_told))]
        later = rule in (reckons.check, lead_in.check)
        of_a_step += [one for one in new if later and one.column in reckons.OF_A_STEP]
        others += [one for one in new if not later or one.column not in reckons.OF_A_STEP]
        if rule is winners.check:
            labelled = {(one.file, one.line) for one in others if one.message.endswith(winners.BESIDE)}
        if rule is reckoned.check:
            told -= {(one.file, one.line) for one in others}
    for one in of_a_step:  # of batch, length and their product one is wrong, which other rules may know
        others += [one] if (one.file, one.line) not in {(other.file, other.line) for other in others} else []
    first: dict[tuple[str, int | None, str | None], Finding] = {}
    for one in others:  # of one figure of a sentence the first one
        first.setdefault((one.file, one.line, one.printed if one.code == "aggregate" else str(id(one))), one)
    return list(first.values())


def _in_one_table(one: Finding, other: Finding, sheet: Sheet) -> bool:
    text = sheet.prose.get(one.file)
    if text is None or one.file != other.file or one.line is None or other.line is None:
        return False
    first, last = sorted((one.line, other.line))
    return all(line.lstrip().startswith("|") for line in text.lines[first - 1 : last])


def _alike(found: Sequence[Finding], where: set[tuple[str, int | None]]) -> bool:
    """Whether a column is doubted in many of the rows: then something else is in it than is thought."""
    columns = Counter(column for column, _ in {(one.column, one.line) for one in found if (one.file, one.line) in where})
    return max(columns.values(), default=0) > 2


_TYPED = re.compile(r"\((?:the point moved|two digits exchanged|a digit (?:too many|lost)|what is printed is that of [^()]*)\)|"
                    r"the rows above add up to")
_SOLVED = re.compile(r"-> [^ (]+(?: \(what is printed[^)]*\))?:")
_QUANTITY = re.compile(r"/s\b|FLOPS?\b|\((?:[KMGT]i?B|k?W|[MG]Hz|%|ms|s|\$)\)", re.IGNORECASE)


def _of_quantities(rows: Sequence[Record]) -> bool:
    """Whether each row is of another quantity, as in a data sheet with a column for each device."""
    return 2 * sum(_QUANTITY.search(next(iter(row.printed.values()), "")) is not None for row in rows) > len(rows)


def _bare(text: str) -> str:
    """Without signs between thousands."""
    return text.replace(",", "").replace("\u202f", "")


def _once(found: list[Finding]) -> list[Finding]:
    """A pair that was pasted explains why its row does not add up, cells that moved why one cannot be read, and a side that is
    proposed why heads do not divide: nothing is said of it besides. What several rows show of one line of text is said once,
    and nothing is left open that something else decides."""
    found = list(dict.fromkeys(found))
    moved = {(f.file, f.line) for f in found if f.code == "cells-shifted"}
    found = [f for f in found if f.code != "unreadable" or f.level == "info" or (f.file, f.line) not in moved]
    meant = {(f.file, f.line): f.proposed for f in found if f.code == "label-vs-params" and f.proposed}
    found = [f for f in found if f.code != "heads-divisible" or (f.file, f.line) not in meant
             or f.proposed not in (None, meant[f.file, f.line])]  # fmt: skip
    chosen: dict[tuple[str, int | None], list[str]] = {}
    for one in found:
        if one.proposed and one.level == "error":
            chosen.setdefault((one.file, one.line), []).append(_bare(f"{one.column} {one.proposed}"))
    found = [f for f in found if f.proposed or " would each do" not in f.message
             or not any(said in _bare(f.message) for said in chosen.get((f.file, f.line), ()))]  # fmt: skip
    pasted = {(f.file, f.line) for f in found if f.code == "pasted-pair" and f.level == "error"}
    return [f for f in found if (f.file, f.line) not in pasted or f.code not in ("tflops-mismatch", "rate-mismatch")
            or f.proposed is not None and not _SOLVED.search(f.message)]  # fmt: skip


def _at_its_cell(finding: Finding, sheet: Sheet) -> Finding:
    """In a table that is turned round all runs begin in one line: a finding names the line of its field instead; and the
    heading and the cell as they stand there, where a cell holds two figures or the text says what a column is of."""
    text = sheet.prose.get(finding.file)
    if finding.line and finding.column and finding.column.endswith(")") and text is not None:
        finding = _as_it_stands(finding, text.lines)
    if (power := _POWER_OF_TEN.fullmatch(finding.printed or "")) and re.fullmatch(r"[\d.]+", finding.proposed or ""):
        finding = replace(finding, proposed=f"{float(finding.proposed or 0):.{len(power[1] or '.') - 1}e}")
    if finding.line and finding.printed and text is not None and not field_of(finding.column or ""):
        finding = _with_points(finding, text)
    if finding.line is None or not finding.column or text is None:
        return finding
    if (finding.file, finding.line) not in sheet.turned:
        return _on_its_own_line(finding, text.lines)
    for number, line in enumerate(text.lines[finding.line - 1 :], finding.line):
        if not line.strip():
            break
        name = _APART.split(_TAGS.sub("|", line).strip().strip("|!^ ").removeprefix("* - "), maxsplit=1)[0].strip()
        if name and name in (finding.column, finding.column.rpartition(" (")[0]):
            return replace(finding, line=number, column=name)
    return finding


def _on_its_own_line(finding: Finding, lines: tuple[str, ...]) -> Finding:
    """In a list of lists each cell has a line of its own, and a row begins where its first one stands."""
    at, printed = finding.line or 1, finding.printed or ""
    if not printed or at > len(lines) or not _BEGINS_ROW.match(lines[at - 1]) or printed in lines[at - 1]:
        return finding
    for number, line in enumerate(lines[at : at + _MOST_CELLS], at + 1):
        if _BEGINS_ROW.match(line) or not line.strip():
            break
        if line.strip().removeprefix("- ").strip() == printed:
            return replace(finding, line=number)
    return finding


_BEGINS_ROW, _MOST_CELLS = re.compile(r"\s*[*+-] +- "), 40
_POWER_OF_TEN = re.compile(r"\d(\.\d+)?[eE]\+?\d+")
_TAGS = re.compile(r"(?:</?(?:t[rhd]|b|strong|code)\b[^<>]*>\s*)+")
_APART = re.compile(r"\||\s{2,}|\t")
_POINTED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3})+(?![\d.,])")


def _with_points(finding: Finding, text: Prose) -> Finding:
    """Where decimals have a comma, with it before three of them: 5,036; and with points between its thousands, where the rows
    around part theirs so: 9.920."""
    printed, proposed, line = finding.printed or "", finding.proposed, finding.line or 1
    near = "\n".join(text.lines[max(0, line - 4) : line + 3])
    if "," not in near or not text.written.comma_at(line):
        return finding
    printed = commas if (commas := printed.replace(".", ",")) in near and printed not in near else printed
    if proposed is not None and re.fullmatch(r"\d+\.\d{3}", proposed) and (printed != finding.printed or "\u202f" in printed):
        proposed = proposed.replace(".", ",").removesuffix("0")  # with a point it would be thousands
    if not _POINTED.search(near):
        return replace(finding, printed=printed, proposed=proposed)
    if (pointed := printed.replace("\u202f", ".")) in near:
        printed, proposed = pointed, proposed and proposed.replace("\u202f", ".")
    whole = proposed is not None and re.fullmatch(r"\d{4,12}", proposed) and "," not in printed
    proposed = f"{int(proposed):,}".replace(",", ".") if whole and proposed else proposed
    return replace(finding, printed=printed, proposed=proposed)


def _as_it_stands(finding: Finding, lines: tuple[str, ...]) -> Finding:
    at = (finding.line or 1) - 1
    while at > 0 and lines[at - 1].lstrip().startswith("|"):
        at -= 1
    heads, cells = ([cell.strip() for cell in lines[place].strip().strip("|").split("|")]
                    for place in (at, (finding.line or 1) - 1))  # fmt: skip
    heading, _, mark = (finding.column or "").rpartition(" (")
    if heading not in heads or finding.column in heads or len(heads) != len(cells):
        return finding
    cell, printed, proposed = cells[heads.index(heading)], finding.printed, finding.proposed
    if mark in ("before)", "after)") and printed and cell != printed and printed in cell:
        was, now = (cell.partition if mark == "before)" else cell.rpartition)(printed)[::2]
        printed, proposed = cell, proposed and f"{was}{proposed}{now}"
    return replace(finding, column=heading, printed=printed, proposed=proposed)


def look_at(paths: Iterable[str], *, format: str | Path | None = None) -> tuple[list[Finding], Sheet]:
    """All files together, so that a row copied from one into another is seen. `format`: of logs, as `import_file` has it."""
    records, problems, prose = [], [], {}
    files = list(dict.fromkeys(paths))
    for path in files:
        try:
            imported = import_file(path, format=format)
        except SilentLog as error:
            if len(files) == 1:
                raise
            problems.append(Problem(file=path, line=1, message=str(error).removeprefix(f"{path}: ")))
            continue
        # A collection of rows names the notes that each was taken from: those lines are not lines of this file.
        name = Path(path).name
        records += [replace(record, source_file=path) if record.source_file == name else record for record in imported.records]
        problems += [replace(problem, file=path) for problem in imported.problems]
        # A log of many gigabytes has no sentences that would say anything about it.
        small = Path(path).stat().st_size <= LARGEST_MIB * 2**20
        text = Path(path).read_text(encoding="utf-8", errors="replace") if small else ""
        if Path(path).suffix.lower() in (".csv", ".tsv"):
            text = text_of_export(enumerate(text.splitlines(), 1))
        prose[path] = text
        if Path(path).suffix == ".org":
            prose[path] = "\n".join(heading_of_org(line) for line in text.splitlines())
    return look(records, problems, prose=prose)
