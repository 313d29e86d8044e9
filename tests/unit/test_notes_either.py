"""Patterns that take either case find what `re.IGNORECASE` finds: in all of the patterns that ask small letters first."""
import re
import sys
from pathlib import Path

import pytest

from seatrial.notes.either import either, small
from seatrial.notes.lint import lint  # with all modules that have such patterns

assert lint
NOTES = Path(__file__).parents[1] / "data" / "notes"
PATTERNS = {f"{module.__name__}.{name}": value for module in [*sys.modules.values()] if module.__name__.startswith("seatrial.")
            for name, value in vars(module).items() if isinstance(value, either)}  # fmt: skip


def test_text_in_either_case_is_found_where_it_stands():
    others = either(r"\b(?P<who>papers?|Hersteller)\b")
    found = others.search("Der HERSTELLER sagt 3.")
    assert found is not None and found.span("who") == (4, 14)
    assert [match[0] for match in others.finditer("Papers, paper, vapor")] == ["Papers", "paper"]
    assert others.search("vapor") is None and list(others.finditer("vapor")) == []


def test_classes_groups_and_signs_stay_what_they_are():
    assert small(r"(?P<Some>\W[A-Z]\D\S)\Z").pattern == r"(?P<some>\W[a-z]\D\S)\Z"
    assert small(r"[^\W\d_]+ЖÉ層").pattern == r"[^\W\d_]+жé層"


@pytest.mark.parametrize("pattern, words", [
    (r"\b(?:papers?|Hersteller)\b", ("hersteller", "paper")),
    (r"(?:un|not )tied(?: by)?\b|sep[ae]rate", ("rate", "tied")),
    (r"param|\bN(?:_\w+)? ?[=≈]", ("=", "param", "≈")),  # any text has an n
    (r"(?:foo)?\d+|bar", ()),
    (r"(?!paper)\w+(?<=sheet)", ()),
    (r"paper|", ()),
])  # fmt: skip
def test_some_word_stands_in_whatever_a_pattern_matches(pattern, words):
    assert either(pattern).words == words


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_every_pattern_finds_in_notes_what_it_finds_in_either_case(name):
    pattern = PATTERNS[name]
    whole = re.compile(pattern.pattern, re.IGNORECASE)
    for path in sorted(NOTES.glob("*/mixed/*.md"))[::9]:
        for line in path.read_text(encoding="utf-8").splitlines():
            for said in (line, line.upper()):
                spans = [match.span() for match in whole.finditer(said)]
                assert [match.span() for match in pattern.finditer(said)] == spans
                assert pattern.has(said) == bool(spans)
