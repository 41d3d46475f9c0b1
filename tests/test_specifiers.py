"""What is judged here of versions is what `packaging` says of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion
from packaging.version import Version as Full

from gpusetup.model.specifiers import Versions
from gpusetup.model.versions import Version

NUMBERS = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(lambda n: ".".join(map(str, n)))
ENDS = st.sampled_from(("", "", "", "rc1", ".post1", "+cpu", ".dev2"))
PLAIN = st.builds("".join, st.tuples(st.sampled_from(("==", "!=", ">=", "<=", "<", ">")), NUMBERS))
PREFIX = st.builds("".join, st.tuples(st.sampled_from(("==", "!=")), NUMBERS, st.just(".*")))
CLAUSES = st.lists(st.one_of(PLAIN, PREFIX), min_size=1, max_size=3).map(",".join)


@given(CLAUSES, st.builds("".join, st.tuples(NUMBERS, ENDS)))
def test_a_version_is_allowed_where_packaging_allows_it(text: str, version: str) -> None:
    assert Versions(text).contains(Version(version)) == SpecifierSet(text).contains(version)


ODD = ("", "x", "1!2.0", "v2.1", " 2.1 ", "2.", "2.1+", "2.1+CU121", "2.0.0", "\u0662.1", "02.01")
LABELS = st.sampled_from(("", "", "+cpu", "+cu118", "+cu121", "+rocm6.4", "+rocm6.10", "+1", "+12"))
WRITTEN = st.one_of(st.sampled_from(ODD), st.builds("".join, st.tuples(NUMBERS, ENDS, LABELS)))


def _in_full(text: str) -> Full:
    try:
        return Full(text)
    except InvalidVersion:
        return Full("0")


@given(WRITTEN, WRITTEN)
def test_versions_compare_as_those_of_packaging(one: str, other: str) -> None:
    here, there, full, other_full = Version(one), Version(other), _in_full(one), _in_full(other)
    assert (here < there, here <= there, here == there) == (
        full < other_full,
        full <= other_full,
        full == other_full,
    )
    assert (here > there, here >= there) == (full > other_full, full >= other_full)
    assert here != there or hash(here) == hash(there)


@given(WRITTEN)
def test_a_version_has_what_packagings_has(text: str) -> None:
    here, full = Version(text), _in_full(text)
    for name in ("release", "major", "local", "public", "base_version", "is_prerelease"):
        assert getattr(here, name) == getattr(full, name), name
    assert str(here) == str(full)
    plain = not (full.is_prerelease or full.is_postrelease or full.local or full.epoch)
    assert here.is_plain == plain


@pytest.mark.parametrize("text", ["2.5", "=>2.5", "==", "==2.5.x", ">=2.*"])
def test_what_is_no_specifier_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nvalid"):
        Versions(text)
