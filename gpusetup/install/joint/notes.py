"""What is said beside a set that goes together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpusetup.catalog.companion_table import cuda_majors
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


def cuda_of_others(work: Work, build: TorchBuild, answer: Answer) -> frozenset[str]:
    """The CUDA majors that all of a set is built for, where torch's is none of them."""
    known = [frozenset(majors) for _, majors in _built(work, answer)]
    common = frozenset.intersection(*known) if known else frozenset()
    own = build.cuda_major
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


def page_notes(found: Mapping[str, Listed]) -> tuple[str, ...]:
    """That an index gives no dates."""
    undated = [n for n, page in found.items() if page.newest and page.newest.published is None]
    if not undated:
        return ()
    return (f"the index does not say when {', '.join(undated)} came: how old is not judged",)
