"""What a run trains with, beside the trial itself: optimizer, data, checkpoints, measurement. One table of a TOML file.

    [recipe]
    steps = 200
    lr = 6e-4
    data = "corpus"            # the prefix of corpus.bin and corpus.idx; left out, synthetic tokens
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.spec import Execution

LEAST_SHARE = 2.0**-8
"""What a moment in bf16 must take of each new gradient. From one power of two to the next there are 128 steps; a change by less
than half of one, up to 2^-8 of the moment, is rounded away. With a smaller share not even gradients of zero would lower it."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    steps: int = 10
    """Iterations to train."""
    seed: int = 1234
    """Initial weights and the order of samples depend on this alone, never on the topology."""

    # the optimizer's figures
    lr: float = 3e-4
    """Peak learning rate."""
    min_lr: float = 3e-5
    """Where the cosine ends."""
    warmup_steps: int | None = None
    """Steps over which the rate rises to `lr`. Unless given, `train` takes a tenth of the steps, between 10 and 2000 and half
    of them at most; `run` and `sweep`, which measure, none."""
    decay_steps: int | None = None
    """Cosine from lr to min_lr over this many steps; by default over `steps`."""
    weight_decay: float = 0.1
    """On matrices; biases, norms and other vectors have none."""
    beta1: float = 0.9
    """Of AdamW's mean."""
    beta2: float = 0.95
    """Of AdamW's mean square."""
    eps: float = 1e-8
    """Of AdamW."""
    clip: float = 1.0
    """Largest global gradient norm; 0 turns clipping off."""
    init_std: float = 0.02
    """Spread of the initial weights."""
    loss_scale: float = 65536.0
    """First value of the dynamic loss scale (fp16)."""
    loss_scale_window: int = 1000
    """Good steps before the scale doubles."""

    # data
    data: str | None = None
    """Prefix of a Megatron .bin/.idx pair; synthetic tokens without it."""
    valid_data: str | None = None
    """Prefix of the tokens that the validation loss is computed on."""
    eval_every: int = 0
    """Steps between two validations; 0 means none."""
    eval_batches: int = 10
    """Global batches of one validation."""

    # checkpoints
    checkpoint_dir: str | None = None
    """Folder of the checkpoints; `train` takes one under --out."""
    save_every: int = 0
    """Steps between two checkpoints; 0 means at the end alone."""
    keep: int = 3
    """Newest checkpoints to keep."""
    resume: bool = False
    """Go on from the newest checkpoint, whatever topology wrote it."""
    async_save: bool = True
    """Write checkpoints beside training."""

    # measurement and watch
    warmup_iterations: int = 1
    """Left out of the medians."""
    known_to: float = 0.0
    """Leave once the median iteration is known to this share (0.01 is 1 %); 0 runs all steps."""
    measure_s: float | None = None
    """Leave once the iterations took this long, with at least one of the full batch that counts."""
    slow_s: float | None = None
    """Leave when even the fastest of the first iterations takes longer: the trial is certain to lose."""
    log_every: int = 1
    """Steps between two iteration lines."""
    trace_steps: tuple[int, ...] = ()
    """Steps written as a Chrome/Perfetto trace."""
    tensorboard: bool = False
    """Also write scalars for TensorBoard, where it is installed."""
    nan_steps: int = 3
    """Leave after so many steps in a row whose loss is not a number; 0 runs all steps."""
    stall_s: float = 120.0
    """Without progress for this long, stacks and the flight recorder are dumped and the rank leaves with its own code."""
    start_s: float = 180.0
    """The same until the first step begins: joining, building, opening data."""
    compile_s: float = 1800.0
    """The same until compiled blocks have done their first step."""
    load_s: float = 1800.0
    """The same while a checkpoint is read, without a byte."""
    save_s: float = 1800.0
    """The same for a checkpoint that is written, also beside training, without a byte."""
    stop_s: float = 60.0
    """Asked to stop, ranks are ended after this long without progress of their last step and its checkpoint."""
    check_order: bool = False
    """Debug: compare the order of collectives across ranks."""

    def __post_init__(self) -> None:
        fields.positive("recipe", steps=self.steps, lr=self.lr, eps=self.eps, keep=self.keep, stall_s=self.stall_s,
                        start_s=self.start_s, compile_s=self.compile_s, load_s=self.load_s, save_s=self.save_s,
                        stop_s=self.stop_s,
                        init_std=self.init_std, loss_scale=self.loss_scale, loss_scale_window=self.loss_scale_window,
                        measure_s=self.measure_s, slow_s=self.slow_s)
        if self.min_lr > self.lr or self.min_lr < 0:
            raise BadInput(f"recipe: min_lr {self.min_lr} must lie between 0 and lr {self.lr}")
        for name in ("warmup_steps", "eval_every", "save_every", "weight_decay", "clip", "warmup_iterations", "known_to",
                     "nan_steps"):
            if (getattr(self, name) or 0) < 0:
                raise BadInput(f"recipe.{name}: {getattr(self, name)} is negative")

    @property
    def usual_warmup(self) -> int:
        """Weights as they are drawn do not bear the whole rate: the loss of a wide model doubles within a few steps."""
        decays = self.decay_steps or self.steps
        return min(max(decays // 10, 10), 2000, decays // 2)

    def check(self, execution: Execution) -> None:
        """What takes both to see: moments in bf16 must not round a step away."""
        for name in ("beta1", "beta2"):
            share = 1.0 - getattr(self, name)
            if execution.moments == "bf16" and share < LEAST_SHARE:
                raise BadInput(f"execution.moments: bf16 keeps 8 bits, and with {name} {getattr(self, name)} a step changes a "
                               f"moment by {share:.2g} of itself, which they round away: use {name} up to "
                               f"{1.0 - LEAST_SHARE:.3f}, or moments = \"fp32\"")


EXECUTION = frozenset(f.name for f in dataclasses.fields(Execution))


def moved(data: Mapping[str, Any], *, where: str = "trial") -> dict[str, Any]:
    """The same tables, with what an older [training] says in [execution] and [recipe]."""
    table = data.get("training")
    if not isinstance(table, Mapping):
        if table is not None:
            raise BadInput(f"{where}: training: expected a table, found {fields.shown(table)}")
        return dict(data)
    found = {name: value for name, value in data.items() if name != "training"}
    for name, value in table.items():
        now = "execution" if name in EXECUTION else "recipe"
        if not isinstance(data.get(now, {}), Mapping):
            raise BadInput(f"{where}: {now}: expected a table, found {fields.shown(data[now])}")
        if name in data.get(now, {}):
            raise BadInput(f"{where}: {now}.{name} is given twice: training.{name} is its older name, leave that out")
        found[now] = {**found.get(now, {}), name: value}
    return found


def moved_path(path: str) -> str:
    """`training.compile` and its like as they are called now: `execution.compile`, `recipe.lr`."""
    table, dot, name = path.partition(".")
    if table != "training":
        return path
    return f"execution.{name}" if name.partition("=")[0].strip() in EXECUTION else f"recipe{dot}{name}"
