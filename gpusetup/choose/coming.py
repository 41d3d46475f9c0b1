"""What an installer should install (torch and its companions, other packages, and packages that
change with torch), and what must not change."""

from __future__ import annotations

from packaging.requirements import Requirement

from gpusetup.catalog.builds import Catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.compatibility import NUMPY_1, companions_of_another, takes_numpy
from gpusetup.choose.document import requirements_on_torch_index
from gpusetup.choose.host import Host
from gpusetup.choose.installed import followers, installed_family, installed_packages
from gpusetup.choose.wish import name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen


class Coming(Frozen):
    """What will be installed into an environment, and which versions must stay."""

    family: tuple[str, ...] = ()
    """torch and its companions, torch first."""
    packages: tuple[str, ...] = ()
    """The other requested packages, as requirements for the default index."""
    on_torch_index: tuple[str, ...] = ()
    """The requested packages that come from torch's own index, such as `torchcodec==0.17.0+cu126`.
    """
    followers: tuple[str, ...] = ()
    """Installed packages to install again, because their current release needs another torch than
    the new one."""
    pinned: tuple[str, ...] = ()
    """The packages that must stay at their version, such as `torch==2.9.1+cu130`."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing needs to be installed."""
        # `followers` and `pinned` do not count: without a new torch or another package there is
        # nothing to install.
        wanted = (*self.family, *self.packages, *self.on_torch_index)
        return not wanted


def coming_of(choice: Choice, host: Host, catalog: Catalog) -> Coming:
    """What to install for a choice. If torch changes, this is torch and what changes with it,
    otherwise only packages that work with the current torch.

    Raises Unsatisfiable if a requested companion has no release for the torch that stays.
    """
    if choice.moves:
        return coming_with_torch(choice, host, catalog)
    return coming_beside_torch(choice, host, catalog)


def coming_with_torch(choice: Choice, host: Host, catalog: Catalog) -> Coming:
    """What to install together with a new torch."""
    build, machine = choice.build, host.machine
    assert build is not None, "a torch that comes is a build"
    members = {*installed_family(machine), *wanted_family(choice, host)}
    numpy = numpy_to_replace(choice, host, catalog)
    return Coming(
        family=tuple(name for name in FAMILY if name in members),
        packages=exact_packages(choice),
        on_torch_index=requirements_on_torch_index(choice),
        followers=(*followers(machine, build), *numpy),
    )


def coming_beside_torch(choice: Choice, host: Host, catalog: Catalog) -> Coming:
    """What to install if torch stays, and which installed versions to pin. Raises Unsatisfiable if
    a companion has no release for that torch."""
    build, machine = choice.build, host.machine
    assert build is not None, "a torch that stays is a build"
    installed = installed_packages(machine)
    to_repair = companions_to_repair(choice, host, catalog)
    missing = []
    for name in wanted_family(choice, host):
        if name != "torch" and name not in installed:
            missing.append(name)
    # For a nightly or a self-compiled torch, no index is known to have companions.
    versions = build.family()
    for name in (*missing, *to_repair):
        is_wanted = name in missing or name in choice.wish.family
        if is_wanted and name not in versions:
            raise Unsatisfiable(
                f"No {name} is known for torch {machine.torch.version}",
                hint="nothing was changed; `gpusetup resolve --explain` shows which torch has one",
            )
    arriving = [name for name in (*missing, *to_repair) if name in versions]
    changing = (*arriving, *to_repair)
    staying = [name for name in FAMILY if name in installed and name not in changing]
    return Coming(
        family=tuple(name for name in FAMILY if name in arriving),
        packages=exact_packages(choice),
        on_torch_index=requirements_on_torch_index(choice),
        pinned=tuple(f"{name}=={installed[name].version}" for name in staying),
    )


def companions_to_repair(choice: Choice, host: Host, catalog: Catalog) -> tuple[str, ...]:
    """The installed companions that do not match the torch that stays, so that they must be
    installed again."""
    build, wish = choice.build, choice.wish
    assert build is not None, "a torch that stays is a build"
    misfits = companions_of_another(host.machine, build.torch, build.backend, catalog)
    if wish.is_about_torch:
        return misfits
    # The user asked only for packages, so a companion that they did not name stays as it is.
    return tuple(name for name in misfits if name in wish.family)


def numpy_to_replace(choice: Choice, host: Host, catalog: Catalog) -> tuple[str, ...]:
    """The requirement for another numpy if the installed one does not work with the new torch;
    empty if it does or none is installed."""
    numpy = installed_packages(host.machine).get("numpy")
    build = choice.build
    if numpy is None or build is None:
        return ()
    # A constraint does not make an installer replace a numpy that is already installed.
    fits = takes_numpy(build.torch, numpy.version, catalog)
    return () if fits else (NUMPY_1,)


def wanted_family(choice: Choice, host: Host) -> tuple[str, ...]:
    """torch and the companions to install: those that were requested or are in the chosen set. If
    only torch was requested, they are the installed companions."""
    wish = choice.wish
    members = {"torch", *wish.family}
    members.update(package.name for package in choice.packages)
    names_only_torch = members == {"torch"} and not wish.packages
    if names_only_torch:
        # Installed companions change together with torch.
        members.update(installed_family(host.machine))
    return tuple(name for name in FAMILY if name in members)


def exact_packages(choice: Choice) -> tuple[str, ...]:
    """The requested packages as requirements, with exact versions if a set was chosen. Packages
    from torch's own index are left out."""
    chosen = {package.name: package for package in choice.packages}
    words = []
    for word in choice.wish.packages:
        package = chosen.get(name_of(word))
        # Without a version from an index, the installer chooses one that the requirement allows.
        if package is None or package.version is None:
            words.append(word)
            continue
        # `on_torch_index` lists these, because they come from another index.
        if package.index_url:
            continue
        requirement = Requirement(word)
        extras = ",".join(sorted(requirement.extras))
        name = f"{requirement.name}[{extras}]" if extras else requirement.name
        words.append(f"{name}=={package.version}")
    return tuple(words)
