"""What physics expects: memory grows with the micro-batch and stays within the device, time follows the micro-batches, and
TFLOPs stay below the peak."""

from __future__ import annotations

import functools
import math
import operator
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint.columns import relations
from seatrial.notes.lint.columns.broken import broken_and_kept
from seatrial.notes.lint.digits import slip, slips
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models.devices import device_named
from seatrial.notes.lint.models.formulas import FROZEN, Reading
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.rows import capacity
from seatrial.notes.lint.rows.duplicates import same_configuration, settings
from seatrial.notes.lint.rows.nearby import Nearby
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean

_FALL = 0.03
"""Memory differs by so much between repeats; only a larger fall is one."""
_OFF_SCALE = 0.15


def check(sheet: Sheet) -> list[Finding]:
    found = [finding for mates in sheet.tables.values() for finding in _memory_units(mates)]
    for row in sheet.rows:
        if row.record.mem_value is not None:
            found += capacity.check(row)
        if row.record.mfu or row.record.hfu or row.fixed:
            found += _share(row)
    rules = (_peaks, _recomputed, _memory_falls, _scaling, _by_size)
    return found + [finding for mates in sheet.tables.values() for rule in rules for finding in rule(mates)]


def _series(rows: list[Row], name: str, worth: Callable[[list[Row]], bool]) -> list[list[Row]]:
    """Rows that differ in one field alone (and, for the micro-batch, in the global batch with it), in its order; but for those
    of layouts all of whose rows together show nothing."""
    but = (name, "gbs") if name == "mbs" else (name,)
    names = [n for n in ("dp", "tp", "pp", "mbs") if n not in but]
    layout, said = operator.attrgetter(*names), functools.cache(settings)
    alike: dict[tuple, list[Row]] = {}
    for row in rows:
        own = tuple(map(row.get, names)) if row.fixed else layout(row.record)
        alike.setdefault((row.record.size_label, row.world, own), []).append(row)
    found: list[list[Row]] = []
    for mates in alike.values():
        series: list[list[Row]] = []
        for row in mates if len(mates) > 1 and worth(mates) else ():
            home = next((group for group in series if row.all_beside == group[0].all_beside
                         and same_configuration(row, group[0], but=but)
                         and row.described == group[0].described and said(row) == said(group[0])), None)  # fmt: skip
            if home is None:
                series.append([row])
            else:
                home.append(row)
        found += [sorted(group, key=lambda row: row.get(name) or 0) for group in series if len(group) > 1]
    return found


_THOUSANDFOLD = (1024.0, 1 / 1024.0)
_OTHER_UNIT = 300.0
"""How many times another row's memory one must be for its unit to be in doubt at all."""
_UNITS = {"GiB": "MiB", "GB": "MB", "MiB": "GiB", "MB": "GB"}


def _memory_units(mates: list[Row]) -> list[Finding]:
    """A thousand times, or a thousandth of, what the other rows of the model need is another unit."""
    found = []
    sizes = [size for row in mates if (size := row.record.mem_gib)]
    if len(sizes) < 3 or max(sizes) < _OTHER_UNIT * min(sizes) or not any(map(_is_run, mates)):
        return []
    rows = [row for row in mates if row.record.mem_gib][:2000]
    near = Nearby(mates, lambda row: row.record.mem_gib or None)
    for row in rows:
        (count, middle), memory = near.middle(row), row.record.mem_gib or 1.0
        times = next((times for times in _THOUSANDFOLD if 0.3 < memory / middle / times < 3.3), None)
        figure = row.printed("mem_value")
        if times is None or figure is None or count < 2:
            continue
        cell, unit = row.cell("mem_value"), row.record.mem_unit
        meant = _UNITS.get(unit, "")
        if unit and unit.lower() in cell.lower():
            proposed = f"{cell[: cell.lower().index(unit.lower())].strip()} {meant}"
        else:
            finest = min((mate.printed("mem_value") or figure for mate in row.around), key=lambda p: p.unit)
            # Tools count by 1024; 44900 under GB is 44.9 all the same.
            plain = unit in ("GB", "MB") and len(f"{figure.value / 1000:g}") <= len(finest.like(figure.value / 1000))
            thousand = 1000.0 if times > 1 and plain else 1024.0
            proposed = finest.like(figure.value * (1 / thousand if times > 1 else thousand))
        row.propose("mem_value", figure.value / times, "memory-unit")
        slip = f"the memory is in {meant or 'another unit'}"
        others = [mate.cell("mem_value") for mate in row.around if mate is not row]
        if re.fullmatch(r"\d{1,3}\.\d{3}", cell) and any("," in other for other in others):
            # With as many digits behind it as others have it is a comma; else thousands that are parted so.
            finely = any(re.fullmatch(r"\d{1,3},\d{3}", other) for other in others)
            proposed = cell.replace(".", ",") if finely else proposed.replace(".", ",")
            slip = "a point for the comma of the thousands" if finely else slip
        message = f"{cell} is {memory / middle:.3g} times what the other rows need: {slip}"
        found.append(row.find("memory-unit", "error", message, name="mem_value", proposed=proposed))
    return found


_OF_A_RUN = ("size_label", "gpus", "nodes", "dp", "tp", "pp", "mbs", "gbs", "seq", "sec_per_it", "tflops", "tokens_per_s",
             "tokens_per_s_per_process", "samples_per_s", "mfu")  # fmt: skip


def _is_run(row: Row) -> bool:
    """Whether the row prints anything of a run besides its memory: files have sizes too."""
    return any(map(row.shows, _OF_A_RUN))


def _memory_falls(mates: list[Row]) -> list[Finding]:
    found = []
    rows = [row for row in mates if row.record.mem_value and row.record.mbs]
    if len({row.record.mbs for row in rows}) < 2:
        return []
    # Of a row whose sizes do not multiply, nobody knows which layout its memory is of.
    rows = [row for row in rows if "mem_value" not in row.reasons
            and (None in (row.product, row.counted) or row.product == row.counted)][:2000]
    doubts: list[list[Finding]] = []
    for group in _series(rows, "mbs", _may_fall):
        found += (off := _off_the_line(group))
        group = [row for row in group if "mem_value" not in row.reasons] if off else group
        for small, large in pairwise(group):
            one, two = small.record.mem_gib, large.record.mem_gib
            if not one or not two or small.record.mbs == large.record.mbs or two > one * (1 - _FALL):
                continue
            if _slower(large, small):
                continue  # recomputed, without a word
            message = (
                f"memory falls from {small.cell('mem_value')} at MBS {small.record.mbs} ({small.where}) "
                f"to {large.cell('mem_value')} at MBS {large.record.mbs} ({large.where})"
            )
            moved = [change for row in (small, large) if (change := _point_between(group, row)) is not None]
            if moved:
                _, place, text = min(moved)
                row = group[place]
                message = f"{row.cell('mem_value')} -> {text} (the point moved): {message}"
                found.append(row.find("memory-monotone", "error", message, name="mem_value", proposed=text))
                continue
            rest = [row.record.mem_gib or 0.0 for row in group if row not in (small, large)]
            exchange = _ordered(group, small, large)
            hint = "; exchanged they would rise" if exchange else ""
            twins = f", in line with {len(rest)} other row{'s' if len(rest) > 1 else ''}" if exchange and rest else ""
            odd = _odd_one(small, large)
            doubts.append([row.find("memory-monotone", "warning", f"{message}{hint}{twins}", name="mem_value",
                                    proposed=other.cell("mem_value") if exchange else None)
                           for row, other in ((small, large), (large, small)) if odd in (None, row)])  # fmt: skip
    # Where it falls in two places, something was changed that nobody wrote down.
    return found + (doubts[0] if len(doubts) == 1 else [replace(each, level="info") for pair in doubts for each in pair])


def _may_fall(rows: list[Row]) -> bool:
    """Whether memory falls anywhere with the micro-batch, or there are enough rows for a line."""
    if len(rows) > 3 or any(row.fixed for row in rows):
        return True
    points = [(row.record.mbs or 0, row.record.mem_gib or 0.0) for row in rows]
    return any(less < more and two <= one * (1 - _FALL) for less, one in points for more, two in points)


def _off_the_line(group: list[Row]) -> list[Finding]:
    """One row whose memory is not on the line over the micro-batch that all others lie on."""
    if len(group) < 4:
        return []
    points = [(float(row.record.mbs or 0), row.record.mem_gib or 0.0) for row in group]
    fits = [_line(points[:at] + points[at + 1 :]) for at in range(len(group))]
    good = [at for at, fit in enumerate(fits) if fit is not None and fit[2] < _ON_LINE]
    if len(good) != 1:
        return []  # none is off, or more than one may be
    row, (offset, slope, _) = group[good[0]], fits[good[0]] or (0.0, 0.0, 0.0)
    memory, meant, figure = row.record.mem_gib or 1.0, offset + slope * (row.record.mbs or 0), row.printed("mem_value")
    if figure is None or meant <= 0 or abs(math.log(memory / meant)) < _OFF_LINE:
        return []
    value = figure.value * meant / memory
    typed = slip(figure.like(figure.value), figure.span(0.97 * value, 1.03 * value))
    likely = typed is not None and typed.chance < _LIKELY
    if not likely and good[0] in (0, len(group) - 1):
        return []  # beyond the others the line may bend
    about = f" -> {typed.text} ({typed.how})" if typed and likely else f", about {figure.like(value)} to be expected"
    message = f"{row.cell('mem_value')}{about}: the {len(group) - 1} other rows lie on a line over the micro-batch"
    row.reasons["mem_value"] = "memory-monotone"
    return [row.find("memory-monotone", "error" if likely else "warning", message, name="mem_value",
                     proposed=typed.text if typed and likely else None)]  # fmt: skip


_LIKELY = 0.1
_ON_LINE, _OFF_LINE = 0.025, 0.12
"""How near to a line the others lie, and from which difference on a row does not."""


def _line(points: list[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Offset and slope through three or more points, and by how much they miss it."""
    if len({at for at, _ in points}) < 3:
        return None
    slope, offset = statistics.linear_regression(*zip(*points))
    meant = [offset + slope * at for at, _ in points]
    if slope < 0 or min(meant) <= 0:
        return None
    return offset, slope, max(abs(math.log(value / there)) for (_, value), there in zip(points, meant))


def _slower(row: Row, other: Row) -> bool:
    """Whether a sample takes longer, though more are done at a time; the filling of the pipeline left out."""
    piped = (row.get("pp") or 1) > 1
    each = [(r.get("sec_per_it") or math.nan) / ((_slots(r) or math.nan) * (r.get("mbs") or 1) if piped else r.get("gbs") or 1)
            for r in (row, other)]  # fmt: skip
    return each[0] > each[1] * (1 + _SLOWER)


_SLOWER = 0.12


def _recomputed(mates: list[Row]) -> list[Finding]:
    """More at a time in far less memory, and slower: recomputed, whatever its cell says, which is another in other rows."""
    said = next((row.cell("recompute") for row in mates if row.record.recompute == "full" and row.cell("recompute")), "")
    rows = [row for row in mates[:_MOST_COMPARED] if row.record.recompute == "none" and row.cell("recompute")
            and row.record.mem_gib and row.record.mbs] if said else []
    found = []
    for row in rows:
        for other in rows:
            if (other.record.mbs or 0) >= (row.record.mbs or 0) or not same_configuration(row, other, but=("mbs", "gbs")):
                continue
            if (row.record.mem_gib or 0) > _LESS * (other.record.mem_gib or 0) or not _slower(row, other) or row.settled:
                continue
            less = f"{row.cell('mem_value')} at MBS {row.record.mbs} for {other.cell('mem_value')} at {other.record.mbs}"
            message = f"{row.column('recompute')} {row.cell('recompute')} -> {said}: slower than {other.where}, and {less}"
            found.append(row.find("memory-monotone", "warning", message, name="recompute", proposed=said))
            row.reasons["mem_value"] = "memory-monotone"
            break
    return found


_LESS, _MOST_COMPARED = 0.85, 60
"""Of the memory of a smaller micro-batch: what is less is recomputed."""


def _odd_one(small: Row, large: Row) -> Row | None:
    """The one of two whose memory is far from all other rows of the table, where the other's is among them."""
    others = [mate.record.mem_gib for mate in small.around if mate.record.mem_gib and mate not in (small, large)]
    far = [row for row in (small, large) if others and not min(others) / _FAR < (row.record.mem_gib or 0) < max(others) * _FAR]
    return far[0] if len(far) == 1 else None


_FAR = 1.5


def _point_between(group: list[Row], row: Row) -> tuple[float, int, str] | None:
    """The row's memory with its point elsewhere, where that alone makes the series rise; and how steeply, and its place."""
    place, figure = group.index(row), row.printed("mem_value")
    others = [mate.record.mem_gib or 0.0 for mate in group if mate is not row]
    if figure is None or len(others) < 2 or not all(b >= a for a, b in pairwise(others)):
        return None
    scale = figure.value / (row.record.mem_gib or 1.0)
    low = others[place - 1] if place else 0.3 * others[0]
    high = others[place] if place < len(others) else 3 * others[-1]
    typed = slip(row.cell("mem_value"), (low * scale, high * scale))
    if typed is None or typed.how != "the point moved":
        return None
    series = [*others[:place], typed.value / scale, *others[place:]]
    return max(b / a for a, b in pairwise(series)), place, typed.text


def _ordered(group: list[Row], small: Row, large: Row) -> bool:
    """Whether the memory of the whole series rises once these two are exchanged."""
    values = [(large if row is small else small if row is large else row).record.mem_gib or 0.0 for row in group]
    return all(b >= a * (1 - _FALL) for a, b in pairwise(values))


_MOST = 0.75
"""Of the rows of a table: where so many are above the peak the column is none of one device, whatever its heading says."""
_NODE = 8
"""Devices that a node has where nobody says how many; hardly any has more."""


def _peaks(mates: list[Row]) -> list[Finding]:
    found = {row: finding for row in mates for finding in _peak(row)}
    above = sum(finding.column == row.column("tflops") for row, finding in found.items()) if len(found) > 2 else 0
    if above > 2 and above > _MOST * sum(1 for row in mates if row.record.tflops):
        return [finding for row, finding in found.items() if finding.column != row.column("tflops")]
    return [*found.values()]


def _peak(row: Row) -> list[Finding]:
    tflops, device, peak = row.get("tflops"), row.device, row.peak
    if peak is None or not tflops:
        return _too_fast(row, device.name, peak) if device is not None and peak is not None else []
    if tflops <= peak or row.reasons.get("tflops") == "tflops-per-node" or row.record.tflops_per == "node" and (
        device is None or device.kind == "gpu" and tflops <= peak * (row.procs if row.procs and row.procs > 1 else _NODE)
    ):  # fmt: skip
        return []
    said = f"the peak of {device.name}, {peak:g}" if device is not None else f"the peak of {peak:g} that the text says"
    message = f"{tflops:g} TFLOPs is above {said}"
    return [row.find("over-peak", "error", message, name="tflops", proposed=_of_one(row, tflops))]


def _share(row: Row) -> list[Finding]:
    """More than the whole peak; twice as much may be of 8 bits and the peak of 16."""
    for name in ("mfu", "hfu"):
        share = row.get(name) or 0.0
        if share > 1.0 and name not in row.reasons and name not in row.record.inferred and not _of_another_peak(row, name):
            others = [mate.get(name) or 0.0 for mate in row.around if mate is not row and 0 < (mate.get(name) or 0.0) <= 1]
            figure = row.printed(name)
            ends = (0.8 * min(others), 1.25 * max(others)) if others else (0.0, 0.0)
            meant = (figure.shown(ends[0]), figure.shown(ends[1])) if figure is not None else ends
            typed = slip(figure.like(figure.value), meant) if figure is not None and others else None
            text = f"{typed.text}{'%' if row.cell(name).endswith('%') else ''}" if typed is not None else None
            row.reasons[name] = "over-peak"
            message = f"{row.column(name)} {row.cell(name)} is more than the device can do"
            return [row.find("over-peak", "error", message, name=name, proposed=text)]
        if share > NEVER and name not in row.reasons and name not in row.record.inferred:
            return _of_a_lesser_peak(row, name, share)
    return []


NEVER = 0.8
"""Of the peak: what no training reaches."""


def _of_a_lesser_peak(row: Row, name: str, share: float) -> list[Finding]:
    """A share that no training reaches, among others that are alike, and that the peaks of two devices of the text explain."""
    others = [its for mate in row.around if mate is not row and (its := mate.get(name))]
    figure = row.printed(name)
    if figure is None or len(others) < ENOUGH_ROWS or max(others) > 1.5 * min(others) or share < 1.5 * max(others):
        return []
    lines = row.sheet.prose[row.record.source_file].lines if row.record.source_file in row.sheet.prose else ()
    peaks = {*map(float, _PEAKS.findall("\n".join(line for line in lines if "eak" in line)[:4000]))}
    meant = {one.text for one in slips(figure.like(figure.value), figure.span(0.8 * min(others), 1.25 * max(others)))}
    meant = meant or {figure.like(share * one / other) for one in peaks for other in peaks
             if one < other and 0.93 * min(others) < share * one / other < 1.07 * max(others)}  # fmt: skip
    text = meant.pop() if len(meant) == 1 else None
    row.reasons[name] = "over-peak"
    why = f"{text}, or over the peak of another device" if text else f"the other rows have up to {figure.like(max(others))}"
    message = f"{row.column(name)} {row.cell(name)} is what no training reaches: {why}"
    text = f"{text}%" if text and row.cell(name).endswith("%") else text
    return [row.find("over-peak", "error" if text else "warning", message, name=name, proposed=text)]


_PEAKS = re.compile(r"(?<![\w.,-])(\d{2,4}(?:\.\d)?)(?![\w%]|[.,]\d| ?(?:W|GB|GiB|%))")
_ALWAYS = re.compile(r"\b[MH]FU\b[^|\n]{0,160}?\b(?:always|everywhere|throughout)\b([^|\n]{0,60})", re.IGNORECASE)


def _of_another_peak(row: Row, name: str) -> bool:
    """`MFU (vs A100)` of an H100, as the heading or a sentence has it: no share of what this device can do."""
    text = row.sheet.prose.get(row.record.source_file)
    said = [match[1] for line in (text.lines if text is not None else ()) if (match := _ALWAYS.search(line))]
    base = next((device for words in (row.column(name), *said) if (device := device_named(words)) is not None), None)
    least, most = (device.peak_tflops.get("bf16", 0.0) if device is not None else 0.0 for device in (base, row.device))
    return 0.0 < least * (row.get(name) or 0.0) <= most


def _of_one(row: Row, tflops: float) -> str | None:
    """What one device of a node does, where that is what the other rows have."""
    others = [mate.record.tflops for mate in row.around if mate is not row and mate.record.tflops]
    each, shown = tflops / (row.procs if row.procs and row.procs > 1 else 8), row.printed("tflops")
    near = len(others) > 1 and shown is not None and 0.8 < each / statistics.median(others) < 1.25
    return shown.like(each) if near and shown is not None else None


def _by_size(mates: list[Row]) -> list[Finding]:
    """TFLOPs and MFU of a table of several models are about six a parameter and token, attention counted or not."""
    if len({row.record.size_label for row in mates[:500]}) < 2:
        return []
    tabular = [row for row in mates[:500] if row.tabular and not row.planned]
    frozen = {row for row in tabular if any(map(FROZEN.search, row.worded.values()))}
    apart = [[row for row in tabular if (row in frozen) == it] for it in (True, False)] if frozen else [tabular]
    return [finding for rows in apart for finding in _of_like_size(rows)]


def _of_like_size(rows: list[Row]) -> list[Finding]:
    """Of rows that all train the whole model, or all leave most of it as it is: four a parameter and token, or two."""
    found: list[Finding] = []
    batches = all(row.record.gbs for row in rows)
    for name in ("tflops", "mfu") if len({row.record.size_label for row in rows}) > 1 else ():
        ways = [{row: share for row in rows if (share := _of_size(row, name, attention, batches))}
                for attention in (0.0, 0.5, 1.0)]  # fmt: skip
        if len(ways[0]) < 4 or len({row.record.size_label for row in ways[0]}) < 2:
            continue
        ordered = [sorted(shares.values()) for shares in ways]
        for row in ways[0]:
            figure = row.printed(name)
            if row.settled or name in row.reasons or figure is None or "size_label" in row.reasons:
                continue
            ranges = [(some[some[0] == shares[row]], some[-1 - (some[-1] == shares[row])])
                      for shares, some in zip(ways, ordered)]  # fmt: skip
            at = min(range(len(ranges)), key=lambda way: ranges[way][1] / ranges[way][0])  # how the other rows count
            offs = [max(low / shares[row], shares[row] / high) for shares, (low, high) in zip(ways, ranges)]
            low, high = ranges[at]
            size = label_parameters(row.record.size_label)
            coarse = 1 + size[1] / size[0] if size else 1.0  # 1B may be 1.4
            near = offs[at] < max(_OFF_SIZE, (high / low) ** 1.5, coarse)
            # Rows that hardly differ show two digits exchanged that are off by less.
            least = min((off for off, (few, many) in zip(offs, ranges) if many <= _ALIKE * few), default=0.0)
            if high > _ALIKE * low or least < 1.1 or near and high > _HARDLY * low:
                continue
            others = [share for mate, share in ways[at].items() if mate is not row]
            if not near and (finding := _of_its_name(row, ways[at][row] / statistics.median(others))) is not None:
                found.append(finding)
                continue
            ends = [figure.shown(figure.value * share / ways[at][row]) for share in (0.93 * low, 1.07 * high)]
            typed = slip(figure.like(figure.value), (ends[0], ends[1]))
            likely = typed is not None and typed.how in ("the point moved", "two digits exchanged")
            if near and not (typed is not None and typed.how == "two digits exchanged"):
                continue
            text = f"{typed.text}{'%' if row.cell(name).endswith('%') else ''}" if typed is not None and likely else None
            about = f"{ends[0]:.3g} to {ends[1]:.3g} for {row.record.size_label} and its tokens, as the other rows have it"
            message = f"{row.column(name)} {row.cell(name)}, but {about}" + (f" ({typed.how})" if typed and likely else "")
            code = "tflops-mismatch" if name == "tflops" else "rate-mismatch"
            found.append(row.find(code, "warning" if near else "error", message, name=name, proposed=text))
    return found


def _of_its_name(row: Row, off: float) -> Finding | None:
    """Parameters that neither the name of the row nor its figures agree with, but both with others: `14B, general` of 7.62B."""
    size = label_parameters(row.record.size_label)
    heading = row.columns.get("size_label")
    if size is None or heading is None or not row.states("size_label"):
        return None
    solved = size[0] * off
    names = [named[0] for other, cell in row.worded.items() if other != heading and (named := label_parameters(clean(cell)))]
    if not any(named > 0 and abs(math.log(named / solved)) < _ROUNDED < abs(math.log(named / size[0])) for named in names):
        return None
    cell = row.cell("size_label")
    number = re.search(r"\d{1,15}(?:[.,]\d{1,15})?", cell)
    typed = float(number[0].replace(",", ".")) if number else 0.0
    if number is None or not typed:
        return None
    meant = f"{typed * off:.{len(number[0].replace(',', '.').partition('.')[2])}f}"
    row.reasons["size_label"] = "label-vs-params"
    message = f"{cell} -> {meant}: by its tokens and speed it has {solved / 1e9:.3g}B parameters, and its name says so"
    return row.find("label-vs-params", "error", message, name="size_label", proposed=meant)


_ROUNDED = 0.12
"""Within which a name rounds the number of parameters."""
_ALIKE, _OFF_SIZE, _HARDLY = 1.35, 1.2, 1.12
"""By which factor rows differ in what they count for a parameter and token; and from which on one is off."""


def _of_size(row: Row, name: str, attention: float, batches: bool) -> float | None:
    """TFLOPs or the share of the peak over what the parameters of the label and the tokens need."""
    record, value, size = row.record, row.get(name), label_parameters(row.record.size_label)
    world, device = row.world, row.device
    total = row.get("tokens_per_s")
    tokens = row.get("tokens_per_s_per_process") or (total and world and total / world)
    if not tokens and record.sec_per_it and batches:
        tokens = (record.gbs or 1) * (row.seq or 1) / record.sec_per_it / (world or 1)
    if not value or not tokens or not size or not size[0] or row.mixture or name in record.inferred:
        return None
    peak = (device.peak_tflops.get("bf16") if device else None) if name != "tflops" else 1.0
    if peak is None and any(mate.device is not None for mate in row.around[:capacity.MOST_SEEN]):
        return None  # beside those of devices that are known a share of nobody knows what says nothing
    peak = peak or 1.0
    # Of a usual shape: the hidden size is about 128 for each layer.
    layers = row.record.layers or (size[0] / (12 * 128**2)) ** (1 / 3)
    more = attention * 12 * layers * (row.record.hidden or 128 * layers) * (row.seq or 2048)
    return value * peak * 1e12 / ((6 * size[0] + more) * tokens)


_LEAST = Reading(formula="parameters", recompute="none")
"""The fewest FLOPs that anybody counts: six for each parameter and token."""


def _too_fast(row: Row, name: str, peak: float) -> list[Finding]:
    """A time that the device could not reach at its peak, in a row without TFLOPs."""
    sec, gbs, world = row.get("sec_per_it"), row.get("gbs"), row.world
    stated = row.record.layers and row.record.hidden and row.record.seq and row.vocab
    if not sec or not gbs or not world or not stated or row.settled or row.guessed:
        return []
    if row.record.gpus is None and row.product is None and row.record.procs_per_node is None:
        return []  # nodes of nobody knows how many devices
    each = _LEAST.per_sample(row)
    tflops = each * gbs / (sec * world * 1e12) if each else 0.0
    if tflops <= 1.1 * peak:
        return []
    message = f"{sec:g} s for {gbs:g} sequences on {world} devices are {tflops:.4g} TFLOPs each, above the {peak:g} of {name}"
    return [row.find("over-peak", "error", message, name="sec_per_it")]


_BATCH = operator.attrgetter("dp", "mbs", "gbs", "pp")


def _slots(row: Row) -> float | None:
    """Micro-batch times of one iteration: those of a replica and the filling of the pipeline."""
    dp, mbs, gbs, pp = map(row.whole, ("dp", "mbs", "gbs", "pp")) if row.fixed else _BATCH(row.record)
    if dp and mbs and gbs:
        return gbs / (dp * mbs) + (pp or 1) - 1
    if gbs and (steps := row.beside("ga")):
        return steps + (pp or 1) - 1.0
    return gbs if pp in (None, 1) else None  # in proportion, where the micro-batch is the same


def _of_half_the_batch(group: list[Row], worst: Row, rates: dict[Row, float]) -> bool:
    """Where the micro-batches are not said in full: only a time that is off by a factor of two from rows that hardly differ."""
    if all(row.whole("dp") and row.whole("mbs") for row in group):
        return True
    others = [rate for row, rate in rates.items() if row is not worst]
    off = abs(math.log(rates[worst] / statistics.median(others)))
    return len(others) > 2 and max(others) < 1.05 * min(others) and abs(off - math.log(2)) < 0.05


def _proven(row: Row, series: list[Row]) -> bool:
    """Whether other figures follow from the row's time and batch, and it is as fast as the others of its series: nothing is
    wrong then."""
    broken, kept = broken_and_kept(row)
    others = [mate.record.tflops for mate in series if mate is not row and mate.record.tflops]
    usual = (row.record.tflops or 0.0) > 0.9 * statistics.median(others) if others else False
    return usual and not broken and any({"sec_per_it", "gbs"} <= {name for name, _ in relation.terms} for relation, _ in kept)


def _scaling(mates: list[Row]) -> list[Finding]:
    found: list[Finding] = []
    timed = [row for row in mates if row.get("sec_per_it")]
    if len({row.get("gbs") for row in timed}) < 2:
        return found
    each = {row: (row.get("sec_per_it") or 0.0) / slots for row in timed if (slots := _slots(row))}

    def apart(rows: list[Row]) -> bool:
        rates = [each[row] for row in rows]
        return len({row.get("gbs") for row in rows}) > 1 and max(rates) / min(rates) >= 1 + _OFF_SCALE

    for group in _series(list(each)[:2000], "gbs", apart):
        if not apart(group):
            continue
        rates = {row: each[row] for row in group}
        worst = _outlier(group, rates)
        if not _of_half_the_batch(group, worst, rates) or _proven(worst, group):
            continue
        other = min((row for row in group if row is not worst), key=lambda row: abs((_slots(row) or 0) - (_slots(worst) or 0)))
        one, two = _slots(worst) or 1.0, _slots(other) or 1.0
        expected = (other.get("sec_per_it") or 0.0) * one / two
        seconds = worst.get("sec_per_it") or 0.0
        if abs(math.log(seconds / expected)) < _OFF_SCALE or {"sec_per_it", "gbs"} & set(worst.reasons) or _rate_agrees(worst):
            continue
        message = (
            f"GBS {worst.whole('gbs')} takes {seconds:g} s where GBS {other.whole('gbs')} ({other.where}) takes "
            f"{other.get('sec_per_it'):g} s: {one:g} against {two:g} micro-batch times predict about {expected:.3g} s; "
            "a slow run, or another GBS"
        )
        found.append(worst.find("gbs-scaling-outlier", "warning", message, name="sec_per_it"))
    return found


def _rate_agrees(row: Row) -> bool:
    """Whether a rate of the row is that of its batch and its time, as in the other rows: then neither is another one's."""
    for relation in relations.relations_of(row):
        rule = relations.rule_of(row, relation) if relation.exact and ("gbs", -1) in relation.terms else None
        found = relations.off_by(row, relation, rule) if rule is not None and rule.support >= ENOUGH_ROWS else None
        if found is not None and abs(found[0]) <= found[1]:
            return True
    return False


ENOUGH_ROWS = 3


def _outlier(group: list[Row], rates: dict[Row, float]) -> Row:
    """With three or more the one far from the rest; of two the slower, since a run is slowed more easily than sped up."""
    if len(group) > 2:
        usual = statistics.median(rates.values())
        return max(group, key=lambda row: abs(math.log(rates[row] / usual)))
    return max(group, key=lambda row: rates[row])
