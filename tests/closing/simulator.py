"""What typed commands leave behind: `paste(world, commands)`, as one block in one shell.

A command that this file does not know is refused by its name: the test that pastes it fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath, PureWindowsPath

from closing import drivers, kernel, surroundings
from closing.condas import conda
from closing.own import gpusetup
from closing.pips import pip_or_uv
from closing.seen import answering
from closing.shells import Refused, Typed, read_line
from closing.world import World
from gpusetup.model.frozen import replace

Effect = Callable[[World, Typed], World]


def paste(world: World, commands: Sequence[str]) -> World:
    """The world after a block of commands; Refused by the first that fails."""
    for place, line in enumerate(commands, 1):
        for typed in read_line(line, world.os.family):
            if place < len(commands) and asks(typed):
                raise Refused(f"`{line}` asks, and takes the next pasted line for the answer")
            try:
                world = typed_in(world, typed)
            except Refused as problem:
                raise Refused(f"`{line}`: {problem}") from problem
    return world


def asks(typed: Typed) -> bool:
    """Whether a program asks before it acts: what is pasted after it would be its answer.

    >>> asks(Typed(("sudo", "apt", "install", "gcc"))), asks(Typed(("gpusetup", "install")))
    (True, True)
    """
    words = typed.words[1:] if typed.program == "sudo" else typed.words
    program, rest = words[0], set(words[1:])
    if program in drivers.TOOLS:
        return drivers.asks(program, words[1:])
    if program in ("gpusetup", "conda", "mamba"):
        changes = rest & {"install", "remove", "uninstall"}
        return bool(changes) and not rest & {"--yes", "-y"}
    by_pip = words[1:3] == ("-m", "pip") or program == "pip"
    return by_pip and "uninstall" in rest and not rest & {"-y", "--yes"}


LOOKS = ("nvidia-smi", "ldconfig", "ls", "dmesg", "grep", "journalctl", "lspci", "findstr",
         "nvidia-bug-report.sh")  # fmt: skip
CHANGES = ("--gpu-reset", "-mig", "mig", "-c", "-pl", "-pm")


def acts(command: str) -> bool:
    """Whether a command changes anything, rather than showing it.

    >>> acts("sudo dmesg | grep -i nvrm"), acts("sudo nvidia-smi -i 0 -c DEFAULT")
    (False, True)
    """
    words = command.removeprefix("sudo ").split()
    looks = words[0] in LOOKS and (words[0] != "ldconfig" or "-p" in words)
    return not looks or bool(set(words) & set(CHANGES))


def typed_in(world: World, typed: Typed) -> World:
    words = typed.words
    if words[0] == "sudo":
        words = words[2:] if words[1] in ("-E", "-H") else words[1:]
    if world.os.family == "windows" and words[0].startswith("$env:"):
        if len(words) != 3 or words[1] != "=":
            raise Refused(f"no assignment: {' '.join(words)}")
        return surroundings.set_variable(world, words[0].removeprefix("$env:"), words[2])
    program = _program(words[0], world)
    if world.snapshot.container.kind not in (None, "none") and of_a_host(program, words[1:]):
        raise Refused(f"{program}: a container has no kernel, services or driver of its own")
    effect = EFFECTS.get(program)
    if effect is None:
        raise Refused(f"the simulator does not know {program}")
    return effect(world, Typed((program, *words[1:]), typed.piped_from))


OF_A_HOST = (
    "reboot", "modprobe", "nvidia-modprobe", "systemctl", "dkms", "akmods", "mokutil", "usermod",
    "dracut", "update-initramfs", "mkinitcpio", "dmesg", "chmod",
)  # fmt: skip


def of_a_host(program: str, words: Sequence[str]) -> bool:
    """Whether a command works on a host only: it acts on the kernel, its driver, its services."""
    drives = any("nvidia" in w and "container" not in w for w in words)
    changes = program == "nvidia-smi" and bool(set(words) & set(CHANGES))
    return program in OF_A_HOST or changes or (program in drivers.TOOLS and drives)


def _program(word: str, world: World) -> str:
    path = PureWindowsPath(word) if world.os.family == "windows" else PurePosixPath(word)
    name = path.name.removesuffix(".exe")
    if re.fullmatch(r"(?:python|py)(?:3(?:\.\d+)?)?", name):
        own = world.snapshot.python.executable
        if path.parent != type(path)(".") and word != own:
            raise Refused(f"{word} is not the interpreter {own}")
        return "python"
    return name


# --- the programs -------------------------------------------------------------------------------


def nothing(world: World, typed: Typed) -> World:
    """A program that only shows something, or whose effect no snapshot shows."""
    return world


def python(world: World, typed: Typed) -> World:
    words = typed.words[1:]
    if words[:2] == ("-m", "pip") and len(words) > 2:
        return pip_or_uv(world, "pip", words[2], words[3:])
    raise Refused(f"the simulator does not know python {' '.join(words[:2])}")


def uv(world: World, typed: Typed) -> World:
    words = typed.words[1:]
    if words[:1] == ("pip",) and len(words) > 1:
        _same_target(world, words)
        return pip_or_uv(world, "uv", words[1], words[2:])
    if words[:1] == ("venv",):
        place = words.index("--python") + 1 if "--python" in words else 0
        named = [w for n, w in enumerate(words[1:], 1) if not w.startswith("-") and n != place]
        version = words[place] if place else None
        folder = named[0] if named else ".venv"
        return surroundings.new_environment(world, folder, version, by="uv")
    if words[:2] == ("cache", "clean"):
        return surroundings.caches_cleared(world)
    raise Refused(f"the simulator does not know uv {' '.join(words[:2])}")


def _same_target(world: World, words: Sequence[str]) -> None:
    if "--python" in words and words[words.index("--python") + 1] not in (
        world.snapshot.python.executable,
        world.snapshot.python.prefix,
    ):
        raise Refused(f"{words[words.index('--python') + 1]} is not the judged interpreter")


def conda_or_mamba(world: World, typed: Typed) -> World:
    return conda(world, typed.words[1], typed.words[2:])


def system_packages(world: World, typed: Typed) -> World:
    return drivers.package_tool(world, typed.words[0], typed.words[1:])


def export(world: World, typed: Typed) -> World:
    for word in typed.words[1:]:
        name, _, value = word.partition("=")
        old = world.snapshot.environment.get(name, "")
        world = surroundings.set_variable(world, name, value.replace(f"${name}", old))
    return world


def unset(world: World, typed: Typed) -> World:
    for name in typed.words[1:]:
        world = surroundings.set_variable(world, name, None)
    return world


def nvidia_smi(world: World, typed: Typed) -> World:
    words = typed.words[1:]
    if "--gpu-reset" in words or "-r" in words:
        return kernel.reset(world, words)
    return world


def systemctl(world: World, typed: Typed) -> World:
    if any("fabricmanager" in word for word in typed.words):
        gpus = tuple(
            replace(gpu, fabric_state="completed") if gpu.fabric_state else gpu
            for gpu in world.snapshot.gpus or ()
        )
        return answering(world.having(fabric_down=False).showing(gpus=gpus))
    return world


def containers(world: World, typed: Typed) -> World:
    if typed.words[1] in ("run", "exec"):
        return surroundings.container_run(world, typed.words[2:])
    raise Refused(f"the simulator does not know {' '.join(typed.words[:2])}")


SHOW_ONLY = (
    "ldconfig", "ls", "dmesg", "grep", "journalctl", "lspci", "nvidia-bug-report.sh", "findstr",
    "echo", "printf", "cat", "uname", "which", "where", "Get-Command", "nvidia-ctk", "dkms",
    "update-initramfs", "dracut", "mkinitcpio", "ulimit", "source", "sleep", "modinfo",
    "newgrp", "mkdir", "wget", "git",
)  # fmt: skip

EFFECTS: dict[str, Effect] = {
    **dict.fromkeys(SHOW_ONLY, nothing),
    **dict.fromkeys(drivers.TOOLS, system_packages),
    **dict.fromkeys(("conda", "mamba", "micromamba"), conda_or_mamba),
    **dict.fromkeys(("docker", "podman", "apptainer", "singularity"), containers),
    "python": python,
    "uv": uv,
    "gpusetup": lambda world, typed: gpusetup(world, typed.words[1:], typed_in),
    "export": export,
    "unset": unset,
    "setx": lambda world, typed: surroundings.set_variable(world, *typed.words[1:3]),
    "rm": lambda world, typed: surroundings.deleted(world, typed.words[1:]),
    "mv": lambda world, typed: surroundings.deleted(world, typed.words[1:2]),
    "nvidia-smi": nvidia_smi,
    "systemctl": systemctl,
    "cd": lambda world, typed: world.having(folder=typed.words[1]),
    "akmods": lambda world, typed: world.having(building=False),
    "reboot": lambda world, typed: kernel.reboot(world),
    "modprobe": lambda world, typed: kernel.modprobe(world, typed.words[1:]),
    "nvidia-modprobe": lambda world, typed: answering(kernel.with_uvm_node(world)),
    "chmod": lambda world, typed: kernel.may_open(world),
    "usermod": lambda world, typed: kernel.may_open(world),
    "mokutil": lambda world, typed: world.having(
        key_pending=world.key_pending or "--import" in typed.words
    ),
}
"""Program -> what it leaves."""
