"""`seatrial replay` at the command line."""
from __future__ import annotations

import json


def test_the_story_is_told_in_words_markdown_and_json(seatrial):
    said = seatrial("replay", "bloom-prequel")
    assert said.status == 0 and said.out.startswith("bloom-prequel: 72 layers x 14336") and "\nSaved: " in said.out
    assert "\x1b" not in said.out
    assert seatrial("replay", "bloom-prequel", "--markdown").out.count("\n## ") == 5
    found = json.loads(seatrial("replay", "bloom-prequel", "--json").out)
    assert [stage["learned_rows"] for stage in found["stages"]] == [0, 5, 30] and found["tune"]["trials"]


def test_what_cannot_be_told_is_one_line(seatrial):
    for given, words in ((("bloom-prequl",), "did you mean 'bloom-prequel'?"), (("fugaku-sweep",), "no search to replay"),
                         (("bloom-prequel", "--json", "--markdown"), "one of them"),
                         (("bloom-prequel", "--cluster", "nowhere"), "nowhere")):
        said = seatrial("replay", *given)
        assert said.status == 2 and words in said.err and len(said.err.strip().splitlines()) == 1
