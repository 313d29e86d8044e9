"""What is no file of runs gets one line that says why, and never a traceback."""
from __future__ import annotations

import gzip
import os
import random

import pytest

import attempts
from seatrial import presets
from seatrial.errors import BadInput
from seatrial.notes.lint import look_at
from seatrial.notes.read import import_file, iter_file, sniff
from seatrial.plan import rows
from seatrial.report.read import read as records_of

TABLE = "| Nodes | DP | Sec/it |\n|--|--|--|\n| 4 | 8 | 1.5 |\n"


def refusal(path, **options: float) -> str:
    with pytest.raises(BadInput) as error:
        import_file(path, **options)
    message = str(error.value)
    assert "\n" not in message and str(path) in message
    return message


def test_a_file_that_is_not_there(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.md")


def test_a_directory(tmp_path):
    assert "directory" in refusal(tmp_path)


@pytest.mark.parametrize("digits", ["\u00b2", "\u2460", "9" * 5000], ids=["raised", "circled", "long"])
def test_digits_that_are_no_number(tmp_path, digits):
    """Python's `isdigit` takes them all, and `int` none."""
    path = tmp_path / "odd.md"
    path.write_text("| Nodes | DP | TP | PP | CP | GA | Sec/it |\n|--|--|--|--|--|--|--|\n"
                    f"| 1 | 8 | 1 | 1 | {digits} | {digits} | 1.5 |\n"
                    f"\n<table><tr><th colspan={digits}>DP</th><th>Sec/it</th></tr><tr><td>8</td><td>1.5</td></tr></table>\n")
    assert look_at([str(path)])[1].rows[0].record.sec_per_it == 1.5


def test_an_empty_file(tmp_path):
    path = tmp_path / "e.md"
    path.write_bytes(b"")
    assert "empty" in refusal(path)


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)) * 4,
        gzip.compress(TABLE.encode() * 100),
        random.Random(0).randbytes(5000),
        b"\x7fELF\x02\x01\x01\0\0\0",
    ],
    ids=["bytes", "gzip", "noise", "elf"],
)
def test_a_binary_file_whatever_it_is_called(tmp_path, content):
    for name in ("a.md", "a.csv", "a.log", "a.json", "a"):
        path = tmp_path / name
        path.write_bytes(content)
        assert "binary" in refusal(path)


def test_a_binary_tail(tmp_path):
    path = tmp_path / "t.md"
    path.write_bytes(TABLE.encode() + b"text\n" * 20000 + b"\0\1\2\n")
    assert ":20004: a binary file" in refusal(path)


def test_utf_16_is_named(tmp_path):
    path = tmp_path / "u.md"
    path.write_bytes(TABLE.encode("utf-16"))
    assert "UTF-8" in refusal(path)


def test_a_file_without_rights_as_the_system_reports_it(tmp_path, monkeypatch):
    path = tmp_path / "r.md"
    path.write_text(TABLE)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(path), "open", refuse)
    assert "permission denied" in refusal(path)


def test_a_pipe(tmp_path):
    path = tmp_path / "p.md"
    os.mkfifo(path)
    assert "regular file" in refusal(path)


def test_a_table_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "l.md"
    path.write_text(TABLE + "| 4 | 8 | 1.5 |\n" * 5000)
    with path.open("r+b") as file:
        file.seek(200 * 2**20)
        file.write(b"\n")
    assert "200 MiB" in refusal(path) and "64 MiB" in refusal(path)
    path.write_text(TABLE * 100)
    assert "over the 0.001 MiB" in refusal(path, largest_mib=0.001)


def test_a_log_has_no_limit(tmp_path):
    path = tmp_path / "l.log"
    line = " iteration {:8}/     100 | elapsed time per iteration (s): 2.50 | global batch size:    64 |\n"
    path.write_text("".join(line.format(number) for number in range(1, 101)))
    assert len(import_file(path, largest_mib=0.001, each=True).records) == 100


def test_a_line_without_end(tmp_path):
    path = tmp_path / "w.md"
    path.write_bytes(TABLE.encode() + b"| " + b"x" * (2 << 20))
    assert "w.md:4: a line of over 1 MiB" in refusal(path)


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "[1, 2", '{"schema": 99, "records": []}', "[" * 100_000])
def test_json_that_is_none(tmp_path, content):
    path = tmp_path / "j.json"
    path.write_text(content)
    refusal(path)


@pytest.mark.parametrize(
    "record",
    [
        '{"state": "measured", "dq": 4}',
        '{"state": "maybe"}',
        '{"state": "measured", "dp": NaN}',
        '{"state": "measured", "tflops": Infinity}',
        "7",
    ],
)
def test_a_record_that_is_none_is_a_problem_with_its_number(tmp_path, record):
    path = tmp_path / "j.json"
    path.write_text(f'[{{"state": "planned"}}, {record}]')
    found = import_file(path)
    assert len(found.records) == 1 and [(problem.line, problem.rows) for problem in found.problems] == [(2, 1)]


def test_csv_without_any_column_of_a_run(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("name,colour,taste\na,b,c\n")
    assert "no column of a run" in refusal(path)


def test_csv_rows_that_do_not_fit_are_reported(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("nodes,dp,tp,pp,gbs,sec_per_it\n4,8,2,2,512,1.5\n4,eight,2,2,512,1.5\n")
    found = import_file(path)
    assert [record.dp for record in found.records] == [8] and [(problem.line, problem.rows) for problem in found.problems] == [
        (3, 1)
    ]


def test_csv_in_other_words_and_with_other_separators(tmp_path):
    path = tmp_path / "c.tsv"
    path.write_text("Nodes\tMP\tStep time (ms)\tMem (GB)\n4\t2\t1500\t30.5\n\n8\t2\tOOM\t\n")
    first, second = import_file(path).records
    assert (first.nodes, first.tp, first.sec_per_it, first.mem_value, first.mem_unit) == (4, 2, 1.5, 30.5, "GB")
    assert second.outcome is not None and second.outcome.status == "oom_device"
    path = tmp_path / "d.csv"
    path.write_text('"Nodes";"Sec/it";"Notes"\n4;1.5;"two\nlines"\n8;0.9;x\n')
    first, second = import_file(path).records
    assert first.notes == "two lines" and (second.nodes, second.source_line) == (8, 4)


def test_kinds_are_told_by_name_or_content(tmp_path):
    def kind(name: str, content: str) -> str:
        return sniff(tmp_path / name, content.encode())

    assert (
        kind("a.csv", TABLE) == "csv"
        and kind("a.log", "x") == "log"
        and kind("a.json", "x") == "json"
        and kind("a.md", "a,b,c") == "markdown"
    )
    assert kind("a.txt", TABLE) == "markdown" and kind("a", "dp,tp,sec_per_it\n1,2,3\n") == "csv"
    assert kind("a.txt", " iteration        1/      10 | elapsed time per iteration (s): 2.50 |\n") == "log"
    assert kind("a.txt", "# notes\n iteration        1/      10 | elapsed time per iteration (s): 2.50 |\n") == "markdown"
    assert kind("a", '[{"state": "planned"}]') == "json"


def test_reading_begins_only_when_asked(tmp_path):
    path = tmp_path / "t.md"
    path.write_text(TABLE)
    assert next(iter_file(path)).nodes == 4  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "piece", ["a_", "a=", "a: ", "**a", "[", "`", "(", "│ ", "† ", "1,", "with ", "iteration 1/2 ", "- ", "<!--"]
)
def test_a_line_made_to_be_slow_is_not(tmp_path, piece):
    """Every pattern is linear, or looks at lines of bounded length only."""
    import time

    slow = piece * (20_000 // len(piece))
    cell = slow.replace("|", "")
    text = (
        f"{slow}\n# {slow}\n- {slow}: 5GB\n iteration  1/ 2 | {slow}\n\n{TABLE}| 1 | 2 | {slow} |\n| {cell} | 2 | 1.5{cell} |\n"
    )
    path = tmp_path / "s.md"
    for short in (text, text.replace(slow, slow[:900]).replace(cell, cell[:900])):
        path.write_text(short)

        def check() -> None:
            began = time.process_time()
            import_file(path)
            assert time.process_time() - began < 1.0

        attempts.one_of_three(check)


def test_a_file_of_nothing_but_settings_is_no_notes(tmp_path):
    path = tmp_path / "s.md"
    path.write_text("NLAYERS=4\n" * 20_000 + TABLE)
    assert "more than notes have" in refusal(path)


@pytest.mark.parametrize("cell", [f"&#{'9' * 5000};", "<![x[ ]]>"])
def test_html_that_the_parser_stops_at_is_a_cell_like_others(tmp_path, cell):
    path = tmp_path / "t.md"
    path.write_text(f"<table><tr><th>DP</th><th>Sec/it</th><th>x</th></tr><tr><td>8</td><td>1.5</td><td>{cell}</td></tr></table>"
                    f"\n\n| DP | Sec/it | x |\n|---|---|---|\n| 4 | 2.5 | {cell} |\n")
    assert [(r.dp, r.sec_per_it) for r in import_file(path).records] == [(8, 1.5), (4, 2.5)]


def test_a_name_too_long_for_a_file_is_one_line(tmp_path):
    path = tmp_path / f"{'n' * 300}.csv"
    for read in (import_file, lambda name: records_of([name]), lambda name: rows.read(name, presets.cluster("local"))):
        with pytest.raises(BadInput, match=r"(?i)n\.csv: file name too long"):
            read(path)
