"""Why torch for one maker's GPUs is not exchanged unasked, and a command for each reason. Pure."""

from __future__ import annotations

from gpusetup.accelerators import nvidia
from gpusetup.accelerators.makers import BY_ID, MAKERS, is_judged, is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Resolution, TorchBuild
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
        return f"{why}No GPU is seen that another build would be for: it was left as it is"
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
    """The three usual reasons; `target` are the words that name the environment, `packages` what
    was asked for besides."""
    held = decision.held
    assert held is not None
    install = ("gpusetup", "install", *target)
    other = Reason(
        because=_other_gpu(decision, machine),
        command=(*install, *packages, "--backend", _other_backend(decision)),
    )
    if serves_its_maker(decision, machine) and not machine.gpus:
        return (other,)
    whose = BY_ID[maker_of(held.backend) or nvidia.MAKER.id].name
    return (
        Reason(
            because="this image is built on a machine without its GPU",
            command=(*install, *packages, *_for_its_host(held)),
        ),
        other,
        Reason(
            because=f"the {whose} GPU is here and its driver is missing or does not answer",
            command=("gpusetup", "doctor", *target),
        ),
    )


def _for_its_host(held: TorchBuild) -> tuple[str, ...]:
    """NVIDIA's GPUs can be named; of the others only the backend is known here."""
    if not is_seen_only(maker_of(held.backend)):
        return ("--for-gpu", "NAME")
    return ("--backend", held.backend)


def _other_backend(decision: Decision) -> str:
    newest, held = decision.newest.build, decision.held
    assert held is not None
    return newest.backend if newest is not None and newest.backend != held.backend else "cpu"


def _other_gpu(decision: Decision, machine: Snapshot) -> str:
    backend = _other_backend(decision)
    if is_judged(maker_of(backend)):
        name = machine.gpus[0].name if machine.gpus else "an NVIDIA GPU"
        return f"the GPU to be used is {name}"
    vendors, own = vendors_of(machine), maker_of(decision.held.backend if decision.held else None)
    if is_seen_only(own) and own in vendors:
        return "that GPU is not to be used: the CPU build works"
    other = next((m.name for m in MAKERS if not m.judged and m.id in vendors), None)
    whose = f"the GPU is {other}'s" if other else "the GPU is another maker's, or there is none"
    return f"{whose}: the CPU build works"


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
