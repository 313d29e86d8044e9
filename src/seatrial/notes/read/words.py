"""The words that authors write beside or instead of a number, and what they say happened.

read_words("OOM after first epoch").failed        "oom"
read_words("too close to OOM").failed             ""
read_words("1 iteration only").estimated          True
"""
from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Words:
    failed: str = ""
    """oom, hang, crash, nan, timeout, invalid or cancelled."""
    estimated: bool = False
    planned: bool = False
    rate: tuple[int, ...] | None = None
    """`2 of 5 hang`: how often it failed."""


MOST_LETTERS = 500
"""How much of a note is searched for what happened."""
_FAILED: tuple[tuple[str, str], ...] = (
    ("oom", r"\boom\b|\booms\b|\boomed\b|out[ -]of[ -]memory|oom_device|oom_host"),
    ("hang", r"\bhangs?\b|\bhung\b|\bhanging\b|\bstuck\b|\bdeadlocks?(?:ed)?\b"),
    ("nan", r"\bnans?\b|\bdiverge[sd]?\b"),
    ("timeout", r"\btime[ds]?[ -]?out\b|\bwalltime\b"),
    ("cancelled", r"\bcancell?ed\b|\bpreempted\b|\baborted by\b"),
    ("invalid", r"\binvalid\b|\bunsupported\b|\bnot supported\b|\bnot divisible\b|\bimpossible\b"),
    (
        "crash",
        r"\bfail(?:s|ed|ure)?\b|\bcrash(?:es|ed)?\b|\berrors?\b|\bsegfault(?:s|ed)?\b|"
        r"\bdo(?:es)? ?n[o']t work\b|\bkilled\b|\bbroken?\b",
    ),
)
_PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _FAILED)
_DENIED = re.compile(
    r"(?:\b(?:no|not|without|w/o|never|close to|near|nearly|almost|avoid(?:s|ed|ing)?|prevent(?:s|ed)?|fix(?:es|ed)?|before|"
    r"instead of|overcomes?|barely|risk(?: of)?|would|didn't|doesn't|don't|0)|n't)\W+(?:\w+\W+)?$",
    re.IGNORECASE,
)
_ESTIMATED = re.compile(
    r"\bestimat|\bextrapolat|\binterpolat|\bapprox|\bprojected\b|(?<![\d.])(?:1|one|single)\s*(?:st\s*)?(?:itr|iter|iterations?|it|step)s?"
    r"\s*(?:only|のみ)|\bonly (?:1|one) (?:it|iter|iteration|step)\b|1回のみ|推定",
    re.IGNORECASE,
)
_RATE = re.compile(r"(?<![\d.])(\d{1,6}) ?(?:of|out of|/|in) ?(\d{1,6})(?![\d.])")
_PLANNED = re.compile(
    r"\bnot (?:yet )?run\b|\bplanned\b|\bto ?do\b|\btbd\b|\bto be (?:run|done|tested|measured)\b|\bpending\b", re.IGNORECASE
)


def read_words(text: str) -> Words:
    if not text:
        return Words()
    text = text[:MOST_LETTERS]
    failed = ""
    for name, pattern in _PATTERNS:
        match = pattern.search(text)
        if match and not _DENIED.search(text[: match.start()]):
            failed = name
            break
    often = _RATE.search(text) if failed else None
    rate = (int(often.group(1)), int(often.group(2))) if often else None
    return Words(
        failed=failed,
        estimated=_ESTIMATED.search(text) is not None,
        planned=_PLANNED.search(text) is not None,
        rate=rate if rate and rate[0] <= rate[1] else None,
    )


_HOST_CUES = re.compile(r"\bcpus?\b|a64fx|fugaku|\bxeon\b|\bepyc\b|tcmalloc|core[- ]group|[0-9.]\s?GHz|\bFreq\b", re.IGNORECASE)
_DEVICE_CUES = re.compile(r"\bgpus?\b|cuda|nccl|nvlink|\b[AVHB][1-9]00\b|\bMI[23]\d\d\b|\btpus?\b", re.IGNORECASE)


def cues(text: str) -> tuple[bool, bool]:
    """Whether a line speaks of a machine that computes on its CPUs, and whether of devices."""
    return _HOST_CUES.search(text) is not None, _DEVICE_CUES.search(text) is not None
