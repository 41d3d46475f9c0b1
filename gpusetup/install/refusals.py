"""What stops `install` before an index is asked, each with the command to go on with: trouble that
no torch mends, a build that is not exchanged unasked, a target that may not be changed."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.accelerators.makers import BY_ID, is_seen_only, maker_of
from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import RECORDS
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.precedence import blocks_torch
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.request import Question
from gpusetup.model.finding import Finding
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.resolver.decide import nothing_fits
from gpusetup.resolver.least import Decision
from gpusetup.resolver.offer import in_new_environment, new_folder
from gpusetup.uv.logins import without_logins


def refuse_trouble_elsewhere(
    question: Question, talk: Callable[[str], None], decision: Decision, *, is_request: bool
) -> None:
    """Trouble that no torch mends comes first: it ends the command where nothing was asked for."""
    machine, other_host = question.machine, question.request.for_other_host
    findings = diagnose(machine, load_catalog(), other_host=other_host).findings
    found = blocks_torch(findings, torch_stays=decision.how == "kept")
    if found is None:
        return
    # A file in the working folder hides torch from programs started there, and from nobody else.
    if not is_request and found.id != "module-shadowed":
        raise elsewhere(found, machine)
    talk(f"First: {found.title} ({found.id}). Installing torch does not fix that.")


def elsewhere(found: Finding, machine: Snapshot) -> Unsatisfiable:
    """Nothing is changed: what is wrong, and what to do about it."""

    version = machine.torch.version
    stays = f"torch {version} was left as it is" if version else "torch was not installed"
    way = "".join(f"\n  {line}" for line in found.fix.commands) if found.fix else ""
    text = f"{found.fix.text}{':' if way else ''}{way}\n" if found.fix else ""
    also = (
        ""
        if RECORDS[found.id].before_torch
        else ("; `gpusetup install --upgrade`, `--torch` or `--backend` change torch all the same")
    )
    return Unsatisfiable(
        f"{found.title} ({found.id}). Installing torch does not fix that; {stays}",
        hint=f"{text}`gpusetup doctor` says more{also}",
    )


def refuse(question: Question, decision: Decision) -> None:
    """Unsatisfiable where nothing fits, and where another maker's GPUs would be served."""
    if decision.how == "nothing":
        raise nothing_fits(decision.resolution)
    if decision.how != "refused":
        return
    machine, held = question.machine, decision.held.backend if decision.held else ""
    maker, newest = maker_of(held), decision.newest.build
    other = newest.backend if newest and newest.backend != held else "cpu"
    host = f"--backend {held}" if is_seen_only(maker) else "--gpu NAME"
    is_for = f"is a build for {BY_ID[maker].name} GPUs" if maker else "may be a build for GPUs"
    raise Unsatisfiable(
        f"torch {machine.torch.version} {is_for}: it was left as it is",
        hint=f"add `{host}` if this image is built on a machine without its GPU, `--backend "
        f"{other}` if you want the build for {other}; if the GPU is here, its driver is missing or "
        "does not answer: `gpusetup doctor` says more",
    )


def own_environment(question: Question, decision: Decision) -> str:
    """The command that makes, beside a target that may not be changed, what it would become."""
    request, machine = question.request, question.machine
    prescribed = in_new_environment(decision, machine, question.wanted)
    asked = {"--driver": request.for_driver, "--index": request.index_root}
    gpus = (("--gpu", gpu) for gpu in request.for_gpu)
    words = (str(word) for pair in (*asked.items(), *gpus) if pair[1] for word in pair)
    own = ("gpusetup", "install", "--venv", new_folder(machine), *prescribed)
    line = shell_line((*own, *question.asked.packages, *words), machine.os.family)
    return without_logins(line)


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
        where = python.site_packages or "Its site-packages"
        raise Blocked(f"{where} cannot be written by this user, or is read-only", hint=own)


# --- what Windows makes of the folder -------------------------------------------------------------


def refuse_unnamed_base(machine: Snapshot, way: str) -> None:
    """`Blocked` where the target is Windows' own Python, and nobody named it: gpusetup merely runs
    in it. On Linux such a one says itself who manages it."""
    python = machine.python
    if machine.os.family == "windows" and (python.manager, python.chosen_by) == ("system", "self"):
        raise Blocked(
            f"{python.prefix} is the system's own Python, not an environment",
            hint=f"use your own environment: `{way}`; `--python` names this one",
        )
