"""Streams, graphs, pinned memory and memory limits, on a stand-in for CUDA's Python interface.

The stand-in computes at once on the CPU: this proves that the checks run through, what they say,
and that they see a stand-in that is wrong in the way they look for. It proves nothing about GPUs.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpusetup.verify.checks import memory, transfers
from gpusetup.verify.values import Outcome

DEVICE = "cuda:0"


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


class Stream:
    """Does everything at once."""

    def __init__(self, _: Any = None) -> None: ...

    def wait_stream(self, _: Any) -> None: ...

    def wait_event(self, _: Any) -> None: ...

    def record_event(self) -> Event:
        return Event()

    def synchronize(self) -> None: ...


class Event:
    def record(self, _: Any) -> None: ...

    def synchronize(self) -> None: ...


class Graph(TorchDispatchMode):
    """Remembers what was computed, to compute it again into the same memory."""

    stale = False

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, found))
        return found

    def replay(self) -> None:
        for func, args, kwargs, kept in [] if self.stale else self.done:
            kept.copy_(func(*args, **kwargs))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    anywhere = contextlib.nullcontext
    stream = Stream()
    row = types.SimpleNamespace(name="NVIDIA A100-SXM4-80GB", total_memory=2**30, major=8, minor=0)
    for name, value in {
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": lambda captured, stream: captured,
        "stream": lambda _: anywhere(),
        "device": lambda _: anywhere(),
        "current_stream": lambda _=None: stream,
        "synchronize": lambda _=None: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda _: (2**30, 2**30),
        "get_device_properties": lambda _: row,
        "set_per_process_memory_fraction": lambda *_: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(transfers, "COPY_BYTES", 2**20)
    monkeypatch.setattr(transfers, "CHAINED", 2**20)  # enough where nothing runs ahead of its host
    monkeypatch.setattr(transfers, "SLOWEST_COPY", 0.0)  # a busy host is no sick device
    with OnTheCpu():
        yield monkeypatch


CHECKS = (
    transfers.copy_in,
    transfers.copy_out,
    transfers.pinned,
    transfers.streams,
    transfers.graph,
)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__)
def test_a_sound_device_passes(check: Callable[[str], Outcome]) -> None:
    found = check(DEVICE)
    assert found.status == "passed", found


def test_a_graph_is_captured_on_a_stream_of_its_own_device(cuda: pytest.MonkeyPatch) -> None:
    """The stream that torch captures on otherwise belongs to the first device of the process."""
    made: list[str] = []

    class Of(Stream):
        def __init__(self, device: str) -> None:
            super().__init__(device)
            made.append(device)

    cuda.setattr(torch.cuda, "Stream", Of)
    captured_on: list[Any] = []

    def graph(one: Any, stream: Any) -> Any:
        captured_on.append(stream)
        return one

    cuda.setattr(torch.cuda, "graph", graph)
    assert transfers.graph(DEVICE).status == "passed"
    assert made == [DEVICE]
    assert isinstance(captured_on[0], Of)


def test_a_device_at_fault_is_seen(cuda: pytest.MonkeyPatch) -> None:
    cuda.setattr(Graph, "stale", True)
    assert transfers.graph(DEVICE).detail.startswith("replay 0: ")
    cuda.setitem(SPECIAL, "is_pinned", lambda _: False)
    assert transfers.pinned(DEVICE).detail == "pinned: the memory is not page-locked"


@pytest.mark.parametrize(
    ("attributes", "share"),
    [({}, 0.9), ({memory.TIMEOUT: 1}, 0.7), ({memory.INTEGRATED: 1}, 0.25)],
)
def test_the_part_of_the_memory_that_is_tested(
    cuda: pytest.MonkeyPatch, attributes: dict[int, int], share: float
) -> None:
    cuda.setattr(memory, "attributes", lambda _: attributes)
    cuda.setattr(memory, "available_bytes", lambda: 2**30)
    assert memory.amount(DEVICE)[0] == int(2**30 * share)


@pytest.mark.usefixtures("cuda")
def test_running_out_of_memory_needs_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.out_of_memory(DEVICE).detail.startswith("too much memory: 1073741824 bytes")

    def refuses(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 1024.00 MiB\nmore")

    monkeypatch.setattr(torch, "empty", refuses)
    assert memory.out_of_memory(DEVICE).status == "passed"


@pytest.mark.usefixtures("cuda")
def test_memory_of_a_gpu_is_tested_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory.CHUNK_BYTES, "cuda", 2**20)
    monkeypatch.setattr(memory, "amount", lambda *_: (4 * 2**20, "a part"))
    monkeypatch.setattr(memory, "alone_on", lambda _: contextlib.nullcontext(True))
    found = memory.memory(DEVICE)
    assert found.detail == "0.00 GiB, 4 patterns, each inverted (a part)"
