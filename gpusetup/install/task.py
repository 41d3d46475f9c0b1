"""The task of an installation: the request, the choice and what follows from them."""

from __future__ import annotations

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.coming import Coming
from gpusetup.choose.compatibility import notes_on_installed
from gpusetup.choose.document import offer_of
from gpusetup.choose.host import Host
from gpusetup.choose.installed import installed_family, installed_packages
from gpusetup.choose.wish import Wish
from gpusetup.install.options import InstallRequest
from gpusetup.model.builds import Fallback, Offer, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed


class Task(Frozen):
    """An installation with all decisions made."""

    request: InstallRequest
    host: Host
    """The host on which torch will run; if the environment does not exist yet, it has no torch."""
    wish: Wish
    """What the user requested."""
    choice: Choice
    coming: Coming
    why: str | None = None
    """Why this torch is installed or kept."""
    elsewhere: str = "gpusetup install --venv .venv"
    """The command that creates a new environment and installs the same packages there, for an
    environment that must not be changed."""

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
        None if unknown."""
        if self.request.for_other_host:
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
        notes = []
        for held in self.choice.held_back:
            # Write "stays" only for a package that is installed in this version. A new environment
            # has no packages.
            is_there = self.installed_version(held.package) == held.at
            at = f"stays at {held.at}" if is_there else f"{held.at} is not the newest"
            notes.append(f"{held.package} {at}: {held.by}")
        return (*notes, *self.choice.notes_on_packages)

    def installed_version(self, name: str) -> str | None:
        """The version of an installed package without its label; None if it is not installed."""
        package = installed_packages(self.machine).get(name)
        return package.version.partition("+")[0] if package else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the choice, without those about the build itself."""
        notes = [*self.notes_on_packages]
        if self.choice.moves:
            notes += notes_on_installed(self.machine, self.build, load_catalog())
        offer = self.newest
        if offer:
            way = f"--torch {offer.torch}" if self.wish.torch else "--upgrade"
            # A mirror often lacks the newest release. It is not asked about that here, so the note
            # says "if your index has it".
            is_mirror = self.request.root != INDEX_ROOT
            condition = " if your index has it" if is_mirror else ""
            notes.append(
                f"torch {offer.torch} from {offer.backend} also fits{condition}; to install it, "
                f"add `{way}`"
            )
        return tuple(notes)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """All notes about the choice; those about the build are included only if torch changes."""
        of_build = self.choice.notes if self.choice.moves else ()
        return (*of_build, *self.notes)

    @property
    def builds(self) -> tuple[Fallback, ...]:
        """The chosen build followed by its alternatives. If the user named a backend, there are no
        alternatives."""
        build, choice = self.build, self.choice
        url = choice.index_url or ""
        first = Fallback(torch=build.torch, backend=build.backend, index_url=url)
        return (first, *(choice.alternatives if self.request.backend == "auto" else ()))

    @property
    def is_done(self) -> bool:
        """Whether everything that was requested is already installed."""
        return self.coming.is_nothing

    def again(self) -> Task:
        """A task that installs the same build again, because its test failed."""
        coming = replace(self.coming, family=installed_family(self.machine), pinned=())
        why = "the right build is installed, but its test failed"
        return replace(self, coming=coming, why=why)
