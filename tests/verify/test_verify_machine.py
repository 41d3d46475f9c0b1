"""verify on devices that no test machine has: CUDA's Python interface, the driver and its messages
are played.

The stand-in computes at once on the CPU: this proves that the checks run through, what they say,
and that they see a stand-in that is wrong in the way they look for. It proves nothing about GPUs.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from each_row import each
from torch.overrides import TorchFunctionMode

from gpusetup.verify import worker
from gpusetup.verify.checks import speed, transfers
from gpusetup.verify.device import libraries
from gpusetup.verify.values import Outcome

DEVICE = "cuda:0"
GIB = 2**30


class OnTheCpu(TorchFunctionMode):
    """Takes `cuda:0` for the CPU; page-locked memory is ordinary memory that says it is not."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in SPECIAL:
            return SPECIAL[name](args[0])
        swap = {DEVICE: "cpu"}
        args = tuple(swap.get(x, x) if isinstance(x, str) else x for x in args)
        kwargs = {k: swap.get(v, v) if isinstance(v, str) else v for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)


SPECIAL: dict[str, Callable[[Any], Any]] = {
    "pin_memory": lambda given: given.clone(),
    "is_pinned": lambda _: True,
}


class Event:
    def record(self, _: Any) -> None: ...

    def synchronize(self) -> None: ...


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    row = types.SimpleNamespace(name="NVIDIA A100-SXM4-80GB", total_memory=GIB, major=8, minor=0)
    for name, value in {
        "Event": Event,
        "current_stream": lambda _=None: None,
        "synchronize": lambda _=None: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda _: (GIB, GIB),
        "memory_reserved": lambda _: 0,
        "get_device_properties": lambda _: row,
        "set_per_process_memory_fraction": lambda *_: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(transfers, "COPY_BYTES", 2**20)
    monkeypatch.setattr(transfers, "SLOWEST_COPY", 0.0)  # a busy host is no sick device
    with OnTheCpu():
        yield monkeypatch


@pytest.mark.parametrize("check", [transfers.copy_in, transfers.copy_out, transfers.pinned])
def test_a_sound_device_passes(check: Callable[[str], Outcome], cuda: pytest.MonkeyPatch) -> None:
    assert check(DEVICE).status == "passed"
    if check is transfers.pinned:
        cuda.setitem(SPECIAL, "is_pinned", lambda _: False)
        assert check(DEVICE).detail == "pinned: the memory is not page-locked"


def test_a_gpu_is_compared_with_the_cpu_and_both_rates_are_told(cuda: pytest.MonkeyPatch) -> None:
    cuda.setitem(speed.PRODUCT_SIZES, "cuda", 256)
    rates = {("cpu", "float32"): 1.0, (DEVICE, "float32"): 50.0, (DEVICE, "float16"): 700.0}
    cuda.setattr(speed, "product_rate", lambda *asked: rates[asked[:2]])
    found = speed.speed_over_cpu(DEVICE)
    assert (found.status, found.value, found.unit) == ("passed", 50.0, "times the CPU in float32")
    assert found.detail.startswith(
        "products of 256 x 256: 50 TFLOP/s in float32 and 700 in float16 (700 times), against 1 in "
        "float32 on the CPU at 2048 with "
    )


@each(
    "said, spent, hint",
    [
        ("CUDA error: an illegal memory access was encountered\nmore", True, "doctor"),
        ("CUDA out of memory. Tried to allocate", False, "nvidia-smi"),
        ("shapes do not fit", False, "doctor"),
    ],
)
def test_a_sticky_error_ends_the_process(said: str, spent: bool, hint: str) -> None:
    found = worker.raised(RuntimeError(said), "cuda:0")
    assert (found.status, found.spent, "\n" in found.detail) == ("failed", spent, False)
    assert hint in (found.hint or "")


# --- the libraries of an image ---

NO_DRIVER = "libcuda.so.1: cannot open shared object file: No such file or directory"
NO_CUBLAS = "libcublas.so.12: cannot open shared object file: No such file or directory"


@each(
    "problems, status, words",
    [
        (("", ""), "passed", "2 CUDA libraries load"),
        (("", NO_DRIVER), "passed", "1 CUDA libraries load, 1 wait for the driver"),
        (("", NO_CUBLAS), "failed", NO_CUBLAS),
        ((NO_CUBLAS, "libcuda_wrapper.so: invalid ELF header"), "failed", "invalid ELF header"),
        ((), "failed", "no CUDA library"),
    ],
)
def test_libraries_of_an_image(
    problems: tuple[str, ...], status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: str) -> None:
        if problems[int(path[-1])]:
            raise OSError(problems[int(path[-1])])

    monkeypatch.setattr(torch.version, "cuda", "12.4")
    paths = [Path(f"libtorch_cuda.so.{place}") for place in range(len(problems))]
    monkeypatch.setattr(libraries, "libraries_of", lambda _: paths)
    monkeypatch.setattr(ctypes, "CDLL", load)
    found = libraries.libraries_load("none")
    assert (found.status, words in found.detail) == (status, True), found
