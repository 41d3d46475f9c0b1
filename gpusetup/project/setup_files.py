"""Reads setup.cfg and setup.py. A setup.py is parsed and never run."""

from __future__ import annotations

import ast
import configparser
from pathlib import Path

from gpusetup import named_file
from gpusetup.project.ask import MOST_BYTES, Ask
from gpusetup.project.requirements import add_file


def add_setup_cfg(ask: Ask) -> None:
    """Add what a setup.cfg asks for. Raises configparser.Error if it is none."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(named_file.read_text(ask.path, MOST_BYTES))
    options = parser["options"] if parser.has_section("options") else {}
    ask.python = options.get("python_requires")
    for line in filter(str.strip, options.get("install_requires", "").splitlines()):
        ask.add(line, f"{Path(ask.path).name}, install_requires")


def add_setup_py(ask: Ask) -> None:
    """Add what the call of `setup()` in a setup.py asks for, as far as it stands there in words.
    Raises SyntaxError, ValueError, RecursionError or MemoryError if it is no Python."""
    tree = ast.parse(named_file.read_text(ask.path, MOST_BYTES))
    place = f"{Path(ask.path).name}, install_requires"
    # A list is often bound to a name first: `requirements = ["torch>=2"]`.
    bound: dict[str, ast.expr] = {}
    named: dict[str | None, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            bound |= {name.id: node.value for name in node.targets if isinstance(name, ast.Name)}
        # `setup(...)` and `setuptools.setup(...)`.
        elif isinstance(node, ast.Call) and "setup" in (
            getattr(node.func, "attr", None),
            getattr(node.func, "id", None),
        ):
            named |= {keyword.arg: keyword.value for keyword in node.keywords}
    values = {
        word: bound.get(value.id, value) if isinstance(value, ast.Name) else value
        for word, value in named.items()
    }
    ask.python = _text(values.get("python_requires"))
    needed = values.get("install_requires")
    if isinstance(needed, (ast.List, ast.Tuple)):
        for line in filter(None, map(_text, needed.elts)):
            ask.add(line, place)
    elif needed is not None:
        # A list that is computed is nearly always read from the requirements.txt beside it.
        beside = Path(ask.path).parent / "requirements.txt"
        if beside.is_file():
            add_file(ask, beside, place)
        else:
            ask.unread.append(f"{place}: it is computed when setup.py runs")


def _text(value: ast.expr | None) -> str | None:
    """The text of a literal; None for anything else."""
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return value.value if is_text else None  # type: ignore[union-attr]
