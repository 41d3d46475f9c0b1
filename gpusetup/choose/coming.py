"""What an installer should install (torch and its companions, other packages, and packages that
change with torch), what must not change, and what is offered instead."""

from __future__ import annotations

import re

from gpusetup.catalog.builds import INDEX_ROOT, Catalog
from gpusetup.choose.choice import Choice, index_of, loses_gpu_support
from gpusetup.choose.commands import requirements_on_torch_index
from gpusetup.choose.compatibility import NUMPY_1, mismatched_companions, works_with_numpy
from gpusetup.choose.host import Host
from gpusetup.choose.installed import dependents_to_reinstall, installed_family, installed_packages
from gpusetup.choose.wish import name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, Offer
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import own_line


class Changes(Frozen):
    """What will be installed into an environment, and which versions must stay."""

    family: tuple[str, ...] = ()
    """torch and its companions, torch first."""
    packages: tuple[str, ...] = ()
    """The other requested packages, as requirements for the default index."""
    on_torch_index: tuple[str, ...] = ()
    """The requested packages from torch's own index, such as `torchcodec==0.17.0+cu126`."""
    reinstalled: tuple[str, ...] = ()
    """Installed packages to install again, because their release needs another torch."""
    pinned: tuple[str, ...] = ()
    """The packages that must stay at their version, such as `torch==2.9.1+cu130`."""

    @property
    def is_empty(self) -> bool:
        """Whether everything that was requested is already installed."""
        # `reinstalled` and `pinned` packages only go along with the others.
        return not (self.family or self.packages or self.on_torch_index)


def changes_for(choice: Choice, host: Host, catalog: Catalog) -> Changes:
    """What to install for a choice. If torch changes, this is torch and what changes with it,
    otherwise only packages that work with the current torch.

    Raises Unsatisfiable if a requested companion has no release for the torch that stays.
    """
    chosen = {package.name: package for package in choice.packages}
    packages = []
    for word in choice.wish.packages:
        package = chosen.get(name_of(word))
        # Without a version from an index, the installer chooses one that the requirement allows.
        if package is None or package.version is None:
            packages.append(word)
        # Packages with an index are in `on_torch_index` below.
        elif not package.index_url:
            packages.append(package.requirement)
    requested = Changes(
        packages=tuple(packages), on_torch_index=requirements_on_torch_index(choice)
    )
    if choice.installs_torch:
        return _with_new_torch(requested, choice, host)
    return _with_same_torch(requested, choice, host, catalog)


def _with_new_torch(requested: Changes, choice: Choice, host: Host) -> Changes:
    """The requested packages together with torch, the companions that are installed or wanted, and
    the installed packages that only work with another torch."""
    build, machine = choice.build, host.machine
    assert build is not None, "a torch that changes has a build"
    members = {*installed_family(machine), *wanted_family(choice, host)}
    reinstalled = [*dependents_to_reinstall(machine, build)]
    numpy = installed_packages(machine).get("numpy")
    # Pinning numpy in a constraint would not make an installer replace the one that is there.
    if numpy and not works_with_numpy(build.torch, numpy.version):
        reinstalled.append(NUMPY_1)
    family = tuple(name for name in FAMILY if name in members)
    return replace(requested, family=family, reinstalled=tuple(reinstalled))


def _with_same_torch(requested: Changes, choice: Choice, host: Host, catalog: Catalog) -> Changes:
    """The requested packages together with the companions that are missing or do not match the
    torch that stays. Raises Unsatisfiable if a requested companion has no release for it."""
    build, machine, wish = choice.build, host.machine, choice.wish
    assert build is not None, "a torch that stays has a build"
    installed = installed_packages(machine)
    missing = [name for name in wanted_family(choice, host) if name not in ("torch", *installed)]
    # A companion that does not match the torch that stays is replaced. If the user asked only for
    # packages, one that they did not name stays as it is.
    to_repair = [
        name
        for name in mismatched_companions(machine, build.torch, build.backend, catalog)
        if wish.is_about_torch or name in wish.family
    ]
    changed = (*missing, *to_repair)
    # For a nightly or a self-compiled torch, no index is known to have companions. That is an error
    # only for one that is missing, because it is then wanted, or that the user asked for.
    versions = build.family()
    for name in changed:
        if name not in versions and (name in missing or name in wish.family):
            raise Unsatisfiable(
                f"gpusetup knows no {name} for torch {machine.torch.version}",
                hint="nothing was changed; `gpusetup resolve --explain` shows which torch has one",
            )
    staying = (name for name in FAMILY if name in installed and name not in changed)
    return replace(
        requested,
        family=tuple(name for name in FAMILY if name in changed and name in versions),
        pinned=tuple(f"{name}=={installed[name].version}" for name in staying),
    )


def wanted_family(choice: Choice, host: Host) -> tuple[str, ...]:
    """torch and its companions: those that the user or a package of the chosen set requests, or, if
    only torch was requested, those that are installed."""
    wish = choice.wish
    members = {"torch", *wish.family, *(package.name for package in choice.packages)}
    if members == {"torch"} and not wish.packages:
        members.update(installed_family(host.machine))
    return tuple(name for name in FAMILY if name in members)


def offer_of(choice: Choice, machine: Snapshot, root: str = INDEX_ROOT) -> Offer | None:
    """The newest build, which `install --upgrade` would install on this machine; None if none fits,
    or if it is for another maker's GPUs. `root` is the URL of torch's index or a mirror, without a
    login."""
    newest, installed = choice.newest, choice.installed
    build = newest.build if newest else None
    if build is None or (installed and loses_gpu_support(installed.backend, build.backend)):
        return None
    # The bounds of a `--torch` may exclude this version, and `--upgrade` is not allowed with it.
    torch = ("--torch", build.torch) if choice.wish.torch else ("--upgrade",)
    backend = () if choice.wish.backend == "auto" else ("--backend", choice.wish.backend)
    mirror = () if root == INDEX_ROOT else ("--index", root)
    python = machine.python
    # `install` finds an environment by itself as `doctor` did, unless an option named it.
    is_named = python.chosen_by == "--python" and python.executable
    target = ("--python", python.executable) if is_named else ()
    return Offer(
        command=own_line("gpusetup", "install", *target, *torch, *backend, *mirror),
        torch=build.torch,
        torchvision=build.torchvision,
        torchaudio=build.torchaudio,
        backend=build.backend,
        index_url=index_of(build, root),
        driver_floor=build.driver_floor,
    )


def new_folder(machine: Snapshot) -> str:
    """The folder of a new environment: `.venv`, or `.venv-gpu` if the current one is called so."""
    folder = machine.python.prefix
    if not folder:
        # `.venv/bin/python` and `.venv\Scripts\python.exe` are in `.venv`.
        executable = machine.python.executable or ""
        folder = re.sub(r"[/\\](?:bin|Scripts)[/\\][^/\\]*$", "", executable)
    name = re.split(r"[/\\]", folder.rstrip("/\\"))[-1]
    return ".venv-gpu" if name == ".venv" else ".venv"


def options_of_new_environment(choice: Choice, machine: Snapshot) -> tuple[str, ...]:
    """The options for `install --venv DIR` that install the recommended torch and companions; empty
    if no known index has the build, or if it is the newest and this environment has no companions.
    """
    build, wish = choice.build, choice.wish
    # A build without Pythons is in no index that is known.
    if build is None or not build.pythons:
        return ()
    companions = tuple(name for name in installed_family(machine)[1:] if name in build.family())
    # A new environment would not choose by itself what was refused here or asked for.
    if choice.action == "refused" or wish.names_build or wish.installer != "auto":
        return ("--torch", build.torch, "--backend", build.backend, *companions)
    # Without options, a new environment gets the newest torch, but no companions.
    if choice.action in ("first", "newest", "upgrade"):
        return companions
    return ("--torch", build.torch, *companions)
