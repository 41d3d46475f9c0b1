"""Why torch for one maker's GPUs is not exchanged unasked, and a command for each reason. Pure."""

from __future__ import annotations

from gpusetup.accelerators import nvidia
from gpusetup.accelerators.makers import BY_ID, is_judged, is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Resolution
from gpusetup.resolver.held import concluded, vendors_of
from gpusetup.resolver.least import Decision


class Reason(Frozen):
    """One of the usual reasons, and what to type if it is the one."""

    because: str
    command: tuple[str, ...]


def told(decision: Decision, machine: Snapshot, catalog: Catalog) -> str:
    """What is there, and that it stays."""
    guess, whose = concluded(machine, catalog), _maker(decision)
    why = f"{guess[0].upper()}{guess[1:]}. " if guess else ""
    if whose is None:
        return f"{why}No GPU needs another build: it stays unchanged"
    here = "and this machine shows none"
    if _serves_its_maker(decision, machine):
        here = "which is here; no other build for it is known"
    build = f"torch {machine.torch.version} is a build for {BY_ID[whose].name} GPUs"
    return f"{why}{build}, {here}: it was left as it is"


def _maker(decision: Decision) -> str | None:
    return maker_of(decision.held.backend) if decision.held else None


def _serves_its_maker(decision: Decision, machine: Snapshot) -> bool:
    """Whether a GPU of the maker is there that the installed torch is for (AMD's, Intel's)."""
    maker = _maker(decision)
    return is_seen_only(maker) and maker in vendors_of(machine)


def reasons(
    decision: Decision,
    machine: Snapshot,
    target: tuple[str, ...],
    packages: tuple[str, ...] = (),
) -> tuple[Reason, ...]:
    """The usual reasons; `target` are the words that name the environment, `packages` what was
    asked for besides."""
    newest, maker = decision.newest.build, _maker(decision)
    held = decision.held.backend if decision.held else ""
    install = ("gpusetup", "install", *target, *packages)
    backend = newest.backend if newest and newest.backend != held else "cpu"
    uses = "you asked for the CPU"
    if is_judged(maker_of(backend)):
        gpu = machine.gpus[0].name if machine.gpus else "an NVIDIA GPU"
        uses = f"you want to use {gpu}"
    other = Reason(because=uses, command=(*install, "--backend", backend))
    if _serves_its_maker(decision, machine) and not machine.gpus:
        return (other,)
    host = ("--backend", held) if is_seen_only(maker) else ("--gpu", "NAME")
    whose = BY_ID[maker or nvidia.MAKER.id].name
    image = "this image is built on a machine without its GPU"
    silent = f"the {whose} GPU is here and its driver is missing or does not answer"
    return (
        Reason(because=image, command=(*install, *host)),
        other,
        Reason(because=silent, command=("gpusetup", "doctor", *target)),
    )


def nothing_fits(resolution: Resolution) -> Unsatisfiable:
    """Why: what was asked for, or what keeps the builds of that from this machine."""
    advice = resolution.advice
    asked = [r for r in resolution.rejections if not r.reason.startswith("is not the ")]
    reasons = [f"{r.torch} {r.backend}: {r.reason}" for r in asked[:5]]
    return Unsatisfiable(
        "\n  ".join(("No PyTorch build fits this machine", *resolution.notes, *reasons)),
        hint=f"another {advice.change} ({advice.to}) gives {advice.gives}" if advice else None,
    )
