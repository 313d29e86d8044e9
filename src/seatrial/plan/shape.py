"""What the hardware likes about a shape, and why: each GEMM of a layer against the device's tiles, waves and borders.

    report = check_shape(model, cluster, tp=4, mbs=2, precision="bf16")
    report.gemms[0].wave_fill, report.remarks, report.near[0]

A GPU cuts a GEMM into tiles and deals them to its multiprocessors: what does not fill a tile, or the last wave of tiles, is
paid for and not used. Rows that do not begin at a border of 16 bytes cannot use the matrix units at all. Near shapes are
forecast with the physics of `plan`, on one pipeline stage, and compared by time for each operation of the mathematics.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from seatrial import arith
from seatrial.arith import layer
from seatrial.arith.experts import shared_linears
from seatrial.engines.model import DEFAULT
from seatrial.errors import BadInput, Infeasible
from seatrial.expression import Expression
from seatrial.plan import space as spaces
from seatrial.plan import step
from seatrial.plan.calibrate import Calibration
from seatrial.plan.configs import Configs
from seatrial.plan.kernels import ALIGNED_BYTES, TILES, Machine, alignment_bytes, matmul_s
from seatrial.plan.request import Request
from seatrial.plan.search import By, Found, search
from seatrial.plan.space import Space
from seatrial.spec import Batch, Cluster, Model, Recompute, Topology, Trial, kv_fits, round_up

HEAD_SIZES = (64, 80, 96, 112, 128, 160, 192, 224, 256)
WORTH = 0.01
"""A gain below this is not proposed: nobody can tell."""


@dataclass(frozen=True, kw_only=True)
class GemmFit:
    """One GEMM of the forward pass on one device."""

    name: str
    rows: int
    cols: int
    inner: int
    count: int
    """How many of them one call does (heads x micro-batch for attention)."""
    align_bytes: int
    """The largest power of two, up to a cache line, at which all rows begin."""
    tile: str
    """The tile that comes out best."""
    tile_fill: float
    """Share of the tiles' area that is the GEMM."""
    waves: float
    """Tiles over multiprocessors."""
    wave_fill: float
    """Share of the last wave's end that is used: waves / ceil(waves)."""
    efficiency: float
    """Of what a large, well shaped GEMM reaches."""


@dataclass(frozen=True, kw_only=True)
class Near:
    """A shape close by."""

    what: str
    model: Model
    parameters: int
    gain: float
    """Time saved for each operation of the mathematics."""


@dataclass(frozen=True, kw_only=True)
class ShapeReport:
    model: Model
    tp: int
    mbs: int
    gemms: list[GemmFit]
    remarks: list[str]
    near: list[Near]
    """Better ones only, best first."""


def check_shape(model: Model, cluster: Cluster, *, tp: int, mbs: int, precision: str, recompute: Recompute = "full",
                reach: float = 0.05) -> ShapeReport:
    """`reach`: how far a near shape's hidden size may be."""
    for what, value in (("heads", model.heads), ("ffn", model.dense_inner)):
        if value % tp:
            raise Infeasible(f"{what} {value} is not a multiple of TP {tp}", code="heads-divisible")
    if not kv_fits(model.kv, tp):
        raise Infeasible(f"key-value heads {model.kv} is not a multiple of TP {tp}, nor the other way round",
                         code="heads-divisible")
    base = _seconds_per_flop(model, cluster, tp, mbs, precision, recompute)
    near = []
    for what, other in _neighbours(model, tp, reach):
        gain = 1 - _seconds_per_flop(other, cluster, tp, mbs, precision, recompute) / base
        if gain > WORTH:
            near.append(Near(what=what, model=other, parameters=arith.parameters(other).total, gain=gain))
    near.sort(key=lambda n: -n.gain)
    gemms = _gemms(model, cluster, tp, mbs, precision)
    return ShapeReport(model=model, tp=tp, mbs=mbs, gemms=gemms, near=near,
                       remarks=_remarks(model, cluster, tp, mbs, gemms))


def _trial(model: Model, cluster: Cluster, tp: int, mbs: int, precision: str, recompute: Recompute) -> Trial:
    topology = Topology(tp=tp, mbs=mbs, precision=precision, recompute=recompute)  # type: ignore[arg-type]
    return Trial(model=model, batch=Batch(gbs=mbs), topology=topology, cluster=cluster, engine=DEFAULT)


def _seconds_per_flop(model: Model, cluster: Cluster, tp: int, mbs: int, precision: str, recompute: Recompute) -> float:
    """Of the layers alone: the GEMMs, attention and passes over memory of one micro-batch."""
    configs = Configs.from_trials([_trial(model, cluster, tp, mbs, precision, recompute)])
    parts = step.time(configs, cluster).parts
    spent = sum(float(parts[name][0]) for name in ("matmul", "attention", "memory", "logits", "experts") if name in parts)
    return spent / arith.flops("model", model, samples=mbs)


def _gemms(model: Model, cluster: Cluster, tp: int, mbs: int, precision: str) -> list[GemmFit]:
    seq, heads = model.seq, mbs * model.heads // tp
    query, value = model.head_size + model.rope_dim, model.value_dim or model.head_size
    *before, after = _attention_gemms(model, tp)
    gemms = [after, *_mlp_gemms(model, tp), layer.head_gemm(model, model.padded_vocab(tp) // tp)]
    wanted = [*((gemm.label, mbs * seq, gemm.cols, gemm.inner, 1) for gemm in before),
              ("attention scores", seq, seq, query, heads), ("attention context", seq, value, seq, heads),
              *((gemm.label, mbs * seq, gemm.cols, gemm.inner, 1) for gemm in gemms)]  # fmt: skip
    if model.experts is not None and model.chosen is not None and model.expert_inner is not None:
        # Each with its even share of the tokens.
        rows, inner = max(1, mbs * seq * model.chosen // model.experts), model.expert_inner
        wanted[-1:-1] = [("experts up", rows, (1 + model.gated) * inner, model.hidden, model.experts),
                         ("experts down", rows, model.hidden, inner, model.experts)]
    machine = Machine.of(Configs.from_trials([_trial(model, cluster, tp, mbs, precision, "none")]), cluster)
    found = []
    for name, rows, cols, inner, count in wanted:
        widths = (inner,) if name == "attention scores" else (cols,) if name == "attention context" else (cols, inner)
        align = alignment_bytes(machine, *(np.array([w]) for w in widths))
        seconds = float(matmul_s(machine, rows, cols, inner, align, count)[0])
        ideal = 2.0 * rows * cols * inner * count / float(machine.matrix_flops[0])
        tile, tile_fill, waves = _best_tile(rows, cols, count, float(machine.units[0]))
        found.append(GemmFit(
            name=name, rows=rows, cols=cols, inner=inner, count=count, align_bytes=int(align[0]),
            tile=f"{tile[0]} x {tile[1]}" if machine.gpu else "", tile_fill=tile_fill, waves=waves,
            wave_fill=waves / np.ceil(waves), efficiency=ideal / seconds,
        ))  # fmt: skip
    return found


def _attention_gemms(m: Model, tp: int) -> list[layer.Gemm]:
    """The last leads back to the residual stream."""
    if not m.is_latent:
        return layer.gemms(m, tp)[:2]
    heads, query = m.heads // tp, m.head_size + m.rope_dim
    down = [layer.Gemm("q_down", "queries compressed", m.q_rank, m.hidden)] if m.q_rank else []
    return [*down, layer.Gemm("kv_down", "keys, values compressed", m.kv_rank + m.rope_dim, m.hidden),
            layer.Gemm("q_up", "queries", heads * query, m.q_rank or m.hidden),
            layer.Gemm("kv_up", "keys, values", heads * (m.head_size + m.value_dim), m.kv_rank),
            layer.Gemm("out", "attention output", m.hidden, heads * m.value_dim)]


def _mlp_gemms(m: Model, tp: int) -> list[layer.Gemm]:
    """Of dense layers, where there are any, and of shared experts."""
    dense = layer.gemms(m, tp)[2:] if m.expert_layers < m.layers else []
    shared = []
    for linear in shared_linears(m) if m.shared_inner else ():
        width = linear.width(tp)
        shared.append(layer.Gemm(linear.name, linear.label, *((width, m.hidden) if linear.column else (m.hidden, width))))
    return [*dense, *shared]


def _best_tile(rows: int, cols: int, count: int, units: float) -> tuple[tuple[int, int], float, float]:
    """The tile with which the waves take least time, how full it is, and how many waves there are."""
    def seconds(tall: int, wide: int, rate: float) -> float:
        tiles = np.ceil(rows / tall) * np.ceil(cols / wide) * count
        return float(np.ceil(tiles / units) * tall * wide / rate)

    tall, wide, _ = min(TILES, key=lambda tile: seconds(int(tile[0]), int(tile[1]), float(tile[2])))
    tiles = np.ceil(rows / tall) * np.ceil(cols / wide)
    return (int(tall), int(wide)), float(rows * cols / (tiles * tall * wide)), float(tiles * count / units)


def _remarks(model: Model, cluster: Cluster, tp: int, mbs: int, gemms: list[GemmFit]) -> list[str]:
    said = []
    if model.hidden % 128:
        below = model.hidden // 128 * 128
        said.append(f"hidden {model.hidden} is not a multiple of 128 and leaves tiles half empty: {below} or {below + 128} is")
    width = heads_width(model, model.hidden)
    if (share := width // tp) % 64:
        whose = "hidden" if width == model.hidden else "heads x head_dim"
        said.append(f"{whose} / TP = {share} is not a multiple of 64: each rank's slice ends inside a tile")
    head = model.head_size
    if head % 8:
        below = head // 8 * 8
        said.append(f"heads of {head} elements: not a multiple of 8, so rows do not begin at 16 bytes and attention cannot use "
                    f"the matrix units; {max(8, below)} or {below + 8} would")
    elif head % 64:
        said.append(f"heads of {head} elements: a multiple of 8 but not of 64; 64 and 128 fill whole cache lines")
    if model.vocab % (128 * tp) and model.pad_vocab_to is None:
        padded = model.padded_vocab(tp)
        said.append(f"vocabulary {model.vocab} is stored as {padded} rows, the next multiple of 128 x TP {tp}: "
                    f"{padded - model.vocab} rows are padding")
    if model.pad_vocab_to is not None and model.pad_vocab_to % (64 * tp):
        said.append(f"pad_vocab_to {model.pad_vocab_to} is not a multiple of 64 x TP {tp}: {round_up(model.vocab, 64 * tp)} is")
    if (model.heads // tp) * mbs % 4:
        said.append(f"(heads {model.heads} / TP {tp}) x MBS {mbs} = {model.heads // tp * mbs} is not a multiple of 4: "
                    "Megatron's fused softmax is not used")
    if cluster.device.kind == "gpu":
        said += [remark for gemm in gemms for remark in _gemm_remarks(gemm, cluster.device.units)]
    return said


def _gemm_remarks(gemm: GemmFit, units: int) -> Iterator[str]:
    if gemm.waves > 1 and gemm.wave_fill < 0.85:
        yield (f"{gemm.name}: {gemm.waves:.2f} waves over {units} multiprocessors, so the last one is "
               f"{gemm.waves % 1:.0%} full and {1 - gemm.wave_fill:.0%} of the time is lost")
    if gemm.waves < 1:
        yield (f"{gemm.name}: fewer tiles than multiprocessors ({gemm.waves:.2f} waves); a larger MBS or a smaller TP "
               "would fill the device")
    if gemm.align_bytes < 16:
        yield f"{gemm.name}: rows begin every {gemm.align_bytes} bytes; below 16 the matrix units are not used"
    elif gemm.align_bytes < ALIGNED_BYTES:
        yield f"{gemm.name}: rows begin at borders of {gemm.align_bytes} bytes, not of a cache line of {ALIGNED_BYTES}"


def heads_width(model: Model, hidden: int) -> int:
    """Of all heads together, at another hidden size."""
    return hidden if model.head_dim is None else round(model.heads * model.head_dim / model.hidden * hidden)


def scaled(model: Model, *, hidden: int, heads: int, ffn_multiple: int) -> Model | None:
    """The same model with another hidden size and other heads, its ratios kept; None where they do not come out even."""
    group, width = model.heads // model.kv, heads_width(model, hidden)
    # Heads of latent attention have a rotated part and a value beside, which stay.
    if heads % group or width % heads or (model.is_latent and width // heads != model.head_size):
        return None
    ffn, expert_ffn = (None if inner is None else round(inner / model.hidden * hidden / ffn_multiple) * ffn_multiple
                       for inner in (model.ffn, model.expert_ffn))
    try:
        return replace(model, hidden=hidden, heads=heads, kv_heads=None if model.kv_heads is None else heads // group, ffn=ffn,
                       expert_ffn=expert_ffn, head_dim=None if model.head_dim is None else width // heads)
    except BadInput:
        return None


def _neighbours(model: Model, tp: int, reach: float) -> list[tuple[str, Model]]:
    """Other head counts at the same hidden size, and other hidden sizes with every usual head size."""
    found: list[tuple[str, Model]] = []

    def shaped(hidden: int, heads: int) -> Model | None:
        if heads < 1 or heads % tp:
            return None
        made = scaled(model, hidden=hidden, heads=heads, ffn_multiple=128)
        return made if made and kv_fits(made.kv, tp) and made.dense_inner % tp == 0 else None

    for head in HEAD_SIZES:
        width = heads_width(model, model.hidden)
        if width % head == 0 and (made := shaped(model.hidden, width // head)) and made.heads != model.heads:
            found.append((f"{made.heads} heads of {head}", made))
    low, high = int(model.hidden * (1 - reach)), int(model.hidden * (1 + reach))
    for hidden in range(round_up(max(low, 128), 128), high + 1, 128):
        if hidden == model.hidden:
            continue
        width = heads_width(model, hidden)
        options = [m for head in HEAD_SIZES if width % head == 0 and (m := shaped(hidden, width // head))]
        if same := shaped(hidden, model.heads):
            options.append(same)
        found += [(f"hidden {hidden}, {m.heads} heads of {m.head_size}", m) for m in dict.fromkeys(options)]
    padded = model.padded_vocab(tp)
    if padded % (128 * tp):
        better = round_up(model.vocab, 128 * tp)
        found.append((f"vocabulary padded to {better}", replace(model, pad_vocab_to=better)))
    return found


# ---- shape and layout together: which layers x hidden x heads of about one size trains fastest on this cluster


ASPECT = (48.0, 320.0)
"""Hidden size over layers: published models from 124M to 530B lie between 64 and 200 …"""
MIXED_ASPECT = (40.0, 320.0)
"""… and mixtures of experts between 43 and 128."""
_MOST_OPTIONS = 8
"""How many combinations of ZeRO, recompute, schedule and sequence parallelism are carried to all shapes."""


def base_settings(model: str | None) -> list[str]:
    """A gpt2 of 50257 tokens and sequence 2048 where no model says otherwise; its own shape is of no account."""
    if model is not None:
        return []
    return ["model.family=gpt2", "model.vocab=50257", "model.seq=2048", "model.layers=1", "model.hidden=128", "model.heads=1"]


def shapes(base: Model, size: float, tolerance: float) -> tuple[Model, ...]:
    """Every shape within `tolerance` of `size` parameters, embedding included."""
    found = []
    known, narrow_wide = arith.parameters(base), MIXED_ASPECT if base.mixture else ASPECT
    squares = known.without_embedding / base.layers / base.hidden**2 if base.mixture else 12
    low, high = ((aspect * size / squares) ** (1 / 3) for aspect in narrow_wide)
    step = 64 if high < 2048 else 128 if high < 8192 else 256
    for hidden in range(max(step, int(low) // step * step), int(high) + step, step):
        for head in HEAD_SIZES:
            width = heads_width(base, hidden)
            shaped = None if width % head else scaled(base, hidden=hidden, heads=width // head, ffn_multiple=256)
            if shaped is None:
                continue
            found += [replace(shaped, layers=layers) for layers in _depths(shaped, size, tolerance, narrow_wide)]
    if not found:
        raise BadInput(f"no shape has {size / 1e9:g}B parameters within {tolerance:.1%}: a larger --size-tolerance would help, "
                       f"or a smaller vocabulary than {base.vocab}")
    return tuple(found)


def _depths(model: Model, size: float, tolerance: float, aspect: tuple[float, float]) -> Iterator[int]:
    """Layers with which it has about this size."""
    p = arith.parameters(model)
    outside = p.total - p.layer * p.layers - p.expert_layer * p.expert_layers
    for layers in range(max(1, math.ceil(model.hidden / aspect[1])), math.floor(model.hidden / aspect[0]) + 1):
        mixed = layers // model.expert_every - min(layers, model.dense_layers) // model.expert_every if model.mixture else 0
        total = outside + p.layer * (layers - mixed) + p.expert_layer * mixed
        if abs(total / size - 1) <= tolerance and (mixed or not model.mixture):
            yield layers


def search_shapes(request: Request, size: float, tolerance: float, *, rules: Sequence[Expression] = (),
                  ramp: Batch | None = None, by: By = "time", fit: Calibration | None = None) -> Found:
    """All shapes with all layouts. Where many options are open, those that win for a few shapes are tried on all."""
    models = shapes(request.model, size, tolerance)
    space = replace(request.space, models=models)

    def searched(where: Space) -> Found:
        return search(where, rules=rules, ramp=ramp, precision=request.precision, by=by, fit=fit)

    combinations = np.unique(spaces.inner(space)[:, 2:], axis=0)
    if len(combinations) > _MOST_OPTIONS:
        few = models[:: max(1, len(models) // 8)]
        best = searched(replace(space, models=few))
        chosen: dict[tuple[int, ...], None] = {}
        names = ("zero", "recompute", "schedule", "vp", "sequence_parallel")
        for i in range(len(best)):
            chosen.setdefault(tuple(int(best.ranked[name][i]) for name in names))
            if len(chosen) == _MOST_OPTIONS:
                break
        if chosen:
            space = replace(space, options=tuple(chosen))  # type: ignore[arg-type]
    return replace(searched(space), reference=size)
