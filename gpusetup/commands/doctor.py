"""`gpusetup doctor`: reads this machine, and prints the root cause and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.common import DRIVER, FROM, GPU, PYTHON, TIMEOUT, TORCH, Machine, gather
from gpusetup.commands.question import CommandQuestion, option, switch
from gpusetup.commands.reply import Reply
from gpusetup.model.finding import Severity
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.choose.for_project import ProjectHere
    from gpusetup.choose.host import Host
    from gpusetup.model.documents import DoctorAnswer
    from gpusetup.model.machine import Snapshot

SUMMARY = """Finds out what is wrong with PyTorch and the GPU of this machine, and how to fix it. It
changes nothing and does not import torch; to test torch, use `gpusetup verify`. The exit code is 0
if nothing is wrong, and 1 if something is wrong or doctor cannot tell."""
EXAMPLES = (
    "gpusetup doctor",
    "gpusetup doctor --from rtx3050-laptop",
    "gpusetup doctor --report thread.txt",
    'gpusetup doctor --gpu "RTX 4090" --driver 550.54.14',
)


class Question(CommandQuestion):
    machine: Machine | None = FROM._replace(one_of="read")
    python: str | None = PYTHON._replace(one_of="read")
    report: str | bytes | None = option(
        "diagnose this text instead of this machine: output of nvidia-smi or collect_env, a "
        "traceback, a log, or any mix of them; `-` reads from stdin",
        metavar="FILE",
        one_of="read",
        as_it_is=(bytes,),
    )
    timeout: float | None = TIMEOUT
    torch: str | None = TORCH
    gpu: tuple[str, ...] = GPU
    driver: str | None = DRIVER
    explain: str | None = option(
        "explain the finding with this id, e.g. torch-cpu-build", metavar="ID"
    )
    strict: bool = switch("also exit with 1 if there are only warnings")


def run(question: Question, out: Console) -> Reply:
    """Diagnose the machine or the report, or explain the finding that the user names."""
    if question.explain:
        from gpusetup.diagnosis.explanations import known_finding, record
        from gpusetup.model.documents import FindingAnswer
        from gpusetup.render.doctor import explained

        finding = known_finding(record(question.explain))
        return Reply(FindingAnswer(finding=finding), explained(finding))
    from gpusetup.catalog.builds import completed_from_catalog
    from gpusetup.catalog.file import load_catalog
    from gpusetup.choose.choose import choose
    from gpusetup.choose.host import host_of
    from gpusetup.choose.installed import is_conda_torch
    from gpusetup.choose.wish import Wish, check_wish
    from gpusetup.diagnosis.diagnose import diagnose
    from gpusetup.model.frozen import replace
    from gpusetup.render.doctor import doctor_screen

    catalog = load_catalog()
    # Before the machine is read, so that an error comes without a delay.
    check_wish(Wish(torch=question.torch), catalog)
    snapshot = _machine_of(question, out)
    # As `install` does: conda changes a torch that it installed.
    installer = "conda" if is_conda_torch(snapshot) else "auto"
    wish = Wish(torch=question.torch, installer=installer)
    host = host_of(completed_from_catalog(snapshot, catalog), catalog)
    # A report is about somebody else's folder.
    project = _project_here(host, catalog) if question.report is None else None
    # Unless the user named a torch, the project decides on the torch of each fix.
    project_words: tuple[str, ...] = ()
    if project and question.torch is None:
        project_words = project.words
        # A project without a wish names a torch that nothing here fits, or has it in its image.
        wish = replace(project.wish, installer=installer) if project.wish else wish
    answer = diagnose(
        snapshot,
        catalog,
        choose(wish, host, catalog),
        other_host=bool(question.gpu or question.driver),
        project_words=project_words,
    )
    answer = replace(answer, project=project.answer if project else None)
    # With one of these options, the user has chosen what to examine.
    chosen = question.given & {"report", "machine", "python", "gpu", "driver"}
    if snapshot.torch.installed is False and not chosen:
        from gpusetup.probe.environments import environments_with_torch
        from gpusetup.system.system import System

        others = environments_with_torch(System(), snapshot.python.prefix)
        answer = replace(answer, other_environments=others)
    # Only Python passes a whole snapshot as the machine, and gets the answer without a screen.
    recorded = Path(str(question.machine)).name if question.machine else None
    code = exit_code(answer, strict=question.strict)
    return Reply(answer, lambda answer: doctor_screen(answer, recorded), code)


def _project_here(host: Host, catalog: Catalog) -> ProjectHere | None:
    """What the project in this folder asks for; None if there is none, or if it names no torch."""
    from gpusetup.choose.for_project import project_here
    from gpusetup.project.read import ask_of_folder

    ask = ask_of_folder()
    return project_here(ask, host, catalog) if ask else None


def _machine_of(question: Question, out: Console) -> Snapshot:
    """The machine to diagnose, which is read or taken from a report, with the driver and GPUs that
    the options describe."""
    if question.report is not None:
        from gpusetup.commands.report import snapshot_of

        snapshot = snapshot_of(question.report)
    else:
        snapshot = gather(
            out, question.machine, question.python, question.timeout, need_target=True
        )
    if not (question.gpu or question.driver):
        return snapshot
    from gpusetup.catalog.file import load_catalog
    from gpusetup.catalog.gpus import maker_of_name
    from gpusetup.choose.described import on_other_host
    from gpusetup.errors import Unsatisfiable

    catalog = load_catalog()
    for name in question.gpu:
        if maker := maker_of_name(name, catalog.gpus):
            raise Unsatisfiable(
                f"{name!r} is an {maker.name} GPU, but doctor's `--gpu` supports only NVIDIA GPUs",
                hint="`gpusetup resolve --gpu NAME` shows which torch fits it",
            )
    return on_other_host(snapshot, question.gpu, question.driver, catalog)


def exit_code(answer: DoctorAnswer, *, strict: bool) -> int:
    """The exit code of `doctor`: 0 if no failure was found or only speed is lost, otherwise 1. With
    `strict` it is also 1 for a warning."""
    severities = {finding.severity for finding in answer.findings}
    if Severity.ERROR in severities or (strict and Severity.WARNING in severities):
        return 1
    if answer.cause == "ok":
        return 0
    # A root that is not an error only costs speed, as a GPU that waits for its input does, unless
    # it is the symptom of an unknown cause. A cause without a root is a program's failure.
    is_only_slow = any(finding.root for finding in answer.findings)
    return 0 if is_only_slow and answer.cause != "unknown" else 1
