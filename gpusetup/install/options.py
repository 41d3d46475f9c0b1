"""The options of `gpusetup install`, as far as its phases need them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gpusetup.model.machine import Snapshot


class InstallRequest(Protocol):
    """The question of the command (`commands.install.InstallQuestion`), which travels as it is."""

    packages: tuple[str, ...]
    requirements: tuple[str, ...]
    """The files of `-r`."""
    torch: str | None
    backend: str
    python: str | None
    venv: str | None
    index: str | None
    """The root URL of a mirror that the user named; None for the default index."""
    download: str | None
    offline: str | None
    machine: str | Path | Snapshot | None
    gpu: tuple[str, ...]
    driver: str | None
    upgrade: bool
    dry_run: bool
    undo: bool

    @property
    def root(self) -> str:
        """The root URL of torch's indexes. It may contain a login."""

    @property
    def for_other_host(self) -> bool:
        """Whether the options describe the GPU or driver of another host."""
