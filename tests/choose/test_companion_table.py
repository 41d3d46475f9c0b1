"""The table of companions: its rows can be asked, are sourced, and agree with the catalog."""

from __future__ import annotations

import itertools
import re

from packaging.specifiers import SpecifierSet

from gpusetup.catalog.companion_table import companion_table
from gpusetup.model.versions import allows

TABLE = companion_table()
PAIRS = [(project, row) for project in TABLE.projects for row in project.rows]


def test_every_row_says_where_it_is_from() -> None:
    for project, row in PAIRS:
        assert row.source, project.name
        SpecifierSet(row.versions)
        SpecifierSet(row.torch or "")


def test_every_project_says_what_to_take_where_it_does_not_fit() -> None:
    assert [one.name for one in TABLE.projects if not (one.alternative and one.source)] == []


def test_no_two_rows_of_a_project_speak_of_the_same_release() -> None:
    for project in TABLE.projects:
        for one, other in itertools.combinations(project.rows, 2):
            for row, against in ((one, other), (other, one)):
                version = re.sub(r"[<>=!]+|\.\*", "", row.versions)
                both = allows(row.versions, version)
                assert not (both and allows(against.versions, version)), (
                    project.name,
                    version,
                )
