"""Device hours that a sentence works out from its days and devices.

    This is 5.5 days on 64 GPUs, or 1,049 GPU-hours.          5.5 x 24 x 64 = 8,448: these are of one device of each node

Sentences round, and may leave out restarts: they are asked about where the figure is off by a factor that people forget, of
the devices of a node, of all devices or of the hours of a day, or where its point moved.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator

from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, decimal

_NUMBER = rf"(?<![\w.,-])({NUMBER.pattern})"
_DEVICE = r"(?:(?:[A-Z]{1,2}\d{2,4}|GPU|TPU|NPU|chip|card|device|accelerator)s?)"
_DAY, _HOUR = r"days?|Tagen?|jours?|d[ií]as?|giorni|дн\w+|суток|天|日", "hours|Stunden|heures|horas|ore|小时|小時|時間"
_DAYS = re.compile(rf"{_NUMBER}\s?(?:({_DAY})|(?:{_HOUR}))(?![\w-])(?! ?(?:GPU|de GPU))")
_ON = r"(?:\b(?:on|with|across|using|auf|mit|sur|avec|en|con|em|com|su|на)|[x×*])"
_DEVICES = re.compile(rf"{_ON}\s{_NUMBER}\s{_DEVICE}\b(?![ -]?h)")
_HOURS = re.compile(rf"{_NUMBER}\s?(?:(?:{_DEVICE}[ -]?(?:hours|h|Stunden|час\w+)|heures[ -]GPU|horas[ -](?:de )?GPU|"
                    r"ore GPU)\b|(?:GPU|卡|カード) ?(?:小时|小時|時間|时))")  # fmt: skip
_IN_A_HEADING = re.compile(rf"{_NUMBER}\s?(?:[x×]\s?)?(?:{_DEVICE}\b(?![ -]?(?:h\b|hours|[x×]))|卡|枚)")
"""How many devices a section is of."""
_SPENT = re.compile(r"hours|s?[ -]?h\b|Stunden|heures|horas|ore GPU|час|小时|卡时|時間")
"""Without one of these a line has no such sentence."""
NEAR = 0.03
"""Within which the figures of a sentence agree."""


_WORDS = ("day", "jour", "dia", "día", "giorni", "дн", "суток", "天", "日", "hours", "stunden", "heures", "horas",
          "小时", "時間",
          *(f"{before}{word}" for word in ("tage", "ore") for before in " \t\u00a0\u202f0123456789"))  # fmt: skip
"""Without one of these, in small letters, a text has no days or hours."""


def check(sheet: Sheet) -> list[Finding]:
    return [finding for file, text in sheet.prose.items() if text.has(*_WORDS) for number, line in enumerate(text.lines, 1)
            if len(line) < 2000 and not line.lstrip().startswith("|")
            for finding in _line(file, number, line, text.lines)]  # fmt: skip


def _line(file: str, number: int, line: str, lines: tuple[str, ...]) -> Iterator[Finding]:
    if not _SPENT.search(line) or not _HOURS.search(line):
        return
    for sentence in re.split(r"(?<=\D)[.;!?]\s|(?<=\w)[.;]\s(?=[A-Z])", line):
        days, devices, hours = (list(pattern.finditer(sentence)) for pattern in (_DAYS, _DEVICES, _HOURS))
        if not devices and len(days) == len(hours) == 1:
            heading = next((above for above in reversed(lines[: number - 1]) if above.startswith("#")), "")
            devices = list(_IN_A_HEADING.finditer(heading))
        if not len(days) == len(devices) == len(hours) == 1:
            continue  # of several runs nobody can tell which belongs to which
        each, many, said = (float(decimal(found[0][1])) for found in (days, devices, hours))
        day = 24.0 if days[0][2] else 1.0
        if not all(0 < one < 1e12 for one in (each, many, said)):
            continue
        ratio = each * day * many / said
        forgot = {8.0: "of one device of each node", 4.0: "of one device of each node", many: "of one device", day: "of days",
                  2.0: "of half of the devices", 10.0: "the point moved", 0.1: "the point moved"}  # fmt: skip
        times = next((one for one in forgot if one != 1 and abs(math.log(ratio / one)) < NEAR), None)
        if times is not None:
            value = f"{said * times:,.0f}" if "," in hours[0][1] else f"{said * times:.0f}"
            message = f"{hours[0][0]} -> {value} ({forgot[times]}): {days[0][0]} x {many:g} are {each * day * many:,.0f}"
            yield Finding(file=file, line=number, code="aggregate", level="error", message=message, column="GPU-hours",
                          printed=hours[0][1], proposed=value)  # fmt: skip
