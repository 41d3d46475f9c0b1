"""Plans an installation by asking uv for the files, without changing anything."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import INDEX_ROOT, index_url
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.commands import NEEDS_ITS_INDEX
from gpusetup.choose.compatibility import limits_for_build
from gpusetup.choose.wish import name_of
from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unreached, Unsatisfiable
from gpusetup.install.job import InstallJob, Plan, device_to_verify
from gpusetup.install.switching.journal import STORE, Journal, require_followable, text_of
from gpusetup.install.switching.unpack import staging_folder
from gpusetup.install.target import Target, files_of_all
from gpusetup.install.task import Task
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.logins import split_login, without_logins
from gpusetup.uv.errors import lacks, names_not_found
from gpusetup.uv.program import emptying_the_cache, read_settings, venv_step
from gpusetup.uv.question import (
    Question,
    Wheel,
    changes_of,
    lock_of,
    size_text,
    unpack_step,
    wheel_of,
)

UNPACKED_FACTOR, FACTOR_OF_NVIDIA, FACTOR_OF_CUDA_TORCH = 4.0, 1.6, 2.0
"""The size of an unpacked wheel relative to the wheel. Measured: 4.0 for the CPU wheel of torch
2.13.0, 1.6 for nvidia-cudnn-cu12, 1.7 for torch 2.9 for CUDA 12.8 with NVIDIA's libraries."""
SPARE_BYTES = 50 << 20
"""A reserve for what no wheel holds, such as the journal."""
ANSWER_SECONDS = (5.0, 10.0)
"""How long the question for a wheel's size waits for a connection, and for the answer."""


class LacksWheel(Blocked):
    """torch's index lacks the chosen torch, or a companion of it."""


def plan_newest(job: InstallJob, target: Target, task: Task) -> tuple[Task, Plan]:
    """The task and its plan, with the newest torch that a mirror has if it lacks the chosen one.
    Raises LacksWheel if no other torch fits, or none may be chosen instead."""
    job.settings = read_settings()
    try:
        return plan_task(job, target, task)
    except LacksWheel:
        # A folder of wheels lacks releases as a mirror does.
        is_mirror = task.root != INDEX_ROOT or job.settings.has_no_index
        takes_newest = task.choice.action in ("first", "newest", "upgrade")
        # `--torch latest` and `--upgrade` set no bound.
        bound = "" if task.wish.wants_newest else task.wish.torch or ""
        # `2.9.1` or `==2.9.1`, but not `>=2.5,<3`.
        is_exact = re.fullmatch(r"(===?)?\s*[\w.+!]+", bound) is not None
        # Packages were chosen together with the torch that is missing.
        if not (is_mirror and takes_newest) or is_exact or task.wish.packages:
            raise
        question = uv_question_of(target, task)
        torch, *companions = question.names
        any_release = replace(question, family=(f"{torch}{bound}", *companions), others=())
        with suppress(Unsatisfiable):
            version, _, label = lock_of(any_release)["torch"]["version"].partition("+")
            # A folder of wheels may have only a CPU build, which does not replace one for a GPU.
            if label != "cpu" or task.build.backend == "cpu":
                newest_task = task.within(f"=={version}", "the newest on the mirror that fits")
                return plan_task(job, target, newest_task)
        # The mirror has no other torch that fits, so the first error stays: it names the wheel.
        raise


def plan_task(job: InstallJob, target: Target, task: Task) -> tuple[Task, Plan]:
    """The task and its plan. If one of the packages that should change together with torch has no
    matching release, they all stay as they are."""
    try:
        return task, _plan_of(job, target, task)
    # uv may also fail otherwise, for example at the metadata of a package to reinstall.
    except (Unsatisfiable, ToolFailed):
        if not task.changes.reinstalled:
            raise
    without_reinstalled = replace(task, changes=replace(task.changes, reinstalled=()))
    return without_reinstalled, _plan_of(job, target, without_reinstalled)


def _plan_of(job: InstallJob, target: Target, task: Task) -> Plan:
    """The plan of a task.

    Raises before anything is downloaded if the change could not be made, or not be reverted, and
    LacksWheel if torch's index lacks a wheel.
    """
    question = uv_question_of(target, task)
    try:
        wheels = wheels_for(job, target, question)
    except Unsatisfiable as problem:
        source = "your folder of wheels" if job.settings.has_no_index else question.index
        raise _naming_the_index(problem, question, task, source) from problem
    installed = target.installed
    before = {wheel.name: installed[wheel.name] for wheel in wheels if wheel.name in installed}
    _require_changeable(target, task, wheels, before)
    notes = [*task.all_notes]
    # A file on this disk needs no hash.
    unhashed = [one.name for one in wheels if not one.sha256 and not one.url.startswith("file:")]
    if unhashed:
        fact = f"The index has no sha256 for {', '.join(unhashed)}"
        notes.append(f"{fact}, so gpusetup cannot verify the download")
    folder = Path(target.prefix).parent
    if (folder / "uv.lock").is_file():
        notes.append(
            f"{folder} is a uv project: the next `uv sync` there removes what is not in its lock "
            "file. `gpusetup install --project` prints the lines that keep this torch"
        )
    unpack = unpack_step(target.python, staging_folder(target.prefix), job.settings)
    steps = (venv_step(target.venv, target.layout.python), unpack) if target.venv else (unpack,)
    # If the settings forbid all indexes, uv reads only folders of wheels.
    asked = () if job.settings.has_no_index else (question.index, *job.settings.indexes)
    indexes = (split_login(index)[0] for index in asked)
    hosts = [*(wheel.host for wheel in wheels), *(urlsplit(index).netloc for index in indexes)]
    return Plan(
        target=target.prefix,
        torch_index=question.index,
        wheels=wheels,
        steps=steps,
        before=before,
        after={wheel.name: wheel.version for wheel in wheels},
        hosts=tuple(dict.fromkeys(filter(None, hosts))),
        notes=tuple(dict.fromkeys(notes)),
        device=device_to_verify(task.build.backend, task.gpus_here),
    )


def _naming_the_index(
    problem: Unsatisfiable, question: Question, task: Task, source: str
) -> GpuSetupError:
    """uv's problem, as an error that says which index lacks something; `source` is torch's index or
    the words for a folder of wheels."""
    requested = {*question.names, *map(name_of, question.others)}
    not_found = {*names_not_found(problem.message)}
    # The user's own indexes lack something that torch requires and that nobody named. Often, only a
    # part of the index was copied.
    if not_found - requested:
        return Unreached(problem.message, hint=problem.hint)
    lacking = [word for word in question.family if lacks(problem.message, name_of(word))]
    # torch's index has them all, so versions conflict.
    if not lacking:
        return problem
    others = ", ".join(dict.fromkeys(build.backend for build in task.choice.alternatives))
    backend = f"another backend (`--backend`{f': {others}' if others else ''})"
    # For uv, a page that an index refuses to show is missing. A folder of wheels has no pages.
    has_no_page = "://" in source and not_found & {*question.names}
    where = "or shows it only with a login" if has_no_page else "for this Python"
    return LacksWheel(
        f"{without_logins(source)} has no {' and no '.join(lacking)} {where}",
        hint=f"nothing was changed; try another version (`--torch`), {backend}, or another index "
        "(`--index URL`)",
    )


def _require_changeable(
    target: Target, task: Task, wheels: Iterable[Wheel], before: Iterable[str]
) -> None:
    """Raise an error if one of these wheels comes from a wrong index, if they have no room, or if
    the packages that they replace (`before`) could not be restored."""
    # A companion that only a package requires does not come from torch's index, because uv uses an
    # explicit index only for packages that are named.
    unnamed = {wheel.name for wheel in wheels} & ({*FAMILY} - {*task.changes.family})
    if unnamed:
        raise Unsatisfiable(
            f"{', '.join(sorted(unnamed))} would come from your default index, which has no "
            "builds for a chosen backend",
            hint="nothing was changed; request it by name, e.g. `gpusetup install torch`",
        )
    # Both calls refuse a package that could not be restored.
    if target.venv is None:
        _, files = files_of_all(before, target.layout)
        moves = tuple(text_of(path, target.prefix) for path in sorted(files))
        require_followable(Path(target.prefix, STORE), Journal(moves=moves))
    free, needed = free_bytes(target.prefix), sum(map(unpacked_bytes, wheels)) + SPARE_BYTES
    if needed > free:
        raise Blocked(
            f"Not enough disk space for {target.prefix}: needs {size_text(needed)}, free "
            f"{size_text(free)}",
            hint=f"nothing was changed; free some space ({emptying_the_cache()}), or use another "
            "disk: `--venv DIR`",
        )


def uv_question_of(target: Target, task: Task) -> Question:
    """The question to uv about a task, with torch's packages from the index of its backend."""
    build, changes, backend = task.build, task.changes, task.build.backend
    # A build's `index` is only set if it is AMD's own, which has all ROCm releases on one page, so
    # the version must name its ROCm. Any other index has one backend.
    label = f"+{backend}" if build.index else ""
    versions = build.family(changes.family).items()
    family = (f"{build.project(name)}=={version}{label}" for name, version in versions)
    catalog = load_catalog()
    limits = limits_for_build(catalog, build, tuple(map(name_of, changes.on_torch_index)))
    # A mirror that the user names must have AMD's own builds, too.
    is_mirror = task.root.rstrip("/") != INDEX_ROOT
    index = index_url(backend, task.root) if is_mirror or not build.index else build.index
    return Question(
        family=(*family, *changes.on_torch_index),
        index=index,
        others=(*changes.packages, *changes.reinstalled, *changes.pinned),
        constraints=limits,
        needs_more_of_index=maker_of(backend) in NEEDS_ITS_INDEX,
        python=target.layout.python,
        python_version=target.layout.version,
    )


def wheels_for(job: InstallJob, target: Target, question: Question) -> tuple[Wheel, ...]:
    """The wheels to download; in an existing environment, of the packages that change, if any.

    If torch and all requested companions are already installed in these versions, they are all
    downloaded again, because the user requested them.
    """
    installed, to_lock = target.installed, question
    if installed:
        new_versions = {name: row["version"] for name, row in changes_of(question).items()}
        names = [name for name in question.names if installed.get(name) != new_versions.get(name)]
        names = names or [*question.names]
        others = [name for name in new_versions if name not in question.names]
        # Only packages were requested, and all of them are installed.
        if not names and not others:
            return ()
        to_lock = replace(
            question,
            family=tuple(f"{name}=={new_versions[name]}" for name in names),
            others=tuple(f"{name}=={new_versions[name]}" for name in others),
        )
    # What changes in an existing environment already includes the dependencies.
    locked = lock_of(to_lock, with_dependencies=not installed)
    wheels = [wheel_of(row, to_lock, job.settings) for row in locked.values()]
    wheels.sort(key=lambda wheel: not wheel.is_of_torch_index)
    return tuple(wheels if job.settings.is_offline else with_sizes(wheels, question.index))


def with_sizes(wheels: Iterable[Wheel], index: str) -> Iterator[Wheel]:
    """The wheels with their sizes. Torch's own index states none, so the server of the file is
    asked; a size that it does not tell stays unknown.

    `index` is torch's index, whose login counts for its wheels.
    """
    # Slow to load, and needed only when wheels are planned.
    import requests

    for wheel in wheels:
        url, login = split_login(wheel.url)
        if wheel.is_of_torch_index:
            login = login or split_login(index)[1]
        length = ""
        if wheel.size_bytes is None and url.startswith("http"):
            # uv reads this variable too. `True`: `requests` looks at REQUESTS_CA_BUNDLE itself.
            verify = os.environ.get("SSL_CERT_FILE") or True
            # Some malformed URLs and answers raise ValueError.
            with suppress(OSError, ValueError):
                answer = requests.head(
                    url, auth=login, timeout=ANSWER_SECONDS, allow_redirects=True, verify=verify
                )
                length = answer.headers.get("Content-Length", "") if answer.ok else ""
        # A server may send any text. A number of bytes fits into 64 bits, which are 19 digits.
        is_number = re.fullmatch(r"[0-9]{1,19}", length) is not None
        yield replace(wheel, size_bytes=int(length)) if is_number else wheel


def unpacked_bytes(wheel: Wheel) -> int:
    """The disk space that a wheel's files take, as far as it is known before the download."""
    factor = UNPACKED_FACTOR
    if wheel.name.startswith("nvidia-"):
        factor = FACTOR_OF_NVIDIA
    elif wheel.name == "torch" and "+cu" in wheel.version:
        factor = FACTOR_OF_CUDA_TORCH
    return int((wheel.size_bytes or 0) * factor)


def free_bytes(folder: str) -> int:
    """The free bytes on a folder's disk. The folder need not exist yet."""
    nearest = Path(folder)
    while not nearest.exists():
        nearest = nearest.parent
    return shutil.disk_usage(nearest).free
