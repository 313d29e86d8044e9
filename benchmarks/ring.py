"""A ring's transfers behind attention: two ranks on a link that `tc` slows, and how much longer their step takes.

    python -m benchmarks.ring                       as text; needs root, `ip` and `tc`
    python -m benchmarks.ring --rounds 12 --json

Each rank is a process of one thread in a network namespace of its own, with CP 2 by a ring. The link is first left as it is,
which says how long the attention of one block takes, then slowed until a shift takes as long, and twice as long. The links take
turns, so that a change of the machine's mood touches all of them: a growth is the median of the rounds' own, with its 90 %
interval. `alone` is what the same shifts add with nothing beside them; `waits` is the same engine made to wait for each shift
of keys at once, as a ring without overlap would.

Wanted: on each slowed link the step grows by less than the shifts take on it (bytes over rate; what gradients' sums add on the
same link counts against it), and every shift of keys is posted before the attention of the block before it, and waited for
after. Gradients of keys leave when they are there: on two ranks nothing of the layer's attention is left to hide them.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import IO, Any

from benchmarks.faults.hosts import IP, LINK, TC, Pair, missing, pair, tool
from benchmarks.stages import median_interval

from seatrial.spec import Batch, Model, Topology, Trial

MODEL = Model(layers=2, hidden=128, heads=2, vocab=64, seq=4096, family="llama")
TRIAL = Trial(model=MODEL, batch=Batch(gbs=1), topology=Topology(cp=2, cp_kind="ring"))
SHARES = (1.0, 2.0)
"""A shift's time on the slowed links, in attentions of one block."""
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"
HEADERS = 1.03
"""A link's rate counts Ethernet, IP and TCP headers; 1448 of 1514 bytes are payload, and acknowledgements come beside."""


# ---- a rank


Event = tuple[str, float]


class Watch:
    """What this rank does, in the order it does it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.shift_bytes: list[int] = []

    def note(self, what: str) -> None:
        self.events.append((what, time.perf_counter()))

    def install(self) -> None:
        from seatrial.engine.core import comm, pieces

        shift, forward, backward = comm.Comm.shift, pieces.Softmax.add, pieces.SoftmaxBackward.add

        def watched_shift(it: Any, out: Any, x: Any, group: Any, *, timer: str) -> Any:
            number = len(self.shift_bytes)
            self.shift_bytes.append(x.numel() * x.element_size())
            self.note(f"post {number}")
            pending = shift(it, out, x, group, timer=timer)
            wait = pending.wait

            def watched_wait() -> Any:
                self.note(f"wait {number}")
                got = wait()
                self.note(f"there {number}")
                return got

            pending.wait = watched_wait  # type: ignore[method-assign]
            return pending

        def attended(add: Any) -> Any:
            def watched(*given: Any) -> Any:
                self.note("attend")
                got = add(*given)
                self.note("attended")
                return got

            return watched

        comm.Comm.shift = watched_shift  # type: ignore[method-assign]
        pieces.Softmax.add = attended(forward)  # type: ignore[method-assign]
        pieces.SoftmaxBackward.add = attended(backward)  # type: ignore[method-assign]


def rank_main(rank: int) -> None:
    """Takes one step for each line that it reads, and answers with a line."""
    import torch
    import torch.distributed as dist
    from benchmarks.engine_cpu import engine_of

    from seatrial.engine.core.context import Ring

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = LINK
    dist.init_process_group("gloo", init_method="tcp://10.78.0.1:29500", rank=rank, world_size=2)
    watch = Watch()
    watch.install()
    overlapped = Ring.blocks

    def at_once(ring: Any, kv: Any) -> Iterator[tuple[int, Any]]:
        """The same blocks, each waited for before the one before it is attended."""
        held = kv
        for step in range(ring.group.size):
            after = ring.pass_on(held).wait() if step + 1 < ring.group.size else held
            yield (ring.group.rank - step) % ring.group.size, held
            held = after

    engine, batches = engine_of(TRIAL)
    sizes: list[int] = []
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip() == "alone":
            blocks = [(torch.zeros(size // 4), torch.empty(size // 4)) for size in sizes]
            dist.barrier()
            began = time.perf_counter()
            for out, x in blocks:
                engine.comm.shift(out, x, engine.mesh.cp, timer="cp_comm").wait()
            print(json.dumps({"s": time.perf_counter() - began}), flush=True)
            continue
        Ring.blocks = at_once if line.strip() == "waits" else overlapped  # type: ignore[method-assign]
        watch.events.clear()
        watch.shift_bytes.clear()
        engine.comm.take()
        dist.barrier()
        began = time.perf_counter()
        engine.step(number, first_sample=0, batches=batches)
        took = time.perf_counter() - began
        sizes = list(watch.shift_bytes)
        other = sum(t.payload_bytes for name, t in engine.comm.take().items()) - sum(watch.shift_bytes)
        print(json.dumps({"s": took, "events": watch.events, "shift_bytes": watch.shift_bytes, "other_bytes": other}),
              flush=True)


# ---- both


class Ranks:
    def __init__(self, hosts: Pair):
        self.hosts = hosts
        for name in hosts.names:
            # BBR holds no more under way than the idle link would; acknowledgements that queue behind keys then halve its rate.
            tool(IP, "netns", "exec", name, "sh", "-c", f"echo reno > {CONGESTION}")
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        program = [sys.executable, "-m", "benchmarks.ring", "--rank"]
        self.processes = [subprocess.Popen([IP, "netns", "exec", name, *program, str(rank)], stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, text=True, env=env)
                          for rank, name in enumerate(hosts.names)]

    def step(self, how: str) -> list[dict[str, Any]]:
        for process in self.processes:
            _file(process.stdin).write(f"{how}\n")
            _file(process.stdin).flush()
        return [json.loads(_file(process.stdout).readline()) for process in self.processes]

    def link(self, mbit: float | None) -> None:
        """A queue that holds a whole message: with a short one TCP loses packets, and finds its rate anew after every pause."""
        for name in self.hosts.names:
            there = [IP, "netns", "exec", name, TC, "qdisc"]
            if mbit is not None:
                tool(*there, "replace", "dev", LINK, "root", "tbf", "rate", f"{mbit:g}mbit", "burst", "128kb", "latency", "3s")
            else:
                with contextlib.suppress(subprocess.CalledProcessError):  # it is as it was made
                    tool(*there, "del", "dev", LINK, "root")

    def close(self) -> None:
        for process in self.processes:
            _file(process.stdin).close()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _file(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def block_s(answer: dict[str, Any]) -> float:
    """Seconds of the attention that hides a shift of keys: the shorter of forward's and backward's, median over the layers."""
    events, found = answer["events"], []
    for (what, begin), (_, end) in pairwise(events):
        if what == "attend":
            found.append(end - begin)
    return statistics.median(found[: 2 * MODEL.layers])


def waited_s(answer: dict[str, Any]) -> float:
    """Seconds that a rank stood still for shifts."""
    at = dict(answer["events"][::-1])
    return sum(at[f"there {n}"] - at[f"wait {n}"] for n in range(len(answer["shift_bytes"])))


def order(answer: dict[str, Any]) -> str:
    """What one rank did, without times and numbers."""
    return " ".join(what.split()[0] for what, _ in answer["events"] if what != "attended" and not what.startswith("there"))


FORWARD = "post attend wait attend"
BACKWARD = "post attend wait attend post wait"
POSTED_FIRST = " ".join([FORWARD] * MODEL.layers + [BACKWARD] * MODEL.layers)


def measured(rounds: int) -> dict[str, Any]:
    with pair(netns=True) as hosts:
        ranks = Ranks(hosts)
        try:
            first = [ranks.step("overlaps") for _ in range(4)][1:]
            attention = statistics.median(block_s(answer) for answers in first for answer in answers)
            shift_bytes = first[0][0]["shift_bytes"]
            rates = [max(shift_bytes) * HEADERS * 8 / (share * attention) / 1e6 for share in SHARES]
            links: list[float | None] = [None, *rates]
            took: dict[tuple[str, float | None], list[float]] = {}
            stood: dict[tuple[str, float | None], list[float]] = {}
            orders = set()
            load = []
            for number in range(rounds):
                for mbit in links[number % len(links):] + links[: number % len(links)]:
                    ranks.link(mbit)
                    took.setdefault(("alone", mbit), []).append(max(answer["s"] for answer in ranks.step("alone")))
                    for how in ("overlaps", "waits") if number % 2 else ("waits", "overlaps"):
                        answers = ranks.step(how)
                        took.setdefault((how, mbit), []).append(max(answer["s"] for answer in answers))
                        stood.setdefault((how, mbit), []).append(statistics.mean(map(waited_s, answers)))
                        if how == "overlaps":
                            orders |= {order(answer) for answer in answers}
                load.append(os.getloadavg()[0])
        finally:
            ranks.close()
    step, waited = ({key: statistics.median(values) for key, values in of.items()} for of in (took, stood))
    total, other = sum(shift_bytes), first[0][0]["other_bytes"]
    slowed = []
    for mbit in rates:
        transfer = total * HEADERS * 8 / (mbit * 1e6)
        row: dict[str, Any] = {"mbit": mbit, "transfer_s": transfer, "alone_s": step["alone", mbit] - step["alone", None]}
        for how in ("overlaps", "waits"):
            paired = sorted(slow - fast for slow, fast in zip(took[how, mbit], took[how, None]))
            low, high = median_interval(paired)
            growth = statistics.median(paired)
            row[how] = {"step_s": step[how, mbit], "growth_s": growth, "lo_s": low, "hi_s": high, "ratio": growth / transfer,
                        "quiet_growth_s": min(took[how, mbit]) - min(took[how, None]),
                        "waited_s": waited[how, mbit] - waited[how, None]}
        slowed.append(row)
    return {"model": {"layers": MODEL.layers, "hidden": MODEL.hidden, "seq": MODEL.seq}, "rounds": rounds,
            "attention_of_a_block_s": attention, "shifts": len(shift_bytes), "shift_bytes": total, "other_bytes": other,
            "fast_step_s": {how: step[how, None] for how in ("overlaps", "waits")}, "slowed": slowed,
            "posted_first": orders == {POSTED_FIRST}, "orders": sorted(orders), "load": [min(load), max(load)],
            "grows_less": all(row["overlaps"]["growth_s"] < row["transfer_s"] for row in slowed)}  # fmt: skip


def say(found: dict[str, Any]) -> None:
    fast, (low, high) = found["fast_step_s"], found["load"]
    print(f"a block is attended in {found['attention_of_a_block_s'] * 1e3:.0f} ms; a step and rank have "
          f"{found['shifts']} shifts, {found['shift_bytes'] / 1e6:.2f} MB in all, "
          f"and {found['other_bytes'] / 1e6:.2f} MB of other collectives")
    print(f"on the fast link a step takes {fast['overlaps']:.3f} s, {fast['waits']:.3f} s where it waits; "
          f"{found['rounds']} rounds, load {low:.1f} to {high:.1f}")
    print(f"{'':8} {'Mbit/s':>7} {'transfer s':>11} {'alone s':>8} {'step s':>7} {'growth s (90 %)':>24} {'ratio':>6} "
          f"{'quiet s':>8} {'stood s':>8}")
    for row in found["slowed"]:
        for how in ("overlaps", "waits"):
            of = row[how]
            print(f"{how:8} {row['mbit']:7.0f} {row['transfer_s']:11.3f} {row['alone_s']:8.3f} {of['step_s']:7.3f} "
                  f"{of['growth_s']:8.3f} ({of['lo_s']:6.3f} {of['hi_s']:6.3f}) {of['ratio']:6.2f} "
                  f"{of['quiet_growth_s']:8.3f} {of['waited_s']:8.3f}")
    print("quiet: between the fastest steps; stood: more seconds that ranks stood still for shifts")
    print(f"every shift of keys posted before the attention of the block before it: {'yes' if found['posted_first'] else 'NO'}")
    print(f"the step grows by less than the shifts take: {'yes' if found['grows_less'] else 'NO'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.rank is not None:
        rank_main(wanted.rank)
        return
    if why := missing():
        raise SystemExit(why)
    found = measured(wanted.rounds)
    print(json.dumps(found, indent=1)) if wanted.json else say(found)
    raise SystemExit(0 if found["posted_first"] and found["grows_less"] else 1)


if __name__ == "__main__":
    main()
