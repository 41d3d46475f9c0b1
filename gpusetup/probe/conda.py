"""The conda environment that is active, or that the target is."""

from __future__ import annotations

from gpusetup.model.machine import Conda
from gpusetup.probe.target import Target
from gpusetup.readings.paths import base_name
from gpusetup.system.system import System

EXECUTABLES = ("conda", "mamba", "micromamba")


def read_conda(system: System, target: Target | None) -> Conda:
    environ = system.environ()
    own = target.prefix if target and target.manager == "conda" else None
    prefix = own or environ.get("CONDA_PREFIX") or None
    active = prefix is not None and prefix == environ.get("CONDA_PREFIX")
    named = environ.get("CONDA_EXE") or environ.get("MAMBA_EXE")
    return Conda(
        prefix=prefix,
        name=(active and environ.get("CONDA_DEFAULT_ENV"))
        or (base_name(prefix) if prefix else None),
        executable=named or next(filter(None, map(system.which, EXECUTABLES)), None),
    )
