"""Notes for the user about an environment that is going to be changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpusetup.errors import BadInput
from gpusetup.install.image_build import in_image_build
from gpusetup.install.switching.mounts import filesystem_of
from gpusetup.install.target.find import Target
from gpusetup.install.target.layout import files_of_all
from gpusetup.install.wheels import size_text
from gpusetup.named_file import read_text
from gpusetup.project.pyproject import table
from gpusetup.uv.toml import parse_toml

MOST_BYTES = 1 << 20
"""The maximum size of a project file."""
WORTH_SAYING_BYTES = 100 << 20
"""The size from which a copy is worth a note; a smaller one goes unnoticed."""


def notes_of_target(target: Target, leaving: Iterable[str]) -> Iterator[str]:
    """Yields the notes about an environment; `leaving` names the packages that will be replaced."""
    prefix = Path(target.venv or target.layout.prefix)
    if is_uv_project(prefix.parent):
        yield (
            f"{prefix.parent} is a uv project: the next `uv sync` there removes what its lock does "
            "not name. `gpusetup install --project` prints the lines that keep this torch"
        )
    if target.venv is None:
        yield from _cost_on_overlay(target, leaving)


def is_uv_project(folder: Path) -> bool:
    """Whether a folder contains a uv project, whose environment `uv sync` resets to its lock."""
    if (folder / "uv.lock").is_file():
        return True
    try:
        document = parse_toml(read_text(folder / "pyproject.toml", MOST_BYTES))
    except (BadInput, ValueError):
        # uv does not sync the environment without a readable project file either.
        return False
    return "project" in document and "uv" in table(document, "tool")


def _cost_on_overlay(target: Target, leaving: Iterable[str]) -> Iterator[str]:
    """Yields a note on the disk space that is needed to move files aside in a container's layered
    filesystem.

    A file in a lower layer cannot be renamed, so the system first copies it into the top layer
    (https://docs.kernel.org/filesystems/overlayfs.html, "Non-directories").
    """
    if filesystem_of(target.layout.prefix) != "overlay":
        return
    size_bytes = 0
    for path in files_of_all(leaving, target.layout)[1]:
        if os.path.isfile(path):
            size_bytes += os.lstat(path).st_size
    if size_bytes < WORTH_SAYING_BYTES:
        return
    until = "until this ends" if in_image_build() else "as long as `--undo` can restore them"
    yield (
        f"this environment lies in an image's layers: the previous packages are copied into the "
        f"top layer, up to {size_text(size_bytes)}, and stay there {until}"
    )
