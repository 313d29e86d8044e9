"""torchtitan 0.2: what it can run, a trial as its TOML file and TrainSpec, and how it is started.

    Torchtitan().files(trial, recipe)       torchtitan.toml and the module that it imports: the model, random tokens
    Torchtitan().why_not(trial)             what its options cannot say, or its code refuses, with the numbers

Its data-parallel shards lie over `data_parallel_shard_degree` x CP ranks, so a ZeRO group is a multiple of CP
(torchtitan/distributed/parallel_dims.py). Its stages are dealt out with embedding and head as a layer each, the first taking
what is left over (distributed/pipeline_parallel.py); any other split is a list of the modules of each stage.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.engines.scripted import Scripted, driver
from seatrial.recipe import Recipe
from seatrial.rules import Violation
from seatrial.schedule import GROUPED
from seatrial.spec import Model, Topology, Trial, divisors_near, stages_of
from seatrial.stages import said

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
ROTATES = {"ring": "alltoall", "gather": "allgather"}
"""Kind of context parallelism -> context_parallel_rotate_method."""
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp8": "bfloat16"}
CONFIG, SPEC = "torchtitan.toml", "seatrial_trial"


class Torchtitan(Scripted):
    name, module, model = "torchtitan", "torchtitan", "fsdp2"
    otherwise, without_layers, takes = (GROUPED,), True, ("optimizer",)
    applied = ("tp", "pp", "cp", "gbs", "seq", "hidden", "layers", "heads")

    def speaks(self, trial: Trial) -> int:
        """The first of the last stage: others say that their loss is -1."""
        return trial.world // trial.topology.pp * (trial.topology.pp - 1)

    def start(self, trial: Trial, folder: Path) -> tuple[str, ...]:
        return driver("run_torchtitan.py"), str(folder / CONFIG), trial.execution.device

    def by_hand(self, trial: Trial, recipe: Recipe) -> tuple[str, ...]:
        return "-m", "torchtitan.train", "--job.config_file", CONFIG

    def files(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        import tomli_w

        about = "# torchtitan 0.2; the model and random tokens are in seatrial_trial.py beside this file (PYTHONPATH=.)\n"
        return {CONFIG: about + tomli_w.dumps(config(trial, recipe)), f"{SPEC}.py": spec(trial)}

    def needs_gpu(self, trial: Trial) -> str:
        cp = trial.topology.cp
        if trial.model.mixture:
            return "torchtitan: experts, whose tokens it counts by torch.histc, which takes whole numbers on GPUs alone"
        return f"torchtitan: CP {cp}: torch divides attention over ranks on GPUs alone; CP 1 would do" if cp > 1 else ""

    def why_not(self, trial: Trial) -> Iterator[Violation]:
        m, t, b = trial.model, trial.topology, trial.batch
        wrong = [*_model(m), *_layout(t), *(["a ramp-up of the batch"] if b.rampup_start is not None else [])]
        if b.documents is not None:
            wrong.append("attention inside documents, which is a mask of the model's own arguments there and no option")
        for reason in wrong:
            yield Violation(code="engine", message=f"not for torchtitan: {reason}")
        if t.precision == "bf16" and shards(t) == 1 and (t.tp > 1 or t.pp > 1):
            yield Violation(code="engine-silent", message=f"not for torchtitan: bf16 with TP {t.tp} and PP {t.pp} and nothing "
                            "sharded: it would compute in fp32; ZeRO 2 or 3, or fp32 would do")
        if m.kv % t.tp:
            yield Violation(code="kv-heads-divisible", message=f"torchtitan: {m.kv} key-value heads are not a multiple of TP "
                            f"{t.tp}: TP {divisors_near(m.kv, t.tp, between=' or ')} would do")
        parts = t.tp * 2 * t.cp
        if m.seq % parts:
            yield Violation(code="seq-divisible", message=f"torchtitan: sequence {m.seq} is not a multiple of {parts}, which "
                            f"TP {t.tp} x 2 x CP {t.cp} make; it asks for the 2 without CP as well")
        if t.pp > 1 and 0 in (split := stages_of(m, t))[1:-1]:
            yield Violation(code="layers-divisible", message=f"torchtitan: stages of {said(split)} layers: one that is neither "
                            "the first nor the last has nothing to train")
        count, batch = trial.microbatches, t.dp * t.mbs * t.pp
        if t.pp > 1 and t.schedule == "1f1b" and count < t.pp:
            yield Violation(code="microbatches", message=f"torchtitan: {count} micro-batches over PP {t.pp}: 1F1B needs {t.pp} "
                            f"at least, a batch of {batch}")
        if t.schedule == "interleaved" and count % (rounds := max(1, count // t.pp)):
            yield Violation(code=GROUPED, message=f"torchtitan: {count} micro-batches in {rounds} rounds of as many, PP {t.pp} "
                            f"at least in each: a multiple of {batch} would do as the batch")


def kind(m: Model) -> str:
    """Which of its models has what this one has: those whose every size is an argument."""
    return "deepseek_v3" if m.is_latent else "qwen3" if m.mixture else "llama3"


def _model(m: Model) -> Iterator[str]:
    its, routed = f"its {kind(m)}", m.mixture
    if not m.rope or m.layernorm or not m.gated:
        yield f"{its} has rotary positions, RMSNorm and SwiGLU alone"
    if m.architecture.biases != "none" or m.normed_embedding or (m.normed_qk and not routed):
        yield f"{its} has no biases, {'' if routed else 'no norm of queries and keys, '}none after the embedding"
    if m.ties:
        yield f"{its} does not tie the embeddings; tied = false would do"
    if m.sinks or m.has_windows or m.mtp or m.architecture.mlp == "swiglu-clamped":
        yield f"{its} has no sinks, no windows, no clamped SwiGLU and no multi-token prediction"
    if m.is_latent and not routed:
        yield f"{its} has latent attention with experts alone"
    if m.rope_factor is not None and (kind(m) == "qwen3" or m.yarn != m.is_latent):
        yield f"{its} scales rotary frequencies {HOW[kind(m)]}"
    if m.head_size * m.heads != m.hidden and kind(m) == "llama3":
        yield f"heads of {m.head_size}: {its} has hidden / heads = {m.hidden // m.heads}"
    if routed:
        yield from _experts(m, its)


HOW = {"llama3": "as Llama 3.1 does, not by YaRN", "qwen3": "not at all", "deepseek_v3": "by YaRN, not as Llama 3.1 does"}


def _experts(m: Model, its: str) -> Iterator[str]:
    """torchtitan/models/moe/moe.py."""
    r = m.router
    if m.expert_every > 1 or (m.dense_layers and not m.is_latent):
        yield f"{its} has experts in every layer" + (" behind the dense ones" if m.is_latent else "")
    if r.aux_loss or r.z_loss:
        yield (f"router.aux_loss {r.aux_loss:g}, z_loss {r.z_loss:g}: it has no loss of balance but a correction; both 0 would "
               "do")
    if r.capacity is not None:
        yield f"router.capacity {r.capacity:g}: its experts take all tokens"
    if r.limit < r.groups == m.experts:
        yield f"{r.groups} groups of one expert each; it has groups of two at least"


def _layout(t: Topology) -> Iterator[str]:
    if t.zero == 1:
        yield "ZeRO 1: FSDP2 shards gradients as well (ZeRO 2), or weights too (ZeRO 3)"
    if t.zero == 0 and t.data_ranks > 1 and (t.tp > 1 or t.pp > 1):
        yield f"ZeRO 0 with DP {t.dp} beside TP or PP: its DDP is for data parallelism alone; ZeRO 2 or 3 would do"
    if t.cp > 1 and t.cp_kind not in ROTATES:
        yield f"CP {t.cp} by {t.cp_kind}; it has {' and '.join(ROTATES)}"
    if t.cp > 1 and shards(t) % t.cp:
        yield f"shards over {shards(t)} ranks with CP {t.cp}: CP is always a part of what it shards over"
    if t.gradients_group is not None or t.weights_group is not None:
        yield "groups of their own for gradients or weights"
    if t.ep == 1 and t.expert_tp != t.tp:
        yield f"ETP {t.expert_tp} with TP {t.tp} and EP 1: without EP its experts are cut as all else; ETP {t.tp} would do"
    elif t.ep > 1 and (ranks := shards(t) * t.tp) % (t.ep * t.expert_tp):
        yield f"EP {t.ep} x ETP {t.expert_tp}: its experts are spread over the {ranks} ranks that share one sharded copy"
    if t.schedule not in SCHEDULES:
        yield f"schedule {t.schedule}; it has {', '.join(SCHEDULES)}"
    if t.tp > 1 and not t.sequence_parallel:
        yield f"TP {t.tp} that leaves the sequence whole in norms; sequence_parallel = true is what it has"
    if t.precision not in PRECISIONS:
        yield f"precision {t.precision}; it has {', '.join(PRECISIONS)}"


def shards(t: Topology) -> int:
    return 1 if t.zero == 0 else t.zero_group or t.data_ranks


def config(trial: Trial, recipe: Recipe) -> dict[str, Any]:
    """Its TOML file as tables."""
    m, t, x = trial.model, trial.topology, trial.execution
    cut = shards(t)
    parallel: dict[str, Any] = {
        "data_parallel_replicate_degree": t.data_ranks // cut, "data_parallel_shard_degree": max(1, cut // t.cp),
        "tensor_parallel_degree": t.tp, "context_parallel_degree": t.cp, "pipeline_parallel_degree": t.pp,
    }  # fmt: skip
    if t.zero:
        parallel["fsdp_reshard_after_forward"] = "always" if t.zero == 3 else "never"
    if m.mixture:
        parallel |= {"expert_parallel_degree": t.ep, "expert_tensor_parallel_degree": t.expert_tp}
    if t.cp > 1:
        parallel["context_parallel_rotate_method"] = ROTATES[t.cp_kind]
    if t.pp > 1:
        parallel |= {"pipeline_parallel_schedule": SCHEDULES[t.schedule], "pipeline_parallel_microbatch_size": t.mbs}
        if (split := stages_of(m, t)) != dealt(m.layers, t):
            parallel["module_fqns_per_model_part"] = modules(split)
    recompute: dict[str, Any] = {"mode": t.recompute}
    if t.recompute == "selective":
        recompute["selective_ac_option"] = "op"
    return {
        "job": {"description": f"{m.name or 'model'}: {t.product}", "dump_folder": "outputs"},
        "experimental": {"custom_import": SPEC},
        "model": {"name": "seatrial", "flavor": "trial", **({"converters": ["float8"]} if t.precision == "fp8" else {})},
        "training": {"seq_len": m.seq, "global_batch_size": trial.batch.gbs, "steps": recipe.steps,
                     "local_batch_size": t.mbs if t.pp == 1 else t.mbs * trial.microbatches,
                     "max_norm": recipe.clip or 1e9, "mixed_precision_param": PRECISIONS[t.precision]},
        "parallelism": parallel,
        "activation_checkpoint": recompute,
        "optimizer": {"lr": recipe.lr, "beta1": recipe.beta1, "beta2": recipe.beta2, "eps": recipe.eps,
                      "weight_decay": recipe.weight_decay,
                      "implementation": "for-loop" if x.optimizer == "adamw-plain" else "fused"},
        "lr_scheduler": {"warmup_steps": recipe.warmup_steps or 0, "decay_type": "cosine",
                         "min_lr_factor": recipe.min_lr / recipe.lr},
        "compile": {"enable": x.compile},
        "debug": {"seed": recipe.seed, **({"moe_force_load_balance": True} if m.mixture and t.moe_balance == "forced" else {})},
        "metrics": {"log_freq": 1, "disable_color_printing": True},
        "comm": {"init_timeout_seconds": int(recipe.start_s), "train_timeout_seconds": int(max(100, 2 * recipe.stall_s))},
    }  # fmt: skip


def dealt(layers: int, t: Topology) -> tuple[int, ...]:
    """Layers of each stage as it deals them out by itself; nothing where it would make another number of stages."""
    stages = t.pp * (2 if t.schedule == "interleaved" else 1)
    if stages != t.pp * t.vp:
        return ()
    each, more = divmod(layers + 2, stages)
    found = [each + (stage < more) for stage in range(stages)]
    return (found[0] - 1, *found[1:-1], found[-1] - 1)


def modules(split: tuple[int, ...]) -> list[list[str]]:
    """The modules of each stage, by their names in its llama3."""
    found, at = [], 0
    for layers in split:
        found.append([f"layers.{number}" for number in range(at, at + layers)])
        at += layers
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "output"]
    return found


_SPEC = '''"""The model of this trial and random tokens, as torchtitan's TrainSpec."""
import torch
from torchtitan.components.loss import build_cross_entropy_loss
from torchtitan.components.lr_scheduler import build_lr_schedulers
from torchtitan.components.optimizer import {optimizers}
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.{kind} import {classes}
from {beside}
from torchtitan.protocols.train_spec import TrainSpec, register_train_spec

MODEL = {arguments}


class Tokens:
    """As many as are asked for, another stream for each data-parallel rank."""

    def __init__(self, dp_world_size, dp_rank, tokenizer, job_config, **_):
        self.shape = (job_config.training.local_batch_size, job_config.training.seq_len + 1)
        self.generator = torch.Generator().manual_seed((job_config.debug.seed or 0) * dp_world_size + dp_rank)

    def __iter__(self):
        while True:
            tokens = torch.randint(0, {vocab}, self.shape, generator=self.generator)
            yield {{"input": tokens[:, :-1].contiguous()}}, tokens[:, 1:].contiguous()

    def state_dict(self):
        return {{}}

    def load_state_dict(self, state):
        pass


register_train_spec("seatrial", TrainSpec(
    model_cls={model}, model_args={{"trial": MODEL}}, parallelize_fn={parallelize}, pipelining_fn=pipeline_llm,
    build_optimizers_fn={optimizers}, build_lr_schedulers_fn=build_lr_schedulers, build_dataloader_fn=Tokens,
    build_tokenizer_fn=None, build_loss_fn=build_cross_entropy_loss))
'''

CLASSES = {"llama3": ("Transformer", "TransformerModelArgs", "parallelize_llama"),
           "qwen3": ("Qwen3Model", "Qwen3ModelArgs", "parallelize_qwen3"),
           "deepseek_v3": ("DeepSeekV3Model", "DeepSeekV3ModelArgs", "parallelize_deepseekv3")}


def spec(trial: Trial) -> str:
    m, which = trial.model, kind(trial.model)
    sizes: dict[str, Any] = {"dim": m.hidden, "n_layers": m.layers, "n_heads": m.heads,
                             "vocab_size": m.padded_vocab(trial.topology.tp), "norm_eps": m.norm_eps,
                             "rope_theta": m.rope_theta}
    beside, nested = "torchtitan.models.moe import MoEArgs", {"moe_args": _routing(m)}
    if which == "qwen3":
        sizes |= {"n_kv_heads": m.kv, "head_dim": m.head_size, "hidden_dim": m.inner, "qk_norm": m.normed_qk,
                  "moe_enabled": True, "moe_inter_dim": m.expert_inner}
    elif which == "deepseek_v3":
        sizes |= {"inter_dim": m.inner, "moe_inter_dim": m.expert_inner, "n_dense_layers": m.dense_layers,
                  "q_lora_rank": m.q_rank, "kv_lora_rank": m.kv_rank, "qk_nope_head_dim": m.head_size,
                  "qk_rope_head_dim": m.rope_dim, "v_head_dim": m.value_dim, "original_seq_len": m.rope_original_seq,
                  "rope_factor": m.rope_factor or 1.0, "beta_fast": m.rope_beta_fast, "beta_slow": m.rope_beta_slow,
                  "mscale": m.rope_mscale or 1.0}
    else:
        usual = int(2 * 4 * m.hidden / 3)  # what it takes for the inner width, before the two arguments that change it
        sizes |= {"n_kv_heads": m.kv, "multiple_of": m.inner, "ffn_dim_multiplier": m.inner / usual}
        scaling = "scaling_factor=1.0" if m.rope_factor is None else (
            f"scaling_factor={m.rope_factor!r}, low_freq_factor={m.rope_low_freq!r}, high_freq_factor={m.rope_high_freq!r}, "
            f"original_max_position_embeddings={m.rope_original_seq}")
        beside = "torchtitan.models.llama3.model.args import RoPEScalingArgs"
        nested = {"rope_scaling_args": f"RoPEScalingArgs({scaling})"}
    model, arguments, parallelize = CLASSES[which]
    text = _arguments(sizes) + "".join(f",\n    {name}={value}" for name, value in nested.items())
    return _SPEC.format(kind=which, classes=", ".join((model, arguments, parallelize)), beside=beside, model=model,
                        parallelize=parallelize, arguments=f"{arguments}({text})", vocab=m.vocab,
                        optimizers="build_optimizers" + "_with_moe_load_balancing" * (m.mixture and m.router.corrected))


def _arguments(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _routing(m: Model) -> str:
    r = m.router
    routing = {"num_experts": m.experts, "num_shared_experts": m.shared, "top_k": m.chosen, "score_func": r.kind,
               "route_norm": r.normalised, "route_scale": r.scale, "gate_bias": r.bias, "score_before_experts": False,
               "load_balance_coeff": r.correction}
    if r.limit < r.groups:
        routing |= {"num_expert_groups": r.groups, "num_limited_groups": r.limit}
    return f"MoEArgs({_arguments(routing)})"
