"""The ways of `gpusetup install`: each makes a plan, shows it, asks, and carries it out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.choose.choice import Choice
from gpusetup.commands.common import MachineToRead, gather
from gpusetup.commands.install_session import Done, Session, request_of
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.errors import Blocked
from gpusetup.install.checks import refuse_unnamed_base
from gpusetup.install.choose_task import Order, Stops, choose_task, order_of, wish_of
from gpusetup.install.conda import by_conda, conda_program, conda_says, install_by_conda
from gpusetup.install.described import describe
from gpusetup.install.download import (
    fetch_into_folder,
    folder_of_settings,
    plan_download,
    use_wheelhouse,
)
from gpusetup.install.job import Job, Outcome
from gpusetup.install.plan import Plan
from gpusetup.install.planning import free_bytes, plan_newest_of_mirror
from gpusetup.install.proof import device_to_prove, prove
from gpusetup.install.recovery import (
    recover_unfinished,
    target_folder,
    undo_changes,
)
from gpusetup.install.switching import change
from gpusetup.install.switching import undo as undoing
from gpusetup.install.switching.journal import STORE, UNDO, read_journal
from gpusetup.install.target.find import (
    Target,
    check_target,
    family_in,
    family_of,
    layout_of,
    read_target,
    venv_to_make,
)
from gpusetup.install.target.notes import notes_of_target
from gpusetup.install.task import Task
from gpusetup.model.builds import FAMILY
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import OWN_SYSTEM, own_line
from gpusetup.model.versions import parsed
from gpusetup.probe.own_files import interruptions
from gpusetup.probe.target import choose_target
from gpusetup.render import install as screens
from gpusetup.render.console import Console
from gpusetup.render.screen import Screen, ScreenLine, section
from gpusetup.system.system import System
from gpusetup.uv.lock import DEFAULT_INDEX
from gpusetup.uv.package_index import PersonIndex

if TYPE_CHECKING:
    from gpusetup.commands.install import InstallQuestion


# --- into an environment, by uv -----------------------------------------------------------------


def install(session: Session) -> Reply:
    """Decide, plan, show, ask; then `execute` locks, fetches, replaces, proves, and keeps the new
    packages or puts the previous ones back."""
    request, job = session.request, session.job
    target, machine = _read(session)
    if by_conda(machine) and not (request.wheelhouse or request.venv or request.download):
        return _by_conda(session, target, machine)
    folder = folder_of_settings(job)
    if folder and not (request.wheelhouse or request.download):
        request = replace(request, wheelhouse=folder)
    wish = wish_of(request, machine)
    if request.wheelhouse:
        wish = use_wheelhouse(job, target, request.wheelhouse, wish)
    fresh = target.venv is not None or request.download is not None
    order = order_of(request, wish, machine, fresh=fresh)
    stops = Stops(order, job.talk)
    asks_index = bool(wish.packages) and not (request.wheelhouse or request.download)
    index = _index(session, target, order, stops) if asks_index else None
    task = choose_task(order, stops, index)
    if request.download:
        return _download(session, target, task)
    if task.is_done:
        verdict = _proof_of_what_is_there(session, target, task)
        if verdict is not None:
            return _unchanged(session, target, task, verdict or None)
        task = task.again()
    refuse_unnamed_base(task.machine, task.elsewhere)
    if target.venv is None:
        check_target(target.layout, task.elsewhere)
    older = partial(_with_older_torch, order, stops)
    task, plan = plan_newest_of_mirror(job, target, task, older)
    if not plan.wheels:
        return _unchanged(session, target, task)

    def done() -> Done:
        outcome = change.install(job, target, plan, verify=not request.no_verify)
        answer = plan_answer(job, plan, task, outcome)
        undo = undo_offered(plan) if outcome.kept else None
        return answer, screens.end_screen(answer, undo=undo), outcome.kept

    planned = plan_answer(job, plan, task)
    notes = notes_of_target(target, plan.before)
    return session.carry_out(planned, _plan_screen(job, plan, task, planned, notes), done)


def _with_older_torch(order: Order, stops: Stops, torch: str) -> Task:
    """The task for a torch that is older than one that a mirror lacks."""
    wish = replace(order.wish, torch=f"<{torch}")
    task = choose_task(replace(order, wish=wish), stops)
    return replace(task, wish=order.wish, why="the newest that fits and that the mirror has")


def _index(session: Session, target: Target, order: Order, stops: Stops) -> PersonIndex:
    """The person's indexes for the packages of an order. Whatever stops the order comes before the
    first question: it may take minutes."""
    job = session.job

    def before(choice: Choice, words: tuple[str, ...]) -> None:
        stops.look(choice)
        machine, elsewhere = order.host.machine, stops.elsewhere(choice)
        refuse_unnamed_base(machine, elsewhere)
        if target.venv is None:
            check_target(target.layout, elsewhere)
        job.talk(f"Which versions go together: {without_logins(', '.join(words))} ...")

    return PersonIndex(order.host.machine, session.request.root, job.settings, before)


def _read(session: Session) -> tuple[Target, Snapshot]:
    """The target and the machine around it, both read after an interrupted installation was ended:
    what it leaves is not what there is."""
    request = session.request
    recover_unfinished(target_folder(request), session.out.talk, dry_run=request.dry_run)
    venv, python = request.venv, request.python
    if venv is not None and venv_to_make(venv):
        # There is nothing to read yet; the new environment gets the Python that runs us.
        python = sys.executable
    elif venv is not None:
        python, venv = venv, None
    machine = gather(MachineToRead(python=python, need_target=True), session.out)
    target = read_target(machine.python.executable, venv)
    session.job.prefix = target.venv or target.layout.prefix
    return target, machine


def _proof_of_what_is_there(session: Session, target: Target, task: Task) -> dict[str, Any] | None:
    """None if it has to be installed again; else what verify said, empty if it was not asked. What
    a dry run found interrupted is never right: that is ended first."""
    for event in task.machine.events:
        # One that was only half made is another environment than this target.
        if event.kind == "install-unfinished" and "half_made" not in event.values:
            return None
    if session.request.no_verify or session.request.dry_run:
        return {}
    device = device_to_prove(task.build.backend, task.gpus_here)
    verdict = prove(session.job, target.layout.python, device)
    if verdict["verdict"] == "passed":
        return verdict
    session.out.talk("The right build is there but fails its test: it will be installed again.")
    return None


def _unchanged(
    session: Session, target: Target, task: Task, verdict: dict[str, Any] | None = None
) -> Reply:
    installed = target.installed
    family = {name: installed[name] for name in FAMILY if name in installed}
    answer = InstallAnswer(
        state="unchanged",
        target=target.layout.prefix,
        before=family,
        after=family,
        steps=(),
        verdict=verdict,
        why=task.why,
        newest=task.newest,
    )
    return reply(answer, screens.end_screen(answer, notes=task.notes))


def plan_answer(job: Job, plan: Plan, task: Task, outcome: Outcome | None = None) -> InstallAnswer:
    """A plan that is shown, or that was executed with this outcome."""
    said = interruptions(task.machine) if outcome is None else ()
    planned = tuple(DoneStep(argv=step.argv) for step in plan.steps)
    answer = InstallAnswer(
        state="planned",
        target=plan.target,
        before=plan.before,
        after=plan.after,
        steps=planned if outcome is None else tuple(job.done),
        why=" ".join(filter(None, (*said, task.why))) or None,
        newest=task.newest,
    )
    if outcome is None:
        return answer
    answer = replace(answer, verdict=outcome.verdict, receipt=outcome.receipt)
    if outcome.kept:
        return replace(answer, state="installed")
    return replace(answer, state="restored", after=plan.before)


def _plan_screen(
    job: Job, plan: Plan, task: Task, answer: InstallAnswer, notes: Iterable[str] = ()
) -> Screen:
    """The plan as it is shown; `notes`: what to know of the environment."""
    others = any(wheel.source == DEFAULT_INDEX for wheel in plan.wheels)
    told = {
        "indexes": ", ".join(job.settings.shown_indexes) if others else None,
        "packages": without_logins(", ".join((*task.coming.packages, *task.coming.followers))),
        "stays": ", ".join(task.coming.pinned),
        "created": "the environment is new" if plan.venv else None,
        "fallback": screens.fallback(plan.fallbacks),
        "disk": screens.disk(plan.wheels, free_bytes(plan.target)),
    }
    screen = screens.plan_screen(answer, told, screens.downloads(plan.wheels))
    return screens.with_notes(screen, (*plan.notes, *notes))


# --- by conda, where torch is conda's ------------------------------------------------------------


def _by_conda(session: Session, target: Target, machine: Snapshot) -> Reply:
    """Another installer would leave two torches in one place. Where conda cannot be run, its
    command is shown."""
    request, job, prefix = session.request, session.job, target.layout.prefix
    answer, task = describe(request, job.talk, machine)
    if task.is_done:
        return reply(answer, _described_screen(machine, answer, task))
    program = conda_program()
    argv = (program or "conda", *answer.steps[0].argv[1:])
    answer = replace(answer, steps=(DoneStep(argv=argv),))
    says: tuple[str, ...] = ()
    problem = None if program else "conda, mamba and micromamba are not found"
    if not os.access(Path(prefix, "conda-meta"), os.W_OK):
        problem = f"{prefix} cannot be written by this user"
    if not (problem or request.yes or request.dry_run):
        job.talk("Asking conda what it would change ...")
        says = tuple(ScreenLine(f"  {line}", hang=4) for line in conda_says(argv).splitlines())
    screen = _described_screen(machine, answer, task, section("conda says", says))
    if problem and not request.dry_run:
        session.out.talk(screen)
        test = own_line("gpusetup", "verify", "--python", target.python)
        raise Blocked(
            f"conda has installed torch into {prefix}, and conda itself changes it: {problem}",
            hint=f"nothing was changed; `{own_line(*argv)}` does it, then test it: `{test}`",
        )

    def done() -> Done:
        device = device_to_prove(task.build.backend, task.gpus_here)
        verdict = install_by_conda(job, target.layout, argv, None if request.no_verify else device)
        there = target.installed
        after = {name: there[name] for name in FAMILY if name in there}
        came = parsed(after.get("torch", "")).base_version == parsed(task.build.torch).base_version
        ok = came and (verdict is None or verdict["verdict"] == "passed")
        how = None if ok else "unproven" if came else "other"
        steps = tuple(job.done)
        now = replace(answer, state="installed", after=after, steps=steps, verdict=verdict)
        back = own_line("conda", "install", "--prefix", prefix, "--revision", "N")
        return now, screens.end_screen(now, how, undo=(back, "")), ok

    return session.carry_out(answer, screen, done)


# --- `--undo` -----------------------------------------------------------------------------------


def undo(session: Session) -> Reply:
    """The packages that the last installation replaced come back."""
    request, job, folder = session.request, session.job, target_folder(session.request)
    ended = recover_unfinished(folder, session.out.talk, dry_run=request.dry_run)
    if ended and ended.phase != "keeping":  # to end it was the undo
        answer = InstallAnswer(
            state="restored",
            target=str(folder),
            before=ended.after,
            after={**family_in(folder), **ended.before},
            steps=(),
        )
        return reply(answer, screens.end_screen(answer, "undone"))
    store = folder / STORE
    layout = layout_of(choose_target(System(), str(folder)).python)
    check_target(layout)
    journal = undoing.undo_known(store, layout).journal
    planned = InstallAnswer(
        state="planned",
        target=str(folder),
        before=journal.after,
        after=journal.before,
        steps=(),
    )
    told = {"undo": undo_changes(journal), "change": None}
    screen = screens.plan_screen(planned, told)

    def undone() -> Done:
        undoing.undo(job, layout)
        answer = replace(planned, state="restored", after={**family_in(folder), **journal.before})
        return answer, screens.end_screen(answer, "undone"), True

    return session.carry_out(planned, screen, undone)


def undo_offered(plan: Plan) -> tuple[str, str] | None:
    """The command that undoes, and what it restores if that is not what was just installed."""
    kept = read_journal(Path(plan.target, STORE), UNDO)
    if kept is None:
        return None
    command = own_line("gpusetup", "install", "--undo", "--python", plan.target)
    # An installation that leaves torch alone keeps the undo of the last one that did not.
    if "torch" in plan.after or "torch" not in kept.after:
        return command, ""
    return command, f" (restores {screens.versions(family_of(kept.before))})"


# --- into a folder, and for a described machine -------------------------------------------------


def _download(session: Session, target: Target, task: Task) -> Reply:
    """Fetch all that a new environment needs into a folder; change nothing."""
    job = session.job
    task, plan = plan_download(job, target, task)
    planned = plan_answer(job, plan, task)

    def done() -> Done:
        text = fetch_into_folder(job, plan)
        return planned, f"{text}\n", True

    return session.carry_out(planned, _plan_screen(job, plan, task, planned), done)


def show_described(question: InstallQuestion, out: Console) -> Reply:
    """The commands as one would type them on the machine that is described; nothing is asked."""
    machine = gather(MachineToRead(question.machine), out)
    answer, task = describe(request_of(question), out.talk, machine)
    return reply(answer, _described_screen(machine, answer, task))


def _described_screen(
    machine: Snapshot, answer: InstallAnswer, task: Task, rows: Iterable[str] = ()
) -> Screen:
    build, coming = task.build, task.coming
    if task.is_done:
        return screens.end_screen(answer, notes=task.notes)
    comes = not build.labelled and "torch" in coming.family
    told = {
        "packages": without_logins(", ".join(coming.packages)),
        "stays": ", ".join(coming.pinned),
        "backend": build.backend if comes else None,
        "fallback": screens.fallback(task.builds[1:]),
    }
    system = machine.os.family or OWN_SYSTEM
    screen = screens.plan_screen(answer, told, rows, system=system)
    return screens.with_notes(screen, task.all_notes)
