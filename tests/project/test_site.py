"""The documentation as a site: every page has its place, the check of the built pages finds faults,
and the commands of the index by question are commands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import yaml
from each_row import each

from gpusetup.commands.parser import read_words

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

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
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    for_contributors = {page for page in pages if page.startswith("contributing/")}
    assert sorted(placed(SITE["nav"])) == sorted(pages - for_contributors)


def test_the_site_asks_nobody_and_claims_no_address() -> None:
    assert SITE["theme"]["font"] is False and SITE["strict"] is True
    assert not {"site_url", "repo_url", "extra_css"} & set(SITE)
    # Scripts come with the site; none is loaded from another host.
    assert all((DOCS / script).is_file() for script in SITE["extra_javascript"])


COMMANDS = TABLED.findall((DOCS / "index.md").read_text(encoding="utf-8"))


@each("line", COMMANDS)
def test_the_answer_to_a_question_is_a_command(line: str) -> None:
    read_words([PLACED.get(word, word) for word in shlex.split(line)[1:]])
