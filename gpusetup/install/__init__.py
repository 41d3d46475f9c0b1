"""From a resolution to an environment: installers as step tables, the index, the transaction."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.install.conda import conda
from gpusetup.install.pip import pip
from gpusetup.install.uv import uv
from gpusetup.install.wish import Wish
from gpusetup.model import Resolution, Step

Installer = Callable[[Resolution, Wish], tuple[Step, ...]]

INSTALLERS: dict[str, Installer] = {"uv": uv, "pip": pip, "conda": conda}
"""Installer -> the steps it would take; pure, so that what is shown is what is run."""
