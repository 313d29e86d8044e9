"""Notes that nobody has seen before: other headings, other habits, other mistakes."""
from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.notes.read import Imported, import_file
from seatrial.notes.read.reshaped import is_second
from seatrial.record import Record


@pytest.fixture
def notes(tmp_path):
    def write(text: str | bytes, name: str = "notes.md") -> Imported:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return import_file(path)

    return write


def rows(found: Imported) -> list[Record]:
    assert not found.problems, found.problems
    return list(found.records)


TABLE = "| Nodes | DP | TP | PP | GBS | Sec/it | TFLOPs | Notes |\n| --: | --: | --: | --: | --: | --: | --: | :-- |\n"
ROW = "| 4 | 8 | 2 | 2 | 512 | 1.5 | 50.0 | |\n"


def test_a_table_in_other_words(notes):
    found = notes(
        "| Model | #GPUs | micro-batch | Global batch | ZeRO | recompute | VP | SP | seq len | step time (ms) | tokens/s | "
        "TFLOP/s/GPU | MFU | peak mem (GiB) |\n"
        "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        "| 8B | 64 | 2 | 1,024 | ZeRO-2 | selective | 4 | yes | 8192 | **2,500** | 3,355,443 | 412.5 | 41.7% | 61.2 |\n"
    )
    (r,) = rows(found)
    assert (r.size_label, r.gpus, r.mbs, r.gbs, r.zero_stage, r.recompute, r.vp, r.sequence_parallel, r.seq) == (
        "8B",
        64,
        2,
        1024,
        2,
        "selective",
        4,
        True,
        8192,
    )
    assert (r.sec_per_it, r.time_unit, r.tokens_per_s, r.tflops, r.tflops_per, r.mem_value, r.mem_unit) == (
        2.5,
        "ms",
        3355443.0,
        412.5,
        "process",
        61.2,
        "GiB",
    )
    assert r.mfu == pytest.approx(0.417) and r.nodes is None and r.dp is None


@pytest.mark.parametrize(
    "text",
    [
        TABLE + ROW,
        "\ufeff" + TABLE + ROW,
        (TABLE + ROW).replace("\n", "\r\n"),
        (TABLE + ROW).replace("| ", "|\t"),
        "\n".join(line.strip("|") for line in (TABLE + ROW.replace("| |", "| - |")).splitlines()) + "\n",
        "```\n" + TABLE + ROW + "```\n",
        "\n".join("> " + line for line in (TABLE + ROW).splitlines()),
        "\n".join("    " + line for line in (TABLE + ROW).splitlines()),
        (TABLE + ROW).rstrip("\n"),
        (TABLE + ROW).replace("50.0", "`50.0`").replace("| 512", "| **512**").replace("| 4 ", "| [4](u) "),
        (TABLE + ROW.replace("| |", "| x |")).replace("|\n", "\n"),
    ],
    ids=[
        "plain",
        "bom",
        "crlf",
        "tabs",
        "no outer pipes",
        "fence",
        "quote",
        "indented",
        "no newline",
        "marked up",
        "no closing pipe",
    ],
)
def test_the_same_table_in_many_coats(notes, text):
    (r,) = rows(notes(text))
    assert (r.nodes, r.dp, r.tp, r.pp, r.gbs, r.sec_per_it, r.tflops, r.state) == (4, 8, 2, 2, 512, 1.5, 50.0, "measured")


def test_a_box_drawn_by_a_program(notes):
    rule = "+----+-----+--------+\n"
    box = f"{rule}| DP | GBS | Sec/it |\n+====+=====+========+\n|  8 | 512 |   1.50 |\n{rule}"
    box += "|  4 | 512 |   1.75 |\n" + rule
    assert [(r.dp, r.sec_per_it) for r in rows(notes(box))] == [(8, 1.5), (4, 1.75)]
    drawn = "┌────┬────────┐\n│ DP │ Sec/it │\n├────┼────────┤\n│  8 │   1.50 │\n└────┴────────┘\n"
    assert [(r.dp, r.sec_per_it) for r in rows(notes(drawn))] == [(8, 1.5)]


def test_an_escaped_pipe_stays_in_its_cell(notes):
    (r,) = rows(notes(TABLE + ROW.replace("50.0 | |", "50.0 | a \\| b |")))
    assert r.notes == "a | b"


def test_a_missing_alignment_row_is_reported_and_the_rows_read(notes):
    found = notes(TABLE.splitlines()[0] + "\n" + ROW + ROW)
    assert len(found.records) == 2 and [problem.level for problem in found.problems] == ["note"]
    assert "alignment" in found.problems[0].message and found.problems[0].line == 1


def test_rows_without_headings_are_reported(notes):
    found = notes("text\n\n" + ROW + ROW)
    assert not found.records and found.problems[0].rows == 2 and found.problems[0].line == 3


def test_rows_after_an_empty_line_belong_to_the_table_above(notes):
    assert len(rows(notes(TABLE + ROW + "\n" + ROW))) == 2


def test_two_tables_without_a_line_between_them(notes):
    first, second = rows(notes(TABLE + ROW + "| DP | Sec/it |\n| - | - |\n| 16 | 3.5 |\n"))
    assert (second.dp, second.sec_per_it, second.nodes) == (16, 3.5, None) and (first.table, second.table) == (0, 1)


def test_a_table_of_something_else_is_named_and_left(notes):
    found = notes("| Name | Meaning |\n|--|--|\n| MBS | micro batch |\n| GBS | global |\n\n" + TABLE + ROW)
    assert len(found.records) == 1 and [(problem.level, problem.rows) for problem in found.problems] == [("note", 2)]


def test_a_column_twice_must_agree(notes):
    text = "| DP | TP | MP | Sec/it | ms/it |\n|--|--|--|--|--|\n| 1 | 4 | 4 | 1.5 | 1500 |\n| 1 | 4 | 8 | 1.5 | |\n"
    found = notes(text)
    assert [(r.tp, r.sec_per_it) for r in found.records] == [(4, 1.5), (4, 1.5)]
    assert [(problem.line, problem.column, problem.cell) for problem in found.problems] == [(4, "MP", "8")]


def test_an_unread_cell_is_reported_with_its_place_and_its_record_stays(notes):
    found = notes(TABLE + ROW.replace("| 8 |", "| eight |"))
    (problem,) = found.problems
    assert (problem.file, problem.line, problem.column, problem.cell, problem.level) == ("notes.md", 3, "DP", "eight", "cell")
    assert found.records[0].dp is None and found.records[0].printed["DP"] == "eight"


@pytest.mark.parametrize("cell", ["nan", "inf", "-1.5", "0"])
def test_numbers_that_cannot_be_are_reported(notes, cell):
    found = notes(TABLE + ROW.replace("1.5", cell))
    assert found.records[0].sec_per_it is None and [problem.column for problem in found.problems] == ["Sec/it"]


def test_columns_that_no_field_takes_are_kept(notes):
    (r,) = rows(notes("| DP | flash attn | Sec/it |\n|--|--|--|\n| 8 | v2 | 1.5 |\n"))
    assert r.extra == {"flash attn": "v2"}


def test_more_and_fewer_cells_than_headings(notes):
    found = notes(TABLE + "| 4 | 8 | 2 | 2 | 512 | 1.5 | - | 50.0 | 02-03 |\n| 4 | 8 | 2 | 2 | 512 | 1.5 |\n")
    extra, short = found.records
    assert (extra.sec_per_it, extra.tflops, extra.date) == (1.5, 50.0, "02-03")
    assert (short.sec_per_it, short.tflops) == (1.5, None)
    assert [problem.level for problem in found.problems] == ["note", "note"]


# ---- states


@pytest.mark.parametrize(
    ("row", "state", "status"),
    [
        ("| 4 | 8 | 2 | 2 | 512 | - | - | |", "planned", None),
        ("| 4 | 8 | 2 | 2 | 512 | | | 02-03 |", "planned", None),
        ("| 4 | 8 | 2 | 2 | 512 | OOM | | |", "failed", "oom_device"),
        ("| 4 | 8 | 2 | 2 | 512 | | | OOM on gpu 0 |", "failed", "oom_device"),
        ("| 4 | 8 | 2 | 2 | 512 | 1.5 | 50 | too close to OOM |", "measured", None),
        ("| 4 | 8 | 2 | 2 | 512 | 1.5 | 50 | may hang |", "measured", "hang"),
        ("| 4 | 8 | 2 | 2 | 512 | xxxx | | always hangs |", "failed", "hang"),
        ("| 4 | 8 | 2 | 2 | 512 | fail | | |", "failed", "crash"),
        ("| 4 | 8 | 2 | 2 | 512 | 1.5 (1 iteration only) | 50 | |", "estimated", None),
        ("| 4 | 8 | 2 | 2 | 512 | 1.5^ | 50 | |", "estimated", None),
        ("| 4 | 8 | 2 | 2 | 512 | ~1.5 | 50 | |", "estimated", None),
        ("| 4 | 8 | 2 | 2 | 512 | 1.5 | 50 | extrapolated |", "estimated", None),
    ],
)
def test_states_follow_from_what_the_row_says(notes, row, state, status):
    (r,) = rows(notes(TABLE + row + "\n"))
    assert (r.state, r.outcome.status if r.outcome else None) == (state, status)


def test_a_legend_decides_what_a_mark_means(notes):
    text = TABLE + "| 4 | 8 | 2 | 2 | 512 | 1.5^ | 50† | |\n\n- ^ measured with profiling on\n- † crashed after 3 iterations\n"
    (r,) = rows(notes(text))
    assert r.state == "measured" and r.outcome is not None and r.outcome.status == "crash"
    assert r.flags == ("^", "†") and "profiling" in r.notes


def test_out_of_memory_on_a_machine_of_cpus_is_the_hosts(notes):
    (r,) = rows(notes("# A cluster of Xeon CPUs\n\n" + TABLE + "| 4 | 8 | 2 | 2 | 512 | OOM | | |\n"))
    assert r.outcome is not None and r.outcome.status == "oom_host"


# ---- the text around


def test_the_nearest_statement_of_the_section_or_its_parents_holds(notes):
    t = TABLE + ROW
    text = f"# A\nNLAYERS=10\nMBS=1\n\n## B\nNLAYERS=20\n{t}\nNLAYERS=30\n{t}\n### C\n{t}\n## D\n{t}\n# E\n{t}"
    assert [(r.layers, r.mbs) for r in rows(notes(text))] == [(20, 1), (30, 1), (30, 1), (10, 1), (None, None)]


def test_what_the_row_says_wins_and_the_other_is_kept_beside_it(notes):
    (r,) = rows(notes(f"GBS=64\n\n{TABLE}{ROW}"))
    assert r.gbs == 512 and (r.context["gbs"].value, r.context["gbs"].line) == (64, 1)


def test_a_section_without_rows_speaks_for_the_file(notes):
    (r,) = rows(
        notes(
            f"# 7B\n## Overview\n### Hyperparameters\n- --num-layers 32\n- --hidden-size 4096\n## Runs\n"
            f"### seq=2048\n{TABLE}{ROW}"
        )
    )
    assert (r.layers, r.hidden, r.seq, r.size_label, r.section) == (32, 4096, 2048, "7B", "7B / Runs / seq=2048")


def test_an_empty_section_does_not_speak_for_the_next(notes):
    (r,) = rows(notes(f"# Runs\n## Sequence Length=4096\n\n## other\n{TABLE}{ROW}"))
    assert r.seq is None


def test_a_model_defined_under_its_size_holds_for_rows_of_that_size(notes):
    table = "| Size | DP | Sec/it |\n|--|--|--|\n| 7B | 1 | 1.5 |\n| 13B | 1 | 2.5 |\n"
    text = f"# A\n## x\n7B model: NLAYERS=32, NHIDDEN=4096\n\n13B model: NLAYERS=40, NHIDDEN=5120\n\n{table}\n## y\n{table}"
    found = rows(notes(text))
    assert [(r.layers, r.hidden) for r in found] == [(32, 4096), (40, 5120)] * 2
    assert [r.inferred for r in found] == [(), (), ("hidden", "layers"), ("hidden", "layers")]


def test_devices_become_nodes_only_where_the_text_says_how_many_a_node_has(notes):
    table = "| GPUs | DP | TFLOPs |\n|--|--|--|\n| 64 | 8 | 50 |\n"
    (r,) = rows(notes(table))
    assert (r.gpus, r.nodes) == (64, None) and r.world == 64
    (r,) = rows(notes("We have nodes with 8 A100 GPUs at our hands for a week or so, which is why we hurry.\n\n" + table))
    assert (r.gpus, r.nodes, r.procs_per_node, r.inferred) == (64, 8, 8, ("nodes",))


def test_environment_from_exports_and_from_a_legend_of_a_column(notes):
    text = (
        "```\nexport NCCL_DEBUG=INFO\n```\n\n| DP | async | Sec/it |\n|--|--|--|\n| 8 | yes | 1.5 |\n| 8 | no | 1.6 |\n\n"
        "async/yes == `CUDA_LAUNCH_BLOCKING=0`\n"
    )
    first, second = rows(notes(text))
    assert first.env == {"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "0"} and second.env == {"NCCL_DEBUG": "INFO"}


def test_settings_in_the_nodes_cell(notes):
    (r,) = rows(
        notes(TABLE + '| 4 (ppn=2, 2.4GHz, LD_PRELOAD=libx.so, "cache=on", slow rack) | 8 | 1 | 1 | 512 | 1.5 | 50.0 | |\n')
    )
    assert (r.nodes, r.procs_per_node, r.freq_ghz, r.notes) == (4, 2, 2.4, "slow rack")
    assert r.env == {"ppn": "2", "LD_PRELOAD": "libx.so", "cache": "on"}


# ---- laws

cell_texts = st.one_of(
    st.integers(-5, 5000).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.sampled_from(
        [
            "",
            "-",
            "OOM",
            "67GB",
            "1.5^",
            "xxxx",
            "fail",
            "yes",
            "12 (a=b)",
            "GB",
            "7B",
            "02-20",
            "**3**",
            "n/a",
            "fp16",
            "hangs",
        ]
    ),
    st.text(
        string.printable.replace("|", "").replace("\n", "").replace("\r", "").replace("\x0b", "").replace("\x0c", ""),
        max_size=10,
    ),
)
headings = st.lists(
    st.sampled_from(
        "Nodes GPUs Size DP TP MP PP MBS GBS ZS AC Mem Sec/it ms/it TFLOPs MFU Notes Throughput colour Freq Date State".split()
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    headings,
    st.lists(st.lists(cell_texts, min_size=1, max_size=9), min_size=1, max_size=6),
    st.sampled_from(["# A\n", "", "NLAYERS=3\n\n"]),
)
def test_every_row_is_one_record_or_one_row_of_a_problem(notes, names, table, before):
    lines = [before, "| " + " | ".join(names) + " |\n", "|" + "---|" * len(names) + "\n"]
    lines += ["| " + " | ".join(cells) + " |\n" for cells in table]
    found = notes("".join(lines))
    spacers = sum(not any(cell.strip(" \t") for cell in cells) for cells in table)
    spacers += len(table) > 1 and is_second(names, [cell.strip() for cell in table[0]])  # units are the rest of the headings
    assert len(found.records) + sum(problem.rows for problem in found.problems) == len(table) - spacers
    for record in found.records:
        assert Record.from_dict(record.to_dict()) == record


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(alphabet="|-: \n#*`^=/NODESdp0123456789.%()[]<>&\\~iteraon", min_size=1, max_size=200).filter(
        lambda text: text.strip()
    )
)
def test_no_text_whatever_breaks_the_reader(notes, text):
    found = notes(text)
    assert isinstance(found, Imported)


def test_reading_is_by_lines_and_keeps_no_table(tmp_path: Path):
    """Memory for thousands of rows is that of a few."""
    import tracemalloc

    from seatrial.notes.read import iter_file

    path = tmp_path / "long.md"
    with path.open("w") as file:
        file.write(TABLE)
        for index in range(5_000):
            file.write(ROW.replace("1.5", f"{index % 97 + 1}.5"))
    tracemalloc.start()
    count = sum(1 for _ in iter_file(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 5_000 and peak < 2 * 2**20


# ---- other habits


def test_several_counts_in_one_column(notes):
    found = notes("| DP/TP/PP | Sec/it |\n|--|--|\n| 8/4/2 | 1.5 |\n| 8 x 2 x 4 | 1.6 |\n| 8/4 | 1.7 |\n")
    assert [(r.dp, r.tp, r.pp) for r in found.records] == [(8, 4, 2), (8, 2, 4), (None, None, None)]
    assert [(problem.line, problem.cell) for problem in found.problems] == [(5, "8/4")]


def test_a_configuration_in_words(notes):
    found = rows(notes("| Config | Sec/it |\n|--|--|\n| TP=2, PP=4 | 1.5 |\n| DP4 TP8 PP2 | 1.6 |\n| the usual | 1.7 |\n"))
    assert [(r.dp, r.tp, r.pp) for r in found] == [(None, 2, 4), (4, 8, 2), (None, None, None)]
    assert found[2].extra == {"Config": "the usual"}


def test_a_vague_heading_gives_way_to_a_clear_one(notes):
    (r,) = rows(
        notes(
            "| Model | Size | Batch size | GBS | Time | Sec/it |\n|--|--|--|--|--|--|\n| GPT | 7 b | 4 | 512 | 12:30 | 1.5 |\n"
        )
    )
    assert (r.size_label, r.gbs, r.sec_per_it) == ("7B", 512, 1.5)
    assert r.extra == {"Model": "GPT", "Batch size": "4", "Time": "12:30"}


def test_devices_with_their_kind(notes):
    found = rows(notes("| GPUs | TP | TFLOPs |\n|--|--|--|\n| 8xA100 | 8 | 150 |\n| 2x8 | 8 | 140 |\n"))
    assert [(r.gpus, r.machine) for r in found] == [(8, "A100"), (16, "")]
    (r,) = rows(notes("| GPU | TP | TFLOPs |\n|--|--|--|\n| H100 | 8 | 400 |\n"))
    assert (r.gpus, r.machine) == (None, "H100")
    cells = "".join(f"| {cell} | 8 | 150 |\n" for cell in ("4x 4090", "2x8 H100", "2 x 8 x H100", "2x 32"))
    found = rows(notes(f"| GPUs | TP | TFLOPs |\n|--|--|--|\n{cells}"))
    assert [(r.gpus, r.machine) for r in found] == [(4, "RTX 4090"), (16, "H100"), (16, "H100"), (64, "")]
    found = rows(notes(f"| setup | TP | TFLOPs |\n|--|--|--|\n{cells}"))
    assert [(r.gpus, r.machine) for r in found] == [(4, "4x 4090"), (16, "2x8 H100"), (16, "2 x 8 x H100"), (None, "")]


@pytest.mark.parametrize(("note", "seq"), [
    ("seq 32768", 32768), ("tb; seq 8k", 8192), ("32k context", 32768), ("faster than seq 8192", 4096), ("length 3", 4096),
])  # fmt: skip
@pytest.mark.parametrize("heading", ["note", "by / note", "what"])
def test_a_note_of_a_row_says_its_own_sequence(notes, heading, note, seq):
    (r,) = rows(notes(f"# Runs, seq=4096\n\n| GPUs | s/it | {heading} |\n|--|--|--|\n| 8 | 1.5 | {note} |\n"))
    assert r.seq == seq


def test_throughput_is_what_its_unit_says(notes):
    text = "| DP | Throughput |\n|--|--|\n| 1 | 12.5 samples/s |\n| 2 | 120k tok/s |\n| 4 | 3.5k tokens/s/gpu |\n| 8 | 17 |\n"
    found = rows(notes(text))
    assert [(r.samples_per_s, r.tokens_per_s, r.tokens_per_s_per_process) for r in found] == [
        (12.5, None, None),
        (None, 120_000.0, None),
        (None, None, 3500.0),
        (None, None, None),
    ]
    assert found[3].extra == {"Throughput": "17"}, "without a unit it is no figure"


def test_a_spread_and_a_footnote_are_not_part_of_the_number(notes):
    found = rows(notes("| DP | Sec/it |\n|--|--|\n| 1 | 11200 ± 30 ms |\n| 2 | 12.3<sup>1</sup> |\n| 4 | 12.3[^2] |\n"))
    assert [r.sec_per_it for r in found] == [11.2, 12.3, 12.3]


def test_a_struck_figure_is_not_joined_to_the_next(notes):
    found = notes("| DP | Sec/it |\n|--|--|\n| 1 | <del>1</del>2 |\n| 2 | ~~1~~ 2 |\n| 4 | 12 345 |\n")
    assert [r.sec_per_it for r in found.records] == [None, None, None] and len(found.problems) == 3


def test_how_often_it_failed(notes):
    (r,) = rows(notes(TABLE + "| 4 | 8 | 2 | 2 | 512 | 1.5 | 50 | hangs 2 of 5 times |\n"))
    assert r.outcome is not None and (r.outcome.status, r.outcome.rate) == ("hang", (2, 5)) and r.tflops == 50


def test_underlined_headings_are_headings(notes):
    (r,) = rows(notes(f"7B runs\n=======\n\nbf16\n----\n\n{TABLE}{ROW}"))
    assert (r.section, r.dtype, r.size_label) == ("7B runs / bf16", "bf16", "7B")


def test_a_shape_that_cannot_be_the_rows_model_is_not_given_to_it(notes):
    text = "NLAYERS=32 / NHIDDEN=4096\n\n| Size | DP | Sec/it |\n|--|--|--|\n| 7B | 1 | 1.5 |\n| 70B | 1 | 9.5 |\n"
    assert [r.layers for r in rows(notes(text))] == [32, None]


def test_a_comment_explains_rows_that_were_tried(notes):
    text = (
        TABLE
        + "| 4 | 8 | 2 | 2 | 512 | - | - | 02-15 |\n| 4 | 8 | 2 | 2 | 512 | - | - | - |\n\n- tp=2 with pp=2 does not work.\n"
    )
    tried, planned = rows(notes(text))
    assert tried.state == "failed" and tried.outcome is not None and tried.outcome.message == "tp=2 with pp=2 does not work."
    assert planned.state == "planned"


def test_rows_without_headings_in_a_fence_are_noted(notes):
    found = notes(f"```\n| 0 | 8 | Off |\n| 1 | 8 | Off |\n```\n{TABLE}{ROW}")
    assert [(problem.level, problem.rows) for problem in found.problems] == [("note", 2)] and len(found.records) == 1


def test_a_program_s_output_is_no_table(notes):
    assert len(rows(notes(f"```\n| 0  A100  Off |\n| 1  A100  Off |\n```\n{TABLE}{ROW}"))) == 1


def test_a_table_of_ours_with_a_column_of_theirs(notes):
    found = notes(
        "<!-- seatrial:table -->\n| Nodes | DP | Sec/it | Mood |\n| --: | --: | --: | --: |\n| 4 | 8 | **1.5** | good |\n"
    )
    assert [(r.nodes, r.dp, r.sec_per_it, r.extra) for r in rows(found)] == [(4, 8, 1.5, {"Mood": "good"})]


def test_a_table_of_ours_with_a_slip_is_reported(notes):
    found = notes("<!-- seatrial:table -->\n| Nodes | Sec/it |\n| --: | --: |\n| 4 | 1.5 |\n| four | 1.5 |\n| 4 | 1.5 | 2 |\n")
    assert len(found.records) == 1 and [(problem.line, problem.level, problem.rows) for problem in found.problems] == [
        (5, "row", 1),
        (6, "row", 1),
    ]
