"""Installers as step tables: a resolution becomes the commands of uv, pip or conda. Pure."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.installers.conda import conda
from gpusetup.installers.options import InstallerOptions
from gpusetup.installers.wheels import pip, uv
from gpusetup.model.resolution import Resolution, Step

Installer = Callable[[Resolution, InstallerOptions], tuple[Step, ...]]

INSTALLERS: dict[str, Installer] = {"uv": uv, "pip": pip, "conda": conda}
"""Installer -> the steps it would take; pure, so that what is shown is what is run."""
