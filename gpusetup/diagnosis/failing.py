"""What a report's program adds to the answer: the stage at which it failed, its own way out.

torch's commands cure torch. A program that does not stand on torch (`Program.on_torch`) has its own
way to the GPU; driver, container and hardware are mended alike for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.catalog.companion_table import companion_table, runs_there
from gpusetup.diagnosis.proof import computed
from gpusetup.evidence.context import events, has_nvidia, in_container, is_report, on
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import RECORDS
from gpusetup.messages.row import NOT_SHOWN
from gpusetup.model.finding import Alternative, Finding, Fix, typed
from gpusetup.model.frozen import replace

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.messages.program import Program
    from gpusetup.model.failing import Stage
    from gpusetup.model.shell import Line

STAGE_OF_LAYER: dict[Layer, Stage] = {
    Layer.UNFINISHED: "install",
    Layer.NO_GPU: "start",
    Layer.PLATFORM: "install",
    Layer.PROCESS: "start",
    Layer.BOUNDARY: "start",
    Layer.HARDWARE: "running",
    Layer.DRIVER: "start",
    Layer.READINESS: "start",
    Layer.INSTALL: "install",
    Layer.WHEEL: "start",
    Layer.LIBRARIES: "import",
    Layer.RUNNING: "running",
    Layer.LOSSES: "running",
}
"""The stage at which the causes of a layer usually make a program fail."""


def program_of(context: RuleContext) -> Program | None:
    """The program of a text; its table is loaded only where a text names one."""
    name = context.snapshot.failing.program
    if name is None:
        return None
    from gpusetup.messages.programs import BY_NAME

    return BY_NAME.get(name)


def stage_of(context: RuleContext, root: Finding | None) -> Stage | None:
    """At what the program failed: as its own message shows, else where its cause shows itself."""
    failing = context.snapshot.failing
    if failing.stage or context.snapshot.origin != "report" or root is None:
        return failing.stage
    record = RECORDS[root.id]
    return record.stage or (STAGE_OF_LAYER[record.place[0]] if record.place else None)


TORCHS_WAY = ("gpusetup install", "torch")
"""What a command for torch has in it."""


def of_the_program(context: RuleContext, finding: Finding) -> Finding:
    """The finding with the way out of the program that failed, where torch's is not its own."""
    program, fix = program_of(context), finding.fix
    if program and fix and (other := dict(program.elsewhere).get(finding.id)):
        return replace(finding, fix=Fix(text=other))
    engine = _engine_of(context)
    if engine and fix and _installs_torch(fix.commands):
        own = _with_its_torch(context, engine)
        return replace(finding, fix=replace(own, alternatives=own.alternatives + _kept(fix)))
    if engine and fix:
        return replace(finding, fix=replace(fix, alternatives=_kept(fix)))
    if program is None or program.on_torch or fix is None:
        return finding
    if finding.id == "extension-arch-mismatch" and program.way:
        return replace(finding, fix=Fix(text=program.way))
    if not _is_torchs(fix):
        return finding
    return replace(finding, fix=_its_own(context, program, finding, fix))


PINNING = ("vLLM", "SGLang", "LMDeploy", "text-generation-inference")
"""Programs each release of which requires one torch exactly: another one breaks their kernels."""
IMAGES = ("text-generation-inference",)
"""Those of them that come as an image only."""


def _engine_of(context: RuleContext) -> Program | None:
    """The engine of a text whose torch it pins: the program that failed, or one that is installed
    beside the torch that did."""
    program = program_of(context)
    if program is not None and program.name in PINNING:
        return program
    from gpusetup.messages.programs import BY_NAME

    installed = {p.name.lower().replace("-", "_") for p in context.snapshot.packages or ()}
    known = (BY_NAME[name] for name in PINNING if is_report(context))
    return next((one for one in known if installed.intersection(one.packages)), None)


def _kept(fix: Fix) -> tuple[Alternative, ...]:
    return tuple(one for one in fix.alternatives if not _installs_torch(one.commands))


def _installs_torch(lines: tuple[Line, ...]) -> bool:
    return any("gpusetup install" in line or "torch==" in line for line in lines)


def _with_its_torch(context: RuleContext, program: Program) -> Fix:
    """torch moves with such a program only: by a release of it, or by its image."""
    from gpusetup.fixes import paste

    project = companion_table().project(program.packages[0]) if program.packages else None
    if project and on(context, "windows") and not runs_there(project, "windows-x86_64"):
        return Fix(text=f"{program.name} has no build for Windows: {project.way_out('windows')}")
    name = program.packages[0].replace("_", "-")
    if has_nvidia(context) is False:
        return Fix(
            text=f"No NVIDIA GPU is here, and the ordinary package of {program.name} is built for "
            "CUDA: take the build that its own guide names for CPUs or for the GPU that is here, "
            "or go to a machine with an NVIDIA GPU"
        )
    if in_container(context) or program.name in IMAGES:
        return Fix(
            text=f"{program.name} requires one torch exactly, and its image has both: take an "
            "image of another release (a newer one for a newer GPU or driver), and change no torch "
            "in it"
        )
    return Fix(
        text=f"{program.name} requires one torch exactly: gpusetup chooses the release of it and "
        "the torch that fit this GPU and driver together",
        commands=(paste.gpusetup(context, name),),
    )


def _is_torchs(fix: Fix) -> bool:
    return _speaks_of_torch(typed(fix))


def _speaks_of_torch(lines: tuple[Line, ...]) -> bool:
    return any(word in line for line in lines for word in TORCHS_WAY)


FOR_AN_OLD_GPU = (
    "Newer releases hold no kernels for this GPU either: build the program from source for its "
    "compute capability, take a release or an image that was made for older GPUs, use a program "
    "that still has kernels for it, or run this one on the CPU. No newer driver and no newer cuDNN "
    "changes that, and no torch, which this program does not use"
)


def _its_own(context: RuleContext, program: Program, finding: Finding, fix: Fix) -> Fix:
    way = program.way or f"Bring {program.name} itself to a build for this GPU and driver"
    if finding.id == "arch-too-old-for-wheel":
        return Fix(text=FOR_AN_OLD_GPU)
    if finding.id != "driver-too-old":
        return Fix(text=way)
    if "torch" in fix.text or _speaks_of_torch(fix.commands):
        from gpusetup.fixes import drivers

        newer = drivers.driver(context, "Update the driver", fix.min_driver)
        return replace(newer, text=f"{newer.text}; or keep it. {way}")
    kept = tuple(one for one in fix.alternatives if not _speaks_of_torch(one.commands))
    return replace(fix, text=f"{fix.text}. {way}", alternatives=kept)


def named_instead(context: RuleContext, findings: tuple[Finding, ...]) -> str | None:
    """The finding that is the answer where no error is: what a program failed at."""
    failed = sorted(
        (f.id for f in findings if RECORDS[f.id].failure), key=lambda id: RECORDS[id].failure
    )
    return next((id for id in failed if _is_shown(context, id)), None)


def _is_shown(context: RuleContext, id: str) -> bool:
    """Whether a program failed, and the text says at what: not while a picture was drawn."""
    if id == "xid-of-a-program":
        return computed(context)
    said = [one for one in events(context, id) if "exception" not in one.values]
    unshown = bool(said) and all(event.values.get("why") == NOT_SHOWN for event in said)
    return id != "program-failed" or not unshown
