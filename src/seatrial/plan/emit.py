"""A trial as Megatron's flags and as a Slurm script; other engines' adapters write what those are told (`engines/`).

    files = emit.megatron(trial, preamble=Path("jean-zay.sh"), options={"partition": "gpu_p5"})
    files["megatron-deepspeed.args"], files["ds_config.json"], files["train.slurm"]

Two dialects: Megatron-LM (ZeRO 1 as its distributed optimizer, interleaving, sequence parallelism) and Megatron-DeepSpeed as
BLOOM was trained with (ZeRO through DeepSpeed, ALiBi, activation checkpointing). A dialect that cannot run the trial says why
in place of its flags, and no file is written of it. Every value that reaches a shell goes through `shlex.quote`; the preamble
is sourced by its path, and only its `#SBATCH` lines, which no shell runs, are copied.
"""
from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.files import save
from seatrial.plan import emit_experts
from seatrial.spec import Model, Trial, context_split, stage_split, stages_of
from seatrial.stages import megatron as megatron_layout

Flags = list[tuple[str, ...]]
"""Each a flag with its values, as separate words."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    flags: Flags
    """What to pass; empty where the dialect cannot run the trial."""
    notes: list[str]
    """What could not be said, and why there are no flags."""

    def text(self) -> str:
        lines = [f"# {note}" for note in self.notes]
        lines += [" ".join(shlex.quote(word) for word in flag) for flag in self.flags]
        return "\n".join(lines) + "\n"


def megatron(trial: Trial, *, preamble: Path | None = None, options: Mapping[str, str] | None = None,
             shell: Sequence[str] = (), only: str = "megatron") -> dict[str, str]:
    """File name -> content. The Slurm script runs the dialect that can express the trial, Megatron-DeepSpeed for ALiBi.

    `options` of sbatch and lines of `shell`: the user's own; `only` megatron-lm, megatron-deepspeed: that dialect alone.
    """
    none = Dialect(flags=[], notes=[])
    lm = none if only == "megatron-deepspeed" else megatron_lm(trial)
    deepspeed = none if only == "megatron-lm" else megatron_deepspeed(trial)
    files = {f"{name}.args": dialect.text() for name, dialect in (("megatron-lm", lm), ("megatron-deepspeed", deepspeed))
             if dialect is not none}
    if deepspeed.flags:
        files["ds_config.json"] = json.dumps(deepspeed_config(trial), indent=2) + "\n"
    use_deepspeed = bool(deepspeed.flags) and (trial.model.alibi or not lm.flags)
    chosen = deepspeed if use_deepspeed else lm
    if not chosen.flags:
        neither = "neither dialect of Megatron can run this: " if only == "megatron" else ""
        raise BadInput(f"{neither}{'; '.join(lm.notes + deepspeed.notes)}")
    files["train.slurm"] = slurm_script(trial, chosen, preamble=preamble, options=options or {}, shell=shell,
                                        deepspeed=use_deepspeed)
    return files


def writable(m: Model) -> tuple[str | None, dict[str, str]]:
    """The engine and the knobs to search, where nobody chose any, so that what ranks first can be written."""
    if any(_beyond_gpt(m)):
        return "megatron-core", {}
    return None, {"recompute": "none,full"} if m.alibi else {}


def _shared(trial: Trial) -> Iterator[tuple[str, ...]]:
    m, t, b = trial.model, trial.topology, trial.batch
    yield "--num-layers", str(m.layers)
    yield "--hidden-size", str(m.hidden)
    yield "--num-attention-heads", str(m.heads)
    yield "--ffn-hidden-size", str(m.inner)
    yield "--seq-length", str(m.seq)
    yield "--max-position-embeddings", str(m.seq)
    yield "--tensor-model-parallel-size", str(t.tp)
    yield "--pipeline-model-parallel-size", str(t.pp)
    yield "--micro-batch-size", str(t.mbs)
    yield "--global-batch-size", str(b.gbs)
    if b.rampup_start is not None:
        yield "--rampup-batch-size", str(b.rampup_start), str(b.rampup_increment), str(b.rampup_samples)
    if b.documents is not None:
        yield ("--reset-attention-mask",)  # at the ends of documents, which are those of its data
    if t.precision in ("bf16", "fp16"):
        yield (f"--{t.precision}",)
    # Trained without, and measured without: the default of both is 0.1.
    yield "--attention-dropout", "0.0"
    yield "--hidden-dropout", "0.0"


def _embedding_slots(trial: Trial) -> bool:
    """Whether the embedding and the head each take a layer's place among the stages."""
    split = stages_of(trial.model, trial.topology)
    own = split == stage_split(trial.model.layers, len(split))
    return own and len(set(split)) > 1 and (trial.model.layers + 2) % len(split) == 0


def _uneven(trial: Trial) -> bool:
    return len(set(stages_of(trial.model, trial.topology))) > 1 and not _embedding_slots(trial)


def _architecture(m: Model) -> Iterator[tuple[str, ...]]:
    """What a layer is made of, in Megatron-LM's flags."""
    if m.gated:
        yield ("--swiglu",)
    if m.architecture.biases in ("none", "qkv"):
        yield ("--disable-bias-linear",)
    if m.architecture.biases == "qkv":
        yield ("--add-qkv-bias",)
    if not m.layernorm:
        yield "--normalization", "RMSNorm"
    if not m.layernorm or m.norm_eps != 1e-5:
        yield "--norm-epsilon", repr(m.norm_eps)
    if m.normed_qk:
        yield ("--qk-layernorm",)
    yield from emit_experts.latent(m)
    if m.head_size * m.heads != m.hidden and m.latent is None:
        yield "--kv-channels", str(m.head_size)
    yield "--position-embedding-type", "rope" if m.rope else "learned_absolute"
    if m.rope:
        yield "--rotary-base", str(int(m.rope_theta))
    if m.rope_factor is not None and not m.yarn:
        yield ("--use-rope-scaling",)
        yield "--rope-scaling-factor", repr(m.rope_factor)
    if m.mtp:
        yield "--mtp-num-layers", str(m.mtp)
        yield "--mtp-loss-scaling-factor", repr(m.mtp_loss)
    if m.kv != m.heads:
        yield ("--group-query-attention",)
        yield "--num-query-groups", str(m.kv)


OVERLAPS = {"gradients": "--overlap-grad-reduce", "parameters": "--overlap-param-gather", "tensor": "--tp-comm-overlap"}


def _overlapped(trial: Trial) -> Iterator[tuple[str, ...]]:
    """What is asked for; by default what the forecast of this engine has, where there is somebody to talk to."""
    t, said = trial.topology, trial.execution.overlap
    able = {"gradients": t.data_ranks > 1, "parameters": t.data_ranks > 1 and t.zero == 1,
            "tensor": t.tp > 1 and t.sequence_parallel}
    usual = ("gradients", "parameters")
    wanted = usual if said is None else tuple(able) if said == "all" else tuple(said.split("+"))
    yield from ((OVERLAPS[name],) for name in OVERLAPS if name in wanted and able[name])


LAYOUT = "--pipeline-model-parallel-layout"


def _stages(trial: Trial) -> Flags:
    """Which layers each stage has, in the plainest flags that can say it. Only a list can say virtual stages that differ, or
    one without layers."""
    t, split = trial.topology, stages_of(trial.model, trial.topology)
    if len(set(split)) == 1:
        return [("--num-layers-per-virtual-pipeline-stage", str(split[0]))] if t.vp > 1 else []
    if t.vp == 1 and _embedding_slots(trial):
        return [("--account-for-embedding-in-pipeline-split",), ("--account-for-loss-in-pipeline-split",)]
    first: Flags = [("--decoder-first-pipeline-num-layers", str(split[0]))]
    last: Flags = [("--decoder-last-pipeline-num-layers", str(split[-1]))]
    if t.vp == 1 and 0 not in split:
        for flags, others in ((first, split[1:]), (last, split[:-1]), ([*first, *last], split[1:-1])):
            if len(set(others)) == 1:
                return flags
    return [(LAYOUT, megatron_layout(split))]


def megatron_lm(trial: Trial) -> Dialect:
    m, t = trial.model, trial.topology
    why_not, notes = [], []
    if m.alibi:
        why_not.append("ALiBi positions are not in Megatron-LM")
    if m.normed_embedding and not m.alibi:
        why_not.append("a norm after the embedding is not in Megatron-LM")
    if m.architecture.biases in ("attention", "mlp"):
        why_not.append(f"biases {m.architecture.biases}: Megatron-LM has them in all linears, in none, or in query, key, value")
    scaled = m.rope_factor is not None and not m.yarn
    if scaled and (m.rope_low_freq, m.rope_high_freq, m.rope_original_seq) != (1.0, 4.0, 8192):
        why_not.append("Megatron-LM scales rotary frequencies from a sequence of 8192, between 1 and 4 waves in it")
    if t.zero > 1:
        why_not.append(f"ZeRO {t.zero} is not in Megatron-LM's pipeline; its distributed optimizer is ZeRO 1")
    if t.schedule not in ("1f1b", "interleaved"):
        why_not.append(f"schedule {t.schedule} is not in Megatron-LM; 1f1b and interleaved are")
    if t.gradients_group is not None or t.weights_group is not None:
        why_not.append("gradients and weights have no groups of their own in Megatron-LM; its optimizer's are zero_group")
    if why_not := [*why_not, *emit_experts.beyond(trial)]:
        return Dialect(flags=[], notes=[f"not for Megatron-LM: {reason}" for reason in why_not])
    flags: Flags = list(_shared(trial))
    # Of a tokenizer that has its own size the flag says nothing; the mock ones take it.
    flags += [("--vocab-size", str(m.pad_vocab_to or m.vocab)), ("--make-vocab-size-divisible-by",
                                                                 "1" if m.pad_vocab_to else "128")]
    if m.pad_vocab_to is not None:
        notes.append(f"pad_vocab_to {m.pad_vocab_to}: give a tokenizer of that size")
    flags += _stages(trial)
    if any(flag[0] == LAYOUT for flag in flags):
        notes.append(f"{LAYOUT} takes Megatron core 0.13 or later")
    if t.sequence_parallel or t.tp > 1 and m.mixture:  # with experts it refuses to train otherwise
        flags.append(("--sequence-parallel",))
    if t.zero == 1:
        flags.append(("--use-distributed-optimizer",))
        if t.zero_group not in (None, t.data_ranks):
            flags.append(("--num-distributed-optimizer-instances", str(t.data_ranks // (t.zero_group or 1))))
    if t.cp > 1:
        flags += _context(trial)
    flags += _overlapped(trial)
    if t.recompute == "full":
        flags += [("--recompute-granularity", "full"), ("--recompute-method", "uniform"), ("--recompute-num-layers", "1")]
    elif t.recompute == "selective":
        flags.append(("--recompute-granularity", "selective"))
        # Megatron's own default is attention alone.
        if (modules := t.modules(m)) != ("core_attn",):
            flags.append(("--recompute-modules", *modules))
    flags += [*_architecture(m), *emit_experts.experts(trial)]
    if not m.ties:
        flags.append(("--untie-embeddings-and-output-weights",))
    if t.precision == "fp8":
        flags += [("--bf16",), ("--fp8-format", "hybrid"), ("--transformer-impl", "transformer_engine")]
        if t.recompute == "selective" and {"layernorm", "moe_act"} & set(t.modules(m)):
            flags.append(("--fp8-recipe", "tensorwise"))  # with delayed scaling it refuses these modules
    return Dialect(flags=flags, notes=notes)


COMM_TYPES = {"ring": "p2p", "gather": "all_gather", "ulysses": "a2a", "ulysses+ring": "a2a+p2p"}
"""Kind of context parallelism -> Megatron's word for it (megatron/core/model_parallel_config.py)."""


def _context(trial: Trial) -> Iterator[tuple[str, ...]]:
    t = trial.topology
    yield "--context-parallel-size", str(t.cp)
    yield "--cp-comm-type", COMM_TYPES[t.cp_kind]
    if t.cp_kind == "ulysses+ring":
        heads, ring = context_split(trial.model, t)
        yield "--hierarchical-context-parallel-sizes", str(heads), str(ring)


def megatron_deepspeed(trial: Trial) -> Dialect:
    m, t = trial.model, trial.topology
    why_not = []
    if lacking := list(_beyond_gpt(m)):
        why_not.append(f"not in the Megatron-DeepSpeed of BLOOM: {', '.join(lacking)}")
    if t.sequence_parallel:
        why_not.append("sequence parallelism is not in it")
    if t.schedule != "1f1b":
        why_not.append(f"schedule {t.schedule} is not in it; 1f1b is")
    if t.recompute == "selective":
        why_not.append("selective recompute is not in it; none and full are")
    if t.zero > 1 and t.pp > 1:
        why_not.append(f"DeepSpeed's pipeline engine refuses ZeRO {t.zero}; 0 and 1 are taken")
    elif t.zero > 1 and m.alibi:
        why_not.append(f"the Megatron-DeepSpeed that has ALiBi runs every model as a pipeline, which refuses ZeRO {t.zero}")
    if t.precision == "fp8":
        why_not.append("fp8 is not in it")
    if t.cp > 1 and (t.cp_kind != "ulysses" or t.pp > 1 or m.alibi):
        why_not.append(f"CP {t.cp} by {t.cp_kind}" + (f" with PP {t.pp}" if t.pp > 1 else "")
                       + " is not in it; Microsoft's has ulysses, without its pipeline engine and without ALiBi")
    if t.zero_group not in (None, t.data_ranks) and t.zero < 3:
        why_not.append(f"zero_group {t.zero_group} with ZeRO {t.zero}: MiCS is of ZeRO 3")
    if t.gradients_group is not None:
        why_not.append("gradients have no group of their own in it")
    if _uneven(trial):
        why_not.append("its stages are equal, or equal with a place each for the two embeddings")
    if why_not:
        return Dialect(flags=[], notes=[f"not for Megatron-DeepSpeed: {reason}" for reason in why_not])
    flags: Flags = list(_shared(trial))
    if m.pad_vocab_to is not None:
        flags.append(("--pad-vocab-size-to", str(m.pad_vocab_to)))
    if m.alibi:
        flags.append(("--position-embedding-type", "alibi"))
    if m.normed_embedding:
        flags.append(("--embed-layernorm",))
    if t.pp > 1:
        flags.append(("--pp-partition-method", "type:transformer|embedding" if _embedding_slots(trial) else "type:transformer"))
    if t.recompute == "full":
        flags += [("--checkpoint-activations",), ("--deepspeed-activation-checkpointing",)]
    flags += [("--deepspeed",), ("--deepspeed_config", "ds_config.json"), ("--zero-stage", str(t.zero))]
    if t.cp > 1:
        flags.append(("--ds-sequence-parallel-size", str(t.cp)))
    if t.zero < 2 and t.cp == 1:
        return Dialect(flags=flags, notes=[])
    what = f"CP {t.cp}" if t.cp > 1 else f"ZeRO {t.zero}"
    return Dialect(flags=[*flags, ("--no-pipeline-parallel",)],
                   notes=[f"{what} takes Microsoft's Megatron-DeepSpeed, which can run without its pipeline engine"])


def _beyond_gpt(m: Model) -> Iterator[str]:
    """What a layer has that GPT-2's and BLOOM's have not."""
    a = m.architecture
    if m.rope:
        yield "rotary positions"
    if not m.layernorm:
        yield "RMSNorm"
    if m.gated:
        yield "SwiGLU"
    if a.biases != "all" and not m.rope:
        yield f"biases {a.biases}"
    if a.qk_norm:
        yield "norms of queries and keys"
    if m.kv != m.heads and not m.rope:
        yield "grouped queries"
    if m.heads * m.head_size != m.hidden:
        yield f"heads of {m.head_size}"
    if m.mixture:
        yield "experts"
    if m.is_latent:
        yield "latent attention"


def deepspeed_config(trial: Trial) -> dict[str, object]:
    t = trial.topology
    # runtime/zero/config.py: MiCS shards in groups and replicates across; hpZ has a second copy of the weights in smaller ones.
    groups = {} if t.zero_group in (None, t.data_ranks) else {"mics_shard_size": t.zero_group}
    if t.weights_group is not None:
        groups["zero_hpz_partition_size"] = t.weights_group
    config: dict[str, object] = {
        "train_micro_batch_size_per_gpu": t.mbs,
        "train_batch_size": trial.batch.gbs,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": t.zero, **groups},
        "steps_per_print": 2000,
    }
    if t.precision == "fp16":
        config["fp16"] = {"enabled": True, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1}
    if t.precision == "bf16":
        config["bf16"] = {"enabled": True}
    return config


def sbatch_lines(preamble: Path) -> list[str]:
    """The `#SBATCH` lines at the top of the user's file, the only part of it that is copied."""
    try:
        text = preamble.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{preamble}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    if len(text) > 1 << 20:
        raise BadInput(f"{preamble}: {len(text)} characters is too large for a preamble (limit 1 MiB)")
    lines = []
    for line in text.split("\n"):
        if line.startswith("#SBATCH"):
            lines.append("".join(c for c in line if c.isprintable()))
        elif line.strip() and not line.startswith("#"):
            break
    return lines


BENCHMARK = ("--mock-data", "--tokenizer-type", "NullTokenizer", "--train-iters", "20", "--lr", "3e-4", "--eval-iters", "0",
             "--eval-interval", "1000", "--log-interval", "1", "--log-throughput")
"""What Megatron-LM is given in place of somebody's data, to measure with."""
CPUS_PER_GPU = 8
"""What a job asks for where nobody says otherwise; Slurm's own default is one a task, and a task has all GPUs of its node."""
_BLACKWELL = re.compile(r"(^|[^a-z0-9])g?b[23]00")


def connections(trial: Trial) -> str:
    """The line that CUDA_DEVICE_MAX_CONNECTIONS needs: before Blackwell Megatron-LM orders communication and GEMMs of tensor
    and context parallelism by one queue, and refuses to start without (megatron/training/arguments.py)."""
    device = trial.cluster.device if trial.cluster is not None else None
    ordered = trial.topology.tp * trial.topology.cp > 1
    if device is None or device.kind != "gpu" or not ordered or _BLACKWELL.search(device.name.lower()):
        return ""
    return "export CUDA_DEVICE_MAX_CONNECTIONS=1"


def slurm_script(trial: Trial, dialect: Dialect, *, preamble: Path | None, options: Mapping[str, str], shell: Sequence[str],
                 deepspeed: bool) -> str:
    cluster, t = trial.cluster, trial.topology
    if cluster is None:
        raise BadInput("a Slurm script needs a cluster; --cluster names one")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{trial.model.name or 'model'}-dp{t.dp}-tp{t.tp}-pp{t.pp}"
                  + (f"-cp{t.cp}" if t.cp > 1 else "") + f"-mbs{t.mbs}").strip("-")
    lines = ["#!/bin/bash", f"#SBATCH --job-name={name}", f"#SBATCH --nodes={cluster.nodes}", "#SBATCH --ntasks-per-node=1"]
    gpu = cluster.device.kind == "gpu"
    usual = {"gres": f"gpu:{cluster.procs_per_node}"} if gpu else {}
    usual["cpus-per-task"] = str(cluster.procs_per_node * (CPUS_PER_GPU if gpu else cluster.device.units))
    asked = (f"#SBATCH --{key}={value}" if value else f"#SBATCH --{key}" for key, value in {**usual, **options}.items())
    lines += ["".join(c for c in line if c.isprintable()) for line in asked]
    own = sbatch_lines(preamble) if preamble is not None else []
    lines += [*own, "", "# Usage: sbatch train.slurm --data-path … --tokenizer-type … --train-samples … --lr … --save …",
              "# What is given after the script's name is passed on: data, optimizer and checkpoints are yours to choose.",
              *([] if deepspeed else ["# Without any it is a benchmark on made-up tokens."]), ""]
    if preamble is not None:
        lines += [f"source {shlex.quote(str(preamble.resolve()))}", ""]
    lines += [*shell, *filter(None, [connections(trial)])]
    lines += ["set -euo pipefail", ': "${MEGATRON_DIR:?set it to the folder of your Megatron checkout}"', "", "FLAGS=("]
    lines += ["    " + " ".join(shlex.quote(word) for word in flag) for flag in dialect.flags]
    lines += [")", ""]
    if deepspeed:
        config = json.dumps(deepspeed_config(trial))
        lines += ['cd "$SLURM_SUBMIT_DIR"', f"printf '%s\\n' {shlex.quote(config)} > ds_config.json", ""]
    else:
        lines += [f"[ $# -gt 0 ] || set -- {' '.join(BENCHMARK)}", ""]
    lines += [
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        'export MASTER_ADDR MASTER_PORT="${MASTER_PORT:-6000}"',
        "",
        "# The inner shell gets the flags as arguments, so no value is read twice.",
        "srun bash -c 'exec python -m torch.distributed.run"
        f' --nnodes {cluster.nodes} --nproc_per_node {cluster.procs_per_node} --node_rank "$SLURM_PROCID"'
        ' --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" "$MEGATRON_DIR/pretrain_gpt.py" "$@"'
        "' seatrial \"${FLAGS[@]}\" \"$@\"",
        "",
    ]
    return "\n".join(lines)


def write(files: dict[str, str], folder: Path) -> list[Path]:
    """Write them into `folder`, which is made; what is already there is not overwritten, reasons alone are no file."""
    files = {name: text for name, text in files.items() if any(not line.startswith("#") for line in text.splitlines())}
    for name in files:
        if (folder / name).exists():
            raise BadInput(f"{folder / name}: is already there; name another folder or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        save(folder / name, text)
    return [folder / name for name in files]
