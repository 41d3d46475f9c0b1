"""What stands around a process: variables of its shell, its container, WSL, its environment."""

from __future__ import annotations

from collections.abc import Sequence

from closing.seen import answering, importing, loaded
from closing.shells import Refused
from closing.world import DriverPackage, World
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Conda, Package, Python

HOST_DRIVER = DriverPackage(version="570.211.01", open=True, signed=True)
"""The driver of a container's host that shows none."""


def set_variable(world: World, name: str, value: str | None) -> World:
    """A variable set, or forgotten where `value` is None, in the shell that runs programs next."""
    environment = {k: v for k, v in world.snapshot.environment.items() if k != name}
    if value is not None:
        environment[name] = value
    world = world.showing(environment=environment)
    if name == "LD_LIBRARY_PATH":
        world = _libraries_found(world, (value or "").split(":"))
    return answering(world)


def _libraries_found(world: World, folders: Sequence[str]) -> World:
    """The loader looks into these folders first: what was found in others is the system's now."""
    machine = world.snapshot
    compat, path = machine.container.cuda_compat_path, machine.driver.libcuda_path or ""
    if compat and compat not in folders:
        container = replace(machine.container, cuda_compat_path=None)
        world = world.showing(container=container)
    folder = path.rpartition("/")[0]
    by_itself = folder == "/usr/local/lib"  # the loader's own list names it
    if path.startswith(("/usr/local", "/opt")) and folder not in folders and not by_itself:
        world = with_own_libcuda(world)
    return world.without_events("foreign-library", "ld-library-path-conflict", "libcuda-stub")


def with_own_libcuda(world: World) -> World:
    """The driver's own libcuda is the first that is found."""
    driver = world.snapshot.driver
    own = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{driver.library_version or driver.version}"
    changed = world.having(stale_libcuda=None)
    return changed.showing(driver=replace(driver, libcuda_path=own))


def deleted(world: World, paths: Sequence[str]) -> World:
    """`rm` or `mv` of files: a copy of libcuda that is gone is not found any more."""
    stale = world.snapshot.driver.libcuda_path or ""
    gone = [path for path in paths if not path.startswith("-")]
    if any(stale == path or stale.startswith(path.rstrip("*/") or "?") for path in gone):
        return answering(with_own_libcuda(world))
    return world


# --- disks --------------------------------------------------------------------------------------

NEEDS = {"site-packages": 6 << 30, "tmp": 1 << 29}
"""What an install of torch writes into a folder: unpacked, and on the way."""


def must_have_room(world: World) -> None:
    elsewhere = "TMPDIR" in world.snapshot.environment
    for disk in world.snapshot.disks:
        need = 0 if disk.subject == "tmp" and elsewhere else NEEDS.get(disk.subject, 0)
        if disk.free_bytes is not None and disk.free_bytes < need:
            raise Refused(f"[Errno 28] No space left on device: {disk.path}")


def caches_cleared(world: World) -> World:
    """Room everywhere but in the temporary folder, which no installer's cache fills."""
    roomy = tuple(
        disk if disk.subject == "tmp" else replace(disk, free_bytes=64 << 30)
        for disk in world.snapshot.disks
    )
    return world.showing(disks=roomy)


# --- containers ---------------------------------------------------------------------------------

TAKES_NEXT = ("-e", "--env", "-v", "--gpus", "--device", "--name", "--shm-size", "--runtime",
              "--group-add", "--security-opt", "--ulimit")  # fmt: skip


def container_run(world: World, words: Sequence[str]) -> World:
    """The container started anew: the same image, with what its options give it."""
    options, rest = _options(words)
    if not rest:
        raise Refused("docker run: no image")
    gives = any(o.startswith(("--gpus", "--device=nvidia.com", "--nv")) for o in options)
    return with_gpus(world) if gives else world


def _options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    options, rest = [], list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word in TAKES_NEXT and rest:
            word = f"{word}={rest.pop(0)}"
        options.append(word)
    return options, rest


def with_gpus(world: World) -> World:
    """What the container toolkit mounts: the host's driver and its nodes."""
    if not world.hardware:
        raise Refused("docker: could not select device driver with capabilities: [[gpu]]")
    environment = {
        name: value
        for name, value in world.snapshot.environment.items()
        if name not in ("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES")
    }
    container = replace(world.snapshot.container, nvidia_requested=True)
    world = world.without_events("container-nvml-lost", "container-driver-capability-missing")
    world = world.showing(container=container, environment=environment)
    return loaded(world, world.on_disk or HOST_DRIVER)


# --- environments -------------------------------------------------------------------------------


def new_environment(world: World, folder: str, version: str | None, *, by: str) -> World:
    """An environment that nothing is in yet; from now on it is the target."""
    python = world.snapshot.python
    windows = world.os.family == "windows"
    inner = "Scripts\\python.exe" if windows else "bin/python"
    join = "\\" if windows else "/"
    own = ".".join((python.version or "").split(".")[:2])
    made = Python(
        version=python.version if version in (None, own) else f"{version}.1",
        executable=f"{folder}{join}{inner}",
        prefix=folder,
        manager="uv" if by == "uv" else "venv",
        chosen_by=".venv",
        bits=python.bits if version is None else 64,
        free_threaded=bool(python.free_threaded) if version is None else version.endswith("t"),
        externally_managed=False,
        has_pip=by != "uv",
        site_packages=f"{folder}{join}lib",
        site_writable=True,
    )
    seed: tuple[Package, ...] = ()
    environment = {
        name: value
        for name, value in world.snapshot.environment.items()
        if name not in ("CONDA_PREFIX", "PYTHONPATH")
    } | {"VIRTUAL_ENV": folder}
    world = world.showing(python=made, packages=seed, environment=environment, conda=Conda())
    of_packages = (
        "foreign-library",
        *("install-unfinished", "guarded-set"),
    )
    return importing(world.without_events(*of_packages)).having(shells=(*world.shells, folder))
