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
from gpusetup.choose.choice import Choice, crosses
from gpusetup.choose.compatibility import numpy_beside, uses_torch
from gpusetup.choose.host import Host, question_of
from gpusetup.choose.index import AnsweringIndex, SetQuestion
from gpusetup.choose.installed import installed_backend
from gpusetup.choose.other_makers import refuse_foreign_backend
from gpusetup.choose.packages import (
    PackageQuestion,
    PackageSet,
    Search,
    notes_on_sources,
    set_by_table,
    source_only,
)
from gpusetup.choose.policy import least_change
from gpusetup.choose.shown_wish import wishes_shown
from gpusetup.choose.wish import Wish, name_of
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import replace


def choose(wish: Wish, host: Host, catalog: Catalog, index: AnsweringIndex | None = None) -> Choice:
    """Choose the torch build for a host, what happens to the installed torch, and the packages that
    work with it.

    `index` is asked which versions of the requested packages work with torch. Without an index, the
    installer chooses the versions, or the companion table does if `wish.offline` is set. Raises
    Unsatisfiable if no set of packages fits this host.
    """
    refuse_foreign_backend(wish, host.machine)
    maker = question_of(wish, host, catalog).maker
    if maker is None:
        choice = choose_with_packages(wish, host, catalog, index)
    else:
        choice = least_change(wish, host, catalog)
        if wish.words and (wish.offline or index is not None):
            note = "gpusetup asks no index for other packages: install them last"
            choice = replace(choice, notes_on_packages=(f"for {maker.name} GPUs, {note}",))
    # Packages that come with torch must work with it. doctor uses the same table.
    numpy = numpy_beside(choice.build.torch, catalog) if choice.build else None
    return replace(choice, limits=(numpy,)) if numpy else choice


def choose_with_packages(
    wish: Wish, host: Host, catalog: Catalog, index: AnsweringIndex | None
) -> Choice:
    """The choice of torch for an NVIDIA GPU or the CPU. If the request has packages, the index or
    the companion table may change it to a torch that works with them.

    Packages without a wheel anywhere are left out first, and a note says how to build them.
    """
    question = PackageQuestion(wish=wish, host=host, catalog=catalog, by_table=index is None)
    sources = source_only(question)
    question = question.without(sources)
    wish = question.wish
    choice = choose_torch(wish, host, catalog)
    # A nightly or a vendor's build is not in the catalog (it has no `pythons`), so no index is
    # known to have it.
    is_on_an_index = choice.moves or choice.build is None or bool(choice.build.pythons)
    chosen = None
    if wish.words and wish.offline:
        chosen = set_by_table(question)
    elif wish.words and is_on_an_index and index is not None:
        index.begin(choice, wish.words)
        may_leave_gpu_unused = not choice.moves and has_cpu_build_beside_gpu(wish, host, catalog)
        # Packages that bring torch need it on the GPU, so its CPU build does not stay.
        if may_leave_gpu_unused and "torch" in index.ask(SetQuestion(words=wish.words)).packages:
            choice = least_change(wish, host, catalog)
        # If torch is installed, the search starts with the installed build.
        chosen = Search(question, index).best(choice.build if choice.installed else None)
    elif choice.build is not None and choice.moves and question.why_not(choice.build):
        # The installer chooses the versions, but the table knows that torch must be another.
        chosen = set_by_table(question)
    if chosen is not None:
        choice = with_packages(choice, chosen, question)
    notes = (*notes_on_sources(sources, question), *choice.notes_on_packages)
    return replace(choice, notes_on_packages=notes)


def choose_torch(wish: Wish, host: Host, catalog: Catalog) -> Choice:
    """Choose torch alone. Other packages only count for whether a CPU build may stay."""
    if not (wish.packages or wish.family or wish.names_build or wish.upgrade):
        # The first request that the machine or the report shows and for which a build exists wins;
        # if there is none, the last request.
        for shown_wish in wishes_shown(host.machine, catalog):
            choice = least_change(replace(shown_wish, installer=wish.installer), host, catalog)
            if choice.build is not None:
                break
        return choice
    names = map(name_of, wish.words)
    uses_gpu = any(name in FAMILY or uses_torch(name) for name in names)
    is_left_unused = uses_gpu and has_cpu_build_beside_gpu(wish, host, catalog)
    stays = not wish.is_about_torch and not is_left_unused
    return least_change(wish, host, catalog, stays=stays)


def has_cpu_build_beside_gpu(wish: Wish, host: Host, catalog: Catalog) -> bool:
    """Whether the installed torch is a CPU build beside a GPU that a project's packages may need.
    Words that a user typed never replace a torch unasked."""
    if not wish.from_project or host.facts.presence != "some" or wish.wanted_backend == "cpu":
        return False
    return bool(host.machine.torch.version) and installed_backend(host.machine, catalog) == "cpu"


def with_packages(choice: Choice, chosen: PackageSet, question: PackageQuestion) -> Choice:
    """The choice, changed to the torch that works with the packages, with the version of each
    package.

    If the installed torch stays and works with the packages, the installer chooses their versions.
    """
    wish, before, build = question.wish, choice.build, chosen.build
    # What is installed later must not be in the installation of the set.
    packages = tuple(word for word in wish.packages if name_of(word) not in chosen.left_out)
    is_same = before is not None and (before.torch, before.backend) == (build.torch, build.backend)
    stays = before is not None and not choice.moves
    if stays and is_same:
        return replace(
            choice, wish=replace(choice.wish, packages=packages), notes_on_packages=chosen.notes
        )
    # Request the backend too, unless torch would then no longer support the GPUs that it supports
    # now. With `upgrade`, a newer build could be chosen instead.
    leaves_gpus = choice.installed and crosses(choice.installed.backend, build.backend)
    exact = replace(
        wish,
        torch=f"=={build.torch}",
        backend=wish.backend if leaves_gpus else build.backend,
        upgrade=False,
        packages=packages,
    )
    moved = least_change(exact, question.host, question.catalog)
    held = [package.by for package in chosen.held_back if package.package == "torch"]
    reason = held[0] if held else moved.reason
    if is_same:
        reason = choice.reason
    elif stays:
        version = question.host.machine.torch.version
        reason = f"with torch {version} {' and '.join(wish.packages)} would be old, or missing"
    companions = {
        package.name: package.version.partition("+")[0]
        for package in chosen.packages
        if package.name in FAMILY[1:] and package.version
    }
    return replace(
        moved,
        build=replace(moved.build, **companions) if moved.build else None,
        reason=reason,
        # The packages that are held back already explain why other builds were not chosen.
        rejections=(),
        advice=None,
        packages=chosen.packages,
        held_back=chosen.held_back,
        notes_on_packages=chosen.notes,
    )
