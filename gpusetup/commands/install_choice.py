"""Which torch `gpusetup install` installs: the request of its options and files, answered on a
machine, unless there is a reason to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.catalog.builds import completed_from_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose
from gpusetup.choose.coming import coming_of, new_folder, options_of_new_environment
from gpusetup.choose.described import for_host, without_torch
from gpusetup.choose.host import Host, host_of
from gpusetup.choose.index import AnsweringIndex
from gpusetup.choose.installed import marker_environment
from gpusetup.choose.wish import (
    Wish,
    check_wish,
    parse_words,
    with_torch_named,
    with_torch_of_companions,
)
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.precedence import blocks_torch
from gpusetup.install.task import Task, not_torchs_fault, refuse_unfit
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.project.decide import Decision, decide
from gpusetup.project.read import read_ask

if TYPE_CHECKING:
    from gpusetup.commands.install import InstallQuestion


def wish_of(question: InstallQuestion, machine: Snapshot, *, by_conda: bool = False) -> Wish:
    """The request that the command's options express. Raises UsageError if they name two versions
    of torch.

    With `by_conda`, conda will install torch, so that only conda's builds count.
    """
    wish = parse_words(question.packages, marker_environment(machine))
    wish = with_torch_named(wish, question.torch)
    wish = with_torch_of_companions(wish, load_catalog())
    installer = "conda" if by_conda else "auto"
    return replace(wish, backend=question.backend, installer=installer, upgrade=question.upgrade)


def decision_of(
    question: InstallQuestion, machine: Snapshot, *, by_conda: bool = False
) -> Decision:
    """The request of the options together with what the files of `-r` ask for on this machine."""
    wish = wish_of(question, machine, by_conda=by_conda)
    asks = tuple(map(read_ask, question.requirements))
    if not asks:
        return Decision(wish=wish)
    return decide(asks, wish, host_for(question, wish, machine), load_catalog())


def host_for(
    question: InstallQuestion, wish: Wish, machine: Snapshot, *, is_new: bool = False
) -> Host:
    """The host on which torch will run. An environment that does not exist yet has no torch."""
    catalog = load_catalog()
    check_wish(wish, catalog)
    if is_new:
        python = replace(machine.python, prefix=question.venv, manager="venv")
        machine = without_torch(replace(machine, python=python))
    if question.for_other_host:
        machine = for_host(machine, question.gpu, question.driver, catalog)
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
    """The task for a request, with packages from an `index`.

    Raises Unsatisfiable if no build fits, or if there is a reason to stop (`stop_early`). An index
    has looked for one before its first question, which may take minutes.
    """
    catalog = load_catalog()
    choice = choose(wish, host, catalog, index)
    if index is None:
        stop_early(question, wish, host, choice, talk)
    refuse_unfit(choice, host.machine)
    return Task(
        wish=wish,
        host=host,
        choice=choice,
        coming=coming_of(choice, host, catalog),
        root=question.root,
        is_for_other_host=question.for_other_host,
        elsewhere=new_environment(question, wish, choice, host.machine),
        why=choice.reason,
    )


def stop_early(
    question: InstallQuestion, wish: Wish, host: Host, choice: Choice, talk: Callable[[str], None]
) -> None:
    """Raise Unsatisfiable if installing torch would not fix the machine's problem, or if no build
    fits."""
    other_host = question.for_other_host
    diagnosis = diagnose(host.machine, load_catalog(), choice, other_host=other_host)
    trouble = blocks_torch(diagnosis.findings, torch_stays=choice.action == "kept")
    if trouble:
        # The problem does not matter if torch stays as it is, or if a build was requested. A file
        # in the working folder that hides one of torch's modules only affects programs that are
        # started there.
        stays_beside = choice.installed is not None and not wish.is_about_torch
        is_wanted = wish.names_build or wish.upgrade or stays_beside
        if not is_wanted and trouble.id != "module-shadowed":
            raise not_torchs_fault(trouble, host.machine)
        talk(f"First: {trouble.title} ({trouble.id}). Installing torch does not fix that.")
    refuse_unfit(choice, host.machine)


def new_environment(
    question: InstallQuestion, wish: Wish, choice: Choice, machine: Snapshot
) -> str:
    """The command that creates a new environment, with the requested packages, next to one that
    must not be changed."""
    words = ["gpusetup", "install", "--venv", new_folder(machine)]
    words += (*options_of_new_environment(choice, machine), *wish.packages)
    for option, value in (("--driver", question.driver), ("--index", question.index)):
        words += [option, value] if value else []
    for gpu in question.gpu:
        words += ["--gpu", gpu]
    return without_logins(shell_line(tuple(words), machine.os.family))
