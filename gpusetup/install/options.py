"""The options of `gpusetup install`, as a record for its phases."""

from __future__ import annotations

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.model.frozen import Frozen


class InstallRequest(Frozen):
    """The options of `gpusetup install` that its phases need."""

    packages: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    """The files of `-r`."""
    torch: str | None = None
    backend: str = "auto"
    python: str | None = None
    venv: str | None = None
    index_root: str | None = None
    """The root URL of a mirror that the user named; None for the default index."""
    root: str = INDEX_ROOT
    """The root URL of torch's indexes."""
    download: str | None = None
    wheelhouse: str | None = None
    machine_from: str | None = None
    for_gpu: tuple[str, ...] = ()
    for_driver: str | None = None
    upgrade: bool = False
    dry_run: bool = False
    yes: bool = False
    no_verify: bool = False

    @property
    def for_other_host(self) -> bool:
        """Whether the options describe the GPU or driver of another host."""
        return bool(self.for_gpu or self.for_driver)
