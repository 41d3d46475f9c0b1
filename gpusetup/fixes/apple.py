"""Fixes for a Mac: for what the device mps lacks, and for a Python of the wrong processor."""

from __future__ import annotations

import re

from gpusetup.evidence.context import RuleContext, events
from gpusetup.fixes import maker_stacks, paste
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event


def for_mac(context: RuleContext) -> Fix:
    """The fix on a Mac: for what mps lacks if the program already uses it, otherwise how to select
    the device."""
    for mismatch in events(context, "built-for-another-processor"):
        return _for_its_processor(context, needs_arm=mismatch.values["needed"] == "arm64")
    lacks = events(context, "mps-lacks")
    if "metal" in {event.values.get("why") for event in lacks}:
        return maker_stacks.reach_metal(context)
    for mismatch in lacks:
        if mismatch.values.get("why") == "types":
            return _for_types(mismatch)
    if lacks:
        compiles = events(context, "torch-not-compiled-with-cuda")
        message = " ".join(event.text or "" for event in (*lacks, *compiles))
        text = next((way for words, way in ON_MPS if re.search(words, message)), None)
        # With the variable in place, torch would not have failed at an operation that it lacks.
        shown_outputs = [event.values.get("what") for event in events(context, "output-shown")]
        is_set = "mps-fallback" in shown_outputs
        if is_set and text is None:
            text = LACKS_DESPITE_FALLBACK
        fallback = (paste.setting(context, "PYTORCH_ENABLE_MPS_FALLBACK", "1"),)
        library = _library_that_computes(context)
        if library:
            newer = paste.pip(context, "install", "--upgrade", library)
            first = (
                f"First update {library}: its newer releases handle what mps lacks. If the error "
                "remains: "
            )
            return Fix(text=f"{first}{text or LACKS}", commands=(newer,))
        return Fix(text=text or LACKS, commands=() if text else fallback)
    # Install torch only if it is known to be missing, because a text about torch usually comes from
    # an installed torch.
    missing = events(context, "torch-missing") or context.torch.installed is False
    install = paste.pip(context, "install", "torch", "torchvision")
    return Fix(
        text='Since torch 1.12, the ordinary wheel uses an Apple GPU as the device "mps". '
        'Replace "cuda" in your code with "mps" or "cpu"',
        commands=(install,) if missing else (),
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
    fix = maker_stacks.native_python(context)
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
    'The program already uses "mps", which does not support this operation: run the operation '
    "on the CPU, or update torch"
)
LACKS_DESPITE_FALLBACK = (
    'The program already uses "mps" and PYTORCH_ENABLE_MPS_FALLBACK, which does not catch this '
    'error: update torch (and macOS), or run this part on "cpu"'
)
ON_MPS = (
    (
        "(?i)MPS backend is supported on",
        "This macOS is new enough; torch says the same where its process does not reach Metal. Run "
        "it as the user who is logged in at the screen, and not in a virtual machine, a container "
        "or a sandbox. `system_profiler SPDisplaysDataType` must name Metal there",
    ),
    (
        "BackendCompilerFailed",
        "torch.compile in this torch writes code for CUDA only. Update torch, whose newer releases "
        'compile for "mps", or run the model without torch.compile',
    ),
    (
        "(?i)'SparseMPS' backend",
        '"mps" has no sparse tensors: make these dense (`.to_dense()`), or keep them on "cpu"',
    ),
    (
        "laceholder storage",
        'The program already uses "mps", but one of its tensors is elsewhere: move the model '
        'and all inputs to "mps" (`.to("mps")`)',
    ),
    (
        "(?i)mixed precision requires",
        "This program has mixed precision for CUDA only: run it without (accelerate: "
        "`--mixed_precision no`), and in float32 or in half precision throughout",
    ),
    (
        "(?i)bfloat16",
        'bfloat16 on "mps" needs macOS 14 or newer and a current torch: update both, or let the '
        "program use float16 or float32",
    ),
    (
        "(?i)float8|fp8",
        '"mps" does not support float8: use the weights in float16 or bfloat16, or as GGUF',
    ),
    (
        "float64|MPS framework doesn't support",
        '"mps" does not support float64: make these tensors float32, or keep them on "cpu"',
    ),
    (
        r"failed assertion|\bMPS\w+\.mm:\d+",
        "Metal's own library aborted in this operation, and PYTORCH_ENABLE_MPS_FALLBACK does not "
        'catch that. Update torch and macOS. If it still fails, run this part on "cpu" '
        '(`.to("cpu")`), or with a smaller input',
    ),
)
"""An error of Metal -> what to do."""
