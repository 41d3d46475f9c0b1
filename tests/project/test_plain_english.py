"""Every sentence that a person reads is plain present-day English (docs/reference/glossary.md).

Read are the string literals of the package that look like sentences, the docstrings of its API, and
the prose of README and docs. Code and quoted words are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BANNED = {
    "previous": r"\bformer(?:ly)?\b(?!-)",
    "again": r"\banew\b",
    "is (in, at, on), means": r"\bst(?:ands?|ood)\b(?!-)",
    "next to, with, during": r"\bbesides?\b",
    "its own, separate": r"\bof (?:its|their|your|one's) own\b",
    "no one, or name the actor": r"\b(?:nobody|whoever)\b",
    "enough": r"\bsuffic(?:e|es|ient)\b",
    "supports, works with": r"\bserves\b",
    "throttled": r"\bheld down\b",
    "fix": r"\bmend(?:s|ed|ing)?\b",
    "should be, to do": r"\b(?:is|are) to be\b",
    "if": r"(?:^|[.;:,] )[Ww]here (?:no|a|the|it|there|one|nothing|neither|both|you)\b[^?]*?,",
    "because, so": r"\b(?:whereof|therein|thereof|whereby|hence|lest)\b",
}
"""What to write, and what the test finds in its place."""

WORDS = re.compile(r"[A-Za-z]{2,}")
PATTERN = re.compile(r"\\[bsdw.(]|\(\?|\[\^|\.\*")
CODE = re.compile(r"`[^`]*`")
NOT_OURS = {"gpusetup/redaction/harmless.py", "docs/reference/glossary.md"}
"""A list of names, and the page that lists the banned words."""


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each string of a module with its line; the gaps of an f-string read `X`."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    for node in formatted:
        yield (
            node.lineno,
            "".join(
                ast.literal_eval(part) if isinstance(part, ast.Constant) else "X"
                for part in node.values
            ),
        )
    for one in ast.walk(tree):
        is_shown = isinstance(one, ast.Constant) and id(one) not in docstrings | parts
        if is_shown and isinstance(value := getattr(one, "value", None), str):
            yield getattr(one, "lineno", 0), value


@cache
def prose(path: Path) -> list[tuple[int, str]]:
    """The sentences of a file without the code in them, each with its line."""
    return [(line, CODE.sub("`X`", text)) for line, text in sentences(path)]


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        shown = literals(tree)
        for line, value in shown:
            if len(WORDS.findall(value)) >= 4 and not PATTERN.search(value):
                yield line, value
        if path.name == "api.py":
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
        return
    in_code = False
    for line, value in enumerate(text.splitlines(), 1):
        in_code ^= value.startswith("```")
        if not in_code:
            yield line, value


PAGES = [
    *sorted((ROOT / "gpusetup").rglob("*.py")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
]


@pytest.mark.parametrize("instead", BANNED)
def test_no_text_has_a_banned_word(instead: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match.group()!r}"
        for path in PAGES
        if path.relative_to(ROOT).as_posix() not in NOT_OURS
        for line, text in prose(path)
        for match in [re.search(BANNED[instead], text)]
        if match
    ]
    assert not found, f"write: {instead}\n" + "\n".join(found)
