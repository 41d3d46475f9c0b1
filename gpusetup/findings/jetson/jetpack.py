"""A Jetson: a torch that is not for its JetPack, and libraries that its torch does not declare."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.facts import JetPack
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
    package,
    serving,
)
from gpusetup.findings.layers import BROKEN_TORCH, Layer
from gpusetup.findings.record import Cause
from gpusetup.findings.torch.build import named, version_evidence
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Python
from gpusetup.model.shell import Line, filled, lines
from gpusetup.model.versions import Capability, parsed

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
    lacks = tuple(e for e in events(context, "cuda-lib-missing") if not _is_undeclared(e))
    if not (wrong or lacks or _is_for_others(context)):
        return
    if _lacks_undeclared(context) and not lacks:
        return  # torch is the right one: it fails for a library that it does not declare
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


def _capabilities(context: RuleContext) -> tuple[Capability, ...]:
    return tuple(gpu.compute_capability for gpu in gpus(context) if gpu.compute_capability)


def _is_for_others(context: RuleContext) -> bool:
    """A CUDA build whose kernels are not the board's, or whose CUDA its JetPack does not serve."""
    torch, jetpack = context.snapshot.torch, jetpack_of(board_of(context.snapshot))
    needed, known = cuda_needed(torch), [g for g in gpus(context) if g.compute_capability]
    raised = events(context, "no-kernel-image")
    by_torch = not any(event.values for event in raised)
    # No order: a text that names a JetPack and lacks kernels need not show which torch it has.
    if (raised and (needed or by_torch)) or (needed and cuda_errors(context, 209)):
        return True
    if not needed or torch.cuda_available:
        return False
    serves = context.snapshot.driver.cuda or (jetpack.cuda if jetpack else None)
    if serves and release(needed)[0] > release(serves)[0]:
        return True
    return bool(torch.kernels and known and all(serving(context, gpu) is None for gpu in known))


def _other_than(context: RuleContext, python: str) -> str:
    """What the wheel is for, where this Python is another."""
    own = context.snapshot.python.version
    if not own or parsed(own).release[:2] == parsed(python).release:
        return ""
    return f" (NVIDIA's wheels here are for Python {python}, not {own})"


def jetson_fix(context: RuleContext) -> Fix:
    """torch's own wheel where it serves the board, else NVIDIA's for this JetPack."""
    jetpack = jetpack_of(board_of(context.snapshot))
    if jetpack is None:
        return Fix(
            text="Install the torch wheel that NVIDIA publishes for this board's JetPack: the "
            "first line of the command's answer names its release",
            commands=lines("cat /etc/nv_tegra_release"),
        )
    if runs_ordinary_wheels(jetpack, _capabilities(context)):
        return _ordinary(context, jetpack)
    if jetpack.wheels is None:
        return Fix(
            text=f"{jetpack.name} is for Thor; on Orin torch's wheels run from {UNIFIED.name} on: "
            "flash it with SDK Manager",
            needs_root=True,
            needs_reboot=True,
        )
    return _vendors(context, jetpack, jetpack.wheels)


def _vendors(context: RuleContext, jetpack: JetPack, folder: str) -> Fix:
    """NVIDIA's wheel for a JetPack: what it links comes first, what cannot stay beside it goes."""
    if other := _other_than(context, jetpack.python):
        return _by_its_own_python(context, jetpack, folder, other)
    only_there = ("--force-reinstall", "--no-deps", "--no-index", "--find-links", folder)
    linked = _commands(context, jetpack.links, jetpack.cuda) if jetpack.links else ()
    left = tuple(name for name in ("torchvision", "torchaudio") if package(context, name))
    return Fix(
        text=f"Install NVIDIA's wheel for {jetpack.name}, after what it links and does not declare "
        "and before what it depends on. torchvision and torchaudio cannot follow: build them from "
        "source where a program needs them",
        commands=(
            *((paste.pip(context, "uninstall", "-y", *left),) if left else ()),
            *linked,
            paste.pip(context, "install", *only_there, "torch"),
            paste.pip(context, "install", "torch"),
        ),
    )


def _by_its_own_python(context: RuleContext, jetpack: JetPack, folder: str, other: str) -> Fix:
    """A new environment of the system's python3, for which NVIDIA makes its wheels."""
    new = f".venv-{jetpack.python}"
    python = Python(executable=f"{new}/bin/python", prefix=new, has_pip=True,
                    version=f"{jetpack.python}.0")  # fmt: skip
    there = replace(context, snapshot=replace(context.snapshot, python=python, packages=()))
    way = _vendors(replace(there, installer="pip"), jetpack, folder)
    make = paste.command(context, "/usr/bin/python3", "-m", "venv", new)
    text = f"Make an environment of the system's python3{other}. {way.text}"
    return replace(way, text=text, commands=(make, *way.commands))


def _ordinary(context: RuleContext, jetpack: JetPack) -> Fix:
    """torch's aarch64 wheel of the CUDA that the release serves, from its own index."""
    if paste.chosen(context) is not None:
        return paste.install_torch(context, f"{jetpack.name} runs torch's own aarch64 wheels. ")
    backend = "cu" + jetpack.cuda.replace(".", "")
    there = ("--force-reinstall", *paste.torch_index(context, backend))
    return Fix(
        text=f"{jetpack.name} runs torch's own aarch64 wheels: install the one for CUDA "
        f"{jetpack.cuda}",
        commands=(paste.pip(context, "install", *there, "torch"),),
    )


# --- libraries that are not declared ------------------------------------------------------------


def _is_undeclared(event: Event) -> bool:
    return undeclared(event.values.get("library", "")) is not None


def _lacks_undeclared(context: RuleContext) -> bool:
    return any(map(_is_undeclared, events(context, "cuda-lib-missing")))


def undeclared_fix(context: RuleContext, library: str) -> Fix | None:
    """The package of a library that a Jetson's torch links and does not declare, and its folder
    for the loader; None elsewhere."""
    board, row = board_of(context.snapshot), undeclared(library)
    if row is None or not (board or row.library == "libnvpl_"):
        return None
    needed = cuda_needed(context.snapshot.torch) or (jetpack_of(board) or UNIFIED).cuda
    return Fix(
        text=f"torch's wheel for Jetson links {library.partition('.so')[0]} and does not declare "
        "it: install it, and let the loader find it (put the second line into what starts your "
        "program too)",
        commands=_commands(context, library, needed),
    )


def _commands(context: RuleContext, library: str, cuda: str) -> tuple[Line, ...]:
    """What installs a library that is not declared, and leads the loader to it."""
    row, major = undeclared(library), cuda.partition(".")[0]
    if row is None:
        return ()
    install = paste.pip(context, "install", "--no-deps", *row.by_pip(major))
    return install, _found_in(context, row.below(major))


FIND = 'export LD_LIBRARY_PATH="$({python} -c {code})${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'


def _found_in(context: RuleContext, below: str) -> Line:
    """The loader looks in a folder of site-packages: where that is read, else asked for."""
    known = context.snapshot.python.site_packages
    if known:
        return paste.first_on(context, "LD_LIBRARY_PATH", f"{known}/{below}")
    code = f"import sysconfig; print(sysconfig.get_path('purelib') + '/{below}')"
    return filled(FIND, python=paste.python(context), code=code)


RULES = (jetson_wrong_wheel,)
