"""Decides what an installation does: the build, what comes with it, and the reasons to stop.

A reason to stop is a problem that torch cannot fix, a build that must not be replaced unasked, or
an environment that must not be changed. Each error names a command with which to continue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gpusetup.accelerators.makers import BY_ID, is_seen_only, maker_of
from gpusetup.catalog.builds import INDEX_ROOT, completed_from_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import RECORDS
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose
from gpusetup.choose.coming import (
    Coming,
    coming_of,
    new_folder,
    offer_of,
    options_of_new_environment,
)
from gpusetup.choose.compatibility import notes_on_installed
from gpusetup.choose.described import for_host, without_torch
from gpusetup.choose.host import Host, host_of
from gpusetup.choose.index import AnsweringIndex
from gpusetup.choose.installed import installed_family, installed_packages, marker_environment
from gpusetup.choose.newest import nothing_fits
from gpusetup.choose.wish import (
    Wish,
    check_wish,
    parse_words,
    with_torch_named,
    with_torch_of_companions,
)
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.precedence import blocks_torch
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.model.builds import Fallback, Offer, TorchBuild
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.model.versions import parsed
from gpusetup.project.decide import Decision, decide
from gpusetup.project.read import read_ask


class InstallRequest(Protocol):
    """The question of the command (`commands.install.InstallQuestion`), as far as the phases need
    it."""

    packages: tuple[str, ...]
    requirements: tuple[str, ...]
    """The files of `-r`."""
    torch: str | None
    backend: str
    upgrade: bool
    python: str | None
    venv: str | None
    index: str | None
    download: str | None
    gpu: tuple[str, ...]
    driver: str | None
    undo: bool

    @property
    def root(self) -> str:
        """The root URL of torch's indexes. It may contain a login."""

    @property
    def for_other_host(self) -> bool:
        """Whether the options describe the GPU or driver of another host."""


def wish_of(question: InstallRequest, machine: Snapshot, *, by_conda: bool = False) -> Wish:
    """The request that the command's options express. Raises UsageError if they name two versions
    of torch.

    With `by_conda`, conda will install torch, so that only conda's builds count.
    """
    wish = parse_words(question.packages, marker_environment(machine))
    wish = with_torch_named(wish, question.torch)
    wish = with_torch_of_companions(wish, load_catalog())
    installer = "conda" if by_conda else "auto"
    return replace(wish, backend=question.backend, installer=installer, upgrade=question.upgrade)


def decision_of(question: InstallRequest, machine: Snapshot, *, by_conda: bool = False) -> Decision:
    """The request of the options together with what the files of `-r` ask for on this machine."""
    wish = wish_of(question, machine, by_conda=by_conda)
    asks = tuple(map(read_ask, question.requirements))
    if not asks:
        return Decision(wish=wish)
    return decide(asks, wish, host_for(question, wish, machine), load_catalog())


def host_for(
    question: InstallRequest, wish: Wish, machine: Snapshot, *, is_new: bool = False
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


class Task(Frozen):
    """An installation with all decisions made."""

    question: InstallRequest
    host: Host
    wish: Wish
    choice: Choice
    coming: Coming
    why: str | None = None
    """Why this torch is installed or kept."""

    @property
    def machine(self) -> Snapshot:
        return self.host.machine

    @property
    def build(self) -> TorchBuild:
        assert self.choice.build is not None, "a task has a build"
        return self.choice.build

    @property
    def is_done(self) -> bool:
        """Whether everything that was requested is already installed."""
        return self.coming.is_nothing

    @property
    def gpus_here(self) -> int | None:
        """The number of GPUs on this machine that can test the result; 0 if it is for another host,
        None if unknown."""
        if self.question.for_other_host:
            return 0
        stack = self.machine.makers
        if stack is not None and stack.maker == maker_of(self.build.backend):
            return len(stack.gpus)
        return None if self.machine.gpus is None else len(self.machine.gpus)

    @property
    def newest(self) -> Offer | None:
        """The newest build that fits, if its torch is newer than the one to be installed; otherwise
        None."""
        offer = offer_of(self.choice, self.machine)
        # If packages limit torch's version, a newer torch would not work with them, so offer none.
        if offer is None or self.notes_on_packages:
            return None
        return offer if parsed(offer.torch) > parsed(self.build.torch) else None

    @property
    def notes_on_packages(self) -> tuple[str, ...]:
        """Notes on why torch or a package is not newer, if packages influenced the choice."""
        packages, notes = installed_packages(self.machine), []
        for held in self.choice.held_back:
            # Write "stays" only for a package that is installed in this version.
            package = packages.get(held.package)
            is_there = package is not None and package.version.partition("+")[0] == held.at
            at = f"stays at {held.at}" if is_there else f"{held.at} is not the newest"
            notes.append(f"{held.package} {at}: {held.by}")
        return (*notes, *self.choice.notes_on_packages)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the choice, without those about the build itself."""
        notes = [*self.notes_on_packages]
        if self.choice.moves:
            notes += notes_on_installed(self.machine, self.build, load_catalog())
        offer = self.newest
        if offer:
            way = f"--torch {offer.torch}" if self.wish.torch else "--upgrade"
            # A mirror often lacks the newest release, and it is not asked about that here.
            condition = " if your index has it" if self.question.root != INDEX_ROOT else ""
            notes.append(
                f"torch {offer.torch} from {offer.backend} also fits{condition}; to install it, "
                f"add `{way}`"
            )
        return tuple(notes)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """All notes about the choice; those about the build are included only if torch changes."""
        return (*(self.choice.notes if self.choice.moves else ()), *self.notes)

    @property
    def builds(self) -> tuple[Fallback, ...]:
        """The chosen build followed by its alternatives. If the user named a backend, there are no
        alternatives."""
        build, url = self.build, self.choice.index_url or ""
        first = Fallback(torch=build.torch, backend=build.backend, index_url=url)
        return (first, *(self.choice.alternatives if self.question.backend == "auto" else ()))

    @property
    def elsewhere(self) -> str:
        """The command for a new environment, in case this one must not be changed."""
        return new_environment(self.question, self.wish, self.choice, self.machine)

    def again(self) -> Task:
        """A task that installs the same build again, because its test failed."""
        coming = replace(self.coming, family=installed_family(self.machine), pinned=())
        why = "the right build is installed, but its test failed"
        return replace(self, coming=coming, why=why)


def choose_task(
    question: InstallRequest,
    wish: Wish,
    host: Host,
    talk: Callable[[str], None] | None = None,
    index: AnsweringIndex | None = None,
) -> Task:
    """The task for a request. With `talk`, it checks for reasons to stop; an `index`, which is
    asked for packages, does so itself before its first question.

    Raises Unsatisfiable if no build fits or a check stops the installation.
    """
    catalog = load_catalog()
    choice = choose(wish, host, catalog, index)
    if talk is not None:
        stop_early(question, wish, host, choice, talk)
    refuse_unfit(choice, host.machine)
    coming = coming_of(choice, host, catalog)
    return Task(
        question=question, host=host, wish=wish, choice=choice, coming=coming, why=choice.reason
    )


# --- reasons to stop ------------------------------------------------------------------------------


def stop_early(
    question: InstallRequest, wish: Wish, host: Host, choice: Choice, talk: Callable[[str], None]
) -> None:
    """Raise Unsatisfiable if installing torch would not fix the machine's problem, or if no build
    fits."""
    trouble: Finding | None = None
    # Wheels that are only downloaded are meant for another machine, whose problems are unknown.
    if not question.download:
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


def new_environment(question: InstallRequest, wish: Wish, choice: Choice, machine: Snapshot) -> str:
    """The command that creates a new environment, with the requested packages, next to one that
    must not be changed."""
    words = ["gpusetup", "install", "--venv", new_folder(machine)]
    words += (*options_of_new_environment(choice, machine), *wish.packages)
    for option, value in (("--driver", question.driver), ("--index", question.index)):
        words += [option, value] if value else []
    for gpu in question.gpu:
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
