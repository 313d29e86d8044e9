"""`seatrial data`: text or JSON lines become the .bin/.idx pair that training reads.

    seatrial data corpus.jsonl --out corpus                                     bytes as tokens, no files needed
    seatrial data corpus.jsonl --out corpus --tokenizer tokenizer.json --eod "<|endoftext|>"
    seatrial data corpus.idx                                                    what a pair holds
"""
from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import typer

from seatrial.errors import BadInput

BYTE_EOD = 256
BATCH = 512
"""Documents given to the tokenizer at once; it uses all cores on them."""


class Tokenizer(NamedTuple):
    vocab: int
    encode: Callable[[list[str]], list[list[int]]]


def byte_tokenizer(eod: str) -> Tokenizer:
    if eod:
        raise BadInput(f"--eod {eod!r}: the byte tokenizer ends a document with its own token {BYTE_EOD}; leave --eod out")
    return Tokenizer(257, lambda texts: [[*text.encode(), BYTE_EOD] for text in texts])


def file_tokenizer(path: Path, eod: str) -> Tokenizer:
    """Any tokenizer.json of the `tokenizers` library."""
    if not path.is_file():
        raise BadInput(f"--tokenizer {path}: no such file; `byte` needs none")
    try:
        import tokenizers
    except ImportError:
        raise BadInput(f"--tokenizer {path}: reading it takes `pip install tokenizers`; `byte` needs nothing") from None
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise BadInput(f"--tokenizer {path}: {error}") from None
    end = []
    if eod:
        token = tokenizer.token_to_id(eod)
        if token is None:
            raise BadInput(f"--eod {eod!r} is not a token of {path}")
        end = [token]

    def encode(texts: list[str]) -> list[list[int]]:
        return [found.ids + end for found in tokenizer.encode_batch(texts, add_special_tokens=False)]

    return Tokenizer(tokenizer.get_vocab_size(with_added_tokens=True), encode)


def documents(path: Path, field: str) -> Iterator[str]:
    """JSON lines: the field of each object. Any other file is text, with blank lines between documents."""
    with path.open(encoding="utf-8") as file:
        try:
            yield from _json_lines(path, file, field) if path.suffix in (".jsonl", ".json") else _paragraphs(file)
        except UnicodeDecodeError as error:
            raise BadInput(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None


def _json_lines(path: Path, lines: Iterator[str], field: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"{path}:{number}: not a line of JSON ({error.msg})") from None
        text = found.get(field) if isinstance(found, dict) else None
        if not isinstance(text, str):
            known = ", ".join(found) if isinstance(found, dict) else type(found).__name__
            raise BadInput(f"{path}:{number}: no text under {field!r} (found {known}); --field names another")
        yield text


def _paragraphs(lines: Iterator[str]) -> Iterator[str]:
    for blank, group in itertools.groupby(lines, key=lambda line: not line.strip()):
        if not blank:
            yield "".join(group)


def register(app: typer.Typer) -> None:
    @app.command("data", help="Turn text or JSON lines into the .bin/.idx tokens that training reads, or describe a pair.")
    def data(
        inputs: list[Path] = typer.Argument(..., help="JSON lines (.jsonl), text, or one .idx to describe.", metavar="FILE..."),
        out: Path = typer.Option(None, help="Prefix of the files to write: OUT.bin and OUT.idx."),
        tokenizer: str = typer.Option("byte", help="`byte`, or a tokenizer.json."),
        eod: str = typer.Option("", help="Token that ends each document (tokenizer files only)."),
        field: str = typer.Option("text", help="Field of a JSON line that holds the text."),
        overwrite: bool = typer.Option(False, help="Replace files that are already there."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> None:
        from seatrial.engine.io import indexed

        if out is None:
            if len(inputs) != 1 or inputs[0].suffix not in (".idx", ".bin"):
                raise BadInput("--out must name the files to write; without it, one .idx is described")
            prefix, vocab = inputs[0].with_suffix(""), None
            index = indexed.open_tokens(prefix).index
        else:
            prefix = out.with_suffix("") if out.suffix in (".idx", ".bin") else out
            for path in (indexed.bin_path(prefix), indexed.idx_path(prefix)):
                if path.exists() and not overwrite:
                    raise BadInput(f"{path}: is already there; --overwrite replaces it")
            for path in inputs:
                if not path.is_file():
                    raise BadInput(f"{path}: no such file")
            made = byte_tokenizer(eod) if tokenizer == "byte" else file_tokenizer(Path(tokenizer), eod)
            vocab = made.vocab
            texts = itertools.chain.from_iterable(documents(path, field) for path in inputs)
            with indexed.Writer(prefix, vocab=vocab) as writer:
                while batch := list(itertools.islice(texts, BATCH)):
                    for document in made.encode(batch):
                        writer.add(document)
            index = indexed.read_index(prefix)
        found = {"prefix": str(prefix), "documents": index.documents, "tokens": index.tokens, "vocab": vocab}
        if as_json:
            print(json.dumps(found))
        else:
            print(f"{prefix}.bin: {index.tokens} tokens in {index.documents} documents"
                  + (f"; set model.vocab to at least {vocab}" if vocab else ""))
