"""verify on GPUs that no test machine has: what libraries refuse there, and what is asked of them.

The device is played: its capability, its driver and its libraries' messages are ours.
"""

from __future__ import annotations

import ctypes
import types
from typing import Any

import pytest
import torch

from gpusetup.verify import worker
from gpusetup.verify.device import identity
from gpusetup.verify.ranks import meeting
from gpusetup.verify.values import Outcome

# --- which GPU it is ---

DIGITS = bytes(range(16))
DASHED = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def driver(**more: Any) -> Any:
    def told(found: Any, _: Any) -> int:
        found._obj[:] = list(DIGITS)
        return 0

    usual = {"cuInit": lambda _: 0, "cuDeviceGet": lambda *_: 0, "cuDeviceGetUuid": told}
    return types.SimpleNamespace(**{**usual, **more})


def test_a_torch_that_says_no_uuid_is_helped_by_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = types.SimpleNamespace(name="Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: row)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver())
    assert identity.gpu_uuid(torch, "cuda:0") == f"GPU-{DASHED}"
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver(cuInit=lambda _: 100))
    assert identity.gpu_uuid(torch, "cuda:0") is None
    row.uuid = "1234"
    assert identity.gpu_uuid(torch, "cuda:0") == "GPU-1234"


def test_an_instance_is_named_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row = types.SimpleNamespace(name="NVIDIA H200 MIG 1g.18gb", uuid="1234")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: row)
    assert identity.gpu_uuid(torch, "cuda:0") == "MIG-1234"


def test_a_check_of_a_gpu_makes_it_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(worker, "function_of", lambda _: lambda device: Outcome("passed", device))
    for name in ("float8", "gpu"):
        worker.served({"name": name, "device": "cuda:1"}, verbose=False)
    worker.served({"name": "float8", "device": "cpu"}, verbose=False)
    assert current == ["cuda:1"]


def test_ranks_on_gpus_need_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    found = meeting.meet("cuda:0")
    assert found[:2] == (
        "skipped",
        "this torch is built without NCCL (a CPU build of torch)",
    )
