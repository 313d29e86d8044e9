"""`seatrial data`: text in, tokens out, and nothing half-written."""
from __future__ import annotations

import json

from seatrial.engine.io import indexed


def test_bytes_come_back_as_the_text_they_were(seatrial, tmp_path):
    texts = ["Hallo Wörld", "zwei\nZeilen", ""]
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps({"body": t}) for t in texts) + "\n\n", encoding="utf-8")
    said = seatrial("data", tmp_path / "in.jsonl", "--out", tmp_path / "c", "--field", "body", "--json")
    assert said.status == 0, said.err
    assert json.loads(said.out)["vocab"] == 257
    tokens = indexed.open_tokens(tmp_path / "c")
    found = tokens.slice(0, len(tokens)).tolist()
    assert found == [b for t in texts for b in [*t.encode(), 256]]
    again = seatrial("data", tmp_path / "c.idx", "--json")
    assert json.loads(again.out)["documents"] == 3


def test_text_is_split_at_blank_lines(seatrial, tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n\n \nc\n")
    assert seatrial("data", tmp_path / "in.txt", "--out", tmp_path / "c").status == 0
    assert indexed.read_index(tmp_path / "c").documents == 2


def test_any_tokenizer_file_can_be_used(seatrial, tmp_path):
    import tokenizers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "sea": 1, "trial": 2, "<eod>": 3}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "in.txt").write_text("sea trial sea\n\ntrial wind\n")
    args = ["data", tmp_path / "in.txt", "--out", tmp_path / "c", "--tokenizer", tmp_path / "tokenizer.json"]
    assert seatrial(*args, "--eod", "<eod>").status == 0
    tokens = indexed.open_tokens(tmp_path / "c")
    assert tokens.slice(0, len(tokens)).tolist() == [1, 2, 1, 3, 2, 0, 3]
    refused = seatrial(*args, "--eod", "<end>", "--overwrite")
    assert (refused.status, len(refused.err.splitlines())) == (2, 1) and "<end>" in refused.err


def test_a_bad_line_is_named_and_nothing_is_left(seatrial, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": \n')
    said = seatrial("data", tmp_path / "in.jsonl", "--out", tmp_path / "c")
    assert said.status == 2 and "in.jsonl:2" in said.err
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


def test_what_is_there_is_not_overwritten_unasked(seatrial, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "c.bin").write_bytes(b"precious")
    said = seatrial("data", tmp_path / "in.txt", "--out", tmp_path / "c")
    assert said.status == 2 and (tmp_path / "c.bin").read_bytes() == b"precious"


def test_a_damaged_pair_is_one_line(seatrial, tmp_path):
    (tmp_path / "in.txt").write_text("some words\n")
    seatrial("data", tmp_path / "in.txt", "--out", tmp_path / "c")
    (tmp_path / "c.bin").write_bytes(b"x")
    said = seatrial("data", tmp_path / "c.idx")
    assert (said.status, len(said.err.splitlines())) == (2, 1) and "cut short" in said.err
