"""Reads the file that a user names, or those of a folder, as one record of what they ask for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.project.ask import OF_A_FOLDER, Ask
from gpusetup.project.conda_file import read_environment
from gpusetup.project.dockerfile import read_dockerfile
from gpusetup.project.pyproject import read_lock, read_pyproject
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
    ask = next(read for pattern, read in READERS if re.fullmatch(pattern, name))(path)
    if ask.kind != "pyproject" or ask.requests or ask.is_poetry:
        return ask
    # A pyproject.toml that lists no dependencies only configures tools, or setuptools reads the
    # setup.cfg or setup.py beside it.
    for name, read in (("setup.cfg", read_setup_cfg), ("setup.py", read_setup_py)):
        file = Path(path).parent / name
        if named_file.is_there(file):
            beside = read(str(file))
            if beside.requests or beside.unread:
                ask.path = path if ask.has_project else str(file)
                ask.requests, ask.python = beside.requests, ask.python or beside.python
                ask.later += beside.later
                ask.left_out += beside.left_out
                ask.unread += beside.unread
                break
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
        if ask.names_torch:
            return ask
        if first is None and ask.requests:
            first = ask
    return first
