"""Chooses torch together with packages that need it, by asking an index.

The index is asked with each torch that fits, the newest first. The companion table rules out
combinations that an index accepts although they do not work. Pure apart from the index, which the
caller passes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.requirements import Requirement

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import companion_table
from gpusetup.choose.candidates import (
    PackageQuestion,
    PackageSet,
    builds_to_try,
    candidates,
    how_to_build,
    labelled,
    newest_alone,
    way_to_build,
)
from gpusetup.choose.compatibility import (
    names_on_torch_index,
    notes_on_other_wheels,
    why_none_fits,
    why_release_differs,
)
from gpusetup.choose.index import AnsweringIndex
from gpusetup.choose.search import YEAR, Candidate, Search, days_between
from gpusetup.choose.tries import Tries
from gpusetup.choose.wish import extras_of, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, HeldBack, JointPackage, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.shell import own_setting
from gpusetup.model.versions import parsed

USUAL_GLIBC = "2.35"
"""The glibc that is assumed if the C library is unknown: the one of Ubuntu 22.04, which is older
than on most machines today."""


def set_by_index(
    question: PackageQuestion,
    index: AnsweringIndex,
    *,
    prefer: TorchBuild | None = None,
    behind_days: int = 0,
) -> PackageSet:
    """The set of packages from an index. `prefer` is used if no package is then more than
    `behind_days` days behind its newest release; otherwise other builds are tried.

    Raises Unsatisfiable if no set works, or only one with an old release of a package.
    """
    search = Search(question, index)
    answer = best_set(search, prefer, behind_days)
    refuse_years_behind_source(search, answer)
    held_back = tuple(held_back_by(search, answer))
    old = [package for package in held_back if answer.days_behind.get(package.package, 0) > YEAR]
    if old:
        raise only_old_releases(old)
    return PackageSet(
        build=answer.build,
        packages=packages_of(search, answer),
        held_back=held_back,
        notes=(*notes_on_index(search), *answer.notes, *notes_on_sources(search, answer)),
    )


# --- the best set ---------------------------------------------------------------------------------


def best_set(search: Search, prefer: TorchBuild | None, behind_days: int) -> Candidate:
    """The set with the newest torch for which no package is more than `behind_days` days behind its
    newest release.

    If there is none, the set with the fewest releases that are over a year behind, then with the
    fewest that are behind at all.
    """
    if not behind_days:
        refuse_without_wheel(search)
        newest = set_of_newest(search, prefer)
        if newest is not None:
            return newest
    first: Candidate | None = None
    sets: list[Candidate] = []
    tries = Tries(search, builds_in_order(search, prefer, behind_days))
    for build in tries.builds:
        words = search.question.words
        if sets:
            # A better set must have a newer release than the best set so far.
            best = min(sets, key=lambda candidate: candidate.rank)
            words = newer_than(best, words)
        if tries.is_ruled_out(build, words):
            continue
        candidate = search.ask(build, words)
        first = first or candidate
        tries.note(candidate)
        if candidate.reason:
            continue
        if candidate.most_days_behind <= behind_days:
            return candidate
        sets.append(candidate)
    if sets:
        return min(sets, key=lambda candidate: candidate.rank)
    assert first is not None, "there is a build to try"
    raise nothing_found(search, first)


def newer_than(candidate: Candidate, words: tuple[str, ...]) -> tuple[str, ...]:
    """The requirements, changed so that a single package must be newer than in this set; unchanged
    for several packages.

    With several packages nothing changes, because one of them may be older in a better set if
    another is newer.
    """
    if len(words) != 1 or len(candidate.days_behind) != 1:
        return words
    requirement = Requirement(words[0])
    version = candidate.version(name_of(words[0]))
    # Naming a pre-release would allow pre-releases, and a marker would have to follow the version.
    if not version or parsed(version).is_prerelease or requirement.marker:
        return words
    # `>` would also exclude a later packaging of the same release (`.post1`).
    return (f"{requirement}>={version},!={version}",)


def set_of_newest(search: Search, prefer: TorchBuild | None) -> Candidate | None:
    """The set with the first torch that works with the newest release of every package; None if
    there is none.

    Each question names exact versions, so that uv fails at once if the newest release does not fit.
    Otherwise uv would look through years of older releases (170 s for unsloth).
    """
    words = words_at_newest(search)
    if words == search.question.words:
        return None
    preferred = () if prefer is None else (prefer,)
    tries = Tries(search, (*preferred, *candidates(search.question, prefer)))
    for build in tries.builds:
        if why_none_fits(search.question.companions, build) is not None:
            continue
        if tries.is_ruled_out(build, words):
            continue
        candidate = search.ask(build, words)
        if not candidate.reason:
            return candidate
        tries.note(candidate)
    return None


def words_at_newest(search: Search) -> tuple[str, ...]:
    """The requirements, in which packages without a required version are pinned to their newest
    release."""
    words: list[str] = []
    for word in search.question.words:
        requirement = Requirement(word)
        newest = search.newest.get(name_of(word))
        is_plain = not requirement.specifier and not requirement.marker and not requirement.url
        # Naming a pre-release by its version would count as a request for one.
        is_final = newest is not None and not parsed(newest.version).is_prerelease
        if newest is not None and is_plain and is_final:
            word = f"{word}=={newest.public}"
        words.append(word)
    return tuple(words)


def refuse_without_wheel(search: Search) -> None:
    """Raise Unsatisfiable if the only requested package has no wheel for this host with any torch.

    Without this check, an index would be asked the same question with each torch.
    """
    question = search.question
    is_one_word = len(question.words) == 1 and len(search.in_any_version) == 1
    if not is_one_word or search.newest:
        return
    name = search.in_any_version[0]
    builds = candidates(question)
    # torch's own index may have the package for another backend.
    if any(names_on_torch_index((name,), each, question.catalog) for each in builds):
        return
    candidate = search.ask(builds[0], question.words) if builds else None
    if candidate is not None and candidate.reason:
        raise nothing_found(search, candidate)


def builds_in_order(
    search: Search, prefer: TorchBuild | None, behind_days: int
) -> Iterator[TorchBuild]:
    """Yields the builds to try: first `prefer`, then the next newer ones if older releases of the
    packages are acceptable, then all builds, newest first."""
    companions = search.question.companions
    if prefer and why_none_fits(companions, prefer) is None:
        yield prefer
    if prefer and behind_days:
        # Try the nearest newer torch first, because it changes the environment least.
        nearest_first = reversed(candidates(search.question))
        for build in nearest_first:
            if parsed(build.torch) > parsed(prefer.torch):
                yield build
    yield from builds_to_try(search.question, prefer)


def packages_of(search: Search, chosen: Candidate) -> tuple[JointPackage, ...]:
    """The packages of a set: torch and its companions, then the requested packages, then the rest,
    each sorted by name."""
    build, table = chosen.build, companion_table()
    names = search.question.companions.names
    torch_index = index_url(build.backend, search.index.torch_root)
    from_torch_index = (*FAMILY, *chosen.on_torch_index)
    packages = []
    for name, release in chosen.packages.items():
        project = table.project(name)
        package = JointPackage(
            name=name,
            version=labelled(name, release.version, build),
            index_url=torch_index if name in from_torch_index else None,
            # Packages that the table does not know declare their requirements themselves.
            declared=project is None or project.declares,
            asked=name in names,
            extras=extras_of(search.question.words, name),
        )
        packages.append(package)
    packages.sort(key=place_in_set)
    return tuple(packages)


def nothing_found(search: Search, first: Candidate) -> Unsatisfiable:
    """The error that no set of packages works, with the companion table's reason or the index's
    message."""
    words = search.question.words
    if first.unknown:
        return on_no_index(search, first.unknown)
    # Without the table's limits uv may find a set, and the table can then name the package that
    # does not fit.
    unlimited = search.ask(first.build, words, limited=False)
    reason = reason_of_table(search, unlimited) or unlimited.reason or first.reason
    hint = "leave one of them out, or name another version"
    if len(words) == 1:
        hint = hint_for_one(search, first.build)
    return Unsatisfiable(
        f"No torch for this machine works with {' and '.join(words)}: {reason}",
        hint=f"nothing was changed; {hint}",
    )


def on_no_index(search: Search, names: Sequence[str]) -> Unsatisfiable:
    """The error that none of the asked indexes has a package of this name."""
    # A file that is not read may name an index that has the package, so all places are listed.
    places = "".join(f"\n  {place}" for place in search.index.places)
    command = own_setting("UV_INDEX", "URL")
    return Unsatisfiable(
        f"No index that was asked has {' or '.join(names)}{places}",
        hint=f"nothing was changed; check the spelling, or name the index that has it: `{command}`",
    )


def hint_for_one(search: Search, build: TorchBuild) -> str:
    """Advice if a single package has no set: build it, check its spelling, or use an
    alternative."""
    name = search.question.companions.names[0]
    command = how_to_build(name)
    hint = f"if it has no wheel, `{command}` builds it"
    project = companion_table().project(name)
    if project is None:
        return f"{hint}; check the spelling"
    if project.wheels_page:
        hint = way_to_build(project)
    # Use the user's mirror, so that the command can be pasted.
    torch_index = index_url(build.backend, search.index.torch_root)
    return f"{hint}; or instead: {project.way_out(build, torch_index)}"


def reason_of_table(search: Search, candidate: Candidate) -> str | None:
    """The companion table's reason against a package in a set; None if the table knows of none."""
    build = candidate.build
    for name in candidate.packages:
        if name in FAMILY:
            continue
        is_of_torch_index = name in candidate.on_torch_index
        companions = replace(search.question.companions, takes_torch_index=is_of_torch_index)
        version = candidate.version(name)
        reason = why_release_differs(companions, name, version, build)
        # One package that does not fit is enough to explain why there is no set.
        if reason:
            return reason
    return None


def held_back_by(search: Search, chosen: Candidate) -> Iterator[HeldBack]:
    """Yields torch and each package that is not at its newest release, with the reason."""
    newest = newest_alone(search.question) or chosen.build
    if parsed(newest.torch) > parsed(chosen.build.torch):
        reason = why_not_newest_torch(search, chosen, newest)
        yield HeldBack(package="torch", at=chosen.build.torch, by=reason)
    for name in chosen.days_behind:
        reason = why_not_newest(search, chosen, name)
        yield HeldBack(package=name, at=chosen.version(name), by=reason)


def exact_words(search: Search, chosen: Candidate) -> dict[str, str]:
    """Maps each requested package to the requirement for its version in the set."""
    words = {}
    for name in search.question.companions.names:
        version = chosen.version(name)
        words[name] = f"{name}=={version}"
    return words


def why_not_newest_torch(search: Search, chosen: Candidate, newest: TorchBuild) -> str:
    """The reason why the set does not have the newest torch: a package that does not work
    with it."""
    # If no package of the set comes from torch's own index, judge the packages by their releases on
    # the default index.
    has_torch_index = bool(chosen.on_torch_index)
    companions = replace(search.question.companions, takes_torch_index=has_torch_index)
    reason = why_none_fits(companions, newest)
    if reason is None:
        on_newest = replace(chosen, build=newest)
        reason = reason_of_table(search, on_newest)
    if reason is None:
        words = exact_words(search, chosen)
        reason = search.ask(newest, tuple(words.values())).reason
    # Without a reason, the newest torch works with other releases of these packages, at least one
    # of which is older.
    return reason or f"torch {newest.torch} goes with other releases of them"


def why_not_newest(search: Search, chosen: Candidate, name: str) -> str:
    """The reason why a package of the set is not at its newest release."""
    companions, build = search.question.companions, chosen.build
    version = search.newest[name].public
    reason = why_release_differs(companions, name, version, build)
    if reason is None:
        words = {**exact_words(search, chosen), name: f"{name}=={version}"}
        reason = search.ask(build, tuple(words.values())).reason
    # Without a reason, the newest release works with other releases of the other packages.
    return reason or f"{name} {version} goes with other releases"


def notes_on_sources(search: Search, chosen: Candidate) -> Iterator[str]:
    """Yields a note for each package that has a newer release only as source code."""
    for name, source in search.newer_sources.items():
        if name not in chosen.packages:
            continue
        version = chosen.version(name)
        command = how_to_build(name)
        # gpusetup never builds a package unasked, so the note tells the user how to build the newer
        # release.
        yield (
            f"{name} {source.version} is newer than {version} and exists only as source: "
            f"`{command}` builds it"
        )


def notes_on_index(search: Search) -> Iterator[str]:
    """Yields notes on wheels from elsewhere, a guessed C library, and packages whose release dates
    the index lacks."""
    newest = newest_alone(search.question)
    if newest:
        yield from notes_on_other_wheels(search.question.companions, newest)
    os = search.question.host.machine.os
    library = os.libc or ""
    if os.family == "linux" and not library.startswith("glibc "):
        yield (
            f"the C library is unknown, so gpusetup assumes glibc {USUAL_GLIBC}; to set another "
            "version, add `--glibc`"
        )
    undated = []
    for name, release in search.newest.items():
        # An index without PEP 700 does not state release dates.
        if release.published is None:
            undated.append(name)
    if undated:
        yield (
            f"the index does not say when {', '.join(undated)} came out, so gpusetup cannot judge "
            "how old it is"
        )


def place_in_set(package: JointPackage) -> tuple[bool, bool, str]:
    """A sort key: torch and its companions, then the requested packages, then the rest, each sorted
    by name."""
    is_of_others = package.name not in FAMILY
    # Requested packages come first, because `False` sorts before `True`.
    return is_of_others, not package.asked, package.name


def refuse_years_behind_source(search: Search, chosen: Candidate) -> None:
    """Raise Unsatisfiable if a package's newest wheel is more than a year older than its newest
    release, which exists only as source code."""
    for name, source in search.newer_sources.items():
        wheel = chosen.packages.get(name)
        if wheel is None or days_between(wheel, source) <= YEAR:
            continue
        # Such a wheel is a leftover from a time when the project still published wheels.
        command = how_to_build(name)
        raise Unsatisfiable(
            f"The newest {name} with a wheel is {wheel.version}, years older than "
            f"{source.version}, which exists only as source",
            hint=f"nothing was changed; `gpusetup install` first, then `{command}` builds the "
            "newest; asked for by its version the old one is taken: "
            f"'{name}=={wheel.version}'",
        )


def only_old_releases(old: Sequence[HeldBack]) -> Unsatisfiable:
    """The error that only old releases work together. It names the requirements that request them
    anyway."""
    reasons, words = [], []
    for package in old:
        reasons.append(f"{package.package} only at {package.at}: {package.by}")
        # The requirement is quoted, because some shells interpret `==`.
        words.append(f"'{package.package}=={package.at}'")
    return Unsatisfiable(
        f"Only an old release goes together here: {'; '.join(reasons)}",
        hint=f"asked for by its version it is taken: {' '.join(words)}",
    )
