"""What `install` says before it does anything: trouble that no torch mends, a build that is not
exchanged unasked, a target that may not be changed; each with the command to go on with."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.shell import shell_line

if TYPE_CHECKING:
    from gpusetup.answers import Offer
    from gpusetup.catalog import Catalog
    from gpusetup.model import Finding, Request, Snapshot
    from gpusetup.render.console import Console
    from gpusetup.resolver.least import Decision


def told_first(
    options: argparse.Namespace,
    out: Console,
    machine: Snapshot,
    catalog: Catalog,
    decision: Decision,
    *,
    is_request: bool,
) -> None:
    """Trouble that no torch mends comes first: it ends the command where nothing was asked for."""
    from gpusetup.render.console import plain
    from gpusetup.rules.elsewhere import trouble_elsewhere
    from gpusetup.rules.judge import diagnose

    other_host = bool(options.for_gpu or options.for_driver)
    findings = diagnose(machine, catalog, other_host=other_host).findings
    found = trouble_elsewhere(findings, torch_stays=decision.how == "kept")
    if found is None:
        return
    if not is_request:
        raise elsewhere(found, machine)
    out.talk(plain(f"First: {found.title} ({found.id}). torch does not mend that."))


def elsewhere(found: Finding, machine: Snapshot) -> Unsatisfiable:
    """Nothing is changed: what is wrong, and what to do about it."""
    from gpusetup.rules.elsewhere import LIE_OVER_EACH_OTHER

    version = machine.torch.version
    stays = f"torch {version} was left as it is" if version else "torch was not installed"
    way = "".join(f"\n  {line}" for line in found.fix.commands) if found.fix else ""
    text = f"{found.fix.text}{':' if way else ''}{way}\n" if found.fix else ""
    if found.id in LIE_OVER_EACH_OTHER:
        return Unsatisfiable(
            f"{found.title} ({found.id}): no other build mends that; nothing was changed",
            hint=f"{text}`gpusetup doctor` says more",
        )
    return Unsatisfiable(
        f"The trouble is not torch: {found.title} ({found.id}); {stays}",
        hint=f"{text}`gpusetup doctor` says more; `gpusetup install --upgrade`, `--torch` or "
        "`--backend` change torch all the same",
    )


def refuse(
    options: argparse.Namespace, machine: Snapshot, decision: Decision, catalog: Catalog
) -> None:
    """Unsatisfiable where nothing fits, and where another maker's GPUs would be served."""
    from gpusetup.resolver.refusal import reasons, told

    if decision.how == "nothing":
        from gpusetup.commands.install_parts import nothing_fits

        raise nothing_fits(decision.resolution)
    if decision.how != "refused":
        return
    rows = reasons(decision, machine, target_words(options), tuple(options.packages))
    usual = "".join(
        f"\n  {row.because}:\n    {shell_line(row.command, machine.os.family)}" for row in rows
    )
    raise Unsatisfiable(
        f"{told(decision, machine, catalog)}. The usual reasons, and the command for each:{usual}",
        hint="only `--backend` exchanges a build for one maker's GPUs for another's, or the CPU's",
    )


def target_words(options: argparse.Namespace) -> tuple[str, ...]:
    """The words with which the environment was named."""
    if options.venv:
        return ("--venv", options.venv)
    return ("--python", options.python) if options.python else ()


def host_words(options: argparse.Namespace) -> tuple[str, ...]:
    """The words with which another host was named."""
    gpus = tuple(word for name in options.for_gpu for word in ("--for-gpu", name))
    return (*gpus, *(("--for-driver", options.for_driver) if options.for_driver else ()))


def upgrade_line(
    options: argparse.Namespace, machine: Snapshot, request: Request, offer: Offer
) -> str:
    """The command that takes the newest, with every word that it was chosen by."""
    wanted = ("--torch", offer.torch) if request.torch else ("--upgrade",)
    backend = ("--backend", options.backend) if options.backend != "auto" else ()
    installer = ("--installer", options.installer) if options.installer != "auto" else ()
    words = (*target_words(options), *wanted, *backend, *installer, *host_words(options))
    return shell_line(("gpusetup", "install", *words), machine.os.family)


def own_environment(
    options: argparse.Namespace, machine: Snapshot, decision: Decision, packages: tuple[str, ...]
) -> str:
    """The command that makes, beside a target that may not be changed, what it would become."""
    from gpusetup.resolver.offer import in_new_environment, new_folder

    backend = ("--backend", options.backend) if options.backend != "auto" else ()
    there = in_new_environment(decision, machine)
    words = (*there, *(() if "--backend" in there else backend), *packages, *host_words(options))
    own = ("gpusetup", "install", "--venv", new_folder(machine), *words)
    return shell_line(own, machine.os.family)


def check_described(machine: Snapshot, way: str) -> None:
    """What would stop a run on that machine itself stops this one."""
    python, own = machine.python, f"use an environment of your own: `{way}`"
    if python.externally_managed:
        raise Blocked(
            f"The Python of {python.prefix or python.executable or 'that machine'} is managed by "
            "the operating system",
            hint=own,
        )
    if python.site_writable is False:
        where = python.site_packages or python.prefix or "Its site-packages"
        raise Blocked(f"{where} cannot be written by this user", hint=own)
