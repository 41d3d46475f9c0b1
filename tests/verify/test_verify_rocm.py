"""ROCm's `cuda` under verify: limits follow the format, not NVIDIA's compute capability."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpusetup.verify.judging.precision import amd_target, read_precision


def torch_on(target: str, *, allow_tf32: bool) -> Any:
    """A torch of ROCm, as far as the precision asks it."""
    cuda = SimpleNamespace(
        get_device_capability=lambda device: (11, 0),
        get_device_properties=lambda device: SimpleNamespace(gcnArchName=f"{target}:xnack-"),
    )
    matmul = SimpleNamespace(allow_tf32=allow_tf32)
    return SimpleNamespace(
        version=SimpleNamespace(hip="7.2.26015", cuda=None),
        cuda=cuda,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul)),
    )


@pytest.mark.parametrize(
    ("target", "allow_tf32", "name"),
    [("gfx1100", True, "ieee"), ("gfx90a", True, "ieee"), ("gfx942", False, "ieee"),
     ("gfx942", True, "tf32")],
)  # fmt: skip
def test_only_instincts_with_tf32_are_judged_by_it(
    target: str, allow_tf32: bool, name: str
) -> None:
    torch = torch_on(target, allow_tf32=allow_tf32)
    assert amd_target(torch, "cuda:0") == target
    assert read_precision(torch, "cuda:0").name == name
