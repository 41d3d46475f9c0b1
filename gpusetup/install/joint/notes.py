"""What is said beside a set that goes together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpusetup.catalog.companion_table import Project, cuda_majors, row_of
from gpusetup.install.joint.ask import Answer, glibc_of
from gpusetup.install.joint.releases import Listed
from gpusetup.install.joint.work import Work
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import TorchBuild


def glibc_note(machine: Snapshot) -> tuple[str, ...]:
    """That a C library was assumed."""
    if machine.os.family != "linux" or re.fullmatch(r"glibc .*", machine.os.libc or ""):
        return ()
    return (f"the C library is not known and is taken as glibc {glibc_of(machine)}: `--glibc`",)


def other_cuda(work: Work, build: TorchBuild, answer: Answer) -> tuple[str, ...]:
    """What comes along and is built for another CUDA than torch."""
    if build.cuda is None:
        return ()
    own = build.cuda.partition(".")[0]
    return tuple(
        f"{one.name} {one.version} is built for CUDA {' and '.join(majors)}, torch for CUDA "
        f"{build.cuda}: it may not load ({_row_source(project, one.version)})"
        for one in answer.packages
        if (project := work.table.project(one.name))
        and (majors := cuda_majors(project, one.version))
        and own not in majors
    )


def _row_source(project: Project, version: str) -> str:
    row = row_of(project, version)
    return row.source if row else project.source


def page_notes(found: Mapping[str, Listed]) -> tuple[str, ...]:
    """That an index gives no dates."""
    undated = [n for n, page in found.items() if page.newest and page.newest.published is None]
    if not undated:
        return ()
    return (f"the index does not say when {', '.join(undated)} came: how old is not judged",)
