"""The program that a text is about: where it failed, and its own fix.

Commands for torch only fix torch. A program that is not built on torch (`Program.on_torch`) gets
its own fix. Fixes for the driver, the container and the hardware are the same for all programs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.causes.layers import STAGES, Layer
from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import events, in_container, is_report, on, package
from gpusetup.evidence.places import is_beside_torch
from gpusetup.model.finding import Finding, Fix, command_lines
from gpusetup.model.frozen import replace

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.messages.programs import Program
    from gpusetup.model.finding import Stage
    from gpusetup.model.shell import Lines


def program_of(context: RuleContext) -> Program | None:
    """The program of a text. Its table is loaded only if the text is about a program."""
    name = context.snapshot.failing.program
    is_unnamed = name is None and is_beside_torch(context)
    if name is None and not is_unnamed:
        return None
    from gpusetup.messages.programs import BY_NAME, UNNAMED

    return UNNAMED if name is None else BY_NAME.get(name)


def stage_of(context: RuleContext, root: Finding | None) -> Stage | None:
    """The stage at which the program failed: by its message, otherwise by its cause."""
    failing = context.snapshot.failing
    if failing.stage or root is None or not is_report(context):
        return failing.stage
    record = RECORDS[root.id]
    return record.stage or (STAGES.get(record.place[0], "start") if record.place else None)


PINNING_ENGINES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "lmdeploy": "LMDeploy",
    "text-generation-inference": "text-generation-inference",
}
"""Packages whose releases each require exactly one torch release, because another one breaks their
kernels."""
IMAGE_ONLY = ("text-generation-inference",)
"""The packages among them that are only published as an image."""


def fit_to_program(context: RuleContext, finding: Finding) -> Finding:
    """The finding with the program's own fix, if torch's fix does not help the program."""
    program, fix = program_of(context), finding.fix
    if fix is None or not is_report(context):
        return finding
    failed = context.snapshot.failing.program
    pinned = (p for p, name in PINNING_ENGINES.items() if name == failed or package(context, p))
    if engine := next(pinned, None):
        return replace(finding, fix=_with_pinned_torch(context, engine, finding, fix))
    if program is None or program.on_torch:
        return finding
    # The driver, its device nodes and a container's devices serve every program alike.
    if finding.id in SAME_FOR_ALL_PROGRAMS:
        return finding
    place = RECORDS[finding.id].place
    if place and place[0] is Layer.NO_GPU:
        # There is no NVIDIA GPU.
        if finding.id in ("amd-gpu", "intel-gpu"):
            from gpusetup.fixes import makers

            return replace(finding, fix=makers.without_torch(context, program.name))
        return replace(finding, fix=Fix(text=WITHOUT_CUDA.format(program.name)))
    waits_for_torch = any(need.what == "torch" for need in fix.needs)
    if waits_for_torch or re.search(TORCH_COMMAND, "\n".join(command_lines(fix))):
        return replace(finding, fix=_way_of_program(context, program, finding, fix))
    return finding


SAME_FOR_ALL_PROGRAMS = (
    *("maker-driver-not-loaded", "maker-device-permission", "container-no-maker-gpu"),
)
"""Causes on an AMD or Intel machine whose fix does not depend on the program."""
WITHOUT_CUDA = (
    "Run {0} on the CPU, with an option (often `--device cpu`) or with its build for the CPU. Or "
    "use its build for this GPU, if there is one, or a machine with an NVIDIA GPU"
)
TORCH_COMMAND = "gpusetup install|torch|TORCH_CUDA_ARCH_LIST"
"""A pattern for commands that concern torch."""


def _with_pinned_torch(context: RuleContext, engine: str, finding: Finding, fix: Fix) -> Fix:
    """The fix for a program that pins its torch: another release of the program, or its image."""
    from gpusetup.fixes import makers, owners, paste
    from gpusetup.fixes.needs import INSTALLS_TORCH

    def installs(lines: Lines) -> bool:
        """Whether one of the commands installs torch."""
        return any(re.search(f"gpusetup install|torch==|{INSTALLS_TORCH}", line) for line in lines)

    others = tuple(way for way in fix.alternatives if not installs(way.commands))
    if not installs(fix.commands):
        return replace(fix, alternatives=others)
    if finding.id in ("amd-gpu", "intel-gpu"):
        return makers.engine_for_gpu(context, PINNING_ENGINES[engine])
    if image := owners.image(context):
        return Fix(text=image.sentence, alternatives=others)
    text = (
        f"{engine} requires one exact torch version. Install the release that fits the GPU and "
        "the driver, together with its torch (in a container: an image of that release). Do not "
        "change torch alone"
    )
    can_be_installed = not (in_container(context) or on(context, "windows") or engine in IMAGE_ONLY)
    install = (paste.gpusetup(context, engine),) if can_be_installed else ()
    return Fix(text=text, commands=install, alternatives=others)


def _way_of_program(context: RuleContext, program: Program, finding: Finding, fix: Fix) -> Fix:
    """The fix for a program that does not use torch: a build of the program that fits.

    If the driver is too old, a newer driver helps too, and both ways are offered.
    """
    from gpusetup.fixes import drivers

    record = RECORDS[finding.id]
    way = program.way or f"Install a build of {program.name} itself for this GPU and driver"
    needs_newer_driver = record.lacks == "driver"
    if not needs_newer_driver:
        # Some causes have their own fix for programs without torch, for example a build from source
        # if no release has kernels for the GPU.
        return Fix(text=record.beside_torch or way)
    newer_driver = drivers.driver_fix(context, "Update the driver", fix.min_driver)
    return replace(newer_driver, text=f"{newer_driver.text}; or keep it. {way}")


def failure_without_cause(context: RuleContext, findings: tuple[Finding, ...]) -> Finding | None:
    """The finding of what a program failed at, for a text without an error finding."""
    # `own` marks a failure that nothing in the text connects with the GPU stack (see
    # report.timeline).
    is_own = any(event.values.get("own") for event in events(context, "program-failed"))
    failed = (
        finding
        for finding in findings
        if RECORDS[finding.id].failure
        # More failed than the display of an image.
        and not any("Graphics Exception: " in evidence.text for evidence in finding.evidence)
        and (finding.id != "program-failed" or is_own)
    )
    first = min(failed, key=lambda finding: RECORDS[finding.id].failure, default=None)
    return first if is_report(context) else None
