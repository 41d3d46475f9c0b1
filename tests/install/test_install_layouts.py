"""Every layout of a target that people have, in one table: the new state exactly, or the former
state exactly with one line that says why; nothing outside of the target is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from installing import (
    LEFT_ASIDE,
    TORCH,
    WANTED,
    Install,
    World,
    entry_state,
    needs_linux,
    site_of,
)

pytestmark = needs_linux

FORMER = {"torch/__init__.py": "", "torch/old.py": "", "nvidia/a/lib.so": "a"}


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """torch, with a file in a namespace of others, one beside its package, and a manual."""
    data = f"torch-{TORCH}+cpu.data/data/share/man/man1/torch.1"
    world.add_torch("cpu", files={"nvidia/b/lib.so": "b", "top.py": "", data: "manual"})
    outside_of(world)
    return world


Made = Callable[[World], Path]
"""Makes a target and returns its folder."""


def outside_of(world: World) -> Path:
    """What must stay as it is."""
    folder = world.folder / "system"
    folder.mkdir(exist_ok=True)
    return folder


# --- how the environment was made -----------------------------------------------------------------


def former(world: World, venv: Path) -> Path:
    """The environment, with an older torch in it."""
    wheel = world.wheel("torch", "2.0.0", files=FORMER, scripts={"torchrun": "torch:main"})
    world.fill(venv, wheel)
    return venv


def plain(world: World) -> Path:
    return former(world, world.venv())


def two_names_of_lib(world: World) -> Path:
    """As on Fedora: `lib64` is a link to `lib`."""
    venv = plain(world)
    (site_of(venv) / "sitecustomize.py").write_text("import sys\nsys.platlibdir = 'lib64'\n")
    assert (venv / "lib64").is_symlink()
    return venv


def an_odd_name(world: World) -> Path:
    return former(world, world.venv('it\'s "Übung 数" [1] 100%s;&#|,= $HOME \\n `y`'))


def own_base(world: World) -> Path:
    """An interpreter with a prefix of its own: the real one's library, by links."""
    real = Path(os.path.realpath(sys.executable))
    library = Path(os.__file__).parent
    base = world.folder / "base"
    (base / "bin").mkdir(parents=True)
    (base / "lib" / library.name / "site-packages").mkdir(parents=True)
    (base / "bin/python").write_bytes(real.read_bytes())
    (base / "bin/python").chmod(0o755)
    for entry in library.iterdir():
        if entry.name not in ("site-packages", "EXTERNALLY-MANAGED"):
            (base / "lib" / library.name / entry.name).symlink_to(entry)
    return base


def scheme_of_debian(world: World) -> Path:
    """Debian's Python installs to `dist-packages`."""
    base = own_base(world)
    library = base / "lib" / Path(os.__file__).parent.name
    (library / "site-packages").rename(library / "dist-packages")
    (library / "site-packages").mkdir()
    customized = (
        "import sys, sysconfig\n"
        "paths = sysconfig._INSTALL_SCHEMES['posix_prefix']\n"
        "for name in ('purelib', 'platlib'):\n"
        "    paths[name] = paths[name].replace('site-packages', 'dist-packages')\n"
        "sys.path.append(sysconfig.get_paths()['purelib'])\n"
    )
    (library / "site-packages/sitecustomize.py").write_text(customized)
    return base


# --- the forms of the former torch ----------------------------------------------------------------


def link_to_the_systems_torch(world: World) -> Path:
    """As people do on a Jetson: a link, and nothing that says what it is."""
    venv, system = world.venv(), outside_of(world) / "dist-packages/torch"
    system.mkdir(parents=True)
    (system / "__init__.py").write_text("the system's\n")
    (system / "version.py").write_text("the system's\n")
    (site_of(venv) / "torch").symlink_to(system)
    return venv


def not_utf8(world: World) -> Path:
    site = site_of(venv := plain(world))
    (site / "shared").mkdir()
    (site / "shared/mine.txt").write_text("somebody else's\n")
    with (site / "torch-2.0.0.dist-info/RECORD").open("ab") as file:
        for name in (b"torch/caf\xe9.txt", b"shared/caf\xe9.txt"):
            (site / os.fsdecode(name)).write_bytes(b"latin\n")
            file.write(name + b",,\n")
    return venv


def a_folder_where_a_file_comes(world: World) -> Path:
    site = site_of(venv := world.venv())
    (site / "top.py").mkdir()
    (site / "top.py/inside.txt").write_text("mine\n")
    return venv


def empty_list(world: World) -> Path:
    venv = plain(world)
    (site_of(venv) / "torch-2.0.0.dist-info/RECORD").write_text("")
    return venv


# --- the table ------------------------------------------------------------------------------------

NEW, LEADS_OUT = (0, ""), (3, "a symbolic link leads outside")
LAYOUTS: dict[str, tuple[Made, tuple[int, str]]] = {
    "lib64 is a link to lib": (two_names_of_lib, NEW),
    "dist-packages": (scheme_of_debian, NEW),
    "an odd name": (an_odd_name, NEW),
    "names that are not UTF-8": (not_utf8, NEW),
    "an empty list": (empty_list, (3, "keeps no list of its files (RECORD)")),
    "a link to the system's torch": (link_to_the_systems_torch, LEADS_OUT),
    "a folder where a file comes": (a_folder_where_a_file_comes, (3, "is a folder")),
}
"""Name -> how it is made; its exit code, and what the one line says where it is refused."""


def states_of(folder: Path) -> dict[str, str]:
    """Every entry: whose it is, its mode, its content; without bytecode and the store."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")))
    return {
        str(name): f"{(there := (folder / name).lstat()).st_uid}:{there.st_gid} "
        + entry_state(folder / name)
        for name in names
        if not {*LEFT_ASIDE}.intersection(name.parts)
    }


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.one_in(5)
def test_every_layout_is_changed_exactly_or_not_at_all(
    name: str, world: World, install: Install
) -> None:
    made, (code, why) = LAYOUTS[name]
    venv = made(world)
    python = str(venv / "bin/python")
    before, outside = states_of(venv), states_of(outside_of(world))
    said = install("--python", python, *WANTED)
    assert said.exit == code, said.err
    assert states_of(outside_of(world)) == outside
    assert "Traceback" not in said.err
    if code:
        assert [row[:7] for row in said.err.splitlines()].count("error: ") == 1
        assert why in " ".join(said.err.split())
        assert states_of(venv) == before
        return
    infos = venv.glob("lib/python*/*-packages/[tT]orch-*.dist-info")
    assert [info.name for info in infos] == [f"torch-{TORCH}+cpu.dist-info"]
    asked = "import torch; print('is', torch.__version__)"
    ran = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    assert f"is {TORCH}+cpu" in ran.stdout, ran.stderr
    undone = install("--python", python, "--undo", "--yes")
    assert undone.exit == 0, undone.err
    assert states_of(venv) == before
    assert states_of(outside_of(world)) == outside
    assert not (venv / ".gpusetup").exists()
