"""The flows of `gpusetup install`: into an environment by uv or conda, back (`--undo`), and for a
described machine. Each makes a plan, shows it, asks for confirmation, and carries it out."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusetup.choose.choice import Choice
from gpusetup.choose.commands import INSTALLERS, InstallerOptions
from gpusetup.choose.installed import installed_packages
from gpusetup.choose.wish import Wish
from gpusetup.commands.common import gather
from gpusetup.commands.install_choice import (
    choose_task,
    decision_of,
    host_for,
    new_environment,
    stop_early,
)
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.errors import Blocked, ToolFailed
from gpusetup.install.job import InstallJob, Plan, device_to_prove, prove, run_step, torch_stays
from gpusetup.install.planning import free_bytes, notes_of_target, plan_newest
from gpusetup.install.switching import change
from gpusetup.install.switching.change import recover_unfinished, target_folder
from gpusetup.install.switching.journal import RECEIPT, STORE, UNDO, Journal, read_journal
from gpusetup.install.switching.lock import locked
from gpusetup.install.target import (
    Target,
    check_target,
    distributions,
    family_of,
    layout_of_folder,
    must_create_venv,
    read_target,
    versions,
)
from gpusetup.install.task import Task, check_described, refuse_unnamed_base
from gpusetup.install.wheels import fetch_into_folder, newest_torch
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import OWN_SYSTEM, own_line
from gpusetup.model.steps import Step
from gpusetup.model.versions import parsed
from gpusetup.probe.own_files import interruptions
from gpusetup.project.decide import afterwards, described_python, keeps_image
from gpusetup.project.read import read_ask
from gpusetup.render import install as screens
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console
from gpusetup.render.progress import fetching
from gpusetup.render.screen import Screen, ScreenLine, section
from gpusetup.system.processes import run as run_program
from gpusetup.system.signals import interruptible
from gpusetup.uv.errors import said_by
from gpusetup.uv.package_index import PersonIndex

if TYPE_CHECKING:
    from gpusetup.commands.install import InstallQuestion


def carry_out(
    question: InstallQuestion,
    out: Console,
    planned: InstallAnswer,
    screen: str,
    do: Callable[[], Reply],
) -> Reply:
    """Show the plan, ask for confirmation unless `--yes` is given, and carry it out. A dry run only
    shows it."""
    if question.dry_run:
        return reply(planned, screen)
    out.talk(screen)
    if not question.yes:
        CLOCK.end()
        sys.stderr.write("Proceed? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            out.talk("Nothing was changed.")
            return Reply(exit_code=1)
    return do()


# --- into an environment, by uv -----------------------------------------------------------------


class Run(NamedTuple):
    """What the tasks of one installation share."""

    question: InstallQuestion
    out: Console
    job: InstallJob
    machine: Snapshot
    target: Target


def install(question: InstallQuestion, out: Console) -> Reply:
    """Choose a torch for the environment, show the planned change, ask for confirmation, and carry
    it out.

    If the test fails, the previous packages are restored.
    """
    # An interrupted installation is completed or reverted first, because a half-finished state must
    # not be read.
    folder = target_folder(question.python, question.venv)
    recover_unfinished(folder, out.talk, dry_run=question.dry_run)
    # An existing environment is read by its folder. If neither is named, the active one is read.
    python, new_venv = question.venv or question.python, None
    if question.venv and must_create_venv(question.venv):
        # A new environment is created from the Python that runs gpusetup.
        python, new_venv = sys.executable, question.venv
    machine = gather(out, python=python, need_target=True)
    target = read_target(machine.python.executable, new_venv)
    job = InstallJob(show_progress=partial(fetching, out.talk), talk=out.talk)
    run = Run(question, out, job, machine, target)
    # If conda installed torch, conda must change it. Another installer would leave two torches in
    # one place, because conda keeps its own record of packages.
    if by_conda(machine) and not (question.offline or question.venv or question.download):
        return _by_conda(run)
    decision = decision_of(question, machine)
    notes = (*decision.notes, *afterwards(decision.later, machine))
    wish = decision.wish
    if question.offline:
        # The folder has everything. Without a named torch, its newest one is installed.
        job.wheels = os.path.realpath(question.offline)
        torch = newest_torch(job.wheels, target.layout.version)
        wish = wish if wish.torch else replace(wish, torch=f"=={torch}")
    task = _chosen(run, wish)
    if question.download:
        return _download(run, task, notes)
    # Only a dry run can find an unfinished installation here. Other runs have completed or reverted
    # it before the machine was read. `half_made` marks a new environment, which is not this target.
    is_unfinished = any(
        event.kind == "install-unfinished" and "half_made" not in event.values
        for event in machine.events
    )
    if task.is_done and not is_unfinished:
        verdict = None
        if not (question.no_verify or question.dry_run):
            device = device_to_prove(task.build.backend, task.gpus_here)
            verdict = prove(job, target.layout.python, device)
        if torch_stays(verdict):
            return _unchanged(run, task, notes, verdict)
        out.talk("The right build is there but fails its test: it will be installed again.")
    if task.is_done:
        # The right build failed its test, or an interrupted run may have left only a part of it.
        task = task.again()
    _check_environment(run, task.elsewhere)
    task, plan = plan_newest(job, target, task)
    if plan.wheels:
        return _switch(run, task, plan, notes)
    if is_unfinished:
        # "Nothing to do" would be wrong, because these packages would be removed again.
        raise Blocked(
            "An earlier installation was interrupted, so it is not known what would be installed",
            hint="nothing was changed; the command above ends it",
        )
    return _unchanged(run, task, notes)


def _chosen(run: Run, wish: Wish) -> Task:
    """The task for a request in an environment, after looking for reasons to stop."""
    question, out = run.question, run.out
    is_new = run.target.venv is not None or question.download is not None
    host = host_for(question, wish, run.machine, is_new=is_new)
    if not wish.packages or question.offline or question.download:
        return choose_task(question, wish, host, out.talk)

    def look_before_asking(choice: Choice, words: tuple[str, ...]) -> None:
        stop_early(question, wish, host, choice, out.talk)
        _check_environment(run, new_environment(question, wish, choice, host.machine))
        out.talk(f"Looking for versions that work together: {without_logins(', '.join(words))} ...")

    index = PersonIndex(host.machine, question.root, look_before_asking)
    return choose_task(question, wish, host, out.talk, index)


def _check_environment(run: Run, elsewhere: str) -> None:
    """Raise Blocked if an existing environment must not be changed. `elsewhere` is the command that
    creates another one."""
    if run.target.venv is None:
        refuse_unnamed_base(run.machine, elsewhere)
        check_target(run.target.layout, elsewhere)


def _unchanged(
    run: Run, task: Task, notes: tuple[str, ...], verdict: dict[str, Any] | None = None
) -> Reply:
    """The reply if there is nothing to install, with the reason, the notes on the files that were
    read, and the result of verify if it ran."""
    family = family_of(run.target.installed)
    answer = InstallAnswer(
        state="unchanged",
        target=run.target.prefix,
        before=family,
        after=family,
        steps=(),
        verdict=verdict,
        why=task.why,
        newest=task.newest,
        notes=notes,
    )
    return reply(answer, screens.end_screen(answer, notes=(*task.notes, *notes)))


def _download(run: Run, task: Task, notes: tuple[str, ...]) -> Reply:
    """Show and download everything that a new environment needs, without installing it."""
    folder = os.path.realpath(run.question.download or "")
    task, plan = plan_newest(run.job, replace(run.target, venv=folder), task)
    plan = replace(plan, steps=(), before={})
    answer = _planned(plan, task, notes)

    def fetch() -> Reply:
        count = fetch_into_folder(run.job, plan)
        text = f"{count} wheels are in {folder}; there: `gpusetup install --offline DIR`\n"
        return reply(answer, text)

    return carry_out(run.question, run.out, answer, _plan_screen(answer, plan, task, notes), fetch)


def _switch(run: Run, task: Task, plan: Plan, notes: tuple[str, ...]) -> Reply:
    """Show and carry out a plan, which changes an environment or creates one."""
    answer = _planned(plan, task, notes)

    def carry_out_plan() -> Reply:
        verdict = change.install(run.job, run.target, plan, verify=not run.question.no_verify)
        is_kept = torch_stays(verdict)
        ended = replace(
            answer,
            state="installed" if is_kept else "restored",
            after=plan.after if is_kept else plan.before,
            steps=tuple(run.job.done),
            verdict=verdict,
            receipt=str(Path(plan.target, STORE, RECEIPT)) if is_kept else None,
            why=task.why,
        )
        undo = undo_offered(plan) if is_kept else None
        return reply(ended, screens.end_screen(ended, undo=undo), yes=is_kept)

    created = "the environment is new" if run.target.venv else None
    screen = _plan_screen(answer, plan, task, (*notes_of_target(run.target), *notes), created)
    return carry_out(run.question, run.out, answer, screen, carry_out_plan)


def _planned(plan: Plan, task: Task, notes: tuple[str, ...]) -> InstallAnswer:
    """The document of a plan."""
    return InstallAnswer(
        state="planned",
        target=plan.target,
        before=plan.before,
        after=plan.after,
        steps=tuple(DoneStep(argv=step.argv) for step in plan.steps),
        why=" ".join(filter(None, (*interruptions(task.machine), task.why))) or None,
        newest=task.newest,
        notes=notes,
    )


def _plan_screen(
    planned: InstallAnswer,
    plan: Plan,
    task: Task,
    notes: tuple[str, ...],
    created: str | None = None,
) -> Screen:
    """The screen of a plan, with its notes and these at the end."""
    rows = {
        "hosts": ", ".join(plan.hosts),
        "packages": without_logins(", ".join((*task.coming.packages, *task.coming.followers))),
        "stays": ", ".join(task.coming.pinned),
        "created": created,
        "fallback": ", then ".join(plan.fallbacks),
        "disk": screens.disk(plan.wheels, free_bytes(plan.target)),
    }
    return screens.plan_screen(planned, rows, screens.downloads(plan.wheels), (*plan.notes, *notes))


# --- by conda, if conda installed torch -----------------------------------------------------------
# Each change is a transaction, so conda can return to the revision before it.

SOLVE_SECONDS = 600.0
"""The time limit in seconds for conda's solver, which takes minutes on a slow disk or with a newly
loaded channel."""
INSTALL_SECONDS = 6 * 3600.0
"""The time limit in seconds for an installation. Gigabytes take hours over a slow connection."""
CLEANING_SECONDS = 30.0
"""How many seconds conda may take to roll back after Ctrl-C."""


def by_conda(machine: Snapshot) -> bool:
    """Whether conda must change this environment, because it installed torch there."""
    return machine.python.manager == "conda" and machine.torch.installer == "conda"


def _by_conda(run: Run) -> Reply:
    """Let conda change a torch that conda installed. If conda cannot run, raise Blocked with the
    command to type."""
    question, out, job, machine, target = run
    prefix = target.layout.prefix
    answer, task = describe(question, out.talk, machine)
    if task.is_done:
        return reply(answer, _described_screen(machine, answer, task))
    # The program of an active environment is preferred.
    active = (os.environ.get("CONDA_EXE"), os.environ.get("MAMBA_EXE"))
    names = filter(None, (*active, "conda", "mamba", "micromamba"))
    program = next(filter(None, map(shutil.which, names)), None)
    argv = (program or "conda", *answer.steps[0].argv[1:])
    answer = replace(answer, steps=(DoneStep(argv=argv),))
    conda_lines: tuple[str, ...] = ()
    problem = None if program else "conda, mamba and micromamba are not found"
    if not os.access(Path(prefix, "conda-meta"), os.W_OK):
        problem = f"{prefix} cannot be written by this user"
    # conda's own preview takes a minute, so it is only made for a user who is about to answer yes
    # or no.
    if not (problem or question.yes or question.dry_run):
        out.talk("Asking conda what it would change ...")
        output = run_program((*argv, "--dry-run"), timeout=SOLVE_SECONDS)
        said = without_logins(output.stdout.strip() or output.problem or output.stderr.strip())
        conda_lines = tuple(ScreenLine(f"  {line}", hang=4) for line in said.splitlines())
    screen = _described_screen(machine, answer, task, section("conda says", conda_lines))
    if problem and not question.dry_run:
        out.talk(screen)
        test = own_line("gpusetup", "verify", "--python", target.python)
        raise Blocked(
            f"conda installed torch into {prefix}, so only conda can change it: {problem}",
            hint=f"nothing was changed; `{own_line(*argv)}` does it, then test it: `{test}`",
        )

    def run_conda() -> Reply:
        verdict = _conda_done(run, argv, task)
        after = family_of(target.installed)
        how_it_ended = None if torch_stays(verdict) else "unproven"
        # conda's solver may choose another release than the one in its command.
        installed, chosen = parsed(after.get("torch", "")), parsed(task.build.torch)
        if installed.base_version != chosen.base_version:
            how_it_ended = "other"
        changed = replace(
            answer, state="installed", after=after, steps=tuple(job.done), verdict=verdict
        )
        way_back = own_line("conda", "install", "--prefix", prefix, "--revision", "N")
        end = screens.end_screen(changed, how_it_ended, undo=f"`{way_back}`")
        return reply(changed, end, yes=how_it_ended is None)

    return carry_out(question, out, answer, screen, run_conda)


def _conda_done(run: Run, argv: tuple[str, ...], task: Task) -> dict[str, Any] | None:
    """Run conda's command while the environment is locked, and return verify's result; None if no
    test was requested."""
    job, layout = run.job, run.target.layout
    job.store = Path(layout.prefix, STORE)
    with interruptible(), locked(job.store, job.talk):
        job.talk("conda solves, downloads and installs: this takes minutes ...")
        step = Step(argv=argv, timeout_seconds=INSTALL_SECONDS)
        output = run_step(job, step, os.environ, gently_seconds=CLEANING_SECONDS)
        if not output.ok:
            raise ToolFailed(
                f"conda cannot install it: {output.problem or said_by(output)}",
                hint="conda rolls back the change; `conda list --revisions` shows its changes",
            )
        if run.question.no_verify:
            return None
        return prove(job, layout.python, device_to_prove(task.build.backend, task.gpus_here))


# --- `--undo` -----------------------------------------------------------------------------------


def undo(question: InstallQuestion, out: Console) -> Reply:
    """Restore the packages that the last installation replaced."""
    folder = target_folder(question.python, question.venv, is_undo=True)
    store = folder / STORE
    ended = recover_unfinished(folder, out.talk, dry_run=question.dry_run)
    # An interrupted installation was found and has just been reverted, so there is nothing more to
    # undo.
    if ended and ended.phase != "keeping":
        return _undone(folder, ended)
    # Only a dry run can find an unfinished change here; its half-finished state cannot be compared
    # with a plan.
    unfinished = read_journal(store)
    if unfinished is not None:
        # A change that was about to be kept is completed first. If that change did not replace
        # torch, `--undo` then reverts the last change that did.
        if unfinished.phase == "keeping" and "torch" not in unfinished.after:
            unfinished = (change.keeps_torch(store) and read_journal(store, UNDO)) or unfinished
        planned = _planned_undo(folder, unfinished)
        return reply(planned, _undo_screen(planned))
    layout = layout_of_folder(folder)
    check_target(layout)
    journal = change.undo_known(store, layout).journal
    planned = _planned_undo(folder, journal)

    def restore_previous() -> Reply:
        change.undo(out.talk, layout)
        return _undone(folder, journal)

    return carry_out(question, out, planned, _undo_screen(planned), restore_previous)


def _undone(folder: Path, journal: Journal) -> Reply:
    """The reply after the change with this journal was undone."""
    restored = {**family_of(versions(distributions(layout_of_folder(folder)))), **journal.before}
    answer = InstallAnswer(
        state="restored", target=str(folder), before=journal.after, after=restored, steps=()
    )
    return reply(answer, screens.end_screen(answer, "undone"))


def _planned_undo(folder: Path, journal: Journal) -> InstallAnswer:
    return InstallAnswer(
        state="planned", target=str(folder), before=journal.after, after=journal.before, steps=()
    )


def _undo_screen(planned: InstallAnswer) -> Screen:
    """The screen of a planned undo, with changes such as `torch 2.5.1+cpu -> 2.4.0, filelock 3.20.0
    goes`."""
    changes = []
    for name, version in planned.before.items():
        former = planned.after.get(name)
        changes.append(f"{name} {version} -> {former}" if former else f"{name} {version} goes")
    text = ", ".join(changes) or "no package was replaced yet; what was unpacked goes"
    return screens.plan_screen(planned, {"undo": text, "change": None})


def undo_offered(plan: Plan) -> str | None:
    """The command that undoes this installation; None if nothing can be undone. If the undo would
    restore other packages than this installation replaced, a remark says so."""
    kept_copy = read_journal(Path(plan.target, STORE), UNDO)
    if kept_copy is None:
        return None
    command = own_line("gpusetup", "install", "--undo", "--python", plan.target)
    # An installation that does not change torch keeps the undo of the last one that did.
    if "torch" in plan.after or "torch" not in kept_copy.after:
        return f"`{command}`"
    return f"`{command}` (restores {screens.versions(family_of(kept_copy.before))})"


# --- for a described machine ----------------------------------------------------------------------


def show_described(
    question: InstallQuestion,
    machine: Snapshot,
    out: Console,
    last_step: tuple[str, ...] | None = None,
    note: str | None = None,
) -> Reply:
    """Show the commands for a machine, followed by one more step, without asking or changing
    anything."""
    for ask in map(read_ask, question.requirements):
        if note is None and keeps_image(ask):
            own = {"torch": "(the image's)"}
            why = f"the image {ask.image} brings its own torch, which pip in that image keeps"
            kept = InstallAnswer(
                state="unchanged", target=ask.path, before=own, after=own, steps=(), why=why
            )
            return reply(kept, screens.end_screen(kept))
    answer, task = describe(question, out.talk, machine)
    steps = (DoneStep(argv=last_step),) if last_step else ()
    notes = (*filter(None, [note]), *answer.notes)
    answer = replace(answer, steps=(*answer.steps, *steps), notes=notes)
    return reply(answer, _described_screen(machine, answer, task))


def describe(
    question: InstallQuestion, talk: Callable[[str], None], machine: Snapshot
) -> tuple[InstallAnswer, Task]:
    """The answer with the commands for a machine, as its user would type them there, and the task
    that they carry out."""
    packages = installed_packages(machine)
    before = {name: packages[name].version for name in FAMILY if name in packages}
    if machine.torch.installed and machine.torch.version:
        before["torch"] = machine.torch.version
    installer = "conda" if by_conda(machine) else "uv"
    machine = described_python(tuple(map(read_ask, question.requirements)), machine)
    decision = decision_of(question, machine, by_conda=installer == "conda")
    task = choose_task(question, decision.wish, host_for(question, decision.wish, machine), talk)
    if not task.is_done and installer == "uv":
        check_described(machine, task.elsewhere)
    coming, build = task.coming, task.build
    # Packages that change with torch have other names in conda, so name them only for uv.
    beside = (*coming.followers, *coming.pinned) if installer == "uv" else ()
    options = InstallerOptions(
        python=machine.python.executable,
        packages=(*coming.family, *coming.packages, *beside),
        index_root=question.root,
        conda_prefix=machine.conda.prefix,
        again=task.choice.action == "again",
    )
    steps = () if task.is_done else INSTALLERS[installer](task.choice, options)
    answer = InstallAnswer(
        state="unchanged" if task.is_done else "planned",
        target=machine.python.prefix or machine.python.executable or str(question.machine or ""),
        before=before,
        after={**before, **labelled(build, coming.family)},
        steps=tuple(DoneStep(argv=tuple(map(without_logins, step.argv))) for step in steps),
        why=task.why,
        newest=task.newest,
        notes=(*decision.notes, *afterwards(decision.later, machine)),
    )
    return answer, task


def labelled(build: TorchBuild, family: tuple[str, ...]) -> dict[str, str]:
    """The versions of a build as its index has them, such as `2.9.1+cu128`."""
    label = f"+{build.backend}" if build.labelled else ""
    return {name: f"{version}{label}" for name, version in build.family(family).items()}


def _described_screen(
    machine: Snapshot, answer: InstallAnswer, task: Task, last_lines: Iterable[str] = ()
) -> Screen:
    """The screen with the commands for a machine, or with a line which says that nothing needs to
    be installed. `last_lines` come at the end."""
    build, coming = task.build, task.coming
    if task.is_done:
        return screens.end_screen(answer, notes=task.notes)
    # A version such as 2.9.1+cu126 names its backend, but versions from conda and the default index
    # do not.
    has_unnamed_backend = not build.labelled and "torch" in coming.family
    rows = {
        "packages": without_logins(", ".join(coming.packages)),
        "stays": ", ".join(coming.pinned),
        "backend": build.backend if has_unnamed_backend else None,
        "fallback": ", then ".join(other.backend for other in task.builds[1:]),
    }
    system = machine.os.family or OWN_SYSTEM
    notes = (*answer.notes, *task.all_notes)
    return screens.plan_screen(answer, rows, last_lines, notes, system=system)
