"""The steps as one would type them: for a machine that is only described (`--from`), and for this
one where no index can be asked."""

from __future__ import annotations

import argparse
import os

from gpusetup.answers import DoneStep, InstallAnswer
from gpusetup.catalog import INDEX_ROOT
from gpusetup.catalog_file import load_catalog
from gpusetup.commands.common import gather
from gpusetup.commands.install_decision import Task, task_of
from gpusetup.commands.install_parts import after_of, request_of
from gpusetup.commands.install_told import check_described
from gpusetup.install import INSTALLERS
from gpusetup.install.log import without_logins
from gpusetup.install.plan import asked_for, venv_step
from gpusetup.install.prepare import Where, index_root_of
from gpusetup.install.wish import Wish, packages_step
from gpusetup.install.words import FAMILY
from gpusetup.model import Snapshot, Step
from gpusetup.render.console import Console, plain
from gpusetup.render.install import Beside, described_text, unchanged_text
from gpusetup.resolver.companions import environment_of, installed, pinned_in_words


def run_described(options: argparse.Namespace, out: Console) -> int:
    """The steps as one would type them on the machine that is described; nothing is asked."""
    snapshot = gather(options, out)
    tell_if_unfinished(snapshot, out)
    before = _family_of(snapshot)
    asked = asked_for(options.packages, before, environment_of(snapshot))
    installer = installer_for(options.installer, snapshot)
    request = request_of(options, asked, by_conda=installer == "conda")
    task = task_of(options, out, snapshot, asked, request)
    if not task.is_done:
        check_described(snapshot, task.elsewhere)
    steps = _steps(options, installer, task)
    answer = InstallAnswer(
        state="unchanged" if task.is_done else "planned",
        target=snapshot.python.prefix or snapshot.python.executable or options.machine_from,
        before=before,
        after={**before, **after_of(task.resolution, task.asked)},
        steps=tuple(DoneStep(argv=tuple(map(without_logins, step.argv))) for step in steps),
        why=task.why,
        newest=task.newest,
    )
    if task.is_done:
        out.answer(answer, unchanged_text(answer, task.notes))
        return 0
    fallbacks = task.resolution.fallbacks if task.decision.moves else ()
    notes = (*broken(task), *task.all_notes)
    family = snapshot.os.family
    text = described_text(answer, steps, fallbacks, notes, family, what_is_beside(task))
    out.answer(answer, text)
    return 0


def what_is_beside(task: Task) -> Beside:
    """The packages that were asked for, and the backend where no version carries it."""
    asked, build = task.asked, task.resolution.build
    comes = build is not None and not build.labelled and "torch" in asked.family
    return Beside(
        family=asked.family,
        packages=asked.packages,
        pinned=asked.pinned,
        unlabelled=build.backend if build is not None and comes else None,
    )


def installer_for(named: str, snapshot: Snapshot) -> str:
    """As a live run chooses it: conda where conda has installed torch, else uv."""
    if named != "auto":
        return named
    theirs = snapshot.python.manager == "conda" and snapshot.torch.installer == "conda"
    return "conda" if theirs else "uv"


def _steps(options: argparse.Namespace, installer: str, task: Task) -> tuple[Step, ...]:
    """The commands; where torch stays, none of them names another."""
    asked, machine = task.asked, task.machine
    followers, pinned = asked.followers, asked.pinned
    if installer == "conda":  # its own names; beside the family its step names torch itself
        followers = ()
        pinned = () if asked.family else tuple(f"py{one}" for one in pinned)
    wish = Wish(
        python=machine.python.executable,
        packages=(*asked.family, *asked.packages, *followers, *pinned),
        index_root=index_root_of(options.index_root, os.environ, INDEX_ROOT),
        wheelhouse=options.wheelhouse,
        conda_prefix=machine.conda.prefix,
        again=task.decision.how == "again",
    )
    if task.is_done:
        return ()
    if asked.family:
        return INSTALLERS[installer](task.resolution, wish)
    return (packages_step(installer, wish),)


def broken(task: Task) -> tuple[str, ...]:
    """What the new torch breaks and cannot follow it, each with what that means."""
    build = task.resolution.build
    if build is None or not task.decision.moves:
        return ()
    return pinned_in_words(task.machine, build)


def tell_if_unfinished(snapshot: Snapshot, out: Console) -> None:
    """An installation that was interrupted is named first."""
    for event in snapshot.events:
        if event.kind == "install-unfinished":
            prefix = event.values.get("prefix", "the environment")
            out.talk(
                plain(
                    f"An installation into {prefix} was interrupted; "
                    "`gpusetup install --recover` ends it."
                )
            )


def implied(options: argparse.Namespace, where: Where, task: Task) -> str:
    """The steps that the catalog implies for a target whose index could not be asked."""
    asked, resolution = task.asked, task.resolution
    installer = "uv" if options.installer == "auto" else options.installer
    wish = Wish(
        python=where.python,
        packages=(*asked.family, *asked.packages, *asked.followers, *asked.pinned),
        index_root=index_root_of(options.index_root, os.environ, INDEX_ROOT),
    )
    steps = INSTALLERS[installer](resolution, wish) if asked.family else ()
    steps = steps or (packages_step(installer, wish),)
    if where.venv is not None:
        base = where.layout.python
        steps = (venv_step("uv", where.venv, base, seed=installer == "pip"), *steps)
    installed = where.installed
    answer = InstallAnswer(
        state="planned",
        target=where.venv or where.layout.prefix,
        before={name: installed[name] for name in FAMILY if name in installed},
        after=after_of(resolution, asked),
        steps=(),
        why=task.why,
    )
    told = (
        f"The index was not asked, or gave no answer: what follows is what the catalog of "
        f"{load_catalog().as_of} implies.\n"
    )
    fallbacks = resolution.fallbacks if task.decision.moves else ()
    beside = what_is_beside(task)
    return told + described_text(answer, steps, fallbacks, task.all_notes, beside=beside)


def _family_of(snapshot: Snapshot) -> dict[str, str]:
    """What would be imported: of two of one name the first, and torch as its own files say."""
    there, torch = installed(snapshot), snapshot.torch.version
    found = {name: there[name].version for name in FAMILY if name in there}
    return {**found, **({"torch": torch} if snapshot.torch.installed and torch else {})}
