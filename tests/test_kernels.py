"""Binary code and PTX: which GPU runs what."""

from __future__ import annotations

import pytest
from each_row import each

from gpusetup.catalog.kernels import compiles_for, runs_on, served_by
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import Capability


def sm(digits: str) -> Capability:
    return Capability.parse(digits)


@each(
    "kernel, gpu, cuda",
    [
        ("5.0", "5.2", "12.6"),
        ("6.0", "6.1", "12.6"),
        ("7.0", "7.5", "12.8"),
        ("8.0", "8.6", "12.6"),
        ("8.6", "8.9", "12.6"),
        ("8.0", "8.7", "13.2"),
        ("7.0", "7.2", "13.2"),
        ("10.0", "10.3", "13.0"),
        ("12.0", "12.1", "13.0"),
        ("10.1", "11.0", "13.0"),
        ("11.0", "10.1", "13.0"),
        ("8.7", "8.7", "12.6"),
        ("9.0", "9.0", None),
    ],
)
def test_runs(kernel: str, gpu: str, cuda: str | None) -> None:
    assert runs_on(sm(kernel), sm(gpu), cuda)


@pytest.mark.parametrize(
    ("kernel", "gpu", "cuda"),
    [
        ("5.0", "5.3", "12.6"),
        ("6.0", "6.2", "13.2"),
        ("7.0", "7.2", "13.0"),
        ("8.0", "8.7", "13.0"),
        ("8.7", "8.9", "13.2"),
        ("8.6", "8.0", "13.2"),
        ("8.9", "9.0", "13.2"),
        ("10.0", "10.1", "13.0"),
        ("10.0", "11.0", "13.0"),
        ("10.0", "12.0", "13.0"),
        ("3.7", "3.5", "11.8"),
    ],
)
def test_does_not_run(kernel: str, gpu: str, cuda: str) -> None:
    assert not runs_on(sm(kernel), sm(gpu), cuda)


def test_ptx_is_compiled_for_equal_or_newer_gpus_by_a_driver_of_at_least_its_cuda() -> None:
    assert compiles_for(sm("12.0"), sm("13.0"), "12.9", "12.9")
    assert not compiles_for(sm("12.0"), sm("13.0"), "12.9", "12.8")
    assert not compiles_for(sm("12.0"), sm("9.0"), "12.9", "13.4")
    assert not compiles_for(sm("12.0"), sm("13.0"), "12.9", None)


def test_the_nearest_kernel_serves_and_any_kernel_before_ptx() -> None:
    build = TorchBuild(
        torch="2.9.0",
        backend="cu129",
        cuda="12.9",
        os="linux",
        machine="x86_64",
        pythons=("3.11",),
        kernels=("sm_80", "sm_86", "sm_120"),
        ptx=("compute_80", "compute_120"),
    )
    assert served_by(build, sm("8.9"), "12.9") == "sm_86"
    assert served_by(build, sm("13.0"), "12.9") == "compute_120"
    assert served_by(build, sm("9.0"), "12.9") == "compute_80"
    assert served_by(build, sm("9.0"), "12.8") is None
    assert served_by(build, sm("7.5"), "13.0") is None
