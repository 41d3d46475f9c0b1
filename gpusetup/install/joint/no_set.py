"""Why nothing goes together: the fewest packages that clash, or one that has no wheel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.credentials import without_credentials
from gpusetup.install.joint.ask import Answer
from gpusetup.install.joint.releases import Listed
from gpusetup.install.joint.work import Work
from gpusetup.resolver.joint import smallest_conflict


def no_set(
    work: Work, first: Answer, found: Mapping[str, Listed], answers: Sequence[Answer]
) -> Unsatisfiable:
    """Why nothing goes together, in the words of the fewest packages that clash."""
    for name in work.names:
        page = found[name]
        if page.problem:
            raise _no_index(page)
        if page.releases and not (page.newest and page.newest.has_wheel):
            return Unsatisfiable(*_source_only(name, work))
    why = first.reason or next((a.reason for a in answers if a.reason), None)
    because = f": {why or 'uv gives no reason'}"
    left = _conflict(work) if first.reason and len(work.words) > 1 else work.words
    if len(left) > 1 and first.reason:
        return Unsatisfiable(*_exclude_each_other(work, left, because))
    if first.reason and len(left) < len(work.words) and (own := work.free(left)).reason:
        because = f": {own.reason}"
    return Unsatisfiable(*_none_goes(left, because, work))


def _none_goes(left: Sequence[str], because: str, work: Work) -> tuple[str, str]:
    """What stands against one package, or several; the hint fits the reason."""
    said = " and ".join(left)
    if "was not found in the package registry" in because:
        where = f": {work.index}" if work.index else ""
        return (
            f"No index that was asked has {said}{where}",
            "nothing was changed; is it spelled so?",
        )
    out = "leave one of them out, or name another version"
    way = out if len(left) > 1 else "name another version of it, or another package"
    return (
        f"No torch that fits this machine goes together with {said}{because}",
        f"nothing was changed; {way}",
    )


def _no_index(page: Listed) -> Blocked:
    """uv takes a log-in page for an index page that lists nothing."""
    where = f"{without_credentials(page.index or '').rstrip('/')}/{page.name}/"
    return Blocked(
        f"{where} did not answer with an index: {page.problem}",
        hint="nothing was changed; a log-in page or a proxy may answer in its place: open the "
        "address in a browser, or check the index's URL",
    )


def _conflict(work: Work) -> tuple[str, ...]:
    """The fewest of the words that have no set."""

    def goes(words: Sequence[str]) -> bool:
        answer = work.free(words)
        return answer.reason is None

    return smallest_conflict(work.words, goes)


def _exclude_each_other(work: Work, words: Sequence[str], because: str) -> tuple[str, str]:
    """Words that go with a torch each, and with none together: which torch, and who is no part."""
    alone = {word: work.free([word]) for word in words}
    torches = {
        word: (answer.version("torch") or "").partition("+")[0]
        for word, answer in alone.items()
        if answer.reason is None
    }
    each = ", ".join(f"{word} alone goes with torch {torches[word]}" for word in torches)
    others = [word for word in work.words if word not in words]
    apart = f"; {' and '.join(others)} {'is' if len(others) == 1 else 'are'} no part of it"
    why = work.free(words).reason
    because = f": {why}" if why else because
    if len(set(torches.values())) == len(words) and (not why or re.search(r"\btorch\b", why)):
        because = f": {', '.join(f'{word} goes with torch {t}' for word, t in torches.items())}"
    head = f"{' and '.join(words)} exclude each other{because}"
    return (
        f"{head}{apart if others else ''}",
        f"nothing was changed; {each}: an environment for each, or another version of one",
    )


def _source_only(name: str, work: Work) -> tuple[str, str]:
    project = work.table.project(name)
    wheels = (
        sorted({f"torch {w.torch} (CUDA {w.cuda})" for w in project.releases}) if project else []
    )
    where = f"; its release page has wheels for {', '.join(wheels)}" if wheels else ""
    cost = f"; a build takes {project.build}" if project and project.build else ""
    other = f" instead: {project.way_out()}" if project else " name another package"
    return (
        f"{name} has no wheel for this machine, only its source{where}{cost}",
        f"nothing was changed;{other}; `uv pip install --no-build-isolation {name}` builds it",
    )
