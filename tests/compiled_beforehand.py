"""What the workers would each compile in a fresh copy is compiled once, before they start.

Each worker imports all test modules. Where none is compiled yet, three workers that start together
rewrite the same assertions three times; the controller does it here, in a process a core.
"""

from __future__ import annotations

import os
import py_compile
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("gpusetup", "tests", "web", "actions", "scripts")
NO_MODULES = ("tune_shapes", "plan_configs", "configs", "messages", "kernel_faults")
PROCESSES = 2


def compile_all(config: pytest.Config) -> None:
    """Compile what has no file of bytecode that is as new; a worker does what fails here."""
    files = sorted(stale())
    if not hasattr(os, "fork") or len(files) < 10:
        return
    children = [_forked(config, files[start::PROCESSES]) for start in range(PROCESSES)]
    for child in children:
        os.waitpid(child, 0)


def stale() -> Iterator[Path]:
    """The modules whose bytecode is missing, or older than they are."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if not set(path.parts) & set(NO_MODULES) and not _is_fresh(path):
                yield path


def is_rewritten(path: Path) -> bool:
    """Whether pytest rewrites the assertions of a module."""
    return path.name.startswith("test_") or path.name == "conftest.py"


def bytecode_of(path: Path) -> Path:
    """Where pytest, or Python, keeps the bytecode of a module."""
    if is_rewritten(path):
        return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    return Path(cache_from_source(str(path)))


def _is_fresh(path: Path) -> bool:
    try:
        return bytecode_of(path).stat().st_mtime >= path.stat().st_mtime
    except OSError:
        return False


def _forked(config: pytest.Config, files: list[Path]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        for path in files:
            _compile(config, path)
    finally:
        os._exit(0)


def _compile(config: pytest.Config, path: Path) -> None:
    try:
        if is_rewritten(path):
            _rewrite(config, path)
        else:
            py_compile.compile(str(path), doraise=True)
    except Exception as problem:
        print(f"{path} is not compiled beforehand: {problem}", file=sys.stderr)


def _rewrite(config: pytest.Config, path: Path) -> None:
    """As pytest's own loader does it; the first of the pair is what tells that a file is new."""
    target = bytecode_of(path)
    target.parent.mkdir(exist_ok=True)
    told, code = rewrite._rewrite_test(path, config)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, told, target)
