"""Every layout of a target that people have, in one table: the new state exactly, or the former
state exactly with one line that says why; nothing outside of the target is touched."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import test_install_forms as forms
from filelock import FileLock
from index_server import IndexServer, build_wheel, index_server
from installing import (
    LEFT_ASIDE,
    TORCH,
    Install,
    Said,
    World,
    bare_environment,
    enter,
    installer,
    needs_linux,
)

pytestmark = needs_linux

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
FILES = {"torch/lib/libtorch.so": "new" * 999, "nvidia/b/lib.so": "b", "shared/new.txt": "new"}
FORMER = {"torch/__init__.py": "", "torch/old.py": "", "nvidia/a/lib.so": "a"}
TORCHES = {"3.8": "2.4.1", "3.13": "2.9.1", "3.14": "2.9.1"}
"""What is installed where the usual version has no wheel."""


@dataclass(kw_only=True)
class Case:
    """A target, and how it is named and asked for."""

    world: World
    ends: contextlib.ExitStack
    patches: pytest.MonkeyPatch
    venv: Path
    """What is compared, every entry of it."""
    named: str = ""
    python: str = ""
    """What imports torch afterwards, where it is not the interpreter in `bin`."""
    torch: str = TORCH
    environment: dict[str, str | None] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()
    """What starts the program: it runs as a process of its own then."""
    folder: str = ""
    """Where it runs, as a process of its own."""

    @property
    def site(self) -> Path:
        return next(self.venv.glob("lib/python*/site-packages"))

    @property
    def outside(self) -> Path:
        return forms.outside(self.world)


# --- what makes them -----------------------------------------------------------------------------


def plain(case: Case) -> None:
    """An environment by uv, with an older torch."""
    case.world.venv(case.venv.relative_to(case.world.folder).as_posix())
    former(case)


def former(case: Case) -> None:
    wheel = case.world.wheel("torch", "2.0.0", files=FORMER, scripts={"torchrun": "torch:main"})
    case.world.fill(case.venv, wheel)


def by_venv(*words: str, python: str = sys.executable) -> Callable[[Case], None]:
    def made(case: Case) -> None:
        argv = [python, "-m", "venv", "--without-pip", *words, str(case.venv)]
        subprocess.run(argv, check=True, capture_output=True)
        former(case)

    return made


def two_names_of_lib(case: Case) -> None:
    """As on Fedora: `lib64` is a link to `lib`."""
    plain(case)
    (case.site / "sitecustomize.py").write_text("import sys\nsys.platlibdir = 'lib64'\n")
    assert (case.venv / "lib64").is_symlink()


def libraries_are_a_link_inside(case: Case) -> None:
    plain(case)
    site = case.site
    site.rename(case.venv / "packages")
    site.symlink_to("../../packages")


def libraries_are_a_link_outside(case: Case) -> None:
    plain(case)
    site = case.site
    site.rename(case.outside / "packages")
    site.symlink_to(case.outside / "packages")


def called(name: str) -> Callable[[Case], None]:
    def made(case: Case) -> None:
        case.venv = case.world.folder / name
        plain(case)

    return made


def leading_dash(case: Case) -> None:
    case.venv = case.world.folder / "home" / "-env"
    plain(case)
    case.named = "-env"


def base_is_gone(case: Case) -> None:
    plain(case)
    (case.venv / "bin/python").unlink()
    (case.venv / "bin/python").symlink_to("/nowhere/bin/python3")


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


def environment_of_a_managed_one(case: Case) -> None:
    managed_by_the_system(case)
    case.venv, base = case.world.folder / "env", case.python
    case.python = case.named = ""
    by_venv(python=base)(case)


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


def users_own_site(case: Case) -> None:
    """A torch in ~/.local, which an interpreter without an environment takes first."""
    no_environment(case)
    shadow(case.world.folder / f"home/.local/lib/{Path(os.__file__).parent.name}/site-packages")


def path_of_the_shell(case: Case) -> None:
    plain(case)
    shadow(case.outside / "mine")
    case.environment["PYTHONPATH"] = str(case.outside / "mine")
    case.launcher = ("env",)


def path_file(case: Case) -> None:
    plain(case)
    shadow(case.outside / "mine")
    line = f"import sys; sys.path.insert(0, {str(case.outside / 'mine')!r})\n"
    (case.site / "mine.pth").write_text(line)


def system_packages_with_torch(case: Case) -> None:
    """The base has a torch, and the environment sees it."""
    no_environment(case)
    case.venv, base = case.world.folder / "env", case.python
    case.python = ""
    subprocess.run(
        [base, "-m", "venv", "--without-pip", "--system-site-packages", str(case.venv)], check=True
    )
    case.python = str(case.venv / "bin/python")


def namespace_leftover(case: Case) -> None:
    case.world.venv(case.venv.name)
    (case.site / "torch/lib").mkdir(parents=True)
    (case.site / "torch/lib/left.so").write_text("left\n")
    (case.site / "torch/__pycache__").mkdir()


def odd_entries(case: Case) -> None:
    """A pipe, a socket and a loop of links among torch's own files."""
    plain(case)
    torch = case.site / "torch"
    os.mkfifo(torch / "pipe")
    (torch / "loop").symlink_to(".")
    (torch / "round").symlink_to("round")
    here = Path.cwd()
    os.chdir(torch)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
    os.chdir(here)


def odd_modes(case: Case) -> None:
    plain(case)
    torch = case.site / "torch"
    (torch / "old.py").chmod(0o4600)
    torch.chmod(0o3711)


def hard_links(case: Case) -> None:
    """As uv installs from its cache: the content has another name elsewhere."""
    plain(case)
    os.link(case.site / "torch/old.py", case.outside / "old.py")
    os.link(case.site / "nvidia/a/lib.so", case.outside / "lib.so")


# --- what the file system refuses ----------------------------------------------------------------


def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount, and change whose a file is")


def mounted(case: Case, folder: Path, *words: str) -> None:
    as_root()
    folder.mkdir(parents=True, exist_ok=True)
    said = subprocess.run(["mount", *words, str(folder)], capture_output=True, text=True)
    if said.returncode:
        pytest.skip(f"this system mounts nothing: {said.stderr.strip()}")
    case.ends.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)


def small_disk(
    options: str, full: Callable[[Path], None], *, checked: bool = True
) -> Callable[[Case], None]:
    """A disk of its own; not `checked`: it fills up after its room was found enough."""

    def made(case: Case) -> None:
        if not checked:
            case.patches.setattr("gpusetup.install.target.disk_space.shortage", lambda needs: None)
        disk = case.world.folder / "disk"
        mounted(case, disk, "-t", "tmpfs", "-o", options, "tmpfs")
        case.venv = disk / "env"
        plain(case)
        full(disk)

    return made


def filled(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def filled_but(count: int) -> Callable[[Path], None]:
    """DiskNeed for so many pages."""

    def full(disk: Path) -> None:
        filled(disk)
        size = (disk / "ballast").stat().st_size
        os.truncate(disk / "ballast", size - count * 4096)

    return full


def read_only_mount(case: Case) -> None:
    plain(case)
    mounted(case, case.venv, "--bind", str(case.venv))
    subprocess.run(["mount", "-o", "remount,ro,bind", str(case.venv)], check=True)


def bind_mount(case: Case) -> None:
    plain(case)
    elsewhere = case.venv.rename(case.world.folder / "lower")
    mounted(case, case.venv, "--bind", str(elsewhere))


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


def torch_is_a_mount(case: Case) -> None:
    """As a container mounts one package: it cannot be moved aside."""
    plain(case)
    mounted(case, case.site / "torch", "--bind", str(case.site / "torch"))


def libraries_are_a_mount(case: Case) -> None:
    """The libraries are another disk than the prefix: nothing can be renamed."""
    case.world.venv("env")
    mounted(case, case.site, "-t", "tmpfs", "tmpfs")
    former(case)


def owned_by_another(case: Case) -> None:
    as_root()
    plain(case)
    for path in (case.venv, *case.venv.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def foreign_to_this_user(case: Case) -> None:
    """The environment of a third one, changed by who is not root."""
    owned_by_another(case)
    case.launcher = unshared()


def unshared() -> tuple[str, ...]:
    """A user of another number, whom no password file knows; root's files are this user's."""
    words = ("unshare", "--user", "--map-user=54321", "--map-group=54321", "--")
    said = subprocess.run([*words, "id", "-u"], capture_output=True, text=True, check=False)
    if said.stdout.strip() != "54321":
        pytest.skip(f"this system has no user namespaces: {said.stderr.strip()}")
    return words


def user_without_a_name(case: Case) -> None:
    plain(case)
    case.launcher = unshared()
    case.environment |= {"USER": None, "LOGNAME": None}


def user_without_name_and_home(case: Case) -> None:
    user_without_a_name(case)
    case.environment["HOME"] = None


def immutable(inner: str) -> Callable[[Case], None]:
    def made(case: Case) -> None:
        as_root()
        plain(case)
        path = case.site / inner
        said = subprocess.run(["chattr", "+i", str(path)], capture_output=True, text=True)
        if said.returncode:
            pytest.skip(f"this file system has no such mark: {said.stderr.strip()}")
        case.ends.callback(
            subprocess.run, ["chattr", "-R", "-i", str(case.venv)], capture_output=True
        )

    return made


# --- the interpreter -----------------------------------------------------------------------------


def interpreter(version: str) -> Callable[[Case], None]:
    """An environment of another Python; that of `uv python find` or of pyenv."""

    def made(case: Case) -> None:
        import uv

        words = ("python", "find", "--no-python-downloads", "--no-project", "--system", version)
        environment = {**os.environ, "PATH": os.pathsep.join(pyenvs())}
        said = subprocess.run(
            [str(uv.find_uv_bin()), *words], env=environment, capture_output=True, text=True
        )
        if said.returncode:
            pytest.skip(f"there is no Python {version} on this machine")
        python = said.stdout.strip()
        argv = [python, "-I", "-m", "venv", "--without-pip", str(case.venv)]
        subprocess.run(argv, check=True)
        former(case)
        case.torch = TORCHES.get(version.rstrip("t"), TORCH)

    return made


def pyenvs() -> Iterator[str]:
    """PATH as it is, then every interpreter of pyenv."""
    yield os.environ["PATH"]
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    yield from map(str, sorted(home.glob(".pyenv/versions/3.*/bin")))


def customized(text: str) -> Callable[[Case], None]:
    def made(case: Case) -> None:
        plain(case)
        (case.site / "sitecustomize.py").write_text(text)

    return made


# --- what goes on around it ----------------------------------------------------------------------


def in_use(case: Case) -> None:
    """A process that has torch's library loaded."""
    plain(case)
    library = case.site / "torch/lib.so"
    library.write_bytes(b"x" * 8192)
    record = case.site / "torch-2.0.0.dist-info/RECORD"
    record.write_text(record.read_text() + "torch/lib.so,,\n")
    code = (
        "import mmap, sys; f = open(sys.argv[1], 'rb')\n"
        "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); print(m[0], flush=True)\n"
        "sys.stdin.read(); print(m[5000], flush=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == f"{ord('x')}\n"

    def ended() -> None:
        said, _ = child.communicate(timeout=20)
        assert (said, child.returncode) == (f"{ord('x')}\n", 0)

    case.ends.callback(ended)


def lock_is_held(case: Case) -> None:
    plain(case)
    (case.venv / ".gpusetup").mkdir()
    lock = FileLock(case.venv / ".gpusetup/lock")
    lock.acquire()
    case.ends.callback(lock.release)


def lock_is_stale(case: Case) -> None:
    plain(case)
    (case.venv / ".gpusetup").mkdir()
    (case.venv / ".gpusetup/lock").touch()
    (case.venv / ".gpusetup/installer").touch()


def folder_is_gone(case: Case) -> None:
    plain(case)
    gone = case.world.folder / "gone"
    gone.mkdir()
    case.folder = str(gone)
    case.launcher = ("sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh")


def variables(**changes: str | None) -> Callable[[Case], None]:
    """Variables with other values; `{}` stands for the folder of the case."""

    def made(case: Case) -> None:
        plain(case)
        folder = str(case.world.folder)
        case.environment |= {k: v and v.replace("{}", folder) for k, v in changes.items()}
        case.launcher = ("env",)

    return made


def no_home(case: Case) -> None:
    """Not even the folders that stand for parts of it."""
    variables(HOME=None, XDG_CACHE_HOME="{}/cache", XDG_STATE_HOME=None)(case)


def full_temporary_folder(case: Case) -> None:
    variables(TMPDIR="{}/tmp")(case)
    folder = case.world.folder / "tmp"
    mounted(case, folder, "-t", "tmpfs", "-o", "size=64k", "tmpfs")
    filled(folder)


# --- the table -----------------------------------------------------------------------------------

NEW = (0, "")
Made = Callable[[Case], None]
LAYOUTS: dict[str, tuple[Made, tuple[int, str]]] = {
    # how the environment was made
    "venv": (by_venv(), NEW),
    "venv of copies": (by_venv("--copies"), NEW),
    "sees the system's torch": (system_packages_with_torch, NEW),
    "lib64 is a link to lib": (two_names_of_lib, NEW),
    "site-packages is a link inside": (libraries_are_a_link_inside, NEW),
    "site-packages is a link outside": (
        libraries_are_a_link_outside,
        (3, "a symbolic link leads out of it"),
    ),
    "no environment": (no_environment, NEW),
    "managed by the system": (managed_by_the_system, (3, "managed by the operating system")),
    "environment of a managed one": (environment_of_a_managed_one, NEW),
    "dist-packages": (scheme_of_debian, NEW),
    # where it lies and how it is named
    "an odd name": (called('it\'s "Übung 数" [1] 100%s;&#|,= $HOME \\n `y`'), NEW),
    "very long": (called("/".join(["long" * 50] * 4)), NEW),
    "leading dash": (leading_dash, NEW),
    "base is gone": (base_is_gone, (2, "is not there")),
    # another torch before it
    "torch in the user's site": (users_own_site, (3, "imports before any of")),
    "torch on PYTHONPATH": (path_of_the_shell, (3, "imports before any of")),
    "torch by a .pth": (path_file, (3, "imports before any of")),
    # the form of the former torch
    "namespace leftover": (namespace_leftover, NEW),
    "pipe, socket, loops": (odd_entries, NEW),
    "odd modes": (odd_modes, NEW),
    "hard links from outside": (hard_links, NEW),
    # what the file system refuses
    "of another owner": (foreign_to_this_user, (3, "cannot be written by this user")),
    "read-only mount": (read_only_mount, (3, "cannot be written")),
    "immutable file": (immutable("torch/old.py"), NEW),
    "immutable package": (immutable("torch"), (3, "Operation not permitted")),
    "disk is full": (small_disk("size=4m", filled), (3, "No room on the disk of")),
    "disk is full in between": (
        small_disk("size=4m", filled_but(12), checked=False),
        (3, "No space left on device"),
    ),
    "bind mount": (bind_mount, NEW),
    "overlay": (overlay, NEW),
    "torch is a mount": (torch_is_a_mount, (3, "Device or resource busy")),
    "site-packages is a mount": (libraries_are_a_mount, NEW),
    # the interpreter
    "Python 3.8": (interpreter("3.8"), NEW),
    "free-threaded Python": (interpreter("3.13t"), NEW),
    "sitecustomize prints": (
        customized("print('hello'); print({})\n"),
        (4, "the wheels cannot be unpacked: "),
    ),
    # what goes on around it
    "torch is in use": (in_use, NEW),
    "lock is held": (lock_is_held, (3, "Another gpusetup is changing")),
    "lock is stale": (lock_is_stale, NEW),
    "current folder is gone": (folder_is_gone, NEW),
    "no HOME": (no_home, NEW),
    "TMPDIR is full": (full_temporary_folder, NEW),
    "TMPDIR is not there": (variables(TMPDIR="{}/nowhere"), NEW),
    "user without name and home": (user_without_name_and_home, NEW),
}
"""Name -> how it is made; its exit code, and what the one line says where it is refused."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexServer]:
    """One index for all: torch for every Python, and what it requires."""
    folder = tmp_path_factory.mktemp("layouts")
    with index_server(folder / "index") as server:
        for name, version in (("filelock", "3.15.0"), ("typing-extensions", "4.12.0")):
            server.add("simple", build_wheel(folder, name, version))
        for minor in range(8, 15):
            version = TORCHES.get(f"3.{minor}", TORCH)
            for abi in (f"cp3{minor}", f"cp3{minor}t"):
                server.add("whl/cpu", torch_wheel(folder, version, f"cp3{minor}-{abi}"))
        yield server


def torch_wheel(folder: Path, version: str, tag: str) -> Path:
    full = f"{version}+cpu"
    return build_wheel(
        folder,
        "torch",
        full,
        tag=f"{tag}-linux_x86_64",
        requires=("filelock", "typing-extensions>=4.8"),
        files={"torch/__init__.py": f"__version__ = '{full}'\n", **FILES},
        scripts={"torchrun": "torch:main"},
    )


@pytest.fixture
def case(tmp_path: Path, index: IndexServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    (tmp_path / "home").mkdir()
    world = World(folder=tmp_path, index=index, known=False)
    world.environment = bare_environment(tmp_path, index.simple)
    enter(world, monkeypatch)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "uv-data"))
    monkeypatch.setattr("gpusetup.install.switching.lock.LOCK_SECONDS", 0.2)
    with contextlib.ExitStack() as ends:
        yield Case(world=world, ends=ends, patches=monkeypatch, venv=tmp_path / "env")


def run(case: Case, install: Install, *words: str) -> Said:
    target: tuple[str, ...] = ("--python", case.named or str(case.venv / "bin/python"))
    if case.named.startswith("-"):
        target = (f"--python={case.named}",)
    if not case.launcher:
        return install(*target, *words)
    root = ("--index", case.world.index.index_root)
    changes = {"PYTHONPATH": "", **case.environment}
    values = {**os.environ, **{k: v for k, v in changes.items() if v}}
    paths = (str(ROOT), values.get("PYTHONPATH", ""))
    values["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    for name in [name for name, value in changes.items() if value is None]:
        values.pop(name, None)
    Path(case.folder or ".").mkdir(exist_ok=True)
    said = subprocess.run(
        [*case.launcher, sys.executable, "-m", "gpusetup", "install", *target, *root, *words],
        env=values,
        cwd=case.folder or None,
        capture_output=True,
        text=True,
        check=False,
    )
    return Said(exit=said.returncode, out=said.stdout, err=said.stderr)


def whole_state(folder: Path, *, without: Path | None = None) -> dict[str, str]:
    """Every entry: whose it is, its mode, its content; without bytecode and the store."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if Path(place, f) != without and f not in LEFT_ASIDE]
        for name in (*folders, *files):
            if name not in LEFT_ASIDE:
                path = Path(place, name)
                found[str(path.relative_to(folder))] = _entry(path)
    return found


def _entry(path: Path) -> str:
    there = path.lstat()
    owner = f"{there.st_uid}:{there.st_gid} {there.st_mode:o}"
    if stat.S_ISLNK(there.st_mode):
        return f"{owner} -> {path.readlink()}"
    if stat.S_ISREG(there.st_mode):
        return f"{owner} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return owner


OURS = ("cache", "uv-cache", "uv-data", "state", "wheels", "layers", "lower", "tmp", "disk", "gone")
"""What is no target and may change: caches, the log, what a mount shows a second time."""


def around(case: Case) -> dict[str, str]:
    state = whole_state(case.world.folder, without=case.venv)
    return {name: one for name, one in state.items() if Path(name).parts[0] not in OURS}


def torch_versions(case: Case) -> list[str]:
    infos = case.venv.glob("lib/python*/*-packages/[tT]orch-*.dist-info")
    return sorted(info.name for info in infos)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.one_in(96)
def test_every_layout_is_changed_exactly_or_not_at_all(
    name: str, case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    made, (code, why) = LAYOUTS[name]
    made(case)
    install = installer(case.world, capsys)
    store = case.venv / ".gpusetup"
    had_store = os.path.lexists(store)
    before, outside = whole_state(case.venv), around(case)
    words = ("--torch", case.torch, "--backend", "cpu", "--yes", "--no-verify")
    said = run(case, install, *words)
    assert said.exit == code, said.err
    assert around(case) == outside
    assert "Traceback" not in said.err
    if code:
        assert [row[:7] for row in said.err.splitlines()].count("error: ") == 1
        assert why in " ".join(said.err.split())
        assert whole_state(case.venv) == before
        assert os.path.lexists(store) == had_store
        return
    assert torch_versions(case) == [f"torch-{case.torch}+cpu.dist-info"]
    imports_the_new_one(case)
    undone = run(case, install, "--undo", "--yes")
    assert undone.exit == 0, undone.err
    assert whole_state(case.venv) == before
    assert around(case) == outside
    assert not store.exists()


def imports_the_new_one(case: Case) -> None:
    """The target's interpreter takes what was installed."""
    python = case.python or str(case.venv / "bin/python")
    asked = "import torch; print('is', torch.__version__)"
    said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    assert f"is {case.torch}+cpu" in said.stdout, said.stderr
