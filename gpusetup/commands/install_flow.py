"""The flows of `gpusetup install`: into an environment, back (`--undo`), for a described machine,
and for a project. Each chooses a torch and shows what would be done. The first two ask for
confirmation, and carry it out; `--project` only prints the smallest edit with which a project or a
script gets the right torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusetup import named_file
from gpusetup.catalog.builds import Catalog, completed_from_catalog, index_url
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose, choose_torch
from gpusetup.choose.coming import changes_for, wanted_family
from gpusetup.choose.commands import steps_of_wheels
from gpusetup.choose.constraints import best_build
from gpusetup.choose.described import on_other_host, without_torch
from gpusetup.choose.for_project import decide, described_python
from gpusetup.choose.host import Host, host_of, question_of
from gpusetup.choose.installed import installed_packages, is_conda_torch
from gpusetup.choose.newest import nothing_fits
from gpusetup.choose.packages import AnsweringIndex
from gpusetup.choose.wish import Wish, check_wish, parse_words, with_torch_of_companions
from gpusetup.commands.common import gather
from gpusetup.commands.reply import Reply
from gpusetup.commands.words import is_script, refuse_scripts
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.precedence import blocks_torch
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.job import InstallJob, Plan, device_to_verify, keeps_new_torch, run_verify
from gpusetup.install.planning import free_bytes, plan_newest
from gpusetup.install.project_edit import (
    Edit,
    backends_of_variants,
    edit_for,
    edit_of_poetry,
    edit_of_variants,
    notes_on_tables,
    project_lines,
)
from gpusetup.install.switching import change
from gpusetup.install.switching.change import recover_unfinished, target_folder
from gpusetup.install.switching.journal import STORE, Journal
from gpusetup.install.target import (
    Target,
    distributions,
    family_of,
    layout_of,
    layout_of_folder,
    must_create_venv,
    versions,
)
from gpusetup.install.task import Task, check_environment, not_torchs_fault, refuse_unfit
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import OWN_SYSTEM, own_line
from gpusetup.project.ask import Ask, named_family
from gpusetup.project.read import ask_of_folder, read_ask
from gpusetup.render import install as screens
from gpusetup.render.console import Console
from gpusetup.uv.question import UserIndexes

if TYPE_CHECKING:
    from gpusetup.commands.install import Question as InstallQuestion


def wish_of(question: InstallQuestion) -> Wish:
    """The request that the command's options express; a torchvision with a version also requests
    its torch. Raises UsageError if they name two versions of torch."""
    wish = parse_words(question.packages, question.torch)
    wish = with_torch_of_companions(wish, load_catalog())
    return replace(wish, backend=question.backend, upgrade=question.upgrade)


def host_for(
    question: InstallQuestion, wish: Wish, machine: Snapshot, *, is_new: bool = False
) -> Host:
    """The host on which torch will run. With `is_new`, the environment of `--venv` does not exist
    yet, so it has no torch. Raises UsageError for a wish that is not valid."""
    catalog = load_catalog()
    check_wish(wish, catalog)
    if is_new:
        python = replace(machine.python, prefix=question.venv, manager="venv")
        machine = without_torch(replace(machine, python=python))
    if question.for_other_host:
        machine = on_other_host(machine, question.gpu, question.driver, catalog)
    # Complete the machine last, so that the catalog also completes the GPUs of `--gpu` and the
    # driver of `--driver`.
    return host_of(completed_from_catalog(machine, catalog), catalog)


def choose_task(
    question: InstallQuestion,
    wish: Wish,
    host: Host,
    talk: Callable[[str], None],
    index: AnsweringIndex | None = None,
) -> Task:
    """The task for a request, with packages from an `index`. Raises Unsatisfiable if no build fits,
    or if torch would not help (`refuse_useless_install`). With an index, the caller has checked
    that before the index was asked."""
    catalog = load_catalog()
    choice = choose(wish, host, catalog, index)
    if index is None:
        refuse_useless_install(question, wish, host, choice, talk)
    else:
        refuse_unfit(choice, host.machine)
    return Task(
        wish=wish,
        host=host,
        choice=choice,
        changes=changes_for(choice, host, catalog),
        root=question.root,
        is_for_other_host=question.for_other_host,
        why=choice.reason,
    )


def refuse_torch_of_conda(question: InstallQuestion, machine: Snapshot) -> None:
    """Raise Blocked if conda installed torch. Another installer would leave two torches in one
    place, because conda keeps its own record of packages."""
    # An environment of `--venv` is not conda's.
    if question.venv or not is_conda_torch(machine):
        return
    raise Blocked(
        f"conda installed torch into {machine.python.prefix}, so conda must change it",
        hint="nothing was changed; `gpusetup resolve --installer conda`, with the same `--torch` "
        "(`latest` for `--upgrade`) and `--backend`, prints conda's command for the active "
        "environment; afterwards, `gpusetup verify` tests the result",
    )


def refuse_useless_install(
    question: InstallQuestion, wish: Wish, host: Host, choice: Choice, talk: Callable[[str], None]
) -> None:
    """Raise Unsatisfiable if installing torch would not fix the machine's problem, or if no build
    fits. If the user wants the installation all the same, only tell them of the problem."""
    other_host = question.for_other_host
    diagnosis = diagnose(host.machine, load_catalog(), choice, other_host=other_host)
    finding = blocks_torch(diagnosis.findings, torch_stays=choice.action == "kept")
    if finding:
        is_requested = wish.names_build or wish.upgrade
        only_packages = choice.installed is not None and not wish.is_about_torch
        # A file in the working folder that hides one of torch's modules (`module-shadowed`) only
        # affects programs that are started there.
        if not (is_requested or only_packages or finding.id == "module-shadowed"):
            raise not_torchs_fault(finding, host.machine)
        talk(f"Fix this too: {finding.title} ({finding.id}). Installing torch does not fix it.")
    refuse_unfit(choice, host.machine)


# --- the plan is shown, and carried out -----------------------------------------------------------


def carry_out(
    question: InstallQuestion,
    out: Console,
    planned: InstallAnswer,
    screen: str,
    act: Callable[[], Reply],
) -> Reply:
    """Show the plan, ask for confirmation unless `--yes` is given, and carry it out. A dry run only
    shows it."""
    if question.dry_run:
        return Reply(planned, screen)
    out.talk(screen)
    if not question.yes:
        sys.stderr.write("Proceed? [y/N] ")
        # A line that has not ended may still be in the buffer.
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            out.talk("Nothing was changed.")
            return Reply(exit_code=1)
    return act()


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
    it out. If the test fails, the previous packages are restored."""
    # An interrupted installation is completed or reverted first, because a half-finished state must
    # not be read.
    folder = target_folder(question.python, question.venv)
    recover_unfinished(folder, out.talk, dry_run=question.dry_run)
    # An existing environment is read by its folder. If none is named, the active one is read.
    python = question.venv or question.python
    new_venv = question.venv if question.venv and must_create_venv(question.venv) else None
    if new_venv:
        # A new environment is created from the Python that runs gpusetup.
        python = sys.executable
    machine = gather(out, python=python, need_target=True)
    assert machine.python.executable is not None, "`need_target` ends without an interpreter"
    target = Target(layout=layout_of(machine.python.executable), venv=new_venv)
    job = InstallJob(talk=out.talk)
    run = Run(question, out, job, machine, target)
    refuse_torch_of_conda(question, machine)
    wish = wish_of(question)
    asks = tuple(map(read_ask, question.requirements))
    # The decision's notes contain commands for the target's Python, which may not exist yet, so the
    # task below gets another host, with the Python that does.
    with_target = replace(machine, python=replace(machine.python, executable=target.python))
    decision = decide(asks, wish, host_for(question, wish, with_target), load_catalog())
    notes = decision.notes
    task = _task_in_environment(run, decision.wish)
    if task.changes.is_empty:
        verdict = None
        if not (question.no_verify or question.dry_run):
            device = device_to_verify(task.build.backend, task.gpus_here)
            verdict = run_verify(job, target.layout.python, device)
        return _reply_if_unchanged(run, task, notes, verdict)
    if target.venv is None:
        check_environment(machine)
    task, plan = plan_newest(job, target, task)
    # Without a wheel to download, no package would change.
    if plan.wheels:
        return _show_and_install(run, task, plan, notes)
    return _reply_if_unchanged(run, task, notes)


def _task_in_environment(run: Run, wish: Wish) -> Task:
    """The task for a request in an environment, after looking for reasons to stop."""
    question, talk = run.question, run.out.talk
    host = host_for(question, wish, run.machine, is_new=run.target.venv is not None)
    # For AMD's and Intel's GPUs (`maker`), `choose` chooses only torch, and asks no index.
    if not wish.packages or question_of(wish, host, load_catalog()).maker:
        return choose_task(question, wish, host, talk)
    # An index may take minutes, so look for reasons to stop before it is asked.
    refuse_useless_install(question, wish, host, choose_torch(wish, host, load_catalog()), talk)
    if run.target.venv is None:
        check_environment(run.machine)
    words = without_logins(", ".join(wish.words))
    talk(f"Looking for versions that work together: {words} ...")
    return choose_task(question, wish, host, talk, UserIndexes(host.machine, question.root))


def _reply_if_unchanged(
    run: Run, task: Task, notes: tuple[str, ...], verdict: dict[str, Any] | None = None
) -> Reply:
    """The reply if there is nothing to install, with the reason, the notes on the files that were
    read, and the result of verify if it ran, on which the exit code then depends."""
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
    screen = screens.end_screen(answer, notes=(*task.notes, *notes))
    return Reply(answer, screen, 0 if keeps_new_torch(verdict) else 1)


def _show_and_install(run: Run, task: Task, plan: Plan, notes: tuple[str, ...]) -> Reply:
    """Show and carry out a plan, which changes an environment or creates one."""
    answer = InstallAnswer(
        state="planned",
        target=plan.target,
        before=plan.before,
        after=plan.after,
        steps=tuple(DoneStep(argv=step.argv) for step in plan.steps),
        why=task.why,
        newest=task.newest,
        notes=notes,
    )

    def carry_out_plan() -> Reply:
        verdict = change.install(run.job, run.target, plan, verify=not run.question.no_verify)
        is_kept = keeps_new_torch(verdict)
        ended = replace(
            answer,
            state="installed" if is_kept else "restored",
            after=plan.after if is_kept else plan.before,
            steps=tuple(run.job.done),
            verdict=verdict,
        )
        undo_command = own_line("gpusetup", "install", "--undo", "--python", plan.target)
        undo = f"`{undo_command}`" if is_kept else None
        return Reply(ended, screens.end_screen(ended, undo=undo), 0 if is_kept else 1)

    rows = {
        "hosts": ", ".join(plan.hosts),
        "packages": without_logins(", ".join((*task.changes.packages, *task.changes.reinstalled))),
        "stays": ", ".join(task.changes.pinned),
        "created": "the environment is new" if run.target.venv else None,
        "disk": screens.disk(plan.wheels, free_bytes(plan.target)),
    }
    all_notes = (*plan.notes, *notes)
    screen = screens.plan_screen(answer, rows, screens.downloads(plan.wheels), all_notes)
    return carry_out(run.question, run.out, answer, screen, carry_out_plan)


# --- `--undo` -----------------------------------------------------------------------------------


def undo(question: InstallQuestion, out: Console) -> Reply:
    """Restore the packages that the last installation replaced."""
    folder = target_folder(question.python, question.venv)
    recovered = recover_unfinished(folder, out.talk, dry_run=question.dry_run)
    # An interrupted installation was just reverted, so there is nothing more to undo. In the phase
    # `keeping`, it was completed instead.
    if recovered and recovered.phase != "keeping":
        return _undone(folder, recovered)
    layout = layout_of_folder(folder)
    journal = change.change_to_undo(folder / STORE, layout).journal
    planned = InstallAnswer(
        state="planned", target=str(folder), before=journal.after, after=journal.before, steps=()
    )
    lines = []
    for name, version in journal.after.items():
        previous = journal.before.get(name)
        lines.append(f"{name} {version} -> {previous}" if previous else f"{name} {version} goes")
    # The row `undo` replaces the usual row of changes.
    screen = screens.plan_screen(planned, {"undo": ", ".join(lines), "change": None})

    def restore_previous() -> Reply:
        change.undo(out.talk, layout)
        return _undone(folder, journal)

    return carry_out(question, out, planned, screen, restore_previous)


def _undone(folder: Path, journal: Journal) -> Reply:
    """The reply after the change with this journal was undone."""
    installed = versions(distributions(layout_of_folder(folder)))
    restored = {**family_of(installed), **journal.before}
    answer = InstallAnswer(
        state="restored", target=str(folder), before=journal.after, after=restored, steps=()
    )
    return Reply(answer, screens.end_screen(answer, "undone"))


# --- for a described machine ----------------------------------------------------------------------


def show_described(
    question: InstallQuestion,
    machine: Snapshot,
    out: Console,
    last_step: tuple[str, ...] | None = None,
    note: str | None = None,
) -> Reply:
    """Show the commands for a machine, as its user would type them there, without asking or
    changing anything. `last_step` is one more command, `note` one more note."""
    refuse_torch_of_conda(question, machine)
    installed = installed_packages(machine)
    before = {name: installed[name].version for name in FAMILY if name in installed}
    # torch's own file names the build (`2.9.1+cu128`), which its package's metadata may not.
    if machine.torch.installed and machine.torch.version:
        before["torch"] = machine.torch.version
    asks = tuple(map(read_ask, question.requirements))
    machine = described_python(asks, machine)
    wish = wish_of(question)
    decision = decide(asks, wish, host_for(question, wish, machine), load_catalog())
    # Again, because only now the wish has the backend that a file names, which may be unknown.
    host = host_for(question, decision.wish, machine)
    task = choose_task(question, decision.wish, host, out.talk)
    changes, build = task.changes, task.build
    argvs: list[tuple[str, ...]] = []
    if not changes.is_empty:
        check_environment(machine)
        packages = (*changes.family, *changes.packages, *changes.reinstalled, *changes.pinned)
        python = machine.python.executable
        for step in steps_of_wheels("uv", task.choice, python, packages, question.root):
            argvs.append(tuple(map(without_logins, step.argv)))
    if last_step:
        argvs.append(last_step)
    notes = (note, *decision.notes) if note else decision.notes
    answer = InstallAnswer(
        state="planned" if argvs else "unchanged",
        target=machine.python.prefix or machine.python.executable or str(question.machine or ""),
        before=before,
        after={**before, **labelled(build, changes.family)},
        steps=tuple(DoneStep(argv=argv) for argv in argvs),
        why=task.why,
        newest=task.newest,
        notes=notes,
    )
    if not argvs:
        return Reply(answer, screens.end_screen(answer, notes=(*notes, *task.notes)))
    rows = {
        "packages": without_logins(", ".join(changes.packages)),
        "stays": ", ".join(changes.pinned),
    }
    system = machine.os.family or OWN_SYSTEM
    all_notes = (*notes, *task.all_notes)
    return Reply(answer, screens.plan_screen(answer, rows, notes=all_notes, system=system))


def labelled(build: TorchBuild, family: tuple[str, ...]) -> dict[str, str]:
    """The versions of a build as its index has them, such as `2.9.1+cu128`."""
    members = build.family(family).items()
    return {name: build.labelled_version(version) for name, version in members}


# --- the edit for a project -----------------------------------------------------------------------

PROJECT_FILE = "pyproject.toml"


def show_project(question: InstallQuestion, out: Console) -> Reply:
    """The reply with the edit for the project in this folder or, if one is named, for a script."""
    script = next(filter(is_script, question.packages), None)
    others = tuple(word for word in question.packages if word != script)
    refuse_scripts(others)
    question = question.replaced(packages=others)
    machine = gather(out, question.machine, question.python)
    wish = wish_of(question)
    # Ignore the packages that are installed here, because uv locks a project for other machines
    # too.
    host = host_for(question, wish, without_torch(machine))
    root = without_logins(question.root)
    if script:
        return _show_script(script, wish, host, root)
    ask = _ask_of_project()
    if ask.has_project or ask.is_poetry or not ask.requests:
        return _show_edit(question, ask, wish, host, root)
    # uv can add nothing without a `[project]` table: torch first, then the project with its other
    # packages.
    words = {"requirements": ("-r", ask.path), "setup": ("-e", "."), "pyproject": ("-e", ".")}
    last_step = None
    # What an environment.yml, an image or a lock file lists, uv cannot install as a project.
    if ask.kind in words:
        python = machine.python.executable
        target = ("--python", python) if python else ()
        last_step = ("uv", "pip", "install", *target, *words[ask.kind])
    note = (
        f"{ask.path}: there is no pyproject.toml with a [project] table to edit, so install torch "
        "first, then the project"
    )
    with_file = question.replaced(requirements=(*question.requirements, ask.path))
    return show_described(with_file, machine, out, last_step=last_step, note=note)


def _ask_of_project() -> Ask:
    """What the project in this folder asks for. Raises BadInput for a pyproject.toml that is not
    valid, because uv and pip refuse such a project too."""
    ask = Ask(path=PROJECT_FILE, kind="pyproject")
    if named_file.is_there(Path(PROJECT_FILE)):
        ask = read_ask(PROJECT_FILE)
    if ask.has_project or ask.is_poetry or ask.requests:
        return ask
    # A pyproject.toml may only configure tools, next to a requirements.txt that names torch.
    return ask_of_folder() or ask


def _show_edit(question: InstallQuestion, ask: Ask, wish: Wish, host: Host, root: str) -> Reply:
    """The reply with the edit for a project of uv or Poetry: one that has an extra for each build,
    one that names torch, or one that does not. Raises Unsatisfiable if no build fits."""
    catalog = load_catalog()
    host, python_notes = _for_pythons(ask, host, wish, catalog)
    # uv itself chooses a Python for the project, so the one here excludes nothing.
    decision = decide((replace(ask, python=None),), wish, host, catalog)
    # uv locks the other packages, so they do not choose the build.
    choice = choose(replace(decision.wish, packages=()), host, catalog)
    build = choice.build
    family = wanted_family(choice, host)
    names_torch = bool(ask.family or decision.variant)
    after: dict[str, str] = {}
    if backends := backends_of_variants(ask, build):
        fitting = [extra for extra in backends if build and backends[extra] == build.backend]
        # `uv sync` has to be told one, also if none of them is for this machine.
        chosen = [*fitting, *backends][0]
        # Only a torch that the user named is written into the extras.
        pinned = build if wish.torch else None
        edit = edit_of_variants(backends, ask, family, root, chosen, pinned)
    elif build is None:
        raise nothing_fits(choice)
    elif names_torch and not wish.names_build and not wish.family:
        edit = edit_for(ask, host, build, decision.variant, root, catalog)
        after = labelled(build, ask.family or ("torch",))
    else:
        # The project does not name torch yet, or the user names one. Its torchvision must come from
        # torch's index too, because the one on the default index is built for that index's torch.
        members = build.family(named_family([*family, *ask.family]))
        exact = [f"{build.project(name)}=={version}" for name, version in members.items()]
        url = build.index or index_url(build.backend, root)
        if ask.is_poetry:
            edit = edit_of_poetry(ask, tuple(members), build, url, exact)
        else:
            lines = tuple(project_lines(members, url, build, catalog))
            step = ("uv", "add", *exact, *wish.packages)
            edit = Edit(lines=lines, steps=(step,), notes=notes_on_tables(ask, lines))
        after = labelled(build, family)
    steps = edit.steps
    if wish.packages and ask.is_poetry:
        steps = (*steps, ("poetry", "add", *wish.packages))
    # A step `uv add torch` above already adds the packages.
    elif wish.packages and not any(step[:2] == ("uv", "add") for step in steps):
        # The last step is `uv sync`, with the extra that `uv add` does not install.
        steps = (("uv", "add", *wish.packages), *steps)
    notes = [*edit.notes, *python_notes, *decision.notes]
    if not named_file.is_there(Path(PROJECT_FILE)):
        notes.append(f"this folder has no {PROJECT_FILE}: create one first with `uv init --bare`")
    return _edit_reply(ask.path, after, replace(edit, steps=steps, notes=tuple(notes)))


def _edit_reply(path: str, after: Mapping[str, str], edit: Edit) -> Reply:
    """The reply with an edit of a file; `after` are the versions that the project or script then
    has."""
    answer = InstallAnswer(
        state="planned",
        target=path,
        before={},
        after=after,
        steps=tuple(DoneStep(argv=argv) for argv in edit.steps),
        lines=edit.lines,
        notes=edit.notes,
    )
    return Reply(answer, partial(screens.project_screen, notes=edit.notes))


def _for_pythons(
    ask: Ask, host: Host, wish: Wish, catalog: Catalog
) -> tuple[Host, tuple[str, ...]]:
    """The host with the oldest Python that a project supports, for which uv locks it; the host as
    it is, with a note, if no torch inside the bounds has wheels for that Python."""
    # `>=3.9,<3.13`
    lower_bound = re.search(r">=?\s*(3\.\d+)", ask.python or "")
    if not lower_bound:
        return host, ()
    with_oldest = replace(host, facts=replace(host.facts, python=lower_bound[1]))
    with suppress(Unsatisfiable):
        # That Python is the project's own, so it is not compared with the bounds again.
        decision = decide((replace(ask, python=None),), wish, with_oldest, catalog)
        if best_build(question_of(decision.wish, with_oldest, catalog)):
            return with_oldest, ()
    return host, (
        f"requires-python {ask.python}: no torch that fits this machine has wheels for Python "
        f"{lower_bound[1]}. Raise the lower bound; otherwise `uv lock` chooses an older torch",
    )


def _show_script(path: str, wish: Wish, host: Host, root: str) -> Reply:
    """The reply with the uv commands for a script: uv itself writes the script's metadata block
    (PEP 723), with the index. Raises Unsatisfiable if no build fits."""
    choice = choose(wish, host, load_catalog())
    build = choice.build
    if build is None:
        raise nothing_fits(choice)
    members = build.family(wanted_family(choice, host))
    exact = (f"{build.project(name)}=={version}" for name, version in members.items())
    index = f"pytorch={build.index or index_url(build.backend, root)}"
    commands = (
        ("uv", "add", "--script", path, *exact, *wish.packages, "--index", index),
        ("uv", "run", path),
    )
    notes = (
        "uv also searches this index for the script's other packages; to keep them on the default "
        "index, add `explicit = true` below the index's url in the script",
    )
    return _edit_reply(path, labelled(build, tuple(members)), Edit(steps=commands, notes=notes))
