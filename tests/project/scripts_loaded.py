"""A script of `scripts/` as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))  # scripts import their neighbours
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
