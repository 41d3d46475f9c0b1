"""Fixes for an installer that found no build for an AMD or Intel GPU in the index that it searched.

The catalog lists which of PyTorch's indexes for ROCm and XPU has which release of torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.accelerators.amd import INDEX_OF_AMD, RELATIVES, has_kernels
from gpusetup.accelerators.makers import AMD, BY_ID, INTEL
from gpusetup.catalog.builds import index_url
from gpusetup.choose.installed import vendors_of
from gpusetup.choose.other_makers import NAME_OF_BUILDS
from gpusetup.evidence.context import RuleContext, has_nvidia, on
from gpusetup.evidence.lookups import Lookup, labels_with, platform_of, pythons_of
from gpusetup.fixes import apple, maker_stacks, other_makers, paste
from gpusetup.fixes.maker_stacks import pytorchs_index
from gpusetup.model.finding import Alternative, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line
from gpusetup.model.versions import parsed

if TYPE_CHECKING:
    from packaging.version import Version

MOST_RELEASES_SHOWN = 3


def for_lookup(context: RuleContext, lookup: Lookup, cause: str) -> Fix:
    """The fix for an installer that found no build of a maker: another system's wheels, another
    index of the same maker, or another Python. It never leads to another maker's build."""
    builds = NAME_OF_BUILDS[lookup.maker]
    if on(context, "macos"):
        return apple.ordinary_wheel(context, builds)
    if lookup.maker == AMD.id and on(context, "windows"):
        return on_windows(context, lookup.torch)
    if cause == "python-no-wheel":
        return _with_another_python(context, lookup)
    labels = labels_with(context, lookup.torch, lookup.maker) if lookup.torch else ()
    # The catalog lists the release in the index that did not have it: another release is the way.
    if not labels or lookup.label in labels:
        return _another_release(context, lookup)
    fitting_label = _label_for_board(context, lookup, labels)
    names = listed(labels)
    indexes = "index" if len(labels) == 1 else "indexes"
    whose = f"The {indexes} for {names} {has(labels)} torch {lookup.torch}"
    text = f"{_what_is_offered(lookup)}. {whose}"
    if fitting_label is None:
        board = other_makers.amd_board(context)
        index = pytorchs_index(board.target)
        text += (
            f", but without kernels for {board.target}. Install the newest torch from "
            f"{index.rpartition('/')[2]}, whose wheels have them"
        )
        newest = paste.pip(context, "install", "torch", "torchvision", "--index-url", index)
        return Fix(text=text, commands=(newest,))
    text += f": install it from {'that index' if len(labels) == 1 else fitting_label}"
    commands = (_install_release(context, lookup, fitting_label),)
    override = _override_for_relative(context)
    if override:
        board = other_makers.amd_board(context)
        relative, _ = RELATIVES[board.target or ""]
        text += (
            f". Its wheels have no kernels for {board.target}, so set HSA_OVERRIDE_GFX_VERSION "
            f"to use those of the related {relative}"
        )
    return Fix(text=text, commands=(*commands, *override))


def listed(names: tuple[str, ...]) -> str:
    """The names as a list in a sentence.

    >>> listed(("rocm6.0", "rocm6.1")), listed(("xpu",))
    ('rocm6.0 and rocm6.1', 'xpu')
    """
    *first_names, last_name = names
    return f"{', '.join(first_names)} and {last_name}" if first_names else last_name


def has(names: tuple[str, ...]) -> str:
    """The verb for one name, or for several."""
    return "has" if len(names) == 1 else "have"


def _what_is_offered(lookup: Lookup) -> str:
    """A sentence about what the searched index has, as far as the installer listed it."""
    requested = f"{lookup.package} {lookup.version}" if lookup.version else lookup.package
    if not lookup.offered:
        return f"PyTorch's index for {lookup.label} has no {requested} for this system and Python"
    offered = lookup.offered[-MOST_RELEASES_SHOWN:]
    return f"PyTorch's index for {lookup.label} has {listed(offered)}, but not {requested}"


def _label_for_board(context: RuleContext, lookup: Lookup, labels: tuple[str, ...]) -> str | None:
    """The newest of these labels whose wheels have kernels for the text's GPU, or for its related
    target; None if none has. The newest label if the GPU's target is unknown."""
    target = other_makers.amd_board(context).target
    newest_first = sorted(labels, key=_rocm_of, reverse=True)
    if lookup.maker != AMD.id or target is None:
        return newest_first[0]
    relative, _ = RELATIVES.get(target, (target, ""))
    for label in newest_first:
        # None means a ROCm that is newer than the table, which drops few targets.
        if has_kernels(relative, label.removeprefix("rocm"), lookup.torch or "") is not False:
            return label
    return None


def _rocm_of(label: str) -> Version:
    """The ROCm version in a label, to sort by."""
    return parsed(label.removeprefix("rocm").removeprefix("xpu") or "0")


def _override_for_relative(context: RuleContext) -> tuple[Line, ...]:
    """The line that selects the kernels of a related target, if the GPU's own target has none."""
    target = other_makers.amd_board(context).target
    _, version = RELATIVES.get(target or "", ("", ""))
    return (paste.setting(context, "HSA_OVERRIDE_GFX_VERSION", version),) if version else ()


def _install_release(context: RuleContext, lookup: Lookup, label: str) -> Line:
    """The command that installs the requested release with its torchvision from a label's index."""
    family, _, machine = platform_of(context).partition("-")
    torchvision = "torchvision"
    # The CPU build of the same torch has the same companions.
    cpu_build = context.catalog.row_of(lookup.torch or "", "cpu", family, machine)
    if cpu_build is not None and cpu_build.torchvision:
        torchvision = f"torchvision=={cpu_build.torchvision}"
    packages = (f"torch=={lookup.torch}", torchvision)
    return paste.pip(context, "install", *packages, "--index-url", index_url(label))


def _another_release(context: RuleContext, lookup: Lookup) -> Fix:
    """The fix if no index of this maker is known to have the requested release."""
    builds, index = NAME_OF_BUILDS[lookup.maker], str(BY_ID[lookup.maker].index)
    if lookup.maker == AMD.id:
        index = pytorchs_index(other_makers.amd_board(context).target)
    text = _what_is_offered(lookup)
    if lookup.torch and not labels_with(context, lookup.torch, lookup.maker):
        text += f", and no {builds} build of torch {lookup.torch} is known"
    return Fix(
        text=f"{text}. Install the newest {builds} build that fits this Python, or a release that "
        "the index lists",
        commands=(paste.pip(context, "install", "torch", "torchvision", "--index-url", index),),
    )


def _with_another_python(context: RuleContext, lookup: Lookup) -> Fix:
    """Create an environment with a Python that the requested builds support, and install them from
    the same index."""
    pythons = pythons_of(context, lookup)
    usual_python = context.catalog.milestone("usual python")
    has_usual = not pythons or usual_python in pythons
    python = usual_python if has_usual else max(pythons, key=parsed)
    folder = paste.new_environment_folder(context, python)
    torch = f"torch=={lookup.torch}" if lookup.torch else "torch"
    index = index_url(lookup.label)
    return Fix(
        text=f"{_what_is_offered(lookup)}. Create an environment with a 64-bit CPython {python}, "
        "which these wheels support",
        commands=(
            paste.command(context, "uv", "venv", "--python", python, folder),
            paste.command(
                context,
                *("uv", "pip", "install", "--python", folder, torch, "torchvision"),
                *("--index-url", index),
            ),
        ),
        python=python,
    )


def on_windows(context: RuleContext, torch: str | None) -> Fix:
    """AMD's own wheels for a GPU on Windows; the CPU build is only the alternative."""
    target = other_makers.amd_board(context).target
    amds_wheels = maker_stacks.from_amds_index(context, target)
    release = ("--torch", torch) if torch else ()
    cpu = paste.gpusetup(context, *release, "--backend", "cpu")
    why = "PyTorch's index has ROCm builds for Linux only"
    if not amds_wheels.commands:
        text = (
            f"{why}. Install AMD's own wheels for Windows, if AMD has one for this GPU "
            f"({INDEX_OF_AMD} with the extra device-gfx…), or work in Linux"
            if target is None
            else f"{why}. {amds_wheels.text}"
        )
        return Fix(text=text, alternatives=paste.other("to use only the CPU", cpu))
    ways: tuple[Alternative, ...] = paste.other("to use only the CPU", cpu)
    return replace(amds_wheels, alternatives=(*amds_wheels.alternatives, *ways))


def for_named_gpu(context: RuleContext) -> Fix | None:
    """The build for the only GPU that the text names, if it is from AMD or Intel, so that a failed
    installation does not end with another maker's build or the CPU's; None for other GPUs."""
    makers = vendors_of(context.snapshot) & {AMD.id, INTEL.id}
    if len(makers) != 1 or has_nvidia(context) or on(context, "macos"):
        return None
    if AMD.id in makers and on(context, "windows"):
        return on_windows(context, None)
    return other_makers.first_install(context)
