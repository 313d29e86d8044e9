"""Tables that are not written between pipes, or not one row a run."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.read import import_file
from seatrial.record import Record


def read(tmp_path: Path, text: str, name: str = "notes.md") -> list[Record]:
    path = tmp_path / name
    path.write_text(text)
    return list(import_file(path).records)


def said(records: list[Record]) -> list[tuple]:
    return [(record.nodes, record.tp, record.sec_per_it, record.tflops) for record in records]


def test_html_in_notes_with_spans_links_and_text_around_it(tmp_path):
    text = """# Scaling of the 7B

See below: <table border="1">
  <thead>
    <tr><th rowspan="2">Nodes</th><th colspan="2">Parallel</th><th rowspan=2>Step time<br>(s)</th><th rowspan=2>TFLOPs</th></tr>
    <tr><th>TP</th><th>PP</th></tr>
  </thead>
  <tr><td rowspan="2"><b>4</b></td><td>2</td><td>1</td><td>1.25</td><td>150.5</td></tr>
  <tr><td>4</td><td>2</td><td>1.5 &nbsp;</td><td><a href="x">140</a></td></tr>
</table>

| Nodes | TP | Sec/it |
|--|--|--|
| 8 | 2 | 0.7 |
"""
    first, second, third = read(tmp_path, text)
    assert said([first, second]) == [(4, 2, 1.25, 150.5), (4, 4, 1.5, 140.0)] and (second.pp, third.nodes) == (2, 8)
    assert (first.source_line, second.source_line, first.size_label) == (8, 9, "7B")


def test_html_without_ends_and_in_a_fence(tmp_path):
    rows = "<table><tr><th>Nodes<th>TP<th>Sec/it<tr><td>4<td>2<td>1.25<tr><td>8<td>2<td>0.65</table>"
    assert said(read(tmp_path, rows, "page.html")) == [(4, 2, 1.25, None), (8, 2, 0.65, None)]
    assert not read(tmp_path, f"```\n{rows}\n```\n")
    assert not read(tmp_path, "<table><tr><th>Nodes<th>TP<th>Sec/it\n" + "text\n" * 50), "a table that is never closed is none"


GRID = """
+-------+----+--------+--------+
| Nodes | TP | Step   | TFLOPs |
|       |    | time   |        |
+=======+====+========+========+
| 4     | 2  | 1.25   | 150.5  |
+-------+----+--------+--------+
| 4     | 4  | 1.5    | 140    |
+-------+----+--------+--------+
"""
SIMPLE = """
=====  ==  =========  ======
Nodes  TP  Step time  TFLOPs
=====  ==  =========  ======
4      2   1.25       150.5
4      4   1.5        140
=====  ==  =========  ======
"""
LISTED = """
.. list-table:: Runs
   :header-rows: 1

   * - Nodes
     - TP
     - Step time
     - TFLOPs
   * - 4
     - 2
     - 1.25
     - 150.5
   * - 4
     - 4
     - 1.5
     - 140
"""
CSV = """
.. csv-table:: Runs
   :header: "Nodes", "TP", "Step time", "TFLOPs"

   4, 2, 1.25, 150.5
   4, 4, 1.5, 140
"""
TURNED = """
| Nodes     | 4     | 4   |
|-----------|-------|-----|
| TP        | 2     | 4   |
| Step time | 1.25  | 1.5 |
| TFLOPs    | 150.5 | 140 |
"""
UNITS = """
| Nodes | TP | Step time | TFLOPs |
|-------|----|-----------|--------|
|       |    | (ms)      | /GPU   |
| 4     | 2  | 1250      | 150.5  |
| 4     | 4  | 1500      | 140    |
"""
UNITS_ABOVE = """
| Nodes | TP | Step | TFLOPs |
|       |    | time |        |
|-------|----|------|--------|
| 4     | 2  | 1.25 | 150.5  |
| 4     | 4  | 1.5  | 140    |
"""


@pytest.mark.parametrize("text", [GRID, SIMPLE, LISTED, CSV, TURNED, UNITS_ABOVE], ids="grid simple list csv turned up".split())
@pytest.mark.parametrize("name", ["notes.rst", "notes.md"])
def test_the_same_two_rows_in_every_form(tmp_path, text, name):
    records = read(tmp_path, f"Scaling\n=======\n\nSome words.\n{text}\nMore words, 5 of them.\n", name)
    assert said(records) == [(4, 2, 1.25, 150.5), (4, 4, 1.5, 140.0)]


def test_units_on_a_second_line(tmp_path):
    first, second = read(tmp_path, UNITS.replace("/GPU", "    "))
    assert (first.sec_per_it, second.sec_per_it, first.time_unit) == (1.25, 1.5, "ms")


def test_a_table_that_only_looks_turned_is_left(tmp_path):
    """Its first line is headings, whatever stands in the first column."""
    text = "| Run | Nodes | TP | Sec/it |\n|--|--|--|--|\n| TP | 4 | 2 | 1.25 |\n| DP | 4 | 4 | 1.5 |\n| MBS | 4 | 8 | 2.5 |\n"
    assert [record.sec_per_it for record in read(tmp_path, text)] == [1.25, 1.5, 2.5]


@pytest.mark.parametrize("text", ["+--+\n| x\n", "=== ===\n", ".. list-table::\n   - x\n", "<table", "| a |\n| - |\n", "<h1>",
                                  "<table><tr><td colspan=999999999>1</table>", "===  ===\n\n\n===  ===\nx", "+---+---+\n|\n",
                                  ".. csv-table::\n\n   \"\n"])  # fmt: skip
def test_what_has_not_the_form_is_no_table(tmp_path, text):
    assert read(tmp_path, f"words\n\n{text}\n\nmore words\n") == []


RUNS = """Tuesday, 13B, seq 4096:

- 32 GPUs, TP=2 PP=2 DP=8, GBS 256: 20.43 s/it, 141 TFLOPs
- 32 GPUs, TP=4 PP=1 DP=8, GBS 256: OOM
* 64 GPUs, TP 2, PP 4, DP 8, GBS 512 -> 20.84 s/it, 139 TFLOPs, 41.5 GB
"""


def test_runs_in_a_list_are_rows(tmp_path):
    records = read(tmp_path, RUNS)
    assert [(r.source_line, r.gpus, r.tp, r.pp, r.dp, r.gbs, r.sec_per_it, r.tflops) for r in records] == [
        (3, 32, 2, 2, 8, 256, 20.43, 141.0), (4, 32, 4, 1, 8, 256, None, None), (5, 64, 2, 4, 8, 512, 20.84, 139.0)]
    assert records[1].outcome is not None and (records[2].mem_value, records[2].mem_unit) == (41.5, "GB")


@pytest.mark.parametrize("text", [
    "- 8 GPUs, 640 GB\n- 16 GPUs, 1280 GB\n- 32 GPUs, 2560 GB\n",  # what there is, and nothing that was measured
    "- TP=2 PP=2: 3.1 s/it\n- TP=4 DP=2: 2.9 s/it\n- TP=8 MBS=1: 3.3 s/it\n",  # of another layout in each
    "- 32 GPUs, TP=2: 20.43 s/it\n- 32 GPUs, TP=4: 21.2 s/it\n"])
def test_other_lists_stay_lists(tmp_path, text):
    assert not read(tmp_path, text)


def test_a_unit_behind_a_comma_and_the_letters_of_a_shape(tmp_path):
    (record,) = read(tmp_path, "| L | d | GPUs | GBS | step, ms |\n|---|---|---|---|---|\n| 24 | 2048 | 8 | 64 | 812 |\n")
    assert (record.layers, record.hidden, record.sec_per_it) == (24, 2048, 0.812)
    (record,) = read(tmp_path, "| L | GPUs | GBS | step, ms |\n|---|---|---|---|\n| 24 | 8 | 64 | 812 |\n")
    assert record.layers is None


def test_letters_of_a_layout_and_a_sequence_are_read_where_several_stand_together(tmp_path):
    text = "| GPUs | t | p | d | S | ktok/s |\n|---|---|---|---|---|---|\n| 64 | 2 | 4 | 8 | 4096 | 81.5 |\n"
    (record,) = read(tmp_path, text)
    assert (record.tp, record.pp, record.dp, record.seq, record.tokens_per_s) == (2, 4, 8, 4096, 81500)
    assert record.sec_per_it is None


def test_columns_of_one_letter_in_a_simple_table(tmp_path):
    (record,) = read(tmp_path, "=====  =  =  ======\nnodes  t  p  s/step\n=====  =  =  ======\n4      2  1  1.25\n"
                               "=====  =  =  ======\n", "notes.rst")
    assert said([record]) == [(4, 2, 1.25, None)]


def test_replicas_beside_shards_are_not_the_data_parallel_ranks(tmp_path):
    (record,) = read(tmp_path, "| GPUs | replicas | FSDP | s/step |\n|---|---|---|---|\n| 64 | 8 | 8 | 1.25 |\n")
    assert record.dp is None and record.extra["replicas"] == "8"


@pytest.mark.parametrize("first", ["GPUs", "# GPUs", "#GPUs"])
def test_comments_above_the_headings_of_a_csv_file_are_text(tmp_path, first: str):
    text = f"# Runs of the 7B\n# GBS=256\n\n{first},TP,s/step\n32,2,1.25\n64,2,0.70\n"
    found = [(r.gpus, r.tp, r.gbs, r.sec_per_it, r.source_line) for r in read(tmp_path, text, "runs.csv")]
    assert found == [(32, 2, 256, 1.25, 5), (64, 2, 256, 0.7, 6)]


GAPS = """A 13B on A100.

```
 nodes  micro batch   step time   TFLOPs      mem
                            (s)     /GPU    (GiB)
-------------------------------------------------
     4            1        9.31    141.2     30.1
     4            2        9.02    145.7
    16            2        2.40    137.0     28.8
```
"""


def test_columns_that_gaps_part_with_units_below_and_an_empty_cell(tmp_path):
    found = read(tmp_path, GAPS)
    assert said(found) == [(4, None, 9.31, 141.2), (4, None, 9.02, 145.7), (16, None, 2.4, 137.0)]
    assert [(record.mbs, record.mem_gib, record.source_line) for record in found] == [(1, 30.1, 7), (2, None, 8), (2, 28.8, 9)]


def test_columns_that_versions_head(tmp_path):
    found = read(tmp_path, "a) all-gather\n\n  gpus  3.7 (s)  3.8 (s)  tokens/s   mfu\n"
                 "     8   28.101   27.778    75,497  43.6\n    16   14.453   14.050   149,263  43.1\n")
    assert said(found) == [(None, None, 27.778, None), (None, None, 14.05, None)] and [one.gpus for one in found] == [8, 16]


def test_a_column_that_begins_like_a_section(tmp_path):
    assert said(read(tmp_path, "# GPUs  TP  s/it\n8  2  9.31\n16  2  4.70\n")) == [(None, 2, 9.31, None), (None, 2, 4.7, None)]


def test_columns_that_one_space_parts(tmp_path):
    found = read(tmp_path, "nodes TP s/it TFLOPs\n4 2 9.31 141.2\n8 2 4.70 139.9\n\nThat was all.\n")
    assert said(found) == [(4, 2, 9.31, 141.2), (8, 2, 4.7, 139.9)]


def test_runs_side_by_side_that_gaps_part(tmp_path):
    rows = ("           run 1    run 2", "nodes      4        8", "TP         2        4", "s/it       9.31     4.70")
    found = read(tmp_path, "\n".join(rows))
    assert said(found) == [(4, 2, 9.31, None), (8, 4, 4.7, None)]


@pytest.mark.parametrize("text", [
    "We ran  it twice  and more.\nNodes were lost  on both  days.\n",
    "nodes   TP   s/it\nsee the other page for all of them\n",
    "def f(nodes,  tp,  time):\n    return 4,  2,  9.31\n"])
def test_text_with_gaps_is_no_table(tmp_path, text: str):
    assert read(tmp_path, text) == []


def test_a_line_of_units_may_count_tokens(tmp_path):
    heads = "| seq | TP | t_step | throughput |\n|--|--|--|--|\n| tokens | | s | ktok/s |\n"
    (record,) = read(tmp_path, heads + "| 8192 | 2 | 4.1 | 12.5 |\n")
    assert (record.seq, record.sec_per_it, record.tokens_per_s) == (8192, 4.1, 12500)


@pytest.mark.parametrize("heads", [
    "ノード数 | マイクロバッチ | 1ステップ時間 (秒) | スループット (トークン/秒) | TFLOPS/枚",
    "节点数 | 微批次大小 | 单步耗时(秒) | 吞吐量(token/s) | TFLOPS/卡",
    "nós | microlote | tempo por passo (s) | vazão (tokens/s) | TFLOPs",
    "Knoten | Mikrobatch | Schrittdauer (s) | Durchsatz (Token/s) | TFLOPs",
    "nœuds | micro-lot | temps/pas (s) | débit (jetons/s) | TFLOPs"])
def test_headings_of_other_tongues(tmp_path, heads: str):
    (record,) = read(tmp_path, f"| {heads} |\n|--|--|--|--|--|\n| 4 | 2 | 9.31 | 112000 | 141.2 |\n")
    assert (record.nodes, record.mbs, record.sec_per_it, record.tokens_per_s, record.tflops) == (4, 2, 9.31, 112000, 141.2)


def test_spaces_part_thousands_where_the_file_has_several(tmp_path):
    table = "| nodes | step (ms) | tok/s |\n|--|--|--|\n| 1 | 1 377 | 381 007 |\n"
    assert [record.tokens_per_s for record in read(tmp_path, table)] == [None]
    found = read(tmp_path, table + "| 2 | 1 368 | 1 523 569 |\n")
    assert [(record.sec_per_it, record.tokens_per_s) for record in found] == [(1.377, 381007), (1.368, 1523569)]


@pytest.mark.parametrize(("said", "each"), [
    ("`tps` is tokens/s **per GPU**, over steps 20-100.", True), ("tps are tokens per second of all GPUs.", False),
    ("wps = tokens per second **per GPU**, median of 100 steps", True), ("Le débit (tokens/s) est par GPU.", True),
    ("tok/s and TFLOP/s are **per device**", True), ("wps counts the tokens of one card", True),
    ("tokens/s = tokens/s/GPU × GPUs", False),
    ("tokens/s is of the job, memory per GPU", False), ("Tokens per second is 4 % better per GPU now", False)])
@pytest.mark.parametrize("heading", ["tps", "v0.14 wps", "tokens/s", "Throughput (tok/s)"])
def test_the_text_says_what_a_rate_is_per(tmp_path, said: str, each: bool, heading: str):
    (record,) = read(tmp_path, f"{said}\n\n| GPUs | {heading} | TFLOPs |\n|--|--|--|\n| 8 | 6,424 | 379.1 |\n")
    assert (record.tokens_per_s, record.tokens_per_s_per_process) == ((None, 6424) if each else (6424, None))


def test_runs_side_by_side_under_names_of_which_one_is_a_word_of_tables(tmp_path):
    rows = "| nodes | 4 | 4 | 8 |\n| TP | 4 | 4 | 2 |\n| s/it | 9.31 | 8.02 | 4.7 |\n"
    found = read(tmp_path, "| | base | selective | TP 2 |\n|--|--|--|--|\n" + rows)
    assert said(found) == [(4, 4, 9.31, None), (4, 4, 8.02, None), (8, 2, 4.7, None)]


def test_layers_of_each_stage_are_as_many_as_the_stages(tmp_path):
    heads = "| PP | DP | layers per stage | s/it |\n|--|--|--|--|\n"
    found = read(tmp_path, heads + "| 16 | 4 | 3,4x14,2 | 10.1 |\n| 6 | 4 | 3,4x14,2 | 11.2 |\n| 8 | 4 | auto | 9.1 |\n")
    assert [record.stage_layers for record in found] == ["-".join(["3", *["4"] * 14, "2"]), "3-14-14-14-14-2", ""]


BOX = """
+-------+----+--------+--------+
| nodes | TP |   s/it | TFLOPs |
+-------+----+--------+--------+
|     4 |  2 |   9.31 |  141.2 |
|     8 |  2 |   4.70 |  139.9 |
+-------+----+--------+--------+
"""


@pytest.mark.parametrize("fence", ["", "```\n"])
def test_a_box_as_programs_print_it_has_a_row_in_each_line(tmp_path, fence: str):
    found = read(tmp_path, f"Runs:\n{fence}{BOX.strip()}\n{fence}")
    assert said(found) == [(4, 2, 9.31, 141.2), (8, 2, 4.7, 139.9)] and found[1].source_line - found[0].source_line == 1


def test_tables_of_wikis(tmp_path):
    confluence = """h2. Results

||nodes||TP||s/iter||TFLOPs/GPU||
|4|2|1.25|150.5|
|8|2|1.31|144.0|
"""
    mediawiki = """== Results ==
{| class="wikitable"
|+ Steps
! nodes !! TP !! s/iter !! style="text-align: right" | TFLOPs/GPU
|-
| 4 || 2 || 1.25 || 150.5
|-
| 8
| 2
| 1.31
| style="color: red" | 144.0
|}
"""
    for text in (confluence, mediawiki):
        records = read(tmp_path, text)
        assert said(records) == [(4, 2, 1.25, 150.5), (8, 2, 1.31, 144.0)]
        assert {record.section for record in records} == {"Results"}


def test_a_csv_with_decimal_commas_has_them_before_three_digits_too(tmp_path):
    text = "węzły;TP;s/it;TFLOPs/GPU\n2;4;14,482;50,3\n4;4;7,413;49,2\n"
    assert said(read(tmp_path, text, "rows.csv")) == [(2, 4, 14.482, 50.3), (4, 4, 7.413, 49.2)]
    text = "nodes;TP;tokens/s;TFLOPs/GPU\n2;4;14,482;50.3\n4;4;27,413;49.2\n"
    assert [record.tokens_per_s for record in read(tmp_path, text, "rows.csv")] == [14482.0, 27413.0]


def test_a_mark_for_as_above_is_the_cell_above(tmp_path):
    rows = [("4", "2", "1.25", "150.5"), ("〃", "same", "1.31", "144.0"), ("8", '"', "1.40", "139.0"),
            ("〃", "4", "ditto", "138.0")]
    expected = [(4, 2, 1.25, 150.5), (4, 2, 1.31, 144.0), (8, 2, 1.4, 139.0), (8, 4, 1.4, 138.0)]
    heads = ("nodes", "TP", "s/it", "TFLOPs")
    piped = "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ("---",) * 4, *rows))
    assert said(read(tmp_path, piped)) == expected
    tabbed = "\n".join("\t".join(cells).replace('"', "〃") for cells in (heads, *rows))
    assert said(read(tmp_path, tabbed, "rows.tsv")) == expected


def test_units_below_headings_set_by_gaps_and_the_axes_of_a_mesh(tmp_path):
    text = """```
pod      chips   tensor   batch   step   tokens    TFLOP/s
                         (seqs)    (s)    per s   per chip
------   -----   ------   -----   ----   ------   --------
v4-256     128        4     512   9.19   113833      118.8
v4-512     256        4    1024   9.23   227000      118.3
```
"""
    found = [(r.machine, r.gpus, r.tp, r.gbs, r.sec_per_it, r.tokens_per_s, r.tflops) for r in read(tmp_path, text)]
    assert found == [("v4-256", 128, 4, 512, 9.19, 113833.0, 118.8), ("v4-512", 256, 4, 1024, 9.23, 227000.0, 118.3)]


def test_settings_under_the_headings_of_an_org_file_stay_there(tmp_path):
    text = """* Small, DP = 16

| nodes | TP | s/it |
|-------+----+------|
|     4 |  2 | 1.25 |
|-------+----+------|
|     4 |  4 | 1.35 |

* Large

| nodes | TP | s/it |
|-------+----+------|
|     8 |  2 | 1.31 |
"""
    assert [record.dp for record in read(tmp_path, text, "notes.org")] == [16, 16, None]


def test_a_910b_is_a_device_and_a_million_tokens_are_a_sequence(tmp_path):
    text = "## Ascend 910B\n\n| context | TP | s/it |\n|---|---|---|\n| 512K | 2 | 117.8 |\n| 1M | 2 | 234.6 |\n"
    assert [(record.size_label, record.seq) for record in read(tmp_path, text)] == [("", 1 << 19), ("", 1 << 20)]


def test_a_wiki_table_that_is_not_closed_loses_nothing_of_what_follows(tmp_path):
    text = "{|\n! nodes !! TP !! s/it\n|-\n| 4 || 2 || 1.25\n\n| nodes | TP | s/it |\n|---|---|---|\n| 8 | 2 | 1.31 |\n"
    assert (8, 2, 1.31, None) in said(read(tmp_path, text))
    closed = "{|\n! nodes !! TP !! s/it !! Notes\n|-\n| 4 || 2 || 1.25 ||\nnew driver\n|}\n"
    assert [(r.nodes, r.sec_per_it, r.notes) for r in read(tmp_path, closed)] == [(4, 1.25, "new driver")]


WAYS = {
    "LaTeX": r"""
\section{Scaling}
\begin{tabular}{rrrr}
\toprule
nodes & TP & s/it & TFLOP s$^{-1}$ \\
\midrule
4 & 2 & 9.31 & \textbf{141.2} \\
8 & 2 & 9.40 & 139.9 \\ % again
16 & 2 & 9.58 & 137.3 \\
\bottomrule
\end{tabular}
""",
    "AsciiDoc": "== Scaling\n\n|===\n|nodes |TP |s/it |TFLOPs\n\n|4 |2 |9.31 |141.2\n"
                "|8 |2 |9.40 |139.9\n|16\n|2\n|9.58\n|137.3\n|===\n",
    "psql": " nodes | TP | s/it | TFLOPs\n-------+----+------+--------\n     4 |  2 | 9.31 |  141.2\n"
            "     8 |  2 | 9.40 |  139.9\n    16 |  2 | 9.58 |  137.3\n(3 rows)\n",
    "a heavy box": "┏━━━━━━━┳━━━━┳━━━━━━┳━━━━━━━━┓\n┃ nodes ┃ TP ┃ s/it ┃ TFLOPs ┃\n┡━━━━━━━╇━━━━╇━━━━━━╇━━━━━━━━┩\n"
                   "│     4 │  2 │ 9.31 │  141.2 │\n"
                   "│     8 │  2 │ 9.40 │  139.9 │\n│    16 │  2 │ 9.58 │  137.3 │\n└───────┴────┴──────┴────────┘\n",
    "a data frame's box": "┌───────┬─────┬──────┬────────┐\n│ nodes ┆ TP  ┆ s/it ┆ TFLOPs │\n│ ---   ┆ --- ┆ ---  ┆ ---    │\n"
                          "│ i64   ┆ i64 ┆ f64  ┆ f64    │\n╞═══════╪═════╪══════╪════════╡\n│ 4     ┆ 2   ┆ 9.31 ┆ 141.2  │\n"
                          "│ 8     ┆ 2   ┆ 9.40 ┆ 139.9  │\n│ 16    ┆ 2   ┆ 9.58 ┆ 137.3  │\n└───────┴─────┴──────┴────────┘\n",
    "a data frame": "```\n   nodes  TP  s/it  TFLOPs\n0      4   2  9.31   141.2\n1      8   2  9.40   139.9\n"
                    "2     16   2  9.58   137.3\n```\n",
    "DokuWiki": "^ nodes ^ TP ^ s/it ^ TFLOPs ^\n| 4 | 2 | 9.31 | 141.2 |\n| 8 | 2 | 9.40 | 139.9 |\n"
                "| 16 | 2 | 9.58 | 137.3 |\n",
    "a ruler": "nodes  tensor  s/it  TFLOPs\n       parallel\n-----  ------  ----  ------\n    4       2  9.31   141.2\n"
               "    8       2  9.40   139.9\n   16       2  9.58   137.3\n",
    "footnotes": "| nodes | TP | s/it | TFLOPs |\n|---|---|---|---|\n| 4 | 2 | 9.31¹ | 141.2 |\n"
                 "| 8 | 2 | 9.40 | 139.9² |\n| 16 | 2 | 9.58 | 137.3 |\n",
    "another delimiter": ".. csv-table::\n   :header: nodes;TP;s/it;TFLOPs\n   :delim: ;\n\n   4;2;9,31;141,2\n"
                         "   8;2;9,40;139,9\n"
                         "   16;2;9,58;137,3\n",
    "a chat's lines": "ann 10:02  TP2, 4 nodes → 9.31 s/it, 141.2 TFLOPs\nann 10:03  TP2, 8 nodes → 9.40 s/it, 139.9 TFLOPs\n"
                      "ann 10:05  TP2, 16 nodes → 9.58 s/it, 137.3 TFLOPs\n",
    "a chat": "`nodes | TP | s/it | TFLOPs`\n`4 | 2 | 9.31 | 141.2`\n`8 | 2 | 9.40 | 139.9`\n`16 | 2 | 9.58 | 137.3`\n",
    "commas": "Rows of today:\n\nnodes,TP,s/it,TFLOPs\n4,2,9.31,141.2\n8,2,9.40,139.9\n16,2,9.58,137.3\n",
    "bars": "nodes | TP | s/it | TFLOPs\n4 | 2 | 9.31 | 141.2\n8 | 2 | 9.40 | 139.9\n16 | 2 | 9.58 | 137.3\n",
    "pairs": "- nodes=4, TP=2, s/it=9.31, TFLOPs=141.2\n- nodes=8, TP=2, s/it=9.40, TFLOPs=139.9\n"
             "- nodes=16, TP=2, s/it=9.58, TFLOPs=137.3\n",
    "JSON": '```\n{"nodes": 4, "tp": 2, "sec_per_it": 9.31, "tflops": 141.2}\n{"nodes": 8, "tp": 2, "sec_per_it": 9.4, '
            '"tflops": 139.9}\n{"nodes": 16, "tp": 2, "sec_per_it": 9.58, "tflops": 137.3}\n```\n',
    "YAML": "runs:\n  - nodes: 4\n    TP: 2\n    s/it: 9.31\n    TFLOPs: 141.2\n"
            "  - nodes: 8\n    TP: 2\n    s/it: 9.40\n    TFLOPs: 139.9\n"
            "  - nodes: 16\n    TP: 2\n    s/it: 9.58  # cold\n    TFLOPs: 137.3\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_read_in_whatever_way_they_are_set(tmp_path, way: str):
    assert said(read(tmp_path, WAYS[way])) == [(4, 2, 9.31, 141.2), (8, 2, 9.4, 139.9), (16, 2, 9.58, 137.3)]


def test_a_row_with_one_cell_alone_is_what_those_below_it_are_of(tmp_path):
    text = ("| nodes | TP | s/it |\n|---|---|---|\n| **7B** | | |\n| 4 | 1 | 9.31 |\n"
            "| **Llama 13B, 64 heads** | | |\n| 4 | 2 | 19.5 |\n")
    assert [(r.source_line, r.size_label, r.sec_per_it) for r in read(tmp_path, text)] == [(4, "7B", 9.31), (6, "13B", 19.5)]


def test_a_heading_with_a_rate_in_brackets_is_that_rate(tmp_path):
    text = "| nodes | TP | cluster throughput [tok/s] | throughput/GPU (tok/s) |\n|---|---|---|---|\n| 4 | 2 | 12,800 | 400 |\n"
    record, = read(tmp_path, text)
    assert (record.tokens_per_s, record.tokens_per_s_per_process, record.tflops) == (12800, 400, None)


def exported(tmp_path: Path, text: str, name: str = "sweep.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return import_file(path)


def test_a_spreadsheet_with_a_title_units_of_its_own_line_and_a_remark_below(tmp_path):
    found = exported(tmp_path, "sep=;\nMessungen Falke;;;;\n;;;;\nKnoten;GPUs;Zeit/Schritt;Tokens/s;Speicher\n;;[ms];;[GB]\n"
                               "1;8;5120,5;102400;41,3\n2;16;5203,1;201649;38,1\n;;;;\n"
                               "Sequenzlänge 4096, von Hand gemessen.;;;;\n")
    assert [(row.nodes, row.gpus, row.sec_per_it, row.mem_value, row.source_line) for row in found.records] == [
        (1, 8, 5.1205, 41.3, 6), (2, 16, 5.2031, 38.1, 7)]


def test_comments_between_rows_and_headings_that_come_again_are_no_rows(tmp_path):
    found = exported(tmp_path, "# sweep, seq 4096\nrun\tgpus\ttp\tstep_ms\ttok_s\n# stable, mostly\na\t8\t1\t6310\t83088\n"
                               "# b ran again, node 7 was out, as were 9, 11 and 12\nb\t16\t1\t6400\t163840\n"
                               "run\tgpus\ttp\tstep_ms\ttok_s\nc\t32\t1\t6550\t320175\n# done\n", "sweep.tsv")
    assert [(row.gpus, row.sec_per_it, row.tokens_per_s, row.source_line) for row in found.records] == [
        (8, 6.31, 83088.0, 4), (16, 6.4, 163840.0, 6), (32, 6.55, 320175.0, 8)] and not found.problems


def test_two_tables_in_one_csv_file(tmp_path):
    found = exported(tmp_path, "# 8B, seq 4096\nnodes,gpus,gbs,step_time_s\n1,8,128,6.31\n2,16,256,6.40\n"
                               "4,32,512,6.55\n\n# 70B\n"
                               "nodes,gpus,tp,pp,gbs,step_time_s\n8,64,8,2,256,12.10\n16,128,8,2,512,12.31\n32,256,8,2,512,12.4\n")
    assert [(row.gpus, row.tp, row.gbs, row.sec_per_it) for row in found.records][2:4] == [
        (32, None, 512, 6.55), (64, 8, 256, 12.1)]


@pytest.mark.parametrize(("sheet", "rows"), [
    ("Invoice,INV-14\nPeriod,2025-03-01 - 2025-03-31\n\nResource,Quantity (h),Unit price ($),Amount ($)\n"
     "a,120.5,88.25,10634.13\nb,64.0,88.25,5648.00\nc,212.0,40.55,8596.60\nTotal,396.5,,24878.73\n", 4),
    ("JobID|JobName|ElapsedH|GPUHours|State\n1|a|12.5|400.0|COMPLETED\n2|b|6.6|422.4|FAILED\n3|c|3.5|448.0|COMPLETED\n", 3),
])
def test_sheets_without_runs_are_left_to_be_looked_at(tmp_path, sheet, rows):
    found = exported(tmp_path, sheet)
    assert not found.records and [len(problem.left) for problem in found.problems] == [rows]


def test_lines_of_a_diary_whose_figures_each_carry_their_name(tmp_path):
    found = read(tmp_path, "GARAGE LOG\n\nctx 2048, tps of all cards.\n\n"
                 "04  small   eager                batch   64    15.76 s/step     8317 tps  mfu 33.2%\n"
                 "05  small   compile, flash       batch   64   11370 ms/step    11528 tps  mfu 46.1%\n"
                 "09  small   8bit adam, mbs 4     batch   64    10.96 s/step    11959 tps  mfu 47.8%\n")
    assert [(one.run_id, one.gbs, one.mbs, one.sec_per_it, one.tokens_per_s, one.mfu) for one in found] == [
        ("04 small eager", 64, None, 15.76, 8317, 0.332), ("05 small compile, flash", 64, None, 11.37, 11528, 0.461),
        ("09 small 8bit adam", 64, 4, 10.96, 11959, 0.478)]  # fmt: skip
