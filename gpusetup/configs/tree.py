"""A config as nested mappings and lists, whatever its format. Pure."""

from __future__ import annotations

import itertools
import re
from typing import Any

from gpusetup.configs.config import Config
from gpusetup.configs.settings import NOTHING, Path, Setting, truth, unquoted, whole

FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def tree_of(config: Config) -> dict[str, Any]:
    """The first document's settings; what stands behind an alias is left out."""
    root: dict[str, Any] = {}
    for setting in config.settings:
        if setting.document == 0 and setting.path and setting.kind != "alias":
            _put(root, setting.path, value_of(setting))
    return root


def value_of(setting: Setting) -> Any:
    """The value as a reader of YAML or JSON gives it.

    >>> at = {"document": 0, "path": ("a",), "kind": "scalar", "start": 0, "end": 0, "line": 1}
    >>> [value_of(Setting(text=text, **at)) for text in ("8", "1e-4", "yes", "'no'", "null", "x")]
    [8, 0.0001, True, 'no', None, 'x']
    """
    if setting.kind in ("map", "list"):
        return {} if setting.kind == "map" else []
    text = setting.text
    if unquoted(text) != text:
        return unquoted(text)
    if text in NOTHING:
        return None
    number, switch = whole(setting), truth(setting)
    if number is not None:
        return number
    if switch is not None:
        return switch
    return float(text) if FLOAT.fullmatch(text) else text


def _put(root: Any, path: Path, value: Any) -> None:
    for part, following in itertools.pairwise(path):
        root = _at(root, part, [] if isinstance(following, int) else {})
    last = path[-1]
    if isinstance(root, list) and isinstance(last, int) and last == len(root):
        root.append(value)
    elif isinstance(root, dict):
        root.setdefault(last, value)


def _at(root: Any, part: str | int, empty: Any) -> Any:
    """The container below `part`, made where it is missing."""
    if isinstance(root, list):
        if isinstance(part, int) and part == len(root):
            root.append(empty)
        return root[part] if isinstance(part, int) and part < len(root) else empty
    found = root.setdefault(part, empty) if isinstance(root, dict) else empty
    return found if isinstance(found, (dict, list)) else empty
