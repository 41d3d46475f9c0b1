"""Reads the file that a user names, or those of a folder, as one record of what they ask for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.project.ask import OF_A_FOLDER, Ask
from gpusetup.project.conda_file import read_environment
from gpusetup.project.dockerfile import read_dockerfile
from gpusetup.project.locks import read_lock
from gpusetup.project.pyproject import joined, read_pyproject
from gpusetup.project.requirements import read_requirements
from gpusetup.project.setup_files import read_setup_cfg, read_setup_py

READERS: tuple[tuple[str, Callable[[str], Ask]], ...] = (
    (r"pyproject\.toml", read_pyproject),
    (r"setup\.py", read_setup_py),
    (r"setup\.cfg", read_setup_cfg),
    (r"(?:uv|poetry)\.lock|pylock(?:\..+)?\.toml", read_lock),
    (r"(?:.*[.-])?(?:dockerfile|containerfile)(?:[.-].*)?", read_dockerfile),
    (r".*\.ya?ml", read_environment),
    (r".*", read_requirements),
)
"""The reader for each name of a file; the first that matches reads it."""


def read_ask(path: str) -> Ask:
    """What a file asks for. Raises BadInput if it cannot be read."""
    name = Path(path).name.lower()
    for pattern, read in READERS:
        if re.fullmatch(pattern, name):
            ask = read(path)
            break
    return with_setup_files(ask) if ask.kind == "pyproject" else ask


def with_setup_files(ask: Ask) -> Ask:
    """What a pyproject.toml asks for, together with the setup.cfg or setup.py beside it if it lists
    no dependencies itself: it then only configures tools, or setuptools reads those files."""
    if ask.requests or ask.is_poetry:
        return ask
    for name, read in (("setup.cfg", read_setup_cfg), ("setup.py", read_setup_py)):
        file = Path(ask.path).parent / name
        if named_file.is_there(file):
            other = read(str(file))
            if other.requests or other.unread:
                path = ask.path if ask.has_project else str(file)
                return replace(joined(ask, other), path=path)
    return ask


def ask_of_folder(folder: str = ".") -> Ask | None:
    """What the project in a folder asks for: the first of its files that names torch, otherwise the
    first that lists packages. None if there is none; a file that cannot be read does not count."""
    first: Ask | None = None
    for name in OF_A_FOLDER:
        path = Path(folder, name)
        if not path.is_file():
            continue
        try:
            ask = read_ask(str(path))
        except BadInput:
            continue
        if ask.family or ask.variants or ask.image or any(one.torch for one in ask.later):
            return ask
        if first is None and ask.requests:
            first = ask
    return first
