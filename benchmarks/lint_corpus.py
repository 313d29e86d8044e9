"""How right `lint` is on a corpus of notes: of what it says how much is true, and of what is wrong how much it finds.

    python -m benchmarks.lint_corpus [tests/data/notes/open] [--json] [--misses]

Every NAME.md under the folder has a NAME.json with its slips (see tests/data/notes/README.md). A finding is true when it names
a line of a slip, or a row that a wrong setting in the text makes inconsistent. A slip is flagged by an error or a warning on
one of its lines, and explained when one of them proposes what stood there, or names the cell where nobody can know.
`--misses` lists what went wrong: for the open half, never for the blind one.
"""
from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.notes.lint import look_at
from seatrial.notes.lint.sheet import Finding, field_of
from seatrial.tables.headings import NUMBER, clean, decimal

NOTES = Path(__file__).parents[1] / "tests" / "data" / "notes" / "open"
CLOSE = 0.006
"""How far a proposed figure may be from the right one: what the last digit of a neighbour leaves open."""
FIELDS = {"mem": "mem_value", "ms_per_it": "sec_per_it", "pflops": "aggr_pflops", "size": "size_label", "status": "outcome",
          "tokens_per_s_gpu": "tokens_per_s_per_process"}  # fmt: skip


@dataclass
class Count:
    true: int = 0
    false: int = 0

    def __str__(self) -> str:
        said = self.true + self.false
        return f"{self.true:4d} of {said:4d}" + (f" ({self.true / said:4.0%})" if said else "       ")


@dataclass
class Score:
    rows: dict[str, int] = field(default_factory=Counter)
    errors: dict[str, Counter[str]] = field(default_factory=lambda: {"clean": Counter(), "mixed": Counter()})
    by_rule: dict[tuple[str, str], Count] = field(default_factory=dict)
    flagged: dict[str, Count] = field(default_factory=dict)
    explained: dict[str, Count] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)

    def total(self, of: dict[Any, Count], *keys: Any) -> Count:
        counts = [count for key, count in of.items() if not keys or key[0] in keys]
        return Count(sum(c.true for c in counts), sum(c.false for c in counts))


def notes(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for said in sorted(folder.rglob("*.json")):
        note = said.with_suffix(".md")
        if note.exists():
            yield note, json.loads(said.read_text(encoding="utf-8"))


def lines_of(slip: dict[str, Any]) -> set[int]:
    cells = [cell["line"] for cell in slip.get("cells", ())]
    source = {slip["from"]} if isinstance(slip.get("from"), int) else set()
    return {slip["line"], *slip.get("lines", ()), *cells, *slip.get("affects", ()), *source}


def same(proposed: str | None, right: str) -> bool:
    if proposed is None:
        return False
    one, two = NUMBER.search(clean(proposed)), NUMBER.search(clean(right))
    if one is None or two is None:
        return clean(proposed).lower() == clean(right).lower()
    a, b = float(decimal(one.group())), float(decimal(two.group()))
    # 16K against 16384, 2.0135 s against 2013.5 ms: a unit apart is the same cell.
    return any(abs(a / b / scale - 1) < CLOSE for scale in (1, 1e3, 1e-3, 1024, 1 / 1024)) if b else a == b


def explains(finding: Finding, slip: dict[str, Any]) -> bool:
    """Whether the finding proposes what stood in one of the slip's cells, or in a cell that explains it as well."""
    cells = [slip, *slip.get("cells", ()), *({**slip, **other} for other in slip.get("or", ()))]
    for cell in cells:
        if finding.line != cell["line"]:
            continue
        name = FIELDS.get(cell["column"], cell["column"])
        named = finding.column is not None and field_of(finding.column) == name
        right = cell.get("right")
        if right is None and (named or finding.column is None):
            return True
        if right is not None and same(finding.proposed, right) and (named or not field_of(finding.column or "")):
            return True
        # Where two changes do as well, saying both is the whole truth.
        if right is not None and "or" in slip and finding.proposed is None and f" {clean(right)}" in finding.message:
            return True
    # What stood there before a pair was pasted over it nobody can know: the row that it comes from is the explanation.
    return "pasted" in slip["kind"] and finding.code == "pasted-pair"


def judge(note: Path, said: dict[str, Any], score: Score) -> None:
    kind = "clean" if note.parent.name == "clean" else "mixed"
    findings = [f for f in look_at([str(note)])[0] if f.level != "info"]
    slips = said["slips"]
    score.rows[kind] += said["rows"]
    wrong = {line for slip in slips for line in lines_of(slip)}
    for finding in findings:
        true = finding.line in wrong
        count = score.by_rule.setdefault((finding.level, finding.code), Count())
        count.true, count.false = count.true + true, count.false + (not true)
        if finding.level == "error":
            score.errors[kind]["true" if true else "false"] += 1
        if not true:
            score.misses.append(f"{note.name}:{finding.line}: false {finding.level} {finding.code}: {finding.message}")
    for slip in slips:
        if not slip["findable"]:
            continue
        here = [f for f in findings if f.line in lines_of(slip)]
        for counts, hit in ((score.flagged, bool(here)), (score.explained, any(explains(f, slip) for f in here))):
            count = counts.setdefault(slip["kind"], Count())
            count.true, count.false = count.true + hit, count.false + (not hit)
        if not any(explains(f, slip) for f in here):
            told = "; ".join(f"{f.code} {f.column} -> {f.proposed}" for f in here) or "nothing"
            score.misses.append(f"{note.name}:{slip['line']}: {slip['kind']} in {slip['column']}, {slip['wrong']} for "
                                f"{slip['right']}: lint says {told}")  # fmt: skip


def measure(folder: Path) -> Score:
    score = Score()
    for note, said in notes(folder):
        judge(note, said, score)
    return score


def summary(score: Score) -> dict[str, Any]:
    clean_rows, mixed = score.rows.get("clean", 0), score.errors["mixed"]
    told = mixed["true"] + mixed["false"]
    flagged, explained = score.total(score.flagged), score.total(score.explained)
    slips = max(1, flagged.true + flagged.false)
    return {"rows": dict(score.rows), "clean_errors": sum(score.errors["clean"].values()),
            "clean_errors_per_200_rows": round(200 * sum(score.errors["clean"].values()) / max(1, clean_rows), 2),
            "mixed_errors": told, "mixed_errors_true": round(mixed["true"] / max(1, told), 3),
            "warnings_true": round((w := score.total(score.by_rule, "warning")).true / max(1, w.true + w.false), 3),
            "findable_slips": flagged.true + flagged.false, "flagged": round(flagged.true / slips, 3),
            "explained": round(explained.true / slips, 3)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=NOTES)
    parser.add_argument("--json", action="store_true", help="the summary alone, as JSON")
    parser.add_argument("--misses", action="store_true", help="each false finding and each slip that is not explained")
    asked = parser.parse_args()
    score = measure(asked.folder)
    if asked.json:
        print(json.dumps(summary(score)))
        return
    print("what lint says, and how much of it is true")
    for (level, code), count in sorted(score.by_rule.items()):
        print(f"  {level:8s} {code:22s} {count}")
    print("slips that can be found: flagged, and explained")
    for kind, count in sorted(score.flagged.items()):
        print(f"  {kind[:40]:40s} {count}   {score.explained[kind]}")
    if asked.misses:
        print(*score.misses, sep="\n")
    for name, value in summary(score).items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
