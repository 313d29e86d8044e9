"""What the planner knows of a program that trains: plain facts, a file for each engine, or one of one's own.

    model_of("fsdp2")                   by a name, an alias (torchtitan), an adapter's name, or the path of a TOML file
    model_of("ours.toml")               base = "megatron-core", and what differs from it
    names()                             the engines that come with seatrial

The files lie in `presets/engines`; each fact there has its source beside it, the documentation or the engine's own code. Bytes
are for training in 16 bits unless a field says otherwise; in fp32 what is copied to fp32 is not.
"""
from __future__ import annotations

import dataclasses
import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.plaindata import read_toml
from seatrial.schedule import ScheduleKind
from seatrial.spec import Attention, ContextKind, Device, Dispatcher, Module

Uneven = Literal["equal", "embedding-slots", "balanced", "any"]
Selective = Literal["attention", "half-gemms", "elements"]


@dataclass(frozen=True, kw_only=True)
class EngineModel:
    name: str
    """What tables and `--engine` call it."""
    version: str
    """The releases that the facts were read from."""
    source: str
    """Where they stand."""
    aliases: tuple[str, ...] = ()
    """Other names: programs that train with this engine."""

    # What it can lay out

    divides: tuple[Literal["tp", "pp"], ...] = ("tp", "pp")
    """What it lays over ranks beside the data: each layer (TP), the layers (PP)."""
    schedules: tuple[ScheduleKind, ...] = ("1f1b", "interleaved")
    """Pipeline schedules that it has."""
    uneven: Uneven = "any"
    """Layers that the stages do not divide: refused (equal), taken where the embedding and the head fill two places
    (embedding-slots), always taken and divided by the engine itself (balanced), or as a list says (any)."""
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    """Those that it has, and the planner searches."""
    usual_zero: int = 0
    """What a table of its runs means that names no ZeRO stage."""
    zero_with_pipeline: int = 3
    """The highest ZeRO stage that goes with a pipeline."""
    replicas_alone: bool = False
    """Whether whole replicas (ZeRO 0, DP over 1) go with no TP, PP or CP: DDP knows one process group."""
    recomputes: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
    """How much of a layer it can make again."""
    sequence_parallel: bool = False
    """Whether tensor parallelism always cuts the sequence of norms too …"""
    cuts_sequence: bool = True
    """… and whether it can, where that is asked for."""
    hybrid_sharding: bool = False
    """Whether it can shard inside a group and replicate across (HSDP, MiCS) …"""
    own_groups: tuple[Literal["gradients_group", "weights_group"], ...] = ()
    """… and which of what ZeRO cuts it can give a smaller group than the optimizer's state."""
    context: tuple[ContextKind, ...] = ()
    """The kinds of context parallelism that it has; the first is its default."""

    expert_parallel: bool = False
    """Whether a layer's experts can lie on ranks apart (EP) …"""
    expert_tensor: tuple[Literal["whole", "tp", "any"], ...] = ("tp",)
    """… each of them whole on its rank (ETP 1), divided as the rest of the layer is (ETP = TP), or over any ETP …"""
    zero_with_experts: int = 3
    """… the highest ZeRO stage that goes with EP …"""
    experts_cut_sequence: bool = False
    """… and whether tensor parallelism of a model with experts always cuts the sequence of norms."""
    dispatchers: tuple[Dispatcher, ...] = ()
    """How tokens travel to their experts; the first is its default."""

    # States: bytes per parameter

    footprint: bool = False
    """Whether memory is our own engine's exact count; then the fields of states and activations are not asked."""
    fp32_weights: bool = False
    """Whether the parameters themselves are fp32 and 16-bit copies are made to compute (FSDP), or there are 16-bit weights with
    fp32 masters beside them in the optimizer."""
    moments_bytes: float = 8.0
    """Adam's two means."""
    gradient_bytes: float = 2.0
    """Of the gradient that is kept and added to …"""
    fp16_gradient_bytes: float = 0.0
    """… and that travels in fp16, where it is not as wide; it is copied to fp32 for the step. 0: the same."""
    gradients_sharded_from: int = 2
    """ZeRO stage from which the kept gradients are a shard."""
    accumulated_bytes: float = 0.0
    """Sharded gradients: bytes of each while micro-batches are added up, where only their sum travels and they stay whole."""
    step_copy_bytes: float = 0.0
    """Further copies of the own shard's gradients while the optimizer steps, with ZeRO …"""
    step_copy_whole_bytes: float = 0.0
    """… and without. They may take the place of activations, which are gone by then."""
    bucket_elements: float = 0.0
    """Numbers in one flat buffer in which gradients travel …"""
    buckets: float = 1.0
    """… and how many of those there are …"""
    bucket_from: int = 1
    """… from which ZeRO stage on."""
    gathered_bytes: float = 4.0
    """ZeRO 3: bytes for each parameter of one layer while it computes: its 16-bit weights, those fetched ahead, the buffers
    through which they come …"""
    gathered_elements: float = 0.0
    """… and beyond that so many numbers in 16 bits at most, where the engine has such a bound; 0: none."""
    pipeline_unshards: bool = False
    """ZeRO 3 with a pipeline: whether a stage keeps its weights gathered and its gradients whole until the last micro-batch."""
    reduced_bytes: float = 0.0
    """Sharded gradients: bytes for each parameter of one layer while its gradients are whole: themselves and the buffer in
    which they are reduced …"""
    head_bytes: float = 0.0
    """… and for each parameter of the head's matrix, gathered with its gradients beside all activations."""
    fp8_weight_bytes: float = 2.0
    """In fp8 beside the 16-bit weight: its 8-bit copy and the transposed one."""

    # Activations: bytes per token for each of hidden, query width, key-value width, inner width of a gated MLP

    kept: tuple[float, ...] = (8.0, 4.0, 4.0, 6.0)
    """Of one layer from forward to backward. Of an MLP without a gate the inner width counts 4 at most."""
    kept_fp8: tuple[float, ...] = (8.0, 4.0, 4.0, 6.0)
    """The same in fp8."""
    kept_selective: tuple[float, ...] = (8.0, 4.0, 4.0, 6.0)
    """The same with selective recompute; where there are `modules`, of core attention."""
    masks: bool = False
    """Whether dropout keeps its masks, a byte for each number."""
    gathers_norms: bool = False
    """Whether with tensor parallelism the whole sequence's norm outputs are kept, 4 bytes per token and hidden."""
    selective: Selective = "attention"
    """What selective recompute makes again: attention (Megatron), every second GEMM (torchtitan), norms and activations."""
    kept_experts: tuple[float, ...] = (2.0, 6.0, 20.0)
    """Of a layer with experts beyond what surrounds them: for each row of an expert and of hidden, of a gated inner width, and
    for each token and expert what the router keeps: scores, a map of the choice, where each token went."""
    kept_experts_fp8: tuple[float, ...] = (2.0, 6.0, 20.0)
    """The same in fp8 …"""
    kept_experts_selective: tuple[float, ...] = (2.0, 6.0, 20.0)
    """… and with selective recompute."""
    modules: tuple[Module, ...] = ()
    """What selective recompute can be told to make again; none where it makes `selective` again and takes no list. Norms count
    where they are modules of their own, as in Transformer Engine: before latent attention and before experts."""
    last_gemm_kept: bool = False
    """Whether full recompute leaves out a layer's last GEMM, whose output nobody needs again."""
    stage_outputs: bool = False
    """Whether a pipeline stage keeps each micro-batch's output until its gradient has come."""
    logits_bytes: float = 12.0
    """For each logit at the fullest moment of the loss: itself, fp32 copies, gradients."""
    slack: float = 0.10
    """Share of activations that the caching allocator holds beyond what it handed out."""
    group_gib: float = 0.25
    """Buffers of one communicator."""
    memory_sigma: float = 0.08
    """How sure all of this is: the standard deviation of the logarithm of what it needs."""

    # Kernels and host

    attention: Attention = "fused"
    """The kernel it takes before the Hopper generation …"""
    attention_volta: Attention | None = None
    """… and before Ampere's, where that is another …"""
    attention_hopper: Attention = "fused"
    """… and from it on."""
    tunes_attention: bool = False
    """Whether it takes the fastest of what a device has, timed at the start."""
    element_bytes: float = 1.0
    """Bytes that its norms, activations, positions and copies move, over those of a layer with Megatron's fused kernels."""
    fused_elements: bool = False
    """Whether those are fused into few kernels, which move them as fast as copies."""
    fuses_all: bool = True
    """Whether that holds for layers of experts, latent attention and sinks too; else those are of separate kernels."""
    accumulate_bytes: float = 6.0
    """For each number of a weight's gradient and micro-batch, to add it to what has accumulated; nothing with one."""
    always_accumulates: bool = False
    """Whether that is paid with a single micro-batch too: the gradient goes into a buffer of its own."""
    loss_bytes: float = 52.0
    """For each logit: what the loss moves forward and backward."""
    optimizer_bytes: float = 40.0
    """For each parameter of the shard: what a step moves, clipping included."""
    fp8_cast_bytes: float = 8.0
    """In fp8 for each number that enters a GEMM, forward and backward together: read, largest found, written in 8 bits and
    transposed."""
    fp8_weight_cast_bytes: float = 0.0
    """… and for each number of the weights and micro-batch, where they are cast anew each time."""
    fp8_head: bool = False
    """Whether in fp8 the GEMMs with the vocabulary's matrix are in 8 bits too."""
    kernels_forward: float = 24.0
    """Kernels that the host starts for a layer …"""
    kernels_backward: float = 46.0
    """… and in its backward pass."""
    host_us: float = 40.0
    """Host time for each of them where the host sets the pace."""
    grouped_rate: float = 0.9
    """What the GEMMs of several experts together reach of the rate of one with as many rows each."""
    permute_passes: float = 2.0
    """Passes over memory that putting tokens in order takes, over those of one fused kernel."""
    expert_kernels: float = 60.0
    """Kernels beyond those of a layer, forward, that a layer of experts starts …"""
    held_kernels: float = 0.0
    """… and for each expert of a rank."""
    dispatch_sync_us: float = 0.0
    """What the device waits while the host reads how many tokens come."""
    shared_hidden: float = 0.0
    """Share of the shared experts' time behind which tokens travel."""
    fixed_s: float = 0.02
    """Of every iteration: log line, norm of the gradients, the next batch."""

    # Traffic

    reduce_bytes: float = 2.0
    """Of each gradient on the wire …"""
    reduces_whole: bool = False
    """… and whether ZeRO 1 and 2 all-reduce what a rank then takes its shard of."""
    gather_bytes: float = 2.0
    """Of each parameter on the wire, where ZeRO gathers."""
    fp8_gather_bytes: float = 2.0
    """The same in fp8."""
    reduces_each_microbatch: bool = True
    """From ZeRO 2 on and without a pipeline: whether gradients travel after every micro-batch."""
    gathers_again: bool = False
    """ZeRO 3 with full recompute: whether weights are gathered for it apart from forward and backward."""
    forward_gathers_all: bool = False
    """Weights in groups of their own: whether each forward pass gathers them from all that share the optimizer's state, or they
    are dealt out to the groups after a step."""
    shard_copy_bytes: float = 0.0
    """ZeRO 3: bytes that each parameter and micro-batch costs in copies into and out of the buffers of collectives."""
    messages_per_layer: float = 1.0
    """Collectives into which a layer's traffic is cut with ZeRO 3."""
    gradients_hidden: float = 0.0
    """Share of the backward pass behind which gradients may travel with ZeRO 0 and 1 …"""
    sharded_hidden: float = 0.9
    """… and share of the computation behind which ZeRO 2 and 3 hide theirs …"""
    hides_from: int = 2
    """… from which stage on."""
    parameters_hidden: float = 0.0
    """Share of the forward pass behind which ZeRO 1 gathers parameters."""
    exposed: float = 0.0
    """Share of hidden traffic that shows in any case …"""
    contention: float = 0.0
    """… and share of it by which it slows the kernels it hides behind: they share multiprocessors and memory."""
    ring_hidden: float = 0.0
    """Share of attention behind which a ring's next block of keys and values travels …"""
    gather_hidden: float = 0.0
    """… share of the first block's attention (one of CP) behind which all are gathered; 0: attention waits for them, and has
    all at once …"""
    exchanged_gradient_bytes: float = 2.0
    """… bytes of each number of their gradients on the way back …"""
    ring_blocks: float = 2.0
    """… and blocks that a ring holds at a time; 0: all of the sequence's, with the output of each step, until the last."""
    tensor_hidden: float = 0.0
    """Share of the backward pass's tensor-parallel collectives that travel beside the weights' GEMMs …"""
    tensor_overlapped: float = 0.0
    """… and of all of them where the engine's tensor-parallel overlap is asked for."""
    messages_exposed: float = 1.0
    """Share of a pipeline message that stages wait for …"""
    messages_exposed_interleaved: float = 0.5
    """… with virtual stages."""

    def lacks(self, degree: str, ranks: int) -> str:
        """Why a layout of it cannot be divided so; nothing where it can."""
        if ranks == 1 or degree in self.divides:
            return ""
        return f"{degree.upper()} {ranks}: {self.name} has no {BESIDE_DATA[degree]}; {degree.upper()} 1 would do"

    def attention_on(self, device: Device | None) -> Attention:
        """The kernel that it takes on a device where nobody says otherwise."""
        if device is None:
            return self.attention
        usual = self.attention_hopper if device.fuses_attention else self.attention
        if device.kind == "gpu" and "bf16" not in device.peak_tflops:
            usual = self.attention_volta or usual
        return "fused" if usual == "fused-hopper" and (device.kind == "cpu" or "fp8" not in device.peak_tflops) else usual

    def __post_init__(self) -> None:
        for name in ("gradients_hidden", "sharded_hidden", "parameters_hidden", "exposed", "contention", "ring_hidden",
                     "gather_hidden", "tensor_hidden", "tensor_overlapped", "messages_exposed", "messages_exposed_interleaved",
                     "shared_hidden"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"engine {self.name}: {name} {getattr(self, name)} is a share, from 0 to 1")
        for field in dataclasses.fields(self):
            if field.type == "float" and not 0 <= getattr(self, field.name) <= MOST:
                raise BadInput(f"engine {self.name}: {field.name} {getattr(self, field.name)} must not be negative, nor above "
                               f"{MOST:.0e}")
        if self.memory_sigma > 1:
            raise BadInput(f"engine {self.name}: memory_sigma {self.memory_sigma} is a share, from 0 to 1")
        if not self.grouped_rate > 0:
            raise BadInput(f"engine {self.name}: grouped_rate {self.grouped_rate} must be above 0")
        for base, count in (("kept", 4), ("kept_experts", 3)):
            for name in (base, f"{base}_fp8", f"{base}_selective"):
                kept = getattr(self, name)
                if len(kept) != count or not all(0 <= value <= MOST for value in kept):
                    raise BadInput(f"engine {self.name}: {name} {fields.shown(kept)}: expected {('three', 'four')[count - 3]} "
                                   "numbers, none negative")


BESIDE_DATA = {"tp": "tensor parallelism", "pp": "pipeline"}
MOST = 1e12
"""Of any figure of an engine."""
DEFAULT = "megatron-deepspeed"
"""Of `plan`, `explain`, `forecast` and of a row that names no engine."""
RUNS = ("command", "rules", "log", "module", "speaks")
"""Of the file of one's own engine, what says how it is run; see `described.py`."""
UNKNOWN = "plain-3d"
"""Of a program that nothing is known of: a command, somebody's own engine."""


@functools.cache
def _shipped() -> dict[str, EngineModel]:
    folder = resources.files("seatrial.presets") / "engines"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    found = [fields.build(EngineModel, tomllib.loads(file.read_text(encoding="utf-8")), where=f"engines/{file.name}")
             for file in files]  # fmt: skip
    return {model.name: model for model in found}


@functools.cache
def _aliases() -> dict[str, str]:
    return {alias: model.name for model in _shipped().values() for alias in (model.name, *model.aliases)}


def names() -> tuple[str, ...]:
    return tuple(_shipped())


def known(name: str) -> bool:
    """Whether an engine of this name or alias is shipped."""
    return name.lower() in _aliases()


@functools.lru_cache(maxsize=256)
def model_of(name: str) -> EngineModel:
    """Raises BadInput for a file that is none; a name that an adapter has and no model stands for is plain."""
    if name.endswith(".toml"):
        return _own(Path(name))
    found = _aliases().get(name.lower())
    if found is None:
        from seatrial.engines import ENGINES

        adapter = ENGINES.get(name)
        return model_of(getattr(adapter, "model", UNKNOWN))
    return _shipped()[found]


def _own(path: Path) -> EngineModel:
    data = read_toml(path)
    data = data.get("engine", data)
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if name not in RUNS}
    base = data.pop("base", None) if isinstance(data, dict) else None
    if not isinstance(base, str):
        raise BadInput(f"{path}: an engine of one's own needs base = one of {', '.join(names())}, and what differs from it")
    values = {f.name: getattr(model_of(base), f.name) for f in dataclasses.fields(EngineModel)}
    return fields.build(EngineModel, {**values, "name": path.stem, "aliases": (), **data}, where=str(path))
