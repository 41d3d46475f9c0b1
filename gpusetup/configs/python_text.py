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

from gpusetup.configs.settings import Path, Setting
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace

MOST_DEPTH = 64
LINE_END = re.compile(r"\r\n|\r|\n")


def read_python(text: str, name: str) -> Iterator[Setting]:
    """Every assigned value with its place, in order; `BadInput` names what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text, name)
    except SyntaxError as problem:
        raise BadInput(
            f"{name}, line {problem.lineno or 1}: not Python: {problem.msg}"
        ) from problem
    except (ValueError, RecursionError, MemoryError) as problem:
        raise BadInput(f"{name}: not Python, or nested too deeply") from problem
    try:
        found = list(_Walk(text, name).body(tree.body, ()))
    except RecursionError as problem:
        raise BadInput(f"{name}: nested too deeply") from problem
    yield from _last_counts(found)


def _last_counts(found: list[Setting]) -> Iterator[Setting]:
    """A name that is assigned twice is what the last one says, and is changed by hand."""
    last = {one.path: number for number, one in enumerate(found)}
    many = {one.path for number, one in enumerate(found) if last[one.path] != number}
    for number in sorted(last.values()):
        one = found[number]
        heads = {one.path[:depth] for depth in range(1, len(one.path) + 1)}
        yield replace(one, shared=True) if heads & many else one


class _Walk:
    """One file: nodes say line and byte, settings say characters from the start."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.starts = [0, *(found.end() for found in LINE_END.finditer(text))]

    def body(self, nodes: list[ast.stmt], path: Path) -> Iterator[Setting]:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                yield from self.body(node.body, (*path, node.name))
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from self._assigned(target, node.value, path)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from self._assigned(node.target, node.value, path)

    def _assigned(self, target: ast.expr, value: ast.expr, path: Path) -> Iterator[Setting]:
        place = _target(target)
        if place is not None:
            yield from self.value(value, (*path, *place))

    def value(self, node: ast.expr, path: Path) -> Iterator[Setting]:
        if len(path) > MOST_DEPTH:
            raise BadInput(f"{self.name}, line {node.lineno}: nested too deeply")
        inner = list(_inside(node))
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            yield self._setting(node, path, "list")
        elif isinstance(node, ast.Dict) or inner:
            yield self._setting(node, path, "map")
        else:
            yield self._setting(node, path, "scalar")
        for key, one in inner:
            yield from self.value(one, (*path, key))

    def _setting(self, node: ast.expr, path: Path, kind: str) -> Setting:
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return Setting(
            path=path,
            kind=kind,  # type: ignore[arg-type]
            text=self.text[start:end] if kind == "scalar" else "",
            start=start,
            end=end,
            line=node.lineno,
        )

    def _at(self, line: int, column: int) -> int:
        """The character at a line's byte."""
        start = self.starts[line - 1]
        raw = self.text[start : start + column].encode()[:column]
        return start + len(raw.decode(errors="ignore"))


def _target(node: ast.expr) -> Path | None:
    """The path of a name, an attribute or a key in words; None of anything else."""
    if isinstance(node, ast.Name):
        return (node.id,)
    inner = _target(node.value) if isinstance(node, ast.Attribute | ast.Subscript) else None
    if inner is None:
        return None
    if isinstance(node, ast.Attribute):
        return (*inner, node.attr)
    key = node.slice.value if isinstance(node, ast.Subscript) and isinstance(
        node.slice, ast.Constant) else None  # fmt: skip
    return (*inner, key) if isinstance(key, str | int) else None


def _inside(node: ast.expr) -> Iterator[tuple[str | int, ast.expr]]:
    """The values inside of one that is gone into."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        yield from enumerate(node.elts)
    elif isinstance(node, ast.Call):
        yield from ((one.arg, one.value) for one in node.keywords if one.arg)
