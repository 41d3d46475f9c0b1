"""What stands on torch and does not say so: pairs that only the table of companions knows."""

from __future__ import annotations

import re
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
from gpusetup.model.versions import allows
from gpusetup.readings.packages import normalised

PAIR_MISMATCH = Cause(
    id="companion-torch-mismatch",
    severity=Severity.WARNING,
    title="a package takes another torch than the one that is here",
    means="Its libraries are compiled against one torch. Where its metadata does not say which, "
    "pip and uv let it stand; where it does, torch was exchanged afterwards. It fails, or leaves "
    "its kernels out, when it is imported.",
    proven_by="Its version and torch's, by the table of companions, or the label of its build",
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

SAME_MODULE = Cause(
    id="same-module-twice",
    severity=Severity.WARNING,
    title="onnxruntime is installed twice, for the CPU and for the GPU",
    means="Two packages bring the module `onnxruntime`: what is installed last overwrites the "
    "other's files, and removing one takes files of the other away.",
    proven_by="Both packages among those that are installed",
    way_out="Remove both, install one",
    source="https://onnxruntime.ai/docs/install/ (only one of the packages at a time)",
)


def pairs(context: RuleContext) -> Iterator[Finding]:
    """Packages beside a torch that they do not take."""
    torch = context.snapshot.torch.version
    for project, package in _companions(context) if torch else ():
        takes, source = _takes(project, package.version, torch or "")
        takes, source = (takes, source) if takes else _asks(package, torch or "")
        if takes is None:
            continue
        fitting = releases_for(project, torch or "")
        fix = None
        if fitting:
            wanted = f"{project.name}{fitting[0]}"
            text = f"Install the {project.name} that takes this torch"
            fix = Fix(text=text, commands=(paste.pip(context, "install", "--no-deps", wanted),))
        yield PAIR_MISMATCH.found(
            f"{project.name} {package.version} takes torch {takes}, here is torch {torch}",
            detail=source,
            evidence=(_evidence(context, package),),
            fix=fix or Fix(text=f"No release of it takes this torch; {project.alternative}"),
        )


def _takes(project: Project, version: str, torch: str) -> tuple[str | None, str]:
    """The torch that a release takes where it is not the one that is here, and who says so.

    >>> attn = companion_table().project("flash-attn")
    >>> _takes(attn, "2.8.3+cu12torch2.8cxx11abiTRUE", "2.13.0")[0]
    '2.8'
    >>> _takes(attn, "2.8.3+cu12torch2.8cxx11abiTRUE", "2.8.0")[0] is None
    True
    """
    if label := re.search(BUILT_FOR, version.partition("+")[2]):
        own = ".".join(filter(None, label.groups()))
        return (None if f"{torch}.".startswith(f"{own}.") else own), "the label of its build"
    row = row_of(project, version)
    if row is None or takes_torch(project, version, torch) is not False:
        return None, ""
    return row.torch, row.source


def _asks(package: Package, torch: str) -> tuple[str | None, str]:
    """What its own metadata asks of torch, where that is another.

    >>> _asks(Package(name="xformers", version="0.0.32", requires=("torch==2.8.0",)), "2.13.0+cpu")
    ('==2.8.0', 'its own metadata')
    """
    for text in package.requires:
        asked = re.fullmatch(r"torch\s*\(?([<>=!~][^;()]*)\)?\s*", text)
        if asked and not _allows(asked[1].strip(), torch.partition("+")[0]):
            return asked[1].strip(), "its own metadata"
    return None, ""


def _allows(limits: str, torch: str) -> bool:
    try:
        return allows(limits, torch)
    except ValueError:  # a stranger's record
        return True


BUILT_FOR = r"torch(\d+\.\d+)|(?<![a-z])pt(\d)(\d{1,2})(?!\d)"
"""`2.8.3+cu12torch2.8cxx11abiTRUE`, and the PyG family's `2.1.2+pt28cu128`."""


def twice(context: RuleContext) -> Iterator[Finding]:
    """onnxruntime and onnxruntime-gpu are two builds of one module: the later overwrites files of
    the other."""
    here = {normalised(one.name): one for one in context.snapshot.packages or ()}
    both = [here[name] for name in ("onnxruntime", "onnxruntime-gpu") if name in here]
    if len(both) < 2:
        return
    yield SAME_MODULE.found(
        "onnxruntime and onnxruntime-gpu are both installed: they are one module, and the CPU "
        "build may be the one that is imported",
        evidence=tuple(
            value_evidence(context, "packages", f"{one.name} {one.version}") for one in both
        ),
        fix=Fix(
            text="Remove both, then install the GPU build alone",
            commands=(
                paste.pip(context, "uninstall", "-y", "onnxruntime", "onnxruntime-gpu"),
                paste.pip(context, "install", f"onnxruntime-gpu=={both[1].version}"),
            ),
        ),
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


RULES = (pairs, cudas, twice)
