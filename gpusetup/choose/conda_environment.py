"""Decides into which conda environment torch is installed: the active one, or a new one. Pure
functions."""

from __future__ import annotations

import re

from gpusetup.errors import UsageError
from gpusetup.model.machine import Snapshot

NEW_NAME = "torch"
"""The name of a new environment if the user gives none."""
RESERVED = ("base", "root")
"""The names of conda's own environment (`conda create` refuses them)."""
NAME_PARTS = r"[A-Za-z0-9_][\w.+-]*"
"""A valid environment name: conda refuses `/`, `:`, `#` and spaces, and a word that begins with `-`
would be an option."""


def conda_name(text: str) -> str:
    """Returns the text if it is a valid name for a new conda environment; raises UsageError
    otherwise.

    >>> conda_name("qwen")
    'qwen'
    """
    if text in RESERVED:
        raise UsageError(
            f"conda's own environment is called {text!r}", hint="give the new one another name"
        )
    if not re.fullmatch(NAME_PARTS, text, re.ASCII):
        raise UsageError(
            f"conda accepts no environment called {text!r}",
            hint="use letters, digits, `-`, `_` and `.`, such as `torch-cu124`",
        )
    return text


def new_environment(machine: Snapshot, name: str | None) -> str | None:
    """The name of the conda environment to create; None if the active one is to be used.

    torch does not belong in conda's base environment, because conda itself runs there. One broken
    package in it can break conda.
    """
    if name is not None:
        return conda_name(name)
    is_conda = machine.python.manager == "conda" and machine.python.prefix is not None
    return None if is_conda and not is_base(machine) else NEW_NAME


def is_base(machine: Snapshot) -> bool:
    """Whether the target is conda's base environment, judging by the active environment's name or
    the target's folder."""
    prefix = (machine.python.prefix or "").rstrip("/\\")
    active = machine.environment.get("CONDA_PREFIX", "").rstrip("/\\")
    name = machine.environment.get("CONDA_DEFAULT_ENV")
    if name and (not active or active == prefix):
        return name in RESERVED
    folder = re.split(r"[/\\]", prefix)[-1].lower()
    of_conda = r"(mini|ana)(conda|forge)\d?|(mamba|micromamba)(forge)?|conda"
    return re.fullmatch(of_conda, folder) is not None
