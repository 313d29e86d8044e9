"""Schedules that exist, for tests that state laws over all of them."""
from __future__ import annotations

from hypothesis import strategies as st

from seatrial.schedule import KINDS


@st.composite
def layouts(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(KINDS)) -> dict:
    """Arguments of any schedule that exists with pp 1..8, micro-batches 1..32, virtual stages 1..4."""
    kind = draw(st.sampled_from(kinds))
    virtual = KINDS[kind].virtual
    pp = draw(st.integers(2 if virtual else 1, 8))
    group = KINDS[kind].group(pp)
    return {"kind": kind, "pp": pp, "microbatches": group * draw(st.integers(1, 32 // group)),
            "virtual": draw(st.integers(2, 4)) if virtual else 1}


@st.composite
def timed_layouts(draw: st.DrawFn) -> dict:
    """The same with durations: all stages alike, or each its own; B and W apart, or whole; messages that take time, or none."""
    layout = draw(layouts())
    stages = layout["pp"] * layout["virtual"]
    seconds = st.floats(0.1, 2.0)

    def one_or_each(values: st.SearchStrategy[float], count: int) -> float | list[float]:
        return draw(values | st.lists(values, min_size=count, max_size=count))

    return layout | {
        "forward_s": one_or_each(seconds, stages),
        "backward_s": one_or_each(seconds, stages),
        "weight_s": one_or_each(seconds, stages) if draw(st.booleans()) else None,
        "send_s": one_or_each(st.just(0.0) | st.floats(0.0, 1.0), stages - 1),
    }
