"""Megatron-LM: its own validate_args against our rules, on what `plan --emit megatron-lm` writes for random layouts.

    python -m benchmarks.engines.megatron_lm CHECKOUT                   200 layouts that its flags can say, legal and illegal
    python -m benchmarks.engines.megatron_lm CHECKOUT --python PYTHON   with a Python that has what the checkout imports

The checkout is named by its path; without a GPU `torch.cuda` is stood in for. Nothing is trained.
"""
from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from benchmarks.engines.each import MODEL, Data, Each, label

from seatrial import presets, rules, trialfile
from seatrial.engines import homes
from seatrial.errors import BadInput
from seatrial.plan import emit
from seatrial.schedule import GROUPED
from seatrial.spec import Trial, stages_of

BESIDE = ("--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", "256", "--train-iters", "4", "--lr", "1e-4",
          "--no-rope-fusion")
"""What the user adds: data, tokenizer, length, learning rate; the last because Transformer Engine is not here."""
FUSED = "--moe-permute-fusion"
"""Left out here for the same reason."""
LATER = ("ffn-divisible", "expert-ffn-divisible", GROUPED, "seq-divisible")
"""Codes of what it refuses when layers are built, schedules begin or sequences are cut: after validate_args."""


def draw(rng: random.Random) -> Data:
    layout: Data = {name: rng.choice((1, 1, 2, 2, 3, 4)) for name in ("dp", "tp", "pp")}
    layout |= {"mbs": rng.choice((1, 1, 2, 3)), "zero": rng.choice((0, 1, 1)), "cp": rng.choice((1, 1, 1, 1, 2)),
               "precision": rng.choice(("fp32", "bf16", "bf16", "fp16")),
               "recompute": rng.choice(("none", "selective", "full")),
               "sequence_parallel": layout["tp"] > 1 and rng.random() < 0.5}  # fmt: skip
    if layout["pp"] > 1 and rng.random() < 0.4:
        layout |= {"vp": rng.choice((2, 2, 3)), "schedule": "interleaved"}
    if layout["zero"] and layout["dp"] == 4 and rng.random() < 0.4:
        layout["zero_group"] = 2
    model = {**MODEL, "base": rng.choice(("tiny", "tiny-llama")), "layers": rng.choice((2, 4, 6, 7, 8, 12)), "heads": 4,
             "kv_heads": rng.choice((1, 2, 4)), "seq": rng.choice((30, 32, 48)), "ffn": rng.choice((96, 128, 130))}
    if rng.random() < 0.25:
        model |= {"base": "tiny-llama", "experts": rng.choice((4, 6)), "top_k": 2, "expert_ffn": 64}
        layout["ep"] = rng.choice((1, 2, 2, 4))
    return {"model": model, "batch": {"gbs": rng.choice((8, 12, 24, 48))}, "topology": layout, "engine": "megatron-lm"}


VP = {"pp": 2, "vp": 2, "schedule": "interleaved"}


class Megatron(Each):
    def draw(self, rng: random.Random) -> Data:
        return {**draw(rng), "execution": {"device": "cpu"}}


ENGINE = Megatron(name="megatron-lm", layouts=(
    {"dp": 2}, {"dp": 2, "zero": 1}, {"dp": 2, "zero": 1, "precision": "bf16"}, {"tp": 2}, {"tp": 2, "precision": "bf16"},
    {"pp": 2}, {"pp": 4}, {"tp": 2, "pp": 2}, VP, {**VP, "dp": 2, "zero": 1}, {"tp": 2, "dp": 2, "zero": 1},
    {"pp": 2, "recompute": "full"}, {"tp": 2, "recompute": "selective"}, {"pp": 3}, {"pp": 2, "stage_layers": [3, 5]},
    {"dp": 4, "zero": 1, "zero_group": 2},
), refused=(
    {"model": MODEL, "batch": {"gbs": 12}, "topology": {"tp": 3}},
    {"model": MODEL, "batch": {"gbs": 10}, "topology": {"dp": 2, "mbs": 2}},
), faulty=({"dp": 2}, {"dp": 2, "zero": 1}, {"tp": 2}, {"pp": 2}))  # fmt: skip


def drawn(count: int, seed: int) -> list[tuple[str, Trial, list[str]]]:
    rng, found = random.Random(seed), []
    while len(found) < count:
        data = draw(rng)
        try:
            trial, _ = trialfile.build(data)
            m, t = trial.model, trial.topology
            if m.layers < t.pp * t.vp:  # stages without layers are there for whoever names them
                trial = replace(trial, topology=replace(t, stage_layers=stages_of(m, t)))
            flags = emit.megatron_lm(trial).flags
        except BadInput:
            continue  # a layout that cannot even be said
        if flags:
            words = [word for flag in flags for word in flag if word != FUSED]
            found.append((label({**data["topology"], **data["batch"], **data["model"]}), trial, words))
    return found


def placed(trial: Trial) -> Trial:
    """On a node of Hopper GPUs that is as large as it."""
    return replace(trial, cluster=presets.cluster("dgx-h100", nodes=1, procs_per_node=trial.world))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", default=homes.found("megatron-core", "megatron.core") or sys.executable)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    found = drawn(asked.count, asked.seed)
    lists = [{"argv": [*words, *BESIDE], "world": trial.world, "connections": bool(emit.connections(placed(trial)))}
             for _, trial, words in found]
    script = Path(__file__).parent / "validate" / "megatron_lm.py"
    done = subprocess.run([asked.python, "-P", str(script), str(asked.checkout)], text=True, capture_output=True, check=False,
                          input="".join(json.dumps(one) + "\n" for one in lists))
    theirs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('"')]
    if len(theirs) != len(found):
        sys.exit(f"{asked.checkout}: its validate_args answered {len(theirs)} of {len(found)}: {done.stderr[-600:]}")
    counts: Counter[str] = Counter()
    for (said, trial, _), refused in zip(found, theirs):
        wrong = next((wrong for wrong in rules.violations(trial) if wrong.level == "error"), None)
        why, later = ("", False) if wrong is None else (wrong.message, wrong.code in LATER and not refused)
        status = "later" if later else "both refuse" if why and refused else "ours refuses" if why else \
            "theirs refuses" if refused else "both take"
        counts[status] += 1
        print(f"{status:14} {said} | ours: {why or 'takes it'} | theirs: {refused or 'takes it'}", flush=True)
    print(f"{counts.total() - counts['ours refuses'] - counts['theirs refuses']} of {len(found)} agree; {dict(counts)}")
    return int(counts["ours refuses"] + counts["theirs refuses"] > 0)


if __name__ == "__main__":
    sys.exit(main())
