"""What is judged here of versions is what `packaging` says of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpusetup.model.specifiers import Versions

NUMBERS = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(lambda n: ".".join(map(str, n)))
ENDS = st.sampled_from(("", "", "", "rc1", ".post1", "+cpu", ".dev2"))
PLAIN = st.builds("".join, st.tuples(st.sampled_from(("==", "!=", ">=", "<=", "<", ">")), NUMBERS))
PREFIX = st.builds("".join, st.tuples(st.sampled_from(("==", "!=")), NUMBERS, st.just(".*")))
CLAUSES = st.lists(st.one_of(PLAIN, PREFIX), min_size=1, max_size=3).map(",".join)


@given(CLAUSES, st.builds("".join, st.tuples(NUMBERS, ENDS)))
def test_a_version_is_allowed_where_packaging_allows_it(text: str, version: str) -> None:
    assert Versions(text).contains(Version(version)) == SpecifierSet(text).contains(version)


@pytest.mark.parametrize("text", ["2.5", "=>2.5", "==", "==2.5.x", ">=2.*"])
def test_what_is_no_specifier_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nvalid"):
        Versions(text)
