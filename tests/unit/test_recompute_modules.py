"""Selective recompute by a list of modules: what it is called, what it keeps and runs again, and Megatron-core's own count."""
from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seatrial import presets, rules, trialfile
from seatrial.engines import homes
from seatrial.errors import BadInput, Infeasible
from seatrial.native import nemo
from seatrial.native.megatron import of_values
from seatrial.plan import experts, memory, rows
from seatrial.plan.configs import Configs, decoded
from seatrial.plan.emit import megatron_lm
from seatrial.plan.kernels import Machine
from seatrial.plan.layer import expert_layer, layer
from seatrial.plan.request import Request
from seatrial.plan.search import search
from seatrial.spec import MODULES, Batch, Latent, Topology, Trial

ROOT = Path(__file__).resolve().parents[2]
H100 = presets.cluster("dgx-h100")
DEEPSEEK = presets.model("deepseek-v3")


def trial(modules: str | None, *, model=DEEPSEEK, engine="megatron-core", recompute="selective", **layout) -> Trial:
    layout = {"dp": 128, **layout}
    topology = Topology(recompute=recompute, recompute_modules=modules, precision="bf16", **layout)
    return Trial(model=model, topology=topology, batch=Batch(gbs=1024), engine=engine, cluster=H100)


def configs(modules: str | None, **more) -> Configs:
    return Configs.from_trials([trial(modules, **more)], H100)


def left_out(modules: str, **more) -> float:
    """Bytes a token that one layer, with experts where the model has some, keeps less than without recompute."""
    c = configs(modules, **more)
    element = np.array([2.0])
    routed = c.experts[0] > 0
    left = memory.expert_left_bytes(c, H100, element, experts.rows(c)) if routed else memory.left_bytes(c, H100, element)
    return float((left.everything - left.partly)[0] / c.tokens[0])


def test_lists_are_one_however_they_are_spelled():
    for said in ("moe_act+layernorm", "layernorm, moe_act", "['moe_act', 'layernorm']", "layernorm moe_act moe_act"):
        read, _ = trialfile.build({
            "model": "tiny-moe", "batch": {"gbs": 8}, "engine": "megatron-core",
            "topology": {"recompute": "selective", "recompute_modules": said}}, where="t")
        assert read.topology.recompute_modules == "layernorm+moe_act"
    with pytest.raises(BadInput, match="'moe_layer': some of core_attn, layernorm"):
        Topology(recompute_modules="moe_layer")
    row = {"recompute_modules": 0b100010}
    assert decoded(row) == {"recompute_modules": "layernorm+moe"} and set(MODULES) >= {"layernorm", "moe"}


@pytest.mark.parametrize(("asked", "why"), [
    ({"modules": "core_attn+mlp", "model": presets.model("gpt2-124m")}, "biases in all linears: megatron-core"),
    ({"modules": "moe", "engine": "seatrial"}, "seatrial takes no list of modules; recompute none, selective or full"),
    ({"modules": "moe", "recompute": "full"}, "a list of modules goes with recompute selective"),
    ({"modules": "mla_up_proj", "model": presets.model("mixtral-8x7b")}, "no latent attention for mla_up_proj"),
    ({"modules": "layernorm+moe_act", "model": presets.model("llama3-8b")}, "no experts for moe_act"),
])
def test_what_no_engine_or_model_can_is_refused_in_a_line(asked, why):
    with pytest.raises(Infeasible, match=why):
        rules.check(trial(**asked))


def test_what_is_left_out_adds_up():
    """Of DeepSeek-V3: norms before attention and experts, rows of experts with the router, the shared expert, queries, keys and
    values with the norms of what they came from."""
    h, f, shared, chosen = 7168, 2048, 2048, 8
    parts = {"layernorm": 2 * 2 * h, "moe_act": chosen * 2 * f, "shared_experts": 6 * shared, "core_attn": 0,
             "mla_up_proj": 2 * 128 * (192 + 192 + 128) + 2 * (1536 + 512), "mlp": 0,
             "moe": chosen * (2 * h + 6 * f) + 20 * 256 + 6 * shared}  # fmt: skip
    assert {name: left_out(name, ep=8) for name in parts} == pytest.approx(parts)
    assert left_out("layernorm+mla_up_proj+moe", ep=8) == pytest.approx(
        parts["layernorm"] + parts["mla_up_proj"] + parts["moe"])
    assert left_out("moe+moe_act+shared_experts", ep=8) == pytest.approx(parts["moe"])
    llama = presets.model("llama3-8b")
    assert left_out("mlp", model=llama) == 2 * llama.hidden + 6 * llama.inner
    assert left_out("layernorm", model=llama) == 0, "its norms are part of the linears behind them"


def test_what_is_made_again_is_run_again():
    machine = Machine.of(configs(None), H100)
    none = expert_layer(configs(None, recompute="none", ep=8), H100, machine)

    def more(modules: str, part: str) -> float:
        """Backward over what it is without recompute, in forward passes."""
        now = expert_layer(configs(modules, ep=8), H100, machine)[part]
        return float(((now.backward - none[part].backward) / none[part].forward)[0])

    assert [more("moe", part) for part in ("experts", "dispatch", "wait")] == pytest.approx([1, 1, 1])
    assert [more("moe_act", part) for part in ("experts", "dispatch", "matmul")] == pytest.approx([0, 0, 0], abs=1e-9)
    assert 0 < more("moe_act", "memory") < more("moe", "memory") < 1
    assert more("core_attn", "attention") == pytest.approx(1) and 0 < more("mla_up_proj", "matmul") < 0.6
    llama = presets.model("llama3-8b")
    dense = {name: layer(configs(name, model=llama, recompute="selective" if name else "none"), H100,
                         Machine.of(configs(None, model=llama), H100))["matmul"] for name in (None, "mlp")}
    again = (dense["mlp"].backward - dense[None].backward) / dense[None].forward
    assert 0.7 < again[0] < 0.9, "the MLP has four fifths of the weights"


def test_flags_go_out_and_come_back():
    for modules in (None, "core_attn", "moe", "mla_up_proj+moe", "layernorm+shared_experts", "moe_act+mlp"):
        given = trial(modules, dp=128, ep=8, zero=1)
        flags = megatron_lm(given).flags
        names = {flag[0].removeprefix("--").replace("-", "_"): list(flag[1:]) for flag in flags}
        values = {name: True if not said else said[0] if len(said) == 1 else said for name, said in names.items()}
        assert ("moe_shared_expert_overlap" in names) == ("shared_experts" not in (modules or ""))
        back = of_values(values, where="flags", world=128).tables["topology"]
        assert (back["recompute"], back.get("recompute_modules")) == ("selective", modules)
    dense = nemo.files(trial("mlp", model=presets.model("llama3-8b"), zero=1))[nemo.FILE]
    assert '  recompute_modules: ["mlp"]' in dense.splitlines()
    eight = replace(given, topology=replace(given.topology, precision="fp8"))
    assert ("--fp8-recipe", "tensorwise") in megatron_lm(eight).flags, "delayed scaling refuses these modules"


def test_rows_say_modules_in_a_column_of_their_own_or_in_that_of_recompute():
    base = {"layers": "4", "hidden": "256", "heads": "4", "experts": "8", "top_k": "2", "expert_ffn": "256", "dp": "8",
            "gbs": "64", "engine": "megatron-core", "family": "llama"}
    for cells in ({"recompute_modules": "moe, layernorm"}, {"recompute": "layernorm+moe"},
                  {"recompute": "selective (moe layernorm)"}, {"recompute": "selective", "recompute_modules": "layernorm+moe"}):
        t = rows.read_row({**base, **cells}, H100).trial.topology
        assert (t.recompute, t.recompute_modules) == ("selective", "layernorm+moe"), cells


def test_plan_takes_lists_and_ranks_them():
    asked = Request.read(model="qwen3-30b-a3b", cluster="dgx-h100", nodes=4, engine="megatron-core", sequence_parallel="off",
                         fixed={"gbs": "64", "tp": "1", "pp": "4", "vp": "1", "mbs": "1", "ep": "8", "etp": "1", "zero": "1",
                                "recompute_modules": "moe_act,layernorm+moe"})  # fmt: skip
    found = search(asked.space, precision=asked.precision)
    seen = {found.trial(i).topology.recompute_modules: (found.sec[i], found.mem_gib[i]) for i in range(len(found.sec))}
    assert set(seen) == {"moe_act", "layernorm+moe"}
    assert seen["layernorm+moe"][0] > seen["moe_act"][0] and seen["layernorm+moe"][1] < seen["moe_act"][1]
    with pytest.raises(Infeasible, match="fsdp2 takes no list of modules"):
        Request.read(model="qwen3-30b-a3b", cluster="dgx-h100", engine="torchtitan",
                     fixed={"gbs": "64", "recompute_modules": "moe"})


@pytest.mark.skipif(not homes.found("megatron-core", "megatron.core"), reason="megatron-core is not installed: make engines")
def test_megatron_core_keeps_less_by_what_is_counted():
    """Its local layers have each norm as a module of its own, a few bytes a token of which are mean and deviation."""
    python = homes.found("megatron-core", "megatron.core")

    def saved(kind: str, *lists: str) -> dict[str, float]:
        done = subprocess.run([python, str(ROOT / "tests" / "mcore_saved.py"), kind, "none", *lists], capture_output=True,
                              text=True, timeout=240, env={**os.environ, "PYTHONPATH": str(ROOT / "examples" / "engines")})
        assert done.returncode == 0, done.stderr[-2000:]
        found = json.loads(done.stdout.splitlines()[-1])
        return {name: (found["none"] - found[name]) / 64 for name in lists}

    small = replace(DEEPSEEK, layers=1, hidden=128, heads=4, kv_heads=4, head_dim=24, ffn=320, seq=64, experts=8, top_k=2,
                    expert_ffn=96, shared_experts=2, dense_layers=0, mtp=0,
                    latent=Latent(q_rank=48, kv_rank=32, rope_dim=8, value_dim=32),
                    router=replace(DEEPSEEK.router, groups=1, group_limit=None))  # fmt: skip
    lists = "layernorm", "moe_act", "mla_up_proj", "shared_experts", "moe", "layernorm+moe"
    measured = saved("mixture", *lists)
    counted = {name: left_out(name, model=small, dp=1) for name in lists}
    statistics, tables, outside, router = 2 * 4, 4 * 8, 2 * (48 + 32), 20 * 8
    assert measured["moe_act"] == counted["moe_act"] and measured["shared_experts"] == counted["shared_experts"]
    assert measured["layernorm"] == counted["layernorm"] + statistics
    # With Transformer Engine the norms of what is compressed are part of the linears behind them; here, of no module.
    assert measured["mla_up_proj"] == counted["mla_up_proj"] - outside + tables
    assert counted["moe"] - router < measured["moe"] < counted["moe"]
    assert measured["layernorm+moe"] == measured["layernorm"] + measured["moe"]
    llama = replace(presets.model("llama3-8b"), layers=1, hidden=128, heads=4, kv_heads=4, ffn=320, seq=64)
    dense = saved("dense", "mlp", "mlp+layernorm")
    assert dense["mlp"] == left_out("mlp", model=llama, dp=1) - 2 * 128, "its norm is a module of its own here"
    assert dense["mlp+layernorm"] == left_out("mlp", model=llama, dp=1) + 2 * 128 + statistics
