"""A card for the acceptance's own processes: torch says that it has CUDA, the CPU computes.

On PYTHONPATH: with FAKE_CARD=1 it acts in the process of the tests alone. It proves that every line
which asks for a card can run; nothing about real ones.
"""

import contextlib
import os
import sys
import types

CAPACITY = 8 << 30


def is_cuda(value):
    return str(value).startswith("cuda") and type(value).__name__ in ("str", "device")


class Stream:
    """A stream on which everything is in order."""

    def __init__(self, *_, **__):
        self.device = "cuda:0"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __getattr__(self, name):
        return lambda *_, **__: None

    def wait_stream(self, other):
        return None

    def wait_event(self, other):
        return None


class Memory:
    """What the allocator says: enough to go on with; a request of gigabytes is refused."""

    allocated = 3 << 28


def silent():
    """A function of its own each time: torch's compiler refuses one that has two names."""
    return lambda *_, **__: None


def install():
    import torch
    from torch.overrides import TorchFunctionMode

    cuda = torch.cuda
    for name in (
        *("init", "synchronize", "empty_cache", "reset_peak_memory_stats", "set_device"),
        *("set_per_process_memory_fraction", "manual_seed_all"),
    ):
        setattr(cuda, name, silent())
    cuda.is_available = lambda: True
    cuda.is_initialized = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.get_device_name = lambda *_: "Fake card"
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.mem_get_info = lambda *_: (CAPACITY // 2, CAPACITY)
    for name in ("memory_reserved", "memory_allocated", "max_memory_allocated"):
        setattr(cuda, name, lambda *_: Memory.allocated)
    cuda.max_memory_reserved = lambda *_: Memory.allocated + (1 << 20)
    cuda.get_rng_state = lambda *_: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    cuda.set_rng_state_all = silent()
    cuda.current_stream = Stream
    cuda.device = lambda *_: contextlib.nullcontext()
    cuda.Stream = Stream
    cuda.stream = lambda stream: contextlib.nullcontext()
    cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        name="Fake card", major=9, minor=0, total_memory=CAPACITY, multi_processor_count=132,
        uuid="12345678-1234-1234-1234-000000000000",
    )  # fmt: skip
    autocast, scaler = torch.autocast, torch.amp.GradScaler

    def cast(device_type, *rest, **more):
        return autocast("cpu" if device_type == "cuda" else device_type, *rest, **more)

    torch.autocast = cast
    torch.amp.GradScaler = lambda *_, **more: scaler("cpu", **more)

    class OnTheCpu(TorchFunctionMode):
        def __torch_function__(self, func, types_, args=(), kwargs=None):
            named = {k: "cpu" if is_cuda(v) else v for k, v in (kwargs or {}).items()}
            args = tuple("cpu" if is_cuda(value) else value for value in args)
            sizes = [a for a in args if isinstance(a, int)]
            if getattr(func, "__name__", "") == "empty" and sizes and max(sizes) >= CAPACITY // 2:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB.")
            return func(*args, **named)

    OnTheCpu().__enter__()


def wanted():
    """The tests themselves, and nothing that they start."""
    asked, argv = os.environ.get("FAKE_CARD"), getattr(sys, "orig_argv", [])
    return asked == "1" and "--answers" in argv


if wanted():
    install()
