"""The debug mode: ranks that are about to enter different collectives say so, instead of waiting for each other for ever."""
from __future__ import annotations

from dist.looping import disagree
from dist.many import in_world


def test_ranks_out_of_order_are_found_before_they_hang():
    zero, one = in_world(2, disagree)
    assert "rank 0 is at collective 2 all_reduce (4,)" in zero and "ranks [1] are elsewhere" in zero
    assert "rank 1 is at collective 2 all_reduce (8,)" in one and "ranks [0] are elsewhere" in one
