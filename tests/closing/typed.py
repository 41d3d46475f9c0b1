"""What typed commands leave behind: `paste(world, commands)`, as one block in one shell.

A command that this file does not know is refused by its name: the test that pastes it fails.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from closing.shells import Refused, read_line
from closing.world import World, answering, healthy, importing, loaded, named, open_node
from gpusetup.catalog.file import load_catalog
from gpusetup.cli import main
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Conda, Package, Python
from gpusetup.probe.snapshot_files import dump_snapshot

Words = Sequence[str]
TORCH_INDEX = "https://download.pytorch.org/whl/"
JETSON_FOLDER = "https://developer.download.nvidia.com/compute/redist/jp/v61/pytorch"


def paste(world: World, commands: Words) -> World:
    """The world after a block of commands; Refused by the first that fails."""
    for line in commands:
        for words in read_line(line, world.snapshot.os.family):
            try:
                world = typed_in(world, words)
            except Refused as problem:
                raise Refused(f"`{line}`: {problem}") from problem
    return world


def typed_in(world: World, words: Words) -> World:
    if words[0] == "sudo":
        words = words[1:]
    program = re.split(r"[/\\]", words[0])[-1].removesuffix(".exe")
    if re.fullmatch(r"python[\d.]*", program):
        if words[0] != world.snapshot.python.executable or words[1:3] != ("-m", "pip"):
            raise Refused("is not the judged interpreter's pip")
        return pip(world, "pip", words[3:])
    inside = world.snapshot.container.kind not in (None, "none")
    if inside and program in OF_A_HOST:
        raise Refused(f"{program}: a container has no kernel, services or driver of its own")
    if program not in EFFECTS:
        raise Refused(f"the simulator does not know {program}")
    return EFFECTS[program](world, words[1:])


def acts(command: str) -> bool:
    """Whether a command changes anything, rather than showing it."""
    words = command.removeprefix("sudo ").split()
    looks = words[0] in ("nvidia-smi", "ls", "dmesg", "grep", "journalctl", "lspci", "findstr")
    return not looks or "--gpu-reset" in words or "-c" in words


# --- packages -------------------------------------------------------------------------------------


def pip(world: World, by: str, words: Words) -> World:
    """`pip VERB …` or `uv pip VERB …` in the judged environment."""
    python = world.snapshot.python
    if by == "pip" and python.has_pip is False:
        raise Refused("No module named pip")
    if python.externally_managed:
        raise Refused("externally-managed-environment")
    names, options = sorted_out(words[1:])
    if words[0] == "uninstall":
        for name in names:
            mine = [one for one in named(world, name) if one.installer != "conda"]
            world = without(world, *mine[-1:])
        return importing(world.without_events("torch-half-installed"))
    if words[0] != "install" or not names:
        raise Refused(f"{by} does not know {words}")
    for text in names:
        requirement = Requirement(text)
        there = [one for one in named(world, requirement.name) if one.installer != "conda"]
        anew = "--force-reinstall" in options or requirement.name in options.values()
        is_met = there and requirement.specifier.contains(there[-1].version, prereleases=True)
        if not is_met or anew:
            new = wheel(world, requirement, options, by)
            world = without(world, *named_here(world, new.name))
            packages = (*(world.snapshot.packages or ()), new)
            world = world.showing(packages=packages)
            if new.name == "torch":
                world = world.without_events("torch-half-installed")
    return importing(world)


def sorted_out(words: Words) -> tuple[list[str], dict[str, str]]:
    """The names, and the options with their values; an option without one has "" for it."""
    valued = ("--index-url", "--index", "--default-index", "--find-links", "--python")
    names, options, rest = [], {}, list(words)
    while rest:
        word, _, value = rest.pop(0).partition("=") if rest[0][0] == "-" else (rest.pop(0), "", "")
        if not word.startswith("-"):
            names.append(word)
        elif word == "--reinstall-package":
            options[f"{word} {value}"] = value
        else:
            options[word] = rest.pop(0) if word in valued and not value else value
    return names, options


def named_here(world: World, name: str) -> list[Package]:
    """The distributions that an install replaces: conda's own records stay, elsewhere."""
    site = world.snapshot.python.site_packages
    return [one for one in named(world, name) if one.installer != "conda" or one.location == site]


def without(world: World, *packages: Package) -> World:
    kept = tuple(one for one in world.snapshot.packages or () if one not in packages)
    return world.showing(packages=kept)


def wheel(world: World, wanted: Requirement, options: dict[str, str], by: str) -> Package:
    """The wheel that the index has for this interpreter; Refused if it has none."""
    machine = world.snapshot
    version = next((spec.version for spec in wanted.specifier if spec.operator == "=="), "")
    index = options.get("--index-url") or options.get("--index") or options.get("--find-links", "")
    backend: str | None = index.removeprefix(TORCH_INDEX)
    if index == JETSON_FOLDER and machine.os.jetson:
        version, backend = "2.5.0a0+872d972e41.nv24.8", "cu126"
    elif wanted.name not in ("torch", "torchvision", "torchaudio"):
        version, backend = version or "99.0", None
    else:
        rows = [row for row in load_catalog().builds if serves(world, row)]
        if version:
            public = version.partition("+")[0]
            rows = [row for row in rows if getattr(row, wanted.name) == public]
        # Without an index, the newest build for this machine's CUDA stands for the default one.
        rows = [row for row in rows if row.backend == backend] if index else rows
        rows = rows if version else [row for row in rows if row.cuda == machine.driver.cuda]
        if not rows:
            raise Refused(f"No matching distribution found for {wanted} in {index}")
        backend = rows[-1].backend
        version = version or f"{rows[-1].torch}+{backend}"
        if "+" not in version:
            version += f"+{backend}"
    return Package(
        name=wanted.name,
        version=version,
        installer=by,
        channel=backend,
        location=machine.python.site_packages,
        intact=True,
    )


def serves(world: World, row: Any) -> bool:
    """Whether a build of the catalog has a wheel for this interpreter."""
    os, python = world.snapshot.os, world.snapshot.python
    version = ".".join((python.version or "").split(".")[:2])
    is_here = (row.os, row.machine, row.channel) == (os.family, os.machine, "pytorch")
    return is_here and version in row.pythons and python.bits != 32


def conda(world: World, words: Words) -> World:
    """`conda remove`: its packages go, with the files of those that depend on them."""
    gone = {word for word in words if not word.startswith("-")}
    gone |= {"torch", "pytorch-cuda"} if "pytorch" in gone else set()
    kept = tuple(
        one
        for one in world.snapshot.packages or ()
        if not (one.name in gone and one.installer == "conda")
    )
    return importing(world.showing(packages=kept))


def uv(world: World, words: Words) -> World:
    if words[0] == "venv":
        return new_environment(world, words[-1], words[words.index("--python") + 1])
    python = words[words.index("--python") + 1]
    if words[0] != "pip" or python != world.snapshot.python.executable:
        raise Refused(f"uv does not change the judged environment: {words}")
    return pip(world, "uv", words[1:])


def new_environment(world: World, folder: str, version: str | None = None) -> World:
    """An environment that nothing is in yet; from now on it is the target."""
    python, is_windows = world.snapshot.python, world.snapshot.os.family == "windows"
    inner = "\\Scripts\\python.exe" if is_windows else "/bin/python"
    made = Python(
        version=f"{version}.1" if version else python.version,
        executable=folder + inner,
        prefix=folder,
        manager="uv",
        chosen_by=".venv",
        bits=64,
        externally_managed=False,
        has_pip=False,
        site_packages=f"{folder}/lib",
        site_writable=True,
    )
    environment = {**world.snapshot.environment, "VIRTUAL_ENV": folder}
    environment.pop("CONDA_PREFIX", None)
    world = world.without_events("foreign-library", "install-unfinished")
    return importing(
        world.showing(python=made, packages=(), environment=environment, conda=Conda())
    )


def gpusetup(world: World, words: Words) -> World:
    """`gpusetup install`: the steps of its own `--dry-run` are typed."""
    python, rest = world.snapshot.python.executable, list(words[1:])
    if "--venv" in rest:
        folder = rest[rest.index("--venv") + 1]
        # Its name says which Python it is for, where the machine's own does not do.
        is_for = re.search(r"3\.\d+", folder)
        world = new_environment(world, folder, is_for[0] if is_for else None)
        rest = []
    elif "--python" in rest:
        place = rest.index("--python")
        if rest[place + 1] != python:
            raise Refused(f"{rest[place + 1]} is not the judged interpreter")
        del rest[place : place + 2]
    for step in planned(world, rest)["steps"]:
        world = typed_in(world, tuple(step["argv"]))
    return world


def planned(world: World, words: Words) -> dict[str, Any]:
    """The answer of `install --dry-run` about this machine; Refused if it is an error."""
    with tempfile.TemporaryDirectory() as folder:
        machine, answer = Path(folder) / "machine.json", Path(folder) / "answer.json"
        machine.write_text(dump_snapshot(world.snapshot), encoding="utf-8")
        argv = ["install", *words, "--from", str(machine), "--dry-run", "--json"]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main([*argv, "--output", str(answer)])
        if code != 0:
            raise Refused(f"gpusetup install ends with exit {code}: {said.getvalue()[:400]}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found


# --- the driver -----------------------------------------------------------------------------------

OF_A_HOST = ("reboot", "modprobe", "nvidia-modprobe", "systemctl", "akmods", "usermod")
DRIVERS = {"nvidia-driver-580-open": "580.126.09", "akmod-nvidia": "595.45.04"}
"""A package of a distribution -> the driver in it."""


def package_tool(world: World, words: Words) -> World:
    """apt or dnf: a driver is on disk afterwards, and runs once it is loaded."""
    if any("rpmfusion-nonfree-release" in word for word in words):
        return world.having(repositories=world.repositories | {"rpmfusion"})
    manager = [word for word in words if word.startswith("nvidia-fabricmanager-")]
    if manager and (world.snapshot.driver.version or "?") not in manager[0]:
        raise Refused(f"{manager[0]} is not of driver {world.snapshot.driver.version}")
    for word in words:
        if version := DRIVERS.get(word):
            if word == "akmod-nvidia" and "rpmfusion" not in world.repositories:
                raise Refused(f"no package {word}: its repository is not known")
            if any(gpu.compute_capability.major < 7 for gpu in world.hardware):
                raise Refused(f"{word} does not serve these GPUs")
            driver = replace(world.snapshot.driver, library_found=True, library_version=version)
            world = world.having(on_disk=version, building=word == "akmod-nvidia")
            world = answering(world.showing(driver=driver))
    return world


def reboot(world: World, _: Words) -> World:
    """All that lives in memory is gone; what is on disk is loaded."""
    if world.building:
        raise Refused("the kernel module is still being built")
    return loaded(world.having(hardware=tuple(map(healthy, world.hardware))))


def modprobe(world: World, words: Words) -> World:
    driver = world.snapshot.driver
    if words[-1] != "nvidia_uvm":
        return world if driver.module_loaded else loaded(world)
    if "-r" in words:
        return world.showing(driver=replace(driver, uvm_loaded=False))
    world = world.having(uvm_is_bad=False).showing(driver=replace(driver, uvm_loaded=True))
    return with_uvm_node(world)


def with_uvm_node(world: World, _: Words = ()) -> World:
    new = tuple(map(open_node, ("nvidia-uvm", "nvidia-uvm-tools")))
    return answering(world.showing(devices=(*(world.snapshot.devices or ()), *new)))


def join_group(world: World, _: Words) -> World:
    """After joining the group and logging in again, the nodes are open."""
    opened = tuple(
        replace(node, readable=True, writable=True) for node in world.snapshot.devices or ()
    )
    driver = replace(world.snapshot.driver, nvml_code=0)
    gpus = world.snapshot.gpus or world.hardware
    return answering(world.showing(devices=opened, gpus=gpus, driver=driver))


def nvidia_smi(world: World, words: Words) -> World:
    """`--gpu-reset -i LIST` by index; it shows GPUs otherwise."""
    if "--gpu-reset" not in words:
        return world
    chosen = words[words.index("-i") + 1].split(",")
    gpus = tuple(
        healthy(gpu) if str(index) in chosen else gpu
        for index, gpu in enumerate(world.snapshot.gpus or ())
    )
    return answering(world.without_events("xid", "ecc-error", "hardware-fault").showing(gpus=gpus))


def systemctl(world: World, _: Words) -> World:
    gpus = tuple(map(healthy, world.snapshot.gpus or ()))
    return answering(world.having(fabric_down=False).showing(gpus=gpus))


def docker(world: World, words: Words) -> World:
    """`run --gpus`: the container toolkit mounts the host's driver and its nodes."""
    if words[0] != "run" or "--gpus" not in words:
        raise Refused(f"docker gives no GPU: {words}")
    container = replace(world.snapshot.container, nvidia_requested=True)
    world = world.without_events("container-nvml-lost", "container-driver-capability-missing")
    return loaded(world.having(on_disk="570.211.01").showing(container=container))


def export(world: World, words: Words) -> World:
    """A variable set, or forgotten, in the shell that runs programs next."""
    environment = dict(world.snapshot.environment)
    for word in words:
        name, is_set, value = word.partition("=")
        environment.pop(name, None)
        if is_set:
            environment[name] = value
    world = world.showing(environment=environment)
    if any(word.startswith("LD_LIBRARY_PATH") for word in words):
        container = replace(world.snapshot.container, cuda_compat_path=None)
        events = ("foreign-library", "ld-library-path-conflict", "libcuda-stub")
        world = world.showing(container=container).without_events(*events)
        world = with_own_libcuda(world)
    return answering(world)


def move(world: World, words: Words) -> World:
    stale = world.snapshot.driver.libcuda_path
    return answering(with_own_libcuda(world)) if stale == words[0] else world


def with_own_libcuda(world: World) -> World:
    """The driver's own libcuda is the first that is found."""
    driver = world.snapshot.driver
    own = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{driver.library_version or driver.version}"
    changed = world.having(stale_libcuda=None)
    return changed.showing(driver=replace(driver, libcuda_path=own))


EFFECTS: dict[str, Callable[[World, Words], World]] = {
    **dict.fromkeys(("modinfo", "ldconfig"), lambda world, _: world),
    **dict.fromkeys(("apt", "dnf"), package_tool),
    "akmods": lambda world, _: world.having(building=False),
    "conda": conda,
    "docker": docker,
    "export": export,
    "gpusetup": gpusetup,
    "modprobe": modprobe,
    "mv": move,
    "nvidia-modprobe": with_uvm_node,
    "nvidia-smi": nvidia_smi,
    "reboot": reboot,
    "systemctl": systemctl,
    "unset": export,
    "usermod": join_group,
    "uv": uv,
}
"""Program -> what it leaves."""
