"""Samples depend on the seed and their number alone; a damaged pair of token files is one clear line."""
from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seatrial.engine.io import data, indexed
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model

MODEL = Model(layers=2, hidden=8, heads=2, vocab=300, seq=16)


@pytest.fixture
def corpus(tmp_path):
    """Tokens 0, 1, 2, … over documents of many lengths."""
    prefix = tmp_path / "corpus"
    at, rng = 0, random.Random(0)
    with indexed.Writer(prefix, vocab=MODEL.vocab) as out:
        while at < 1000:
            size = rng.randrange(1, 40)
            out.add([t % MODEL.vocab for t in range(at, at + size)])
            at += size
    return prefix, at


@given(size=st.integers(1, 300), key=st.integers(0, 2**64 - 1))
def test_the_order_of_an_epoch_is_a_permutation(size, key):
    assert sorted(data.permuted(i, size, key=key) for i in range(size)) == list(range(size))


def test_epochs_and_seeds_differ_in_order_but_not_in_samples(corpus):
    prefix, total = corpus
    source = data.Corpus(str(prefix), vocab=MODEL.vocab, seq=MODEL.seq, seed=1)
    other = data.Corpus(str(prefix), vocab=MODEL.vocab, seq=MODEL.seq, seed=2)
    n = source.count
    assert n == (total - 1) // MODEL.seq
    first, second, others = ([tuple(s.samples(e * n + i, 1)[0].tolist()) for i in range(n)]
                             for s, e in ((source, 0), (source, 1), (other, 0)))
    assert first != second and first != others
    assert sorted(first) == sorted(second) == sorted(others)


def test_a_sample_runs_over_documents_and_its_last_target_is_the_next_ones_first_token(corpus):
    prefix, _ = corpus
    source = data.Corpus(str(prefix), vocab=MODEL.vocab, seq=MODEL.seq, seed=1)
    for i in range(source.count):
        tokens = source.samples(i, 1)[0]
        assert len(tokens) == MODEL.seq + 1
        assert torch.equal((tokens[:-1] + 1) % MODEL.vocab, tokens[1:])
        assert int(tokens[0]) % MODEL.seq in range(0, MODEL.seq, 4)  # starts are multiples of seq, and 300 is one of 4


@pytest.mark.parametrize("source", ["synthetic", "file"])
def test_a_microbatch_is_its_samples_wherever_it_is_asked_for(source, corpus):
    recipe = Recipe(data=str(corpus[0]) if source == "file" else None)
    one, two = data.Batches(recipe, MODEL, 7), data.Batches(recipe, MODEL, 7)
    tokens, targets = one.microbatch(12, 4)
    assert tokens.shape == targets.shape == (4, MODEL.seq)
    halves = [two.microbatch(14, 2), two.microbatch(12, 2)]
    assert torch.equal(tokens, torch.cat([halves[1][0], halves[0][0]]))
    assert torch.equal(targets, torch.cat([halves[1][1], halves[0][1]]))
    assert torch.equal(tokens[:, 1:], targets[:, :-1])


def test_synthetic_tokens_have_something_to_learn():
    tokens = data.Synthetic(vocab=1000, seq=64, seed=3).samples(0, 50)
    assert int(tokens.min()) >= 0 and int(tokens.max()) < 1000
    assert torch.equal(tokens[:, 1::2], (tokens[:, 0:-1:2] * 7 + 3) % 1000)
    assert (tokens[:, ::2] < 63).double().mean() > 0.4  # (63/1000) ** (1/4) = 0.5: the common tokens are common
    assert len({tuple(row.tolist()) for row in tokens}) == 50
    held_out = data.Batches(Recipe(), MODEL, 3, split="valid").sample(0)
    assert not torch.equal(held_out, data.Batches(Recipe(), MODEL, 3).sample(0))


def test_numbers_and_tensors_are_mixed_alike():
    values = [0, 1, 2**63 - 1, -5]
    mixed = data.mix(torch.tensor(values, dtype=torch.int64)).tolist()
    assert [v & data.MASK for v in mixed] == [data.mix_int(v & data.MASK) for v in values]


@pytest.mark.parametrize("vocab", [257, 70_000])
def test_what_is_written_is_read(tmp_path, vocab):
    documents = [[0, vocab - 1], [5] * 7, [1]]
    with indexed.Writer(tmp_path / "x", vocab=vocab) as out:
        for document in documents:
            out.add(document)
    tokens = indexed.open_tokens(tmp_path / "x")
    assert tokens.slice(0, len(tokens)).tolist() == [t for d in documents for t in d]
    assert (tokens.index.documents, tokens.index.code) == (3, 8 if vocab < 65500 else 4)


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda p: cut(indexed.bin_path(p), -10), "cut short"),
        (lambda p: cut(indexed.idx_path(p), -10), "cut short"),
        (lambda p: cut(indexed.idx_path(p), 20), "cut short"),
        (lambda p: indexed.bin_path(p).unlink(), "no such file"),
        (lambda p: indexed.idx_path(p).unlink(), "no such file"),
        (lambda p: indexed.idx_path(p).write_bytes(b"TNTIDX\0\0" + indexed.idx_path(p).read_bytes()[8:]), "not an index"),
        (lambda p: indexed.bin_path(p).write_bytes(indexed.bin_path(p).read_bytes() + b"12"), "not the file of this index"),
        (lambda p: flip(indexed.idx_path(p), 34), "begins at byte"),
    ],
)
def test_damaged_files_are_refused_in_one_line_that_names_the_file(corpus, damage, words):
    prefix, _ = corpus
    damage(prefix)
    with pytest.raises(BadInput, match=words) as caught:
        indexed.check(prefix, vocab=MODEL.vocab, seq=MODEL.seq)
    assert str(prefix) in str(caught.value) and "\n" not in str(caught.value)


def flip(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def test_a_token_outside_the_vocabulary_is_refused_with_the_vocabulary_that_works(corpus):
    prefix, _ = corpus
    with pytest.raises(BadInput, match="token 299 at position 299 .* at least 300"):
        indexed.check(prefix, vocab=299, seq=MODEL.seq)
    with pytest.raises(BadInput, match="less than one sample"):
        indexed.check(prefix, vocab=300, seq=5000)
    assert indexed.check(prefix, vocab=300, seq=16).tokens > 1000


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), indexed.Writer(tmp_path / "x", vocab=300) as out:
        out.add([1, 2])
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_validation_on_a_file_needs_held_out_tokens(corpus):
    with pytest.raises(BadInput, match="valid_data"):
        data.check(Recipe(data=str(corpus[0]), eval_every=5), MODEL, Batch(gbs=1))
