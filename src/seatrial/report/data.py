"""Records as the plain data that the page, the pictures and the server are made from.

    made = data.build(records, title="Round one", clusters=Clusters.read(["jz-a100"]))
    made.view                   what the page draws: one list per column, answers, effects, failures, findings
    made.detail(3)              everything that is known of one row

`view` has no HTML in it and nothing that a record does not say: a cell is None where the record has no value.
"""
from __future__ import annotations

import math
import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial import __version__, columns
from seatrial.outcomes import OUTCOMES
from seatrial.record import Record
from seatrial.report import answers, forecasts, pipelines
from seatrial.report.answers import DOUBTFUL, Question, knobs, scaling
from seatrial.report.forecasts import Clusters, Forecast
from seatrial.report.read import Remarks
from seatrial.tables.codec import number, shortest

if TYPE_CHECKING:
    from seatrial.notes.lint.findings import Finding

SCHEMA = 1
MOST_LINTED = 2000
"""Imported rows; lint compares rows with rows, and a report should not take minutes."""
MOST_PIPELINES = 24
MOST_RANKS_SHOWN = 1024

OWN_NAMES = {"size_label": "size", "zero_stage": "zero", "freq_ghz": "freq", "torch_version": "torch", "sec_per_it": "sec",
             "source_file": "file", "source_line": "line"}  # fmt: skip
"""Column of a record -> what the view has always called it; the others go by their own names."""
ASKED = {OWN_NAMES.get(name, name): name for name in columns.ASKED if name != "gpus"}
BESIDE = ("sec_per_it", "tflops", "formula", "date", "session", "machine", "source_file", "source_line", "section", "notes",
          "state")  # fmt: skip
FROM_RECORD = {**ASKED, **{OWN_NAMES.get(name, name): name for name in BESIDE}}
"""Column of the view -> field of the record; `world` stands for `gpus`."""
FIRST = (("state", "State"), ("size", "Model"), ("nodes", "Nodes"), ("world", "Procs"))
FIGURES = (("sec", "Sec/it"), ("f_sec", "Forecast s"), ("tflops", "TFLOPs"), ("rate", "Samples/s"), ("mfu", "MFU"),
           ("tokens", "Tokens/s/device"), ("mem", "Mem GiB"), ("f_mem", "Forecast GiB"))  # fmt: skip
LAST = (("tags", "Tags"), ("remark", "Remark"), ("lint", "Doubts"), ("date", "Date"), ("session", "Session"),
        ("machine", "Machine"), ("notes", "Notes"), ("env", "Environment"), ("file", "Source"))  # fmt: skip
WORDS = frozenset(name for name, _ in (*FIRST[:2], *LAST))
"""Columns whose cells are no numbers."""
CSV_NAMES = {**{name: own for own, name in OWN_NAMES.items()}, "rate": "samples_per_s", "world": "gpus",
             "tokens": "tokens_per_s_per_process", "mem": "mem_gib", "f_sec": "forecast_s",
             "f_mem": "forecast_gib", "lint": "doubts"}
"""What the page's CSV calls a column that is no field of a trial."""
NUMBERS = frozenset({"count", "figure", "frequency", "zero"})
"""Kinds of fields whose cells are."""


def _fields_of_record(first: str, last: str) -> list[str]:
    names = [f.name for f in fields(Record)]
    return names[names.index(first) : names.index(last) + 1]


GROUPS = {
    "Measured": [*_fields_of_record("sec_per_it", "iteration"), *_fields_of_record("mem_value", "mem_scope")],
    "Asked for": list(columns.ASKED),
    "Where from": [*_fields_of_record("run_id", "written_at"), "record_id", "flags", "notes"],
}  # fmt: skip
"""How the fields of one record are shown together."""


def page_columns(*, engines: int = 1) -> list[dict[str, Any]]:
    """The columns of the page's table in their order, those of the trial with all that the page says about them. Several
    `engines` are what rows differ in first."""
    searched = [name for name, own in ASKED.items() if columns.COLUMNS[own].about.searched]
    rest = [name for group in (columns.SHAPE, columns.LAYOUT, columns.AROUND) for name, own in ASKED.items() if own in group]
    first = [*FIRST[:2], *([("engine", "")] if engines > 1 else []), *FIRST[2:]]
    names = [*first, *((name, "") for name in searched), *FIGURES, *((name, "") for name in rest), *LAST]
    return [_page_column(name, label) for name, label in dict(names).items()]


def _page_column(name: str, label: str) -> dict[str, Any]:
    if name not in ASKED:
        return {"name": name, "label": label, "number": name not in WORDS, "csv": CSV_NAMES.get(name, name)}
    column = columns.COLUMNS[ASKED[name]]
    about, heading = column.about, column.word or column.label
    group = "layout" if column.name in columns.LAYOUT else column.table if column.table in ("model", "cluster") else "around"
    return {
        "name": name, "label": label or heading[0].upper() + heading[1:], "title": column.title, "word": column.word,
        "csv": column.name, "unit": about.unit, "kind": about.kind, "number": about.kind in NUMBERS, "group": group,
        "aliases": sorted({column.name, column.field} - {name}), "field": column.field, "searched": about.searched,
        "degree": about.degree, "default": column.default if isinstance(column.default, int | str) else None,
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Made:
    records: Sequence[Record]
    view: dict[str, Any]
    forecasts: Mapping[int, Forecast]
    findings: Sequence[Finding]
    questions: Sequence[Question]
    usable: Sequence[int]
    book: Path | None = None
    by_row: Mapping[int, list[int]] = field(default_factory=dict)
    """Row -> its findings."""
    remarks: Remarks = field(default_factory=dict)

    def detail(self, row: int) -> dict[str, Any]:
        """The record as it is, less what would fill pages, with its forecast and its findings."""
        record = self.records[row].to_dict()
        ranks = self.records[row].memory.get("ranks")
        if isinstance(ranks, list):
            record["memory"] = {**record["memory"], "ranks": ranks[:MOST_RANKS_SHOWN]}
        made: dict[str, Any] = {"record": record}
        if row in self.forecasts:
            made["forecast"] = _forecast(self.forecasts[row])
        if row in self.by_row:
            made["findings"] = [self.findings[i].to_dict() for i in self.by_row[row]]
        if said := self.remarks.get(self.records[row].record_id):
            made["remarks"] = said
        return made

    def pipeline(self, row: int) -> dict[str, Any] | None:
        """Forecast above measured, of a row that has either."""
        found = self.forecasts.get(row)
        expected = pipelines.forecast(found.trial) if found is not None and found.trial is not None else None
        folder = pipelines.run_dir(self.book, self.records[row]) if self.book is not None else None
        seen = pipelines.measured(folder) if folder is not None else None
        return None if expected is None and seen is None else {"row": row, "forecast": expected, "measured": seen}


def build(records: Sequence[Record], *, title: str, clusters: Clusters = Clusters(), book: Path | None = None,
          lint: bool | None = None, tokens: float | None = None, price: float | None = None,
          linted: Linted | None = None, remarks: Remarks | None = None,
          forecast: Mapping[int, Forecast] | None = None) -> Made:
    """`lint` None: where the imported rows are not too many. `book` is the logbook's folder, for the traces of its runs.

    `linted`, `forecast`: what an earlier look at these records found.
    """
    made = forecasts.of(records, clusters) if forecast is None else forecast
    linted = linted or run_lint(records, lint)
    findings = linted.findings
    by_row = _by_row(records, findings)
    doubtful = {row: code for row, places in by_row.items() for i in places if (code := findings[i].code) in DOUBTFUL
                and findings[i].level == "error"}
    copies = frozenset(row for row, places in by_row.items() if any(findings[i].code == "repeat" for i in places))
    questions = answers.questions(records, doubtful, copies)
    usable = [row for row, record in enumerate(records) if row not in doubtful and row not in copies
              and (answers.ranks(record) or record.state == "measured" and record.tflops and record.outcome is None)]
    compared = sorted({*usable, *(copies - doubtful.keys())})
    result = Made(records=records, view={}, forecasts=made, findings=findings, questions=questions, usable=usable, book=book,
                  by_row=by_row, remarks=remarks or {})
    result.view.update({
        "schema": SCHEMA,
        "title": title,
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "version": __version__,
        "columns": page_columns(engines=len({record.engine for record in records if record.engine})),
        "groups": GROUPS,
        "statuses": {status: "good" if kind.kind == "ok" else "warn" if kind.kind == "not run" or kind.timed else "bad"
                     for status, kind in OUTCOMES.items()},
        "spans": {letter: [span.css, span.word] for letter, span in pipelines.SPANS.items()},
        "rows": _rows(records, made, by_row, doubtful, findings, result.remarks),
        "count": len(records),
        "ids": [record.record_id or str(row) for row, record in enumerate(records)],
        "questions": [_question(q) for q in questions],
        "scaling": [asdict(s) for s in scaling(records, [row for row in usable if records[row].gbs])],
        "knobs": [asdict(k) for k in knobs(records, compared)],
        "parts": _parts(records, made, questions),
        "failures": _failures(records),
        "histories": _histories(records),
        "findings": [{**finding.to_dict(), "row": row} for finding, row in zip(findings, _row_of(by_row, len(findings)))],
        "linted": linted.skipped,
        "tokens": tokens,
        "price": price,
        "assumed": clusters.assume,
        "forecast_on": sorted({f.device for f in made.values() if f.device}),
    })  # fmt: skip
    result.view["pipelines"] = _pipelines(result)
    return result


# ---- the table


def _rows(records: Sequence[Record], made: Mapping[int, Forecast], by_row: Mapping[int, list[int]], doubtful: Mapping[int, str],
          findings: Sequence[Finding], remarks: Remarks) -> dict[str, list[object]]:
    rows: dict[str, list[object]] = {name: _column(records, own) for name, own in FROM_RECORD.items()}
    rows["state"] = ["rehearsed" if r.measurement.get("kind") == "rehearsed" else r.state for r in records]
    rows["world"] = [answers.world(r) for r in records]
    rows["world_from"] = [answers.world_from(r) for r in records]
    rows["mem"] = [_short(r.mem_gib) for r in records]
    rows["status"] = [None if r.outcome is None else r.outcome.status for r in records]
    rows["env"] = [" ".join(f"{k}={v}" for k, v in r.env.items()) or None for r in records]
    rows["rate"] = [_short(r.gbs / r.sec_per_it) if r.gbs and r.sec_per_it else None for r in records]
    rows["mfu"] = [_short(r.mfu) for r in records]
    rows["tokens"] = [_short(answers.tokens_per_device(r)) for r in records]
    said = [remarks[r.record_id][-1] if r.record_id in remarks else {} for r in records]
    rows["tags"] = [" ".join(one.get("tags", ())) or None for one in said]
    rows["remark"] = [one.get("text") or None for one in said]
    known = [answers.interval(r) for r in records]
    rows["lo"] = [None if k is None else _short(k[0]) for k in known]
    rows["hi"] = [None if k is None else _short(k[1]) for k in known]
    for name, attribute in (("f_sec", "sec"), ("f_lo", "lo"), ("f_hi", "hi"), ("f_mem", "mem_gib"), ("f_mem_lo", "mem_lo"),
                            ("f_mem_hi", "mem_hi"), ("limit", "limit_gib")):
        rows[name] = [_short(getattr(made[i], attribute)) if i in made and not made[i].elsewhere else None
                      for i in range(len(records))]
    rows["f_elsewhere"] = [made[i].elsewhere or None if i in made else None for i in range(len(records))]
    rows["f_assumed"] = [" ".join(made[i].assumed) or None if i in made else None for i in range(len(records))]
    worst = {"error": 2, "warning": 1, "info": 0}
    rows["lint"] = [max((worst[findings[i].level] for i in by_row[row]), default=None) if row in by_row else None
                    for row in range(len(records))]
    rows["aside"] = [doubtful.get(row) for row in range(len(records))]
    # 1.10 is not 1.1 to whoever wrote it: the text is kept where a number would lose a digit.
    texts = {"sec": "sec_per_it", "tflops": "tflops", "mem": "mem_value"}
    for name, own in texts.items():
        rows[f"{name}_text"] = [_text(r, own, rows[name][i]) for i, r in enumerate(records)]
    return {name: values for name, values in rows.items() if values.count(None) < len(values) or name in ("state", "sec")}


def _text(record: Record, name: str, value: object) -> str | None:
    if value is None or not record.printed:
        return None
    digits = number(record, name)
    if name == "mem_value" and record.mem_unit not in ("GiB", "GB", ""):
        return f"{digits} {record.mem_unit}"
    return digits if digits and digits != shortest(float(value)) else None  # type: ignore[arg-type]


def _column(records: Sequence[Record], name: str) -> list[object]:
    values = list(map(operator.attrgetter(name), records))
    return values if set(map(type, values)) <= {int, bool, type(None)} else [_blank(value) for value in values]


def _blank(value: object) -> object:
    if value == "" or value == ():
        return None
    return _short(value) if isinstance(value, float) else value


def _short(value: float | None) -> float | None:
    """Enough digits for any picture, and no more bytes than that; what is not finite is not drawn."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.7g}")


# ---- the rest


def _question(q: Question) -> dict[str, Any]:
    return {**vars(q), "ranked": tuple(vars(c) for c in q.ranked), "gap": q.gap, "ties": q.ties, "noise": q.noise,
            "verdict": q.verdict}


def _forecast(f: Forecast) -> dict[str, Any]:
    plain = {name: value for name, value in vars(f).items() if name != "trial"}
    plain["parts_s"] = {name: _short(value) for name, value in f.parts_s.items()}
    plain["memory_gib"] = {name: _short(value) for name, value in f.memory_gib.items()}
    return {name: _short(value) if isinstance(value, float) else value for name, value in plain.items()}


def _parts(records: Sequence[Record], made: Mapping[int, Forecast], questions: Sequence[Question]) -> dict[str, dict[str, Any]]:
    """Row -> what its seconds and its GiB are made of, for the rows that pictures show."""
    shown = {row for q in questions[:40] for c in q.ranked[:16] for row in c.rows[:1]}
    shown |= {row for q in questions[:40] for row in q.rows[:24]}
    parts = {}
    for row in sorted(shown):
        one: dict[str, Any] = {}
        if row in made and made[row].parts_s and not made[row].elsewhere:
            one["time"] = {name: _short(v) for name, v in made[row].parts_s.items() if v}
            one["memory"] = {name: _short(v) for name, v in made[row].memory_gib.items() if v}
        if records[row].breakdown:
            one["breakdown"] = {name: _short(v) for name, v in records[row].breakdown.items()}
        if peak := _peak_memory(records[row].memory):
            one["held"] = peak
        if one:
            parts[str(row)] = one
    return parts


def _peak_memory(memory: Mapping[str, object]) -> dict[str, Any] | None:
    """Measured memory: parts of the fullest rank in GiB, and what each rank used."""
    fullest, ranks = memory.get("fullest"), memory.get("ranks")
    if not isinstance(fullest, dict):
        return None
    parts = fullest.get("parts")
    used = [_used(rank) for rank in ranks[:MOST_RANKS_SHOWN]] if isinstance(ranks, list) else []
    return {"rank": memory.get("rank"), "ranks": used,
            "parts": {k: _short(v / 2**30) for k, v in parts.items() if isinstance(v, int | float) and v}
            if isinstance(parts, dict) else {}}


def _used(rank: object) -> float | None:
    if not isinstance(rank, dict):
        return None
    for name in ("reserved_peak_gib", "allocated_peak_gib", "rss_peak_gib"):
        if isinstance(value := rank.get(name), int | float):
            return _short(float(value))
    return None


def _failures(records: Sequence[Record]) -> list[dict[str, Any]]:
    found = []
    for row, record in enumerate(records):
        outcome = record.outcome
        if (outcome is None or outcome.status == "ok") and record.state != "failed":
            continue
        found.append({"row": row, "status": outcome.status if outcome else "failed",
                      "message": outcome.message if outcome else "", "rank": outcome.rank if outcome else None,
                      "iteration": outcome.iteration if outcome else None, "phase": outcome.phase if outcome else "",
                      "rate": list(outcome.rate) if outcome and outcome.rate else None})
    return found


def _histories(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Trials that were measured more than once: each with its rows by date, and the software of each."""
    groups: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        if record.run_id and record.sec_per_it:
            groups.setdefault(record.run_id, []).append(row)
    found = []
    for rows in groups.values():
        if len(rows) < 2:
            continue
        rows.sort(key=lambda row: (records[row].date, records[row].written_at, row))
        shared = set.intersection(*(set(records[row].versions.items()) for row in rows))
        found.append({"rows": rows, "at": [_when(records[row]) for row in rows],
                      "versions": [" ".join(f"{name} {version}" for name, version in records[row].versions.items()
                                            if (name, version) not in shared) for row in rows]})
    return found


def _when(record: Record) -> str:
    return record.date or record.written_at[:16].replace("T", " ")


@dataclass(frozen=True, kw_only=True)
class Linted:
    findings: tuple[Finding, ...] = ()
    skipped: str = ""
    """Why nothing was checked, where that is so."""


def run_lint(records: Sequence[Record], wanted: bool | None = None) -> Linted:
    """Lint over the imported rows."""
    imported = [record for record in records if record.source_file]
    if not imported:
        return Linted(skipped="no imported rows")
    if wanted is False:
        return Linted(skipped=f"not checked: {len(imported)} imported rows")
    if wanted is None and len(imported) > MOST_LINTED:
        return Linted(skipped=f"not checked: {len(imported)} imported rows; --lint checks them all the same")
    from seatrial.notes import lint

    return Linted(findings=tuple(lint.lint(imported)))


def _by_row(records: Sequence[Record], findings: Sequence[Finding]) -> dict[int, list[int]]:
    places: dict[tuple[str, int | None], list[int]] = {}
    for i, finding in enumerate(findings):
        places.setdefault((finding.file, finding.line), []).append(i)
    return {row: places[key] for row, record in enumerate(records)
            if record.source_file and (key := (record.source_file, record.source_line)) in places}


def _row_of(by_row: Mapping[int, list[int]], count: int) -> list[int | None]:
    rows: list[int | None] = [None] * count
    for row, places in by_row.items():
        for i in places:
            rows[i] = row
    return rows


def _pipelines(made: Made) -> list[dict[str, Any]]:
    """The best rows of each question first, then whatever has a trace of its own."""
    wanted = [c.rows[0] for q in made.questions for c in q.ranked[:3]]
    traced = [row for row, record in enumerate(made.records) if record.host.get("run_dir") and (record.pp or 1) > 1]
    found = []
    for row in dict.fromkeys([*traced[:MOST_PIPELINES // 2], *wanted]):
        if (made.records[row].pp or 1) < 2:
            continue
        one = made.pipeline(row)
        if one is not None:
            found.append(one)
        if len(found) >= MOST_PIPELINES:
            break
    return found
