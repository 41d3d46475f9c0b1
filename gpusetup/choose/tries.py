"""Chooses the next build about which to ask an index, and skips builds whose answer is already
known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpusetup.choose.search import Candidate, Search
from gpusetup.model.builds import TorchBuild
from gpusetup.model.versions import parsed

LACKS_TORCH = r"no versions? of torch\b|\btorch(==\S+)? (was not|has no)"
"""The words with which uv reports that an index does not have a torch."""


class Beside(NamedTuple):
    """The facts that decide which packages work with a build. The index gives the same answer for
    two builds if these facts are equal."""

    torch: str
    limits: tuple[str, ...]
    """The limits that the companion table sets for packages with this torch."""
    on_torch_index: tuple[str, ...]


class Tries:
    """The builds to try, and what the index's answers have already ruled out."""

    def __init__(self, search: Search, builds: Iterable[TorchBuild]) -> None:
        self.search = search
        self.builds = tuple(builds)
        self.answered: set[Beside] = set()
        self.promising: set[tuple[str, tuple[str, ...]]] = set()
        """Pairs of a torch version and requirements that may work together: the index solved a
        question about several torch versions with this version."""

    def beside(self, build: TorchBuild) -> Beside:
        """The facts that decide which packages work with this build."""
        on_torch_index = self.search.on_torch_index(build)
        limits = self.search.limits(build, on_torch_index)
        return Beside(build.torch, limits, on_torch_index)

    def note(self, candidate: Candidate) -> None:
        """Record that the index answered for this build, unless the index lacks its torch."""
        # Another backend of the same torch may work with newer packages (xformers is only built for
        # CUDA 12), unless the table sets the same limits for it. Another backend may also have the
        # torch that this one lacks.
        if re.search(LACKS_TORCH, candidate.reason or "") is None:
            self.answered.add(self.beside(candidate.build))

    def is_ruled_out(self, build: TorchBuild, words: tuple[str, ...]) -> bool:
        """Whether it is already known that no packages work with a build, from earlier answers or
        from one question about many builds.

        uv takes seconds for each question, and there are dozens of builds. So one question about
        many builds comes first.
        """
        if self.beside(build) in self.answered:
            return True
        # In most cases the first build works, so a question about all builds would be wasted.
        if not self.answered:
            return False
        return (build.torch, words) not in self.promising and self._none_alike(build, words)

    def _none_alike(self, build: TorchBuild, words: tuple[str, ...]) -> bool:
        """Whether one question about this build and similar ones shows that no packages work with
        it."""
        builds = self.alike(build)
        while len(builds) > 1:
            torch = self.search.torch_among(builds, words)
            if torch is None:
                self.answered.update(map(self.beside, builds))
                return True
            self.promising.add((torch, words))
            # uv tries the newest torch first, so the versions newer than its answer most likely do
            # not work.
            builds = tuple(other for other in builds if parsed(other.torch) > parsed(torch))
            if parsed(build.torch) <= parsed(torch):
                return False
        return False

    def alike(self, build: TorchBuild) -> tuple[TorchBuild, ...]:
        """The builds, `build` among them, that share one backend and that a single question can
        cover."""
        beside = self.beside(build)
        by_backend: dict[str, dict[Beside, TorchBuild]] = {}
        for other in self.builds:
            of_other = self.beside(other)
            is_open = of_other not in self.answered
            # One question names the packages from torch's own index for all its builds, so these
            # packages must be the same.
            if is_open and of_other.on_torch_index == beside.on_torch_index:
                by_backend.setdefault(other.backend, {})[of_other] = other
        with_build = [group for group in by_backend.values() if beside in group]
        largest = max(with_build, key=len)
        return tuple(largest.values())
