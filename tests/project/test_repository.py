"""What a repository's hosts and its contributors find at its top: forms, workflows, links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from each_row import each

ROOT = Path(__file__).resolve().parents[2]
FORMS = ".github/ISSUE_TEMPLATE"
SCHEMAS = {
    "vendor.github-workflows": sorted((ROOT / ".github/workflows").glob("*.yml")),
    "vendor.github-issue-config": [ROOT / FORMS / "config.yml"],
    "vendor.github-issue-forms": [
        path for path in sorted((ROOT / FORMS).glob("*.yml")) if path.name != "config.yml"
    ],
}
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_the_host_reads_has_the_form_that_it_asks_for(schema: str) -> None:
    files = [str(path) for path in SCHEMAS[schema]]
    assert files
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pythons_that_are_claimed_are_the_pythons_that_are_tried() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == claimed
    assert f'requires-python = ">={claimed[0]}"' in project


@each("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


RECORDED = sorted((ROOT / "tests" / "recorded_runs").iterdir())
PRIVATE = re.compile(
    r"/root\b|GPU-(?!0{8})[0-9a-f]{8}-|(?i:serial\w*[\s\":]+\d{6,})|-----BEGIN|_CERT\b|(?<![\d.])"
    r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\d.])"
)
"""A home folder, real UUIDs, serial numbers, certificates, addresses."""


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_recorded_run_does_not_reveal_who_ran_it(folder: Path) -> None:
    for file in folder.iterdir():
        found = PRIVATE.search(file.read_text(encoding="utf-8"))
        assert not found, f"{file}: {found}"
