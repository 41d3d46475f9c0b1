"""A card without units for bfloat16 is named, with what to use instead."""

from __future__ import annotations

import pytest

from gpusetup.cli import main


@pytest.mark.parametrize(
    ("card", "is_noted"), [("T4", True), ("V100 32GB", True), ("RTX 3090", False), ("H100", False)]
)
def test_bfloat16_on_a_card_without_it_has_a_note(
    card: str, is_noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["plan", "--model", "qwen3-0.6b", "--gpu", card, "--amp", "bf16"])
    screen = capsys.readouterr().out
    assert ("no bfloat16 units" in screen) == is_noted
    assert ("--amp fp16" in screen) == is_noted


def test_float16_has_no_such_note(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "--model", "qwen3-0.6b", "--gpu", "T4", "--amp", "fp16"])
    assert "no bfloat16 units" not in capsys.readouterr().out
