"""Floating-point operations of one iteration, by named formula: a TFLOPs figure means nothing without its formula's name.

    megatron-2022-old   2 f x parameters x tokens, counting parameters as they stood on the last rank times TP x PP
    sc21                equation 3 of Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (SC21),
                        24 f B s l h^2 (1 + s/6h + V/16lh); f is 4 with full recompute, 3 without; 32 for 24 with a GLU;
                        with experts or latent attention its terms by the matrices that a token passes
    model               what the mathematics needs: 3 x the forward pass, no recompute, true vocabulary; attention whole, of
                        windows as large a part as they leave of the causal mask; layers and logits of multi-token prediction
    hardware            `model` plus what the recompute mode runs again
    parameters          the rule of thumb: 2 f x all parameters x tokens
    palm                the same and the attention (Chowdhery et al. 2022, appendix B)

The last two are habits of tables that people keep; no command of ours counts by them.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from seatrial.arith import experts
from seatrial.arith.layer import attention_matrices, matrices
from seatrial.arith.parameters import parameters
from seatrial.errors import BadInput
from seatrial.fields import nearest
from seatrial.spec import Model, round_up

Formula = Literal["megatron-2022-old", "sc21", "model", "hardware"]
FORMULA: Formula = "sc21"
"""Of TFLOPs wherever nobody names another, so that one run has one number."""
FORMULAS: tuple[Formula, ...] = ("megatron-2022-old", "sc21", "model", "hardware")
TIE = 0.01
"""Under this nobody can tell two rates apart: repeats of one configuration mostly differ by 0.4 %, some by much more."""


def attention_core_forward(model: Model) -> float:
    """Scores and weighted sum of one layer for one sequence, nothing saved by the causal mask."""
    query, value = model.head_size + model.rope_dim, model.value_dim or model.head_size
    return 2.0 * model.seq**2 * model.heads * (query + value)


@lru_cache(maxsize=1024)
def _forward(model: Model, first: int, count: int) -> tuple[float, float]:
    """Of `count` layers for one sequence the matrices, where a token pays for its own experts and for the router, and the
    attention, of which a window leaves a part."""
    these = range(first, first + count)
    mixed = sum(map(model.has_experts, these)) if model.mixture else 0
    passed = (count - mixed) * matrices(model)
    if mixed:
        passed += mixed * (attention_matrices(model) + experts.passed(model))
    parts = [(model.window(number) or model.seq) / model.seq for number in these] if model.has_windows else []
    whole = sum(part * (2 - part) for part in parts) if parts else float(count)
    return 2.0 * model.seq * passed, whole * attention_core_forward(model)


def layers_forward(model: Model) -> float:
    """All layers forward for one sequence."""
    return sum(_forward(model, 0, model.layers))


def _further_forward(model: Model, vocab: int) -> float:
    """Multi-token prediction: of each further token a layer, what joins it with that token's embedding, and its logits."""
    if not model.mtp:
        return 0.0
    joined = 2.0 * model.seq * 2 * model.hidden**2
    return sum(_forward(model, model.layers, model.mtp)) + model.mtp * (joined + _head_forward(model, vocab))


def head_forward(model: Model) -> float:
    """The logits of one sequence."""
    return _head_forward(model, model.vocab)


def _head_forward(model: Model, vocab: int) -> float:
    return 2.0 * model.seq * model.hidden * vocab


def _passes(recompute: str) -> int:
    """Forward and twice backward, and the forward pass once more when everything is recomputed."""
    return 4 if recompute == "full" else 3


def _old(model: Model, recompute: str, tp: int, pp: int) -> float:
    h = model.hidden
    counted = model.layers * (12 * h * h + 7 * h + 6 * h * tp) + 2 * h * tp * pp
    return 2.0 * _passes(recompute) * counted * model.seq


def _sc21(model: Model, recompute: str, v: int) -> float:
    """`v`: the vocabulary as it is stored."""
    h, s, l = model.hidden, model.seq, model.layers
    if model.mixture or model.is_latent:
        # The equation's terms with the matrices that a token passes, and no fixed ratio between them.
        layers = _forward(model, 0, l)[0] + l * attention_core_forward(model)
        return _passes(recompute) * layers + 6.0 * s * h * v
    return (32 if model.gated else 24) * _passes(recompute) * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h))


def per_parameter(parameters: float, *, seq: int, recompute: str) -> float:
    """One sequence by the rule of thumb: 6 operations per parameter and token, 8 with full recompute."""
    return 2.0 * _passes(recompute) * parameters * seq


def _model(model: Model, vocab: int) -> float:
    return 3 * (layers_forward(model) + _head_forward(model, vocab) + _further_forward(model, vocab))


def _parameters(model: Model, vocab: int) -> int:
    counted = parameters(model)
    return counted.total + (vocab - model.vocab) * (counted.embedding + counted.head) // model.vocab


def _recomputed(model: Model, recompute: str) -> float:
    if recompute == "full":
        return layers_forward(model)
    return _forward(model, 0, model.layers)[1] if recompute == "selective" else 0.0


def flops(formula: str, model: Model, *, samples: float, recompute: str = "none", tp: int = 1, pp: int = 1,
          vocab: int | None = None) -> float:
    """Operations for `samples` sequences; with `vocab` tokens in the vocabulary, where they are not the model's."""
    tokens = model.vocab if vocab is None else vocab
    if formula == "megatron-2022-old":
        each = _old(model, recompute, tp, pp)
    elif formula == "sc21":
        each = _sc21(model, recompute, model.padded_vocab(tp) if vocab is None else round_up(vocab, 128 * tp))
    elif formula == "model":
        each = _model(model, tokens)
    elif formula == "hardware":
        each = _model(model, tokens) + _recomputed(model, recompute)
    elif formula in ("parameters", "palm"):
        attention = 2.0 * model.layers * model.hidden * model.seq if formula == "palm" else 0.0
        each = per_parameter(_parameters(model, tokens) + attention, seq=model.seq, recompute=recompute)
    else:
        raise BadInput(f"formula {formula!r} is unknown; {nearest(formula, FORMULAS)}")
    return samples * each


def tflops(formula: str, model: Model, *, samples: float, sec_per_it: float, processes: int, recompute: str = "none",
           tp: int = 1, pp: int = 1) -> float:
    """TFLOPs per process."""
    return flops(formula, model, samples=samples, recompute=recompute, tp=tp, pp=pp) / (sec_per_it * processes * 1e12)


# ---- what a time per iteration means: TFLOPs per process and node, aggregate, samples and tokens per second, MFU and HFU


@dataclass(frozen=True, kw_only=True)
class Rates:
    formula: str
    tflops: float
    """Per process."""
    tflops_per_node: float
    pflops: float
    """Of all processes together, 1 PFLOPs = 1000 TFLOPs."""
    samples_per_s: float
    tokens_per_s: float
    mfu: float | None
    """`model` FLOPs against the device's peak, where a peak is known."""
    hfu: float | None
    """The same with what is recomputed."""


def rates(formula: str, model: Model, *, samples: float, sec_per_it: float, processes: int, procs_per_node: int = 1,
          recompute: str = "none", tp: int = 1, pp: int = 1, peak_tflops: float | None = None) -> Rates:
    if not sec_per_it > 0 or processes < 1:
        raise BadInput(f"{sec_per_it} s per iteration on {processes} processes: both must be above 0")

    def per_process(name: str) -> float:
        return flops(name, model, samples=samples, recompute=recompute, tp=tp, pp=pp) / (sec_per_it * processes * 1e12)

    each = per_process(formula)
    return Rates(
        formula=formula, tflops=each, tflops_per_node=each * procs_per_node, pflops=each * processes / 1000,
        samples_per_s=samples / sec_per_it, tokens_per_s=samples * model.seq / sec_per_it,
        mfu=None if peak_tflops is None else per_process("model") / peak_tflops,
        hfu=None if peak_tflops is None else per_process("hardware") / peak_tflops,
    )


def aggregate_pflops(tflops: float, processes: int, *, divisor: float = 1000.0) -> float:
    """PetaFLOPs of all processes; the hand-kept tables divide by 1024, which is 2.4 % low."""
    return tflops * processes / divisor
