"""A case, made of a seed and a number alone: what goes wrong, and what is expected of it by reasoning about the fault.

    draw(7, 12)         Case(kind="exit", layout=…, rank=2, moment="backward", step=3, outcomes=("crash",), culprits=(2,), …)

Kinds come in decks: of so many cases in a row, each kind is there as often as its weight says.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

STEPS, SAVE_EVERY, STALL_S = 6, 2, 5.0
START_S = 10.0
"""The limit on silence before the first step."""
DEATH_S, HANG_S = 2.0, STALL_S + 5.0
"""The bars: from the fault to the verdict."""
CAP_GIB = 1.0


@dataclass(frozen=True, kw_only=True)
class Layout:
    dp: int = 1
    tp: int = 1
    pp: int = 1
    vp: int = 1
    zero: int = 0
    schedule: str = "1f1b"
    recompute: str = "none"
    sequence_parallel: bool = False

    @property
    def world(self) -> int:
        return self.dp * self.tp * self.pp

    def __str__(self) -> str:
        words = [f"{name}{value}" for name, value in (("dp", self.dp), ("tp", self.tp), ("pp", self.pp), ("vp", self.vp),
                                                      ("z", self.zero)) if value > (name != "z")]
        words += [w for w in (self.schedule,) if self.pp > 1 and w != "1f1b"]
        words += [w for w in (self.recompute,) if w != "none"]
        return "-".join([*words, *(["sp"] if self.sequence_parallel else [])])

    def group(self, name: str, rank: int) -> tuple[int, ...]:
        """Ranks that share its group: tensor parallel ranks lie closest, then replicas, then stages."""
        tp, dp = self.tp, self.dp
        same: dict[str, Callable[[int], object]] = {
            "tp": lambda r: r // tp, "dp": lambda r: (r // (tp * dp), r % tp), "pp": lambda r: r % (tp * dp),
            "world": lambda r: 0}  # fmt: skip
        return tuple(r for r in range(self.world) if same[name](r) == same[name](rank))

    def stage(self, rank: int) -> int:
        return rank // (self.tp * self.dp)


SMALL = tuple(Layout(**words) for words in (
    {"dp": 2}, {"tp": 2}, {"pp": 2}, {"dp": 2, "zero": 1}, {"dp": 2, "zero": 2}, {"dp": 2, "zero": 3}, {"pp": 3},
    {"dp": 3, "zero": 1}, {"tp": 2, "sequence_parallel": True}, {"pp": 2, "vp": 2, "schedule": "interleaved"},
))  # fmt: skip
MEDIUM = tuple(Layout(**words) for words in (
    {"dp": 2, "tp": 2}, {"dp": 2, "pp": 2, "zero": 1}, {"tp": 2, "pp": 2}, {"dp": 4, "zero": 2}, {"pp": 4},
    {"pp": 4, "schedule": "gpipe"}, {"pp": 4, "schedule": "zb-h1"}, {"tp": 4}, {"dp": 2, "tp": 2, "zero": 3},
    {"dp": 2, "pp": 2, "vp": 2, "schedule": "interleaved", "recompute": "full"}, {"dp": 2, "tp": 2, "recompute": "selective"},
))  # fmt: skip
LARGE = tuple(Layout(**words) for words in (
    {"dp": 2, "tp": 2, "pp": 2, "zero": 1}, {"dp": 2, "pp": 3}, {"tp": 2, "pp": 3}, {"dp": 4, "pp": 2, "zero": 2},
))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    seed: int
    index: int
    kind: str
    ground: str = "ranks"
    """Who runs it: `ranks` of this machine, a `controller` that is killed, two `hosts`, a `sweep`, `slurm`."""
    engine: str = "seatrial"
    layout: Layout = field(default_factory=lambda: Layout(dp=2))
    background: bool = True
    """Whether checkpoints are written beside training."""
    rank: int = 0
    moment: str = ""
    """A phase of the rank, or of what the campaign sees from outside: `launch`, `outside`."""
    step: int = 0
    argument: float = 0.0
    delay_s: float = 0.0
    """From the moment to an act from outside."""
    outcomes: tuple[str, ...] = ()
    """Any of these is right."""
    culprits: tuple[int, ...] = ()
    """Any of these ranks is right; none: no rank can be named."""
    resumes: bool | None = None
    """Whether a whole checkpoint must be there to go on from; None: it depends on how fast the disk was."""
    bar_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "layout": str(self.layout)}


Maker = Callable[[random.Random, Case], Case]
ANY = ("join", "build", "start", "forward", "backward", "data", "reduce", "optimizer", "report", "save", "finish")


def placed(rng: random.Random, case: Case, moments: tuple[str, ...]) -> Case:
    """A moment, the step that belongs to it, and a rank that comes there."""
    moment = rng.choice(moments)
    step = {"join": 0, "build": 0, "launch": 0, "finish": STEPS}.get(moment, rng.randint(1, STEPS))
    ranks = list(range(case.layout.world))
    if moment == "save":
        step = rng.randrange(SAVE_EVERY, STEPS + 1, SAVE_EVERY)
        if case.layout.zero == 0:
            # Replicas that hold the same write nothing.
            ranks = [r for r in ranks if r // case.layout.tp % case.layout.dp == 0]
    if moment == "data":
        # Only the first and the last stage read any.
        ranks = [r for r in ranks if case.layout.stage(r) in (0, case.layout.pp - 1)]
    if moment == "outside":
        step = rng.randint(1, STEPS - 2)
    return resumable(replace(case, moment=moment, step=step, rank=rng.choice(ranks),
                             delay_s=rng.uniform(0.0, 2.0) if moment == "launch" else rng.uniform(0.0, 0.03)))


def resumable(case: Case) -> Case:
    """Whether a checkpoint is whole by then.

    It is when rank 0 has left its save, or, beside training, the save after it. A step's sums keep the ranks together: who is
    behind them knows that rank 0 has left the step before, and who is not, the one before that. Where training waits for saves
    rank 0 hears of nothing until its own is whole.
    """
    saved = case.step if case.moment in ("report", "finish") else case.step - 1
    begun = saved // SAVE_EVERY * SAVE_EVERY if case.step else 0
    left = saved
    if case.background and case.rank:
        left = case.step - (1 if case.moment in ("save", "report", "finish") else 2)
    sure = left // SAVE_EVERY * SAVE_EVERY
    if case.background and not (case.moment == "save" and case.rank == 0):
        sure -= SAVE_EVERY
    if case.moment == "outside":
        begun = STEPS  # it may act a few steps later
    return replace(case, resumes=True if sure >= SAVE_EVERY else False if begun < SAVE_EVERY else None)


def death(moments: tuple[str, ...] = ANY, *, arguments: tuple[float, ...] = (0.0,)) -> Maker:
    """A rank that ends, however: a crash, and it was that rank."""

    def make(rng: random.Random, case: Case) -> Case:
        case = placed(rng, case, moments)
        return replace(case, outcomes=("crash",), culprits=(case.rank,), bar_s=DEATH_S, argument=rng.choice(arguments))

    return make


def hang(moments: tuple[str, ...]) -> Maker:
    """A rank that stands still: the others wait for it, and it is the one."""

    def make(rng: random.Random, case: Case) -> Case:
        case = placed(rng, case, moments)
        return replace(case, outcomes=("hang",), culprits=(case.rank,), bar_s=HANG_S if case.step else START_S + 5.0)

    return make


def term(rng: random.Random, case: Case) -> Case:
    """Asked to stop, one rank tells all and they leave with a checkpoint. Who is asked in the last step finishes; before there
    is anything to save the signal ends the rank."""
    case = placed(rng, case, ("join", "build", "start", "forward", "optimizer", "report", "finish", "outside"))
    if case.step == 0:
        return replace(case, outcomes=("crash", "cancelled"), culprits=(case.rank,), bar_s=DEATH_S)
    outcomes = ("cancelled",) if case.step < STEPS - 1 and case.moment != "outside" else ("ok", "cancelled")
    return replace(case, outcomes=outcomes, resumes=True)


def skipped(rng: random.Random, case: Case) -> Case:
    """A rank that leaves out a sum: its group waits for it. Needs a group whose sum is not the step's last."""
    while case.layout.tp == case.layout.dp == 1:
        case = replace(case, layout=rng.choice(MEDIUM))
    return hang(("start",))(rng, case)


def first_sum(case: Case) -> tuple[int, ...]:
    """The group of the first sum of a step."""
    return case.layout.group("tp" if case.layout.tp > 1 else "dp" if case.layout.dp > 1 else "world", case.rank)


def doubled(rng: random.Random, case: Case) -> Case:
    """A rank that is one sum ahead of its group for ever after. What it sends meets sums of another size, on any rank of the
    group; and no counter has seen the second call, so that nobody can tell who is right."""
    case = placed(rng, case, ("start",))
    return replace(case, outcomes=("hang", "crash"), culprits=first_sum(case), bar_s=HANG_S)


def misshapen(rng: random.Random, case: Case) -> Case:
    """A sum of another size on one rank: the group cannot go on, and any of it may be the first to meet what does not fit."""
    case = placed(rng, case, ("start",))
    return replace(case, outcomes=("crash", "hang"), culprits=first_sum(case), bar_s=HANG_S)


def message(rng: random.Random, case: Case) -> Case:
    """A message to a neighbouring stage that is larger than what waits for it: one of the two ends fails."""
    while case.layout.pp == 1:
        case = replace(case, layout=rng.choice(SMALL + MEDIUM))
    case = placed(rng, case, ("start",))
    line, at = case.layout.group("pp", case.rank), case.layout.stage(case.rank)
    near = {case.rank, line[(at + 1) % len(line)], line[at - 1]}
    return replace(case, outcomes=("crash", "hang"), culprits=tuple(sorted(near)), bar_s=HANG_S)


def nan(rng: random.Random, case: Case) -> Case:
    case = placed(rng, case, ("start",))
    return replace(case, outcomes=("nan",), culprits=(case.rank,), resumes=False)


def oom(rng: random.Random, case: Case) -> Case:
    case = placed(rng, case, ("build", "start", "forward", "backward", "optimizer"))
    return replace(case, outcomes=("oom_host",), culprits=(case.rank,), bar_s=DEATH_S)


def leak(rng: random.Random, case: Case) -> Case:
    """250 MiB a step from the first on: 1 GiB holds no more than three of them."""
    case = replace(placed(rng, case, ("start",)), step=1, argument=250.0)
    return replace(resumable(case), outcomes=("oom_host",), culprits=(case.rank,), resumes=None)


def slow_rank(rng: random.Random, case: Case) -> Case:
    case = replace(placed(rng, case, ("forward", "optimizer", "data")), step=1)
    return replace(case, outcomes=("ok",), argument=0.05 if case.moment == "forward" else 0.1, resumes=False)


def slow_disk(rng: random.Random, case: Case) -> Case:
    """A save of about eight seconds that moves all the time: longer than the limit on silence, and no hang."""
    case = placed(rng, case, ("save",))
    chunks = 3 * 12 * 4 / case.layout.pp / (1.5 * case.layout.dp if case.layout.zero else 1.0)
    return replace(case, step=STEPS, outcomes=("ok",), argument=round(8.0 / chunks, 3), resumes=False)


def dead_disk(rng: random.Random, case: Case) -> Case:
    return hang(("save",))(rng, case)


def full_disk(rng: random.Random, case: Case) -> Case:
    """Room for one checkpoint and a half: the second cannot be written. Any rank that writes meets it first. Beside training a
    rank may begin with the second while another still writes the first, and leave it no room."""
    return replace(case, moment="save", step=2 * SAVE_EVERY, outcomes=("crash",), culprits=tuple(range(case.layout.world)),
                   resumes=None if case.background else True)


def damaged(rng: random.Random, case: Case) -> Case:
    """After a kill in step 5 the newest checkpoint is damaged: a resume says so, or goes on from an older one; it never trains
    on what it cannot trust."""
    case = replace(case, background=False, moment="start", step=5, rank=rng.randrange(case.layout.world))
    return replace(case, outcomes=("invalid", "ok"), resumes=True)


def rolled_back(rng: random.Random, case: Case) -> Case:
    """`latest` names an older checkpoint and what is newer is damaged: what is trained again is written again."""
    return replace(damaged(rng, case), outcomes=("ok",))


def lost_pointer(rng: random.Random, case: Case) -> Case:
    """A pointer that cannot be read: all checkpoints are whole, so a resume goes on, or says in a line what is wrong."""
    return damaged(rng, case)


def controller(rng: random.Random, case: Case) -> Case:
    """Killed, it takes its ranks along; the next one goes on."""
    return replace(placed(rng, case, ("launch", "outside", "outside")), ground="controller")


def agent(rng: random.Random, case: Case) -> Case:
    """The agent of the second of two hosts is killed, and its ranks with it: one of those is the cause."""
    case = replace(case, ground="hosts", layout=rng.choice((Layout(dp=2), Layout(pp=2), Layout(dp=2, tp=2), Layout(pp=4))))
    case = placed(rng, case, ("outside",))
    half = case.layout.world // 2
    return replace(case, rank=half, outcomes=("crash",), culprits=tuple(range(half, 2 * half)), bar_s=DEATH_S)


def slow_link(rng: random.Random, case: Case) -> Case:
    case = replace(agent(rng, case), ground="links", moment="launch", argument=rng.choice((4.0, 8.0, 16.0)))
    return replace(case, outcomes=("ok",), culprits=(), resumes=False, bar_s=None)


def cut_link(rng: random.Random, case: Case) -> Case:
    """Both sides wait for each other, or one is told; no rank is to blame."""
    return replace(agent(rng, case), ground="links", outcomes=("hang", "crash"), culprits=(), bar_s=HANG_S)


def slurm_daemon(rng: random.Random, case: Case) -> Case:
    """The daemon of a node is killed and comes back: the job's own processes go on without it."""
    case = replace(case, ground="slurm", layout=rng.choice((Layout(dp=2), Layout(pp=2), Layout(tp=2))), background=False)
    case = placed(rng, case, ("outside",))
    return replace(case, outcomes=("ok",), resumes=False, argument=round(rng.uniform(0.5, 3.0), 2))


def slurm_node(rng: random.Random, case: Case) -> Case:
    """A node and all that runs on it is lost: its rank is the cause."""
    return replace(slurm_daemon(rng, case), outcomes=("crash",), culprits=(1,), rank=1, resumes=None)


def sweeping(rng: random.Random, case: Case) -> Case:
    """A sweep of small commands whose controller is killed, or whose logbook is damaged, and that is then gone on with."""
    return replace(case, ground="sweep", layout=Layout(), moment="outside", delay_s=rng.uniform(0.0, 1.5), outcomes=("ok",),
                   resumes=True)


WAITS = ("build", "start", "forward", "backward", "data", "reduce", "optimizer", "report")
"""Where a rank may stand still; before the first step the limit is another."""
KINDS: dict[str, tuple[int, Maker]] = {
    "die": (3, death((*ANY, "launch", "outside", "outside"))),
    "segv": (1, death((*ANY, "launch", "outside"))),
    "abrt": (1, death((*ANY, "outside"))),
    "term": (1, term),
    "exit": (3, death(arguments=(0.0, 7.0, 1.0))),
    "raise": (3, death()),
    "spin": (2, hang(WAITS)),
    "busy": (1, hang(WAITS)),
    "sleep": (2, hang(WAITS)),
    "stop": (2, hang(("join", *WAITS, "save", "outside", "outside"))),
    "skip": (1, skipped),
    "double": (1, doubled),
    "shape": (1, misshapen),
    "message": (1, message),
    "nan": (1, nan),
    "oom": (1, oom),
    "leak": (1, leak),
    "slow": (1, slow_rank),
    "slow_disk": (1, slow_disk),
    "dead_disk": (1, dead_disk),
    "full_disk": (1, full_disk),
    "flip": (1, damaged),
    "torn": (1, damaged),
    "gone": (1, damaged),
    "back": (1, rolled_back),
    "pointer": (1, lost_pointer),
    "controller": (2, controller),
    "agent": (1, agent),
    "slow_link": (1, slow_link),
    "cut_link": (1, cut_link),
    "slurmd": (1, slurm_daemon),
    "node": (1, slurm_node),
    "sweep_kill": (1, sweeping),
    "book_torn": (1, sweeping),
    "book_flip": (1, sweeping),
}  # fmt: skip
DECK = [kind for kind, (weight, _) in KINDS.items() for _ in range(weight)]
FAULT_OF = {"dead_disk": "sleep", "slow_disk": "slow", **{kind: "die" for kind in ("flip", "torn", "gone", "back", "pointer")}}
"""What the rank does where the kind is called otherwise."""


def draw(seed: int, index: int) -> Case:
    deck, place = divmod(index, len(DECK))
    order = random.Random(f"deck {seed} {deck}").sample(DECK, len(DECK))
    rng = random.Random(f"case {seed} {index}")
    layouts = rng.choices((SMALL, MEDIUM, LARGE), weights=(60, 32, 8))[0]
    case = Case(seed=seed, index=index, kind=order[place], layout=rng.choice(layouts), background=rng.random() < 0.5)
    return KINDS[case.kind][1](rng, case)
