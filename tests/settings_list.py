"""How many settings lint takes from the sentences of tests/data/headings/settings.tsv (their README says how they came to be).

    counts, wrong = settings_list.judged()
    counts["right"], counts["wrong"], counts["missing"]

`python tests/settings_list.py -v` names each that is not right.
"""
from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from seatrial.notes import lint
from seatrial.notes.read import import_file

LIST = Path(__file__).parent / "data" / "headings" / "settings.tsv"
FIELDS = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq", "gbs", "mbs", "tp", "pp", "gpus")
TABLE = "\n\n| run | step time (s) | tokens/s |\n|---|---|---|\n| a | 3.1 | 52000 |\n| b | 3.2 | 51000 |\n"


def judged(folder: Path) -> tuple[Counter[str], list[str]]:
    """Each sentence alone above one table; of a field that it says nothing of nothing may be taken."""
    lines = [line.split("\t") for line in LIST.read_text(encoding="utf-8").splitlines()]
    records, prose = [], {}
    for number, (text, *_) in enumerate(lines):
        note = folder / f"{number}.md"
        note.write_text(text.replace(" // ", "\n") + TABLE, encoding="utf-8")
        prose[note.name] = note.read_text(encoding="utf-8")
        records += import_file(note).records[:1]
    rows = lint.look(records, prose=prose)[1].rows
    count, wrong = Counter[str](), []
    for (text, tongue, settings), row in zip(lines, rows, strict=True):
        right = json.loads(settings)
        for name in FIELDS:
            want, got = right.get(name), getattr(row.record, name)
            if want != got:
                wrong.append(f"{tongue} {name} {want}: {got} in {text}")
            count["right" if want == got else "wrong" if got else "missing"] += bool(want or got)
    return count, wrong


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        counted, listed = judged(Path(made))
    print(dict(counted), *(listed if "-v" in sys.argv else []), sep="\n")
