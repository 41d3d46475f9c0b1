"""Each command asks once which torch fits, and the room behind it stays small."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpusetup
from gpusetup.choose import choose as module
from gpusetup.cli import main

PACKAGE = Path(gpusetup.__file__).parent
LAPTOP = ("--from", "rtx3050-laptop")


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", *LAPTOP),
        ("resolve", *LAPTOP),
        ("resolve", "vllm", "--offline", *LAPTOP),
        ("install", "--dry-run", *LAPTOP, "--torch", "2.9.1", "torchvision"),
        ("install", "--project", *LAPTOP),
    ],
    ids=" ".join,
)
def test_a_command_chooses_once(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words])  # so that every module is loaded
    calls = []
    choose: Callable[..., Any] = module.choose

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return choose(*arguments, **options)

    for loaded in [*sys.modules.values()]:
        if getattr(loaded, "choose", None) is choose:
            monkeypatch.setattr(loaded, "choose", counted)
    main([*words])
    assert len(calls) == 1
    printed = capsys.readouterr()
    assert printed.out or printed.err


def test_other_rooms_use_at_most_ten_types_of_this_one() -> None:
    types = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "choose":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "gpusetup.choose"
            ):
                types |= {each.name for each in node.names if each.name.istitle()}
                types |= {each.name for each in node.names if each.name == "InstallerOptions"}
    assert {"Choice", "Host", "Wish"} <= types
    assert len(types) <= 10


def test_resolve_needs_nothing_of_install() -> None:
    source = (PACKAGE / "commands" / "resolve.py").read_text(encoding="utf-8")
    assert "gpusetup.install" not in source
