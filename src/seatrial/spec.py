"""The words: model, topology, batch, cluster, environment, trial. Frozen, validated, the same in TOML, JSON and Python.

    trial, training = trialfile.load("trial.toml", settings=["topology.tp=2", "batch.gbs=16"])
    rules.check(trial)            raises Infeasible with the numbers and the nearest values that work
    trial.run_id()                the hash of what was asked, defaulted fields left out

Each word checks what it can see alone; what takes two words (`dp x tp x pp = nodes x processes`) is in `rules.py`.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.schedule import ScheduleKind, virtual_stages_wrong

Family = Literal["gpt2", "bloom", "llama"]
Recompute = Literal["none", "selective", "full"]
Precision = Literal["fp32", "bf16", "fp16", "fp8"]
Engine = Literal["seatrial", "megatron", "command"]

GIB = 1024**3
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "fp64": 8}


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True, kw_only=True)
class Model:
    """The network's shape."""

    layers: int
    """Transformer layers."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Attention heads; `hidden` is a multiple of them."""
    vocab: int
    """Tokens of the tokenizer; what is stored is `padded_vocab(tp)`."""
    seq: int
    """Tokens of one training sequence."""
    family: Family = "gpt2"
    """gpt2: learned positions; bloom: ALiBi and an embedding norm; llama: RoPE, RMSNorm, SwiGLU."""
    kv_heads: int | None = None
    """Grouped-query attention when smaller than heads (llama only)."""
    ffn: int | None = None
    """Inner width of the MLP: 4 x hidden, or for llama 8/3 x hidden rounded up to 256."""
    tied: bool | None = None
    """Whether input and output embeddings are one matrix: yes for gpt2 and bloom, no for llama."""
    pad_vocab_to: int | None = None
    """Store this many rows whatever TP is, as Megatron's --pad-vocab-size-to."""
    rope_theta: float = 10_000.0
    """Base of the rotary positions (llama)."""
    norm_eps: float = 1e-5
    """Added under the root of every norm."""
    name: str = ""
    """What tables call it."""

    def __post_init__(self) -> None:
        fields.positive("model", layers=self.layers, hidden=self.hidden, heads=self.heads, vocab=self.vocab, seq=self.seq,
                        kv_heads=self.kv_heads, ffn=self.ffn, pad_vocab_to=self.pad_vocab_to, rope_theta=self.rope_theta,
                        norm_eps=self.norm_eps)
        if self.hidden % self.heads:
            works = _divisors_near(self.hidden, self.heads)
            raise BadInput(f"model: hidden {self.hidden} is not a multiple of heads {self.heads}: nearest are {works}")
        if self.heads % self.kv:
            works = _divisors_near(self.heads, self.kv)
            raise BadInput(f"model: heads {self.heads} is not a multiple of kv_heads {self.kv}: nearest are {works}")
        if self.family != "llama" and self.kv != self.heads:
            raise BadInput(f"model: family {self.family} has kv_heads = heads ({self.heads}), found {self.kv}")
        if self.family == "llama" and self.head_dim % 2:
            raise BadInput(f"model: rotary positions need an even head size, hidden {self.hidden} / heads {self.heads} "
                           f"is {self.head_dim}")
        if self.pad_vocab_to is not None and self.pad_vocab_to < self.vocab:
            raise BadInput(f"model: pad_vocab_to {self.pad_vocab_to} is below the vocabulary of {self.vocab}")

    @property
    def kv(self) -> int:
        return self.kv_heads if self.kv_heads is not None else self.heads

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def inner(self) -> int:
        if self.ffn is not None:
            return self.ffn
        return round_up(8 * self.hidden // 3, 256) if self.family == "llama" else 4 * self.hidden

    @property
    def glu(self) -> bool:
        return self.family == "llama"

    @property
    def ties(self) -> bool:
        return self.tied if self.tied is not None else self.family != "llama"

    def padded_vocab(self, tp: int) -> int:
        """Rows of the embedding as stored: the next multiple of 128 x TP, or `pad_vocab_to`."""
        return self.pad_vocab_to if self.pad_vocab_to is not None else round_up(self.vocab, 128 * tp)


def _divisors_near(n: int, wanted: int) -> str:
    divisors = [d for d in range(1, n + 1) if n % d == 0] if n < 1_000_000 else [1, n]
    below = max((d for d in divisors if d <= wanted), default=divisors[0])
    above = min((d for d in divisors if d >= wanted), default=divisors[-1])
    return f"{below}" if below == above else f"{below} and {above}"


@dataclass(frozen=True, kw_only=True)
class Topology:
    """How the model is laid out over the processes."""

    dp: int = 1
    """Data parallel: replicas of the model."""
    tp: int = 1
    """Tensor parallel: ranks that share every layer."""
    pp: int = 1
    """Pipeline parallel: ranks that the layers are divided over."""
    vp: int = 1
    """Virtual stages a rank (interleaved 1F1B)."""
    mbs: int = 1
    """Micro-batch size: sequences that pass the pipeline together."""
    zero: int = 0
    """ZeRO stage: 1 shares the optimizer's state over DP, 2 also gradients, 3 also weights."""
    recompute: Recompute = "none"
    """Activations computed again in the backward pass: none, those of attention, or all of a layer's."""
    schedule: ScheduleKind = "1f1b"
    """The order of forward and backward passes of the micro-batches."""
    precision: Precision = "fp32"
    """Of products and activations; masters and moments are fp32."""
    sequence_parallel: bool = False
    """Whether norms and dropout split the sequence over TP."""
    stage_layers: tuple[int, ...] | None = None
    """Layers of each of the pp x vp stages, in model order; by default `stage_split` decides."""

    def __post_init__(self) -> None:
        fields.positive("topology", dp=self.dp, tp=self.tp, pp=self.pp, vp=self.vp, mbs=self.mbs)
        if self.zero not in (0, 1, 2, 3):
            raise BadInput(f"topology.zero: {self.zero} is not a ZeRO stage; 0, 1, 2 and 3 are")
        if wrong := virtual_stages_wrong(self.schedule, pp=self.pp, virtual=self.vp):
            raise BadInput(f"topology: {wrong}")
        if self.stage_layers is not None and len(self.stage_layers) != self.pp * self.vp:
            raise BadInput(f"topology.stage_layers: {len(self.stage_layers)} entries for pp {self.pp} x vp {self.vp} "
                           f"= {self.pp * self.vp} stages")

    @property
    def world(self) -> int:
        return self.dp * self.tp * self.pp


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Global batch size and its ramp-up."""

    gbs: int
    """Sequences of one iteration, over all replicas."""
    rampup_start: int | None = None
    """The batch grows from this …"""
    rampup_increment: int | None = None
    """… in steps of this …"""
    rampup_samples: int | None = None
    """… over this many samples."""

    def __post_init__(self) -> None:
        fields.positive("batch", gbs=self.gbs, rampup_start=self.rampup_start, rampup_increment=self.rampup_increment,
                        rampup_samples=self.rampup_samples)
        given = [self.rampup_start, self.rampup_increment, self.rampup_samples]
        if any(v is None for v in given) and any(v is not None for v in given):
            raise BadInput("batch: a ramp-up needs rampup_start, rampup_increment and rampup_samples together")
        if self.rampup_start is not None and self.rampup_increment is not None:
            if self.rampup_start > self.gbs:
                raise BadInput(f"batch: rampup_start {self.rampup_start} is above gbs {self.gbs}")
            if (self.gbs - self.rampup_start) % self.rampup_increment:
                steps = (self.gbs - self.rampup_start) // self.rampup_increment
                low = self.rampup_start + steps * self.rampup_increment
                raise BadInput(f"batch: from {self.rampup_start} in steps of {self.rampup_increment} the batch never becomes "
                               f"{self.gbs}: the nearest are {low} and {low + self.rampup_increment}")

    def size_at(self, consumed_samples: int) -> int:
        """The global batch size once `consumed_samples` have been trained on."""
        if self.rampup_start is None or self.rampup_increment is None or self.rampup_samples is None:
            return self.gbs
        steps = (self.gbs - self.rampup_start) // self.rampup_increment
        if steps == 0 or consumed_samples >= self.rampup_samples:
            return self.gbs
        done = consumed_samples * steps // self.rampup_samples
        return min(self.gbs, self.rampup_start + done * self.rampup_increment)


@dataclass(frozen=True, kw_only=True)
class Link:
    """A network link as one process (or one node) sees it."""

    bandwidth_gb_s: float
    """Bytes per second in one direction, in 1e9, of everything the owner of the link can inject."""
    latency_us: float
    """Of one message."""
    efficiency: float = 0.8
    """Share of the nominal bandwidth that large collectives reach."""
    flow_gb_s: float | None = None
    """The most that one communicator, or one pair of processes, gets of it, where that is less than its share."""
    name: str = ""
    """What tables call it."""
    source: str = ""
    """Where the figures come from."""

    def __post_init__(self) -> None:
        fields.positive(f"link {self.name}".strip(), bandwidth_gb_s=self.bandwidth_gb_s, latency_us=self.latency_us,
                        efficiency=self.efficiency, flow_gb_s=self.flow_gb_s)


@dataclass(frozen=True, kw_only=True)
class Device:
    """What one process computes on: a GPU, or a share of a CPU node."""

    name: str
    """What tables call it."""
    kind: Literal["gpu", "cpu"]
    """A GPU stays whole when a node runs more processes; a CPU node is divided."""
    peak_tflops: dict[str, float]
    """Dense matrix peak by precision, from the data sheet."""
    memory_gib: float
    """Of one device."""
    memory_gb_s: float
    """Peak memory bandwidth in 1e9 bytes a second."""
    usable_gib: float | None = None
    """What a process can really have; by default all of it less the framework's context."""
    context_gib: float = 0.0
    """Taken by driver, runtime and communication library before the first tensor."""
    units: int = 1
    """Streaming multiprocessors, or cores: what wave quantisation counts."""
    clock_ghz: float | None = None
    """The clock at which `peak_tflops` holds; a trial at another one is scaled."""
    launch_us: float = 5.0
    """Time to start one kernel when nothing hides it."""
    matmul_efficiency: float = 0.85
    """Share of `peak_tflops` that a large, well shaped matrix product reaches."""
    fused_attention: bool | None = None
    """Whether attention is computed without storing the scores (FlashAttention and its like); by default where the device has
    fp8, whose software is younger than that."""
    power_w: float | None = None
    """For the forecast's energy."""
    source: str = ""
    """Where the figures come from."""

    def __post_init__(self) -> None:
        fields.positive(f"device {self.name}", memory_gib=self.memory_gib, memory_gb_s=self.memory_gb_s, units=self.units,
                        usable_gib=self.usable_gib, clock_ghz=self.clock_ghz, launch_us=self.launch_us,
                        matmul_efficiency=self.matmul_efficiency)
        if not self.peak_tflops:
            raise BadInput(f"device {self.name}: peak_tflops must name at least one precision")
        for precision, value in self.peak_tflops.items():
            fields.positive(f"device {self.name}.peak_tflops", **{precision: value})

    @property
    def fuses_attention(self) -> bool:
        return "fp8" in self.peak_tflops if self.fused_attention is None else self.fused_attention

    @property
    def limit_gib(self) -> float:
        return self.usable_gib if self.usable_gib is not None else self.memory_gib


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes, devices and links."""

    name: str
    """What tables call it."""
    nodes: int
    """Nodes that may be used."""
    procs_per_node: int
    """Processes, and so ranks, of one node."""
    device: Device
    """Of one process when `procs_per_node` run; `with_procs` shares a node anew."""
    intra: Link
    """Between the processes of one node, as one process sees it."""
    inter: Link
    """Between nodes, as one NODE sees it (all its adapters together)."""
    nodes_per_switch: int | None = None
    """For the record; the planner does not use it."""
    memory_convention: Literal["device", "node"] = "device"
    """What the Mem column of this machine's tables means: the fullest device, or everything used on the fullest node."""
    blocking_launch: bool = False
    """Whether jobs run with CUDA_LAUNCH_BLOCKING=1: the device waits for the host at every kernel."""
    host_memory_gib: float | None = None
    """Of one node, beside the devices' own; for the record."""
    machine: str | None = None
    """A machine.json that `seatrial probe` wrote: the planner takes its figures in place of the data sheet."""
    price_per_device_hour: float | None = None
    """In any currency; `plan --price` goes over it."""
    notes: str = ""
    """Anything worth keeping."""

    def __post_init__(self) -> None:
        fields.positive(f"cluster {self.name}", nodes=self.nodes, procs_per_node=self.procs_per_node,
                        host_memory_gib=self.host_memory_gib)

    @property
    def world(self) -> int:
        return self.nodes * self.procs_per_node

    def with_nodes(self, nodes: int) -> Cluster:
        return replace(self, nodes=nodes)

    def with_procs(self, procs: int) -> Cluster:
        """The same node shared by another number of processes: a CPU node is divided, GPUs stay whole."""
        if procs == self.procs_per_node or self.device.kind == "gpu":
            return replace(self, procs_per_node=procs)
        share = self.procs_per_node / procs
        d = self.device
        device = replace(d, peak_tflops={p: v * share for p, v in d.peak_tflops.items()}, memory_gib=d.memory_gib * share,
                         memory_gb_s=d.memory_gb_s * share, units=max(1, round(d.units * share)),
                         usable_gib=None if d.usable_gib is None else d.usable_gib * share)
        return replace(self, procs_per_node=procs, device=device)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What surrounds the processes and may change their speed."""

    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables set for the trial (LD_PRELOAD, OMP_NUM_THREADS, CUDA_LAUNCH_BLOCKING, …)."""
    python: str | None = None
    """Another interpreter, for comparing versions of PyTorch."""
    scheduler: dict[str, str] = field(default_factory=dict)
    """Options for the batch system (clock, retention state, partition)."""
    clock_ghz: float | None = None
    """Of the processors, where the batch system sets it."""
    torch: str | None = None
    """Version of PyTorch, for the record."""

    def __post_init__(self) -> None:
        fields.positive("environment", clock_ghz=self.clock_ghz)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How our engine computes a trial: what changes its time or its memory and is neither model nor layout."""

    optimizer: Literal["adamw-fused", "adamw-plain"] = "adamw-fused"
    """`adamw-plain` is one operation at a time, for comparison."""
    moments: Literal["fp32", "bf16"] = "fp32"
    """How AdamW's two means are held; in bf16 they are computed in fp32 and rounded once, 4 bytes per parameter less."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes CUDA where it is there."""
    compile: bool = False
    """torch.compile on the layers."""
    bucket_mib: float = 32.0
    """Size of one flat gradient bucket."""
    logits_chunk: int = 1024
    """Tokens whose logits are held at once in the loss."""
    threads: int | None = None
    """Compute threads per process; by default the cores divided by the processes of the node."""

    def __post_init__(self) -> None:
        fields.positive("execution", bucket_mib=self.bucket_mib, logits_chunk=self.logits_chunk, threads=self.threads)

    @property
    def update(self) -> str:
        """How weights are updated, where that is not the usual way: what a table's Optimizer column says."""
        unusual = [self.optimizer] if self.optimizer != Execution.optimizer else []
        return ", ".join([*unusual, f"moments in {self.moments}"] if self.moments != Execution.moments else unusual)


@dataclass(frozen=True, kw_only=True)
class Command:
    """Any program as an engine: its arguments with {tp}, {gbs}, {run_dir} and the like in them, never seen by a shell."""

    argv: tuple[str, ...]
    """The program and its arguments."""
    per: Literal["rank", "node"] = "node"
    """Whether it is started once a rank, or once a node because it starts the ranks itself (torchrun)."""

    def __post_init__(self) -> None:
        if not self.argv:
            raise BadInput("command.argv: names no program")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row of a table before it is run."""

    model: Model
    batch: Batch
    topology: Topology = field(default_factory=Topology)
    cluster: Cluster | None = None
    environment: Environment = field(default_factory=Environment)
    execution: Execution = field(default_factory=Execution)
    engine: Engine = "seatrial"
    """Whose rules hold: `megatron` wants equal stages (or layers + 2), ours takes uneven ones."""
    command: Command | None = None
    """What is run when it is not our own engine."""
    repeat: int = 0
    """Counts the runs of one and the same trial."""

    def to_dict(self) -> dict[str, Any]:
        return fields.plain(self)

    def run_id(self) -> str:
        """What is known about a machine changes the forecast, not the run: the machine file is left out."""
        asked = self.to_dict()
        if "cluster" in asked:
            asked["cluster"] = {key: value for key, value in asked["cluster"].items() if key != "machine"}
        return fields.digest(asked)

    @property
    def microbatches(self) -> int:
        return self.batch.gbs // (self.topology.dp * self.topology.mbs)


def stage_split(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage in model order.

    Even when it divides; else, when layers + 2 divides, the embedding and the head each take a layer's place (BLOOM: 70 + 2
    over 12); else as even as can be with the middle stages taking the surplus, since the last one has the logits and the first
    the embedding.
    """
    if layers % stages == 0:
        return (layers // stages,) * stages
    if (layers + 2) % stages == 0 and stages > 1 and (layers + 2) // stages > 1:
        each = (layers + 2) // stages
        return (each - 1, *(each,) * (stages - 2), each - 1)
    base, surplus = divmod(layers, stages)
    order = [*range(1, stages - 1), 0, stages - 1]
    extra = set(order[:surplus])
    return tuple(base + (i in extra) for i in range(stages))


def stages_of(model: Model, topology: Topology) -> tuple[int, ...]:
    """Layers of each of the pp x vp stages; stage `chunk * pp + rank` runs on pipeline rank `rank`."""
    stages = topology.pp * topology.vp
    split = topology.stage_layers or stage_split(model.layers, stages)
    if sum(split) != model.layers or min(split) < 0:
        raise BadInput(f"topology.stage_layers: {list(split)} adds up to {sum(split)}, the model has {model.layers} layers")
    return split
