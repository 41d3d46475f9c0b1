"""Decides which torch a host gets. doctor, resolve, install, fleet and the API all use this module.

The first of these cases that applies decides:

    1. a GPU of AMD or Intel, or a build for one, is named: that maker's newest build;
    2. nothing is named: the requests that the machine or the report shows, strictest first, until
       a build meets one;
    3. only packages are named, and torch is installed: it stays, whether it works or not;
    4. otherwise the smallest change to the installed torch, or the newest build that fits.

If packages are requested, the torch from these rules is only the first one to be tried. The index
or the companion table decides which torch works with the packages.
"""

from __future__ import annotations

from gpusetup.catalog.builds import Catalog
from gpusetup.choose.candidates import (
    PackageQuestion,
    PackageSet,
    notes_on_sources,
    set_by_table,
    source_only,
)
from gpusetup.choose.choice import Choice, crosses
from gpusetup.choose.compatibility import numpy_beside, uses_torch
from gpusetup.choose.host import Host
from gpusetup.choose.index import AnsweringIndex, SetQuestion
from gpusetup.choose.installed import installed_backend
from gpusetup.choose.other_makers import maker_to_serve, newest_for_maker
from gpusetup.choose.packages import set_by_index
from gpusetup.choose.policy import change_for_maker, kept_unasked, least_change
from gpusetup.choose.shown_wish import wishes_shown
from gpusetup.choose.wish import Wish, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.frozen import replace


def choose(wish: Wish, host: Host, catalog: Catalog, index: AnsweringIndex | None = None) -> Choice:
    """Choose the torch build for a host, what happens to the installed torch, and the packages that
    work with it.

    `index` is asked which versions of the requested packages work with torch. Without an index, the
    installer chooses the versions, or the companion table does if `wish.offline` is set. Raises
    Unsatisfiable if no set of packages fits this host.
    """
    choice = choose_with_packages(wish, host, catalog, index)
    build = choice.build
    if build is None:
        return choice
    # Packages that come with torch must work with it. doctor uses the same table.
    numpy = numpy_beside(build.torch, catalog)
    if numpy is None:
        return choice
    return replace(choice, limits=(numpy,))


def choose_with_packages(
    wish: Wish, host: Host, catalog: Catalog, index: AnsweringIndex | None
) -> Choice:
    """Choose torch, and also the requested packages if an index or the companion table can be
    asked."""
    maker = maker_to_serve(wish, host)
    is_joint = bool(wish.words) and (wish.offline or index is not None)
    if maker and is_joint:
        raise Unsatisfiable(
            "gpusetup chooses packages together with torch only for NVIDIA GPUs, not for "
            f"{maker.name} GPUs",
            hint="leave out the packages to see torch's build, and install them after it",
        )
    if maker:
        return change_for_maker(newest_for_maker(wish, host, catalog, maker), wish, host, catalog)
    question = PackageQuestion(wish=wish, host=host, catalog=catalog, by_table=index is None)
    sources = source_only(question)
    if sources:
        question = question.without(tuple(sources))
        wish = question.wish
    choice = choose_torch(wish, host, catalog, index)
    notes = tuple(notes_on_sources(sources, question))
    chosen = chosen_set(choice, question, index)
    if chosen is not None:
        choice = with_packages(choice, chosen, question)
    return replace(choice, notes_on_packages=(*notes, *choice.notes_on_packages))


def chosen_set(
    choice: Choice, question: PackageQuestion, index: AnsweringIndex | None
) -> PackageSet | None:
    """The set of the requested packages, by the companion table or an index; None if the choice
    holds without one."""
    wish, build = question.wish, choice.build
    if wish.offline and wish.words:
        return set_by_table(question)
    # A nightly or a vendor's build is not in the catalog (it has no `pythons`), so no index is
    # known to have it.
    is_on_an_index = choice.moves or build is None or bool(build.pythons)
    if not wish.words or not is_on_an_index:
        return None
    if index is None:
        # The installer chooses the versions, unless the table knows that torch must be another.
        needs_other = build is not None and choice.moves and question.why_not(build)
        return set_by_table(question) if needs_other else None
    index.begin(choice, question.words)
    # If torch is installed, the search starts with the installed build.
    return set_by_index(question, index, prefer=build if choice.installed else None)


def choose_torch(
    wish: Wish, host: Host, catalog: Catalog, index: AnsweringIndex | None = None
) -> Choice:
    """Choose torch alone. Other packages only count for whether a CPU build may stay."""
    if wish.is_open:
        return choose_shown(wish, host, catalog)
    if not wish.is_about_torch and not leaves_gpu_unused(wish, host, catalog, index):
        unchanged = kept_unasked(wish, host, catalog)
        if unchanged:
            return unchanged
    return least_change(wish, host, catalog)


def leaves_gpu_unused(
    wish: Wish, host: Host, catalog: Catalog, index: AnsweringIndex | None
) -> bool:
    """Whether a project's packages compute with torch, and the installed one is a CPU build beside
    a GPU. Words that a user typed never replace a torch unasked."""
    if not wish.from_project or host.facts.presence != "some":
        return False
    if not host.machine.torch.version or installed_backend(host.machine, catalog) != "cpu":
        return False
    if any(name in FAMILY or uses_torch(name) for name in map(name_of, wish.words)):
        return True
    return index is not None and "torch" in index.ask(SetQuestion(words=wish.words)).packages


def choose_shown(wish: Wish, host: Host, catalog: Catalog) -> Choice:
    """Choose torch by what the machine or the report asks for. The first request for which a build
    exists wins; if there is none, the last request."""
    choice = Choice()
    for shown_wish in wishes_shown(host.machine, catalog):
        choice = least_change(replace(shown_wish, installer=wish.installer), host, catalog)
        if choice.build is not None:
            break
    return choice


# --- with packages --------------------------------------------------------------------------------


def with_packages(choice: Choice, chosen: PackageSet, question: PackageQuestion) -> Choice:
    """The choice, changed to the torch that works with the packages, with the version of each
    package.

    If the installed torch stays and works with the packages, the installer chooses their versions.
    """
    wish = question.wish
    stays = choice.build is not None and not choice.moves
    if stays and is_same_build(choice, chosen):
        kept = tuple(word for word in wish.packages if name_of(word) not in chosen.left_out)
        return replace(
            choice, wish=replace(choice.wish, packages=kept), notes_on_packages=chosen.notes
        )
    exact = wish.exactly(chosen.build)
    # Request the backend too, unless torch would then no longer support the GPUs that it supports
    # now.
    installed = choice.installed
    if installed is not None and crosses(installed.backend, chosen.build.backend):
        exact = replace(exact, backend=wish.backend)
    # What is installed later must not be in the installation of the set.
    packages = tuple(word for word in exact.packages if name_of(word) not in chosen.left_out)
    exact = replace(exact, packages=packages)
    moved = least_change(exact, question.host, question.catalog)
    return replace(
        moved,
        build=with_companions(moved.build, chosen),
        reason=reason_with_packages(choice, moved, chosen, question),
        # The packages that are held back already explain why other builds were not chosen.
        rejections=(),
        advice=None,
        packages=chosen.packages,
        held_back=chosen.held_back,
        notes_on_packages=chosen.notes,
    )


def is_same_build(choice: Choice, chosen: PackageSet) -> bool:
    """Whether the packages work with the torch that was chosen without them."""
    build = choice.build
    if build is None:
        return False
    return (build.torch, build.backend) == (chosen.build.torch, chosen.build.backend)


def reason_with_packages(
    choice: Choice, moved: Choice, chosen: PackageSet, question: PackageQuestion
) -> str | None:
    """The reason for this torch: the same as without packages, or the package that rules out the
    newer torch; None if unknown."""
    if is_same_build(choice, chosen):
        return choice.reason
    if choice.build is not None and not choice.moves:
        names = " and ".join(question.wish.packages)
        version = question.host.machine.torch.version
        return f"with torch {version} {names} would be old, or missing"
    for package in chosen.held_back:
        if package.package == "torch":
            return package.by
    return moved.reason


def with_companions(build: TorchBuild | None, chosen: PackageSet) -> TorchBuild | None:
    """The build with the set's torchvision and torchaudio versions; None if there is no build."""
    if build is None:
        return None
    versions = {package.name: package.version for package in chosen.packages}
    companions = {}
    for name in FAMILY[1:]:
        version = versions.get(name)
        if version:
            companions[name] = version.partition("+")[0]
    return replace(build, **companions)
