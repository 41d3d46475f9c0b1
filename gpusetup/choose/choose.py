"""Decides which torch a host gets, and what happens to the installed one. doctor, resolve, install,
fleet and the API all use this module.

There are three nouns: a `Wish` is what was requested, a `Host` is the machine, and a `Choice` is
the build that it gets. The first of these rules that applies decides:

    1. A GPU of AMD or Intel, or a build for one, is named: that maker's newest build.
    2. Nothing is requested: the requests that the machine or the report shows, strictest first,
       until a build meets one. Each of them is answered by the rules 4 to 7.
    3. Only packages are requested, and torch is installed: it stays, whether it works or not.
    4. The installed torch works here and is what was requested: it stays.
    5. The same version exists in a build that fits: that build.
    6. A newer version fits: the nearest newer one.
    7. Otherwise, and with `--upgrade` or without an installed torch: the newest that fits.

A build for one maker's GPUs is never replaced by another maker's or by a CPU build, unless a
backend is named. If packages are requested, the torch of these rules is only the first one to be
tried: the index or the companion table decides which torch works with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companions import UNREAD
from gpusetup.catalog.kernels import served
from gpusetup.choose.choice import Action, Choice, loses_gpu_support
from gpusetup.choose.compatibility import uses_torch
from gpusetup.choose.constraints import nearest_build
from gpusetup.choose.host import BuildQuestion, Host, question_of
from gpusetup.choose.installed import (
    COMPANIONS,
    installed_backend,
    installed_build,
    public_version,
    works_here,
)
from gpusetup.choose.newest import newest_fitting
from gpusetup.choose.other_makers import refuse_foreign_backend
from gpusetup.choose.packages import (
    AnsweringIndex,
    PackageQuestion,
    PackageSet,
    Search,
    SetQuestion,
    notes_on_sources,
    set_by_table,
    source_only,
)
from gpusetup.choose.wish import Wish, name_of
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed


def choose(wish: Wish, host: Host, catalog: Catalog, index: AnsweringIndex | None = None) -> Choice:
    """Choose the torch build for a host, what happens to the installed torch, and the packages that
    work with it.

    `index` is asked which versions of the requested packages work with torch. Without an index, the
    installer chooses the versions, or the companion table does if `wish.offline` is set. For AMD's
    and Intel's GPUs, only torch is chosen. Raises Unsatisfiable if no set of packages fits this
    host, or if the backend is for another maker's GPU.
    """
    refuse_foreign_backend(wish, host.machine)
    maker = question_of(wish, host, catalog).maker
    if maker is None:
        return choose_with_packages(wish, host, catalog, index)
    choice = least_change(wish, host, catalog)
    if wish.packages:
        note = "gpusetup does not check other packages: install them last"
        choice = replace(choice, notes_on_packages=(f"for {maker.name} GPUs, {note}",))
    return choice


def choose_with_packages(
    wish: Wish, host: Host, catalog: Catalog, index: AnsweringIndex | None
) -> Choice:
    """The choice of torch for an NVIDIA GPU or the CPU. If the request has packages, the index or
    the companion table may change it to a torch that works with them: offline the table, otherwise
    the index, and the table too if no index is given (as for doctor), but only for a new torch.

    Packages without a wheel anywhere are left out first, and a note says how to build them."""
    whole = PackageQuestion(wish=wish, host=host, catalog=catalog, by_table=index is None)
    without_wheel = source_only(whole) if wish.words else {}
    packages = tuple(word for word in wish.packages if name_of(word) not in without_wheel)
    remaining = replace(wish, packages=packages)
    question = replace(whole, wish=remaining)
    choice = choose_torch(remaining, host, catalog)
    # No index is known to have a nightly or a vendor's build, which has no `pythons`. If such a
    # torch stays, the index cannot be asked what goes with it.
    staying = None if choice.installs_torch else choice.build
    is_on_no_index = staying is not None and not staying.pythons
    package_set = None
    if remaining.words and wish.offline:
        package_set = set_by_table(question)
    elif remaining.words and index is not None and not is_on_no_index:
        leaves_unused = not choice.installs_torch and leaves_gpu_unused(remaining, host, catalog)
        # Packages that bring torch need it on the GPU, so its CPU build does not stay, as it would
        # by `choose_torch`.
        if leaves_unused and "torch" in index.ask(SetQuestion(words=remaining.words)).packages:
            choice = least_change(remaining, host, catalog)
        # If torch is installed, the search starts with the build that stays or replaces it.
        package_set = Search(question, index).best(choice.build if choice.installed else None)
    elif choice.build is not None and choice.installs_torch and question.why_not(choice.build):
        # The installer will choose the versions, but the table knows that torch must be another.
        package_set = set_by_table(question)
    if package_set is not None:
        choice = with_packages(choice, package_set, question)
    notes = (*notes_on_sources(without_wheel, question), *choice.notes_on_packages)
    return replace(choice, notes_on_packages=notes)


def leaves_gpu_unused(wish: Wish, host: Host, catalog: Catalog) -> bool:
    """Whether a project's packages may replace the installed torch: it is a CPU build, and a GPU is
    here."""
    # Packages that a user typed never replace a torch unasked.
    if not wish.from_project or host.facts.presence != "some" or wish.wanted_backend == "cpu":
        return False
    return bool(host.machine.torch.version) and installed_backend(host.machine, catalog) == "cpu"


def with_packages(choice: Choice, package_set: PackageSet, question: PackageQuestion) -> Choice:
    """The choice of torch alone, changed to the torch of a package set, with the versions of the
    packages.

    If the installed torch stays and works with them, the installer chooses their versions."""
    wish, torch_alone, build = question.wish, choice.build, package_set.build
    # A package that is built from source, or left to the installer, is installed after the set.
    packages = tuple(word for word in wish.packages if name_of(word) not in package_set.left_out)
    keeps_installed = torch_alone is not None and not choice.installs_torch
    of_set = (build.torch, build.backend)
    is_same = torch_alone is not None and (torch_alone.torch, torch_alone.backend) == of_set
    if keeps_installed and is_same:
        kept_wish = replace(choice.wish, packages=packages)
        return replace(choice, wish=kept_wish, notes_on_packages=package_set.notes)
    # The backend is requested too, so that no other build of this torch is chosen. But a change
    # that gives up the installed torch's GPUs must be refused, which it is only if no backend is
    # requested. `upgrade` could choose a newer torch.
    installed = choice.installed
    leaves_gpus = installed is not None and loses_gpu_support(installed.backend, build.backend)
    exact = replace(
        wish,
        torch=f"=={build.torch}",
        backend=wish.backend if leaves_gpus else build.backend,
        upgrade=False,
        packages=packages,
    )
    changed = least_change(exact, question.host, question.catalog)
    if is_same:
        reason = choice.reason
    elif keeps_installed:
        version = question.host.machine.torch.version
        reason = f"torch {version} fits at best an old release of {' and '.join(wish.packages)}"
    else:
        reason = package_set.why_older or changed.reason
    companions = {
        package.name: public_version(package.version)
        for package in package_set.packages
        if package.name in COMPANIONS and package.version
    }
    return replace(
        changed,
        build=replace(changed.build, **companions) if changed.build else None,
        reason=reason,
        # The rejections and the advice are about torch alone, without the packages.
        rejections=(),
        advice=None,
        packages=package_set.packages,
        notes_on_packages=package_set.notes,
    )


def choose_torch(wish: Wish, host: Host, catalog: Catalog) -> Choice:
    """Choose torch alone. Other packages only count for whether the installed torch stays."""
    if not (wish.packages or wish.family or wish.names_build or wish.upgrade):
        # The first request that the machine or the report shows and for which a build fits. If none
        # fits, the choice for the last request says why.
        for shown_wish in wishes_shown(host.machine, catalog):
            choice = least_change(replace(shown_wish, installer=wish.installer), host, catalog)
            if choice.build is not None:
                break
        return choice
    names = map(name_of, wish.words)
    uses_gpu = any(name in FAMILY or uses_torch(name) for name in names)
    needs_gpu_build = uses_gpu and leaves_gpu_unused(wish, host, catalog)
    keeps_installed = not wish.is_about_torch and not needs_gpu_build
    return least_change(wish, host, catalog, keeps_installed=keeps_installed)


def wishes_shown(machine: Snapshot, catalog: Catalog) -> Iterator[Wish]:
    """Yields the requests that a machine or a report shows, strictest first."""
    wanted, version = machine.wanted, machine.torch.version
    kinds = {event.kind for event in machine.events}
    cuda = wanted.cuda
    # If the report shows no torch, extensions need one for the CUDA version of their toolkit.
    if cuda is None and not version and "cuda-toolkit-mismatch-extension-build" in kinds:
        cuda = machine.toolkit.nvcc
    # For example, `12.4` becomes `cu124`.
    label = wanted.backend or (f"cu{cuda.replace('.', '')}" if cuda else None)
    backend = label if label in catalog.backends else "auto"
    if machine.origin != "report":
        yield Wish(torch=wanted.torch, backend=backend)
        return
    # The author of a report usually wants the installed torch version to work.
    installed = f"=={public_version(version)}" if version else None
    torch = wanted.torch or installed
    index_lacks_it = "wrong-index" in kinds
    for event in machine.events:
        # If pip's message lists no versions of a package, the index that it asked has none.
        if event.kind == "no-matching-distribution" and not event.values.get("versions"):
            index_lacks_it = True
    named = ((torch or "").removeprefix("=="), backend)
    # A build that exists was refused for another reason, such as the Python, so it still counts.
    may_exist = not index_lacks_it or named in {(row.torch, row.backend) for row in catalog.builds}
    # Without a backend, the index that lacks it was only one of those that may have it.
    if backend == "auto" or may_exist:
        yield Wish(torch=torch, backend=backend)
    # Then any backend, then the installed version instead of the wanted one, then any torch.
    yield from dict.fromkeys((Wish(torch=torch), Wish(torch=installed), Wish()))


def least_change(
    wish: Wish, host: Host, catalog: Catalog, *, keeps_installed: bool = False
) -> Choice:
    """The choice that changes the installed torch as little as possible, with the reason.

    With `keeps_installed`, an installed torch stays, whether it works or not, because only other
    packages were requested.
    """
    machine = host.machine
    question = question_of(wish, host, catalog)
    newest = newest_fitting(question)
    installed = installed_build(machine, question)
    choice, reason = newest, None
    if installed is not None and keeps_installed:
        choice = replace(choice_of_installed(installed, question), action="kept")
        reason = "torch stays unchanged because you did not ask to change it"
    elif installed is not None:
        choice = change_of(installed, newest, question, wish, machine)
    choice = replace(choice, installed=installed, newest=newest, wish=wish)
    return replace(choice, reason=reason or reason_of(choice, question))


def change_of(
    installed: TorchBuild, newest: Choice, question: BuildQuestion, wish: Wish, machine: Snapshot
) -> Choice:
    """What happens to the installed torch, by the rules 4 to 7 of this module. `newest` is the
    choice of the newest build that fits."""
    old_version = parsed(installed.torch)
    is_outdated = newest.build is not None and old_version < parsed(newest.build.torch)
    is_as_requested = question.allows(installed) and not (wish.wants_newest and is_outdated)
    if is_as_requested and may_stay(installed, machine, question):
        # `intact` is None if it is unknown, and then nothing counts as damaged.
        torch_files = (one.intact for one in machine.packages or () if one.name == "torch")
        is_damaged = False in torch_files or machine.torch.import_error is not None
        action: Action = "again" if is_damaged else "kept"
        return replace(choice_of_installed(installed, question), action=action)
    # For other makers' GPUs, only the newest builds are known well enough.
    takes_newest = wish.wants_newest or question.maker is not None
    choice = newest if takes_newest else nearest_fitting(installed.torch, question)
    build = choice.build
    if build is None:
        return replace(choice, action="nothing")
    # A user who names a backend accepts that the current GPU maker loses support, and AMD's or
    # Intel's builds (`maker`) are only chosen for such a GPU or such a backend.
    is_requested = question.maker is not None or wish.wanted_backend != "auto"
    if loses_gpu_support(installed.backend, build.backend) and not is_requested:
        return unrequested_loss(installed, choice, question, wish, machine)
    if takes_newest:
        return replace(choice, action="newest" if question.maker else "upgrade")
    new_version = parsed(build.torch)
    # The label may differ, because the purpose is to get the same version from another index.
    if old_version.public == new_version.public:
        return replace(choice, action="same-version")
    # An older torch is only chosen if no newer one fits, so it is the newest that fits.
    is_older = new_version < old_version
    if is_older or (newest.build is not None and newest.build.torch == build.torch):
        return replace(choice, action="newest")
    return replace(choice, action="nearest-newer")


def unrequested_loss(
    installed: TorchBuild, choice: Choice, question: BuildQuestion, wish: Wish, machine: Snapshot
) -> Choice:
    """The choice instead of one that would give up support for the installed torch's GPUs, which
    nobody asked for: the installed torch stays, or the change is refused."""
    unchanged = choice_of_installed(installed, question)
    # With `--upgrade`, a torch that works stays if there is no newer one for its GPUs.
    if wish.wants_newest and works_here(installed, machine, question):
        return replace(unchanged, action="kept")
    # Without an NVIDIA GPU, there is no sign that another build would work better.
    if question.host.presence == "none":
        return replace(unchanged, action="refused")
    return replace(choice, action="refused")


def may_stay(installed: TorchBuild, machine: Snapshot, question: BuildQuestion) -> bool:
    """Whether the installed torch, which is what was requested, may stay: it works here, or the
    user names its backend, and nothing here speaks against it."""
    # A user who requests the CPU build accepts that it does not use the GPUs.
    if question.backend == "cpu":
        return True
    # If the GPUs for this backend are absent or cannot be judged, trust a user who names it. For an
    # AMD or Intel GPU in question (`maker`), its own kernel list decides.
    can_judge = question.host.presence == "some" and not is_seen_only(maker_of(installed.backend))
    if question.backend == installed.backend and not (can_judge or question.maker):
        return True
    return works_here(installed, machine, question)


def choice_of_installed(installed: TorchBuild, question: BuildQuestion) -> Choice:
    """The installed build as a choice."""
    host = question.host
    return Choice(
        build=installed,
        served=served(installed, host.gpus, host.driver_cuda),
        catalog_as_of=question.catalog.as_of,
    )


def nearest_fitting(torch: str, question: BuildQuestion) -> Choice:
    """The choice of the same version for a backend that fits, otherwise of the nearest newer
    version, otherwise of the newest that fits."""
    build = nearest_build(public_version(torch), question)
    if build is None:
        return newest_fitting(question)
    # The requested version may name the backend (`2.5.1+cu124`), so request that too.
    exact = replace(question.wish, torch=f"=={build.torch}", backend=question.backend)
    # For this version alone, with its alternatives and the reasons against its other builds.
    return newest_fitting(replace(question, wish=exact))


REASONS: dict[str, str] = {
    "kept": "the installed torch fits this machine, so it stays",
    "again": "files of the installed torch are missing, so the same build is installed again",
    "upgrade": "the newest that fits",
    "same-version": "the same version, from the index that fits this machine",
    "nearest-newer": "no build of torch {torch} fits, so this is the nearest newer one that does",
    "newest": "no build of torch {torch} fits, so this is the newest one that does",
}


def reason_of(choice: Choice, question: BuildQuestion) -> str | None:
    """Why this torch is installed or kept, in a sentence; None if there is nothing to say."""
    build, installed, torch = choice.build, choice.installed, choice.wish.torch
    if build is None:
        return None
    if torch is not None and choice.installs_torch:
        # Several bounds of a project (`>=2.1,<2.6`) include those that its companions imply, so
        # no file asks for them in these words.
        if choice.wish.from_project and "," in torch:
            return "it is within the version bounds of the project's files"
        return f"asked for: {torch}"
    # This choice may surprise users, for example on a login node or while they build an image.
    is_cpu = build.cuda is None and question.maker is None
    if choice.action == "first" and is_cpu and question.host.presence == "none":
        return (
            f"{build.backend}, because no NVIDIA GPU was found here. To build an image for another "
            "host, describe that host with `--gpu NAME --driver VERSION`, or use `--backend cu...`"
        )
    # For AMD's and Intel's GPUs, no other index is searched for the installed version, so the
    # sentence "no build of {torch} fits" might be false.
    if installed is None or (question.maker and choice.action == "newest"):
        return "the newest that fits"
    if choice.action == "kept" and installed.backend == UNREAD:
        return "gpusetup found no problem with this torch, so it stays"
    sentence = REASONS.get(choice.action)
    return sentence.format(torch=public_version(installed.torch)) if sentence else None
