"""What authors call a field, as data: the names of columns, and the many forms that one name has.

    normal("Est. Aggr. PetaFLOPs")            est aggr petaflops
    form("tok / sec / device")                tokens per s per gpu
    BY_NAME["sec per it"]                     ("sec_per_it", "seconds")
    looked_up("gpu_num")                      ("gpus", "count")

`headings.py` reads headings, settings and options by them.
"""
from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, cast

from seatrial import columns
from seatrial.tables.tongues import plain_letters

Kind = Literal[
    "count", "figure", "memory", "seconds", "rate", "percent", "frequency", "yesno", "recompute", "zero", "dtype",
    "stages",
    "size", "date", "settings", "word", "notes", "state", "outcome", "flags", "names", "source",
    "unit",
]  # fmt: skip


_NAMES = """
machine word:
    machine, cluster, system, hardware, device, card, chip, chip type, tpu, tpu type, tpu version,
    gpu type, gpu model, accelerator, device type, accelerator type,
    pod, slice
gpus:
    ngpu, tpu chips, nb gpu, nb gpus, npu num, gpus used, gcd, gcds, num gcds, hpu, hpus, num hpus, xpu, xpus, num xpus,
    tpus,
    ipus, tiles, gaudis, sockets, cpu sockets, num sockets, apu, apus, num apus, cmgs, num cmgs
nodes:
    machines, compute nodes, nb nodes, num hosts, number of hosts, slurm job num nodes, slurm nnodes, slurm nodes
dp:
    ddp, dp ranks, dp world size, dataparallel, dp replicas, data parallel world size, data parallel replicas, data axis,
    fsdp axis, data parallel axis, model replicas
tp:
    mp size, ici tensor, ici tensor parallelism, tensor parallel shards, tensor axis, model axis, tensor parallel axis
pp:
    pipe, pipe parallel, pipe parallel size, pipeline axis, pipe axis, stage axis, pp stages, pipeline stages, stages,
    ici pipeline, ici pipeline parallelism
vp:
    interleaved stages, virtual pp size, interleave factor, interleaving factor, model chunks per pp rank, chunks per rank,
    virtual stages per rank, num virtual stages per pipeline rank, virtual pipeline stages, virtual chunks
mbs:
    mbsz, ub, ubs, b per gpu, seqs per gpu, samples per gpu, sequences per gpu, micro batch, micro bsz, u batch size,
    u batch,
    ubatch size, batch micro, batch per gpu, batch size per gpu, per gpu batch size, per device batch size,
    per device train batch size, per device batch, per chip batch, per chip batch size, batch per device, batch per chip,
    per gpu batch, device train microbatch size, train microbatch size, device microbatch size, per rank batch,
    local batch size, local bs, bs per gpu, device batch size, ubatch, local batch, pdb, pdbs
gbs:
    b global, global batch samples, global batch size samples, global batch sequences, glob batch, effective bs, gbsz,
    batch sequences, batch seqs, total batch size, effective batch size, effective batch,
    eff bs, eff bsz, effective bsz,
    eff batch, eff batch size, global bsz, bsz, batch global, size of batch global, batch size global, size of batch,
    size batch, size batch global, sequences per step, sequences a step, samples a step, sequences per batch,
    samples per batch
seq:
    ctx length, max length, l seq, tokens per seq, tokens per sequence, seq length, ctx len, max seq len, max seq length,
    context window, block size, max sequence length, length of sequence, sequence size, length, len, seq tokens,
    sequence tokens, context tokens, seq len tokens, max len, cutoff len, cutoff length, max target length, target length,
    model max length, seq axis, s seq len, train context, train ctx, train seq len, train length, n ctx, sample length
hidden:
    d hidden, residual dim, model width, model dim, embed dim, embedding dim, embedding dimension, emb dim, base emb dim,
    n embed
heads:
    attn heads, query heads, q heads, n attn heads, num query heads
ffn:
    ffn hidden, mlp hidden size, mlp hidden, mlp size, mlp width, ffn width, d ffn, ffn hidden dim, feed forward dim,
    feedforward dim, feed forward size, intermediate dim, ffn intermediate dim, ffn intermediate size, ffn dim
vocab:
    n vocab, vocab tokens
size_label:
    total params, total parameters, param, param count, parameter count, params total, n parameters, model params,
    model parameters, model variant, model name or path
kv_heads:
    gqa groups, n head kv, n kv head, num kv groups
recompute:
    act ckpt, grad ckpt, activation recomputation, act checkpointing, grad checkpointing, checkpointing, ac mode,
    rc, recomp, remat, remat policy, rematerialization, rematerialisation
zero_stage:
    deepspeed stage, stufe, zero stufe, zero optimization stage, ds zero, ds zero stage, deepspeed zero, fsdp zero stage
dtype:
    torch dtype, num format, number format, numeric format, numerics, numeric precision, precision of training,
    compute precision, training precision,
    compute dtype, prec, mixed precision, train precision, amp, amp dtype
engine:
    software, training framework, train framework, training stack, stack, trainer, training library, training engine,
    training codebase, training code
schedule:
    pipeline parallel schedule, pp sched, pipeline sched, pipe schedule, pipeline schedule type
env settings:
    env, environment, settings, setting, options, env vars
mem_value memory:
    max allocated, mem value, peak allocated, max reserved, peak reserved, peak active, max active, speicher,
    gpu speicher, spitzenspeicher
mem_unit unit:
    mem unit, memory unit, unit of memory
mem_scope word:
    mem of, mem scope, memory of
sec_per_it seconds:
    dt, time, it per s, it per sec, its per s, iter per s, iters per s, iter per sec, iterations per s,
    iterations per sec, iterations per second, steps per s, steps per sec, steps per second, latency, sec, ms,
    zeit per schritt, schrittzeit, zeit per iteration
time_unit word:
    time unit
tflops figure:
    tflops per node, tflop per s per node, tflops per s per node, throughput per gpu
formula word:
    formula, tflops formula
tflops_per word:
    tflops of, tflops per
samples_per_s rate:
    sps
tokens_per_s rate:
    wps, tps, throughput t per s, t per s, token throughput
tokens_per_s_per_process rate:
    t per s per gpu, gputhroughput t per s per gpu, throughput t per s per gpu, tgs, tokens per gpu per second tgs,
    tps per gpu, tps gpu, wps per gpu, token throughput per gpu
throughput rate:
    throughput, speed, training speed, training throughput, train speed
mfu percent:
    mfu, mfu frac, mfu fraction, peak mfu, mfu pct, model flops utilization, model flop utilization, flops utilization,
    model flops utilisation,
    model flops util, mfu percent, mfu %, % mfu, % of peak, percent of peak
hfu percent:
    hfu, hfu frac, hfu fraction, hfu pct, peak hfu, hardware flops utilization, hardware flops utilisation,
    hw flops util, hw flops utilization, hfu percent, hfu %
loss figure:
    loss, lm loss, train loss, training loss, final loss, final train loss, final training loss, ce loss,
    cross entropy loss,
    cross entropy, ce loss end, loss train, final lm loss, last loss, loss final
iteration count:
    iteration, step, iter, it, update, updates, optimizer step, optimizer steps
date date:
    date, day, when
session word:
    session
notes notes:
    notes, note, comment, comments, remark, remarks, description
state state:
    state
outcome outcome:
    outcome, status, result, run status, job status, job state, run state, run outcome, run result
flags flags:
    flags, marks
estimated names:
    estimated
inferred names:
    inferred
run_id word:
    run, run id
source source:
    source
"""
"""A field that only a record has and how its cells are read, then what authors call it, in plain words (see `normal`)."""


def _by_name() -> dict[str, tuple[str, Kind]]:
    """Of what a trial has, the names stand with its fields (`columns.py`)."""
    found = {name: (field, cast(Kind, kind)) for name, (field, kind) in columns.aliases().items()}
    key: tuple[str, Kind] = ("", "word")
    for line in _NAMES.strip().splitlines():
        if line.endswith(":"):
            field, _, kind = line[:-1].partition(" ")
            key = field, cast(Kind, kind or columns.COLUMNS[field].about.kind)
        else:
            found.update({name.strip(): key for name in line.split(",") if name.strip()})
    return found


BY_NAME = _by_name()

SETTINGS = frozenset({*columns.ASKED, "machine"})
"""What the text around a table can state for its rows; figures are never taken from prose."""

MEASURES = (
    "mem_value", "sec_per_it", "tflops", "aggr_pflops", "samples_per_s", "tokens_per_s", "tokens_per_s_per_process",
    "mfu", "hfu", "loss",
)  # fmt: skip


@lru_cache(maxsize=16384)
def normal(text: str) -> str:
    """`#GPUs`, `Sec/it`, `micro-batch_size` and `Est. Aggr. PetaFLOPs` as the plain words that the names are kept in."""
    text = plain_letters(text.replace("µ", "u").replace("μ", "u")).lower().replace("/", " per ").replace("%", " % ")
    text = text.replace("#", " num " if text.strip() != "#" else "#")
    return " ".join(re.sub(r"[^a-z0-9%]+", " ", text).split())


_SAME = {word: one for one, words in {
    "s": "sec secs second seconds", "ms": "msec msecs millisecond milliseconds",
    "it": "iter iters iteration iterations its step steps",
    "tokens": "tok toks token words", "throughput": "thpt thput tput thruput thrpt thr", "us": "usec usecs microseconds",
    "tflops": "tflop teraflop teraflops tf tfs", "gflops": "gflop gigaflop gigaflops",
    "pflops": "pflop petaflop petaflops pf", "eflops": "eflop exaflop exaflops ef", "flops": "flop",
    "utilization": "util utilisation",
    "samples": "sample samp smpl smpls sequence sequences seqs seq examples ex sentences sentence sent snt pair pairs prompts",
}.items() for word in words.split()}  # fmt: skip
EACH = frozenset("gpu gpus device devices dev accelerator accelerators card cards chip chips npu npus tpu tpus hpu hpus xpu "
                 "xpus ipu tile gcd gcds process processes proc procs rank ranks worker workers "
                 "socket sockets apu apus cmg cmgs".split())
"""What a figure is per, where all mean one of the devices."""
OF_A_NODE = frozenset("node server host box blade".split())
_COUNTING = frozenset("num number no n count total".split())
_AVERAGED = frozenset("avg average mean median achieved measured observed wall clock wallclock elapsed sustained "
                      "actual real eff effective p50 steady state typical".split())  # fmt: skip
"""Words beside a name that change nothing: of a count, of a measurement."""
_DEGREES = ("degree", "size", "ways", "way", "ranks", "factor")
_DEVICE = re.compile(r"(?:[abhv]\d{2,3}|gb?\d{3}|mi\d{3}x?|l40|[tl]4|rtx\d{4})(s?)")


def form(text: str) -> str:
    """A name in one form for the many that it has: `tok / sec / device` is `tokens per s per gpu`."""
    words = re.sub(r"\b(tera|giga|peta|exa) ?flops?\b", r"\1flops", normal(text)).split()
    made: list[str] = []
    for word in words:
        per = bool(made) and made[-1] == "per"
        # A sequence is a sample in a rate alone.
        same = word if word in ("sequence", "seq") and "per" not in words else _SAME.get(word, word)
        one = per and (word in EACH or _DEVICE.fullmatch(word) is not None and word != "mi250x")  # two devices are on that
        made.append("gpu" if one else "node" if per and word in OF_A_NODE else same)
    return " ".join(made)


def _by_form() -> dict[str, tuple[str, Kind]]:
    """The names in that form, but for those that then mean two things."""
    found: dict[str, set[tuple[str, Kind]]] = {}
    for name, entry in BY_NAME.items():
        found.setdefault(form(name), set()).add(entry)
    return {name: entries.pop() for name, entries in found.items() if len(entries) == 1}


_BY_FORM = _by_form()


def looked_up(text: str) -> tuple[str, Kind] | None:
    """What a heading means whose words are not among the names as they stand."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]{3})(?=[A-Z])", " ", text)
    for said in (text, apart):
        words = re.sub(r"\b(num|number|no|count) of\b", "num", form(said)).split()
        if found := _BY_FORM.get(" ".join(words)):
            return found
        fewer = [word for word in words if word not in _COUNTING]
        found = _BY_FORM.get(" ".join(fewer)) if fewer != words else None
        if found and found[1] in ("count", "size"):
            return found
        found = _BY_FORM.get(" ".join(words[:-1])) if words[-1:] and words[-1] in _DEGREES else None
        if found and found[1] == "count":
            return found
        if _counts_devices(words):
            return "gpus", "count"
        if "per" in words and words[-1] != "per" and _of_each({*words}):
            return "mbs", "count"
        fewer = [word for word in words if word not in _AVERAGED]
        found = _BY_FORM.get(" ".join(fewer)) if fewer != words else None
        if found and found[0] in MEASURES:
            return found
    return None


_OF_ALL = frozenset("total agg aggr aggregate aggregated cluster system overall global all sum whole job".split())
_BESIDE = frozenset("throughput rate speed perf performance train training model est estimated per of the in at with and "
                    "processed trained".split())  # fmt: skip
_BESIDE |= _AVERAGED
_LONG = frozenset("min mins minute minutes h hr hrs hour hours day days d".split())
"""Times that a rate may be per, where the heading says per."""
_MINUTES = re.compile(r"\bmins? per\b")
_OF_A_STEP = frozenset("it batch update optimizer opt optim".split())
_OF_TIME = frozenset("time timing latency duration elapsed wallclock t".split())
_CLOCK = frozenset("s ms us".split())
_SHARE = frozenset("% percent percentage pct fraction".split())
_OF_PEAK = frozenset("peak theoretical flops flop tflops s utilization".split()) | _SHARE
_OF_SHARE = frozenset("flops utilization hardware hw % percent pct fraction frac share ratio theoretical peak".split())
_OF_FLOPS = frozenset("tflops gflops flops s hardware hw node".split())
_MEMORY, _BYTES = frozenset("mem memory ram vram hbm".split()), frozenset("gb gib mb mib go gio bytes".split())
_OF_MEMORY = frozenset("peak max maximum alloc allocated reserved active used usage use footprint d m cuda torch nvidia smi "
                       "consumption occupied bytes".split()) | _MEMORY | _BYTES


def by_measure(text: str) -> tuple[str, Kind] | None:
    """What a heading measures, by its words alone, whatever their order: all of them must be of what it then is.

    `cluster throughput [tok/s]`, `per-GPU tokens/s`, `elapsed ms per opt step`, `% of theoretical peak`, `RAM/GPU (GB)`"""
    words = {*form(text).split()}
    each, of_all = bool(words & {*EACH}), bool(words & _OF_ALL)
    rest = words - EACH - _OF_ALL - _BESIDE
    clock = rest - {"tokens", "samples"}
    clock -= {"peak"} if {"tokens", "samples"} & rest else set()
    if len(clock) == 1 and (clock <= _CLOCK or "per" in words and clock <= _LONG) and not (each and of_all):
        if "tokens" in rest and "samples" not in rest:
            return ("tokens_per_s_per_process" if each else "tokens_per_s"), "rate"
        if "samples" in rest and not each and "tokens" not in rest:
            return "samples_per_s", "rate"
    flops = len(rest & {"tflops", "gflops"}) == 1 or rest >= {"flops", "s"} and each
    if rest <= _OF_FLOPS and flops and not of_all or rest - {"s"} == {"pflops", "node"}:
        return "tflops", "figure"
    if (rest - {"s"} in ({"pflops"}, {"eflops"}) or rest - {"s"} == {"tflops"} and of_all) and not each:
        return "aggr_pflops", "figure"
    timed = rest - _OF_TIME - _OF_A_STEP - _CLOCK
    if timed == {"min"} and _MINUTES.search(normal(text)):
        timed = set()
    if not timed and rest & _OF_A_STEP and (words & _OF_TIME or rest & {*_CLOCK, "min"}) and not each | of_all:
        return "sec_per_it", "seconds"
    if len(which := words & {"mfu", "hfu"}) == 1 and rest - which <= _OF_SHARE:
        return which.pop(), "percent"
    if rest <= _OF_PEAK and ("peak" in rest and rest & _SHARE or rest == {"utilization", "%"} and not each):
        return "mfu", "percent"
    if rest <= _OF_MEMORY | {"node"} and (rest & _MEMORY or len(rest & _BYTES) == 1) and not of_all:
        return "mem_value", "memory"
    return None


_BATCH = frozenset("batch bs bsz batchsize mbs".split())
_BESIDE_BATCH = frozenset("per size micro mini train training local".split()) | {"samples", "sequence", "seq"}


def _of_each(words: set[str]) -> bool:
    """`per-device bs`, `micro-bs/GPU`, `train batch per rank`: the samples that one device has at a time."""
    return bool(words & EACH) and bool(words & _BATCH) and words - EACH <= _BATCH | _BESIDE_BATCH


def _counts_devices(words: list[str]) -> bool:
    """`A100s`, `# H100`, `H100 GPUs`: so many of them; `A100` alone is whatever was measured on one."""
    named = [match for word in words if (match := _DEVICE.fullmatch(word))]
    others = {word for word in words if not _DEVICE.fullmatch(word) and not re.fullmatch(r"\d{2,3}(?:gb|g)", word)}
    return len(named) == 1 and others <= {*_COUNTING, "gpus", "gpu"} and bool(named[0].group(1) or others)


_BESIDE_NAMES = frozenset("of the in for at to with and num number no count degree is per % percent pct "
                          "fraction share do dos das da en em het een im beim al w z v po".split())  # fmt: skip


_IN_ANY_ORDER = frozenset("count size percent memory seconds recompute zero dtype outcome state word".split())
"""Kinds of columns whose names are told whatever the order of their words."""


def _bag(words: str) -> frozenset[str]:
    """A name without regard to the order of its words, whether one or several are meant, and how a count is said."""
    said = ({"dimension": "size", "dim": "size", "parallelism": "parallel"}.get(word, word) for word in words.split())
    one = (word.removesuffix("s") if len(word) > 3 and not word.endswith("ss") else word for word in said)
    return frozenset(one) - _BESIDE_NAMES


def _by_bag() -> dict[frozenset[str], tuple[str, Kind]]:
    found: dict[frozenset[str], set[tuple[str, Kind]]] = {}
    for name, entry in BY_NAME.items():
        if _BESIDE_NAMES.isdisjoint(name.split()) and entry[1] in _IN_ANY_ORDER and len(bag := _bag(name)) > 1:
            found.setdefault(bag, set()).add(entry)
    return {bag: entries.pop() for bag, entries in found.items() if len(entries) == 1}


_BY_BAG = _by_bag()


_OF_A_COUNT = frozenset("of the num number no count degree total training de do di".split())
"""What stands beside the name of a count and leaves it that: `degree TP`, but not `with TP`."""


def translated(text: str) -> tuple[str, Kind] | None:
    """What a heading means whose words were put into English one by one: `length of sequence`, `parallelism data`."""
    words = normal(text)
    bag = _bag(words)
    if "per" in words.split():
        each = {*words.split()} & {"node", "nodes"}
        return ("procs_per_node", "count") if each and bag <= {"gpu", "gpus", "node", "total", "device"} else None
    for fewer in (bag, bag - {"total", "training"}):
        if found := _BY_BAG.get(fewer):
            return found if found[1] == "percent" or not {*words.split()} & _SHARE else None
        if len(fewer) == 1 < len(words.split()) and fewer != {"step"} and len({*words.split()} - _OF_A_COUNT) == 1:
            (one,) = fewer
            found = BY_NAME.get(one) or (BY_NAME.get(f"{one}s") if len(one) > 2 else None)
            return found if found and found[1] in ("count", "size") else None
    return None
