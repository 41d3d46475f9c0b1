"""Each dependency has one home; what is not at home there is imported elsewhere by mistake."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from source_trees import parsed, statements

PACKAGE = Path(__file__).resolve().parents[2] / "gpusetup"

HOMES: dict[str, tuple[str, ...]] = {
    "torch": ("verify/", "child_scripts/", "tune/bench.py", "tune/optimizer.py", "tune/recover/"),
    "rich": ("render/", "commands/install.py", "commands/tune.py", "commands/monitor.py"),
    "requests": ("uv/pages.py",),
    "urllib3": ("uv/pages.py",),
    "pynvml": ("child_scripts/",),
    "subprocess": ("system/processes.py", "verify/"),
    "msgspec": ("model/codec.py", "model/frozen.py"),
    "typing_extensions": ("model/frozen.py", "api.py"),
    "platformdirs": ("system/own_cache.py", "probe/", "tune/"),
    "mcp": ("assistants/server.py",),
    "anyio": ("assistants/server.py",),
    "jsonschema": ("assistants/tools.py",),
    "shtab": ("commands/completion.py",),
    "uv": ("uv/program.py",),
    "ruamel": ("configs/yaml_text.py", "project/conda_file.py"),
    "tomli": ("uv/toml.py",),
    "filelock": ("install/switching/lock.py",),
    "ray": ("fleet/engines/ray.py",),
    "psutil": ("monitor/", "child_scripts/", "system/"),
}
"""Dependency -> the files and folders of the package that may import it."""

ANYWHERE = {"packaging", "gpusetup"}


def imported(source: ast.Module) -> Iterator[str]:
    """The top names that a file imports absolutely, wherever in it.

    >>> sorted(imported(ast.parse("import a.b\\nfrom c import d\\nfrom . import e")))
    ['a', 'c']
    """
    for node in statements(source):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


NAMED = re.compile(r"(?m)^\s*(?:import|from) (\w+)")
"""What may be an import: only files that name a dependency are parsed."""


def needs_a_home(name: str) -> bool:
    return name not in ANYWHERE and (name in HOMES or name not in sys.stdlib_module_names)


def strangers() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if not any(map(needs_a_home, NAMED.findall(path.read_text(encoding="utf-8")))):
            continue
        beside = {one.stem for one in path.parent.glob("*.py")}
        for name in filter(needs_a_home, sorted(set(imported(parsed(path))) - beside)):
            if not any(place == home or place.startswith(home) for home in HOMES.get(name, ())):
                yield f"{place} imports {name}"


def test_each_dependency_is_imported_only_in_its_home() -> None:
    assert list(strangers()) == []
