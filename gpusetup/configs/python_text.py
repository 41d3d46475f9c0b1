"""Reads Python configs (mmengine, nanoGPT, detectron2's lazy configs) without executing them.

Assignments at the top level of the file and in class bodies are settings. So are the values inside
`dict(...)`, `{...}`, lists and the keyword arguments of calls (`L(Loader)(num_workers=4)`). A value
that is not a literal (`5 * 8`, another name) is kept as source text and never changed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from gpusetup.configs.settings import Kind, Path, Setting, child_path
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace

LINE_END = re.compile(r"\r\n|\r|\n")


def read_python(text: str, name: str) -> Iterator[Setting]:
    """The assigned values in a Python config with their positions, in order; BadInput names the
    line of a syntax error."""
    try:
        with warnings.catch_warnings():
            # Python warns about the file's code.
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text, name)
        settings = list(_PythonWalk(text).body(tree.body, ()))
    except SyntaxError as problem:
        line = problem.lineno or 1
        raise BadInput(f"{name}, line {line}: not Python: {problem.msg}") from problem
    except ValueError as problem:
        raise BadInput(f"{name}: not Python: {problem}") from problem
    # The last assignment of a path counts. If a setting is assigned twice, the user must decide
    # which assignment to change.
    last_of_path = {setting.path: setting for setting in settings}
    repeated = {one.path for one in settings if last_of_path[one.path] is not one}
    for setting in settings:
        path = setting.path
        if last_of_path[path] is not setting:
            continue
        is_repeated = any(path[:length] in repeated for length in range(len(path) + 1))
        yield replace(setting, shared=is_repeated)


class _PythonWalk:
    """Collects the settings of one Python file from its syntax tree, with positions in
    characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.line_starts = [0]
        # Do not use `splitlines`, which recognises more line ends than Python's syntax does.
        for line_end in LINE_END.finditer(text):
            self.line_starts.append(line_end.end())

    def body(self, nodes: list[ast.stmt], path: Path) -> Iterator[Setting]:
        """The settings that the assignments of a file or class body make."""
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                yield from self.body(node.body, child_path(path, node.name))
            elif isinstance(node, ast.Assign):
                # `a = b = 1` has two targets.
                for target in node.targets:
                    yield from self.assigned(target, node.value, path)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from self.assigned(node.target, node.value, path)

    def assigned(self, target: ast.expr, value: ast.expr, path: Path) -> Iterator[Setting]:
        """The settings that `target = value` makes; none if the target is not a name, attribute or
        constant key."""
        names = _target(target)
        if not names:
            return
        yield from self.value(value, (*path, *names))

    def value(self, node: ast.expr, path: Path) -> Iterator[Setting]:
        """A value as a setting, followed by the values inside it."""
        children = list(_children(node))
        kind: Kind = "scalar"
        if isinstance(node, SEQUENCES):
            kind = "list"
        elif isinstance(node, ast.Dict) or children:
            kind = "map"
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        yield Setting(
            path=path,
            kind=kind,
            text=self.text[start:end] if kind == "scalar" else "",
            start=start,
            end=end,
            line=node.lineno,
        )
        for key, child in children:
            yield from self.value(child, child_path(path, key))

    def _at(self, line: int, column: int) -> int:
        """The offset, in characters, of a line and column. The column counts UTF-8 bytes, as in
        Python's `ast`."""
        line_start = self.line_starts[line - 1]
        # Each character has at least one byte, so the part cannot be longer than `column`.
        longest_part = self.text[line_start : line_start + column]
        return line_start + len(longest_part.encode()[:column].decode(errors="ignore"))


SEQUENCES = ast.List | ast.Tuple | ast.Set


def _target(node: ast.expr) -> Path:
    """The path that an assignment target names (a name, an attribute or a key); () for anything
    else."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=inner, attr=name):
            parent = _target(inner)
            return (*parent, name) if parent else ()
        case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as key)):
            parent = _target(inner)
            return (*parent, key) if parent else ()
    return ()


def _children(node: ast.expr) -> Iterator[tuple[str | int, ast.expr]]:
    """The values directly inside a value, with their keys or indices: in a dict, a list, or the
    keywords of a call."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            # Skip computed keys, which have no name, and `**other`, which has no key.
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, SEQUENCES):
        yield from enumerate(node.elts)
    elif isinstance(node, ast.Call):
        for keyword in node.keywords:
            # Skip `**options`, which has no name.
            if keyword.arg:
                yield keyword.arg, keyword.value
