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
    """One of the usual reasons, and what to type where it is the one."""

    because: str
    command: tuple[str, ...]


def told(decision: Decision, machine: Snapshot, catalog: Catalog) -> str:
    """What is there, and that it stays."""
    held, version = decision.held, machine.torch.version
    assert held is not None
    guess = concluded(machine, catalog)
    why = f"{guess[0].upper()}{guess[1:]}. " if guess else ""
    whose = maker_of(held.backend)
    if whose is None:
        return f"{why}No GPU needs another build: it stays unchanged"
    build = f"{why}torch {version} is a build for {BY_ID[whose].name} GPUs"
    if serves_its_maker(decision, machine):
        return f"{build}, which is here; no other build for it is known: it was left as it is"
    return f"{build}, and this machine shows none: it was left as it is"


def serves_its_maker(decision: Decision, machine: Snapshot) -> bool:
    """Whether a GPU of the maker is there that the installed torch is for (AMD's, Intel's)."""
    maker = maker_of(decision.held.backend) if decision.held else None
    return is_seen_only(maker) and maker in vendors_of(machine)


def reasons(
    decision: Decision,
    machine: Snapshot,
    target: tuple[str, ...],
    packages: tuple[str, ...] = (),
) -> tuple[Reason, ...]:
    """The usual reasons; `target` are the words that name the environment, `packages` what was
    asked for besides."""
    held, newest = decision.held, decision.newest.build
    assert held is not None
    install, maker = ("gpusetup", "install", *target, *packages), maker_of(held.backend)
    differs = newest is not None and newest.backend != held.backend
    backend = newest.backend if newest is not None and differs else "cpu"
    gpu = machine.gpus[0].name if machine.gpus else "an NVIDIA GPU"
    uses = (
        f"the GPU to be used is {gpu}" if is_judged(maker_of(backend)) else "you asked for the CPU"
    )
    other = Reason(because=uses, command=(*install, "--backend", backend))
    if serves_its_maker(decision, machine) and not machine.gpus:
        return (other,)
    host = ("--backend", held.backend) if is_seen_only(maker) else ("--gpu", "NAME")
    whose = BY_ID[maker or nvidia.MAKER.id].name
    return (
        Reason(
            because="this image is built on a machine without its GPU", command=(*install, *host)
        ),
        other,
        Reason(
            because=f"the {whose} GPU is here and its driver is missing or does not answer",
            command=("gpusetup", "doctor", *target),
        ),
    )


def nothing_fits(resolution: Resolution) -> Unsatisfiable:
    """Why: what was asked for, or what keeps the builds of that from this machine."""
    advice = resolution.advice
    asked = [r for r in resolution.rejections if not r.reason.startswith("is not the ")]
    reasons = [f"{r.torch} {r.backend}: {r.reason}" for r in asked[:5]]
    return Unsatisfiable(
        "No PyTorch build fits this machine"
        + "".join(f"\n  {why}" for why in (*resolution.notes, *reasons)),
        hint=f"another {advice.change} ({advice.to}) gives {advice.gives}" if advice else None,
    )
