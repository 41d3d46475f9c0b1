"""Why torch for one maker's GPUs is not exchanged unasked, and a command for each reason. Pure."""

from __future__ import annotations

from gpusetup.model import Snapshot, TorchBuild
from gpusetup.resolver.held import maker_of
from gpusetup.resolver.least import Decision
from gpusetup.value import Value

MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


class Reason(Value):
    """One of the usual reasons, and what to type where it is the one."""

    because: str
    command: tuple[str, ...]


def told(decision: Decision, machine: Snapshot) -> str:
    """What is there, and that it stays."""
    held = decision.held
    assert held is not None
    maker = MAKERS[maker_of(held.backend) or "nvidia"]
    return (
        f"torch {machine.torch.version} is a build for {maker} GPUs, and this machine shows none: "
        "it was left as it is"
    )


def reasons(decision: Decision, machine: Snapshot, target: tuple[str, ...]) -> tuple[Reason, ...]:
    """The three usual reasons; `target` are the words that name the environment."""
    held = decision.held
    assert held is not None
    install = ("gpusetup", "install", *target)
    return (
        Reason(
            because="this image is built on a machine without its GPU",
            command=(*install, *_for_its_host(held)),
        ),
        Reason(
            because=_other_gpu(decision, machine),
            command=(*install, "--backend", _other_backend(decision)),
        ),
        Reason(
            because=f"the {MAKERS[maker_of(held.backend) or 'nvidia']} GPU is here and its driver "
            "is missing or does not answer",
            command=("gpusetup", "doctor", *target),
        ),
    )


def _for_its_host(held: TorchBuild) -> tuple[str, ...]:
    """NVIDIA's GPUs can be named; of the others only the backend is known here."""
    if maker_of(held.backend) == "nvidia":
        return ("--for-gpu", "NAME")
    return ("--backend", held.backend)


def _other_backend(decision: Decision) -> str:
    newest, held = decision.newest.build, decision.held
    assert held is not None
    return newest.backend if newest is not None and newest.backend != held.backend else "cpu"


def _other_gpu(decision: Decision, machine: Snapshot) -> str:
    backend = _other_backend(decision)
    if maker_of(backend) == "nvidia":
        name = machine.gpus[0].name if machine.gpus else "an NVIDIA GPU"
        return f"the GPU to be used is {name}"
    vendors = {device.vendor for device in machine.pci_devices or ()}
    other = next((MAKERS[one] for one in ("amd", "intel") if one in vendors), None)
    whose = f"the GPU is {other}'s" if other else "the GPU is another maker's, or there is none"
    return f"{whose}: the CPU build works"
