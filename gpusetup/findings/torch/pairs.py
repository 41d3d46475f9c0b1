"""What stands on torch and does not say so: pairs that only the table of companions knows."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.companion_table import (
    Project,
    companion_table,
    cuda_majors,
    releases_for,
    row_of,
    takes_torch,
)
from gpusetup.evidence.context import RuleContext, value_evidence
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.machine import Package
from gpusetup.readings.packages import normalised

PAIR_MISMATCH = Cause(
    id="companion-torch-mismatch",
    severity=Severity.WARNING,
    title="a package takes another torch than the one that is here",
    means="Its libraries are compiled against one torch, and its metadata does not say which: pip "
    "and uv let it stand. It fails, or leaves its kernels out, when it is imported.",
    proven_by="Its version and torch's, by the table of companions",
    not_when="torchvision-mismatch, torchaudio-mismatch: those have records of their own",
    way_out="The release that takes this torch",
    source="data/companions.json: each row has its own",
)
CUDA_MISMATCH = Cause(
    id="companion-cuda-mismatch",
    severity=Severity.WARNING,
    title="a package is built for another CUDA than torch",
    means="It links the libraries of one CUDA major, and torch brings those of another: it does "
    "not find them, and computes on the CPU or not at all.",
    proven_by="Its version by the table of companions, and torch's CUDA",
    not_when="The other CUDA's libraries are installed too: then nothing is said",
    way_out="The release that is built for torch's CUDA",
    source="data/companions.json: each row has its own",
)


def pairs(context: RuleContext) -> Iterator[Finding]:
    """Packages that declare no torch, beside a torch that they do not take."""
    torch = context.snapshot.torch.version
    for project, package in _companions(context) if torch else ():
        if project.declares or takes_torch(project, package.version, torch or "") is not False:
            continue
        row, fitting = row_of(project, package.version), releases_for(project, torch or "")
        assert row is not None
        fix = None
        if fitting:
            wanted = f"{project.name}{fitting[0]}"
            text = f"Install the {project.name} that takes this torch"
            fix = Fix(text=text, commands=(paste.pip(context, "install", "--no-deps", wanted),))
        yield PAIR_MISMATCH.found(
            f"{project.name} {package.version} takes torch {row.torch}, here is torch {torch}",
            detail=row.source,
            evidence=(_evidence(context, package),),
            fix=fix or Fix(text=f"No release of it takes this torch; {project.alternative}"),
        )


def cudas(context: RuleContext) -> Iterator[Finding]:
    """Packages that are built for another CUDA major than torch, whose libraries are not here."""
    own = (context.snapshot.torch.cuda or "").partition(".")[0]
    for project, package in _companions(context) if own else ():
        majors = cuda_majors(project, package.version)
        if not majors or own in majors or any(_has_cuda(context, major) for major in majors):
            continue
        spans = (row.versions for row in project.rows if own in row.cuda.split())
        wanted = next(spans, None)
        text = f"Install the {project.name} that is built for CUDA {own}"
        commands = (paste.pip(context, "install", f"{project.name}{wanted}"),) if wanted else ()
        yield CUDA_MISMATCH.found(
            f"{project.name} {package.version} is built for CUDA {' or '.join(majors)}, "
            f"torch for CUDA {context.snapshot.torch.cuda}",
            evidence=(_evidence(context, package),),
            fix=Fix(text=text if wanted else project.alternative, commands=commands),
        )


def _companions(context: RuleContext) -> Iterator[tuple[Project, Package]]:
    """What the table knows of what is installed, apart from what follows torch by the catalog."""
    table = companion_table()
    for package in context.snapshot.packages or ():
        project = table.project(normalised(package.name))
        if project and project.wheels != "torch index" and package.installer != "conda":
            yield project, package


def _has_cuda(context: RuleContext, major: str) -> bool:
    """Whether the runtime of a CUDA major is installed as a package, or as a toolkit."""
    if (context.snapshot.toolkit.home_version or context.snapshot.toolkit.nvcc or "").partition(
        "."
    )[0] == major:
        return True
    runtimes = (f"nvidia-cuda-runtime-cu{major}", "nvidia-cuda-runtime")
    return any(
        normalised(one.name) in runtimes
        and (one.name.endswith(f"cu{major}") or one.version.partition(".")[0] == major)
        for one in context.snapshot.packages or ()
    )


def _evidence(context: RuleContext, package: Package) -> Evidence:
    beside = f"{package.name} {package.version} beside torch {context.snapshot.torch.version}"
    return value_evidence(context, "packages", beside)


RULES = (pairs, cudas)
