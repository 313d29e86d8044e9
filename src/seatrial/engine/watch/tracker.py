"""An independent count of live tensor storages by part, for rehearsals and tests: an ordinary run has none of it.

    with LiveStorages(tagged={"weights": [...], "gradients": [...], "optimizer": [...]}, logits_cols=1024) as live:
        one_step()
    live.peak_bytes, live.at_peak, live.peaks   at the fullest moment, by part then, and each part's own peak
    with tracker(engine) as live: engine.step(1, first_sample=0, batches=batches)

The tracker knows nothing of the engine: it sees every tensor that an operation returns, counts its storage once, and takes it
off when the storage dies. What was there before is told to it by tag; a storage first seen with `logits_cols` columns is logits
and any other is activations. While it is active torch's `UntypedStorage.resize_` is a function of ours.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

if TYPE_CHECKING:
    from seatrial.engine.core.step import Engine

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


class LiveStorages(TorchDispatchMode):
    """Counts the bytes of storages that are alive, by part, while it is active."""

    def __init__(self, *, tagged: Mapping[str, Iterable[Tensor]] | None = None, logits_cols: int | None = None,
                 gradient_sizes: Collection[int] = (), gradient_types: Collection[torch.dtype] = (torch.float32,),
                 in_loss: Callable[[], bool] = lambda: True, device_type: str = "cpu", parts: Collection[str] = PARTS):
        """`gradient_sizes`: flat tensors of so many elements, of one of `gradient_types`, are gradients, which come and go
        within a step.

        `in_loss`: whether the loss is being computed; elsewhere a tensor as wide as the logits is something else.
        """
        super().__init__()
        self.in_loss = in_loss
        self.logits_cols, self.device_type = logits_cols, device_type
        self.gradient_sizes, self.gradient_types = frozenset(gradient_sizes), frozenset(gradient_types)
        self.live: dict[str, int] = dict.fromkeys(parts, 0)
        self.at_peak: dict[str, int] = dict(self.live)
        self.peaks: dict[str, int] = dict(self.live)
        self.peak_bytes = 0
        self._known: dict[int, tuple[weakref.ref[Any], str, int]] = {}
        for part, tensors in (tagged or {}).items():
            for tensor in tensors:
                self.tag(tensor, part)

    def tag(self, tensor: Tensor, part: str) -> None:
        """Counts a storage that was there before, or moves one to another part."""
        key = tensor.untyped_storage()._cdata
        if key in self._known:
            self._forget(key)
        self._add(tensor.untyped_storage(), part)

    def by_part(self) -> dict[str, int]:
        """Bytes of each part's own peak."""
        return dict(self.peaks)

    def forget_peaks(self) -> None:
        """As if what is there now were all that ever was."""
        self.peak_bytes, self.at_peak, self.peaks = sum(self.live.values()), dict(self.live), dict(self.live)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.see(out)
        return out

    def see(self, out: Any) -> None:
        """What an operation handed back."""
        for value in tree_flatten(out)[0]:
            if isinstance(value, Tensor) and value.device.type == self.device_type:
                storage = value.untyped_storage()
                if storage._cdata not in self._known:
                    self._add(storage, self._part(value))

    def _part(self, value: Tensor) -> str:
        if value.dim() == 1 and value.numel() in self.gradient_sizes and value.dtype in self.gradient_types:
            return "gradients"
        is_logits = value.dim() > 1 and value.shape[-1] == self.logits_cols and self.in_loss()
        return "logits" if is_logits else "activations"

    def _add(self, storage: torch.UntypedStorage, part: str) -> None:
        key, size = storage._cdata, storage.nbytes()
        # A storage's Python object lives as long as the storage does, so its death is the storage's.
        self._known[key] = (weakref.ref(storage, lambda _: self._forget(key)), part, size)
        self._change(part, size)

    def _forget(self, key: int) -> None:
        _, part, size = self._known.pop(key)
        self.live[part] -= size

    def _change(self, part: str, size: int) -> None:
        self.live[part] += size
        self.peaks[part] = max(self.peaks[part], self.live[part])
        total = sum(self.live.values())
        if total > self.peak_bytes:
            self.peak_bytes, self.at_peak = total, dict(self.live)

    def __enter__(self) -> LiveStorages:
        # Sharded weights and discarded activations come and go by resizing their storage, which is no operation.
        plain = self._plain_resize = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = plain(storage, size)
            self._resized(storage)
            return result

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._plain_resize  # type: ignore[method-assign]
        super().__exit__(*error)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._known:
            ref, part, size = self._known[storage._cdata]
            self._known[storage._cdata] = (ref, part, storage.nbytes())
            self._change(part, storage.nbytes() - size)


def tracker(engine: Engine) -> LiveStorages:
    """A count of live storages that knows what the buckets hold."""
    buckets = engine.buckets
    model, tp = engine.trial.model, engine.trial.topology.tp
    tagged = {
        "weights": [t for b in buckets for t in (b.flat, b.part)],
        "optimizer": [t for b in buckets for t in (b.exp_avg, b.exp_avg_sq, *b.masters.beside)],
        "gradients": [t for b in buckets for t in (b.grad, b.grad_shard, b.on_the_way.between) if t is not None],
        "buffers": engine.shared.positions.tensors(),
    }  # fmt: skip
    flat_sizes = {b.layout.size for b in buckets}
    types = {torch.float32, *(b.flat.dtype for b in buckets if b.ops.narrow_gradients)}
    return LiveStorages(tagged=tagged, logits_cols=model.padded_vocab(tp) // tp, device_type=engine.mesh.device.type,
                        gradient_sizes=flat_sizes, gradient_types=types, in_loss=lambda: engine.timers.runs("loss"))
