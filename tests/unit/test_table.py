"""Tables: what is written can be read again without any value changing, and says nothing that the records do not."""
from __future__ import annotations

import csv
import dataclasses
import io
import json
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from seatrial.notes.read import import_file
from seatrial.record import Outcome, Record
from seatrial.tables.codec import HEADINGS, STRUCTURED
from seatrial.tables.csvjson import to_csv, to_json
from seatrial.tables.markdown import best_row, to_markdown

IN_MARKDOWN = {*HEADINGS, "date", "mem_unit", "section"} - {"source"}
"""The fields that a table in markdown carries."""
NOT_IN_CSV = {"printed", "context", "table", "written_at", "source_file", "source_line"}

counts = st.integers(1, 10**9)
figures = st.floats(1e-6, 1e12, allow_nan=False)
texts = st.text(max_size=12)
words = st.text(string.ascii_letters + string.digits + "^†*-_.", min_size=1, max_size=6)
pairs = st.dictionaries(texts, texts, max_size=2)
names = st.lists(words, max_size=2, unique=True).map(tuple)
outcomes = st.builds(
    Outcome,
    status=st.sampled_from(["ok", "oom_device", "oom_host", "hang", "crash", "nan", "timeout", "invalid", "cancelled",
                            "not_started", "crowded"]),
    message=texts,
    rank=st.none() | counts,
    phase=texts,
    rate=st.none() | st.tuples(counts, counts),
)
BY_TYPE = {
    "int | None": st.none() | counts,
    "float | None": st.none() | figures,
    "str": texts,
    "bool | None": st.none() | st.booleans(),
}
OWN = {
    "state": st.sampled_from(["measured", "estimated", "planned", "failed"]),
    "outcome": st.none() | outcomes,
    "env": pairs,
    "extra": pairs,
    "flags": names,
    "estimated": names,
    "inferred": names,
    "mem_unit": st.sampled_from(["", "MiB", "GB", "GiB"]),
}
types = {f.name: str(f.type) for f in dataclasses.fields(Record)}
sparse = {name: OWN[name] if name in OWN else BY_TYPE[types[name]] for name in sorted(IN_MARKDOWN - {"state"})}
records = st.fixed_dictionaries({"state": OWN["state"]}, optional=sparse).map(lambda values: Record(**values))


def values(record: Record, *, leaving: set[str] = frozenset()) -> dict[str, object]:
    return {key: value for key, value in record.to_dict().items() if key not in leaving}


def again(tmp_path: Path, name: str, text: str) -> list[Record]:
    path = tmp_path / name
    path.write_bytes(text.encode())
    found = import_file(path)
    assert not found.problems
    return list(found.records)


relaxed = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@relaxed
@given(st.lists(records, min_size=1, max_size=4))
def test_markdown_comes_back_with_every_value(tmp_path, rows):
    back = again(tmp_path, "t.md", to_markdown(rows))
    kept = [{key: value for key, value in values(row).items() if key in IN_MARKDOWN} for row in rows]
    read = [{key: value for key, value in values(row).items() if key in IN_MARKDOWN} for row in back]
    # Tables are grouped, so the order may change between groups.
    assert sorted(map(repr, read)) == sorted(map(repr, kept))


@relaxed
@given(st.lists(records, min_size=1, max_size=4))
@example([Record(state="measured", recompute="false")])
def test_csv_comes_back_with_every_value(tmp_path, rows):
    back = again(tmp_path, "t.csv", to_csv(rows))
    assert [values(row, leaving=NOT_IN_CSV) for row in back] == [values(row, leaving=NOT_IN_CSV) for row in rows]


@relaxed
@given(st.lists(records, min_size=1, max_size=4))
def test_json_comes_back_whole(tmp_path, rows):
    assert again(tmp_path, "t.json", to_json(rows)) == rows


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
def test_the_five_logs_come_back_with_every_value(seeds_dir, tmp_path, form):
    rows = [record for path in sorted(seeds_dir.glob("*.txt")) for record in import_file(path).records]
    if form == "markdown":
        text, name = to_markdown(rows, source=True), "t.md"
        carried = IN_MARKDOWN | {"source_file", "source_line"}
    elif form == "csv":
        text, name, carried = to_csv(rows), "t.csv", set(types) - (NOT_IN_CSV - {"source_file", "source_line"})
    else:
        text, name, carried = to_json(rows), "t.json", set(types)

    def keyed(found: list[Record]) -> dict[tuple[str, int | None], dict[str, object]]:
        return {(r.source_file, r.source_line): {k: v for k, v in values(r).items() if k in carried} for r in found}

    assert len(rows) == 190
    assert keyed(again(tmp_path, name, text)) == keyed(rows)


def test_writing_what_was_read_from_our_own_table_changes_nothing(tmp_path):
    rows = [Record(state="measured", nodes=2, dp=4, gbs=64, sec_per_it=1.25, time_unit="s", tflops=50.0, section="a / b")]
    once = to_markdown(rows)
    assert to_markdown(again(tmp_path, "t.md", once)) == once


# ---- what a table looks like

TWO = [
    Record(state="measured", nodes=48, size_label="7B", dp=8, tp=4, pp=12, mbs=2, gbs=512, mem_value=44.0, mem_unit="GB",
           sec_per_it=10.5, time_unit="s", tflops=145.92, formula="sc21", date="02-25"),
    Record(state="failed", nodes=48, size_label="7B", dp=32, tp=2, pp=6, mbs=2, gbs=512,
           outcome=Outcome(status="oom_device", message="OOM")),
    Record(state="measured", nodes=48, size_label="7B", dp=8, tp=4, pp=12, mbs=4, gbs=512, sec_per_it=11.75, time_unit="s",
           tflops=130.0, formula="sc21"),
]  # fmt: skip


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]


def test_the_columns_are_those_of_the_logs_with_the_formula_in_the_heading():
    heading, rule, *_ = cells(to_markdown(TWO))
    assert heading == [
        "Nodes",
        "Size",
        "DP",
        "TP",
        "PP",
        "MBS",
        "GBS",
        "Mem",
        "Sec/it",
        "TFLOPs (sc21)",
        "State",
        "Outcome",
        "Notes",
    ]
    assert all(cell.endswith("-:") for cell in rule)


def test_every_line_of_a_table_is_equally_wide():
    lines = [line for line in to_markdown(TWO).splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1


def test_an_empty_cell_stays_empty():
    row = cells(to_markdown(TWO))[3]
    assert row[7:11] == ["", "", "", "failed"]


def test_the_best_row_is_in_bold():
    rows = cells(to_markdown(TWO))[2:]
    assert [row[8] for row in rows] == ["**10.5**", "", "11.75"]


def test_the_best_row_has_the_most_samples_a_second_and_did_not_fail():
    def run(gbs: int | None, seconds: float | None, **more: object) -> Record:
        return Record(**{"state": "measured", "gbs": gbs, "sec_per_it": seconds, **more})  # type: ignore[arg-type]

    assert best_row([run(512, 10.0), run(1024, 15.0)]) == 1
    assert best_row([run(None, 10.0), run(1024, 15.0)]) == 0
    assert (
        best_row(
            [run(512, 10.0), run(512, 5.0, outcome=Outcome(status="hang")), run(512, 4.0, state="estimated"), run(512, 11.0)]
        )
        == 0
    )
    assert best_row([run(512, None, tflops=90.0), run(512, None, tflops=100.0)]) == 1
    assert best_row([run(512, 10.0)]) is None


def test_mixed_formulas_get_a_column_of_their_own():
    mixed = [TWO[0], dataclasses.replace(TWO[2], formula="megatron-2022-old")]
    heading, _, first, second = cells(to_markdown(mixed))
    assert (
        "TFLOPs" in heading
        and first[heading.index("Formula")] == "sc21"
        and second[heading.index("Formula")] == "megatron-2022-old"
    )


def test_what_counts_devices_has_no_column_of_nodes():
    heading = cells(to_markdown([Record(state="measured", gpus=64, tflops=50.0)]))[0]
    assert heading[0] == "GPUs" and "Nodes" not in heading


def test_figures_keep_the_digits_they_were_printed_with(tmp_path):
    path = tmp_path / "n.md"
    path.write_text("| Nodes | DP | TP | PP | Sec/it | TFLOPs |\n|--|--|--|--|--|--|\n| 1 | 1 | 1 | 1 | 12.50 | 1.10 |\n")
    assert cells(to_markdown(import_file(path).records))[2][-3:-1] == ["12.50", "1.10"]


def test_csv_has_the_columns_of_a_collection_of_rows():
    with (Path(__file__).parents[2] / "examples" / "rows.csv").open(newline="") as file:
        collection = next(csv.reader(file))
    written = next(csv.reader(io.StringIO(to_csv(TWO))))
    assert set(collection[: collection.index("dp_fixed")]) - {"table"} <= set(written)
    assert not set(written) & {"context", "printed"}


def test_csv_takes_every_field_that_holds_more_than_one_value(tmp_path):
    tables = {f.name for f in dataclasses.fields(Record) if str(f.type).startswith("dict")}
    assert tables <= set(STRUCTURED)
    record = Record(state="measured", measurement={"iterations": 4, "ended": "seconds"}, breakdown={"forward": 0.5})
    (tmp_path / "rows.csv").write_text(to_csv([record]))
    (back,) = import_file(tmp_path / "rows.csv").records
    assert (back.measurement, back.breakdown) == (record.measurement, record.breakdown)


def test_csv_says_in_one_word_what_happened():
    rows = list(csv.DictReader(io.StringIO(to_csv(TWO))))
    assert [row["status"] for row in rows] == ["ok", "oom", "ok"]


def test_json_is_one_document_with_its_schema():
    document = json.loads(to_json(TWO))
    assert document["schema"] == 1 and len(document["records"]) == 3
    assert json.loads(to_json([])) == {"schema": 1, "records": []}


def test_a_collection_of_rows_can_be_imported():
    found = import_file(Path(__file__).parents[2] / "examples" / "rows.csv")
    assert len(found.records) == 180 and not found.problems
    assert {record.formula for record in found.records} >= {"sc21", "megatron-2022-old"}
    failed = [record.outcome.status for record in found.records if record.outcome is not None]
    assert sorted(failed) == ["crash"] * 2 + ["hang"] * 5 + ["oom_device"] * 3 + ["oom_host"] * 2


def test_structured_fields_are_json_in_csv():
    assert all(name in types for name in STRUCTURED)
    row = next(csv.DictReader(io.StringIO(to_csv([TWO[1]]))))
    assert json.loads(row["outcome"]) == {"status": "oom_device", "message": "OOM"}


def test_writing_tables_loads_no_reader_of_notes():
    program = ("import sys, seatrial.tables.markdown, seatrial.tables.csvjson, seatrial.tables.short, seatrial.tables.unknown\n"
               "print([name for name in sys.modules if name.startswith('seatrial.notes')])")
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
