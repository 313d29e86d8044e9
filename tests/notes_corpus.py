"""How right `lint` is on the notes of tests/data/notes (their README says what is in the JSON beside each).

    score = notes_corpus.score("open")
    assert score.clean_errors * 200 <= score.clean_rows

`python tests/notes_corpus.py open --list` also names every false alarm, every slip missed and every value that `import` reads
wrong; for the blind and the fresh half leave `--list` off.
"""
from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NOTES = Path(__file__).parent / "data" / "notes"
GIB = {"GiB": 1.0, "MiB": 2**-10, "KiB": 2**-20, "GB": 1e9 / 2**30, "MB": 1e6 / 2**30, "B": 2**-30, "bytes": 2**-30}
MEMORY = re.compile(r"mem|speicher|mémoire|peak|\bgi?b\b", re.IGNORECASE)
SIZES = re.compile(r"\b(dp|tp|mp|pp|cp|gpus?|nodes?)\b|#", re.IGNORECASE)


@dataclass
class Score:
    """What was counted; a finding is true where its line has a slip or a setting above it is one."""
    clean_rows: int = 0
    clean_errors: int = 0
    clean_warnings: int = 0
    errors: int = 0
    true_errors: int = 0
    warnings: int = 0
    true_warnings: int = 0
    findable: int = 0
    flagged: int = 0
    flagged_as_error: int = 0
    explained: int = 0
    false_by_code: Counter[str] = field(default_factory=Counter)
    missed_by_kind: Counter[str] = field(default_factory=Counter)
    listing: list[str] = field(default_factory=list)


def note_of(truth: Path) -> Path:
    """The note that a JSON file tells the truth of: markdown, a CSV file or a log."""
    return next(path for path in truth.parent.glob(f"{truth.stem}.*") if path != truth)


def findings(note: Path) -> list[dict[str, Any]]:
    """What the command says of a note, errors and warnings."""
    from seatrial.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as said:
        main(["lint", "--json", "--level", "warning", str(note)])
    found: list[dict[str, Any]] = json.loads(said.getvalue() or "[]")
    assert all(finding["code"] != "rule-failed" for finding in found), found
    return found


def numbers(text: object) -> list[float]:
    """What a cell may mean: a comma, an apostrophe or a thin space before three last digits is one of thousands, and so are
    two points; memory is in GiB."""
    bare = re.sub(r"(?<=\d)[ \u202f,'](?=\d{3}\b)", "", str(text).lstrip("$€£ ")).replace(",", ".")
    bare = bare.replace(".", "") if re.match(r"\d{1,3}(?:\.\d{3}){2,}(?!\d)", bare) else bare
    match = re.match(r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?) ?([KMG]i?B|[kKMB]\b)?", bare)
    factors = {"k": (1, 1e3), "K": (1, 1e3, 2**10), "M": (1, 1e6), "B": (1, 1e9)}
    return [float(match[1]) * one for one in factors.get(match[2], (GIB.get(match[2], 1.0),))] if match else []


def same(one: object, other: object) -> bool:
    close = any(abs(a - b) <= 0.01 * abs(b) for a in numbers(one) for b in numbers(other))
    return close or str(one).strip().lower() == str(other).strip().lower()


def touches(finding: dict[str, Any], slip: dict[str, Any]) -> bool:
    """It is said of a row that the slip is in, and of memory only where memory is at fault; that a row cannot be read counts
    only where the cell at fault is what cannot."""
    cells = slip.get("cells", [slip])
    lines = {slip["line"], slip.get("from"), *slip.get("lines", []), *slip.get("affects", [])}
    named = any(cell["wrong"] == finding["printed"] for cell in cells)
    memory = "memory" in finding["code"] or bool(MEMORY.search(str(finding["column"])))
    fits = any((cell["column"] in ("mem", "status")) == memory or cell["column"] == "status" for cell in cells)
    return finding["line"] in lines and (named or fits and finding["code"] != "unreadable")


def explains(finding: dict[str, Any], slip: dict[str, Any]) -> bool:
    """It proposes what stood there, or another change that mends the row as well; a copied pair is explained by its source."""
    answers = [str(one["right"]) for one in [*slip.get("cells", [slip]), *slip.get("or", [])]]
    layout = slip["kind"] == "layout product"
    if "from" in slip and re.search(rf"\bline {slip['from']}\b", finding["message"]):
        return True
    if finding["proposed"] is None:  # nothing tells the value, or the note cannot tell which of several cells it is
        named = any(re.search(rf" {re.escape(one)}\b", finding["message"]) for one in answers)
        return slip["right"] is None or named and (layout or "or" in slip)
    if layout and SIZES.search(str(finding["column"])):
        return True
    unit = re.search(r"[KMG]i?B$", str(finding["printed"]))
    if re.search(r"\d,\d{1,2}(?!\d)", str(finding["printed"])):  # a decimal comma there is one in what is proposed
        answers += [answer.replace(".", ",") for answer in answers]
    return any(same(finding["proposed"], one) or unit and same(f"{finding['proposed']} {unit[0]}", one) for one in answers)


def score(half: str) -> Score:
    total = Score()
    for truth in sorted((NOTES / half).glob("*/*.json")):
        note, known = note_of(truth), json.loads(truth.read_text(encoding="utf-8"))
        found = findings(note)
        clean = truth.parent.name == "clean"
        total.clean_rows += known["rows"] if clean else 0
        for f in found:
            error, true = f["level"] == "error", any(touches(f, slip) for slip in known["slips"])
            total.clean_errors += clean and error
            total.clean_warnings += clean and not error
            total.errors += not clean and error
            total.true_errors += error and true
            total.warnings += not clean and not error
            total.true_warnings += not error and true
            if not true:
                total.false_by_code[f"{f['level']} {f['code']}"] += 1
                total.listing.append(f"false {f['level']} {f['code']} {note.name}:{f['line']} {f['column']} {f['printed']}: "
                                     f"{f['message']}")
        for slip in known["slips"]:
            if slip["findable"]:
                here = [f for f in found if touches(f, slip)]
                total.findable += 1
                total.flagged += bool(here)
                total.flagged_as_error += any(f["level"] == "error" for f in here)
                total.explained += (ok := any(explains(f, slip) for f in here))
                if not ok:
                    total.missed_by_kind[("not explained: " if here else "missed: ") + slip["kind"]] += 1
                    total.listing.append(f"{'not explained' if here else 'missed'} {note.name}:{slip['line']} {slip['column']} "
                                         f"{slip['wrong']} for {slip['right']}: {slip['kind']}")
    return total


EXACT = ("gpus", "dp", "tp", "pp", "mbs", "gbs", "seq", "layers", "hidden", "heads", "kv_heads", "vocab")


def wrong_values(half: str, book: Path) -> tuple[Counter[str], list[str]]:
    """What `import` makes of the clean notes against the runs behind them: counts, and each value that is not the run's."""
    from seatrial.cli import main

    with contextlib.redirect_stdout(io.StringIO()):
        notes = sorted(note_of(truth) for truth in (NOTES / half / "clean").glob("*.json"))
        main(["import", "--json", "--logbook", str(book), *map(str, notes)])
    records = [json.loads(line) for path in book.glob("segments/*.jsonl") for line in path.open(encoding="utf-8")]
    by_line = {(record.get("source_file"), record.get("source_line")): record for record in records}
    count: Counter[str] = Counter()
    wrong = []
    for truth in sorted((NOTES / half / "clean").glob("*.json")):
        for run in json.loads(truth.read_text(encoding="utf-8")).get("runs", []):
            record = by_line.get((note_of(truth).name, run["line"]))
            count["rows not read"] += record is None
            for name, read, right in _pairs(record or {}, run):
                good = read in right if name in EXACT else any(abs(read - one) <= 0.02 * one + (name == "mem") for one in right)
                count[f"{name} {'right' if good else 'wrong'}"] += 1
                if not good:
                    wrong.append(f"wrong {truth.stem}:{run['line']} {name} {read} is {right[0]}")
    return count, wrong


def _pairs(record: dict[str, Any], run: dict[str, Any]) -> list[tuple[str, Any, list[Any]]]:
    """Name, what was read, what is right: only what was read and is known."""
    each = run["tokens_per_s"] / run["gpus"] if "tokens_per_s" in run and "gpus" in run else None
    memory = record["mem_value"] * GIB[record["mem_unit"]] if record.get("mem_value") and record.get("mem_unit") else None
    # Many write GB for what the tools count in GiB.
    found = [(name, record.get(name), [run[name]]) for name in EXACT if name in run]
    found += [(name, record.get(name), [run[name]]) for name in ("sec_per_it", "tokens_per_s", "samples_per_s") if name in run]
    found += [("tokens_per_s_per_process", record.get("tokens_per_s_per_process"), [each])] if each else []
    # Of a node they say so, and what is known is mostly of one device.
    found += [("tflops", record.get("tflops"), run["tflops"])] if "tflops" in run and record.get("tflops_per") != "node" else []
    found += [("mem", memory, [run["mem_gib"], run["mem_gib"] * GIB["GB"]])] if "mem_gib" in run else []
    return [one for one in found if one[1] is not None]


if __name__ == "__main__":
    result = vars(score(sys.argv[1]))
    lines = result.pop("listing")
    with tempfile.TemporaryDirectory() as folder:
        values, wrong = wrong_values(sys.argv[1], Path(folder) / "book")
    result["values"], lines = values, lines + wrong
    print(json.dumps(result, indent=1), *(lines if "--list" in sys.argv else []), sep="\n")
