"""The expressions of `--expect`: what is read, what is refused, what holds."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from gpusetup.verify.judging.expect import OPERATORS, judge, parse, read_version
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
        ("gpus==3", "failed"),
        ("torch==2.5.*", "passed"),
        ("torch==2.5.1+cu124", "passed"),
        ("torch==2.5.1+cpu", "failed"),
        ("torch==2.50.*", "failed"),
        ("torch!=2.5.*", "failed"),
        ("torch<2.10", "passed"),
        ("cuda==12.*", "passed"),
        ("cuda>12.4", "failed"),
        ("memory_gib>=3.5", "passed"),
        ("memory_gib>=8", "failed"),
        ("capability>=7.0", "passed"),
        ("capability>=8.0", "failed"),
        ("arch>=8.6", "passed"),
        ("arch==8.0", "passed"),
        ("arch>9.0", "failed"),
        ("arch!=5.0", "failed"),
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
        ("torch~=2.5", "no operator '~='"),
        ("gpus", "has no operator"),
        ("", "no name ''"),
        ("gpu>=2", "no name 'gpu'"),
        ("gpus>=two", "'two' is not a value of gpus"),
        ("gpus>=-1", "'-1' is not a value of gpus"),
        ("capability>=8", "'8' is not a value of capability"),
        ("memory_gib>=4GB", "'4GB' is not a value of memory_gib"),
        ("torch==2.x.*", "'2.x.*' is not a value of torch"),
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


VERSIONS = st.builds(
    lambda release, stage, local: ".".join(map(str, release)) + stage + local,
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.sampled_from(("", "a0", "rc1", ".post3", ".dev20250101", "a0.dev7")),
    st.sampled_from(("", "+cu124", "+git1a2b3c")),
)


@given(VERSIONS, VERSIONS)
def test_versions_are_ordered_as_packaging_orders_their_public_part(a: str, b: str) -> None:
    """But for the order among what came before one release."""
    ours = read_version(a)._replace(local=""), read_version(b)._replace(local="")
    theirs = Version(Version(a).public), Version(Version(b).public)
    if theirs[0].release != theirs[1].release or not all(each.is_prerelease for each in theirs):
        for compare in (operator.lt, operator.eq, operator.gt):
            assert compare(*ours) == compare(*theirs)
