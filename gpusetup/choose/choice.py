"""Which torch a host gets, what becomes of the installed one, and why not the others."""

from __future__ import annotations

from typing import Literal

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import INDEX_ROOT, index_url
from gpusetup.catalog.companions import UNREAD
from gpusetup.choose.wish import Wish
from gpusetup.model.builds import (
    Advice,
    Fallback,
    HeldBack,
    JointPackage,
    Rejection,
    Served,
    TorchBuild,
)
from gpusetup.model.frozen import Frozen, Text, replace

Action = Literal[
    "kept",
    "again",
    "same-version",
    "nearest-newer",
    "newest",
    "upgrade",
    "first",
    "refused",
    "nothing",
]
"""What becomes of torch: it stays; the same again, because files are missing; it changes, and by
which rule; it was not there; it would go to another maker's GPUs or to the CPU, which nobody asked
for; nothing fits."""


class Choice(Frozen):
    """What `install` makes of torch, what doctor prescribes, and what resolve answers."""

    build: TorchBuild | None = None
    """What the environment holds afterwards; None if nothing fits, and `advice` names the change
    that would help most. Of a refusal: what naming the backend would give."""
    action: Action = "nothing"
    reason: Text = None
    """Why this torch comes or stays, in a sentence."""
    alternatives: tuple[Fallback, ...] = ()
    """Builds of the same torch, for an index that lacks the chosen one."""
    rejections: tuple[Rejection, ...] = ()
    """Why not each of the others."""
    packages: tuple[JointPackage, ...] = ()
    """The set that goes together, if packages were wanted."""
    held_back: tuple[HeldBack, ...] = ()
    """What of the set is not at its newest, and why."""
    notes: tuple[str, ...] = ()
    """What a reader should know of the build: a driver newer than the catalog, a guessed GPU."""
    notes_on_packages: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    """What the packages beside torch are limited to: `numpy<2` beside a torch before 2.3."""
    served: tuple[Served, ...] = ()
    advice: Advice | None = None
    conda: TorchBuild | None = None
    """What conda's channels have for the same question (an older torch at times)."""
    installed: TorchBuild | None = None
    """The torch that is there, as a build; None without one."""
    newest: Choice | None = None
    """The newest that fits, which `install --upgrade` would take."""
    wish: Wish = Wish()
    """What it answers: of a text, the wish that could be met."""
    index_root: Text = None
    """The mirror that commands and files name instead of torch's own index."""
    catalog_as_of: str = ""

    @property
    def index_url(self) -> str | None:
        """The folder of torch's index that has the build; None for one that no index has."""
        build = self.build
        if build is None or build.channel != "pytorch" or build.backend == UNREAD:
            return None
        return index_url(build.backend, self.index_root or INDEX_ROOT)

    @property
    def moves(self) -> bool:
        """Whether torch itself is exchanged or comes."""
        return self.action not in ("kept", "refused", "nothing")

    def limits_torch(self, torch: str) -> bool:
        """Whether `limits` are those of a torch."""
        return self.build is not None and self.build.torch == torch

    def at_root(self, root: str) -> Choice:
        """The choice with a mirror's addresses instead of those of torch's own index."""
        if root == INDEX_ROOT or self.build is None or self.build.channel != "pytorch":
            return self
        fallbacks = [
            replace(fallback, index_url=index_url(fallback.backend, root))
            for fallback in self.alternatives
        ]
        return replace(self, index_root=root, alternatives=tuple(fallbacks))


def crosses(installed: str | None, chosen: str | None) -> bool:
    """Whether a change leaves the GPUs of one maker for another's, or for the CPU.

    >>> crosses("cu130", "cpu"), crosses("rocm6.4", "cu130"), crosses("cpu", "cu130")
    (True, True, False)
    >>> crosses("unknown", "cpu"), crosses("unknown", "cu130")
    (True, False)
    """
    maker = maker_of(installed)
    if installed == UNREAD:
        return maker_of(chosen) is None
    return maker is not None and maker_of(chosen) != maker
