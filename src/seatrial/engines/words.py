"""What a program that is not ours said when it failed: its own error, with the rank, out of the text of a log.

    errors("…[rank1]: ValueError: num_attention_heads (16) must be a multiple of …")     [Said(rank=1, kind="ValueError", …)]
    said.status                 invalid, oom_device, oom_host, nan, crash
    said.consequence            whether it only lost its connection to somebody who failed

torchrun's own account is left out: it names no cause. Neither does a rank's lost connection.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from seatrial.outcomes import Status

LONGEST = 400
"""Letters of a message that are kept."""
TAIL_BYTES, LAST_BYTES = 200_000, 16_000
"""Of a log that are read for its end: of one that many ranks write, and of one rank's own."""
_ELASTIC = re.compile(r"^={20,}\n\S+ FAILED\n-{20,}.*?^={20,}\n?", re.M | re.S)
_ERROR = re.compile(
    r"^(?:\[rank(?P<rank>\d+)\]:\s?)?(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure))"
    r"(?::[ \t]*(?P<text>[^\n]*))?$", re.M,
)  # fmt: skip
_USAGE = re.compile(r"(?:Unrecognized options?:?|error: (?:unrecognized arguments|argument|the following arguments))[^\n│]*")
_OTHERS = ("ChildFailedError", "SignalException", "KeyboardInterrupt")
"""Of the program that starts the ranks."""
_STAGE = re.compile(r"\n(?:\[rank\d+\]:)?\s*\[Stage \d+\] failed to run ")
"""What torch's pipeline says around any error of a stage, which stands before it."""
_LOST = re.compile(r"Connection (?:closed|reset) by (?:remote )?peer|gloo/transport|Broken pipe|recvValue failed|"
                   r"failed to recv|Connection was likely closed|connection (?:was )?aborted|remote process exited|"
                   r"NCCL communicator was aborted", re.IGNORECASE)  # fmt: skip
_REFUSED = re.compile(r"divisib|multiple of|WORLD_SIZE|world size|batch related parameters|incompatible with|not compatible|"
                      r"only supported|not supported|has not supported|is not implemented for|must be (?:greater|less|equal)|"
                      r"Invalid parallel dims|[Uu]nrecognized (?:options?|arguments)|exceeds minimum layers|empty stages|"
                      r"invalid choice",
                      re.IGNORECASE)  # fmt: skip
"""How engines refuse a layout: what is asked can never run there."""
_NO_NUMBER = re.compile(r"found (?:NaN|Inf) in|Unexpected result (?:tensor\()?(?:nan|-?inf)")
_UNEXPECTED = re.compile(r"^[^\n]*rerun_state_machine:(?=[^\n]*\b[Rr]ank (?P<rank>\d+))[^\n]*?"
                         r"(?P<text>Unexpected result [^\n]*)", re.M)  # fmt: skip
"""What Megatron says of a loss or a norm that is no number: it tries the step again, and ends without an exception."""
_REFUSING = ("AssertionError", "ValueError", "NotImplementedError", "RuntimeError", "usage")


@dataclass(frozen=True, kw_only=True)
class Said:
    kind: str
    """The exception's name; `usage` where the program did not take its arguments."""
    text: str
    rank: int | None = None
    """Where the line says it."""
    line: str = ""
    """Of the program's source, `parallel_dims.py:110 in _validate`, where a traceback stands before it."""

    @property
    def consequence(self) -> bool:
        return self.kind == "DistBackendError" or _LOST.search(self.text) is not None

    @property
    def status(self) -> Status:
        from seatrial.notes.read.ends import ended_by  # all importers come with it

        if self.kind == "MemoryError":
            return "oom_host"  # Python's own, mostly without a word
        said = f"{self.kind}: {self.text}"
        if _NO_NUMBER.search(said):
            return "nan"
        if (end := ended_by(0, said)) is not None and end.status != "crash":
            return end.status
        return "invalid" if self.kind in _REFUSING and _REFUSED.search(said) else "crash"


_FRAME = re.compile(r'^(?:\[rank\d+\]:\s?)?\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.M)


_ROOT = re.compile(r"Root Cause[^\n]*\n(?:[^\n]*\n)*?\s*rank\s*:\s*(?P<rank>\d+)")


def first_rank(log: str) -> int | None:
    """The rank that torchrun saw failing first."""
    found = _ROOT.search(log)
    return None if found is None else int(found["rank"])


def errors(log: str) -> list[Said]:
    """Every error that ends a traceback, in their order."""
    log = _ELASTIC.sub("", log)
    found = []
    for match in _ERROR.finditer(log):
        kind = match["kind"].rpartition(".")[2]
        if kind in _OTHERS or _STAGE.match(log, match.end()):
            continue
        text = (match["text"] or "").strip() or _next_words(log, match.end())
        frames = list(_FRAME.finditer(log, max(0, match.start() - 4000), match.start()))
        at = f"{frames[-1]['file'].rpartition('/')[2]}:{frames[-1]['line']} in {frames[-1]['function']}" if frames else ""
        found.append(Said(kind=kind, text=text[:LONGEST], rank=None if match["rank"] is None else int(match["rank"]), line=at))
    found += [Said(kind="ResultValidation", text=match["text"][:LONGEST], rank=int(match["rank"]))
              for match in _UNEXPECTED.finditer(log) if not found]
    if not found and (usage := _USAGE.search(log)):
        found.append(Said(kind="usage", text=usage.group().strip()[:LONGEST]))
    return found


def _next_words(log: str, at: int) -> str:
    """A message that begins on the line after the exception's name."""
    lines = (re.sub(r"^\[rank\d+\]:\s?", "", line).strip() for line in log[at : at + 600].split("\n")[1:4])
    others = ("Traceback", "The above", "File ", "[", "W1", "E1")
    return next((line for line in lines if line and not line.startswith(others)), "")


def cause(found: list[Said]) -> Said | None:
    """The last error that is one of its own; that of a lost connection where there is no other."""
    return next((said for said in reversed(found) if not said.consequence), found[-1] if found else None)
