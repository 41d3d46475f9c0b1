"""The variants of `gpusetup install`. Each one makes a plan, shows it, asks for confirmation, and
carries it out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.catalog.builds import completed_from_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.host import host_of
from gpusetup.commands.common import MachineToRead, gather
from gpusetup.commands.install_session import Done, Session
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.errors import Blocked
from gpusetup.install.checks import refuse_unnamed_base
from gpusetup.install.choose_task import Order, Stops, choose_task, decision_of, order_of
from gpusetup.install.conda import by_conda, conda_program, conda_says, install_by_conda
from gpusetup.install.described import describe
from gpusetup.install.download import (
    fetch_into_folder,
    plan_download,
    use_wheelhouse,
)
from gpusetup.install.job import InstallJob, InstallOutcome
from gpusetup.install.plan import Plan
from gpusetup.install.planning import free_bytes, plan_newest_of_mirror
from gpusetup.install.proof import device_to_prove, prove, torch_stays
from gpusetup.install.recovery import (
    recover_unfinished,
    target_folder,
    undo_changes,
    undone_after_recovery,
)
from gpusetup.install.switching import change
from gpusetup.install.switching import undo as undoing
from gpusetup.install.switching.journal import STORE, UNDO, Journal, read_journal
from gpusetup.install.target.find import (
    Target,
    check_target,
    family_in,
    family_of,
    layout_of_folder,
    must_create_venv,
    read_target,
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
from gpusetup.project.ask import Ask
from gpusetup.project.decide import afterwards, keeps_image, refuse_image
from gpusetup.project.read import read_ask
from gpusetup.render import install as screens
from gpusetup.render.console import Console
from gpusetup.render.screen import Screen, ScreenLine, section
from gpusetup.uv.package_index import PersonIndex

if TYPE_CHECKING:
    from gpusetup.commands.install import InstallQuestion


# --- into an environment, by uv -----------------------------------------------------------------


def install(session: Session) -> Reply:
    """Choose a torch for the environment, show the planned change, ask for confirmation, and carry
    it out.

    If the test fails, the previous packages are restored.
    """
    request, job = session.request, session.job
    target, machine = _read_target(session)
    # If conda installed torch, conda must change it. Another installer would leave two torches in
    # one place, because conda keeps its own record of packages.
    if by_conda(machine) and not (request.offline or request.venv or request.download):
        return _by_conda(session, target, machine)
    decision = decision_of(request, machine)
    wish, asked = decision.wish, (*decision.notes, *afterwards(decision.later, machine))
    if request.offline:
        wish = use_wheelhouse(job, target, request.offline, wish)

    # Decide what to install.
    is_new_environment = target.venv is not None or request.download is not None
    order = order_of(request, wish, machine, fresh=is_new_environment)
    stops = Stops(order, job.talk)
    index = None
    if wish.packages and not (request.offline or request.download):
        index = _index(session, target, order, stops)
    task = choose_task(order, stops, index)
    with_older_torch = partial(_with_older_torch, order, stops)
    if request.download:
        return _download(session, target, task, with_older_torch, asked)
    if task.is_done:
        verdict = _proof_of_installed_torch(session, target, task)
        if verdict is not None:
            return _unchanged(session, target, task, asked, verdict or None)
        task = task.again()

    # Check whether the target may be changed.
    refuse_unnamed_base(task.machine, task.elsewhere)
    if target.venv is None:
        check_target(target.layout, task.elsewhere)
    task, plan = plan_newest_of_mirror(job, target, task, with_older_torch)
    if not plan.wheels:
        _refuse_unfinished(task.machine)
        return _unchanged(session, target, task, asked)

    def carry_out_plan() -> Done:
        outcome = change.install(job, target, plan, verify=not request.no_verify)
        answer = replace(plan_answer(job, plan, task, outcome), notes=asked)
        undo = undo_offered(plan) if outcome.kept else None
        return answer, screens.end_screen(answer, undo=undo), outcome.kept

    planned = replace(plan_answer(job, plan, task), notes=asked)
    notes = (*plan.notes, *notes_of_target(target, plan.before), *asked)
    return session.carry_out(planned, _plan_screen(planned, plan, task, notes), carry_out_plan)


def _with_older_torch(order: Order, stops: Stops, bound: str) -> Task:
    """The installation task with the newest torch within a bound, such as `<2.9.1`, because a
    mirror lacks the chosen release."""
    # A range that the user named still holds.
    wish = replace(order.wish, torch=",".join(filter(None, (order.wish.torch, bound))))
    task = choose_task(replace(order, wish=wish), stops)
    return replace(task, wish=order.wish, why="the newest that fits and that the mirror has")


def _index(session: Session, target: Target, order: Order, stops: Stops) -> PersonIndex:
    """The user's package indexes, for the packages of an order.

    Asking the index may take minutes, so this first checks for reasons to stop.
    """
    job = session.job

    def look_before_asking(choice: Choice, words: tuple[str, ...]) -> None:
        stops.look(choice)
        machine, elsewhere = order.host.machine, stops.elsewhere(choice)
        refuse_unnamed_base(machine, elsewhere)
        if target.venv is None:
            check_target(target.layout, elsewhere)
        job.talk(f"Looking for versions that work together: {without_logins(', '.join(words))} ...")

    return PersonIndex(order.host.machine, session.request.root, look_before_asking)


def _read_target(session: Session) -> tuple[Target, Snapshot]:
    """The environment to change, and its machine.

    If an installation was interrupted, it is completed or reverted first, because a half-finished
    state must not be read.
    """
    request = session.request
    recover_unfinished(target_folder(request), session.out.talk, dry_run=request.dry_run)
    # An existing environment is read by its folder. If neither is named, the active one is read.
    python, new_venv = request.venv or request.python, None
    if request.venv and must_create_venv(request.venv):
        # A new environment is created from the Python that runs gpusetup.
        python, new_venv = sys.executable, request.venv
    machine = gather(MachineToRead(python=python, need_target=True), session.out)
    return read_target(machine.python.executable, new_venv), machine


def _proof_of_installed_torch(
    session: Session, target: Target, task: Task
) -> dict[str, Any] | None:
    """The result of verify for the installed torch, which is already the right build.

    The result is empty if no test was requested, and None if torch must be installed again.
    """
    if _is_unfinished(task.machine):
        return None
    if session.request.no_verify or session.request.dry_run:
        return {}
    device = device_to_prove(task.build.backend, task.gpus_here)
    verdict = prove(session.job, target.layout.python, device)
    if torch_stays(verdict):
        return verdict
    session.out.talk("The right build is there but fails its test: it will be installed again.")
    return None


def _is_unfinished(machine: Snapshot) -> bool:
    """Whether an installation into the target was interrupted and is still unfinished.

    Only a dry run can find an unfinished installation here. Other runs have completed or reverted
    it before the machine was read.
    """
    for event in machine.events:
        # `half_made` marks a new environment that is unfinished. That environment is not this
        # target.
        if event.kind == "install-unfinished" and "half_made" not in event.values:
            return True
    return False


def _refuse_unfinished(machine: Snapshot) -> None:
    """Raise Blocked if an interrupted installation left packages that would be removed again.

    Otherwise the answer "Nothing to do" would be wrong.
    """
    if _is_unfinished(machine):
        raise Blocked(
            "An earlier installation was interrupted, so it is not known what would be installed",
            hint="nothing was changed; the command above ends it",
        )


def _unchanged(
    session: Session,
    target: Target,
    task: Task,
    asked: Sequence[str],
    verdict: dict[str, Any] | None = None,
) -> Reply:
    """The reply if there is nothing to install, with the reason, the notes on the files that were
    read, and the result of verify if it ran."""
    family = _installed_family(target)
    answer = InstallAnswer(
        state="unchanged",
        target=target.layout.prefix,
        before=family,
        after=family,
        steps=(),
        verdict=verdict,
        why=task.why,
        newest=task.newest,
        notes=tuple(asked),
    )
    return reply(answer, screens.end_screen(answer, notes=(*task.notes, *asked)))


def _installed_family(target: Target) -> dict[str, str]:
    """The installed versions of torch's packages (torch, torchvision and torchaudio)."""
    installed = target.installed
    return {name: installed[name] for name in FAMILY if name in installed}


def plan_answer(
    job: InstallJob, plan: Plan, task: Task, outcome: InstallOutcome | None = None
) -> InstallAnswer:
    """The document of a plan, including its outcome if it was carried out."""
    reasons = [task.why]
    if outcome is None:
        reasons = [*interruptions(task.machine), task.why]
    answer = InstallAnswer(
        state="planned",
        target=plan.target,
        before=plan.before,
        after=plan.after,
        steps=tuple(DoneStep(argv=step.argv) for step in plan.steps),
        why=" ".join(filter(None, reasons)) or None,
        newest=task.newest,
    )
    if outcome is None:
        return answer
    answer = replace(
        answer, steps=tuple(job.done), verdict=outcome.verdict, receipt=outcome.receipt
    )
    if outcome.kept:
        return replace(answer, state="installed")
    return replace(answer, state="restored", after=plan.before)


def _plan_screen(planned: InstallAnswer, plan: Plan, task: Task, notes: Sequence[str]) -> Screen:
    """The screen of a plan, with notes at the end."""
    rows = {
        "hosts": ", ".join(dict.fromkeys(wheel.host for wheel in plan.wheels if wheel.host)),
        "packages": without_logins(", ".join((*task.coming.packages, *task.coming.followers))),
        "stays": ", ".join(task.coming.pinned),
        "created": "the environment is new" if plan.venv else None,
        "fallback": screens.fallback(plan.fallbacks),
        "disk": screens.disk(plan.wheels, free_bytes(plan.target)),
    }
    screen = screens.plan_screen(planned, rows, screens.downloads(plan.wheels))
    return screens.with_notes(screen, notes)


# --- by conda, if conda installed torch -----------------------------------------------------------


def _by_conda(session: Session, target: Target, machine: Snapshot) -> Reply:
    """Let conda change a torch that conda installed. If conda cannot run, raise Blocked with the
    command to type."""
    request, job, prefix = session.request, session.job, target.layout.prefix
    answer, task = describe(request, job.talk, machine)
    if task.is_done:
        return reply(answer, _described_screen(machine, answer, task))
    program = conda_program()
    argv = (program or "conda", *answer.steps[0].argv[1:])
    answer = replace(answer, steps=(DoneStep(argv=argv),))
    conda_lines: tuple[str, ...] = ()
    problem = None if program else "conda, mamba and micromamba are not found"
    if not os.access(Path(prefix, "conda-meta"), os.W_OK):
        problem = f"{prefix} cannot be written by this user"
    # conda's own preview takes a minute, so it is only made for a user who is about to answer yes
    # or no.
    if not (problem or request.yes or request.dry_run):
        job.talk("Asking conda what it would change ...")
        preview = conda_says(argv)
        conda_lines = tuple(ScreenLine(f"  {line}", hang=4) for line in preview.splitlines())
    screen = _described_screen(machine, answer, task, section("conda says", conda_lines))
    if problem and not request.dry_run:
        session.out.talk(screen)
        test = own_line("gpusetup", "verify", "--python", target.python)
        raise Blocked(
            f"conda installed torch into {prefix}, so only conda can change it: {problem}",
            hint=f"nothing was changed; `{own_line(*argv)}` does it, then test it: `{test}`",
        )

    def run_conda() -> Done:
        device = None
        if not request.no_verify:
            device = device_to_prove(task.build.backend, task.gpus_here)
        verdict = install_by_conda(job, target.layout, argv, device)
        after = _installed_family(target)
        # conda's solver may choose another release than the one in its command.
        installed_release = parsed(after.get("torch", "")).base_version
        is_chosen_release = installed_release == parsed(task.build.torch).base_version
        is_proven = torch_stays(verdict)
        how_it_ended = None
        if not is_chosen_release:
            how_it_ended = "other"
        elif not is_proven:
            how_it_ended = "unproven"
        changed = replace(
            answer, state="installed", after=after, steps=tuple(job.done), verdict=verdict
        )
        way_back = own_line("conda", "install", "--prefix", prefix, "--revision", "N")
        screen = screens.end_screen(changed, how_it_ended, undo=(way_back, ""))
        return changed, screen, how_it_ended is None

    return session.carry_out(answer, screen, run_conda)


# --- `--undo` -----------------------------------------------------------------------------------


def undo(session: Session) -> Reply:
    """Restore the packages that the last installation replaced."""
    request, job, folder = session.request, session.job, target_folder(session.request)
    ended = recover_unfinished(folder, session.out.talk, dry_run=request.dry_run)
    # An interrupted installation was found and has just been reverted, so there is nothing more to
    # undo.
    if ended and ended.phase != "keeping":
        answer = InstallAnswer(
            state="restored",
            target=str(folder),
            before=ended.after,
            after={**family_in(folder), **ended.before},
            steps=(),
        )
        return reply(answer, screens.end_screen(answer, "undone"))
    store = folder / STORE
    unfinished = read_journal(store)
    # Only a dry run can find an unfinished change here; its half-finished state cannot be compared
    # with a plan.
    if unfinished is not None:
        return reply(*_planned_undo(folder, undone_after_recovery(store, unfinished)))
    layout = layout_of_folder(folder)
    check_target(layout)
    journal = undoing.undo_known(store, layout).journal
    planned, screen = _planned_undo(folder, journal)

    def restore_previous() -> Done:
        undoing.undo(job, layout)
        restored = {**family_in(folder), **journal.before}
        answer = replace(planned, state="restored", after=restored)
        return answer, screens.end_screen(answer, "undone"), True

    return session.carry_out(planned, screen, restore_previous)


def _planned_undo(folder: Path, journal: Journal) -> tuple[InstallAnswer, Screen]:
    """The plan to undo the change with this journal, as a document and as a screen."""
    planned = InstallAnswer(
        state="planned",
        target=str(folder),
        before=journal.after,
        after=journal.before,
        steps=(),
    )
    changes = undo_changes(journal) or "no package was replaced yet; what was unpacked goes"
    return planned, screens.plan_screen(planned, {"undo": changes, "change": None})


def undo_offered(plan: Plan) -> tuple[str, str] | None:
    """The command that undoes this installation; None if nothing can be undone. If the undo would
    restore other packages than this installation replaced, a remark says so."""
    kept_copy = read_journal(Path(plan.target, STORE), UNDO)
    if kept_copy is None:
        return None
    command = own_line("gpusetup", "install", "--undo", "--python", plan.target)
    # An installation that does not change torch keeps the undo of the last one that did.
    if "torch" in plan.after or "torch" not in kept_copy.after:
        return command, ""
    return command, f" (restores {screens.versions(family_of(kept_copy.before))})"


# --- into a folder, and for a described machine -------------------------------------------------


def _download(
    session: Session,
    target: Target,
    task: Task,
    older: Callable[[str], Task],
    asked: tuple[str, ...],
) -> Reply:
    """Download all wheels for a new environment into a folder, without installing them. If a mirror
    lacks the newest torch, an `older` one is downloaded."""
    job = session.job
    task, plan = plan_download(job, target, task, older)
    planned = replace(plan_answer(job, plan, task), notes=asked)

    def fetch() -> Done:
        text = fetch_into_folder(job, plan)
        return planned, f"{text}\n", True

    return session.carry_out(
        planned, _plan_screen(planned, plan, task, (*plan.notes, *asked)), fetch
    )


def show_described(question: InstallQuestion, out: Console) -> Reply:
    """Show the commands for a described machine, without asking or changing anything."""
    machine = gather(MachineToRead(question.machine), out)
    for ask in map(read_ask, question.requirements):
        if keeps_image(ask):
            return _image_reply(ask, machine)
    return described_reply(question, machine, out)


def _image_reply(ask: Ask, machine: Snapshot) -> Reply:
    """The reply for a Dockerfile whose image brings a torch of its own: there is nothing to
    install. Raises Unsatisfiable if that torch has no kernels for the GPU."""
    catalog = load_catalog()
    refuse_image(ask, host_of(completed_from_catalog(machine, catalog), catalog))
    why = f"the image {ask.image} brings its own torch, which pip in that image keeps"
    own = {"torch": "(the image's)"}
    answer = InstallAnswer(
        state="unchanged", target=ask.path, before=own, after=own, steps=(), why=why
    )
    return reply(answer, screens.end_screen(answer))


def described_reply(
    question: InstallQuestion,
    machine: Snapshot,
    out: Console,
    last_step: tuple[str, ...] | None = None,
    note: str | None = None,
) -> Reply:
    """Show the commands for a machine, followed by one more step."""
    answer, task = describe(question, out.talk, machine)
    if last_step:
        answer = replace(answer, steps=(*answer.steps, DoneStep(argv=last_step)))
    answer = replace(answer, notes=(*filter(None, [note]), *answer.notes))
    return reply(answer, _described_screen(machine, answer, task))


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
        "fallback": screens.fallback(task.builds[1:]),
    }
    system = machine.os.family or OWN_SYSTEM
    screen = screens.plan_screen(answer, rows, last_lines, system=system)
    return screens.with_notes(screen, (*answer.notes, *task.all_notes))
