"""A stand-in `torch.cuda` whose device is the CPU, for programs that know no other; the program's files stay as they are.

    cpu_cuda.install()              before the program is imported

"cuda" and torch.cuda.current_device() become the CPU; streams and events do nothing; questions about memory are answered from
the process's own.
"""
import os
import resource
import time
from collections import defaultdict

import torch

CPU = torch.device("cpu")
FACTORIES = ("empty zeros ones full tensor rand randn randint arange eye linspace as_tensor empty_like zeros_like ones_like "
             "full_like rand_like randn_like randperm empty_strided scalar_tensor").split()
TYPES = {"FloatTensor": torch.float32, "HalfTensor": torch.float16, "BFloat16Tensor": torch.bfloat16,
         "LongTensor": torch.int64, "IntTensor": torch.int32, "ByteTensor": torch.uint8, "DoubleTensor": torch.float64}


def is_cuda(device):
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.split(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def nothing():
    """A function object for each name: dynamo knows torch's functions by object."""
    return lambda *_, **__: None


def made_here(factory):
    def make(*args, **more):
        if is_cuda(more.get("device")):
            more["device"] = CPU
        if more.get("pin_memory"):
            more["pin_memory"] = False
        return factory(*args, **more)

    return make


def moved_here(to):
    def move(self, *args, **more):
        if args and is_cuda(args[0]):
            args = (CPU, *args[1:])
        if is_cuda(more.get("device")):
            more["device"] = CPU
        return to(self, *args, **more)

    return move


class Stream:
    cuda_stream = stream_id = 0
    device = CPU

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, *_):
        pass

    wait_event = synchronize = wait_stream

    def record_event(self, event=None):
        return event or Event()

    def query(self):
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Event:
    def __init__(self, *_, **__):
        self.at = 0.0

    def record(self, *_):
        self.at = time.perf_counter()

    def wait(self, *_):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


class Properties:
    name, major, minor, total_memory, multi_processor_count, gcnArchName = "cpu", 9, 0, 24 << 30, 2, ""

    def __getattr__(self, name):
        return 0


class Kind(type):
    """torch.cuda.FloatTensor and its like: a type that makes, and is asked for, tensors of the CPU."""

    def __instancecheck__(cls, x):
        return isinstance(x, torch.Tensor) and x.dtype == cls.dtype

    def __call__(cls, x=0, *more):
        return torch.tensor(x, dtype=cls.dtype) if isinstance(x, list | tuple) else torch.empty((x, *more), dtype=cls.dtype)


class Generators:
    def __getitem__(self, _):
        return torch.default_generator

    def __len__(self):
        return 1


def peak(*_, **__):
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def install():
    import torch._dynamo
    import torch.distributed.checkpoint
    import torch.distributed.tensor
    import torch.optim

    torch._dynamo.config.disable = True  # it knows torch.cuda's functions by name, and these are stand-ins
    cuda, stream = torch.cuda, Stream()
    for name in ("init _lazy_init set_device synchronize empty_cache reset_peak_memory_stats set_stream ipc_collect "
                 "set_per_process_memory_fraction").split():
        setattr(cuda, name, nothing())
    cuda.nvtx.range_push, cuda.nvtx.range_pop = nothing(), nothing()
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_, **__: peak())
    answers = {
        "is_available": True, "is_initialized": True, "device_count": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "current_device": CPU, "current_stream": stream, "default_stream": stream, "stream": stream,
        "get_device_properties": Properties(), "get_device_capability": (9, 0), "get_device_name": "cpu",
        "is_bf16_supported": True, "mem_get_info": (12 << 30, 24 << 30), "is_current_stream_capturing": False,
        "memory_stats": defaultdict(int),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, answer=answer, **__: answer)
    cuda.Stream, cuda.Event, cuda.default_generators = Stream, Event, Generators()
    for where in (cuda, cuda.random):
        where.get_rng_state = lambda *_, **__: torch.get_rng_state()
        where.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
        where.manual_seed = where.manual_seed_all = lambda seed: torch.default_generator.manual_seed(int(seed))
    for name, dtype in TYPES.items():
        setattr(cuda, name, Kind(name, (), {"dtype": dtype}))
    for name in FACTORIES:
        setattr(torch, name, made_here(getattr(torch, name)))
    tensor, module = torch.Tensor, torch.nn.Module
    tensor.cuda = module.cuda = tensor.pin_memory = lambda self, *_, **__: self
    tensor.record_stream = nothing()
    tensor.to, module.to = moved_here(tensor.to), moved_here(module.to)
    named = tensor.type
    # Optimizers and clipping ask for the type by its name.
    tensor.type = lambda self, *a, **k: named(self, *a, **k) if a or k else named(self).replace("torch.", "torch.cuda.")
    for name in ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"):
        setattr(tensor, name, moved_here(getattr(tensor, name)))
    over_gloo(torch.distributed)


def over_gloo(dist):
    def without_nccl(make):
        def made(*args, **more):
            for name in ("device_id", "pg_options"):
                more.pop(name, None)
            if more.get("backend") == "nccl":
                more["backend"] = "gloo"
            return make(*args, **more)

        return made

    dist.init_process_group, dist.new_group = without_nccl(dist.init_process_group), without_nccl(dist.new_group)
