"""Reads and writes the file of a project, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput, Blocked
from gpusetup.system.refused import refused


def read_project(path: Path) -> str:
    try:
        return named_file.read(path).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise BadInput(f"{path} is not UTF-8 text") from problem
    except OSError as problem:
        raise BadInput(
            f"{path} cannot be read: {problem.strerror}",
            hint="name the project's file: `--project path/to/pyproject.toml`",
        ) from problem


def write_project(path: Path, text: str) -> None:
    """The whole file or nothing: written beside it, then renamed over it.

    A symbolic link stays one (its file is written); so does a file of several names.
    """
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.gpusetup")
    try:
        there = path.stat()
        if there.st_nlink > 1:
            path.write_bytes(text.encode())
            return
        with beside.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(there.st_mode)
        beside.replace(path)
    except FileExistsError as problem:
        raise Blocked(f"{beside} is there already", hint="delete it, then try again") from problem
    except OSError as problem:
        beside.unlink(missing_ok=True)
        raise refused(problem, f"{path} cannot be written") from problem
