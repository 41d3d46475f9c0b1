"""The expressions of `--expect`: what is read, what is refused, what holds."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as st

from gpusetup.verify.judging.expect import OPERATORS, judge, parse
from gpusetup.verify.values import WrongQuestion

FACTS: dict[str, Any] = {
    "torch": "2.5.1+cu124",
    "cuda": "12.4",
    "gpus": 2,
    "arch": ["sm_50", "sm_80", "sm_86", "sm_90a", "compute_90"],
    "devices": [
        {"device": "cuda:0", "memory_total_bytes": 4 * 2**30, "compute_capability": "8.6"},
        {"device": "cuda:1", "memory_total_bytes": 16 * 2**30, "compute_capability": "7.5"},
    ],
}


@each(
    "text, status",
    [
        ("gpus>=2", "passed"),
        ("torch==2.5.*", "passed"),
        ("torch==2.5.1+cpu", "failed"),
        ("torch!=2.5.*", "failed"),
        ("torch<2.10", "passed"),
        ("memory_gib>=3.5", "passed"),
        ("memory_gib>=8", "failed"),
        ("capability>=8.0", "failed"),
        ("arch>=8.6", "passed"),
    ],
)
def test_an_expression_holds_or_not(text: str, status: str) -> None:
    assert judge(parse(text), FACTS).status == status


def test_the_value_that_is_wrong_is_named_and_a_cpu_build_is_to_be_replaced() -> None:
    assert judge(parse("memory_gib>=8"), FACTS).detail == "memory_gib>=8: found 4.00 on cuda:0"
    on_cpu_build = {"torch": "2.5.1+cpu", "cuda": None}
    found = judge(parse("cuda>=11.8"), on_cpu_build)
    assert found == ("failed", "cuda>=11.8: torch 2.5.1+cpu was built without CUDA", *found[2:])
    for text in ("cuda>=11.8", "arch>=8.6"):
        hint = judge(parse(text), on_cpu_build).hint
        assert hint and hint.startswith("`gpusetup install` replaces the CPU build")


@each(
    "text, words",
    [
        ("gpus=>2", "no operator '=>'"),
        ("gpus", "has no operator"),
        ("gpus>=two", "'two' is not a value of gpus"),
        ("memory_gib>=4GB", "'4GB' is not a value of memory_gib"),
    ],
)
def test_a_wrong_expression_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(WrongQuestion) as refused:
        parse(text)
    assert words in refused.value.message and "\n" not in refused.value.message
    assert refused.value.hint


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_a_wrong_question(text: str) -> None:
    try:
        assert parse(text).operator in OPERATORS
    except WrongQuestion as refused:
        assert refused.message
