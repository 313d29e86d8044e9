"""The five raw logs against their rows as figures: what is printed is read, what nobody says stays empty."""
from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from seatrial.notes.read import Imported, import_file
from seatrial.record import Record

ROWS = Path(__file__).parents[2] / "examples" / "rows.csv"
LOGS = {"fugaku-1.3b": "000", "fugaku-30b": "001", "bloom-prequel": "002", "tcmalloc": "003", "fugaku-sweep": "004"}
"""The log's name in the collection, and how its raw file's name begins."""
FIGURES = (
    "nodes procs_per_node size_label layers hidden heads seq vocab dp tp pp mbs gbs zero_stage dtype freq_ghz torch_version "
    "mem_value mem_unit sec_per_it tflops aggr_pflops"
).split()
NOT_PRINTED: dict[str, set[str]] = {
    "000": {"procs_per_node", "vocab", "zero_stage", "dtype", "freq_ghz"},
    "001": {"procs_per_node", "vocab", "zero_stage", "dtype", "freq_ghz", "recompute"},
    "002": {"vocab", "zero_stage", "recompute", "layers", "hidden", "heads", "seq", "dp", "mbs"},
    "003": {"procs_per_node", "vocab", "zero_stage", "dtype"},
    "004": {"procs_per_node", "vocab", "zero_stage", "dtype", "freq_ghz", "layers", "hidden", "heads", "recompute"},
}
"""What the collection of rows adds from outside the log: there the importer may say nothing, and must not say otherwise."""


@pytest.fixture(scope="module")
def truth() -> dict[tuple[str, int], dict[str, str]]:
    with ROWS.open(newline="") as file:
        return {(LOGS[row["source_file"]], int(row["line_no"])): row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def logs(seeds_dir: Path) -> dict[str, Imported]:
    return {path.name[:3]: import_file(path) for path in sorted(seeds_dir.glob("*.txt"))}


@pytest.fixture(scope="module")
def rows(logs: dict[str, Imported]) -> dict[tuple[str, int], Record]:
    found = [record for log in logs.values() for record in log.records if record.table is not None]
    return {(record.source_file[:3], record.source_line or 0): record for record in found}


def test_every_row_is_read_once_and_no_other(rows, truth, logs):
    assert rows.keys() == truth.keys()
    in_tables = [record for log in logs.values() for record in log.records if record.table is not None]
    assert len(in_tables) == len(truth) == 180


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_that_of_the_collection_or_is_not_in_the_log(rows, truth, name):
    for key, expected in truth.items():
        value, text = getattr(rows[key], name), expected[name].replace("unstated", "")
        if value in (None, ""):
            assert not text or name in NOT_PRINTED[key[0]], (key, text)
        elif isinstance(value, str):
            assert value == text, key
        else:
            assert float(value) == float(text), key


def test_what_is_not_printed_is_listed_narrowly(rows, truth):
    """Every exception above is needed: a field that is always read must not be excused."""
    needed: dict[str, set[str]] = {}
    for key, expected in truth.items():
        for name in FIGURES:
            if expected[name] not in ("", "unstated") and getattr(rows[key], name) in (None, ""):
                needed.setdefault(key[0][:3], set()).add(name)
    assert needed == {log: names - {"recompute"} for log, names in NOT_PRINTED.items()}


def test_recompute_is_read_from_headings_and_columns(rows, truth):
    for key, expected in truth.items():
        read = {"full": "true", "none": "false", "": ""}[rows[key].recompute]
        assert read == expected["activation_ckpt"] or (not read and "recompute" in NOT_PRINTED[key[0]]), key


def test_no_year_is_made_up(rows, truth):
    for key, expected in truth.items():
        assert rows[key].date == expected["date"][-5:], key


def test_flags_are_kept(rows, truth):
    for key, expected in truth.items():
        assert " ".join(rows[key].flags) == expected["flags"], key


def test_settings_in_the_nodes_cell(rows, truth):
    for key, expected in truth.items():
        for part in filter(None, (part.strip().strip('"') for part in expected["env"].split(","))):
            name, sep, value = part.partition("=")
            if sep:
                assert rows[key].env[name] == value, key
            else:
                assert rows[key].freq_ghz == float(part.removesuffix("Hz")), key


def test_states_and_outcomes(rows, truth):
    """The collection's status says less: there a row that ran before it failed has only its failure, and a mark is no state."""
    expected_state = {"ok": "measured", "estimated": "estimated", "not_run": "planned"}
    expected_status = {"oom": ("oom_device", "oom_host"), "hang": ("hang",), "fail": ("crash",)}
    for key, expected in truth.items():
        record, status = rows[key], expected["status"]
        if status in expected_status:
            assert record.outcome is not None and record.outcome.status in expected_status[status], key
        timed = record.sec_per_it is not None or record.tflops is not None
        if record.estimated:
            assert record.state == "estimated", key
        elif timed and status in expected_status:
            assert record.state == "measured", key
        else:
            assert record.state == expected_state.get(status, "failed"), key
    assert Counter(record.state for record in rows.values()) == {"measured": 149, "estimated": 7, "planned": 13, "failed": 11}


def test_a_failure_after_a_measurement_keeps_both(rows):
    both = {key: record for key, record in rows.items() if record.outcome and record.tflops is not None}
    assert sorted((key[0][:3], key[1], record.outcome.status) for key, record in both.items()) == [
        ("001", 24, "oom_host"),
        ("002", 126, "hang"),
        ("004", 6, "hang"),
    ]


def test_memory_of_a_machine_without_devices_is_the_hosts(rows):
    for key, record in rows.items():
        if record.outcome and record.outcome.status.startswith("oom"):
            assert record.outcome.status == ("oom_device" if key[0].startswith("002") else "oom_host")


def test_log_lines_between_tables_are_records_with_their_surroundings(logs):
    iterations = [record for record in logs["002"].records if record.iteration is not None]
    assert [(r.source_line, r.nodes, r.dp, r.layers, r.dtype, r.sec_per_it) for r in iterations] == [
        (38, 1, 1, 8, "fp16", 769.99),
        (46, 10, 1, 80, "fp16", 844.81),
        (52, 20, 2, 80, "fp16", 430.21),
        (75, 1, 1, 8, "bf16", 777.09),
        (84, 10, 1, 80, "bf16", 853.81),
        (92, 20, 2, 80, "bf16", 434.14),
    ]
    assert all(r.gbs == 2048 and r.loss and r.samples_per_s for r in iterations)


def test_lists_of_memory_are_records(logs):
    lists = [record for record in logs["002"].records if record.mem_scope]
    assert [(r.optimizer, r.nodes, r.mem_scope, r.mem_value) for r in lists] == [
        ("torch.optim.Adam", 16, "1st node", 61.0),
        ("torch.optim.Adam", 16, "all nodes", 47.0),
        ("apex.optimizers.FusedAdam", 16, "1st node", 51.0),
        ("apex.optimizers.FusedAdam", 16, "all nodes", 44.0),
    ]


def test_sections_with_and_without_an_allocator_differ_in_their_environment(rows):
    preload = {record.source_line: record.env.get("LD_PRELOAD") for key, record in rows.items() if key[0].startswith("003")}
    assert set(preload.values()) == {"libtcmalloc.so", ""}


def test_only_the_rows_with_a_cell_too_many_are_reported(logs):
    reported = [(log, problem.line, problem.level) for log, found in logs.items() for problem in found.problems]
    assert reported == [("004", line, "note") for line in (36, 37, 38, 39)]
