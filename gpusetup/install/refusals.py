"""What stops `install` before an index is asked, each with the command to go on with: trouble that
no torch mends, a build that is not exchanged unasked, a target that may not be changed."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import RECORDS
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.elsewhere import trouble_elsewhere
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.credentials import without_logins
from gpusetup.install.request import InstallRequest, Question
from gpusetup.install.target.place import refuse_unnamed_base
from gpusetup.model.finding import Finding
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Offer
from gpusetup.model.shell import shell_line
from gpusetup.resolver.least import Decision
from gpusetup.resolver.offer import in_new_environment, new_folder
from gpusetup.resolver.refusal import nothing_fits, reasons, told


def refuse_trouble_elsewhere(
    question: Question, talk: Callable[[str], None], decision: Decision, *, is_request: bool
) -> None:
    """Trouble that no torch mends comes first: it ends the command where nothing was asked for."""
    machine, other_host = question.machine, question.request.for_other_host
    findings = diagnose(machine, load_catalog(), other_host=other_host).findings
    found = trouble_elsewhere(findings, torch_stays=decision.how == "kept")
    if found is None:
        return
    if not is_request:
        raise elsewhere(found, machine)
    talk(f"First: {found.title} ({found.id}). torch does not fix that.")


def elsewhere(found: Finding, machine: Snapshot) -> Unsatisfiable:
    """Nothing is changed: what is wrong, and what to do about it."""

    version = machine.torch.version
    stays = f"torch {version} was left as it is" if version else "torch was not installed"
    way = "".join(f"\n  {line}" for line in found.fix.commands) if found.fix else ""
    text = f"{found.fix.text}{':' if way else ''}{way}\n" if found.fix else ""
    if RECORDS[found.id].before_torch:
        return Unsatisfiable(
            f"{found.title} ({found.id}): no other build fixes that; nothing was changed",
            hint=f"{text}`gpusetup doctor` says more",
        )
    return Unsatisfiable(
        f"The trouble is not torch: {found.title} ({found.id}); {stays}",
        hint=f"{text}`gpusetup doctor` says more; `gpusetup install --upgrade`, `--torch` or "
        "`--backend` change torch all the same",
    )


def refuse(question: Question, decision: Decision) -> None:
    """Unsatisfiable where nothing fits, and where another maker's GPUs would be served."""
    if decision.how == "nothing":
        raise nothing_fits(decision.resolution)
    if decision.how != "refused":
        return
    machine, request = question.machine, question.request
    rows = reasons(decision, machine, target_options(request), request.packages)
    usual = "".join(
        f"\n  {row.because}:\n    {shell_line(row.command, machine.os.family)}" for row in rows
    )
    said = told(decision, machine, load_catalog())
    raise Unsatisfiable(
        f"{said}. The usual reasons, and the command for each:{usual}",
        hint="only `--backend` exchanges a build for one maker's GPUs for another's, or the CPU's",
    )


def target_options(request: InstallRequest) -> tuple[str, ...]:
    """The words with which the environment was named."""
    if request.venv:
        return ("--venv", request.venv)
    return ("--python", request.python) if request.python else ()


def host_options(request: InstallRequest) -> tuple[str, ...]:
    """The words with which another host was named."""
    gpus = tuple(word for name in request.for_gpu for word in ("--gpu", name))
    return (*gpus, *(("--driver", request.for_driver) if request.for_driver else ()))


def upgrade_line(question: Question, offer: Offer) -> str:
    """The command that takes the newest, with every word that it was chosen by."""
    request = question.request
    newer = ("--torch", offer.torch) if question.wanted.torch else ("--upgrade",)
    words = (*target_options(request), *newer, *backend_options(request), *host_options(request))
    return shell_line(("gpusetup", "install", *words), question.machine.os.family)


def backend_options(request: InstallRequest) -> tuple[str, ...]:
    return ("--backend", request.backend) if request.backend != "auto" else ()


def own_environment(question: Question, decision: Decision) -> str:
    """The command that makes, beside a target that may not be changed, what it would become."""
    request, machine = question.request, question.machine
    there = in_new_environment(decision, machine)
    backend = () if "--backend" in there else backend_options(request)
    words = (*there, *backend, *question.asked.packages, *host_options(request))
    own = ("gpusetup", "install", "--venv", new_folder(machine), *words)
    return without_logins(shell_line(own, machine.os.family))


def check_described(machine: Snapshot, way: str) -> None:
    """What would stop a run on that machine itself stops this one."""
    python, own = machine.python, f"use your own environment: `{way}`"
    refuse_unnamed_base(machine, way)
    if python.externally_managed:
        raise Blocked(
            f"The Python of {python.prefix or python.executable or 'that machine'} is managed by "
            "the operating system",
            hint=own,
        )
    if python.site_writable is False:
        where = python.site_packages or python.prefix or "Its site-packages"
        raise Blocked(f"{where} cannot be written by this user", hint=own)
