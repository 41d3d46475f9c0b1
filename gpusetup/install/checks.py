"""Checks that stop `install` before it asks an index. They find problems that torch cannot fix,
builds that must not be replaced unasked, and environments that must not be changed. Each error
names a command with which to continue."""

from __future__ import annotations

from gpusetup.accelerators.makers import BY_ID, is_seen_only, maker_of
from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import RECORDS
from gpusetup.choose.choice import Choice
from gpusetup.choose.document import new_folder, options_of_new_environment
from gpusetup.choose.newest import nothing_fits
from gpusetup.choose.wish import Wish
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.precedence import blocks_torch
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.options import InstallRequest
from gpusetup.model.finding import Finding
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import shell_line


def trouble_elsewhere(machine: Snapshot, choice: Choice, *, other_host: bool) -> Finding | None:
    """The problem of this machine that installing torch cannot fix; None if there is none."""
    diagnosis = diagnose(machine, load_catalog(), choice, other_host=other_host)
    return blocks_torch(diagnosis.findings, torch_stays=choice.action == "kept")


def not_torchs_fault(trouble: Finding, machine: Snapshot) -> Unsatisfiable:
    """The error for a problem that installing torch does not fix, with what to do instead."""
    version = machine.torch.version
    stays = f"torch {version} was left as it is" if version else "torch was not installed"
    hint = ""
    if trouble.fix:
        commands = "".join(f"\n  {line}" for line in trouble.fix.commands)
        # A text of several sentences ends before the commands, so that a colon does not join them
        # to the last one only.
        end = ". Run:" if ". " in trouble.fix.text else ":"
        hint = f"{trouble.fix.text}{end if commands else ''}{commands}\n"
    hint += "`gpusetup doctor` shows the details"
    if not RECORDS[trouble.id].before_torch:
        hint += "; `gpusetup install --upgrade`, `--torch` or `--backend` change torch anyway"
    return Unsatisfiable(
        f"{trouble.title} ({trouble.id}). Installing torch would not fix that, so {stays}",
        hint=hint,
    )


def refuse_unfit(choice: Choice, machine: Snapshot) -> None:
    """Raise Unsatisfiable if no build fits, or if a build for another maker's GPUs would replace
    torch without a request for it."""
    if choice.build is None:
        raise nothing_fits(choice)
    if choice.action != "refused":
        return
    installed = choice.installed.backend if choice.installed else ""
    maker = maker_of(installed)
    newest = choice.newest.build if choice.newest else None
    other = newest.backend if newest and newest.backend != installed else "cpu"
    host = f"--backend {installed}" if is_seen_only(maker) else "--gpu NAME"
    is_for = f"is a build for {BY_ID[maker].name} GPUs" if maker else "may be a build for GPUs"
    raise Unsatisfiable(
        f"torch {machine.torch.version} {is_for}: it was left as it is",
        hint=f"add `{host}` if you build an image on a machine without its GPU, `--backend "
        f"{other}` if you want the {other} build; if the GPU is here, its driver is missing or "
        "does not respond: `gpusetup doctor` shows the details",
    )


def own_environment(request: InstallRequest, choice: Choice, wish: Wish, machine: Snapshot) -> str:
    """The command that creates a new environment, with the requested packages, next to one that
    must not be changed."""
    words = ["gpusetup", "install", "--venv", new_folder(machine)]
    words += options_of_new_environment(choice, machine)
    words += wish.packages
    for option, value in (("--driver", request.driver), ("--index", request.index)):
        if value:
            words += [option, value]
    for gpu in request.gpu:
        words += ["--gpu", gpu]
    return without_logins(shell_line(tuple(words), machine.os.family))


def check_described(machine: Snapshot, way: str) -> None:
    """Raise Blocked if the described environment must not be changed, for the same reasons as an
    environment on this machine."""
    python, hint = machine.python, f"use your own environment: `{way}`"
    refuse_unnamed_base(machine, way)
    if python.externally_managed:
        raise Blocked(
            f"The Python of {python.prefix or python.executable or 'that machine'} is managed by "
            "the operating system",
            hint=hint,
        )
    if python.site_writable is False:
        where = python.site_packages or "Its site-packages"
        raise Blocked(f"{where} cannot be written by this user, or is read-only", hint=hint)


def refuse_unnamed_base(machine: Snapshot, way: str) -> None:
    """Raise Blocked if the target is the system's own Python on Windows, and it is only the target
    because gpusetup runs in it. The user must then name it with `--python`."""
    python = machine.python
    if machine.os.family == "windows" and (python.manager, python.chosen_by) == ("system", "self"):
        raise Blocked(
            f"{python.prefix} is the system's own Python, not an environment",
            hint=f"use your own environment: `{way}`; `--python` names this one",
        )
