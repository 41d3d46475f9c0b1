"""Every sentence that a person reads is plain present-day English (docs/reference/glossary.md).

Read are the string literals of the package that look like sentences, the docstrings of its API, and
the prose of README and docs. Code and quoted words are left out.
"""

from __future__ import annotations

import ast
import re
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

PATTERN = re.compile(r"\\[bsdw.(]|\(\?|\[\^|\.\*")
CODE = re.compile(r"(?s)```.*?```|`[^`]*`")
NOT_OURS = {"gpusetup/redaction/harmless.py", "docs/reference/glossary.md"}
"""A list of names, and the page that lists the banned words."""


@cache
def prose(path: Path) -> list[str]:
    """The sentences of a file without the code in them: of a module, the strings of four words or
    more that are neither docstrings nor patterns."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return CODE.sub("`X`", text).splitlines()
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    shown = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in docstrings or path.name == "api.py"
    )
    return [
        CODE.sub("`X`", value)
        for value in shown
        if len(re.findall(r"[A-Za-z]{2,}", value)) >= 4 and not PATTERN.search(value)
    ]


PAGES = [
    *sorted((ROOT / "gpusetup").rglob("*.py")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
]


@pytest.mark.parametrize("instead", BANNED)
def test_no_text_has_a_banned_word(instead: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()!r} in {text!r}"
        for path in PAGES
        if path.relative_to(ROOT).as_posix() not in NOT_OURS
        for text in prose(path)
        if (match := re.search(BANNED[instead], text))
    ]
    assert not found, f"write: {instead}\n" + "\n".join(found)
