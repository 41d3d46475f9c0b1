"""The decision on a host's torch: the build, what happens to the installed torch, and why other
builds were not chosen."""

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
    """The decision that `install` carries out, `doctor` recommends and `resolve` prints."""

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
        """The URL of the folder on torch's index that contains the build; None if no index
        has it."""
        build = self.build
        if build is None or build.channel != "pytorch":
            return None
        # What nothing tells of an installed torch names no folder.
        if build.backend == UNREAD:
            return None
        root = self.index_root or INDEX_ROOT
        return build.index or index_url(build.backend, root)

    @property
    def moves(self) -> bool:
        """Whether torch is newly installed, replaced, or installed again."""
        stays = ("kept", "refused", "nothing")
        # "again" is an exchange, too: the same build with its missing files.
        return self.action not in stays

    def limits_torch(self, torch: str) -> bool:
        """Whether the choice is for this torch version, so that its `limits` apply."""
        build = self.build
        if build is None:
            return False
        return build.torch == torch

    def at_root(self, root: str) -> Choice:
        """The choice with the URLs of a mirror; unchanged if the build is not from torch's own
        index."""
        build = self.build
        # conda's channels have mirrors of their own.
        if root == INDEX_ROOT or build is None or build.channel != "pytorch":
            return self
        fallbacks = []
        for fallback in self.alternatives:
            url = index_url(fallback.backend, root)
            fallbacks.append(replace(fallback, index_url=url))
        return replace(self, index_root=root, alternatives=tuple(fallbacks))


def crosses(installed: str | None, chosen: str | None) -> bool:
    """Whether replacing the installed backend with the chosen one gives up the GPUs of the maker
    that torch was built for.

    >>> crosses("cu130", "cpu"), crosses("rocm6.4", "cu130"), crosses("cpu", "cu130")
    (True, True, False)
    >>> crosses("unknown", "cpu"), crosses("unknown", "cu130")
    (True, False)
    """
    maker, new_maker = maker_of(installed), maker_of(chosen)
    # Nothing tells whose GPUs it is for: only the CPU's build would surely serve none.
    if installed == UNREAD:
        return new_maker is None
    # A CPU build serves no maker's GPUs that could be left.
    if maker is None:
        return False
    return new_maker != maker
