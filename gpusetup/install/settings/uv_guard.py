"""The `uv.toml` of a folder whose `.venv` is guarded: uv takes that environment there unasked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from gpusetup.install.settings.uv_config import HEAD, names_settings

FILE = "uv.toml"
UNASKED = ".venv"
"""The environment that uv takes in a folder where none is active."""


def uv_toml(pins: Mapping[str, str]) -> str:
    """A file that holds the pins, and nothing else.

    >>> print(uv_toml({"torch": "2.13.0+cpu"}).splitlines()[-2])
        "torch==2.13.0+cpu",
    """
    rows = "".join(f'    "{name}=={version}",\n' for name, version in pins.items())
    return (
        f"{HEAD}: for `uv pip` in this folder and below it; `gpusetup guard --undo`\n"
        f"# takes it away.\nconstraint-dependencies = [\n{rows}]\n"
    )


def settings_above(folder: Path) -> Path | None:
    """The file that uv reads now in a folder, of those that a project has; a project's own file
    counts although it says nothing of uv yet."""
    return next(_named(folder), None)


def _named(folder: Path) -> Iterator[Path]:
    for one in (folder, *folder.parents):
        uv, project = one / FILE, one / "pyproject.toml"
        if uv.is_file():
            yield uv
        elif project.is_file() and (one == folder or names_settings(project)):
            yield project


def is_a_place(folder: Path, home: Path) -> bool:
    """Whether a file in this folder is for what is in it: not for all that somebody has.

    >>> is_a_place(Path("/home/me/work"), Path("/home/me")), is_a_place(Path("/"), Path("/root"))
    (True, False)
    """
    return folder != home and folder not in home.parents
