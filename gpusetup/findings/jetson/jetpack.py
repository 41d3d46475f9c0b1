"""A Jetson: a torch that is not for its JetPack, and libraries that its torch does not declare."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.jetpack import (
    FIRST_OF_THOR,
    UNIFIED,
    board_of,
    jetpack_of,
    runs_ordinary_wheels,
    undeclared,
)
from gpusetup.catalog.kernels import release
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    event_evidence,
    events,
    gpus,
    in_container,
    is_report,
    serving,
)
from gpusetup.findings.layers import BROKEN_TORCH, Layer
from gpusetup.findings.libraries.distributions import undeclared_commands
from gpusetup.findings.record import Cause
from gpusetup.findings.torch.build import named, version_evidence
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.shell import lines
from gpusetup.model.versions import parsed

JETSON_WRONG_WHEEL = Cause(
    id="jetson-wrong-wheel",
    place=(Layer.WHEEL, 40),
    title="a Jetson with a torch for servers",
    means="Until CUDA 13.2 the integrated GPU needs NVIDIA's wheels for its JetPack.",
    proven_by="A Jetson, and a CPU build or no CUDA",
    way_out="NVIDIA's wheel",
    source='NVIDIA, "Installing PyTorch for Jetson Platform"',
    explains=(
        *BROKEN_TORCH,
        "torch-cpu-build",
        "arch-too-old-for-wheel",
        "arch-too-new-for-wheel",
        "no-kernel-image",
    ),
)


def jetson_wrong_wheel(context: RuleContext) -> Iterator[Finding]:
    """A Jetson with a torch that was not built for its JetPack."""
    board, torch = board_of(context.snapshot), context.snapshot.torch
    if not board:
        return
    in_vain = any(event.values.get("asked") for event in events(context, "cuda-unavailable"))
    blind = torch.backend == "cpu" or torch.cuda_available is False or in_vain
    # No order: a text that speaks of torch need not show that it is installed.
    wrong = blind and (torch.installed or is_report(context)) and torch.installed is not False
    missing = events(context, "cuda-lib-missing")
    lacks = tuple(e for e in missing if undeclared(e.values.get("library", "")) is None)
    # Where all that is missing is what torch does not declare, torch is the right one.
    if (missing and not lacks) or not (wrong or lacks or _is_for_others(context)):
        return
    yield JETSON_WRONG_WHEEL.found(
        f"{named(context)} is not made for this Jetson ({board})",
        detail="torch's aarch64 wheels run on Thor from CUDA "
        f"{FIRST_OF_THOR.cuda} on, on Orin from {UNIFIED.cuda} on; every Jetson before needs "
        "NVIDIA's wheels for its JetPack.",
        evidence=(*event_evidence(lacks), *version_evidence(context)),
        fix=OF_THE_HOST if lacks and in_container(context) else jetson_fix(context),
    )


OF_THE_HOST = Fix(
    text="An image for a Jetson takes CUDA's libraries from its host until JetPack 4: start it "
    "with `--runtime nvidia`, and take the image whose L4T tag is the host's own release",
    looks=paste.look("see the host's release, on the host", *lines("cat /etc/nv_tegra_release")),
)


def _is_for_others(context: RuleContext) -> bool:
    """A CUDA build whose kernels are not the board's, or whose CUDA its JetPack does not serve."""
    torch, jetpack = context.snapshot.torch, jetpack_of(board_of(context.snapshot))
    raised = (*events(context, "no-kernel-image"), *cuda_errors(context, 209))
    needed, serves = cuda_needed(torch), context.snapshot.driver.cuda or (jetpack and jetpack.cuda)
    # No order: a text that names a JetPack and lacks kernels need not show which torch it has.
    if raised and (needed or not raised[0].values):
        return True
    newer = needed and serves and release(needed)[0] > release(serves)[0]
    known = [gpu for gpu in gpus(context) if gpu.compute_capability] if torch.kernels else []
    foreign = needed and known and all(serving(context, gpu) is None for gpu in known)
    return bool((newer or foreign) and not torch.cuda_available)


def jetson_fix(context: RuleContext) -> Fix:
    """torch's own wheel where it serves the board, else NVIDIA's for this JetPack."""
    jetpack = jetpack_of(board_of(context.snapshot))
    if jetpack is None:
        return Fix(
            text="Install the torch wheel that NVIDIA publishes for this board's JetPack: the "
            "first line of the command's answer names its release",
            commands=lines("cat /etc/nv_tegra_release"),
        )
    known = (gpu.compute_capability for gpu in gpus(context))
    if runs_ordinary_wheels(jetpack, filter(None, known)):
        return paste.install_torch(context, f"{jetpack.name} runs torch's own aarch64 wheels. ")
    if jetpack.wheels is None:
        return Fix(
            text=f"{jetpack.name} is for Thor; on Orin torch's wheels run from {UNIFIED.name} on: "
            "flash it with SDK Manager",
            needs_root=True,
            needs_reboot=True,
        )
    own = context.snapshot.python.version
    if own and parsed(own).release[:2] != parsed(jetpack.python).release:
        new = paste.command(context, "/usr/bin/python3", "-m", "venv", f".venv-{jetpack.python}")
        return Fix(
            text=f"NVIDIA's wheels for {jetpack.name} are for Python {jetpack.python}, not {own}: "
            "make an environment of the system's python3, and ask `gpusetup doctor` there",
            commands=(new,),
        )
    only_there = ("--force-reinstall", "--no-deps", "--no-index", "--find-links", jetpack.wheels)
    return Fix(
        text=f"Install NVIDIA's wheel for {jetpack.name}, after what it links and does not declare "
        "and before what it depends on. torchvision and torchaudio cannot follow: build them from "
        "source where a program needs them",
        commands=(
            paste.pip(context, "uninstall", "-y", "torchvision", "torchaudio"),
            *undeclared_commands(context, jetpack.links or "", jetpack.cuda),
            paste.pip(context, "install", *only_there, "torch"),
            paste.pip(context, "install", "torch"),
        ),
    )


RULES = (jetson_wrong_wheel,)
