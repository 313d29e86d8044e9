"""A rule that fails costs no other rule's findings: it is told, and what it would have found is missing.

    guard = Guard(sheet)
    found = guard(speeds.check) + guard(status.check_reading, problems)      what the rules find of the sheet
    found += guard.failed                                                    a warning for each rule that failed

Tests and the fuzzer take such a warning for the failure that it is.
"""
from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from seatrial.errors import SeatrialError
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet

FAILED = "rule-failed"
Found = TypeVar("Found")


@dataclass(frozen=True)
class Guard:
    sheet: Sheet
    failed: list[Finding] = field(default_factory=list)

    def __call__(self, rule: Callable[..., Iterable[Found] | None], *more: Any) -> list[Found]:
        try:
            return [*(rule(self.sheet, *more) or ())]
        except SeatrialError:
            raise
        except Exception as error:  # whatever the rule did not think of
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(at.filename).parent.name}/{Path(at.filename).name}:{at.lineno}"
            file = next(iter([*self.sheet.prose, *self.sheet.files]), "")
            message = (f"a rule of lint failed here, and what it would say is missing ({rule.__module__.rpartition('.')[2]}: "
                       f"{type(error).__name__} at {where}: {error}): please report it")  # fmt: skip
            self.failed.append(Finding(file=file, line=None, code=FAILED, level="warning", message=message))
            return []
