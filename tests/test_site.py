"""The documentation as a site: every page has its place, the check of the built pages finds faults,
and the commands of the index by question are commands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from each_row import each

from gpusetup.commands.parser import read_words

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))
from check_site import faults  # noqa: E402

DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
TABLED = re.compile(r"(?m)^\| .*? \| `(gpusetup [^`]+)` \|")
PLACED = {
    "CONFIG": "train.yaml",
    "MODULE:FUNCTION": "train:step",
    "NAME": "qwen3-8b",
    "PACKAGE": "vllm",
}


def placed(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    rows = entry if isinstance(entry, list) else list(entry.values())  # type: ignore[attr-defined]
    return [page for row in rows for page in placed(row)]


def test_every_page_stands_once_in_the_site() -> None:
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(placed(SITE["nav"])) == sorted(pages)


def test_the_site_asks_nobody_and_claims_no_address() -> None:
    assert SITE["theme"]["font"] is False and SITE["strict"] is True
    assert not {"site_url", "repo_url", "extra_javascript", "extra_css"} & set(SITE)


COMMANDS = TABLED.findall((DOCS / "index.md").read_text(encoding="utf-8"))


@each("line", COMMANDS)
def test_the_answer_to_a_question_is_a_command(line: str) -> None:
    read_words([PLACED.get(word, word) for word in shlex.split(line)[1:]])


def test_the_index_answers_many_questions() -> None:
    assert len(COMMANDS) >= 25


FAULTS = {
    '<a href="gone.html">x</a>': "a.html: gone.html leads nowhere",
    '<a href="b.html#gone">x</a>': "a.html: b.html#gone leads nowhere",
    '<a href="#gone">x</a>': "a.html: #gone leads nowhere",
    '<script src="https://example.org/x.js"></script>': "a.html: fetches https://example.org/x.js",
    '<img src="//example.org/x.png">': "a.html: fetches //example.org/x.png",
    '<a id="here" href="b.html#there">x</a><a href="#here">y</a><a href="https://a.b">z</a>': "",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_of_a_built_page_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h2 id="there">b</h2>', encoding="utf-8")
    assert list(faults(tmp_path)) == ([FAULTS[text]] if FAULTS[text] else [])


def test_a_style_that_fetches_is_a_fault_and_so_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text("@import url(https://example.org/f.css);", encoding="utf-8")
    assert list(faults(tmp_path)) == [
        f"{tmp_path}: no page",
        "x.css: fetches https://example.org/f.css",
    ]
