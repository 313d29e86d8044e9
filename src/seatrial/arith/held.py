"""What the schedule makes a pipeline rank hold when it holds most, counted in layers and messages; no bytes yet.

    held_by("1f1b", pp=4, rank=0, microbatches=8, layers=(3,), gpu=False, cut=False)    [Held(layers=12, running=3, …), …]

Before the k-th backward pass of a rank, as many forward passes are done as its list says (`schedule/lists.py`), and between two
changes of the chunk at work what is held grows or shrinks evenly. So few of the passes can be the fullest, and those that
another one outdoes in everything are left out.
"""
from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from seatrial.schedule import KINDS, Action, Kind, comes_from, goes_to, schedule, splits_backward


class Held(NamedTuple):
    """At one backward pass. Numbers, or one a layout."""

    layers: int
    """(Micro-batch, layer) pairs whose activations are there …"""
    deferred: int
    """… and whose weight gradients wait."""
    running: int
    """Layers of the chunk at work."""
    low: int
    """1 at the pass's last layer, 0 at its first."""
    fresh: int
    """Whether this pass is the first to give the chunk gradients …"""
    ready: int
    """… and layers of other chunks that have theirs."""
    head: int
    """Whether the chunk at work has the head …"""
    starts: int
    """… and the embedding."""
    head_ready: int
    words_ready: int
    """Whether head and embedding have their gradients before the pass. All of these on a GPU, where gradients do not stay."""
    number: int
    """Backward passes that went before …"""
    updated: int
    """… and those of them whose weight gradients came, where these wait. Both where replicas share gradients."""
    follows: int
    """Whether a forward pass went right before."""
    enters: int
    """Whether the forward pass right before this one went through the embedding …"""
    left_words: int
    """… after a backward pass that ended with it."""
    words: int
    """Micro-batches held of the chunk with the embedding …"""
    heads: int
    """… and of that with the head."""
    lingers: int
    """Whether what the last of the weights' GEMMs took is still there."""
    messages: int
    """Received ahead, and sent and not yet read."""


@lru_cache(maxsize=1 << 16)
def held_by(kind: str, *, pp: int, rank: int, microbatches: int, layers: tuple[int, ...], gpu: bool,
            cut: bool) -> tuple[Held, ...]:
    """`layers`: of each virtual stage of this rank; `cut`: whether replicas share gradients (ZeRO 2 and 3)."""
    vp, splits = len(layers), splits_backward(kind)
    if not KINDS[kind].forwards_first:
        # More of them hold no more.
        microbatches = min(microbatches, 2 * pp * (vp + 1))
    passes = microbatches * vp
    ahead = {"gpipe": passes, "interleaved": 2 * (pp - rank - 1) + (vp - 1) * pp}.get(kind, pp - rank - 1)
    ahead = min(ahead, passes)
    delay, comes = rank if splits else 0, gpu and not cut
    unread = [] if gpu or pp == 1 or kind == "gpipe" else _unread(kind, pp, rank, microbatches, vp)
    found: list[Held] = []
    for k in _passes(ahead, passes, delay, pp, vp):
        done = min(passes, ahead + k + 1)
        forward = [_of_chunk(done, c, pp, vp) for c in range(vp)]
        backward = [_of_chunk(k, vp - 1 - c, pp, vp) for c in range(vp)]
        waits = min(k, delay) * splits
        at = vp - 1 - k // pp % vp if vp > 1 else 0
        running, fresh = layers[at], int(comes and backward[at] == 0)
        is_last, is_first = rank == pp - 1, rank == 0
        held = Held(
            layers=sum((f - b) * n for f, b, n in zip(forward, backward, layers)), deferred=waits * layers[0], running=running,
            low=0, fresh=fresh, ready=comes * sum(n for n, b in zip(layers, backward) if b), head=int(is_last and at == vp - 1),
            starts=int(is_first and at == 0), head_ready=int(comes and is_last and backward[-1] > 0),
            words_ready=int(comes and is_first and backward[0] > 0), number=cut * k, updated=cut * splits * max(0, k - delay),
            follows=int(ahead + k < passes), enters=int(cut and is_first and ahead + k < passes and (done - 1) // pp % vp == 0),
            left_words=int(cut and is_first and k > 0 and (vp == 1 or (k - 1) // pp % vp == vp - 1)),
            words=(forward[0] - backward[0]) * is_first, heads=(forward[-1] - backward[-1]) * is_last,
            lingers=int(splits and k > delay),
            messages=_messages(kind, pp, rank, k, done, passes, delay, unread=unread[k] if unread else None),
        )  # fmt: skip
        found.append(held)
        if running > 1 and (splits or fresh):
            others = running - 1
            found.append(held._replace(layers=held.layers - others, deferred=held.deferred + others * splits, low=1))
    return fullest(found)


def fullest(found: Iterable[Held]) -> tuple[Held, ...]:
    """Without those that another one outdoes in everything."""
    kept: list[Held] = []
    for one in found:
        if not any(_outdoes(other, one) for other in kept):
            kept = [other for other in kept if not _outdoes(one, other)] + [one]
    return tuple(kept)


def _passes(ahead: int, passes: int, delay: int, pp: int, vp: int) -> list[int]:
    """Backward passes between which what is held changes evenly."""
    turns = {0, 1, passes - ahead - 1, passes - ahead, delay - 1, delay, delay + 1, passes - 1}
    if vp > 1:
        for turn in range(0, 2 * pp * vp, pp):
            turns |= {turn, turn + 1, turn - 1, turn - (ahead + 1) % pp, turn - (ahead + 1) % pp - 1}
    return sorted(k for k in turns if 0 <= k < passes)


def _of_chunk(done: int, place: int, pp: int, vp: int) -> int:
    """Of so many passes, those of the chunk at this place in the order: groups of PP go through all chunks."""
    if vp == 1:
        return done
    groups, rest = divmod(done, pp * vp)
    return groups * pp + min(pp, max(0, rest - place * pp))


def _messages(kind: str, pp: int, rank: int, k: int, done: int, passes: int, delay: int, *, unread: int | None) -> int:
    """The next action's is expected; what was sent is held until it must have been read. None: NCCL knows when it has left."""
    if pp == 1:
        return 0
    virtual, is_first, is_last = kind == "interleaved", rank == 0, rank == pp - 1
    if splits_backward(kind) and k >= delay:
        expected = False
    else:
        expected = virtual or (not is_first if done < passes else k + 1 < passes and not is_last)
    if unread is None:
        unread = int(virtual or not is_last or k > 0)
    return expected + unread


@lru_cache(maxsize=1 << 12)
def _unread(kind: str, pp: int, rank: int, microbatches: int, vp: int) -> list[int]:
    """Before each backward pass, messages that their readers may not have come to (`engine/core/pipeline.py`)."""
    near = {r: {action: at for at, action in enumerate(schedule(kind, pp=pp, rank=r, microbatches=microbatches, virtual=vp))}
            for r in {rank, (rank - 1) % pp, (rank + 1) % pp}}
    sent: list[tuple[int, Action]] = []
    found: list[int] = []
    last: tuple[int, Action] | None = None
    for action in near[rank]:
        if source := comes_from(action, pp=pp, rank=rank, virtual=vp):
            order = near[source[0]]
            sent = [one for one in sent if one[0] != source[0] or order[one[1]] >= order[source[1]]]
        if action.kind is Kind.BACKWARD:
            # The last output is held by its name.
            found.append(len(sent) + (last is not None and last not in sent))
        if target := goes_to(action, pp=pp, rank=rank, virtual=vp):
            sent.append(target)
            last = target if action.kind is Kind.FORWARD else last
    return found


def _outdoes(one: Held, other: Held) -> bool:
    """Whether `other` can never be the fuller one of the two."""
    if one.low != other.low or one.head != other.head or one.starts != other.starts or one.running != other.running:
        return False
    ready = other.ready + (other.fresh > one.fresh) * other.running, other.head_ready, other.words_ready
    return (all(mine >= theirs for mine, theirs in zip((one.ready, one.head_ready, one.words_ready), ready))
            and all(getattr(one, name) >= getattr(other, name) for name in MORE_IS_FULLER)
            # A layer keeps no less than a message is.
            and one.layers + one.messages >= other.layers + other.messages
            and one.number >= min(1, other.number) and (not other.deferred or one.number == other.number))


MORE_IS_FULLER = ("layers", "deferred", "words", "heads", "lingers", "follows", "enters", "left_words")
