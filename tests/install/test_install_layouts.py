"""Every layout of a target that people have, in one table: the new state exactly, or the former
state exactly with one line that says why; nothing outside of the target is touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from index_server import IndexServer, index_server
from installing import (
    LEFT_ASIDE,
    TORCH,
    WANTED,
    World,
    bare_environment,
    enter,
    entry_state,
    installer,
    needs_linux,
)

pytestmark = needs_linux

ROOT = Path(__file__).resolve().parents[2]
FORMER = {"torch/__init__.py": "", "torch/old.py": "", "nvidia/a/lib.so": "a"}


@dataclass(kw_only=True)
class Case:
    """A target, and how it is named and asked for."""

    world: World
    ends: contextlib.ExitStack
    venv: Path
    """What is compared, every entry of it."""
    named: str = ""
    python: str = ""
    """What imports torch afterwards, where it is not the interpreter in `bin`."""

    @property
    def site(self) -> Path:
        return next(self.venv.glob("lib/python*/site-packages"))

    @property
    def outside(self) -> Path:
        """What must stay as it is."""
        folder = self.world.folder / "system"
        folder.mkdir(exist_ok=True)
        return folder


# --- what makes them -----------------------------------------------------------------------------


def bare(case: Case) -> None:
    """An environment by uv."""
    case.world.venv(case.venv.relative_to(case.world.folder).as_posix())


def plain(case: Case) -> None:
    bare(case)
    former(case)


def former(case: Case) -> None:
    wheel = case.world.wheel("torch", "2.0.0", files=FORMER, scripts={"torchrun": "torch:main"})
    case.world.fill(case.venv, wheel)


def by_venv(case: Case) -> None:
    argv = [sys.executable, "-m", "venv", "--without-pip", str(case.venv)]
    subprocess.run(argv, check=True, capture_output=True)
    former(case)


def two_names_of_lib(case: Case) -> None:
    """As on Fedora: `lib64` is a link to `lib`."""
    plain(case)
    (case.site / "sitecustomize.py").write_text("import sys\nsys.platlibdir = 'lib64'\n")
    assert (case.venv / "lib64").is_symlink()


def an_odd_name(case: Case) -> None:
    case.venv = case.world.folder / 'it\'s "Übung 数" [1] 100%s;&#|,= $HOME \\n `y`'
    plain(case)


def own_base(case: Case) -> Path:
    """An interpreter with a prefix of its own: the real one's library, by links."""
    real = Path(os.path.realpath(sys.executable))
    library = Path(os.__file__).parent
    base = case.world.folder / "base"
    (base / "bin").mkdir(parents=True)
    (base / "lib" / library.name / "site-packages").mkdir(parents=True)
    (base / "bin/python").write_bytes(real.read_bytes())
    (base / "bin/python").chmod(0o755)
    for entry in library.iterdir():
        if entry.name not in ("site-packages", "EXTERNALLY-MANAGED"):
            (base / "lib" / library.name / entry.name).symlink_to(entry)
    case.venv, case.python = base, str(base / "bin/python")
    return base


def no_environment(case: Case) -> None:
    own_base(case)
    former(case)


def managed_by_the_system(case: Case) -> None:
    base = own_base(case)
    (base / "lib" / Path(os.__file__).parent.name / "EXTERNALLY-MANAGED").write_text("[x]\n")
    case.named = case.python


def scheme_of_debian(case: Case) -> None:
    """Debian's Python installs to `dist-packages`."""
    base = own_base(case)
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


def shadow(folder: Path) -> None:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text("__version__ = '0.1'\n")


def path_of_the_shell(case: Case) -> None:
    plain(case)
    shadow(case.outside / "mine")
    shell = case.ends.enter_context(pytest.MonkeyPatch.context())
    shell.setenv("PYTHONPATH", str(case.outside / "mine"))


def system_packages_with_torch(case: Case) -> None:
    """The base has a torch, and the environment sees it."""
    no_environment(case)
    case.venv, base = case.world.folder / "env", case.python
    case.python = ""
    subprocess.run(
        [base, "-m", "venv", "--without-pip", "--system-site-packages", str(case.venv)], check=True
    )
    case.python = str(case.venv / "bin/python")


# --- the forms of the former torch ---------------------------------------------------------------


def link_to_the_systems_torch(case: Case) -> None:
    """As people do on a Jetson: a link, and nothing that says what it is."""
    bare(case)
    system = case.outside / "dist-packages/torch"
    system.mkdir(parents=True)
    (system / "__init__.py").write_text("the system's\n")
    (system / "version.py").write_text("the system's\n")
    (case.site / "torch").symlink_to(system)


def nested_links(case: Case) -> None:
    plain(case)
    torch = case.site / "torch"
    (case.outside / "libcudart.so").write_text("the system's\n")
    (torch / "lib").mkdir()
    (torch / "lib/libcudart.so").symlink_to(case.outside / "libcudart.so")
    (torch / "lib/more").symlink_to(case.outside)
    (torch / "lib/dangling").symlink_to("nowhere")


def editable(case: Case) -> None:
    """`pip install -e`: a finder and a .pth, both in the list."""
    bare(case)
    sources = case.outside / "pytorch"
    (sources / "torch").mkdir(parents=True)
    (sources / "torch/__init__.py").write_text("mine\n")
    finder = "__editable___torch_2_1_finder.py"
    pth = "__editable__.torch-2.1.pth"
    content = {finder: f"MAPPING = {{'torch': '{sources}'}}\n", pth: f"import {finder[:-3]}\n"}
    case.world.fill(case.venv, case.world.wheel("torch", "2.1", files=content))


def not_utf8(case: Case) -> None:
    plain(case)
    site = case.site
    (site / "shared").mkdir()
    (site / "shared/mine.txt").write_text("somebody else's\n")
    with (site / "torch-2.0.0.dist-info/RECORD").open("ab") as file:
        for name in (b"torch/caf\xe9.txt", b"shared/caf\xe9.txt"):
            (site / os.fsdecode(name)).write_bytes(b"latin\n")
            file.write(name + b",,\n")


def two_of_one_name(case: Case) -> None:
    """What a broken removal left: an older metadata folder, without its list."""
    plain(case)
    left = case.site / "torch-1.9.0.dist-info"
    left.mkdir()
    (left / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.9.0\n")


def a_folder_where_a_file_comes(case: Case) -> None:
    bare(case)
    (case.site / "top.py").mkdir()
    (case.site / "top.py/inside.txt").write_text("mine\n")
    (case.venv / "bin/torchrun").mkdir()


def empty_list(case: Case) -> None:
    plain(case)
    (case.site / "torch-2.0.0.dist-info/RECORD").write_text("")


def link_that_others_share(case: Case) -> None:
    """nvidia's libraries on a larger disk, those of others among them."""
    plain(case)
    neighbour = case.world.wheel("nvidia-nccl", "2.0", files={"nvidia/nccl/lib.so": "n"})
    case.world.fill(case.venv, neighbour)
    shutil.move(case.site / "nvidia", case.outside / "nvidia")
    (case.site / "nvidia").symlink_to(case.outside / "nvidia")


# --- what the file system refuses ----------------------------------------------------------------


def mounted(case: Case, folder: Path, *words: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    folder.mkdir(parents=True, exist_ok=True)
    said = subprocess.run(["mount", *words, str(folder)], capture_output=True, text=True)
    if said.returncode:
        pytest.skip(f"this system mounts nothing: {said.stderr.strip()}")
    case.ends.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)


def overlay(case: Case) -> None:
    """As in a container: the environment is in a lower layer, and folders cannot be renamed."""
    case.venv = case.world.folder / "lower"
    plain(case)
    store = case.world.folder / "layers"
    mounted(case, store, "-t", "tmpfs", "tmpfs")
    (store / "upper").mkdir()
    (store / "work").mkdir()
    options = f"lowerdir={case.venv},upperdir={store}/upper,workdir={store}/work"
    case.venv = case.world.folder / "env"
    mounted(case, case.venv, "-t", "overlay", "-o", options, "overlay")


# --- the table -----------------------------------------------------------------------------------

NEW, LEADS_OUT = (0, ""), (3, "a symbolic link leads out of it")
Made = Callable[[Case], None]
LAYOUTS: dict[str, tuple[Made, tuple[int, str]]] = {
    # how the environment was made
    "venv": (by_venv, NEW),
    "sees the system's torch": (system_packages_with_torch, NEW),
    "lib64 is a link to lib": (two_names_of_lib, NEW),
    "no environment": (no_environment, NEW),
    "managed by the system": (managed_by_the_system, (3, "managed by the operating system")),
    "dist-packages": (scheme_of_debian, NEW),
    # where it lies and how it is named
    "an odd name": (an_odd_name, NEW),
    # another torch before it
    "torch on PYTHONPATH": (path_of_the_shell, (3, "imports before any of")),
    # what form the former torch has
    "links in torch": (nested_links, NEW),
    "editable": (editable, NEW),
    "names that are not UTF-8": (not_utf8, NEW),
    "the rest of a broken removal": (two_of_one_name, NEW),
    "an empty list": (empty_list, (3, "keeps no list of its files (RECORD)")),
    "a link that others share": (link_that_others_share, LEADS_OUT),
    "a link to the system's torch": (link_to_the_systems_torch, LEADS_OUT),
    "a folder where a file comes": (a_folder_where_a_file_comes, (3, "is a folder")),
    # what the file system refuses
    "overlay": (overlay, NEW),
}
"""Name -> how it is made; its exit code, and what the one line says where it is refused."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexServer]:
    """One index for all: torch, and what it requires."""
    folder = tmp_path_factory.mktemp("layouts")
    with index_server(folder / "index") as server:
        world = World(folder=folder, index=server)
        world.add_default("filelock", "3.15.0")
        world.add_default("typing-extensions", "4.12.0")
        data = f"torch-{TORCH}+cpu.data/data/share/man/man1/torch.1"
        world.add_torch("cpu", files={"nvidia/b/lib.so": "b", "top.py": "", data: "manual"})
        yield server


@pytest.fixture
def case(tmp_path: Path, index: IndexServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    (tmp_path / "home").mkdir()
    world = World(folder=tmp_path, index=index, known=False)
    world.environment = bare_environment(tmp_path, index.simple)
    enter(world, monkeypatch)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "uv-data"))
    monkeypatch.setattr("gpusetup.install.switching.lock.LOCK_SECONDS", 0.2)
    with contextlib.ExitStack() as ends:
        yield Case(world=world, ends=ends, venv=tmp_path / "env")


OURS = ("cache", "uv-cache", "uv-data", "state", "wheels", "layers", "lower", "tmp", "disk", "gone")
"""What is no target and may change: caches, the log, what a mount shows a second time."""


def whole_state(folder: Path, *without: str) -> dict[str, str]:
    """Every entry: whose it is, its mode, its content; without bytecode and the store."""
    left = {*LEFT_ASIDE, *without}
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")))
    return {
        str(name): f"{(there := (folder / name).lstat()).st_uid}:{there.st_gid} "
        + entry_state(folder / name)
        for name in names
        if not left.intersection(name.parts)
    }


def around(case: Case) -> dict[str, str]:
    return whole_state(case.world.folder, case.venv.name, *OURS)


def torch_versions(case: Case) -> list[str]:
    infos = case.venv.glob("lib/python*/*-packages/[tT]orch-*.dist-info")
    return sorted(info.name for info in infos)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.one_in(5)
def test_every_layout_is_changed_exactly_or_not_at_all(
    name: str, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    made, (code, why) = LAYOUTS[name]
    made(case)
    install = installer(case.world, capsys)
    store = case.venv / ".gpusetup"
    had_store = os.path.lexists(store)
    before, outside = whole_state(case.venv), around(case)
    target = ("--python", case.named or str(case.venv / "bin/python"))
    said = install(*target, *WANTED)
    assert said.exit == code, said.err
    assert around(case) == outside
    assert "Traceback" not in said.err
    if code:
        assert [row[:7] for row in said.err.splitlines()].count("error: ") == 1
        assert why in " ".join(said.err.split())
        assert whole_state(case.venv) == before
        assert os.path.lexists(store) == had_store
        return
    assert torch_versions(case) == [f"torch-{TORCH}+cpu.dist-info"]
    python = case.python or str(case.venv / "bin/python")
    asked = "import torch; print('is', torch.__version__)"
    ran = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    assert f"is {TORCH}+cpu" in ran.stdout, ran.stderr
    undone = install(*target, "--undo", "--yes")
    assert undone.exit == 0, undone.err
    assert whole_state(case.venv) == before
    assert around(case) == outside
    assert not store.exists()
