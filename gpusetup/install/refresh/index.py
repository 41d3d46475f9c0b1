"""Asks a live index for one page.

`ask_index` tells apart what an index says (such a page, no such page, an empty one) from what
keeps it from saying anything: a time-out, 429, 5xx, TLS, something that is no index page. The
latter is `Blocked`, with URL and cause; how soon, `web.py` says.
"""

from __future__ import annotations

from gpusetup.catalog.builds import index_url
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.causes import cause_of
from gpusetup.install.fetching.page import ACCEPT, parse_page
from gpusetup.install.fetching.web import MISSING, Web, page_text
from gpusetup.install.fetching.wheel_cache import blocked
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.model.frozen import Frozen


class IndexPage(Frozen):
    """What an index says about one project."""

    url: str
    files: tuple[Wheel, ...] = ()
    missing: str | None = None
    """Why there are no files: `answers 404`, `lists no wheels`; None where there are some."""


def ask_index(root: str, backend: str, project: str) -> IndexPage:
    """The wheels that an index lists for a project.

    Raises Blocked where the index could not be asked or answered no index page.
    """
    return ask_page(f"{index_url(backend, root)}/{project}/")


def ask_page(url: str) -> IndexPage:
    """The wheels of one page, as `ask_index`."""
    import requests

    answer = Web().answer(url, {"Accept": ACCEPT})
    try:
        if answer.status_code in MISSING:
            said = f"{without_credentials(url)} answers {answer.status_code}"
            return IndexPage(url=url, missing=said)
        media_type = answer.headers.get("Content-Type", "")
        files = parse_page(url, media_type, page_text(url, answer))
    except requests.RequestException as problem:
        raise blocked(url, cause_of(problem)) from problem
    except ValueError as problem:
        raise blocked(url, f"what came is no index page: {problem}") from problem
    finally:
        answer.close()
    if not files:
        return IndexPage(url=url, missing=f"{without_credentials(url)} lists no wheels")
    return IndexPage(url=url, files=files)
