"""Python configs (mmengine, nanoGPT, detectron2's lazy ones) read without executing them.

Assignments at the top of the file and in class bodies are settings; `dict(...)`, `{...}`, lists,
and the keywords of calls (`L(Loader)(num_workers=4)`) are gone into. A value that is no literal
(`5 * 8`, another name) is named with its source and never changed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from gpusetup.configs.settings import Path, Setting, child_path
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace

LINE_END = re.compile(r"\r\n|\r|\n")


def read_python(text: str, name: str) -> Iterator[Setting]:
    """Every assigned value with its place, in order; `BadInput` names what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            settings = list(_Walk(text).body(ast.parse(text, name).body, ()))
    except SyntaxError as problem:
        line = problem.lineno or 1
        raise BadInput(f"{name}, line {line}: not Python: {problem.msg}") from problem
    except ValueError as problem:
        raise BadInput(f"{name}: not Python: {problem}") from problem
    last_of_path = {one.path: one for one in settings}
    repeated = {one.path for one in settings if last_of_path[one.path] is not one}
    for one in settings:  # what is assigned twice is what the last one says, and is changed by hand
        shared = any(one.path[: len(parent)] == parent for parent in repeated)
        yield from (replace(one, shared=shared),) if last_of_path[one.path] is one else ()


class _Walk:
    """One file: nodes say line and byte, settings say characters from the start."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(found.end() for found in LINE_END.finditer(text))]

    def body(self, nodes: list[ast.stmt], path: Path) -> Iterator[Setting]:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                yield from self.body(node.body, child_path(path, node.name))
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
                    if place := _target(target):
                        yield from self.value(node.value, (*path, *place))

    def value(self, node: ast.expr, path: Path) -> Iterator[Setting]:
        inner = list(_children(node))
        kind = "list" if isinstance(node, SEQUENCES) else "scalar"
        kind = "map" if isinstance(node, ast.Dict) or (inner and kind == "scalar") else kind
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        text = self.text[start:end] if kind == "scalar" else ""
        yield Setting(path=path, kind=kind, text=text, start=start, end=end, line=node.lineno)  # type: ignore[arg-type]
        for key, one in inner:
            yield from self.value(one, child_path(path, key))

    def _at(self, line: int, column: int) -> int:
        """The character at a line's byte."""
        start = self.starts[line - 1]
        raw = self.text[start : start + column].encode()[:column]
        return start + len(raw.decode(errors="ignore"))


SEQUENCES = ast.List | ast.Tuple | ast.Set


def _target(node: ast.expr) -> Path:
    """The path of a name, an attribute or a key in words; () of anything else."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=inner, attr=name):
            return (*parent, name) if (parent := _target(inner)) else ()
        case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as key)):
            return (*parent, key) if (parent := _target(inner)) else ()
    return ()


def _children(node: ast.expr) -> Iterator[tuple[str | int, ast.expr]]:
    """The values inside of one that is gone into."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, SEQUENCES):
        yield from enumerate(node.elts)
    elif isinstance(node, ast.Call):
        yield from ((one.arg, one.value) for one in node.keywords if one.arg)
