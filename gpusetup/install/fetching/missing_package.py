"""Where a resolver says that there is no such package: is it the index that says so?

uv and pip take a log-in page, or any other web page, for an index page that lists nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpusetup.errors import Blocked, GpuSetupError
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.page import ACCEPT, parse_page
from gpusetup.install.fetching.wheel_cache import blocked
from gpusetup.install.settings.environment import indexes

if TYPE_CHECKING:
    from gpusetup.install.fetching.fetch import Fetcher

NOT_FOUND = re.compile(
    r"(?:no versions of|distribution found for|satisfies the requirement|because) "
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(?= was not found|[\s=<>!~;(,]|$)",
    re.I,
)
MOST = 4
"""How many pages are looked at again."""


def index_problem(
    problem: GpuSetupError, fetcher: Fetcher, environ: Mapping[str, str], home: Path
) -> GpuSetupError:
    """The problem, or what keeps an index from saying anything about the package it names."""
    names = dict.fromkeys(map(canonicalize_name, NOT_FOUND.findall(problem.message)))
    pages = [(index, name) for name in names for index in dict.fromkeys(indexes(environ, home))]
    for index, name in pages[:MOST]:
        try:
            _check_page(fetcher, f"{index.rstrip('/')}/{name}/")
        except Blocked as found:
            return found
    return problem


def _check_page(fetcher: Fetcher, url: str) -> None:
    """`Blocked` where a page is none."""
    answer = fetcher.text(url, ACCEPT)
    try:
        if answer is not None:
            parse_page(*answer)
    except ValueError as problem:
        cause = f"what came is no index page: {problem} (is there a log-in page or a proxy?)"
        raise blocked(without_credentials(url), cause) from problem
