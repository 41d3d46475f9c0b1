"""Installers as step tables: what would be run, to the word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from described_machines import machine
from hypothesis import given
from hypothesis import strategies as st
from index_server import build_wheel, index_server

from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.installers import INSTALLERS
from gpusetup.installers.options import FAMILY, InstallerOptions, pins
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution
from gpusetup.resolver import resolve

CATALOG = load_catalog()
INDEX = "https://download.pytorch.org/whl"


def resolution(snapshot: Snapshot, **asked: str) -> Resolution:
    return resolve(snapshot, Request(**asked), CATALOG)


def lines(installer: str, found: Resolution, wish: InstallerOptions) -> list[str]:
    return [" ".join(step.argv) for step in INSTALLERS[installer](found, wish)]


T4 = machine("T4")


def test_uv_takes_the_family_from_torchs_index_and_the_rest_from_the_users_own() -> None:
    wish = InstallerOptions(python="/env/bin/python", packages=(*FAMILY, "transformers"))
    pinned = "torch==2.5.1+cu124 torchvision==0.20.1+cu124 torchaudio==2.5.1+cu124"
    assert lines("uv", resolution(T4, torch="2.5.1"), wish) == [
        f"uv pip install --python /env/bin/python --no-deps --index {INDEX}/cu124 "
        f"--default-index {INDEX}/cu124 {pinned}",
        f"uv pip install --python /env/bin/python {pinned} transformers",
    ]


def test_pip_is_the_targets_own_module() -> None:
    wish = InstallerOptions(python="/env/bin/python", packages=("torch",))
    assert lines("pip", resolution(T4, torch="2.5.1"), wish) == [
        f"/env/bin/python -m pip install --no-deps --index-url {INDEX}/cu124 torch==2.5.1+cu124",
        "/env/bin/python -m pip install torch==2.5.1+cu124",
    ]


def test_a_mirror_replaces_the_root_and_a_wheelhouse_every_index() -> None:
    found = resolution(T4, torch="2.5.1")
    mirror = InstallerOptions(packages=("torch",), index_root="http://mirror/whl/")
    assert "--default-index http://mirror/whl/cu124" in lines("uv", found, mirror)[0]
    assert "--index-url http://mirror/whl/cu124" in lines("pip", found, mirror)[0]
    cache = InstallerOptions(packages=("torch",), wheelhouse="/wheels")
    for line in lines("uv", found, cache) + lines("pip", found, cache):
        assert "--no-index --find-links /wheels" in line and "://" not in line


def test_a_companion_that_no_index_is_known_to_have_is_left_out() -> None:
    newest = resolution(machine("T4", driver="595.58.03")).build
    assert pins(newest, FAMILY) == (  # type: ignore[arg-type]
        "torch==2.15.0+cu132",
        "torchvision==0.29.2+cu132",
    )


def test_a_torchaudio_on_the_stable_abi_follows_a_later_torch() -> None:
    assert pins(resolution(T4).build, FAMILY)[-1] == "torchaudio==2.11.0+cu130"  # type: ignore[arg-type]


def test_wheels_without_a_label_are_pinned_without_one_and_reinstalled() -> None:
    mac = resolution(machine(driver=None, os="macos", on="aarch64"))
    assert lines("uv", mac, InstallerOptions(packages=("torch",)))[0] == (
        f"uv pip install --no-deps --index {INDEX}/cpu --default-index {INDEX}/cpu "
        "--reinstall-package=torch torch==2.15.0"
    )
    assert "--force-reinstall" in lines("pip", mac, InstallerOptions())[0]
    assert "reinstall" not in lines("pip", mac, InstallerOptions())[1]
    old = resolution(machine("GH200 480GB", on="aarch64"), torch="2.5.1")
    assert "torch==2.5.1" in lines("uv", old, InstallerOptions())[0].split()


def test_on_aarch64_torch_has_a_label_and_its_companions_may_have_none() -> None:
    found = resolution(machine("GH200 480GB", on="aarch64"))
    first = lines("uv", found, InstallerOptions())[0].split()
    assert "torch==2.15.0+cu130" in first and "torchvision==0.29.2" in first
    assert "--reinstall-package=torchvision" in first
    assert "--reinstall-package=torch" not in first


def test_conda_up_to_2_5_1_is_the_channel_pytorch() -> None:
    assert lines(
        "conda", resolution(T4, torch="2.5.1"), InstallerOptions(conda_prefix="/opt/env")
    ) == [
        "conda install --yes --prefix /opt/env --override-channels --channel pytorch "
        "--channel nvidia --channel conda-forge pytorch::pytorch==2.5.1 "
        "pytorch::torchvision==0.20.1 pytorch::torchaudio==2.5.1 pytorch-cuda=12.4 mkl<2024.1"
    ]


def test_conda_after_2_5_1_names_the_gpu_package_and_its_cuda() -> None:
    assert lines("conda", resolution(T4), InstallerOptions()) == [
        "conda install --yes --override-channels --channel conda-forge "
        "pytorch-gpu=2.13.0 torchvision cuda-version=13.0"
    ]


def test_a_build_of_conda_is_no_wheel() -> None:
    found = resolution(T4, installer="conda")
    for installer in ("uv", "pip"):
        with pytest.raises(Unsatisfiable, match="resolved for conda"):
            INSTALLERS[installer](found, InstallerOptions())


def test_conda_without_a_build_that_fits_says_so() -> None:
    found = resolution(machine("T4", python="3.15"))
    with pytest.raises(Unsatisfiable, match="conda's channels have no torch build"):
        INSTALLERS["conda"](found, InstallerOptions())


@pytest.mark.parametrize("installer", sorted(INSTALLERS))
def test_no_build_has_no_steps(installer: str) -> None:
    found = resolution(machine("T4", python="3.6"))
    with pytest.raises(Unsatisfiable):
        INSTALLERS[installer](found, InstallerOptions())


@given(
    st.sampled_from([b for b in CATALOG.builds if b.channel == "pytorch"]),
    st.sets(st.sampled_from((*FAMILY, "numpy"))),
)
def test_torchs_index_is_never_beside_another_one(build, packages) -> None:  # type: ignore[no-untyped-def]
    found = Resolution(build=build, index_url=f"{INDEX}/{build.backend}")
    for name in ("uv", "pip"):
        first, second = INSTALLERS[name](found, InstallerOptions(packages=tuple(sorted(packages))))
        assert "--no-deps" in first.argv and "--no-deps" not in second.argv
        asked = {word for word in first.argv if "://" in word}
        assert asked == {f"{INDEX}/{build.backend}"}
        assert not any("index" in word and "://" in word for word in second.argv)
        assert not any("extra-index" in word for step in (first, second) for word in step.argv)
        assert "numpy" not in first.argv


@pytest.mark.parametrize("installer", ["uv", "pip"])
@pytest.mark.one_in(4)
def test_the_real_installer_takes_each_thing_from_its_own_index(
    installer: str, tmp_path: Path
) -> None:
    """An installed CPU torch is replaced; the default index has newer CPU builds and is not asked
    for torch's own, only for what torch needs."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache")}
    here = tmp_path / "venv"
    uv = (sys.executable, "-m", "uv")

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=90)

    without = ("--without-pip",) if installer == "uv" else ()
    assert run(sys.executable, "-m", "venv", *without, str(here)).returncode == 0
    python = str(here / "bin" / "python")
    with index_server(tmp_path / "index") as index:
        for shelf, version in (
            ("whl/cu124", "2.5.1+cu124"),
            ("whl/cu124", "2.9.0+cu124"),
            ("simple", "2.5.1"),
            ("simple", "2.15.0"),
        ):
            wheel = build_wheel(tmp_path / shelf, "torch", version, requires=("filelock",))
            index.add(shelf, wheel)
        index.add("simple", build_wheel(tmp_path / "simple", "filelock", "3.20.0"))
        mirror = {"UV_DEFAULT_INDEX": index.simple, "PIP_INDEX_URL": index.simple}
        env |= mirror | {"UV_INDEX": index.simple, "PIP_EXTRA_INDEX_URL": index.simple}
        cpu = run(*uv, "pip", "install", "--python", python, "--no-deps", "torch==2.5.1")
        assert cpu.returncode == 0, cpu.stderr
        index.asked.clear()
        wish = InstallerOptions(python=python, packages=("torch",), index_root=index.index_root)
        for step in INSTALLERS[installer](resolution(T4, torch="2.5.1"), wish):
            argv = (*uv, *step.argv[1:]) if step.argv[0] == "uv" else step.argv
            done = run(*argv)
            assert done.returncode == 0, done.stderr
        installed = run(python, "-c", "import torch, filelock; print(torch.__version__)")
        assert installed.stdout.strip() == "2.5.1+cu124"
        assert index.asked_for("GET /simple/filelock/") >= 1
        assert index.asked_for("GET /whl/cu124/filelock/") == 0
