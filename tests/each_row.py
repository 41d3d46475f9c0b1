"""One test for a whole table: every row is tried, and the failure names each row that fails.

A row of its own in pytest's list costs more than most rows take. `pytest --row TEXT` tries only
the rows whose text holds TEXT.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

ROW_LETTERS = 300
REASON_LINES = 25

only: str = ""
"""What `--row` asks for; "" for every row."""

Test = Callable[..., None]


def each(names: str, rows: Iterable[Any] | Callable[[], Iterable[Any]]) -> Callable[[Test], Test]:
    """The test, once for each row; `names` and rows as for `pytest.mark.parametrize`.

    Rows that take time to make are made by a function, when the test runs.

    What pytest hands in beside them is shared by all rows: it must carry nothing from one to the
    next.
    """
    words = [name.strip() for name in names.split(",")]

    def table() -> list[Any]:
        made = [row if len(words) > 1 else (row,) for row in (rows() if callable(rows) else rows)]
        assert made, "a table without rows proves nothing"
        return made

    kept = None if callable(rows) else table()

    def whole(test: Test) -> Test:
        def tried(**fixtures: Any) -> None:
            import pytest  # the tables are also read by scripts, without pytest

            chosen = [row for row in kept or table() if only in repr(row)]
            if not chosen:
                pytest.skip(f"no row has {only!r}")
            failed = [
                f"{_short(row)}\n{reason}"
                for row in chosen
                if (reason := _reason(test, dict(zip(words, row, strict=True)), fixtures))
            ]
            if failed:
                head = f"{len(failed)} of {len(chosen)} rows fail"
                pytest.fail("\n\n".join((head, *failed)), pytrace=False)

        parameters = inspect.signature(test).parameters
        handed_in = [p for name, p in parameters.items() if name not in words]
        tried.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(kind=p.KEYWORD_ONLY) for p in handed_in]
        )
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(tried, name, getattr(test, name))
        return tried

    return whole


def _reason(test: Test, row: dict[str, Any], fixtures: dict[str, Any]) -> str:
    """Why a row fails, as lines; "" where it passes."""
    import pytest

    if "capsys" in fixtures:
        fixtures["capsys"].readouterr()
    try:
        test(**row, **fixtures)
    except (Exception, SystemExit, pytest.fail.Exception) as problem:
        frames = traceback.extract_tb(problem.__traceback__)
        places = [f"{frame.filename}:{frame.lineno}: {frame.line}" for frame in frames[1:]]
        said = f"{type(problem).__name__}: {problem}".splitlines()[:REASON_LINES]
        return "\n".join(f"    {line}" for line in (*places[:1], *places[1:][-2:], *said))
    return ""


def _short(row: Sequence[Any]) -> str:
    text = ", ".join(map(repr, row))
    return text if len(text) <= ROW_LETTERS else f"{text[:ROW_LETTERS]}…"
