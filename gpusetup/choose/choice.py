"""The decision about torch on a host: which build it gets, what happens to the installed torch, and
why other builds were not chosen."""

from __future__ import annotations

from typing import Literal

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import INDEX_ROOT, index_url
from gpusetup.catalog.companions import UNREAD
from gpusetup.choose.wish import Wish
from gpusetup.model.builds import Advice, JointPackage, Rejection, Served, TorchBuild
from gpusetup.model.frozen import Frozen, Text

Change = Literal["again", "same-version", "nearest-newer", "newest", "upgrade", "first"]
Action = Literal["kept", "refused", "nothing", Change]
"""What happens to torch. "kept": it stays. "again": the same build is installed again, because
files are missing. "same-version", "nearest-newer", "newest" and "upgrade": it is replaced, and the
word names the rule by which the new build was chosen. "first": torch was not installed. "refused":
the new build would be for another maker's GPUs or for the CPU, without a request for that.
"nothing": no build fits."""


class Choice(Frozen):
    """The decision that `install` carries out, `doctor` recommends and `resolve` prints."""

    build: TorchBuild | None = None
    """The build in the environment afterwards. If no build fits, it is None, and `advice` names the
    driver or Python that would help. If the change is refused, it is the build that the user would
    get by requesting its backend by name or, without an NVIDIA GPU, the installed one."""
    action: Action = "nothing"
    reason: Text = None
    """Why this torch is installed or kept, in one sentence."""
    alternatives: tuple[TorchBuild, ...] = ()
    """Other builds of the same torch, for an index that does not have the chosen one."""
    rejections: tuple[Rejection, ...] = ()
    """The builds that the request allows but that do not fit, each with the reason."""
    packages: tuple[JointPackage, ...] = ()
    """The packages of the set, if packages were requested."""
    notes: tuple[str, ...] = ()
    """What the user should know about the build, for example that the GPU is a guess."""
    notes_on_packages: tuple[str, ...] = ()
    served: tuple[Served, ...] = ()
    advice: Advice | None = None
    installed: TorchBuild | None = None
    """The installed torch as a build; None if torch is not installed."""
    newest: Choice | None = None
    """The newest build that fits, which `install --upgrade` would install."""
    wish: Wish = Wish()
    """The request that this choice answers. For a report that shows several requests, it is the
    first one that could be met."""
    catalog_as_of: str = ""

    @property
    def installs_torch(self) -> bool:
        """Whether torch is installed for the first time, replaced, or installed again."""
        # "again" is included, because torch is reinstalled to restore its missing files.
        return self.action not in ("kept", "refused", "nothing")


def index_of(build: TorchBuild | None, root: str = INDEX_ROOT) -> str | None:
    """The URL of the folder on torch's index, or on its mirror with this root, that has a build;
    None for a conda package, and if no index is known to have it."""
    # A build without Pythons is not in the catalog: a vendor's or a nightly one.
    if build is None or build.channel != "pytorch" or not build.pythons:
        return None
    return build.index or index_url(build.backend, root)


def loses_gpu_support(installed: str | None, chosen: str | None) -> bool:
    """Whether replacing the installed backend with the chosen one gives up support for the
    installed backend's GPUs.

    >>> loses_gpu_support("cu130", "cpu"), loses_gpu_support("cpu", "cu130")
    (True, False)
    >>> loses_gpu_support("unknown", "cpu"), loses_gpu_support("unknown", "cu130")
    (True, False)
    """
    # Whose GPUs the installed torch supports is unknown, but a CPU build certainly supports none.
    if installed == UNREAD:
        return maker_of(chosen) is None
    # An installed CPU build has no maker, so no GPU can lose support.
    return maker_of(installed) not in (None, maker_of(chosen))
