"""`gpusetup install`: resolve, show the steps, fetch, switch, verify, keep or put back."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpusetup.commands.common import add_backend_options, add_machine_options, gather
from gpusetup.commands.install_parts import (
    agreed,
    new_job,
    refused,
    request_of,
    resolved,
    tell_if_held,
)
from gpusetup.errors import GpuSetupError, Unreached, Unsatisfiable, UsageError
from gpusetup.render.console import Console
from gpusetup.resolver.spelled import torch_named

if TYPE_CHECKING:
    from gpusetup.answers import InstallAnswer
    from gpusetup.commands.install_decision import Task
    from gpusetup.install.plan import Plan
    from gpusetup.install.prepare import Where
    from gpusetup.install.run import Job, Outcome
    from gpusetup.model import Snapshot

SUMMARY = """Install the PyTorch that fits this machine into an environment. Everything is shown
before it is done; wheels are fetched and checked first; then the environment is changed, proven by
computing, and kept or put back as it was."""

EXAMPLES = (
    "gpusetup install",
    "gpusetup install --venv .venv torchvision",
    "gpusetup install --torch 2.5.1 --backend cu124 --yes",
    "gpusetup install --dry-run --from rtx3050-laptop",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="torchvision, torchaudio (versions follow torch), or anything from your default index",
    )
    parser.add_argument(
        "--torch",
        type=torch_named,
        metavar="SPEC",
        help="a version or specifier: 2.5.1, '>=2.6,<2.9'",
    )
    add_backend_options(parser)
    parser.add_argument(
        "--installer",
        default="auto",
        choices=("auto", "uv", "pip", "conda"),
        help="default: auto (uv)",
    )
    parser.add_argument(
        "--venv", metavar="DIR", help="the target environment; made where it is not there"
    )
    parser.add_argument(
        "--index-root",
        metavar="URL",
        help="a mirror of https://download.pytorch.org/whl (or GPUSETUP_INDEX_ROOT)",
    )
    parser.add_argument(
        "--download", metavar="DIR", help="only fetch the wheels into a folder, for `--wheelhouse`"
    )
    parser.add_argument(
        "--wheelhouse", metavar="DIR", help="install from such a folder; no network is needed"
    )
    parser.add_argument(
        "--project",
        metavar="FILE",
        nargs="?",
        const="pyproject.toml",
        help="write pins and torch's index into a uv project instead (default: pyproject.toml)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be done, do nothing"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--no-verify", action="store_true", help="do not prove the result by computing"
    )
    parser.add_argument(
        "--no-keep",
        action="store_true",
        help="do not keep the former state for `--undo` (never kept in an image build)",
    )
    state = parser.add_argument_group("afterwards")
    state.add_argument(
        "--undo", action="store_true", help="put back what the last installation replaced"
    )
    state.add_argument(
        "--recover", action="store_true", help="end what an interrupted installation left"
    )
    state.add_argument(
        "--forget", action="store_true", help="drop what is kept for `--undo`, to free its disk"
    )
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest torch that fits, whatever is there"
    )
    host = parser.add_argument_group("an image for another host")
    host.add_argument(
        "--for-gpu",
        metavar="NAME",
        action="append",
        default=[],
        help="install for a host with this GPU (a name, or sm_86); repeatable",
    )
    host.add_argument("--for-driver", metavar="VERSION", help="and with this driver")
    add_machine_options(parser)


def run(options: argparse.Namespace, out: Console) -> int:
    check_usage(options)
    if options.project:
        from gpusetup.commands.install_project import run_project

        return run_project(options, out)
    if options.machine_from:
        from gpusetup.commands.install_described import run_described

        return run_described(options, out)
    from gpusetup.install.log import open_log
    from gpusetup.install.run import naming_log

    log = open_log()
    try:
        if kind := kind_of(options):
            from gpusetup.commands.install_state import run_kind

            return run_kind(kind, options, out, log)
        return _here(options, out, log)
    except UsageError:
        log.path.unlink(missing_ok=True)
        raise
    except GpuSetupError as problem:
        log.line(f"error: {problem.message}")
        raise naming_log(problem, log) from problem


def kind_of(options: argparse.Namespace) -> str | None:
    """`recover`, `undo` or `forget`, where one of them is asked for."""
    kinds = [kind for kind in ("recover", "undo", "forget") if getattr(options, kind)]
    if len(kinds) > 1:
        raise UsageError(f"`--{kinds[0]}` and `--{kinds[1]}` exclude each other")
    return kinds[0] if kinds else None


def check_usage(options: argparse.Namespace) -> None:
    """Contradictions, before anything is read."""
    if options.index_root:
        from gpusetup.install.prepare import index_root_of

        index_root_of(options.index_root, {}, "")
    if options.python and options.venv:
        raise UsageError("`--python` and `--venv` exclude each other", hint="both name the target")
    if options.download and options.wheelhouse:
        raise UsageError(
            "`--download` and `--wheelhouse` exclude each other",
            hint="the first fills a folder, the second installs from it",
        )
    if options.machine_from and not (options.dry_run or options.project):
        raise UsageError(
            "`--from` describes another machine, where nothing can be installed from here",
            hint="add `--dry-run` to see the steps for it",
        )
    if options.machine_from and options.venv:
        raise UsageError("`--from` and `--venv` exclude each other")
    kind = kind_of(options)
    if kind and options.project:
        raise UsageError(
            f"`--{kind}` is about an environment, `--project` about a file",
            hint="the project's version control brings the former file back",
        )
    if options.upgrade and options.torch:
        raise UsageError(
            f"`--upgrade` and `--torch {options.torch}` exclude each other",
            hint="the first takes the newest that fits, the second what it names",
        )
    wanted = options.packages or options.torch or options.upgrade or options.for_gpu
    if kind and (wanted or options.machine_from):
        raise UsageError(
            f"`--{kind}` installs nothing",
            hint="it takes `--python` or `--venv` to name the target",
        )
    asks = kind not in ("recover", "forget") and not options.dry_run and not options.yes
    if asks and not sys.stdin.isatty():
        raise UsageError(
            "There is no terminal to ask on",
            hint="`--yes` installs without asking, `--dry-run` only shows the steps",
        )


# --- this machine --------------------------------------------------------------------------------


def _here(options: argparse.Namespace, out: Console, log: Any) -> int:
    from gpusetup.commands.install_conda import by_conda, conda_is_meant
    from gpusetup.commands.install_decision import anew, planned_task, settled, task_of
    from gpusetup.commands.install_download import download, use_wheelhouse
    from gpusetup.install.plan import asked_for
    from gpusetup.install.transaction import STORE
    from gpusetup.resolver.companions import environment_of

    where, snapshot = _where(options, out)
    layout = where.layout
    job = new_job(options, out, log, layout.python if layout.has_pip else sys.executable)
    job.agree = lambda plan: agree_to(options, out, job, plan)
    asked = asked_for(options.packages, where.installed, environment_of(snapshot))
    request = request_of(options, asked)
    if options.wheelhouse:
        request = use_wheelhouse(job, where, options.wheelhouse, request)
    elif conda_is_meant(options, snapshot):
        return by_conda(options, out, job, where, snapshot, asked)
    if options.download:
        check_where(where)
        fits = resolved(snapshot, request, out, options.index_root)
        return download(options, out, job, where, fits, asked, snapshot)
    task = task_of(options, out, snapshot, asked, request, fresh=where.venv is not None)
    if task.is_done:
        proof = _unchanged(options, out, job, where, task)
        if proof is not None:
            return proof
        task = anew(task)
    check_where(where, task.elsewhere)
    try:
        task, found = settled(options, out, job, where, task, asked)
        plan = found or planned_task(options, job, where, task)
    except Unreached:
        if options.dry_run:
            from gpusetup.commands.install_described import implied

            out.talk(implied(options, where, task))
        raise
    if not plan.wheels and plan.rest is not None:
        return _unchanged(options, out, job, where, task, prove=False) or 0
    if options.dry_run:
        out.answer(_answer(job, plan, "planned", task=task), _shown(job, plan))
        return 0
    out.talk(_shown(job, plan))
    tell_if_held(Path(plan.target, STORE), out)
    if refused(options, out):
        return 1
    return _carried_out(options, out, job, where, plan, task)


def _where(options: argparse.Namespace, out: Console) -> tuple[Where, Snapshot]:
    """The target and the machine around it."""
    from gpusetup.commands.install_state import recover_first
    from gpusetup.install.prepare import (
        Where,
        base_interpreter,
        check_implementation,
        check_target,
        layout_of,
        venv_to_make,
    )
    from gpusetup.install.transaction import STORE, read_journal
    from gpusetup.probe.system import LiveSystem

    venv = options.venv
    if venv is not None:
        venv = str(Path(venv).absolute())
        recover_first(Path(venv), out, dry_run=options.dry_run)
        made = venv_to_make(venv)
        options.python = base_interpreter() if made else venv
        venv = venv if made else None
    snapshot = gather(options, out, need_target=True)
    python = snapshot.python.executable
    if python is None:
        raise UsageError("The target has no interpreter", hint="name one with `--python PATH`")
    layout = layout_of(LiveSystem(), python)
    if venv is None:
        check_implementation(layout)
        if read_journal(Path(layout.prefix, STORE)) is not None:
            check_target(layout)
        recover_first(Path(layout.prefix), out, dry_run=options.dry_run)
    return Where(layout=layout, venv=venv), snapshot


def check_where(where: Where, way: str = "gpusetup install --venv .venv") -> None:
    """Blocked where the target is there and may not be changed; `way` goes on all the same."""
    from gpusetup.install.prepare import check_target

    if where.venv is None:
        check_target(where.layout, way)


def _shown(job: Job, plan: Plan) -> str:
    from gpusetup.install.house import is_kept
    from gpusetup.install.room import room
    from gpusetup.render.install import plan_text

    kept = frozenset(w.filename for w in plan.wheels if is_kept(w, job.house / w.filename))
    return plan_text(plan, kept=kept, free_bytes=room(plan.target, 0).free_bytes)


def agree_to(options: argparse.Namespace, out: Console, job: Job, plan: Plan) -> None:
    """Show a plan that is known in full only now; ask again only where it moves what is there and
    was not shown with the first question."""
    out.talk(_shown(job, plan))
    moved = {wheel.name for wheel in plan.rest or ()} & set(plan.before)
    if moved and not options.yes and not agreed():
        raise Unsatisfiable("Declined", hint="nothing was changed")


def _unchanged(
    options: argparse.Namespace,
    out: Console,
    job: Job,
    where: Where,
    task: Task,
    *,
    prove: bool = True,
) -> int | None:
    """The target is right already: say so. None where verify says otherwise."""
    from gpusetup.answers import InstallAnswer
    from gpusetup.install.layout import distributions
    from gpusetup.install.plan import device_to_prove
    from gpusetup.install.run import prove as proven
    from gpusetup.install.transaction import family_of
    from gpusetup.render.install import unchanged_text

    verdict = None
    build = task.resolution.build
    if prove and build is not None and not (options.no_verify or options.dry_run):
        device = device_to_prove(build.backend, task.gpus_here)
        verdict = proven(job, where.layout.python, device)
        if verdict["verdict"] != "passed":
            out.talk("The right build is there, but fails; it will be installed again.")
            return None
    family = family_of(distributions(where.layout))
    answer = InstallAnswer(
        state="unchanged",
        target=where.layout.prefix,
        before=family,
        after=family,
        steps=(),
        verdict=verdict,
        log=str(job.log.path),
        why=task.why,
        newest=task.newest,
    )
    out.answer(answer, unchanged_text(answer, task.notes))
    return 0


def _carried_out(
    options: argparse.Namespace, out: Console, job: Job, where: Where, plan: Plan, task: Task
) -> int:
    from gpusetup.install.carry import carry_out
    from gpusetup.install.transaction import STORE, kept_for_undo
    from gpusetup.probe.system import LiveSystem
    from gpusetup.render.install import outcome_text

    plan, outcome = carry_out(job, LiveSystem(), where, plan, verify=not options.no_verify)
    state: Literal["installed", "restored"] = "installed" if outcome.kept else "restored"
    answer = _answer(job, plan, state, outcome, task=task)
    kept = kept_for_undo(Path(plan.target, STORE)) if outcome.kept else None
    out.answer(answer, outcome_text(answer, None if kept is None else kept[1]))
    return 0 if outcome.kept else 1


def _answer(
    job: Job,
    plan: Plan,
    state: Literal["installed", "restored", "planned"],
    outcome: Outcome | None = None,
    *,
    task: Task,
) -> InstallAnswer:
    from gpusetup.answers import DoneStep, InstallAnswer

    steps = tuple(DoneStep(argv=step.argv) for step in plan.steps)
    return InstallAnswer(
        state=state,
        target=plan.target,
        before=plan.before,
        after=plan.before if state == "restored" else plan.after,
        steps=steps if outcome is None else tuple(job.done),
        verdict=outcome.verdict if outcome else None,
        receipt=outcome.receipt if outcome else None,
        log=str(job.log.path),
        why=plan.why,
        newest=task.newest,
    )
