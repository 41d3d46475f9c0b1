"""Reads the file that a user names, or those of a folder, as one record of what they ask for."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.project.ask import OF_A_FOLDER, Ask, Kind
from gpusetup.project.environments import add_dockerfile, add_environment
from gpusetup.project.metadata import add_lock, add_pyproject, add_setup_cfg, add_setup_py
from gpusetup.project.requirements import add_file

READERS: tuple[tuple[str, Kind, Callable[[Ask], None]], ...] = (
    (r"pyproject\.toml", "pyproject", add_pyproject),
    (r"setup\.py", "setup", add_setup_py),
    (r"setup\.cfg", "setup", add_setup_cfg),
    (r"(?:uv|poetry)\.lock|pylock(?:\..+)?\.toml", "lock", add_lock),
    (r"(?:.*[.-])?(?:dockerfile|containerfile)(?:[.-].*)?", "dockerfile", add_dockerfile),
    (r".*\.ya?ml", "environment", add_environment),
    (r".*", "requirements", lambda ask: add_file(ask, Path(ask.path))),
)
"""A pattern of a file's name, with the kind and the reader; the first that matches counts."""


def read_ask(path: str) -> Ask:
    """What a file asks for. Raises BadInput if it cannot be read, or is not what its name says."""
    name = Path(path).name.lower()
    kind, add = next(row[1:] for row in READERS if re.fullmatch(row[0], name))
    ask = Ask(path=path, kind=kind)
    try:
        add(ask)
    # Python's parser raises the last three for a file that is nested too deeply or too large.
    except (configparser.Error, SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        first_line = str(problem).partition("\n")[0]
        raise BadInput(f"{path} cannot be read: {first_line}") from problem
    if ask.kind != "pyproject" or ask.requests or ask.is_poetry:
        return ask
    # Without dependencies here, setuptools may read them from one of these files.
    for file in map(Path(path).with_name, ("setup.cfg", "setup.py")):
        if named_file.is_there(file):
            setup = read_ask(str(file))
            # A list that a setup.py computes is unread.
            if setup.requests or setup.unread:
                # Without `[project]`, the answer names the file that has the requirements.
                ask.path = path if ask.has_project else str(file)
                ask.python = ask.python or setup.python
                ask.requests += setup.requests
                ask.limits += setup.limits
                ask.direct += setup.direct
                ask.left_out += setup.left_out
                ask.unread += setup.unread
                break
    return ask


def ask_of_folder(folder: str = ".") -> Ask | None:
    """What the project in a folder asks for: what the first of its files that names torch says,
    otherwise the first that lists packages. None if none does; one that cannot be read is skipped.
    """
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
