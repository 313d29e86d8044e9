"""An engine that does nothing, for tests of the runner: it writes the events that a run would, and leaves.

    command = { argv = ["python", "-I", "-S", "tests/stub_engine.py", "{run_dir}", "{tp}", "fate"], per = "node" }

What it reports follows from its arguments alone, so that two runs of one trial say the same. Its fate is the last argument:
`ok`, `crash`, `nan`, `slow` (sleeps), or `sometimes:REPEAT` (crashes in even repeats).
"""
import json
import os
import sys
import time


def main(run_dir: str, scale: str, fate: str) -> int:
    began = time.time()
    if fate.startswith("sometimes:"):
        fate = "ok" if int(fate.partition(":")[2]) % 2 else "crash"
    if fate == "slow":
        time.sleep(float(os.environ.get("STUB_SLEEP_S", "0.2")))
    with open(os.path.join(run_dir, "events.jsonl"), "a") as file:

        def say(kind: str, **fields: object) -> None:
            file.write(json.dumps({"event": kind, "time": time.time(), **fields}) + "\n")
            file.flush()

        say("start", schema=1, step=0, world=1, torch="none", python="stub")
        for step in range(1, 9):
            loss: object = "nan" if fate == "nan" and step == 3 else 5.0 - step / 10
            say("iteration", step=step, sec=0.1 * float(scale) + 0.0001 * (step % 3), loss=loss, gbs=8, grad_norm=1.0)
            if fate == "crash" and step == 4:
                say("failure", rank=0, status="crash", error="RuntimeError", message="the stub was told to", step=step,
                    phase="forward")
                return 1
        say("memory", step=8, mem_gib=0.5, rank=0, fullest={}, ranks=[])
        say("end", status="finished", step=8, at=time.time(), took_s=time.time() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
