"""How long one kernel takes on a device: GEMMs by shape, and kernels that only move memory.

    machine = Machine.of(configs, cluster)
    matmul_s(machine, rows=8192, cols=5376, inner=14336, align=…)

A GPU computes a GEMM in tiles, one tile a multiprocessor at a time: what does not fill a tile, or the last wave of tiles,
is lost. It reads 16 bytes at a time: rows that do not begin at such a border cannot use the tensor cores. Nothing here is
fitted; each constant has its reason beside it. Where the cluster names a machine file, `probed.py` corrects all of it.
"""
from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from seatrial.plan import probed
from seatrial.plan.configs import PRECISIONS, Configs, Floats, Ints
from seatrial.spec import BYTES, Cluster

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.93), (128, 64, 0.75), (64, 64, 0.5))
"""Rows, columns, and the rate of a multiprocessor relative to the largest tile: a tile of half the area loads 4/3 as many
bytes an operation from cache. NVIDIA's guide to matrix multiplication names these tiles and that order."""

PIPELINE_FILL = 128
"""Steps of the inner dimension that a tile takes to fill its load pipeline and to write its result: 4 stages of 32."""

SPLIT_INNER = 512
"""With fewer tiles than multiprocessors the libraries cut the inner dimension; pieces below this are not worth their
reduction."""

ALIGNED_BYTES = 128
"""A row that begins at a cache line. Multiples of 16 bytes still use tensor cores and lose what `ALIGNMENT` says: each row of
a tile touches one sector of 32 bytes more than it has to, of which part is hidden."""

ALIGNMENT = {128: 1.0, 64: 0.99, 32: 0.98, 16: 0.95}
"""Measured on an H200 with `benchmarks/kernels_gpu.py`: widths of 1800, 5400 and 7200 lose 3 to 8 % against 1792, 5376 and
7168, of which unfilled tiles explain 3 to 5."""

STREAM = 0.85
"""Share of the memory's peak that plain copies and sums reach: 0.88 on an H200 (same benchmark), 0.80 to 0.92 in STREAM-like
tests."""

ISSUE_BYTES = 7.5
"""Bytes for each clock and multiprocessor that kernels with work on each element reach (norms, softmax, dropout, activations),
however fast the memory is: 5.5 to 8.1 on an H200 (same benchmark), where that is 0.4 of the memory's peak; on a V100 the
memory is slower."""

FRESH_BYTES_S = 20e9
"""Bytes per second that one process on a CPU moves through kernels whose results are newly allocated each time: the system
hands out and clears the pages. An allocator that keeps them does better, which is learned."""

USUAL_UNITS = 100
"""Multiprocessors of a large GPU: 80 to 132 since 2017."""

FP8 = 0.855
"""What 8-bit GEMMs reach of their peak, over what 16-bit ones reach of theirs: 1354 of 1979 TFLOP/s at best on an H200 (the
shipped probe), where these have 790 of 989."""

SUSTAINED_FP8 = 0.93
"""What the power limit leaves of that: 1240 to 1310 in the largest of the same probe. An 8-bit operation draws less."""

UNLIKE = 0.015
"""Standard deviation of the rate of devices that are at their power limit: 639 to 673 TFLOP/s of H200s and 677 to 707 of H100s
in kernel tables of single ones; clusters differ more (Sinha et al., "Not All GPUs Are Created Equal", SC22). A step ends with
the slowest of them."""

SLOWEST = (0.0, 0.56, 1.03, 1.42, 1.77, 2.07, 2.34, 2.59, 2.83, 3.04, 3.24, 3.43, 3.61, 3.78, 3.94)
"""By how many standard deviations the largest of 1, 2, 4, 8, … numbers lies above their mean."""

VECTOR = 0.9
"""Share of the fp32 units' peak that a GEMM reaches which cannot use tensor cores."""

NARROW = 0.33
"""Share of the aligned rate when newer libraries feed the tensor cores with loads of less than 16 bytes: 0.28 to 0.57 on an
H200 (same benchmark). Libraries of the A100's time went to the fp32 units."""

DRAIN_S = 4e-6
"""Between two GEMMs: the last tiles finish while the next kernel starts. 4 to 9 µs for small ones (same benchmark)."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One process's device, as columns: a CPU node may be shared by another number of processes in each configuration."""

    gpu: bool
    narrow_loads: bool
    """Whether the libraries use tensor cores for unaligned operands as well."""
    matrix_flops: Floats
    """What a large, well shaped GEMM of a layer's linears reaches for a moment, in operations per second …"""
    wide_flops: Floats
    """… and one outside of them, which 8 bits leave alone: the head's, attention's."""
    peak_flops: Floats
    """The data sheet's, for those."""
    bf16: bool
    """Whether the device has it: Ampere and younger."""
    vector_flops: Floats
    sustained: Floats
    """What the power limit leaves of it."""
    wide_sustained: Floats
    """The same of 16 bits."""
    power_bound: bool
    """Whether the clock follows the power that kernels draw: devices since Hopper at their limit."""
    stream_bytes_s: Floats
    """What the memory itself gives, as GEMMs read it."""
    memory_bytes_s: Floats
    """Of kernels that copy or add."""
    element_bytes_s: Floats
    """Of kernels that do some work on each element."""
    units: Floats
    element_bytes: Floats
    launch_s: Floats
    """Host time to start one kernel."""
    exposed_launch: bool
    """Whether every kernel waits for its launch, as with CUDA_LAUNCH_BLOCKING=1."""
    precision: Ints
    logits_bytes_s: Floats
    """Of the loss over the vocabulary."""
    optimizer_s: Floats | None = None
    """Seconds per parameter, where that was measured; so are the next three."""
    host_forward_s: Floats | None = None
    """The host's time for one layer."""
    host_backward_s: Floats | None = None
    fixed_s: Floats | None = None
    """The host's time for one iteration."""
    figures: probed.Probed | None = None
    """What corrects the model's GEMMs and attention."""

    @classmethod
    def of(cls, configs: Configs, cluster: Cluster, found: probed.Probed | None = None, *,
           corrected: bool = True) -> Machine:
        """`found`: a machine file other than the cluster's own; not `corrected`: what its figures are compared with."""
        found = found or probed.of(cluster)
        plain = cls._from_sheet(configs, cluster)
        return plain if found is None else plain._with(found, configs, corrected)

    def wide(self, but: Any = False) -> Machine:
        """For what is computed in 16 bits though the linears are in 8; `but`: where it is in 8 as well."""
        found = (self.precision == PRECISIONS.index("fp8")) & ~np.asarray(but)
        if not found.any():
            return self
        return replace(self, matrix_flops=np.where(found, self.wide_flops, self.matrix_flops),
                       sustained=np.where(found, self.wide_sustained, self.sustained),
                       precision=np.where(found, PRECISIONS.index("bf16"), self.precision))

    def take(self, index: Any) -> Machine:
        """Some of the configurations."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Machine(**{name: v[index] if isinstance(v, np.ndarray) else v for name, v in values.items()})

    def _with(self, found: probed.Probed, c: Configs, corrected: bool) -> Machine:
        """Rates as they were measured, at the sizes that a configuration's kernels have."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        share = np.ones(len(c)) if self.gpu or not corrected else found.share(c.procs_per_node)
        crowd = np.ones(len(c)) if self.gpu else found.crowding(c.procs_per_node)
        if not self.gpu:
            peaks = np.array([found.best_flops(p) or found.best_flops("fp32") or 0.0 for p in PRECISIONS])
            values["matrix_flops"] = np.where(peaks[c.precision] > 0, peaks[c.precision] * share, self.matrix_flops)
            values["wide_flops"] = values["matrix_flops"]
        if found.copy_rate is not None:
            values["memory_bytes_s"] = found.copy_rate.at(c.hidden * c.inner / c.tp * self.element_bytes) * share
            if not self.gpu:
                values["stream_bytes_s"] = np.full(len(c), float(np.exp(found.copy_rate.values.max()))) * share
        if found.element_rate is not None:
            values["element_bytes_s"] = found.element_rate.at(c.tokens * c.hidden * self.element_bytes) * share
        values["logits_bytes_s"] = values["memory_bytes_s"] if found.logits_rate is None else found.logits_rate * share
        each = np.array([found.optimizer_rate(p) or np.nan for p in PRECISIONS])
        # On a GPU an engine's own kernels decide, and one iteration's host time hides behind the one before.
        if not np.isnan(each).any() and not self.gpu:
            values["optimizer_s"] = each[c.precision] / share
        if found.launch_s is not None:
            values["launch_s"] = found.launch_s * crowd
        if found.host_s is not None:
            forward, backward, fixed = found.host_s
            values |= {"host_forward_s": forward * crowd, "host_backward_s": backward * crowd}
            values |= {} if self.gpu else {"fixed_s": fixed * crowd}
        return Machine(**{**values, "figures": found if corrected else None})

    @classmethod
    def _from_sheet(cls, configs: Configs, cluster: Cluster) -> Machine:
        device = cluster.device
        n = len(configs)
        gpu = device.kind == "gpu"
        share = np.ones(n) if gpu else cluster.procs_per_node / configs.procs_per_node
        clock = np.ones(n)
        if device.clock_ghz:
            clock = np.where(np.isnan(configs.clock_ghz), 1.0, configs.clock_ghz / device.clock_ghz)
        peaks = device.peak_tflops
        fallback = max(peaks.get("bf16", 0.0), peaks.get("fp16", 0.0)) or max(peaks.values())
        by_code = np.array([peaks.get(p, peaks["fp32"] if p == "fp32" and "fp32" in peaks else fallback) for p in PRECISIONS])
        # A GPU's fp32 matrices go through the tf32 units where there are any.
        if gpu and "tf32" in peaks:
            by_code[PRECISIONS.index("fp32")] = peaks["tf32"]
        wide = by_code.copy()
        wide[PRECISIONS.index("fp8")] = fallback
        by_code[PRECISIONS.index("fp8")] *= FP8
        vector = peaks.get("fp32", max(peaks.values()) / 16)
        stream = device.memory_gb_s * 1e9 * STREAM
        # A device that does not say how many multiprocessors it has is taken for one of the usual size.
        units = device.units if device.units > 1 or not gpu else USUAL_UNITS
        issue = units * (device.clock_ghz or 1.4) * 1e9 * ISSUE_BYTES
        element = np.full(n, min(stream, issue)) if gpu else np.minimum(stream * share, FRESH_BYTES_S * clock)
        power_bound = gpu and device.fuses_attention
        deviations = np.interp(np.log2(configs.world), range(len(SLOWEST)), SLOWEST) if power_bound else np.zeros(n)
        slowest = 1 / (1 + UNLIKE * deviations)
        return cls(
            gpu=gpu,
            narrow_loads=device.fuses_attention,
            matrix_flops=slowest * by_code[configs.precision] * 1e12 * device.matmul_efficiency * share * clock,
            wide_flops=slowest * wide[configs.precision] * 1e12 * device.matmul_efficiency * share * clock,
            peak_flops=slowest * wide[configs.precision] * 1e12 * share * clock,
            bf16="bf16" in peaks,
            vector_flops=vector * 1e12 * VECTOR * share * clock,
            sustained=np.where(configs.precision == PRECISIONS.index("fp8"), max(device.sustained, SUSTAINED_FP8),
                               device.sustained),
            wide_sustained=np.full(n, device.sustained),
            power_bound=power_bound,
            stream_bytes_s=stream * share,
            memory_bytes_s=stream * share if gpu else element,
            element_bytes_s=element,
            units=np.maximum(1.0, units * share),
            element_bytes=np.array([float(max(2, BYTES[p])) for p in PRECISIONS])[configs.precision],
            launch_s=device.launch_us * 1e-6 / (np.ones(n) if gpu else clock),
            exposed_launch=cluster.blocking_launch,
            precision=configs.precision,
            logits_bytes_s=stream * share if gpu else element,
        )


def alignment_bytes(machine: Machine, *widths: Ints) -> Ints:
    """The largest power of two up to a cache line that divides every width in bytes."""
    joined = np.bitwise_or.reduce(np.broadcast_arrays(*widths)) * machine.element_bytes.astype(np.int64)
    return np.minimum(joined & -joined, ALIGNED_BYTES)


def matmul_s(machine: Machine, rows: Any, cols: Any, inner: Any, align: Ints, batch: Any = 1, kind: str = "forward") -> Floats:
    """Seconds of `batch` GEMMs [rows, inner] x [inner, cols]; `align` in bytes, from the widths that lie contiguous in
    memory; `kind` says how the operands lie, as `probe/shapes.py` has it."""
    seconds = _modelled_s(machine, rows, cols, inner, align, batch)
    if machine.figures is None:
        return seconds
    return seconds * _factor(_off_by(machine.figures), kind, machine.precision, rows, cols, inner, batch)


def _factor(known: dict[tuple[str, str], probed.Points], kind: str, precision: Ints, rows: Any, cols: Any, inner: Any,
            batch: Any) -> Floats:
    found = np.ones(len(precision))
    for code in np.unique(precision):
        points = probed.first_of(known, [(name, kind) for name in probed.types(code)])
        if points is None:
            continue
        where = precision == code
        sides = [np.broadcast_to(side, found.shape)[where] for side in (rows, cols, inner, batch)]
        found[where] = points.at(*sides)
    return found


def as_measured(found: probed.Probed, precisions: list[str]) -> Machine:
    """The model's own machine for so many figures, as the process was that measured them."""
    n = len(precisions)
    procs = found.file["procs_per_node"]
    codes = np.array([PRECISIONS.index(p) for p in precisions])
    configs = Configs.from_columns(n, layers=1, hidden=1024, heads=8, seq=1024, vocab=1024, gbs=1, procs_per_node=procs,
                                   precision=codes)
    return Machine.of(configs, found.cluster, found, corrected=False)


@functools.lru_cache(maxsize=64)
def _off_by(figures: probed.Probed) -> dict[tuple[str, str], probed.Points]:
    """By type and kind: measured seconds of a GEMM over the model's."""
    known = figures.entries("matmul")
    if not known:
        return {}
    machine = as_measured(figures, [e["dtype"] for e in known])
    rows, cols, inner, batch = (np.array([e[side] for e in known]) for side in ("rows", "cols", "inner", "batch"))
    weight = np.array([e["kind"] == "weight" for e in known])
    align = alignment_bytes(machine, cols, np.where(weight, rows, inner))
    factors = np.array([e["s"] for e in known]) / matmul_s(machine, rows, cols, inner, align, batch)
    found = {}
    for key in dict.fromkeys((e["dtype"], e["kind"]) for e in known):
        mine = np.array([(e["dtype"], e["kind"]) == key for e in known])
        found[key] = probed.Points(np.stack([rows, cols, inner, batch], axis=1)[mine], factors[mine])
    if figures.file.get("mode") == "imported":  # published tables are of inference: the backward pass is off by as much
        for dtype, kind in [(d, k) for d, forward in found if forward == "forward" for k in ("input", "weight")]:
            found.setdefault((dtype, kind), found[dtype, "forward"])
    return found


def _modelled_s(machine: Machine, rows: Any, cols: Any, inner: Any, align: Ints, batch: Any) -> Floats:
    rows, cols, inner, batch = (np.asarray(x, dtype=np.float64) for x in (rows, cols, inner, batch))
    flops = 2.0 * rows * cols * inner * batch
    traffic_s = (rows * inner + inner * cols + rows * cols) * batch * machine.element_bytes / machine.stream_bytes_s
    if not machine.gpu:
        return np.maximum(flops / (machine.matrix_flops * _cpu_fill(rows, cols, inner)), traffic_s)
    loss = np.select([align >= b for b in ALIGNMENT], list(ALIGNMENT.values()), default=1.0)
    tensor = _tiled_s(machine, rows, cols, inner, batch) / loss
    # Below 16 bytes a load moves 8, 4 or 2 at a time and the fp32 units do the work; below 8 the loads themselves set the pace.
    vector = flops / (machine.vector_flops * np.minimum(align / 8.0, 1.0))
    if machine.narrow_loads:
        vector = tensor / NARROW
    # A shape that leaves multiprocessors idle also leaves power, so the two losses do not multiply.
    floor = np.maximum(traffic_s, flops / (machine.matrix_flops * machine.sustained))
    return np.maximum(np.where(align >= 16, tensor, np.maximum(tensor, vector)), floor) + DRAIN_S


def _tiled_s(machine: Machine, rows: Floats, cols: Floats, inner: Floats, batch: Floats) -> Floats:
    """The best of the tiles: waves of tiles over the multiprocessors, each tile as long as if it were full."""
    best: Floats | None = None
    unit_flops = machine.matrix_flops / machine.units
    for tall, wide, rate in TILES:
        tiles = np.ceil(rows / tall) * np.ceil(cols / wide) * batch
        cuts = np.clip(np.floor(machine.units / tiles), 1.0, np.maximum(1.0, np.floor(inner / SPLIT_INNER)))
        waves = np.ceil(tiles * cuts / machine.units)
        seconds = waves * (2.0 * tall * wide / rate) * (inner / cuts + PIPELINE_FILL) / unit_flops
        best = seconds if best is None else np.minimum(best, seconds)
    assert best is not None
    return best


def _cpu_fill(rows: Floats, cols: Floats, inner: Floats) -> Floats:
    """CPU libraries block in the low hundreds: short sides leave threads and vector lanes idle."""
    return rows / (rows + 32.0) * cols / (cols + 96.0) * inner / (inner + 96.0)


def copy_s(machine: Machine, bytes_moved: Any) -> Floats:
    """Seconds to copy or add so many bytes, read and written, in the device's memory."""
    return np.asarray(bytes_moved, dtype=np.float64) / machine.memory_bytes_s


def element_s(machine: Machine, bytes_moved: Any) -> Floats:
    """Seconds of kernels that do some work on each element of so many bytes."""
    return np.asarray(bytes_moved, dtype=np.float64) / machine.element_bytes_s
