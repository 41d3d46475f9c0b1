"""What is said beside a set that goes together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import Project, cuda_majors, row_of
from gpusetup.catalog.default_wheels import default_backend
from gpusetup.install.joint.ask import Answer, glibc_of
from gpusetup.install.joint.releases import Listed
from gpusetup.install.joint.work import Work
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import cuda_of


def glibc_note(machine: Snapshot) -> tuple[str, ...]:
    """That a C library was assumed."""
    if machine.os.family != "linux" or re.fullmatch(r"glibc .*", machine.os.libc or ""):
        return ()
    return (f"the C library is not known and is taken as glibc {glibc_of(machine)}: `--glibc`",)


def other_cuda(work: Work, build: TorchBuild, answer: Answer) -> tuple[str, ...]:
    """What comes along and is built for another CUDA than torch."""
    own = (build.cuda or "").partition(".")[0]
    torch = f"torch for CUDA {build.cuda}" if build.cuda else f"this torch is {build.backend}'s"
    return tuple(
        f"{one.name} {one.version} is built for CUDA {' and '.join(majors)}, {torch}: it may not "
        f"load ({_row_source(project, one.version)}){_elsewhere(project, build)}"
        for one in answer.packages
        if (project := work.table.project(one.name))
        and (majors := _majors(work, build, project, one.version))
        and own not in majors
    )


def _majors(work: Work, build: TorchBuild, project: Project, version: str) -> tuple[str, ...]:
    """Also of a wheel that is built as torch on the default index is."""
    row = row_of(project, version)
    if row is None or row.cuda != "default":
        return cuda_majors(project, version) if build.cuda else ()
    usual = default_backend(work.catalog, build.torch, build.os, build.machine)
    major = (cuda_of(usual) or "").partition(".")[0] if usual else ""
    return (major,) if major else ()


def _elsewhere(project: Project, build: TorchBuild) -> str:
    """Where such a package has a build for another CUDA, by its own documentation."""
    if project.name != "torchcodec":
        return f"; instead: {project.alternative}" if project.alternative else ""
    index = index_url(build.backend)
    return f"; its README names torch's own index for the others: `--index {index}`"


def cuda_of_others(work: Work, build: TorchBuild, answer: Answer) -> frozenset[str]:
    """The CUDA majors that all of a set is built for, where torch's is none of them."""
    known = [frozenset(majors) for _, majors in _built(work, answer)]
    common = frozenset.intersection(*known) if known else frozenset()
    own = (build.cuda or "").partition(".")[0]
    return common if own and own not in common else frozenset()


def own_cuda(work: Work, build: TorchBuild, answer: Answer) -> tuple[str, ...]:
    """Why torch comes from another index than the machine's best."""
    names = [name for name, majors in _built(work, answer) if len(majors) == 1]
    return (f"torch comes from {build.backend}, as {' and '.join(names)} is built for its CUDA",)


def _built(work: Work, answer: Answer) -> list[tuple[str, tuple[str, ...]]]:
    """The packages whose CUDA the table knows."""
    rows = ((one, work.table.project(one.name)) for one in answer.packages)
    return [
        (f"{one.name} {one.version}", majors)
        for one, project in rows
        if project and (majors := cuda_majors(project, one.version))
    ]


def _row_source(project: Project, version: str) -> str:
    row = row_of(project, version)
    return row.source if row else project.source


def page_notes(found: Mapping[str, Listed]) -> tuple[str, ...]:
    """That an index gives no dates."""
    undated = [n for n, page in found.items() if page.newest and page.newest.published is None]
    if not undated:
        return ()
    return (f"the index does not say when {', '.join(undated)} came: how old is not judged",)
