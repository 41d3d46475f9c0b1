"""Whatever form the former torch has, it comes back exactly: links, editables, odd lists."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from installing import (
    TORCH,
    WANTED,
    Install,
    World,
    needs_linux,
    site_of,
    state_of,
    versions_in,
)

pytestmark = needs_linux

FLAT = f"torch-{TORCH}+cpu.data"
DATA = {
    f"{FLAT}/scripts/convert": "#!python\nprint(1)\n",
    f"{FLAT}/data/share/man/man1/torch.1": "manual\n",
    f"{FLAT}/headers/torch.h": "int x;\n",
    f"{FLAT}/platlib/torch/plat.py": "plat = 1\n",
}


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    world.add_torch("cpu", files={**DATA, "top.py": "top = 1\n", "nvidia/b/lib.so": "b"})
    return world


def outside(world: World) -> Path:
    """What lies outside of the environment and must stay as it is."""
    folder = world.folder / "system"
    folder.mkdir(exist_ok=True)
    return folder


# --- the forms -----------------------------------------------------------------------------------


def plain(world: World, venv: Path) -> None:
    world.fill(venv, world.wheel("torch", "2.0.0", scripts={"torchrun": "torch:main"}))


def link_to_the_systems_torch(world: World, venv: Path) -> None:
    """As people do on a Jetson: a link, and nothing that says what it is."""
    system = outside(world) / "dist-packages/torch"
    system.mkdir(parents=True)
    (system / "__init__.py").write_text("the system's\n")
    (system / "version.py").write_text("the system's\n")
    (site_of(venv) / "torch").symlink_to(system)


def nested_links(world: World, venv: Path) -> None:
    plain(world, venv)
    torch = site_of(venv) / "torch"
    (outside(world) / "libcudart.so").write_text("the system's\n")
    (torch / "lib").mkdir()
    (torch / "lib/libcudart.so").symlink_to(outside(world) / "libcudart.so")
    (torch / "lib/more").symlink_to(outside(world))
    (torch / "lib/dangling").symlink_to("nowhere")


def editable(world: World, venv: Path) -> None:
    """`pip install -e`: a finder and a .pth, both in the list."""
    sources = outside(world) / "pytorch"
    (sources / "torch").mkdir(parents=True)
    (sources / "torch/__init__.py").write_text("mine\n")
    finder = "__editable___torch_2_1_finder.py"
    pth = "__editable__.torch-2.1.pth"
    content = {finder: f"MAPPING = {{'torch': '{sources}'}}\n", pth: f"import {finder[:-3]}\n"}
    world.fill(venv, world.wheel("torch", "2.1", files=content))


def not_utf8(world: World, venv: Path) -> None:
    plain(world, venv)
    site = site_of(venv)
    (site / "shared").mkdir()
    (site / "shared/mine.txt").write_text("somebody else's\n")
    with (site / "torch-2.0.0.dist-info/RECORD").open("ab") as file:
        for name in (b"torch/caf\xe9.txt", b"shared/caf\xe9.txt"):
            (site / os.fsdecode(name)).write_bytes(b"latin\n")
            file.write(name + b",,\n")


def two_of_one_name(world: World, venv: Path) -> None:
    """What a broken removal left: an older metadata folder, without its list."""
    plain(world, venv)
    left = site_of(venv) / "torch-1.9.0.dist-info"
    left.mkdir()
    (left / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.9.0\n")


def two_whole_ones(world: World, venv: Path) -> None:
    site = site_of(venv)
    world.fill(venv, world.wheel("torch", "1.9.0", files={"torch/nineteen.py": "", "a.py": ""}))
    aside = world.folder / "aside"
    shutil.move(site / "torch-1.9.0.dist-info", aside)
    plain(world, venv)
    shutil.move(aside, site / "torch-1.9.0.dist-info")


def a_file_where_a_folder_comes(world: World, venv: Path) -> None:
    (site_of(venv) / "nvidia").write_text("no folder\n")
    (venv / "share").write_text("no folder\n")


def a_folder_where_a_file_comes(world: World, venv: Path) -> None:
    (site_of(venv) / "top.py").mkdir()
    (site_of(venv) / "top.py/inside.txt").write_text("mine\n")
    (venv / "bin/torchrun").mkdir()


Form = Callable[[World, Path], None]
FORMS: tuple[Form, ...] = (
    plain,
    nested_links,
    editable,
    not_utf8,
    two_of_one_name,
    two_whole_ones,
)


def state_with_bytecode(venv: Path) -> dict[str, str]:
    from installing import entry_state

    found = {}
    for path in sorted(venv.rglob("*")):
        if ".gpusetup" not in path.parts and path.name != ".lock":
            found[str(path.relative_to(venv))] = entry_state(path)
    return found


@pytest.fixture(autouse=True)
def without_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytecode is compared here: what any start of the target's Python compiles is not ours."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.one_in(16)
def test_it_is_replaced_and_comes_back_as_it_was(
    world: World, install: Install, form: Form
) -> None:
    venv = world.venv()
    form(world, venv)
    before, around = state_with_bytecode(venv), state_of(outside(world))
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 0, said.err
    assert state_of(outside(world)) == around
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"
    assert list(site_of(venv).glob("torch-*-info")) == [
        site_of(venv) / f"torch-{TORCH}+cpu.dist-info"
    ]
    asked = "import torch, sys; print(torch.__version__, torch.__file__, *sys.path)"
    ran = subprocess.run(
        [str(venv / "bin/python"), "-c", asked], capture_output=True, text=True, check=True
    )
    version, file, *path = ran.stdout.split()
    assert (version, file) == (f"{TORCH}+cpu", str(site_of(venv) / "torch/__init__.py"))
    assert not [one for one in path if one.endswith(("pytorch", ".egg"))]
    said = install("--python", str(venv), "--undo", "--yes")
    assert said.exit == 0, said.err
    assert state_with_bytecode(venv) == before
    assert state_of(outside(world)) == around


# --- what is refused ------------------------------------------------------------------------------


def empty_list(world: World, venv: Path) -> None:
    plain(world, venv)
    (site_of(venv) / "torch-2.0.0.dist-info/RECORD").write_text("")


def link_that_others_share(world: World, venv: Path) -> None:
    """nvidia's libraries on a larger disk, those of others among them."""
    neighbour = world.wheel("nvidia-nccl", "2.0", files={"nvidia/nccl/lib.so": "n"})
    world.fill(venv, neighbour)
    shutil.move(site_of(venv) / "nvidia", outside(world) / "nvidia")
    (site_of(venv) / "nvidia").symlink_to(outside(world) / "nvidia")


LEADS_OUT = "a symbolic link leads out of it"
REFUSED: dict[str, tuple[Form, str]] = {
    "an empty list": (empty_list, "keeps no list of its files (RECORD)"),
    "a link that others share": (link_that_others_share, LEADS_OUT),
    "a link to the system's torch": (link_to_the_systems_torch, LEADS_OUT),
    "a file where a folder comes": (a_file_where_a_folder_comes, "the previous state was restored"),
    "a folder where a file comes": (a_folder_where_a_file_comes, "is a folder"),
}


@pytest.mark.parametrize(("form", "cause"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.one_in(3)
def test_what_could_not_be_put_back_is_refused(
    world: World, install: Install, form: Form, cause: str
) -> None:
    venv = world.venv()
    form(world, venv)
    before, around = state_with_bytecode(venv), state_of(outside(world))
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 3, said.err
    assert cause in " ".join(said.err.split())
    assert "hint: " in said.err
    assert state_with_bytecode(venv) == before
    assert state_of(outside(world)) == around
    assert not (venv / ".gpusetup").exists()
