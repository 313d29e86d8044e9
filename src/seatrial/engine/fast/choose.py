"""Which kernels a run has: tried on every rank's device, decided on rank 0, the same on all ranks.

    ops, config, notes = ops_for(trial, mesh)         before the engine is built; every rank calls it
    engine = Engine(trial, recipe, mesh, ops=ops)

    build(config, trial, device)                      the ops of a given config, for a benchmark or a test

Ranks that computed with different kernels would wait for each other, and weights that several hold would drift apart: so
a rank that cannot do what rank 0 chose ends the run, and says why.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from seatrial.engine.core.attention import Positions
from seatrial.engine.core.comm import broadcast_json
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.ops import Gemm, Ops, PlainGemm
from seatrial.engine.core.optim import MOMENTS, TYPES
from seatrial.engine.fast import attention, fp8, grouped, tuned_gemm
from seatrial.engine.fast.block import FusedBlock
from seatrial.engine.fast.config import KernelConfig, fusable
from seatrial.engine.fast.experts import FastExperts
from seatrial.engine.fast.grouped import FastGrouped, GroupedShape
from seatrial.engine.fast.kernels import Kernels, used, verified
from seatrial.engine.fast.kernels.scaling import Scales
from seatrial.engine.fast.ops import FastOps, Fp32Gemm, add_positions, cross_entropy, fp32_gemm_works, layer_norm, rms_norm
from seatrial.engine.fast.product import Head8, Product, Product8
from seatrial.errors import SeatrialError
from seatrial.spec import Trial, context_split

Notes = dict[str, str]
"""What was chosen on a device, and why."""


class CannotRun(SeatrialError):
    """This rank has not the kernels that rank 0 chose."""


def ops_for(trial: Trial, mesh: Mesh, wanted: KernelConfig | None = None) -> tuple[FastOps, KernelConfig, Notes]:
    """`wanted`: instead of what suits the device; what does not work there is left out of it."""
    own, notes = choose(trial, mesh.device, wanted, mesh.rank)
    config = agree(own, notes, trial, mesh)
    return build(config, trial, mesh.device), config, notes


def choose(trial: Trial, device: torch.device, wanted: KernelConfig | None = None, rank: int = 0) -> tuple[KernelConfig, Notes]:
    """What this rank's device would run: kernels that were held against plain torch, the fastest attention. GEMMs are
    tuned on rank 0 alone."""
    t, m = trial.topology, trial.model
    if t.precision == "fp8":
        fp8.check(device, m, t, compiled=trial.execution.compile)
    config = wanted or KernelConfig.of(device, t.precision, trial.execution)
    dtype, notes = TYPES[t.precision], Notes()
    names = used(config.triton, m, eight=t.precision == "fp8", experts=config.experts)
    kernels = names, device, dtype, m.hidden, MOMENTS[trial.execution.moments]
    with verified.compiling(*kernels):
        if config.fp32_gradient_gemm and not fp32_gemm_works(device, dtype):
            config = replace(config, fp32_gradient_gemm=False)
            notes["gemm"] = "weight gradients are rounded to 16 bits before they are added up: this torch has no other"
        if config.attention == "measured":
            attention.prepare(**_attention_shape(trial, device))
    if names:
        works, tried = verified.usable(*kernels)
        config = replace(config, triton=works)
        notes.update({f"kernel {name}": note for name, note in tried.items()})
    if config.attention == "measured":
        best, took_s = attention.fastest(**_attention_shape(trial, device))
        notes["attention"] = ", ".join(f"{name} {1e3 * s:.2f} ms" for name, s in took_s.items()) or "nothing to choose"
        config = replace(config, attention=best or "default")
    library = tuned_gemm.cublaslt() if config.tuned_gemm and device.type == "cuda" else None
    config = replace(config, tuned_gemm=library is not None)
    if library is not None and rank == 0:
        cache = tuned_gemm.Cache.of(device, library.version)
        found, notes["tuned gemm"] = tuned_gemm.autotune(tuned_gemm.gemm_shapes(trial, config), device, _plain_gemm(config),
                                                         library, cache)
        config = replace(config, gemm_algorithms=found, cublaslt_version=library.version)
    shape = expert_gemms(trial, config)
    if shape is not None and device.type == "cuda" and rank == 0:
        choices, notes["experts' gemm"] = grouped.autotune(shape, device, Kernels.of(config.triton), _plain_gemm(config))
        config = replace(config, grouped_gemm=choices)
    return config, notes


def expert_gemms(trial: Trial, config: KernelConfig) -> GroupedShape | None:
    """Those of one layer on one rank at even load, where there are experts and they are to be fast."""
    t, m, dtype = trial.topology, trial.model, TYPES[trial.topology.precision]
    if m.experts is None or m.chosen is None or m.expert_inner is None or not config.experts:
        return None
    width = m.expert_inner // t.expert_tp
    tokens = t.mbs * m.seq // t.cp // t.tp * t.expert_tp * t.ep
    narrow = config.narrow_gradients and trial.microbatches == t.data_ranks == t.pp == 1 and t.edp == 1
    return GroupedShape(rows=max(1, tokens * m.chosen // t.ep), experts=m.experts // t.ep, hidden=m.hidden,
                        up=(1 + m.gated) * width, down=width, dtype=dtype, gradients=dtype if narrow else torch.float32)


def _plain_gemm(config: KernelConfig) -> Gemm:
    return Fp32Gemm() if config.fp32_gradient_gemm else PlainGemm()


def _attention_shape(trial: Trial, device: torch.device) -> attention.Shape:
    """With context parallelism that of a rank's own keys, which is as long as that with each other rank's."""
    t, m = trial.topology, trial.model
    shared, ring = context_split(m, t)
    heads, dtype, seq = m.heads // t.tp // shared, TYPES[t.precision], m.seq // ring
    bias = Positions(replace(m, seq=seq), first_head=0, heads=heads, device=device, dtype=dtype).bias
    kv_heads = -(-m.kv // t.tp // shared)
    return {"batch": t.mbs, "seq": seq, "heads": heads, "kv_heads": kv_heads, "head_dim": m.head_size, "dtype": dtype,
            "bias": bias, "device": device}


def agree(own: KernelConfig, notes: Notes, trial: Trial, mesh: Mesh) -> KernelConfig:
    """Rank 0's config, where this rank can run it."""
    config = KernelConfig.of_plain(broadcast_json(own.plain(), mesh.device))
    why = [f"{name} ({notes.get(f'kernel {name}', 'not tried')})" for name in config.triton if name not in own.triton]
    if config.fp32_gradient_gemm and not own.fp32_gradient_gemm:
        why.append("GEMMs of 16-bit operands with fp32 results")
    if config.attention != own.attention and not attention.works(config.attention, **_attention_shape(trial, mesh.device)):
        why.append(f"{config.attention} attention")
    if mesh.rank and (refused := tuned_gemm.refusal(config, trial, mesh.device, _plain_gemm(config), tuned_gemm.cublaslt())):
        why.append(refused)
    shape = expert_gemms(trial, config)
    if mesh.rank and shape is not None and config.grouped_gemm:
        refused = grouped.refusal(config.grouped_gemm, shape, mesh.device, Kernels.of(config.triton), _plain_gemm(config))
        why += [refused] if refused else []
    if why:
        raise CannotRun(f"rank {mesh.rank} cannot run what rank 0 chose: {'; '.join(why)}. All ranks need the same devices and "
                        f"the same versions of torch ({torch.__version__} here) and Triton")
    return config


def build(config: KernelConfig, trial: Trial, device: torch.device, *, kernels: Kernels | None = None,
          gemm: Gemm | None = None, scaled_gemm: fp8.ScaledGemm | None = None) -> FastOps:
    """`kernels` and the GEMMs: in place of those that the config names."""
    t, m = trial.topology, trial.model
    own, library = kernels or Kernels.of(config.triton), tuned_gemm.cublaslt() if config.gemm_algorithms else None
    if gemm is None and library is not None:
        shapes = tuned_gemm.gemm_shapes(trial, config)
        gemm = tuned_gemm.TunedGemm(config.gemm_algorithms, shapes, device, _plain_gemm(config), library)
        library.workspace(device, torch.cuda.current_stream(device).cuda_stream)  # not in the middle of a step
        scaled_gemm = scaled_gemm or gemm.scaled
    gemm = gemm or _plain_gemm(config)
    chosen: dict[str, Any] = {}
    if config.fused:
        chosen["add_rows"] = own.add_rows
        chosen.update(layer_norm=partial(layer_norm, own), rms_norm=partial(rms_norm, own), add_positions=add_positions)
    if config.fused and fusable(m):
        product: Callable[..., Product] = partial(Product, kernels=own, gemm=gemm)
        if t.precision == "fp8":
            fp8.check_shape(m, t, compiled=trial.execution.compile)
            scales = Scales(device)
            chosen.update(scales=scales, step_done=scales.update, precisions=(*Ops.precisions, "fp8"))
            how: dict[str, Any] = {"kernels": own, "gemm": gemm, "scales": scales, "fast": config.fast_accumulation,
                                   "scaled_gemm": scaled_gemm or fp8.scaled_gemm}
            product = partial(Product8, **how)
            if config.fp8_head and fp8.head_fits(m, t, config.logits_chunk(trial)):
                chosen["head"] = Head8(**how)
        chosen["block"] = partial(FusedBlock, product=product, kernels=own)
    if config.experts and m.experts is not None:
        chosen["grouped"] = FastGrouped(config.grouped_gemm, own, _plain_gemm(config))
        chosen["experts"] = FastExperts(m.experts, own, chosen["grouped"])
    if config.logits_in_16_bits:
        chosen["cross_entropy"] = partial(cross_entropy, own)
    if config.one_pass_update:
        splits = config.split_masters and TYPES[t.precision] == torch.bfloat16 and trial.execution.optimizer == "adamw-fused"
        chosen.update(update=own, squared_norm=own.squared, split_masters=splits)
    # Few tokens' logits leave a large device idle in the GEMM back to the hidden size.
    return FastOps(**chosen, kernels=own, gemm=gemm, attention=attention.BACKENDS.get(config.attention),
                   narrow_gradients=config.narrow_gradients, release_gradients=config.release_gradients,
                   logits_tokens=config.logits_tokens(m.padded_vocab(t.tp) // t.tp))
