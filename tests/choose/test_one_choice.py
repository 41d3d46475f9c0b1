"""Each command asks once which torch fits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from gpusetup.choose import choose as module
from gpusetup.cli import main

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
