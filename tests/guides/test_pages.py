"""The five guides' pages, followed from the first command to the last."""

from __future__ import annotations

from pathlib import Path

import pytest
from guides.page_commands import fences, follow

PAGES = (
    "guides/laptop-rtx3050.md",
    "guides/qwen3-on-a100-and-h20.md",
    "guides/faster-training.md",
    "guides/gpu-at-20-percent.md",
    "guides/several-gpus.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_who_copies_each_line_of_a_guide_gets_what_the_page_shows(
    page: str, tmp_path: Path
) -> None:
    stops = follow(page, tmp_path)
    assert not stops, "\n\n".join(stops)


@pytest.mark.parametrize("page", PAGES)
def test_a_guide_says_why_where_a_command_is_not_run_by_the_tests(page: str) -> None:
    for block in fences(page):
        if not block.is_run:
            assert len(block.remark.partition("not run:")[2].split()) >= 2, block.body
