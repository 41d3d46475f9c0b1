"""`install` of a build for AMD or Intel: what only torch's own index has comes from there."""

from __future__ import annotations

import pytest
from installing import Install, World, needs_linux

BUILDS = (("rocm7.2", "triton-rocm"), ("xpu", "triton-xpu"))


def fill(world: World, backend: str, triton: str) -> None:
    """torch on its index with the Triton that only this index has; the default index has a
    placeholder under the same name, as the public one does."""
    needs = ("filelock", "typing-extensions>=4.8", f"{triton}==3.8.0")
    world.add_torch(backend, "2.13.0", requires=needs)
    world.index.add(f"whl/{backend}", world.wheel(triton, "3.8.0"))
    world.add_default(triton, "0.0.1")


@needs_linux
@pytest.mark.parametrize(("backend", "triton"), BUILDS)
def test_the_triton_of_a_maker_comes_from_torchs_index(
    world: World, install: Install, backend: str, triton: str
) -> None:
    fill(world, backend, triton)
    words = ("torch", "--torch", "2.13.0", "--backend", backend, "--yes", "--no-verify")
    said = install("--venv", str(world.folder / "new"), *words, "--json")
    assert said.exit == 0, said.err
    assert said.answer["after"][triton] == "3.8.0"
    assert said.answer["after"]["filelock"] == "3.20.0"


@needs_linux
def test_an_installed_torch_gets_the_triton_of_the_maker(world: World, install: Install) -> None:
    fill(world, "rocm7.2", "triton-rocm")
    cpu = world.add_torch("cpu", "2.13.0")
    world.fill(venv := world.venv(), cpu)
    words = ("--python", str(venv), "--torch", "2.13.0", "--backend", "rocm7.2")
    said = install(*words, "--yes", "--no-verify", "--json")
    assert said.exit == 0, said.err
    assert said.answer["after"]["torch"] == "2.13.0+rocm7.2"
    assert said.answer["after"]["triton-rocm"] == "3.8.0"


@needs_linux
def test_the_kernels_for_the_named_target_come_as_an_extra(world: World, install: Install) -> None:
    """AMD's index has one torch for all targets, and a package with kernels for each."""
    label = "2.13.0+rocm10.0.0"
    kernels = "amd-torch-device-gfx1010"
    needs = ("filelock", f"{kernels}=={label}; extra == 'device-gfx1010'")
    world.add_torch("rocm10.0.0", "2.13.0", requires=needs, extras=("device-gfx1010",))
    world.index.add("whl/rocm10.0.0", world.wheel(kernels, label))
    # The public index has a placeholder under this name, too.
    world.add_default(kernels, "0.1.0")
    words = ("torch", "--gpu", "RX 5700 XT", "--yes", "--no-verify", "--json")
    said = install("--venv", str(world.folder / "new"), *words)
    assert said.exit == 0, said.err
    assert said.answer["after"]["torch"] == label
    assert said.answer["after"][kernels] == label
