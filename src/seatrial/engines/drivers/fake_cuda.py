"""A GPU that is not there: CUDA tensors of shapes and lifetimes alone, on a machine without one. Torch and nothing else.

    with fake_cuda.installed(): ...             "cuda" can be asked for; what lies there has no values, and takes no memory

Python is told that they lie on cuda:0, torch's C++ that they lie on `meta:0`, for which it needs no driver; what it makes
there in turn is on cuda:0. Small tensors of the CPU stay real, so that meshes, seeds and batches are what they are.
"""
import collections
import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.fsdp._fully_shard import _fsdp_init, _fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only

CUDA, UNDERNEATH = torch.device("cuda", 0), torch.device("meta", 0)
REAL_ELEMENTS = 1 << 16
"""Of a tensor of the CPU: larger ones are weights on their way to the GPU, and have no memory either."""
TOTAL_BYTES = 80 << 30
FLASH, EFFICIENT, MATH, CUDNN = 1, 2, 0, 3
"""torch's numbers of the kernels of attention."""
IS_CUDA = Tensor.is_cuda.__get__  # type: ignore[attr-defined]
aten = torch.ops.aten


class Idle:
    """A stream or an event: does nothing, at once."""

    cuda_stream = stream_id = 0
    device = CUDA

    def __init__(self, *_: Any, **__: Any):
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: self

    def __enter__(self) -> "Idle":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def elapsed_time(self, _: Any) -> float:
        return 0.0


class Properties:
    name, major, minor, total_memory, multi_processor_count, gcnArchName = "fake", 9, 0, TOTAL_BYTES, 132, ""


def _stand_in() -> None:
    """torch.cuda, as far as programs that train ask it."""
    cuda, stream = torch.cuda, Idle()
    for name in ("init", "_lazy_init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "set_stream",
                 "manual_seed", "manual_seed_all"):
        setattr(cuda, name, lambda *_, **__: None)
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": 8, "current_device": 0,
        "current_stream": stream, "default_stream": stream, "stream": stream, "get_device_properties": Properties(),
        "get_device_capability": (9, 0), "get_device_name": "fake", "is_bf16_supported": True,
        "mem_get_info": (TOTAL_BYTES, TOTAL_BYTES), "is_current_stream_capturing": False, "memory_allocated": 0,
        "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0, "memory_stats": collections.defaultdict(int),
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, answer=answer, **__: answer)
    answered = cuda.get_rng_state
    for where in (cuda, cuda.random):
        vars(where).update(get_rng_state=answered, set_rng_state=lambda *_, **__: None)
    cuda.Stream = cuda.Event = Idle  # type: ignore[assignment,misc]
    # C++ makes these, and would say what it was told of the tensor inside.
    DTensor.device = property(lambda self: self._local_tensor.device)  # type: ignore[assignment]
    AsyncCollectiveTensor.device = property(lambda self: self.elem.device)  # type: ignore[assignment]
    Tensor.record_stream = lambda *_: None  # type: ignore[method-assign,assignment]
    torch._utils._get_available_device_type = lambda: "cuda"  # type: ignore[attr-defined]
    torch._C._get_accelerator = lambda *_: torch.device("cuda")  # type: ignore[method-assign]
    FSDPParam.reset_sharded_param = _shard_of(FSDPParam.reset_sharded_param)  # type: ignore[method-assign]
    # The CPU's weights and the GPU's are of two kinds here: they trade places, so that tied ones stay tied.
    torch.__future__.set_swap_module_params_on_conversion(True)
    for where in (_fsdp_init, _fully_shard):
        vars(where).update(_move_states_to_device=_move_states)


def _move_states(parameters: list[Tensor], buffers: list[Tensor], device: torch.device) -> None:
    """What FSDP shards and was left on the CPU, in the same way: by its `.data` it would still say that it is there."""
    for x in (*parameters, *buffers):
        if x.device not in (device, torch.device("meta")) and not isinstance(x, DTensor):
            there = x.detach().to(device)
            torch.utils.swap_tensors(x, nn.Parameter(there, x.requires_grad) if isinstance(x, nn.Parameter) else there)


def _shard_of(plain: Callable[[Any], None]) -> Callable[[Any], None]:
    """FSDP takes what lies on this GPU for weights that are not there yet, and would keep gathering those of before."""

    def reset_sharded_param(self: Any) -> None:
        plain(self)
        local = self.sharded_param._local_tensor
        if local.device == CUDA and self._sharded_param_data.device != CUDA:
            if local.size() != self.padded_sharded_param_size:
                own, dim = local, self.fsdp_placement.dim
                local = own.new_zeros(self.padded_sharded_param_size)
                self.sharded_param._local_tensor = local.narrow(dim, 0, own.size(dim))
            self._sharded_param_data = local.view(-1)

    return reset_sharded_param


class Calls(TorchFunctionMode):
    """What is decided before any operation: which GPU, and which kernel of attention."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.device:
            args, kwargs = tree_map_only((str, torch.device), _numbered, (args, kwargs or {}))
        if func == IS_CUDA:
            return args[0].device == CUDA
        if func is Tensor.cuda:
            return args[0].to(CUDA)
        if func is Tensor.data_ptr and isinstance(args[0], FakeTensor):
            return args[0].untyped_storage()._cdata  # by which programs tell weights apart
        if func is Tensor.to and args[0].device == CUDA and not kwargs.get("copy"):
            device, dtype, _, memory_format = torch._C._nn._parse_to(*args[1:], **kwargs)
            if device == CUDA:  # it is there already; C++ takes it to be elsewhere
                args, kwargs = (args[0], dtype or args[0].dtype), {"memory_format": memory_format or torch.preserve_format}
        if func is F.scaled_dot_product_attention and args[0].device == CUDA:
            return attention(*args, **kwargs)
        return func(*args, **(kwargs or {}))


def _numbered(device: Any) -> Any:
    return CUDA if device in ("cuda", torch.device("cuda")) else device


def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
              is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """The first kernel, in the order that holds, that takes these."""
    narrow = query.dtype in (torch.bfloat16, torch.float16)
    on = torch.backends.cuda
    takes = {FLASH: narrow and attn_mask is None and on.flash_sdp_enabled(), CUDNN: narrow and on.cudnn_sdp_enabled(),
             EFFICIENT: not enable_gqa and on.mem_efficient_sdp_enabled(), MATH: True}
    kernel = next(number for number in torch._C._get_sdp_priority_order() if takes.get(number))
    usual: Any = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    if kernel == FLASH:
        return aten._scaled_dot_product_flash_attention(query, key, value, **usual)[0]
    if kernel == CUDNN:
        return aten._scaled_dot_product_cudnn_attention(query, key, value, attn_mask, True, **usual)[0]
    if kernel == EFFICIENT:
        return aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, True, **usual)[0]
    return F.scaled_dot_product_attention(query, key, value, attn_mask, enable_gqa=enable_gqa, **usual)


def _rms_norm(x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    """One kernel, as on a GPU, which keeps its input and a number a row; a CPU's torch takes it apart and keeps more."""
    rows = x.shape[: x.dim() - len(shape)] + (1,) * len(shape)
    return torch.empty_like(x), x.new_empty(rows, dtype=torch.float32)


class Operations:
    """Each operation on tensors that are not there, from inside a dispatch mode."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)

    def __call__(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.prim.device.default:
            return UNDERNEATH if args[0].device.type == "cuda" else args[0].device
        if kwargs.get("device") == UNDERNEATH:
            kwargs = kwargs | {"device": CUDA}
        if active():
            return func(*args, **kwargs)
        flat = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]
        if not any(isinstance(x, FakeTensor) for x in flat) and not _asks_for_gpu(kwargs) and not _large(args, flat):
            return func(*args, **kwargs)
        if func is aten._local_scalar_dense.default:
            return 1 if not args[0].is_floating_point() else 1.0
        with self.mode:
            args, kwargs = tree_map_only(Tensor, self._without_values, (args, kwargs))
            return func(*args, **kwargs)

    @staticmethod
    def _without_values(x: Tensor) -> Tensor:
        """Of a real one, made anew each time: torch's own way remembers it, and then it cannot trade places."""
        return x if isinstance(x, FakeTensor) else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def active() -> bool:
    """Whether somebody else works out shapes, as DTensor does: nothing of that is there."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def _asks_for_gpu(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and device.type == "cuda"


def _large(args: Any, flat: list[Tensor]) -> bool:
    """Whether a factory is asked for more than the CPU keeps for real."""
    if flat:
        return False
    sizes = next((a for a in args if isinstance(a, list | tuple) and a and all(isinstance(n, int) for n in a)), ())
    return bool(sizes) and torch.Size(sizes).numel() > REAL_ELEMENTS


@contextlib.contextmanager
def installed() -> Iterator[Operations]:
    plain = vars(FakeTensor)["__torch_dispatch__"].__func__

    def answer(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = plain(cls, func, types, args, kwargs or {})
        return UNDERNEATH if func is torch.ops.prim.device.default and found.type == "cuda" else found

    FakeTensor.__torch_dispatch__ = classmethod(answer)  # type: ignore[assignment,method-assign]
    operations = Operations()
    _stand_in()
    kernels = torch.library.Library("aten", "IMPL")
    for place in ("Meta",) if torch.version.cuda else ("CUDA", "Meta"):
        # Not by kernels.impl: it refuses what torch can also take apart, which is what must not happen.
        kernels.m.impl("_fused_rms_norm", place, _rms_norm)  # type: ignore[union-attr]
    swap, memo = torch.utils.swap_tensors, operations.mode.fake_tensor_converter.meta_converter.tensor_memo

    def swap_tensors(one: Tensor, other: Tensor) -> None:
        memo.clear()  # what is remembered of a tensor keeps it from being swapped
        swap(one, other)

    torch.utils.swap_tensors = swap_tensors
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device="cuda") makes it here, and moves it where it is seen
    group = torch._C._group_tensors_by_device_and_dtype
    torch._C._group_tensors_by_device_and_dtype = lambda *args: {  # type: ignore[assignment]
        (CUDA if device == UNDERNEATH else device, dtype): found for (device, dtype), found in group(*args).items()}
    calls, run = Calls(), torch.autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with calls:  # which is off while Tensor.backward is a call itself: what is recomputed is decided alike
            return run(*args, **kwargs)

    torch.autograd._engine_run_backward = run_backward
    with warnings.catch_warnings(), calls:
        warnings.filterwarnings("ignore", message=".*data pointer of FakeTensor")
        yield operations
