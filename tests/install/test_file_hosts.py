"""Where the index that uv comes with keeps its files: its own page says so, over https alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpusetup.uv import releases
from gpusetup.uv.indexes import Index

PAGE = [
    {"filename": "pip-26.0.tar.gz", "url": "https://files.example/pip-26.0.tar.gz"},
    {"filename": "pip-25.0.tar.gz", "url": "https://packages.example/pip-25.0.tar.gz"},
    {"filename": "pip-24.0.tar.gz", "url": "http://stranger.example/pip-24.0.tar.gz"},
]


@pytest.fixture(autouse=True)
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    releases.file_hosts_of.cache_clear()
    monkeypatch.setattr(releases, "files_listed", lambda name, index: iter(PAGE))
    yield
    releases.file_hosts_of.cache_clear()


def test_a_host_that_the_page_links_to_over_https_is_one_for_files() -> None:
    assert releases.file_hosts_of("https://packages.example/simple") == ("files.example",)


def test_a_page_that_somebody_on_the_way_could_change_names_none() -> None:
    assert releases.file_hosts_of("http://packages.example/simple") == ()


def test_an_index_that_a_setting_names_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusetup.uv import indexes

    default = Index(url="https://packages.example/simple", source="uv's default")
    monkeypatch.setattr(indexes, "usual_default", lambda: default)
    other = Index(url="https://mirror.example/simple", source="UV_DEFAULT_INDEX")
    assert indexes.is_usual_default(default)
    assert not indexes.is_usual_default(other)
