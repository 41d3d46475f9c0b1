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


@pytest.mark.parametrize(
    ("machine", "driver", "build"),
    [
        ("healthy", "13.0", "cuda130"),
        # A GPU before Turing gets a build for CUDA 12, although its driver reaches 13.
        ("gtx1080ti", "13.0", "cuda129"),
        ("no-gpu", None, "cpu"),
    ],
)
def test_the_build_for_the_machine_is_chosen(
    channel: str, machine: str, driver: str | None, build: str
) -> None:
    named = [("__cuda", driver)] if driver else []
    chosen = solved(channel, environment_specs(machine), *named)
    assert chosen["pytorch"].startswith(f"2.13.0 {build}")
    if machine == "healthy":
        assert chosen["torchvision"].startswith("0.28.0 cuda130")
        with pytest.raises(SolverError, match="__cuda"):
            solved(channel, environment_specs(machine))
