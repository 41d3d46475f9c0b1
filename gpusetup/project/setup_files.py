"""Reads setup.cfg and setup.py. A setup.py is parsed and never run."""

from __future__ import annotations

import ast
import configparser
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.project.ask import Ask
from gpusetup.project.pyproject import joined, with_list
from gpusetup.project.requirements import read_requirements

MOST_BYTES = 1 << 20


def read_setup_cfg(path: str) -> Ask:
    """What a setup.cfg asks for. Raises BadInput if it cannot be read."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(named_file.read_text_once(path, MOST_BYTES))
    except configparser.Error as problem:
        first_line = str(problem).splitlines()[0]
        raise BadInput(f"{path} is not a valid setup.cfg: {first_line}") from problem
    options = parser["options"] if parser.has_section("options") else {}
    ask = Ask(path=path, kind="setup", python=options.get("python_requires"))
    lines = [line.strip() for line in options.get("install_requires", "").splitlines()]
    return with_list(ask, [line for line in lines if line], f"{Path(path).name}, install_requires")


def read_setup_py(path: str) -> Ask:
    """What the call of `setup()` in a setup.py asks for, as far as it stands there in words.

    Raises BadInput if the file cannot be read or is not Python.
    """
    text = named_file.read_text_once(path, MOST_BYTES)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise BadInput(f"{path} is not valid Python: {problem}") from problem
    ask = Ask(path=path, kind="setup")
    name = Path(path).name
    # A list is often bound to a name first: `requirements = ["torch>=2"]`.
    bound = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        is_setup = isinstance(node, ast.Call) and _called(node.func) == "setup"
        if not is_setup:
            continue
        for keyword in node.keywords:  # type: ignore[attr-defined]
            value = keyword.value
            if isinstance(value, ast.Name):
                value = bound.get(value.id, value)
            if keyword.arg == "python_requires":
                ask = replace(ask, python=_text(value))
            if keyword.arg != "install_requires":
                continue
            if isinstance(value, (ast.List, ast.Tuple)):
                texts = [_text(item) for item in value.elts]
                ask = with_list(ask, [one for one in texts if one], f"{name}, install_requires")
            else:
                ask = _with_file_read(ask, path)
    return ask


def _with_file_read(ask: Ask, path: str) -> Ask:
    """What is asked for if setup.py computes its list: nearly always it reads the requirements.txt
    beside it."""
    beside = Path(path).parent / "requirements.txt"
    place = f"{Path(path).name}, install_requires"
    if not beside.is_file():
        return replace(ask, unread=(*ask.unread, f"{place}: it is computed when setup.py runs"))
    try:
        return joined(ask, read_requirements(str(beside)))
    except BadInput as problem:
        return replace(ask, unread=(*ask.unread, problem.message))


def _called(function: ast.expr) -> str | None:
    """The last name of a called function: `setup` in `setuptools.setup(...)`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def _text(value: Any) -> str | None:
    """The text of a literal; None for anything else."""
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return value.value if is_text else None
