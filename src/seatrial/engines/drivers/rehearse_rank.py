"""One rank of somebody else's program without its peers: rehearse_rank.py REPORT fake|real fake-peers|peers SCRIPT ARGUMENTS …

    RANK=17 WORLD_SIZE=64 python rehearse_rank.py report.json fake fake-peers train.py --layers 8

The script runs as it is. Its process groups are torch's `fake` ones, of any size; `fake`: its GPU is one too. What comes out:
the bytes that it holds over time, by part, and each collective with its group and its size, in order.
"""
import contextlib
import importlib.util
import json
import os
import runpy
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten


def _ours(path: str) -> Any:
    """A file of seatrial that needs torch alone: the engine's Python has no seatrial."""
    file = Path(__file__).resolve().parents[2] / path
    spec = importlib.util.spec_from_file_location(f"seatrial_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake_cuda = _ours("engines/drivers/fake_cuda.py")
PARTS = ("weights", "gradients", "optimizer", "activations", "temporary")
NAMES = {"allreduce": "all_reduce", "all_reduce": "all_reduce", "allgather": "all_gather", "all_gather": "all_gather",
         "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all", "all_to_all": "all_to_all",
         "shard_dim_alltoall": "all_to_all", "broadcast": "broadcast", "scatter": "scatter", "gather": "gather",
         "reduce": "reduce", "send": "send", "recv": "recv"}  # fmt: skip
"""How one of torch's operations begins -> the collective that it is; the longer names first."""
BUCKETS = ("_ddp_init_helper", "_pre_forward")
"""Where DDP makes its buckets, and makes them anew once it knows the order of the gradients."""
MOST_SAMPLES = 200
WATCHED = 3
"""What came before the first step, that step, and the one whose bytes count; later ones are only timed."""


def _flash_backward(grad: Tensor, query: Tensor, key: Tensor, *_: Any) -> int:
    """Its sums of the queries' gradients in fp32, and a number a row; keys' and values' of each query head where they share."""
    batch, heads, seq, size = query.shape
    rows, shares = batch * heads * (-(-seq // 128) * 128), heads != key.shape[1]
    return rows * (-(-size // 32) * 32 + 1) * 4 + shares * 2 * batch * heads * key.shape[2] * size * query.element_size()


INSIDE = {"_scaled_dot_product_flash_attention_backward": _flash_backward,
          "_scaled_dot_product_cudnn_attention_backward": _flash_backward}
"""Bytes that a GPU's kernel takes for itself while it runs."""
LiveStorages: Any = _ours("engine/watch/tracker.py").LiveStorages
Recorder: Any = _ours("rehearse/recorder.py").Recorder


TALK = ("c10d", "_c10d_functional", "_dtensor")
"""Where torch keeps its collectives."""


class Watch(LiveStorages):  # type: ignore[misc]
    """Counts what is alive, and writes down who talks to whom; told of forward, backward and update by hooks."""

    def __init__(self, device_type: str, operations: Any = None):
        """`operations`: how one is carried out where the GPU is not there."""
        super().__init__(parts=PARTS, device_type=device_type)
        self.recorder, self.operations = Recorder(device_type if operations is None else "cpu"), operations
        self.counts, self.updated, self.phase, self.depth = True, False, "start", 0
        self.parameters: set[int] = set()
        self.groups: dict[str, list[int]] = {}
        self.under_way: dict[int, int] = {}
        self.steps: list[dict[str, Any]] = []
        self.samples: list[tuple[int, ...]] = []
        self.attention = ""

    # operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(t, "__tensor_flatten__") for t in types):
            return NotImplemented  # of a DTensor: what it does to its own part comes by next
        if fake_cuda.active():
            return func(*args, **(kwargs or {})) if self.operations is None else self.operations(func, args, kwargs or {})
        space, _, name = func._schema.name.partition("::")
        if self.under_way and space not in TALK:
            self._touched(args)
        if self.operations is None:
            out = func(*args, **(kwargs or {}))
        else:
            inside = INSIDE[name](*args) if name in INSIDE else 0
            if inside:
                self._change("temporary", inside)
            out = self.operations(func, args, kwargs or {})
            self.live["temporary"] -= inside
        if "dot_product" in name and not name.endswith("backward"):
            self.attention = name
        if self.counts:
            self.see(out)
        if space in TALK:
            self._said(func, name, args, kwargs or {}, out)
        return out

    def _change(self, part: str, size: int) -> None:
        super()._change(part, size)
        self.samples.append(tuple(self.live.values()))

    def _part(self, value: Tensor) -> str:
        """By who makes it: FSDP gathers weights and reduces gradients, DDP has buckets of them, an optimizer's step makes its
        state."""
        frame: FrameType | None = sys._getframe(2)
        for _ in range(12):
            if frame is None:
                break
            if "_fully_shard" in frame.f_code.co_filename:
                return "gradients" if "reduce" in frame.f_code.co_name else "weights"
            if frame.f_code.co_name in BUCKETS and frame.f_globals.get("__name__") == "torch.nn.parallel.distributed":
                return "gradients"
            frame = frame.f_back
        if self.phase == "optimizer":
            return "optimizer"
        return "activations" if self.phase == "forward" or self.depth else "temporary"

    # collectives

    def _said(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        if name == "wait_tensor":
            self._touched(args)
        kind = next((kind for start, kind in NAMES.items() if name.lstrip("_").startswith(start)), None)
        if kind is None:
            return
        asked = {a.name: args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
                 for i, a in enumerate(func._schema.arguments)}
        group = asked.get("process_group", asked.get("group_name"))
        if isinstance(group, torch.ScriptObject):
            group = dist.ProcessGroup.unbox(group)
        elif isinstance(group, str):
            group = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
        ranks = dist.get_process_group_ranks(group)
        if len(ranks) == 1:
            return
        label = ",".join(map(str, ranks))
        self.groups[label] = ranks
        number = self.recorder.issue(kind, label, max(_bytes(x) for x in (*args, out)))
        for x in _tensors((args, out)):
            self.under_way[x.untyped_storage()._cdata] = number
        if asked.get("async_op") is False and self._on_its_main_stream():
            self._waited(number)

    def _on_its_main_stream(self) -> bool:
        return self.device_type != "cuda" or torch.cuda.current_stream() == torch.cuda.default_stream()

    def _touched(self, args: Any) -> None:
        """Whoever uses what a collective makes waits for it."""
        for x in _tensors(args):
            if (number := self.under_way.get(x.untyped_storage()._cdata)) is not None:
                self._waited(number)

    def _waited(self, number: int) -> None:
        self.recorder.wait(number)
        self.under_way = {key: n for key, n in self.under_way.items() if n != number}

    # phases

    def forward(self, module: nn.Module, *_: Any) -> None:
        self.depth += 1
        if self.phase in ("forward", "backward"):  # a module of a module, or recomputed
            return
        if self.phase == "start" or self.updated:
            self.close()
        for parameter in module.parameters():
            self.tag(_local(parameter), "weights")
            if parameter.requires_grad and id(parameter) not in self.parameters:
                self.parameters.add(id(parameter))
                parameter.register_post_accumulate_grad_hook(lambda p: self.tag(_local(p.grad), "gradients"))
        self._enter("forward")

    def forwarded(self, *_: Any) -> None:
        self.depth = max(0, self.depth - 1)

    def update(self, *_: Any) -> None:
        self.updated = True
        self._enter("optimizer")

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.recorder.mark(phase)

    def hook(self) -> None:
        plain = torch.autograd._engine_run_backward
        # The script may look at its peak and forget it, in the middle of what is a step here.
        self.forget, torch.cuda.reset_peak_memory_stats = torch.cuda.reset_peak_memory_stats, lambda *_, **__: None

        def backward(*args: Any, **kwargs: Any) -> Any:
            self._enter("backward")
            try:
                return plain(*args, **kwargs)
            finally:
                self.depth = 0
                self._enter("reduce")

        torch.autograd._engine_run_backward = backward
        nn.modules.module.register_module_forward_pre_hook(self.forward)
        nn.modules.module.register_module_forward_hook(self.forwarded, always_call=True)
        register_optimizer_step_pre_hook(self.update)
        register_optimizer_step_post_hook(lambda *_: self._enter("end"))

    def close(self) -> None:
        """The step that was, or all that came before the first."""
        allocated = reserved = None
        if self.device_type == "cuda" and self.operations is None:
            stats = torch.cuda.memory_stats()
            allocated, reserved = stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]
            self.forget()
        self.recorder.mark("end")
        self.steps.append({
            "peak_bytes": self.peak_bytes, "at_peak_bytes": self.at_peak, "parts_bytes": self.peaks,
            "allocated_bytes": allocated, "reserved_bytes": reserved, "bytes_over_time": _thinned(self.samples),
            "moments": [vars(moment) for moment in self.recorder.take()]})  # fmt: skip
        self.updated, self.samples = False, []
        self.forget_peaks()
        self.counts = len(self.steps) < WATCHED

    def report(self) -> dict[str, Any]:
        return {"torch": torch.__version__, "parts": PARTS, "groups": self.groups, "attention": self.attention,
                "start": self.steps[0], "steps": self.steps[1:]}


def _thinned(samples: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The fullest moment of each of so many stretches of the step."""
    each = max(1, -(-len(samples) // MOST_SAMPLES))
    return [max(samples[i : i + each], key=sum) for i in range(0, len(samples), each)]


def _local(x: Any) -> Tensor:
    return getattr(x, "_local_tensor", x)


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_flatten(tree)[0] if isinstance(x, Tensor)]


def _bytes(tree: Any) -> int:
    return sum(x.numel() * x.element_size() for x in _tensors(tree))


def fake_peers() -> None:
    """Whatever backend is asked for, collectives return at once."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    begin, group = dist.init_process_group, dist.new_group

    def init_process_group(*_: Any, **__: Any) -> None:
        begin("fake", store=FakeStore(), rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

    def new_group(ranks: Any = None, *_: Any, **more: Any) -> Any:
        return group(ranks, group_desc=more.get("group_desc"))

    for module in (dist, dist.distributed_c10d):
        module.init_process_group, module.new_group = init_process_group, new_group  # type: ignore[attr-defined]
    wrap = nn.parallel.DistributedDataParallel.__init__

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        wrap(self, *args, **kwargs)
        self.register_comm_hook(self.process_group, _reduced)

    nn.parallel.DistributedDataParallel.__init__ = wrapped  # type: ignore[method-assign]
    # Nobody else has a model to compare with.
    nn.parallel.distributed._verify_param_shape_across_processes = lambda *_: True


def _reduced(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's own all-reduce. It takes what its work's future holds for the bucket, and that of a fake group holds nothing."""
    dist.all_reduce(bucket.buffer(), group=group)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def leave(code: int = 0) -> None:
    raise SystemExit(code)


def main() -> None:
    report, tensors, peers, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    os._exit = leave  # type: ignore[assignment]
    if peers == "fake-peers":
        fake_peers()
    with contextlib.ExitStack() as stack:
        operations = None
        if tensors == "fake":
            operations = stack.enter_context(fake_cuda.installed())
        watch = Watch("cuda" if tensors == "fake" or tensors == "cuda" else "cpu", operations)
        watch.hook()
        with watch:
            try:
                runpy.run_path(script, run_name="__main__")
            except SystemExit as left:
                if left.code:
                    raise
            watch.close()
    Path(report).write_text(json.dumps(watch.report()))


if __name__ == "__main__":
    main()
