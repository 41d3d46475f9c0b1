"""What an installer is asked for: torch's family, packages, what follows, what must stay."""

from __future__ import annotations

from packaging.requirements import Requirement

from gpusetup.catalog.builds import Catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.compatibility import NUMPY_1, companions_of_another, takes_numpy
from gpusetup.choose.document import requirements_on_torch_index
from gpusetup.choose.host import Host
from gpusetup.choose.installed import followers, installed_family, installed_packages
from gpusetup.choose.wish import Wish, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen


class Coming(Frozen):
    """What comes into an environment, and what must stay as it is."""

    family: tuple[str, ...] = ()
    """Of torch's family, torch first."""
    packages: tuple[str, ...] = ()
    """Everything else that is wanted, as requirements for the default index."""
    on_torch_index: tuple[str, ...] = ()
    """What of the packages comes from torch's own index: `torchcodec==0.17.0+cu126`."""
    followers: tuple[str, ...] = ()
    """What is installed, takes another torch than the one to come, and is asked for again."""
    pinned: tuple[str, ...] = ()
    """What must stay as it is: `torch==2.9.1+cu130`."""

    @property
    def is_nothing(self) -> bool:
        """Whether everything that is wanted is there."""
        return not (self.family or self.packages or self.on_torch_index)


def coming_of(choice: Choice, host: Host, catalog: Catalog) -> Coming:
    """What comes: the wanted words with what moves with torch; without torch, and pinned to it,
    where it stays.

    Unsatisfiable if a wanted companion has no release for the torch that stays.
    """
    build, wish, machine = choice.build, choice.wish, host.machine
    assert build is not None, "something was chosen"
    wanted = wanted_family(choice, host)
    packages = exact_packages(choice)
    if choice.moves:
        members = {*installed_family(machine), *wanted}
        return Coming(
            family=tuple(name for name in FAMILY if name in members),
            packages=packages,
            on_torch_index=requirements_on_torch_index(choice),
            followers=(*followers(machine, build), *numpy_to_replace(choice, host, catalog)),
        )
    installed, versions = installed_packages(machine), build.family()
    misfits = companions_of_another(machine, build.torch, build.backend, catalog)
    # Only packages are wanted: a companion that does not belong to torch is left as it is.
    to_repair = [name for name in misfits if wish.is_about_torch or name in wish.family]
    missing = [name for name in wanted if name != "torch" and name not in installed]
    for name in (*missing, *to_repair):
        if name not in versions and (name in missing or name in wish.family):
            raise Unsatisfiable(
                f"No {name} is known for torch {machine.torch.version}",
                hint="nothing was changed; `gpusetup resolve --explain` shows which torch has one",
            )
    coming = {name for name in (*to_repair, *missing) if name in versions}
    staying = [name for name in FAMILY if name in installed and name not in (*coming, *to_repair)]
    return Coming(
        family=tuple(name for name in FAMILY if name in coming),
        packages=packages,
        on_torch_index=requirements_on_torch_index(choice),
        pinned=tuple(f"{name}=={installed[name].version}" for name in staying),
    )


def numpy_to_replace(choice: Choice, host: Host, catalog: Catalog) -> tuple[str, ...]:
    """The numpy that must come because the installed one does not go with the torch that comes."""
    numpy = installed_packages(host.machine).get("numpy")
    torch = choice.build.torch if choice.build else "0"
    if numpy is None or takes_numpy(torch, numpy.version, catalog):
        return ()
    return (NUMPY_1,)


def wanted_family(choice: Choice, host: Host) -> tuple[str, ...]:
    """torch, and the companions that are named or belong to the set; if nothing is named, those
    that are installed."""
    wish: Wish = choice.wish
    members = {"torch", *wish.family, *(package.name for package in choice.packages)}
    if members == {"torch"} and not wish.packages:
        members.update(installed_family(host.machine))
    return tuple(name for name in FAMILY if name in members)


def exact_packages(choice: Choice) -> tuple[str, ...]:
    """The wanted packages, at the versions of the set if one was chosen."""
    versions = {package.name: package.version for package in choice.packages}
    on_torch_index = {package.name for package in choice.packages if package.index_url}
    words = []
    for word in choice.wish.packages:
        if name_of(word) in on_torch_index:
            continue
        requirement = Requirement(word)
        version = versions.get(name_of(word))
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        words.append(f"{requirement.name}{extras}=={version}" if version else word)
    return tuple(words)
