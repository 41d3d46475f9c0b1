"""The table of companions: its rows can be asked, are sourced, and agree with the catalog."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from gpusetup.catalog.companion_table import companion_table

TABLE = companion_table()
PAIRS = [(project, row) for project in TABLE.projects for row in project.rows]


def test_every_row_says_where_it_is_from() -> None:
    for project, row in PAIRS:
        assert row.source, project.name
        SpecifierSet(row.versions)
        SpecifierSet(row.torch or "")


def test_every_project_says_what_to_take_where_it_does_not_fit() -> None:
    assert [one.name for one in TABLE.projects if not (one.alternative and one.source)] == []
