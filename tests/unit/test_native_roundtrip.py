"""What is written for an engine and read back is the same trial, for every engine that is written."""
from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from seatrial import native, presets, rules, trialfile
from seatrial.engines import ENGINES
from seatrial.engines.command import resolved
from seatrial.errors import BadInput, Infeasible
from seatrial.plan import emit
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Cluster, Execution, Latent, Model, Router, Topology, Trial, stages_of

CLUSTER = presets.cluster("dgx-h100", nodes=1)
EXAMPLES = 60
"""Of each engine; 150 took 30 s and found nothing more."""


def essence(trial: Trial) -> dict[str, Any]:
    """What a trial comes to, whichever of its fields say it."""
    m, t = trial.model, trial.topology
    found = {name: value for name, value in resolved(trial).items() if name not in ("family", "name", "size_label", "vocab",
                                                                                    "device")}
    found |= {"stages": stages_of(m, t), "stage_layers": None, "rope_theta": m.rope_theta if m.rope else None,
              "norm_eps": m.norm_eps,
              "rope": [getattr(m, field.name) for field in dataclasses.fields(m) if field.name.startswith("rope_")][1:]
              if m.rope_factor is not None else None,
              "router": m.router if m.mixture else None, "latent": m.latent, "dense": m.dense_layers, "every": m.expert_every,
              "mtp": m.mtp, "overlap": list(emit._overlapped(trial)), "zero": t.zero if t.data_ranks > 1 else 0,
              "rampup": dataclasses.astuple(trial.batch),
              "divided": t.divided_over}  # fmt: skip
    return found


@st.composite
def models(draw: st.DrawFn, *, kind: str = "any", experts: bool = False) -> Model:
    heads = draw(st.sampled_from([4, 8, 16, 24]))
    size = draw(st.sampled_from([16, 64, 128]))
    families = {"llama": ["llama"], "plain": ["gpt2", "llama"]}
    family = draw(st.sampled_from(families.get(kind, ["gpt2", "llama", "qwen2", "qwen3", "bloom"])))
    values: dict[str, Any] = {
        "layers": draw(st.sampled_from([2, 6, 8, 12, 22, 32])), "hidden": heads * size, "heads": heads, "family": family,
        "vocab": draw(st.sampled_from([1000, 32000, 50257])), "seq": draw(st.sampled_from([128, 2048])),
        "kv_heads": draw(st.sampled_from([None, heads // 2, 4])), "ffn": draw(st.sampled_from([None, 1024,
                                                                                               11008]))}  # fmt: skip
    if family == "bloom":
        values |= {"kv_heads": None, "ffn": None}
    if kind == "plain":
        values |= {"tied": draw(st.sampled_from([None, True, False])), "kv_heads": None}
    elif kind == "any" and family not in ("bloom", "gpt2"):
        values |= {"tied": draw(st.booleans()), "norm_eps": draw(st.sampled_from([1e-5, 1e-6])),
                   "head_dim": draw(st.sampled_from([None, 48])), "rope_factor": draw(st.sampled_from([None, 8.0]))}
    elif kind == "llama":
        values |= {"rope_factor": draw(st.sampled_from([None, 4.0])), "rope_theta": draw(st.sampled_from([1e4, 5e5]))}
    if kind == "any":
        values["pad_vocab_to"] = draw(st.sampled_from([None, None, 65536]))
    if experts and family in ("llama", "qwen3") and draw(st.booleans()):
        values |= draw(mixtures(values["layers"]))
    return Model(**values)


@st.composite
def mixtures(draw: st.DrawFn, layers: int) -> dict[str, Any]:
    sigmoid = draw(st.booleans())
    capacity = draw(st.sampled_from([None, 1.25]))
    router = Router(kind="sigmoid" if sigmoid else "softmax", normalised=sigmoid or draw(st.booleans()),
                    groups=draw(st.sampled_from([1, 2])), scale=draw(st.sampled_from([1.0, 2.5])),
                    aux_loss=(aux := draw(st.sampled_from([0.0, 0.001]))), capacity=capacity,
                    over="rank" if capacity else draw(st.sampled_from(["sequence", "rank", "global"])) if aux else "sequence",
                    correction=draw(st.sampled_from([None, 0.001])) if sigmoid else None,
                    z_loss=draw(st.sampled_from([0.0, 0.001])))  # fmt: skip
    found: dict[str, Any] = {"experts": 8, "top_k": draw(st.sampled_from([1, 2])),
                             "expert_ffn": draw(st.sampled_from([None, 512])),
                             "shared_experts": draw(st.sampled_from([None, 1, 2])), "router": router,
                             **draw(st.sampled_from([{}, {"dense_layers": 1}, {"expert_every": 2}]))}
    if draw(st.booleans()):
        found |= {"latent": Latent(kv_rank=64, q_rank=draw(st.sampled_from([None, 96])), rope_dim=32, value_dim=64),
                  "head_dim": 64,
                  "kv_heads": None, "family": "llama", "rope_factor": None}
    return found


DISPATCHERS = ("alltoall", "allgather", "flex")


@st.composite
def layouts(draw: st.DrawFn, m: Model, **fixed: Any) -> Topology:
    values: dict[str, Any] = {
        "dp": draw(st.sampled_from([1, 2, 4])), "tp": draw(st.sampled_from([1, 2, 4])), "pp": draw(st.sampled_from([1, 2, 4])),
        "cp": draw(st.sampled_from([1, 1, 2])), "mbs": draw(st.sampled_from([1, 2])), "zero": draw(st.sampled_from([0, 1, 2,
                                                                                                                    3])),
        "recompute": draw(st.sampled_from(["none", "selective",
                                           "full"])), "precision": draw(st.sampled_from(["fp32", "bf16", "fp16"])),
        "sequence_parallel": draw(st.booleans()), "cp_kind": draw(st.sampled_from(["ring", "gather", "ulysses"]))}  # fmt: skip
    if draw(st.booleans()):
        values |= {"vp": 2, "schedule": "interleaved"}
    if m.mixture:
        values |= {"ep": draw(st.sampled_from([1, 2])), "moe_dispatcher": draw(st.sampled_from(DISPATCHERS)),
                   "etp": draw(st.sampled_from([None, 1])), "moe_balance": draw(st.sampled_from(["natural", "forced"]))}
    values |= {name: draw(value) if isinstance(value, st.SearchStrategy) else value for name, value in fixed.items()}
    values |= {"cp_kind": "ring"} if values["cp"] == 1 else {}
    values |= {"sequence_parallel": True} if m.mixture else {}  # Megatron does not train them otherwise
    values |= {"sequence_parallel": False} if values["tp"] == 1 else {}
    if values["pp"] == 1:
        values |= {"vp": 1, "schedule": "1f1b"}
    if values["pp"] > 1 and "stage_layers" not in values and draw(st.booleans()):
        values["stage_layers"] = _uneven(draw, m.layers, values["pp"] * values.get("vp", 1))
    ranks = values["dp"] * values["cp"]
    if values["zero"] and ranks > 2 and draw(st.booleans()):
        values["zero_group"] = ranks // 2
    return Topology(**values)


def _uneven(draw: st.DrawFn, layers: int, stages: int) -> tuple[int, ...] | None:
    if layers < stages + 1:
        return None
    split = [layers // stages] * stages
    split[0] += layers - sum(split)
    if split[-1] > 1 and draw(st.booleans()):
        split[-1], split[0] = split[-1] - 1, split[0] + 1
    return tuple(split)


def trials(engine: str, kind: str = "any", *, experts: bool = False, **fixed: Any) -> st.SearchStrategy[Trial]:
    @st.composite
    def made(draw: st.DrawFn) -> Trial:
        try:
            m = draw(models(kind=kind, experts=experts))
            t = draw(layouts(m, **fixed))
            execution = Execution(overlap=draw(st.sampled_from([None, None, "none",
                                                                "gradients"]))) if engine == "megatron-core" else (
                Execution(compile=draw(st.booleans())) if engine in ("torchtitan", "fsdp2", "accelerate") else Execution())
            gbs = t.dp * t.mbs * t.pp * draw(st.sampled_from([1, 2]))
            batch = Batch(gbs=2 * gbs, rampup_start=gbs, rampup_increment=gbs, rampup_samples=1000) if (
                engine.startswith("megatron") and draw(st.integers(0, 3)) == 0) else Batch(gbs=gbs)
            trial = Trial(model=m, batch=batch, topology=t, engine=engine, execution=execution, cluster=nodes_for(t))
            rules.check(replace(trial, engine="megatron-core" if m.mixture else engine))
        except (BadInput, Infeasible):
            assume(False)
            raise
        return trial

    return made()


def nodes_for(t: Topology) -> Cluster:
    return CLUSTER.with_procs(min(8, t.world)).with_nodes(max(1, t.world // 8))


def by_engine(name: str) -> Callable[[Trial], dict[str, str]]:
    return lambda trial: ENGINES.get(name)().emitted(trial, Recipe())


def by_megatron(only: str) -> Callable[[Trial], dict[str, str]]:
    return lambda trial: emit.megatron(trial, only=only)


CASES = {
    "megatron-lm": (trials("megatron-core", experts=True, zero=st.sampled_from([0, 1])), by_megatron("megatron-lm"),
                    "train.slurm"),
    "megatron-deepspeed": (trials("megatron-deepspeed", cp=1, vp=1, schedule="1f1b", sequence_parallel=False),
                           by_megatron("megatron-deepspeed"), "train.slurm"),
    "nemo": (trials("megatron-core", experts=True, zero=st.sampled_from([0, 1])), native.WRITERS["nemo"], "nemo.yaml"),
    "torchtitan": (trials("torchtitan", "llama", zero=st.sampled_from([0, 2, 3]), precision=st.sampled_from(["fp32", "bf16"]),
                          sequence_parallel=True, cp_kind=st.sampled_from(["ring", "gather"])),
                   by_engine("torchtitan"), "torchtitan.toml"),
    "deepspeed": (trials("deepspeed", "plain", tp=1, cp=1, vp=1, schedule="1f1b", recompute=st.sampled_from(["none", "full"])),
                  by_engine("deepspeed"), "train.sh"),
    "fsdp2": (trials("fsdp2", "plain", tp=1, cp=1, pp=1, zero=st.sampled_from([0, 2, 3]),
                     recompute=st.sampled_from(["none", "full"])),
              by_engine("fsdp2"), "train.sh"),
    "megatron-core": (trials("megatron-core", "plain", cp=1, zero=st.sampled_from([0, 1]), sequence_parallel=False,
                             precision=st.sampled_from(["fp32", "bf16"]), stage_layers=None),
                      by_engine("megatron-core"), "train.sh"),
    "accelerate": (trials("accelerate", "plain", tp=1, pp=1, zero=st.sampled_from([0, 2, 3]), sequence_parallel=False,
                          recompute=st.sampled_from(["none", "full"]), cp_kind=st.sampled_from(["ring", "gather"])),
                   native.WRITERS["accelerate"], "accelerate.yaml"),
}  # fmt: skip
UNSAID = {"nemo": ("dp", "world", "nodes", "procs_per_node", "microbatches", "zero_group", "divided"),
          "megatron-deepspeed": ("padded_vocab",)}
"""What a configuration leaves to somebody else: the launcher, the tokenizer."""
COUNTS = {"megatron-core": ("overlap",)}


@pytest.mark.parametrize("change", [
    {}, {"top_k": 1, "router": Router(normalised=False, scale=2.0, bias=True)},
    {"shared_experts": 2, "router": Router(kind="sigmoid", groups=4, group_limit=2, correction=0.01)},
    {"family": "qwen3", "kv_heads": 4, "head_dim": 32},
    {"base": "tiny-deepseek"}, {"base": "tiny-deepseek", "latent": Latent(kv_rank=16, rope_dim=8, value_dim=24)},
    {"base": "tiny-deepseek", "rope_scaling": "yarn", "rope_factor": 8.0, "rope_original_seq": 32, "rope_mscale": 1.0,
     "rope_mscale_all_dim": 1.0}, {"vocab": 300},
])
def test_mixtures_that_torchtitan_is_told_are_read_back(change: dict[str, Any]) -> None:
    model = replace(presets.model(change.pop("base", "tiny-moe")), **change)
    layout = Topology(dp=4, tp=2, ep=4, etp=1, zero=3, precision="bf16", sequence_parallel=True, moe_balance="forced")
    trial = Trial(model=model, batch=Batch(gbs=8), topology=layout, cluster=nodes_for(layout), engine="torchtitan")
    found, read = again(by_engine("torchtitan")(trial), "torchtitan.toml", trial, {})
    assert not read.unread and essence(replace(found, cluster=None)) == essence(replace(trial, cluster=None))


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_and_read_back_is_the_same_trial(name: str) -> None:
    made, write, file = CASES[name]
    refused, same = [0], [0]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(made)
    def holds(trial: Trial) -> None:
        try:
            files = write(trial)
        except BadInput:
            refused[0] += 1
            return
        missing = {"vocab": trial.model.vocab} if name == "megatron-deepspeed" else {}
        found, read = again(files, file, trial, missing)
        assert not read.unread, (read.unread, files[file])
        asked, got = essence(replace(trial, cluster=None)), essence(replace(found, cluster=None))
        skipped = (*UNSAID.get(name, ()), *COUNTS.get(name, ()))
        apart = {key: (asked[key], got.get(key)) for key in asked if key not in skipped and asked[key] != got.get(key)}
        assert not apart, (apart, files[file])
        same[0] += 1

    holds()
    assert same[0] > 15, f"only {same[0]} of {same[0] + refused[0]} could be written: the cases say nothing"


def again(files: dict[str, str], file: str, trial: Trial, missing: dict[str, Any]) -> tuple[Trial, native.Native]:
    with tempfile.TemporaryDirectory() as folder:
        for each, text in files.items():
            (Path(folder) / each).write_text(text)
        read = native.read(Path(folder) / file)
    assert read is not None
    tables = {**read.tables, "model": {**read.tables.get("model", {}), **missing}}
    built, _ = trialfile.build({**tables, "topology": {"dp": trial.topology.dp, **tables["topology"]}}, where=file)
    return built, read
