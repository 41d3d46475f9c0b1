"""What an installation does, with all decisions made, and the reasons to refuse it.

A reason is a problem that torch cannot fix, a build that must not be replaced unasked, or an
environment that must not be changed. Each error names a command with which to continue.
"""

from __future__ import annotations

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import RECORDS
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose
from gpusetup.choose.coming import Changes, changes_for, new_folder, offer_of
from gpusetup.choose.compatibility import notes_on_installed
from gpusetup.choose.host import Host
from gpusetup.choose.newest import nothing_fits
from gpusetup.choose.wish import Wish
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.model.builds import Offer, TorchBuild
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed


class Task(Frozen):
    """An installation with all decisions made."""

    wish: Wish
    host: Host
    choice: Choice
    changes: Changes
    root: str
    """The root URL of torch's indexes. It may contain a login."""
    is_for_other_host: bool = False
    """Whether the GPU or driver of another host was described (`--gpu`, `--driver`)."""
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
    def gpus_here(self) -> int | None:
        """The number of GPUs on this machine that can test the result; 0 if it is for another host,
        None if unknown. They are the GPUs of the maker of the build, NVIDIA for a CPU build."""
        if self.is_for_other_host:
            return 0
        stack = self.machine.makers
        # `machine.gpus` only lists GPUs of NVIDIA.
        if stack is not None and stack.maker == maker_of(self.build.backend):
            return len(stack.gpus)
        return None if self.machine.gpus is None else len(self.machine.gpus)

    @property
    def newest(self) -> Offer | None:
        """The newest build that fits; None if its torch is no newer than the one of this task."""
        offer = offer_of(self.choice, self.machine, without_logins(self.root))
        # Packages that were chosen together with this torch may not work with a newer one.
        if offer is None or self.choice.notes_on_packages:
            return None
        return offer if parsed(offer.torch) > parsed(self.build.torch) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the choice, without those about the build itself."""
        notes = [*self.choice.notes_on_packages]
        if self.choice.installs_torch:
            notes += notes_on_installed(self.machine, self.build, load_catalog())
        offer = self.newest
        if offer:
            # `--torch` and `--upgrade` exclude each other.
            option = f"--torch {offer.torch}" if self.wish.torch else "--upgrade"
            notes.append(
                f"torch {offer.torch} from {offer.backend} also fits; to install it, add `{option}`"
            )
        return tuple(notes)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """All notes about the choice; those about the build are included only if torch changes."""
        return (*(self.choice.notes if self.choice.installs_torch else ()), *self.notes)

    def within(self, bound: str, why: str) -> Task:
        """The task with a torch inside one more bound, such as `<=2.9.1`. The bound is not the
        person's, so `wish` stays as it is. Raises Unsatisfiable if no build fits."""
        catalog = load_catalog()
        # The person may have asked for a version, a range, or `latest`, which is no bound.
        requested = None if self.wish.wants_newest else self.wish.torch
        wish = replace(self.wish, torch=f"{requested},{bound}" if requested else bound)
        choice = choose(wish, self.host, catalog)
        refuse_unfit(choice, self.machine)
        changes = changes_for(choice, self.host, catalog)
        return replace(self, choice=choice, changes=changes, why=why)


def not_torchs_fault(trouble: Finding, machine: Snapshot) -> Unsatisfiable:
    """The error for a problem that installing torch does not fix, with what to do instead."""
    hint = ""
    if trouble.fix:
        commands = "".join(f"\n  {line}" for line in trouble.fix.commands)
        hint = f"{trouble.fix.text}{'. Run:' if commands else ''}{commands}\n"
    hint += "`gpusetup doctor` shows the details"
    # `before_torch` lists the severities with which a cause must be fixed before torch is changed,
    # whatever the person asks for.
    if trouble.severity not in RECORDS[trouble.id].before_torch:
        hint += "; `gpusetup install --upgrade`, `--torch` or `--backend` change torch anyway"
    version = machine.torch.version
    stays = f"torch {version} was not changed" if version else "torch was not installed"
    return Unsatisfiable(
        f"{trouble.title} ({trouble.id}). Installing torch would not fix that, so {stays}",
        hint=hint,
    )


def refuse_unfit(choice: Choice, machine: Snapshot) -> None:
    """Raise Unsatisfiable if no build fits, or if a build for another maker's GPUs or for the CPU
    would replace torch without a request for it."""
    if choice.build is None:
        raise nothing_fits(choice)
    if choice.action != "refused":
        return
    installed = choice.installed.backend if choice.installed else ""
    maker = maker_of(installed)
    newest = choice.newest.build if choice.newest else None
    # The backend that fits without the installed torch's GPU.
    fitting = newest.backend if newest and newest.backend != installed else "cpu"
    is_for = f"is a build for {BY_ID[maker].name} GPUs" if maker else "may be a build for GPUs"
    raise Unsatisfiable(
        f"torch {machine.torch.version} {is_for}, so it was not changed",
        hint="add `--gpu NAME` if you build an image on a machine without its GPU, `--backend "
        f"{fitting}` if you want the {fitting} build. If the GPU is here, its driver is "
        "missing or does not respond: `gpusetup doctor` shows the details",
    )


def check_environment(machine: Snapshot) -> None:
    """Raise Blocked if the environment must not be changed."""
    python = machine.python
    hint = f"use your own environment: add `--venv {new_folder(machine)}` to the command"
    # On Windows, gpusetup often runs in the system's own Python, which the user has not named.
    if machine.os.family == "windows" and (python.manager, python.chosen_by) == ("system", "self"):
        raise Blocked(
            f"{python.prefix} is the system's own Python, not an environment",
            hint=f"{hint}; to use this one, name it with `--python`",
        )
    if python.externally_managed:
        raise Blocked(
            f"The Python of {python.prefix or python.executable or 'that machine'} is managed by "
            "the operating system",
            hint=hint,
        )
    if python.site_writable is False:
        where = python.site_packages or "Its site-packages"
        raise Blocked(f"{where} is not writable for your user, or is read-only", hint=hint)
