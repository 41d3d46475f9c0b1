"""What is written for conda really solves: a real solver, a small channel of true shapes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from itertools import pairwise

import pytest
import rattler
from conda_channel import write_channel
from machines_named import there
from rattler.exceptions import SolverError
from rattler.package.build_string import BuildString

from gpusetup.cli import main

GLIBC = ("__glibc", "2.35")


def environment_specs(machine: str) -> list[str]:
    """The match specs that conda is given for an example machine."""
    words = ("--from", there(machine), "--torch", "latest", "--installer", "conda", "--json")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["resolve", *words]) == 0
    answer = json.loads(said.getvalue())
    argv = answer["commands"]["conda"][-1]
    named = [w for before, w in pairwise(argv[1:]) if before not in ("--channel", "--name")]
    return [f"python={answer['python']}", *(w for w in named if not w.startswith("--"))]


def virtual(*named: tuple[str, str]) -> list[rattler.GenericVirtualPackage]:
    return [
        rattler.GenericVirtualPackage(
            rattler.PackageName(name), rattler.Version(version), BuildString("0")
        )
        for name, version in named
    ]


def solved(channel: str, specs: list[str], *named: tuple[str, str]) -> dict[str, str]:
    """Name -> version and build of what the solver chooses."""
    found = asyncio.run(
        rattler.solve(
            sources=[channel],
            specs=specs,
            platforms=["linux-64", "noarch"],
            virtual_packages=virtual(GLIBC, *named),
        )
    )
    return {record.name.normalized: f"{record.version} {record.build}" for record in found}


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_channel(tmp_path_factory.mktemp("channel"))


def test_with_a_driver_the_cuda_build_is_chosen(channel: str) -> None:
    chosen = solved(channel, environment_specs("healthy"), ("__cuda", "13.0"))
    assert chosen["pytorch"].startswith("2.13.0 cuda130")
    assert chosen["pytorch-gpu"].startswith("2.13.0 cuda130")
    assert chosen["torchvision"].startswith("0.28.0 cuda130")
    assert chosen["cuda-version"].startswith("13.0")


def test_a_gpu_before_turing_gets_a_cuda_12_build_although_its_driver_reaches_13(
    channel: str,
) -> None:
    specs = environment_specs("gtx1080ti")
    assert "cuda-version=12.9" in specs
    assert solved(channel, specs, ("__cuda", "13.0"))["pytorch"].startswith("2.13.0 cuda129")


def test_without_a_driver_the_solver_refuses_and_names_what_is_missing(channel: str) -> None:
    with pytest.raises(SolverError, match="__cuda"):
        solved(channel, environment_specs("healthy"))


def test_a_machine_without_gpu_gets_the_cpu_build_by_name(channel: str) -> None:
    specs = environment_specs("no-gpu")
    assert any(spec.startswith("pytorch-cpu=") for spec in specs)
    assert solved(channel, specs)["pytorch"].startswith("2.13.0 cpu")
