"""Settings that stand in sentences: taken where they can only be the row's, each with the line that says so."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.read import import_file
from seatrial.notes.read.sentences import read_sentence
from seatrial.record import Record

TABLE = """
| {head} s/it | tokens/s |
| {rule}--- | --- |
| {cell} 4.10 | 511,500 |
"""


def read(tmp_path: Path, text: str, *, label: str = "8B", **more: str) -> Record:
    table = TABLE.format(head="".join(f"{name} | " for name in ("model", *more)) if label else "GPUs |",
                         rule="--- | " * (1 + len(more)), cell="".join(f"{v} | " for v in (label or "64", *more.values())))
    path = tmp_path / "notes.md"
    path.write_text(f"{text}\n{table}", encoding="utf-8")
    (record,) = import_file(path).records
    return record


def test_a_paragraph_is_read_however_its_lines_are_wrapped(tmp_path: Path):
    text = "# Runs\n\nThe model has 32 layers, hidden size\n4096, 32 heads (8 KV heads) and a vocabulary of\n128256."
    record = read(tmp_path, text)
    assert (record.layers, record.hidden, record.heads, record.kv_heads, record.vocab) == (32, 4096, 32, 8, 128256)
    assert set(record.inferred) >= {"layers", "hidden"} and record.context["layers"].line == 3


def test_a_sequence_and_a_batch_are_taken_with_their_line(tmp_path: Path):
    record = read(tmp_path, "# Runs\n\nWe train 8B with a sequence length of 8192, and the global batch is 256 sequences.")
    assert (record.seq, record.gbs, record.context["seq"].line, record.context["gbs"].line) == (8192, 256, 3, 3)


def test_heads_before_and_behind_a_stroke_are_those_of_queries_and_keys(tmp_path: Path):
    record = read(tmp_path, "# Runs\n\nThe 70B has 80 layers, hidden size 8192, 64/8 heads.", label="70B")
    assert (record.heads, record.kv_heads) == (64, 8)


@pytest.mark.parametrize("text", [
    "# 13B\n\nThe 13B has 40 layers and a hidden size of 5120.",
    "# Runs\n\nWith PP 6 each stage holds 6 layers, and the 13B has a hidden size of 5120.",
    "# Runs\n\nA slab of 16 layers with hidden size 16384 was tried.",
    "# Runs\n\nEach stage has 10 layers.",
])  # fmt: skip
def test_the_shape_of_another_model_or_of_a_stage_is_none(tmp_path: Path, text: str):
    record = read(tmp_path, text)
    assert record.layers is None and record.hidden is None


@pytest.mark.parametrize("text", [
    "# Runs\n\nA sequence length of 2048 for the smallest model and 4096 for the rest.",
    "# Runs\n\n13B at a sequence length of 2048.",
    "# Runs\n\nThe sequence length is 4096.\n\n## Longer contexts",
    "# Runs\n\nThe sequence length is 4096.\n\n## Later\n\nThe sequence length is 8192; or a\nsequence length of 2048.",
])  # fmt: skip
def test_a_length_that_may_be_of_other_rows_is_none(tmp_path: Path, text: str):
    assert read(tmp_path, text).seq is None


def test_a_rounded_vocabulary_is_none(tmp_path: Path):
    assert read(tmp_path, "# Runs\n\nThe 8B has a vocabulary of 128k, 32 layers and a hidden size of 4096.").vocab is None


def test_a_batch_that_the_replicas_do_not_divide_is_none(tmp_path: Path):
    text = "# Runs\n\nThe global batch size is 100."
    assert read(tmp_path, text, DP="8", TP="1", MBS="2").gbs is None
    assert read(tmp_path, text, DP="5", TP="1", MBS="2").gbs == 100


def test_what_the_row_says_itself_counts(tmp_path: Path):
    record = read(tmp_path, "# Runs\n\nSequences of 4096 tokens: the sequence length is 4096.", Seq="8192")
    assert record.seq == 8192 and "seq" not in record.inferred


@pytest.mark.parametrize(("text", "accum", "mbs", "gbs"), [
    ("Micro-batch 4, sequences of 2048.", "16", 4, 512), ("Sequences of 2048.", "2", 512, 8192),
])  # fmt: skip
def test_a_batch_beside_the_accumulation_is_of_all_where_the_text_has_the_micro_batch(
        tmp_path: Path, text: str, accum: str, mbs: int, gbs: int):
    record = read(tmp_path, f"# Runs\n\n{text}", DP="8", accum=accum, batch="512")
    assert (record.mbs, record.gbs) == (mbs, gbs)


@pytest.mark.parametrize("text", [
    "The global batch stays at 524,288 tokens.", "global batch of 4,194,304 tokens", "GBS 524,288 tokens"])
def test_a_batch_in_tokens_is_none_of_sequences_to_its_first_comma(text: str):
    assert "gbs" not in read_sentence(text)
