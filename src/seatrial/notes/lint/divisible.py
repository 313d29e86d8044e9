"""What must divide: the batch over the replicas, layers over stages, heads over tensor parallelism, hidden over heads."""

from __future__ import annotations

from seatrial.notes.lint.finding import Finding
from seatrial.notes.lint.sheet import Row, Sheet, mode


def check(sheet: Sheet) -> list[Finding]:
    return [finding for row in sheet.rows for rule in (batch, layers, heads, hidden) for finding in rule(row)]


def _around(value: int, step: int) -> str:
    low = value // step * step
    return f"{low} and {low + step}" if low else f"{step}"


def batch(row: Row) -> list[Finding]:
    dp, mbs, gbs = row.whole("dp"), row.whole("mbs"), row.whole("gbs")
    if not dp or not mbs or not gbs or gbs % (dp * mbs) == 0:
        return []
    planned = " (the row never ran, and could not)" if row.record.state == "planned" else ""
    if gbs < dp * mbs:
        said = f"GBS {gbs} is less than DP {dp} x MBS {mbs} = {dp * mbs}: not one micro-batch for each replica{planned}"
        return [row.find("batch-divisible", "error", said, name="gbs")]
    said = f"GBS {gbs} is not a multiple of DP {dp} x MBS {mbs} = {dp * mbs}: the nearest are {_around(gbs, dp * mbs)}{planned}"
    name, proposed = _meant(row, dp, mbs, gbs)
    if proposed is not None:
        return [
            row.find(
                "batch-divisible",
                "error",
                f"{said}; {row.column(name)} {proposed} as in the other rows would do",
                name=name,
                proposed=str(proposed),
            )
        ]
    return [row.find("batch-divisible", "error", said, name="gbs")]


def _meant(row: Row, dp: int, mbs: int, gbs: int) -> tuple[str, int | None]:
    """The batch or micro-batch that the rest of the table has, where it would divide."""
    mates = [mate.record for mate in row.around if mate is not row]
    usual, often = mode(mate.gbs for mate in mates)
    if isinstance(usual, int) and often > len(mates) / 2 and usual != gbs and usual % (dp * mbs) == 0:
        return "gbs", usual
    usual, often = mode(mate.mbs for mate in mates)
    if isinstance(usual, int) and often > 0.8 * len(mates) and usual != mbs and gbs % (dp * usual) == 0:
        return "mbs", usual
    return "gbs", None


def layers(row: Row) -> list[Finding]:
    count, pp = row.layers, row.whole("pp")
    stages = (pp or 1) * (row.record.vp or 1)
    if not count or stages == 1 or count % stages == 0 or (count + 2) % stages == 0:
        return []
    failed = ", which is why it failed" if row.record.state == "failed" else ""
    swap = _exchange(row)
    said = (
        f"{count} layers over PP {pp}: {count} % {stages} = {count % stages}, and with the embedding's places "
        f"{count + 2} % {stages} = {(count + 2) % stages}{failed}{swap}"
    )
    return [row.find("layers-divisible", "error", said, name="pp", proposed=str(row.record.tp) if swap else None)]


def heads(row: Row) -> list[Finding]:
    count, tp = row.record.heads, row.whole("tp")
    if not count or not tp or count % tp == 0:
        return []
    swap = _exchange(row)
    said = f"{count} heads over TP {tp}: {count} % {tp} = {count % tp}{swap}"
    return [row.find("heads-divisible", "error", said, name="tp", proposed=str(row.record.pp) if swap else None)]


def hidden(row: Row) -> list[Finding]:
    size, count = row.record.hidden, row.record.heads
    if not size or not count or size % count == 0:
        return []
    name = "heads" if row.states("heads") or not row.states("hidden") else "hidden"
    return [
        row.find("heads-divisible", "error", f"hidden {size} over {count} heads: {size} % {count} = {size % count}", name=name)
    ]


def _exchange(row: Row) -> str:
    """Whether TP and PP in each other's place would divide."""
    tp, pp, count = row.whole("tp"), row.whole("pp"), row.layers
    if not tp or not pp or tp == pp or not count:
        return ""
    fits = (count % tp == 0 or (count + 2) % tp == 0) and not (row.record.heads and row.record.heads % pp)
    mates = [mate.record for mate in row.around if mate is not row]
    known = any(mate.tp == pp and mate.pp == tp for mate in mates) or mode(mate.tp for mate in mates)[0] == pp
    return f"; TP {pp} and PP {tp}, exchanged, would divide" if fits and known else ""
