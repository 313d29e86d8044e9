"""What the text around a table states holds for the section it stands in, and for no other."""
from __future__ import annotations

import pytest

from seatrial.notes.read import Imported, import_file

TABLE = "| DP | TP | PP | Sec/it |\n| --: | --: | --: | --: |\n| 8 | 2 | 2 | 1.5 |\n"


@pytest.fixture
def notes(tmp_path):
    def write(text: str) -> Imported:
        path = tmp_path / "notes.md"
        path.write_text(text)
        return import_file(path)

    return write


@pytest.mark.parametrize("code", ["--num-layers 12 --micro-batch-size 4", "NLAYERS=12\nMBS=4", "```\nMBS=4\n```\nNLAYERS=12"])
def test_a_section_without_rows_speaks_for_itself_alone(notes, code):
    (r,) = notes(f"# A trainer\n\n## Quick start\n\n{code}\n\n## Results\n\n{TABLE}").records
    assert (r.layers, r.mbs) == (None, None)


@pytest.mark.parametrize("title", ["Setup", "Hyperparameters", "Model configuration", "3. Training setup", "**Settings**",
                                   "4.1 Entorno experimental", "Environnement", "Versuchsaufbau", "実験環境"])
def test_a_section_that_only_sets_up_speaks_for_the_one_around_it(notes, title):
    (r,) = notes(f"# 7B\n\n## {title}\n\nNLAYERS=32\n\n## Results\n\n{TABLE}").records
    assert (r.layers, r.context["layers"].line) == (32, 5)


def test_paragraphs_led_in_by_bold_words_or_numbers_are_sections(notes):
    text = f"# Status\n\nMBS=2\n\n{{}}\n\nNLAYERS=32\n\n{TABLE}\n{{}}\n\nGBS=64\n\n{TABLE}"
    for leads in (("**Week 17**", "**Week 19**"), ("1. Weak scaling", "2. Strong scaling")):
        assert [(r.mbs, r.layers, r.gbs) for r in notes(text.format(*leads)).records] == [(2, 32, None), (2, None, 64)]


@pytest.mark.parametrize("leads", [("**anna** wrote", "**ben** replied"), ("**Note**", "More of it:")])
def test_those_who_speak_in_turns_speak_of_one_thing(notes, leads):
    text = f"# Slow\n\n{leads[0]}\n\nNLAYERS=32\n\n{TABLE}\n{leads[1]}\n\nMBS=4\n\n{TABLE}"
    assert [(r.layers, r.mbs) for r in notes(text).records] == [(32, None), (32, 4)]


def test_what_stands_before_the_sections_holds_for_the_whole_file(notes):
    text = f"MBS=2\n\n# Notes\n\nNLAYERS=32\n\n## A\n\n{TABLE}\n## B\n\n{TABLE}"
    assert [(r.layers, r.mbs) for r in notes(text).records] == [(32, 2), (32, 2)]


def test_the_nearest_section_wins_over_a_later_line_of_one_around_it(notes):
    text = f"# A\n\n## Run\n\nMBS=4\n\n### Setup\n\nNLAYERS=20\n\n### x\n\nNLAYERS=30\n\n{TABLE}"
    (r,) = notes(text).records
    assert (r.layers, r.mbs) == (30, 4)


def test_two_lines_of_one_section_that_disagree_are_a_question(notes):
    found = notes(f"# A\n\nMBS=4\n\n## B\n\nNLAYERS=20\n\nNLAYERS=30\n\n{TABLE}")
    (r,) = found.records
    assert (r.layers, r.mbs) == (None, 4) and "layers" not in r.context
    (said,) = found.problems
    assert said.level == "note" and said.line == 9
    assert "20 (line 7)" in said.message and "30 (line 9)" in said.message


def test_a_line_after_a_table_is_about_the_next(notes):
    found = notes(f"NLAYERS=20\n\n{TABLE}\nNLAYERS=30\n\n{TABLE}")
    assert [r.layers for r in found.records] == [20, 30] and not found.problems


def test_a_comment_in_code_is_no_heading(notes):
    text = f"# A\n\nNLAYERS=20\n\n## B\n\n```bash\n# install 8 nodes\nMBS=4\n```\n\n{TABLE}"
    (r,) = notes(text).records
    assert (r.layers, r.mbs, r.nodes, r.section) == (20, 4, None, "A / B")


def test_code_on_one_line_opens_nothing(notes):
    (r,) = notes(f"# A\n\n```pip install x```\n\n## B\n\n{TABLE}").records
    assert r.section == "A / B"


@pytest.mark.parametrize(("line", "field"), [
    ("Single node runs", "dtype"), ("half a day each", "dtype"), ("300B tokens", "size_label"), ("batch size: 4", "gbs"),
])  # fmt: skip
def test_words_that_could_mean_anything_state_nothing(notes, line, field):
    (r,) = notes(f"{line}\n\n{TABLE}").records
    assert getattr(r, field) in (None, "")


# ---- tables


def test_a_second_table_after_an_empty_line_is_another(notes):
    other = "| Colour | Weight | Age | Height |\n|---|---|---|---|\n| 1 | 2 | 3 | 4 |\n"
    found = notes(TABLE + "\n" + other)
    assert [(r.dp, r.sec_per_it) for r in found.records] == [(8, 1.5)]
    assert [(p.level, p.rows) for p in found.problems] == [("note", 1)]


def test_rows_of_another_width_after_an_empty_line_are_not_of_the_table(notes):
    found = notes(TABLE + "\n| 1 | 2 |\n| 3 | 4 |\n")
    assert len(found.records) == 1 and [p.rows for p in found.problems] == [2]


def test_headings_again_after_an_empty_line_are_no_row(notes):
    found = notes(TABLE + "\n| Nodes | GBS | MBS | Sec/it |\n| 4 | 512 | 2 | 2.5 |\n")
    assert [(r.dp, r.nodes, r.sec_per_it) for r in found.records] == [(8, None, 1.5), (None, 4, 2.5)]


@pytest.mark.parametrize("picture", [
    "src\n├── a\n│   ├── b.py\n│   └── c.py\n└── d\n",
    "```\n|-- a\n|   |-- b.py\n|   `-- c.py\n`-- d\n```\n",
    "+------+    +------+\n| GPU0 |----| GPU1 |\n+------+    +------+\n",
    "|  stage 0 | F F F B B |\n",
])  # fmt: skip
def test_trees_and_pictures_are_no_tables(notes, picture):
    found = notes(picture + "\n" + TABLE)
    assert len(found.records) == 1 and not found.problems


# ---- lists


@pytest.mark.parametrize("items", [
    "- GPU memory: 640 GB per node\n- Nodes: 32\n- GPUs: 8 A100 80GB\n",
    "- CPU: AMD\n- node memory: 512GB\n- GPU memory: 640GB\n",
])  # fmt: skip
def test_a_list_of_hardware_is_no_run(notes, items):
    assert len(notes(f"## Hardware\n\n{items}\n## Runs\n\n{TABLE}").records) == 1


@pytest.mark.parametrize(("title", "layers"), [("Bigger: 175B", None), ("Again the 22B", 48), ("Bigger", 48)])
def test_a_shape_that_is_not_of_the_size_in_the_heading_below_is_another_models(notes, title, layers):
    shape = "--num-layers 48 --hidden-size 6144 --num-attention-heads 64"
    first, second = notes(f"# Runs\n\n```\n{shape}\n```\n\n{TABLE}\n## {title}\n\n{TABLE}").records
    assert (first.layers, second.layers, second.heads) == (48, layers, layers and 64)


@pytest.mark.parametrize("days", [("Mon 4 March", "Mon 11 March"), ("2025-03-04", "2025-03-11:"),
                                  ("March 4, 2025", "March 11, 2025"), ("4. März 2025", "11. März 2025")])  # fmt: skip
def test_the_dates_of_a_diary_are_sections(notes, days):
    text = "diary\n\n{}\n  sequence length = 2048\n\n{}\n\n{}\n  sequence length = 4096\n\n{}\n"
    table = "  nodes  TP  s/it\n      4   2  1.25\n      8   2  0.65"
    first, *_, last = notes(text.format(days[0], table, days[1], table)).records
    assert (first.seq, last.seq) == (2048, 4096) and (first.section, last.section) == tuple(day.rstrip(":") for day in days)


def test_a_date_without_a_table_of_its_own_is_text(notes):
    text = "sequence length = 2048\n\n4 March\n\n| nodes | TP | s/it |\n|--|--|--|\n| 4 | 2 | 1.25 |\n"
    assert [(one.seq, one.section) for one in notes(text).records] == [(2048, "")]


def test_the_shape_of_one_model_is_not_that_of_another_which_a_heading_names(notes):
    text = f"Llama-3-8B (32 layers, hidden 4096) on one node.\n\n{TABLE}\n## Larger model: Llama-3-70B\n\n{TABLE}"
    assert [(r.layers, r.hidden) for r in notes(text).records] == [(32, 4096), (None, None)]
