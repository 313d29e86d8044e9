"""The cluster: nodes, their devices, the links inside and between them."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from seatrial import fields
from seatrial.errors import BadInput


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
    group_share: dict[str, float] = field(default_factory=dict)
    """Share of the rate that a group of so many processes reaches, by its size; sizes between are interpolated, larger ones
    have the last. Without a switch few processes have few of the links: { 2 = 0.14 } where there is one to each of 7 peers."""
    reduce_gain: dict[str, float] = field(default_factory=dict)
    """What an all-reduce reaches relative to a gather or scatter, by the size of its group: a switch that adds up (NVLink
    SHARP) spares it a pass."""
    hop_us: float | None = None
    """Of one step of a ring, beside `latency_us` once a call. Where it is not known a call has log2(processes) latencies."""
    half_rate_mb: float | None = None
    """1e6 bytes of one call at which half of the rate is reached; smaller calls wait for their latency. Where it is not known
    any call, however small, pays for 8 more."""
    name: str = ""
    """What tables call it."""
    source: str = ""
    """Where the figures come from."""

    def __post_init__(self) -> None:
        fields.positive(f"link {self.name}".strip(), bandwidth_gb_s=self.bandwidth_gb_s, latency_us=self.latency_us,
                        efficiency=self.efficiency, flow_gb_s=self.flow_gb_s, hop_us=self.hop_us,
                        half_rate_mb=self.half_rate_mb)
        for name, by_size in (("group_share", self.group_share), ("reduce_gain", self.reduce_gain)):
            for size, value in by_size.items():
                if not size.isdecimal() or int(size) < 2:
                    raise BadInput(f"link {self.name}.{name}: {size!r} is no number of processes; 2 or more")
                fields.positive(f"link {self.name}.{name}", **{size: value})


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
    """Peak memory bandwidth in 1e9 bytes per second."""
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
    """Share of `peak_tflops` that a large, well shaped GEMM reaches for a moment."""
    sustained: float = 0.88
    """What the power limit leaves of that when large GEMMs follow each other."""
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
                        matmul_efficiency=self.matmul_efficiency, sustained=self.sustained)
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
    nodes: int = fields.field(label="Nodes", kind="count", of_trial="nodes", word="nodes",
        names="nodes, node, num nodes, nnodes, n nodes, no of nodes, number of nodes, hosts, servers")
    """Nodes that may be used."""
    procs_per_node: int = fields.field(label="Procs/node", kind="count", of_trial="procs_per_node", title="Processes per node",
        names="gpus per node, gpu per node, procs per node, processes per node, ranks per node, ppn, max proc per node, "
              "devices per node, nproc per node, num gpus per node, gpn")
    """Processes, and so ranks, of one node."""
    device: Device
    """Of one process when `procs_per_node` run; `with_procs` shares a node anew."""
    intra: Link
    """Between the processes of one node, as one process sees it."""
    inter: Link
    """Between nodes, as one NODE sees it (all its adapters together)."""
    domain_nodes: int = 1
    """Nodes whose processes reach each other over `intra`: 18 of 4 GPUs in one NVLink domain of 72."""
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
                        domain_nodes=self.domain_nodes, host_memory_gib=self.host_memory_gib)
        fields.at_most(f"cluster {self.name}", {"nodes": 1_000_000, "procs_per_node": 1_000_000}, self)

    @property
    def world(self) -> int:
        return self.nodes * self.procs_per_node

    @property
    def domain(self) -> int:
        """Processes that reach each other over `intra`."""
        return self.procs_per_node * self.domain_nodes

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


KNOWN_OF_MACHINE = frozenset({"machine", "domain_nodes", "sustained", "group_share", "reduce_gain", "hop_us", "half_rate_mb"})
"""What later versions, or a measurement, say about the same machine."""


def less_known(cluster: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in cluster.items() if key not in KNOWN_OF_MACHINE}
    for part in ("device", "intra", "inter"):
        if part in kept:
            kept[part] = {key: value for key, value in kept[part].items() if key not in KNOWN_OF_MACHINE}
    return kept
