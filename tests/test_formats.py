"""Resolutions as files: each is read by the tool that it is for."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rattler
from described_machines import machine
from index_server import IndexServer, build_wheel, index_server
from machines_named import machine_named
from packaging.requirements import Requirement

from gpusetup.catalog.file import load_catalog
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution
from gpusetup.render.formats import FORMATS, Wanted
from gpusetup.resolver import resolve

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CATALOG = load_catalog()
HERE = "{}.{}".format(*sys.version_info)
RENDERED = Path(__file__).parent / "rendered" / "formats"
LAPTOP = machine_named("rtx3050-laptop")
MACHINES = {
    "laptop": LAPTOP,
    "t4": machine("T4"),
    "pascal": machine("GTX 1080 Ti"),
    "mac": machine(driver=None, os="macos", on="aarch64"),
    "grace": machine("GH200 480GB", on="aarch64"),
    "none": machine(driver=None),
    "unknown-python": machine("T4", python=None),
}


def written(kind: str, snapshot: Snapshot, torch: str | None = None) -> str:
    installer = "conda" if kind == "conda" else "auto"
    found = resolve(snapshot, Request(torch=torch, installer=installer), CATALOG)
    return FORMATS[kind](Wanted(resolution=found, snapshot=snapshot))


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_the_laptops_files_word_for_word(kind: str, same_as_file) -> None:  # type: ignore[no-untyped-def]
    same_as_file(written(kind, LAPTOP, "2.5.1"), RENDERED / f"laptop-2.5.1-{kind}.txt")


def uv(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """uv with nobody's configuration."""
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "UV_CACHE_DIR": str(cwd / "cache")}
    argv = [sys.executable, "-m", "uv", *words]
    return subprocess.run(argv, cwd=cwd, env=clean, capture_output=True, text=True, timeout=60)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexServer]:
    """Torch's index with small wheels for cu124, and a default index with a CPU torch."""
    with index_server(tmp_path / "index") as server:
        for name, version in (
            ("torch", "2.5.1"),
            ("torchvision", "0.20.1"),
            ("torchaudio", "2.5.1"),
        ):
            needs = ("filelock",) if name == "torch" else (f"torch=={version}",)
            needs = ("torch==2.5.1",) if name == "torchvision" else needs
            for shelf, label in (("whl/cu124", "+cu124"), ("simple", "")):
                wheel = build_wheel(tmp_path / shelf, name, f"{version}{label}", requires=needs)
                server.add(shelf, wheel)
        for shelf in ("whl/cu124", "simple"):
            server.add(shelf, build_wheel(tmp_path / f"{shelf}-rest", "filelock", "3.20.0"))
        yield server


def at(index: IndexServer, text: str) -> str:
    """The text with our index in the place of torch's."""
    assert "https://download.pytorch.org/whl" in text
    return text.replace("https://download.pytorch.org/whl", index.index_root)


def test_uv_locks_the_project_with_torch_from_its_own_index_and_the_rest_from_the_default(
    tmp_path: Path, index: IndexServer
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        at(index, written("uv", machine("T4", python=HERE), "2.5.1"))
    )
    done = uv("lock", "--python", sys.executable, "--default-index", index.simple, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lock = tomllib.loads((tmp_path / "uv.lock").read_text())
    where = {p["name"]: (p["version"], p["source"].get("registry")) for p in lock["package"]}
    assert where["torch"] == ("2.5.1+cu124", f"{index.index_root}/cu124")
    assert where["torchvision"][1] == f"{index.index_root}/cu124"
    assert where["filelock"] == ("3.20.0", index.simple)
    assert index.asked_for("GET /whl/cu124/filelock/") == 0


def pixi(name: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(written("pixi", MACHINES[name]))
    return project


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_pixis_own_parsers_read_what_the_file_names(name: str) -> None:
    project = pixi(name)
    (platform,) = project["workspace"]["platforms"]
    subdir, cuda = (
        (platform, None) if isinstance(platform, str) else (platform["platform"], platform["cuda"])
    )
    assert str(rattler.Subdir(subdir)) == subdir
    assert (cuda is None) == (name in ("mac", "none"))
    if cuda:
        given = rattler.VirtualPackageOverrides()
        given.cuda = rattler.Override.string(cuda)
        found = [p.into_generic() for p in rattler.VirtualPackage.detect(overrides=given)]
        assert [str(p.version) for p in found if p.name.normalized == "__cuda"] == [cuda]
    rattler.MatchSpec(f"python {project['dependencies']['python']}")
    for package, row in project["pypi-dependencies"].items():
        Requirement(f"{package}{row['version']}")
        assert row["index"].startswith("https://download.pytorch.org/whl/")


@pytest.mark.parametrize("name", ["laptop", "t4", "grace", "none"])
def test_the_dockerfile_is_instructions_whose_commands_are_words(name: str) -> None:
    text = written("dockerfile", MACHINES[name]).replace("\\\n", " ")
    rows = [line.partition(" ") for line in text.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows][:3] == ["FROM", "RUN", "RUN"]
    assert rows[0][2] == "python:3.11-slim-bookworm"
    words = shlex.split(rows[1][2])
    assert words.count("--index-url") == 1 and "--extra-index-url" not in words
    assert words.count("&&") == 1
    compile(shlex.split(rows[2][2])[2], "check", "exec")
    assert ("NVIDIA_VISIBLE_DEVICES" in text) == (name != "none")


def test_a_gpu_name_cannot_add_a_line() -> None:
    from gpusetup.model.frozen import replace

    snapshot = machine("T4")
    (gpu,) = snapshot.gpus or ()
    evil = replace(snapshot, gpus=(replace(gpu, name="x\nRUN rm -rf /\n"),))
    found: Resolution = resolve(evil, Request(), CATALOG)
    for kind in ("requirements", "uv", "pixi", "dockerfile"):
        lines = FORMATS[kind](Wanted(resolution=found, snapshot=evil)).splitlines()
        assert not any(line.startswith("RUN rm") for line in lines)
