"""Fixes for a Mac: for what the device mps lacks, and for a Python of the wrong processor."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusetup.accelerators.apple import OLDEST_TORCH_WITH_MPS, oldest_macos
from gpusetup.accelerators.makers import INTEL
from gpusetup.catalog.builds import index_url
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import RuleContext, events, has_nvidia, macos_version, on
from gpusetup.fixes import maker_stacks, paste
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events
from gpusetup.model.shell import filled, lines


def for_mac(context: RuleContext) -> Fix:
    """The fix on a Mac: for what mps lacks if the program already uses it, otherwise how to select
    the device."""
    for mismatch in events(context, "built-for-another-processor"):
        return _for_its_processor(context, needs_arm=mismatch.values["needed"] == "arm64")
    lacks = events(context, "mps-lacks")
    if "metal" in {event.values.get("why") for event in lacks}:
        return reach_metal(context)
    for mismatch in lacks:
        if mismatch.values.get("why") == "types":
            return _for_types(mismatch)
    if lacks:
        return _for_what_mps_lacks(context, lacks)
    # Install torch only if it is known to be missing, because a text about torch usually comes from
    # an installed torch.
    missing = events(context, "torch-missing") or context.torch.installed is False
    install = paste.pip(context, "install", "torch", "torchvision")
    return Fix(
        text='Since torch 1.12, the ordinary wheel uses an Apple GPU as the device "mps". '
        'Replace "cuda" in your code with "mps" or "cpu"',
        commands=(install,) if missing else (),
    )


FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
"""The variable that lets torch compute operators on the CPU that mps lacks. It catches an operator
without any code for mps (torch's MPSFallback.mm), and not an error inside the operator's code."""


def _for_what_mps_lacks(context: RuleContext, lacks: Events) -> Fix:
    """What to do if an operation failed on mps: a newer release, another type, the CPU, and torch's
    fallback only for the errors that it catches."""
    compiles = events(context, "torch-not-compiled-with-cuda")
    message = " ".join(event.text or "" for event in (*lacks, *compiles))
    if STRAY_TENSOR.search(message):
        return _for_stray_tensor(context)
    known_way = next((way for way in ON_MPS if re.search(way.words, message)), None)
    text = known_way.text if known_way else LACKS
    needs_newer_torch = known_way is None or known_way.newer_torch
    # No newer torch exists for Intel Macs.
    if needs_newer_torch and context.os.machine == "x86_64":
        text, needs_newer_torch = LAST_FOR_INTEL_MACS, False
    # With the variable in place, torch would not have failed at an operation that it lacks.
    is_set = fallback_is_set(context)
    is_caught = any("caught" in event.values for event in lacks)
    fallback = (paste.setting(context, FALLBACK, "1"),)
    if known_way is None and is_set:
        text = FALLBACK_NOT_READ if is_caught else LACKS_DESPITE_FALLBACK
    elif known_way is None and is_caught:
        text, needs_newer_torch = LACKS_OPERATOR, False
    if library := _library_that_computes(context):
        newer = paste.pip(context, "install", "--upgrade", library)
        first = (
            f"First update {library}: its newer releases handle what mps lacks. If the error "
            "remains: "
        )
        return Fix(text=f"{first}{text}", commands=(newer,))
    newer_torch = paste.pip(context, "install", "--upgrade", "torch", "torchvision")
    if needs_newer_torch:
        return Fix(text=text, commands=(newer_torch,))
    if known_way:
        return Fix(text=text)
    return Fix(
        text=text,
        commands=fallback,
        alternatives=paste.other("a newer torch, which may have the operation", newer_torch),
    )


def fallback_is_set(context: RuleContext) -> bool:
    """Whether a text sets PYTORCH_ENABLE_MPS_FALLBACK: in a shell, in the script, or in words."""
    if FALLBACK in context.snapshot.environment:
        return True
    for event in events(context, "output-shown"):
        if event.values.get("what") == "mps-fallback":
            return True
    for event in events(context, "variable-in-script"):
        if event.values.get("variable") == FALLBACK:
            return True
    return False


STRAY_TENSOR = re.compile("laceholder storage")
"""Metal's message for a tensor that is not in the GPU's memory."""


def _for_stray_tensor(context: RuleContext) -> Fix:
    """How to find the tensor that is not on mps, although the program runs there."""
    text = (
        "MPS works, but one tensor of this call is still on the CPU. Right before the line of your "
        "traceback, print the devices: `print({p.device for p in model.parameters()}, {b.device "
        "for b in model.buffers()})` for the model, and `print(x.device)` for every input (of a "
        "batch: `{k: v.device for k, v in batch.items()}`). Move whatever prints cpu to "
        '"mps". For a tensor, keep the result (`x = x.to("mps")`), because `.to()` returns a copy'
    )
    library = _library_that_computes(context)
    if not library:
        return Fix(text=text)
    newer = paste.pip(context, "install", "--upgrade", library)
    return Fix(
        text=text,
        alternatives=paste.other(f"if {library} itself makes the tensor: a newer release", newer),
    )


def newer_torch_for_a_device(context: RuleContext, _text: str) -> Fix:
    """A torch that knows the device mps or xpu, of the build for the machine's own GPU."""
    devices = {event.values.get("device") for event in events(context, "torch-lacks-device")}
    is_intels = vendors_of(context.snapshot) == {INTEL.id} and not has_nvidia(context)
    if "xpu" in devices and is_intels:
        return Fix(
            text="Install torch's XPU build, which needs no extension of Intel's",
            commands=(maker_stacks.pip_from(context, str(INTEL.index)),),
        )
    if not on(context, "macos") and not _was_asked_for_mps(context):
        backend = context.torch.backend
        # PyPI's newest torch may be of another kind than the installed one.
        source = ("--index-url", index_url(backend)) if backend else ()
        newer = paste.pip(context, "install", "--upgrade", "torch", "torchvision", *source)
        return Fix(
            text="A package in the traceback looks for this device on every machine, and this "
            "torch is too old for that package: install an older release of the package, or a "
            "newer torch of the same kind. You do not need a build for another GPU",
            alternatives=paste.other("a newer torch", newer),
        )
    return Fix(
        text='Update torch, in a Python for Apple silicon (`python -c "import platform; '
        'print(platform.machine())"` prints arm64): a Python for Intel processors (x86_64) gets '
        "torch 2.2.2 at most, and no mps on an Apple chip",
        commands=(paste.pip(context, "install", "--upgrade", "torch", "torchvision"),),
    )


def _was_asked_for_mps(context: RuleContext) -> bool:
    """Whether the program's own device is "mps", which is chosen on a Mac only. A package, on the
    other hand, looks the module torch.mps up on every machine."""
    messages = [event.text or "" for event in events(context, "torch-lacks-device")]
    return any("device string: mps" in message for message in messages)


def for_older_macos(context: RuleContext, _text: str) -> Fix:
    """What to do on a macOS that is older than the one a program was built for."""
    macos = macos_version(context)
    this_one = f"macOS {macos}" if macos else "this macOS"
    return Fix(
        text="Update macOS in System Settings, if Apple offers a newer one for this Mac. Otherwise "
        f"use a release of the program that supports {this_one} (an older one, or its build for "
        "older systems), or run it from source with a Python that supports it (python.org's, "
        "Homebrew's or Miniforge's)"
    )


def _for_types(mismatch: Event) -> Fix:
    """What to do if the model's weights and its input have different types, or are on different
    devices."""
    input_kind, weight_kind = mismatch.values.get("input", ""), mismatch.values.get("weight", "")
    # `torch.HalfTensor` is on the CPU; `MPSHalfType` and, in newer releases, `c10::Half` are not.
    input_on_cpu = input_kind.startswith("torch.") and "mps" not in input_kind
    weight_on_cpu = weight_kind.startswith("torch.") and "mps" not in weight_kind
    if not (input_on_cpu or weight_on_cpu):
        return Fix(
            text="Both are on the Mac's GPU, but one is in half precision and one is not: run the "
            "program in float32 (often `--no-half`, `--fp32` or is_half=False), or convert the "
            "input with `.to(model.dtype)`"
        )
    where = "weights are" if weight_on_cpu else "input is"
    return Fix(
        text=f'The {where} still on the CPU: move the model and every input to "mps" '
        '(`.to("mps")`). If the program has settings for this, choose one device for all parts '
        '("cpu" always works) and switch half precision off'
    )


def _for_its_processor(context: RuleContext, *, needs_arm: bool) -> Fix:
    """A new environment for Apple silicon, if torch's libraries are for Intel processors and Python
    is not, or the reverse."""
    fix = native_python(context)
    # Only a translated Python loads libraries for Intel processors on an Apple chip.
    if not needs_arm:
        return fix
    why = (
        "This Python runs as arm64, but torch's files in its environment are for Intel processors "
        "(x86_64): a translated Python or terminal installed or copied them, so delete the "
        "environment and work in a terminal without Rosetta (`uname -m` prints arm64)"
    )
    return replace(fix, text=f"{why}. {fix.text}")


def ordinary_wheel(context: RuleContext, builds: str) -> Fix:
    """Install torch's ordinary wheel on a Mac, where an installer looked for ROCm or XPU builds."""
    by_processor = (
        'on Apple silicon it uses the GPU as the device "mps". On an Intel Mac, torch 2.2.2 is the '
        "last release (Python 3.12 or older, numpy<2)"
    )
    if context.os.machine == "x86_64":
        by_processor = (
            "torch 2.2.2 is the last release for Intel Macs (Python 3.12 or older, numpy<2). It "
            'uses the CPU, and an AMD GPU as the device "mps" from macOS 12.3 on'
        )
    elif context.os.machine in ("aarch64", "arm64"):
        by_processor = 'it uses the GPU as the device "mps"'
    return Fix(
        text=f"torch has no {builds} builds for macOS. Install the ordinary wheel, without "
        f"--index-url: {by_processor}. If a program's installer asks for your GPU, choose Apple "
        "or the CPU",
        commands=(paste.pip(context, "install", "torch", "torchvision"),),
    )


LIBRARIES_ON_MPS = ("diffusers", "transformers", "accelerate", "kornia", "timm")
"""Libraries that compute for a program. Newer releases of them work around operators that mps
lacks."""


def _library_that_computes(context: RuleContext) -> str:
    """The imported library that needs to learn about operators missing on mps; "" if the text shows
    none."""
    libraries = [event.values.get("library", "") for event in events(context, "library-imported")]
    libraries += [package.name for package in context.snapshot.packages or ()]
    for library in LIBRARIES_ON_MPS:
        if library in libraries:
            return library
    return ""


LACKS = (
    'The program already uses "mps", which does not support this operation in the installed torch: '
    "update torch, because newer releases support more, and macOS, whose Metal also sets limits. "
    'If the error remains, run this part on the CPU (`.to("cpu")`). '
    f"{FALLBACK} does not help here, because it catches only operators that mps lacks entirely"
)
LAST_FOR_INTEL_MACS = (
    'torch 2.2.2 is the last release for Intel Macs, so no update adds this to "mps" there. Use '
    "another type (float16 or float32 in place of bfloat16), or run the program or this part on "
    "the CPU (often `--cpu` or `--device cpu`)"
)
LACKS_OPERATOR = (
    'The program already uses "mps", which lacks this operator: let torch run it on the CPU '
    "(slower), set before the program imports torch. Or update torch, whose newer releases have "
    "more operators"
)
LACKS_DESPITE_FALLBACK = (
    f'The program already uses "mps" and {FALLBACK}, which does not catch this '
    'error: update torch (and macOS), or run this part on "cpu"'
)
FALLBACK_NOT_READ = (
    f'The program already uses "mps". torch reads {FALLBACK} when it is imported, so set it in the '
    "shell that starts the program, or in the script before the first import. If it is set in "
    "time, update torch, whose newer releases have more operators"
)


class WayOnMps(NamedTuple):
    """What to do for a known error of Metal."""

    words: str
    """A pattern for the error."""
    text: str
    newer_torch: bool = False
    """Whether a newer torch is the first thing to try."""


ON_MPS = (
    WayOnMps(
        r"\bnan\b.*device='mps",
        'Something computes wrong numbers on "mps". Update torch, macOS and the package that you '
        'use, and compare the same input with device="cpu". If only mps gives NaN, keep the CPU '
        "and report it, and do not replace NaN by numbers",
        newer_torch=True,
    ),
    WayOnMps(
        "(?i)MPS backend is supported on",
        "This macOS is new enough; torch says the same where its process does not reach Metal. Run "
        "it as the user who is logged in at the screen, and not in a virtual machine, a container "
        "or a sandbox. `system_profiler SPDisplaysDataType` must name Metal there",
    ),
    WayOnMps(
        "BackendCompilerFailed",
        "torch.compile in this torch writes code for CUDA only. Update torch, whose newer releases "
        'compile for "mps", or run the model without torch.compile',
        newer_torch=True,
    ),
    WayOnMps(
        "(?i)'SparseMPS' backend",
        '"mps" has no sparse tensors: make these dense (`.to_dense()`), or keep them on "cpu"',
    ),
    WayOnMps(
        "(?i)mixed precision requires",
        "This program has mixed precision for CUDA only: run it without (accelerate: "
        "`--mixed_precision no`), and in float32 or in half precision throughout",
    ),
    WayOnMps(
        "(?i)bfloat16",
        'bfloat16 on "mps" needs macOS 14 or newer and a current torch: update both, or let the '
        "program use float16 or float32",
        newer_torch=True,
    ),
    WayOnMps(
        "(?i)float8|fp8",
        '"mps" does not support float8: use the weights in float16 or bfloat16, or as GGUF',
    ),
    WayOnMps(
        "float64|MPS framework doesn't support",
        '"mps" does not support float64: make these tensors float32, or keep them on "cpu"',
    ),
    WayOnMps(
        r"failed assertion|\bMPS\w+\.mm:\d+|\b(?:MPSNDArray|MPSGraph)\b",
        f"Metal's own library aborted in this operation, and {FALLBACK} does not "
        'catch that. Update torch and macOS. If it still fails, run this part on "cpu" '
        '(`.to("cpu")`), or with a smaller input',
        newer_torch=True,
    ),
)
"""Errors of Metal, the first one that matches counts."""


def native_python(context: RuleContext) -> Fix:
    """Replace a translated Python with one for Apple's processors."""
    version = ".".join((context.snapshot.python.version or "3.12").split(".")[:2])
    folder = paste.new_environment_folder(context, version)
    conda = filled(
        "CONDA_SUBDIR=osx-arm64 conda create -n torch-arm64 python={version}", version=version
    )
    return Fix(
        text="Create an environment with a Python for Apple silicon (arm64) and install torch "
        "there. torch 2.2.2 is the last release for Intel Macs, and its wheel does not support "
        "MPS on Apple chips",
        commands=(
            paste.command(
                context, "uv", "venv", "--python", f"cpython-{version}-macos-aarch64", folder
            ),
            paste.command(context, "gpusetup", "install", "--venv", folder),
        ),
        alternatives=paste.other("with conda", conda),
        looks=paste.look(
            "check the architecture of this Python (it should be arm64)",
            *lines('python -c "import platform; print(platform.machine())"'),
        ),
    )


def reach_metal(context: RuleContext) -> Fix:
    """What to do if torch was built with MPS, but MPS is not available: by the processor and the
    macOS that are known."""
    looks = paste.look(
        "see the macOS, the processor of this Python, and whether Metal is there",
        *lines(
            "sw_vers -productVersion",
            'python -c "import platform; print(platform.machine())"',
            "system_profiler SPDisplaysDataType | grep -i metal",
        ),
    )
    if context.os.machine == "x86_64":
        return Fix(
            text="This Python was built for Intel processors. On an Apple chip, install a Python "
            "for arm64 and torch in it. On an Intel Mac, MPS needs an AMD GPU; without one, use "
            'the device "cpu"',
            looks=looks,
        )
    oldest = oldest_macos(context.torch.version or OLDEST_TORCH_WITH_MPS)
    # An old macOS has another cause (macos-too-old-for-mps), so a known one is new enough here.
    knows_macos = macos_version(context) is not None
    condition = "This macOS is new enough, so" if knows_macos else f"If macOS is {oldest} or newer,"
    return Fix(
        text=f"{condition} the process does not reach Metal. Run the program in a terminal of "
        "the user who is logged in at the screen: a sandbox (an agent's, an editor's or an App "
        "Sandbox), an ssh session, a virtual machine and a container have no Metal device. You do "
        "not need another torch",
        looks=looks,
    )


def newer_macos(macos: str) -> Fix:
    """Update macOS to a version on which torch has MPS."""
    return Fix(
        text=f"Update macOS to {macos} or newer, or install an older torch that supports MPS on "
        'this macOS. As a workaround, use the device "cpu"',
        looks=paste.look("see your macOS", *lines("sw_vers")),
    )
