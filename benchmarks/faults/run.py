"""Lets a case happen and measures what came of it.

    Campaign(Path("work")).run(draw(7, 12))     {"outcome_right": True, "culprit_right": True, "verdict_s": 0.4, …}

What a run that was never hurt gives (losses, checkpoints) is made once a layout and kept in the work folder.
"""
from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.faults import books, hosts, slurm, warm
from benchmarks.faults.draw import CAP_GIB, FAULT_OF, SAVE_EVERY, STALL_S, START_S, STEPS, Case, Layout

from seatrial import trialfile
from seatrial.engine import loop
from seatrial.engine.io import checkpoint
from seatrial.engine.watch import fault, heartbeat
from seatrial.engines import engine_for
from seatrial.engines.base import said_so_far
from seatrial.errors import BadInput
from seatrial.launch.base import Handle, Launcher
from seatrial.launch.guard import MARK, end_marked
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, attempt, conclude, invalid, prepare
from seatrial.logbook import Logbook
from seatrial.recipe import Recipe
from seatrial.record import Record
from seatrial.spec import Trial
from seatrial.sweep.store import Store

LIMIT_S = 60.0
POLL_S = 0.01
LINGER_S = 1.0
"""A process that was just killed may take so long to go."""
TAINTED = ("double", "nan")
"""After these the numbers are wrong, and so are checkpoints: nothing is resumed."""
DAMAGES = ("flip", "torn", "gone", "back", "pointer")

Act = Callable[[Handle], float | None]
"""Called at every look until it says when it acted."""


@dataclass
class Ran:
    record: Record
    struck: float | None = None
    verdict: float = 0.0
    losses: dict[int, float | str] | None = None

    @property
    def status(self) -> str:
        return self.record.outcome.status if self.record.outcome is not None else "ok"


def ours(layout: Layout, *, background: bool, folder: Path) -> tuple[Trial, Recipe]:
    """The smallest model that every layout divides."""
    topology = {name: getattr(layout, name) for name in Layout.__dataclass_fields__}
    return trialfile.build({
        "model": {"layers": 4, "hidden": 32, "heads": 4, "vocab": 101, "seq": 16}, "topology": topology,
        "batch": {"gbs": 4 * layout.dp}, "execution": {"threads": 1, "device": "cpu"},
        "recipe": {"steps": STEPS, "save_every": SAVE_EVERY, "stall_s": STALL_S, "save_s": STALL_S, "load_s": STALL_S,
                   "start_s": START_S, "async_save": background, "keep": STEPS,
                   "checkpoint_dir": str(folder / "checkpoints")}})  # fmt: skip


ENGINES = {"seatrial": ours}
"""What is trained, by the engine of a case. Another one is met with what comes from outside: its ranks carry the same mark."""


class Campaign:
    def __init__(self, work: Path):
        self.work = work.absolute()
        self.work.mkdir(parents=True, exist_ok=True)
        self.book = Logbook(self.work / "book", create=True)
        self.references = self.work / f"references-{version()}"
        self._slurm: Any = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self.book.close()

    def run(self, case: Case) -> dict[str, Any]:
        folder = self.work / f"{case.seed}-{case.index}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        began = time.monotonic()
        if case.ground == "sweep":
            found = books.swept(case, folder)
        elif case.ground == "controller":
            found = self._controller(case, folder)
        else:
            found = self._ranks(case, folder)
        found["seconds"] = round(time.monotonic() - began, 2)
        if not wrong(case, found):
            shutil.rmtree(folder, ignore_errors=True)
        return {**case.to_dict(), **found}

    # ---- ranks of this machine, or of two hosts

    def _ranks(self, case: Case, folder: Path) -> dict[str, Any]:
        trial, recipe = ENGINES[case.engine](case.layout, background=case.background, folder=folder)
        with contextlib.ExitStack() as stack:
            launcher: Launcher = stack.enter_context(contextlib.closing(Local()))
            env, act = self._fault(case, folder)
            if case.ground in ("hosts", "links"):
                launcher = pair = stack.enter_context(hosts.pair(netns=case.ground == "links"))
                trial = replace(trial, cluster=hosts.cluster(case.layout))
                act = self._on_hosts(case, folder, pair)
            if case.ground == "slurm":
                if self._slurm is None:
                    self._slurm = self._open.enter_context(slurm.ground())
                launcher = nodes = slurm.Nodes(self._slurm)
                stack.callback(nodes.end_case)
                trial = replace(trial, cluster=slurm.cluster(case.layout))
                act = self._on_slurm(case, nodes)
            if case.kind == "full_disk":
                stack.enter_context(small_disk(folder / "checkpoints", 3 * self._reference(case.layout)[1] // 2))
            if case.ground != "slurm" and case.moment != "launch" or case.ground == "links":
                stack.enter_context(warm.ranks())
            cap = CAP_GIB if case.kind == "leak" else None
            ran = go(trial, recipe, launcher, folder / "run", env=env, act=act, cap=cap)
            found = self._judged(case, folder, ran)
            if found["void"]:
                return found
            with warm.ranks():
                if case.kind == "full_disk":
                    subprocess.run(["mount", "-o", "remount,size=64m", folder / "checkpoints"], check=True)
                if case.kind in DAMAGES:
                    self._damaged(case, folder, ran, found)
                else:
                    found |= self._resumed(case, folder, ran)
        return found

    def _fault(self, case: Case, folder: Path) -> tuple[dict[str, str], Act | None]:
        if case.moment in ("launch", "outside"):
            return {}, lambda handle: outside(case, handle)
        kind = FAULT_OF.get(case.kind, case.kind)
        if kind not in fault.KINDS:
            return {}, None
        words = f"{kind}:{case.rank}:{case.step}:{case.moment}:{case.argument:g}"
        return {fault.VARIABLE: words, fault.MOMENT: str(folder / "struck")}, None

    def _on_slurm(self, case: Case, nodes: slurm.Nodes) -> Act:
        def act(handle: Handle) -> float | None:
            pids = marked(handle.job.run_dir, rank=case.rank) if reached(handle.job.run_dir, case) else []
            return nodes.lose(case, pids[0]) if pids else None

        return act

    def _on_hosts(self, case: Case, folder: Path, pair: hosts.Pair) -> Act:
        def act(handle: Handle) -> float | None:
            if case.kind == "slow_link":
                pair.slow(case.argument)
                return time.time()
            if not reached(handle.job.run_dir, case):
                return None
            time.sleep(case.delay_s)
            return pair.cut() if case.kind == "cut_link" else pair.kill_agent(1)

        return act

    def _judged(self, case: Case, folder: Path, ran: Ran) -> dict[str, Any]:
        outcome = ran.record.outcome
        assert outcome is not None
        if ran.struck is None:
            with contextlib.suppress(OSError, ValueError):
                ran.struck = float((folder / "struck").read_text())
        lost, doubled = self._written(case, ran.record)
        return {
            "void": ran.struck is None and case.kind not in ("full_disk",), "status": ran.status, "named": outcome.rank,
            "message": outcome.message[:300], "phase": outcome.phase, "iteration": outcome.iteration,
            "outcome_right": ran.status in case.outcomes if case.kind not in DAMAGES else ran.status == "crash",
            "culprit_right": outcome.rank in case.culprits if case.culprits and ran.status not in ("ok", "cancelled") else None,
            "verdict_s": None if ran.struck is None else round(ran.verdict - ran.struck, 2),
            "lost": lost, "doubled": doubled, "orphans": orphans(folder), "resumed": None, "why": "",
        }  # fmt: skip

    def _written(self, case: Case, record: Record) -> tuple[int, int]:
        store = Store(self.book, f"faults-{case.seed}")
        key = f"{case.index:06d}"
        store.write(key, record)
        with Logbook(self.work / "book") as again:
            rows = list(again.records({"session": store.session},
                                      predicate=lambda row: row["record_id"] == store.record_id(key)))
        return int(not rows), max(0, len(rows) - 1)

    # ---- going on

    def _resumed(self, case: Case, folder: Path, ran: Ran) -> dict[str, Any]:
        if case.kind in TAINTED or ran.status == "invalid":
            return {}
        whole = checkpoint.steps_in(folder / "checkpoints")
        if ran.status == "ok" or STEPS in whole:
            return self._same(case, folder, None)
        if not whole:
            missing = bool(case.resumes)
            return {"resumed": False if missing else None, "why": "no whole checkpoint, though one was due" if missing else ""}
        return self._same(case, folder, self._again(case, folder))

    def _again(self, case: Case, folder: Path, *, resume: bool = True) -> Ran:
        trial, recipe = ENGINES[case.engine](case.layout, background=case.background, folder=folder)
        with contextlib.closing(Local()) as local:
            return go(trial, replace(recipe, resume=resume), local, folder / "run")

    def _same(self, case: Case, folder: Path, resumed: Ran | None, *, moved: tuple[str, ...] = ()) -> dict[str, Any]:
        """Whether losses and every checkpoint are those of the run that was never hurt, bit by bit."""
        if resumed is not None and resumed.status != "ok":
            return {"resumed": False, "why": f"resumed: {resumed.status}: {resumed.record.outcome.message[:200]}"}  # type: ignore[union-attr]
        losses, _ = self._reference(case.layout)
        reference = self.references / str(case.layout) / "checkpoints"
        why = ""
        for step, loss in ((resumed.losses or {}) if resumed is not None else {}).items():
            if loss != losses[step]:
                why = f"the loss of step {step} is {loss}, and {losses[step]} where nothing happened"
        for name in (p.name for p in sorted(reference.glob("step-*")) if p.name not in moved):
            why = why or difference(reference / name, folder / "checkpoints" / name)
        why = why or broken_chain(folder / "checkpoints")
        return {"resumed": not why, "why": why}

    def _reference(self, layout: Layout) -> tuple[dict[int, float | str], int]:
        """Losses by step and the size of a checkpoint of a run that nothing happens to."""
        folder = self.references / str(layout)
        if not (folder / "losses.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            trial, recipe = ours(layout, background=False, folder=folder)
            with warm.ranks(), contextlib.closing(Local()) as local:
                ran = go(trial, recipe, local, folder / "run")
            if ran.status != "ok":
                raise SystemExit(f"{layout}: without any fault the outcome is {ran.record.outcome}")
            (folder / "losses.json").write_text(json.dumps(ran.losses))
        losses = {int(step): loss for step, loss in json.loads((folder / "losses.json").read_text()).items()}
        newest = folder / "checkpoints" / checkpoint.folder_name(STEPS)
        return losses, sum(-(-path.stat().st_size // 4096) * 4096 for path in newest.iterdir())

    def _damaged(self, case: Case, folder: Path, ran: Ran, found: dict[str, Any]) -> None:
        """The newest checkpoint, or the pointer to it, after the run was killed; what is judged is the resume."""
        there = folder / "checkpoints"
        newest = there / checkpoint.folder_name(checkpoint.steps_in(there)[-1])
        found["message"] = harm(case, there, newest)
        again = self._again(case, folder)
        outcome = again.record.outcome
        assert outcome is not None
        found |= {"status": again.status, "message": f"{found['message']}: {outcome.message}"[:300], "culprit_right": None,
                  "outcome_right": found["outcome_right"] and again.status in case.outcomes, "verdict_s": None}
        moved: tuple[str, ...] = ()
        if again.status == "invalid":
            if newest.name not in outcome.message and case.kind != "pointer":
                found |= {"outcome_right": False, "why": "refused, but the damaged folder is not named"}
                return
            if case.kind == "pointer":
                (there / checkpoint.LATEST).unlink()
            else:
                moved = (newest.name,)
                newest.rename(folder / "moved")
            again = self._again(case, folder)
        found |= self._same(case, folder, again, moved=() if newest.exists() else moved)

    # ---- the one who watches

    def _controller(self, case: Case, folder: Path) -> dict[str, Any]:
        trial, recipe = ENGINES[case.engine](case.layout, background=case.background, folder=folder)
        run_dir = folder / "run"
        with warm.ranks():
            def control() -> int:
                with contextlib.closing(Local()) as local:
                    attempt(trial, recipe, local, run_dir, limits=Limits(time_limit_s=LIMIT_S))
                return 0

            controller = warm.Forked(control)
            while controller.poll() is None:
                if case.moment == "launch" or reached(run_dir, case):
                    time.sleep(case.delay_s)
                    controller.kill()
                    break
                time.sleep(POLL_S)
            void = controller.wait() == 0
            left = orphans(folder, patience_s=3.0)
            whole = checkpoint.steps_in(folder / "checkpoints")
            if STEPS in whole:
                ran, same = None, self._same(case, folder, None)
            else:
                ran = self._again(case, folder, resume=bool(whole))
                same = self._same(case, folder, ran)
        message = ran.record.outcome.message[:300] if ran is not None and ran.record.outcome is not None else ""
        return {"void": void, "status": ran.status if ran else "ok", "named": None, "message": message,
                "outcome_right": ran is None or ran.status == "ok", "culprit_right": None, "verdict_s": None, "lost": 0,
                "doubled": 0, "orphans": left + orphans(folder), **same}  # fmt: skip


def version() -> str:
    """Of the engine's source: another one may write other bytes."""
    found = hashlib.sha256()
    for path in sorted(Path(loop.__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def go(trial: Trial, recipe: Recipe, launcher: Launcher, run_dir: Path, *, env: dict[str, str] | None = None,
       act: Act | None = None, cap: float | None = None) -> Ran:
    """One run from its words to its record, as `seatrial run` does it, with somebody acting on it meanwhile."""
    after = said_so_far(run_dir) if recipe.resume else 0
    try:
        job = prepare(trial, recipe, launcher, run_dir=run_dir, limits=Limits(time_limit_s=LIMIT_S, memory_cap_gib=cap))
    except BadInput as error:
        return Ran(invalid(trial, error))
    except Exception as error:  # what a user would see as a traceback
        seen = invalid(trial, BadInput(f"{type(error).__name__}: {error}"))
        return Ran(replace(seen, outcome=replace(seen.outcome, status="crash")))  # type: ignore[type-var]
    handle = launcher.submit(replace(job, env={**job.env, **(env or {})}))
    struck = None
    while launcher.poll([handle])[handle.key] != "done":
        if act is not None and struck is None:
            struck = act(handle)
        time.sleep(POLL_S)
    record = conclude(trial, recipe, handle, launcher.finished(handle), after=after)
    ended = time.time()
    events = engine_for(trial).events(run_dir, after=after)
    return Ran(record, struck, ended, {e["step"]: e["loss"] for e in events if e["event"] == "iteration"})


# ---- acts from outside, on any engine: all that is known of a rank is the mark in its environment


def marked(folder: Path, *, rank: int | None = None) -> list[int]:
    """Process ids of trials under this folder; of one rank."""
    mark, number = f"{MARK}={folder}".encode(), f"RANK={rank}".encode()
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            variables = Path(entry.path, "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if any(v == mark or v.startswith(mark + b"/") for v in variables) and (rank is None or number in variables):
                found.append(int(entry.name))
    return found


def reached(run_dir: Path, case: Case) -> bool:
    return any(beat.rank == case.rank and beat.step >= case.step for beat in heartbeat.read(run_dir))


def outside(case: Case, handle: Handle) -> float | None:
    """The signal, once the rank is there and a moment has passed."""
    if case.moment == "outside" and not reached(handle.job.run_dir, case):
        return None
    if not (pids := marked(handle.job.run_dir, rank=case.rank)):
        return None
    time.sleep(case.delay_s)
    with contextlib.suppress(ProcessLookupError):
        now = time.time()
        os.kill(pids[0], fault.SIGNALS[case.kind])
        return now
    return None


def orphans(folder: Path, patience_s: float = LINGER_S) -> int:
    """What still runs, or stands, a moment after the verdict; ended here, so that the next case has the machine."""
    until = time.monotonic() + patience_s
    while (left := marked(folder)) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in left:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            end_marked([w.decode() for w in words if w.startswith(f"{MARK}={folder}".encode())])
    return len(left)


# ---- disks and files


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Any:
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=False, capture_output=True)


def harm(case: Case, there: Path, newest: Path) -> str:
    """Damages a checkpoint, or the pointer to it; says what was done."""
    rng = random.Random(f"harm {case.seed} {case.index}")
    files = sorted(path for path in newest.iterdir() if path.stat().st_size)
    path = rng.choice(files)
    if case.kind == "pointer":
        path, words = there / checkpoint.LATEST, rng.choice((b"", b"step-", b"\xff\xfe\x00", b"../../etc", b"step-00000099"))
        path.write_bytes(words)
        return f"latest is {words!r}"
    if case.kind == "gone":
        path.unlink()
        return f"{newest.name}/{path.name} is gone"
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    if case.kind == "torn":
        path.write_bytes(data[:at])
        return f"{newest.name}/{path.name} ends at byte {at} of {len(data)}"
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    if case.kind == "back":
        (there / checkpoint.LATEST).write_text(checkpoint.folder_name(SAVE_EVERY))
    return f"byte {at} of {newest.name}/{path.name} is flipped" + (", latest is the one before" if case.kind == "back" else "")


def difference(one: Path, other: Path) -> str:
    """The first difference of two checkpoints; who wrote them does not count."""
    if not other.is_dir():
        return f"{other.name}: is not there"
    for path in sorted(one.iterdir()):
        theirs = other / path.name
        if not theirs.exists():
            return f"{other.name}/{path.name}: is not there"
        mine, found = path.read_bytes(), theirs.read_bytes()
        if path.name == checkpoint.MANIFEST:
            mine, found = _saved(mine), _saved(found)
        if mine != found:
            return f"{other.name}/{path.name}: differs"
    return ""


def broken_chain(folder: Path) -> str:
    """Each checkpoint names the one that its run had before it, by its digest."""
    found = [checkpoint.open_checkpoint(folder / checkpoint.folder_name(step)) for step in checkpoint.steps_in(folder)]
    return next((f"{later.folder.name}: was saved after another than {earlier.folder.name}"
                 for earlier, later in itertools.pairwise(found) if later.after != earlier.digest), "")


def _saved(manifest: bytes) -> bytes:
    try:
        data = json.loads(manifest)
    except ValueError:
        return manifest
    who = ("about", "digest", "after")  # `after` is the digest of the one before, which has them in it: `broken_chain`
    return json.dumps({name: value for name, value in data.items() if name not in who}, sort_keys=True).encode()


def wrong(case: Case, found: dict[str, Any]) -> list[str]:
    """What is not as it was expected; empty when all is."""
    if found.get("void"):
        return []
    late = case.bar_s is not None and found["verdict_s"] is not None and found["verdict_s"] > case.bar_s
    return [word for word, bad in (("outcome", not found["outcome_right"]), ("culprit", found["culprit_right"] is False),
                                   ("late", late), ("lost", found["lost"]), ("doubled", found["doubled"]),
                                   ("orphans", found["orphans"]), ("resumed", found["resumed"] is False)) if bad]  # fmt: skip
