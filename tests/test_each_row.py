"""A table in one test: all rows are tried, and each that fails is named with its reason."""

from __future__ import annotations

from pathlib import Path

import each_row
import pytest
from each_row import each


def failure(test: each_row.Test, **fixtures: object) -> str:
    with pytest.raises(pytest.fail.Exception) as told:
        test(**fixtures)
    return str(told.value)


def test_every_row_that_fails_is_named_with_its_reason() -> None:
    tried = []

    @each("number, doubled", [(1, 2), (2, 5), (3, 6), (4, 0)])
    def test(number: int, doubled: int) -> None:
        tried.append(number)
        assert 2 * number == doubled, f"not {number}"

    said = failure(test)
    assert tried == [1, 2, 3, 4]
    assert said.startswith("2 of 4 rows fail\n\n2, 5\n")
    assert "\n\n4, 0\n" in said and "not 2" in said and "not 4" in said
    assert "not 1" not in said and f"{Path(__file__).name}:" in said


def test_a_failure_in_words_of_pytest_and_an_exception_count() -> None:
    @each("word", ["fine", "fail", "raise"])
    def test(word: str) -> None:
        if word == "fail":
            pytest.fail("in words")
        if word == "raise":
            raise LookupError(word)

    said = failure(test)
    assert said.startswith("2 of 3 rows fail") and "in words" in said and "LookupError" in said


@each("number", [1, 2])
def test_fixtures_are_handed_in(number: int, tmp_path: Path) -> None:
    (tmp_path / str(number)).touch()
    assert tmp_path.is_dir()


def test_only_the_rows_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    test = each("word", ["one", "two"])(lambda word: tried.append(word))
    monkeypatch.setattr(each_row, "only", "tw")
    test()
    assert tried == ["two"]


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="proves nothing"):
        each("row", [])
    with pytest.raises(AssertionError, match="proves nothing"):
        each("row", list)(lambda row: None)()
