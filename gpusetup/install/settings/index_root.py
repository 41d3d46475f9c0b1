"""The root of torch's indexes: the usual one, or the mirror that the user names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from gpusetup.accelerators.makers import LABEL
from gpusetup.errors import UsageError
from gpusetup.model.shell import own_word


def _has_a_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:  # brackets without an address in them
        return False


def index_root_of(named: str | None, environ: Mapping[str, str], usual: str) -> str:
    """`--index`, else GPUSETUP_INDEX, else the usual one; UsageError for no URL.

    >>> index_root_of(None, {"GPUSETUP_INDEX": "https://mirror.example/whl/"}, "https://x")
    'https://mirror.example/whl'
    """
    root = named or environ.get("GPUSETUP_INDEX") or usual
    if not root.startswith(("http://", "https://")) or not _has_a_host(root):
        raise UsageError(
            f"`--index {root}` is no http or https URL",
            hint="it is the part before the backend: `https://download.pytorch.org/whl`",
        )

    if words := root_and_backend(root):
        raise UsageError(
            f"`--index {root}` ends with a backend: the root is the part before it",
            hint=f"did you mean `{' '.join(words)}`?",
        )
    return root.rstrip("/")


BACKEND = rf"({LABEL})"


def root_and_backend(url: str) -> tuple[str, ...] | None:
    """The options for an index with a backend at its end; None where it has none.

    >>> root_and_backend("https://mirror.example/whl/cu124/")
    ('--index', 'https://mirror.example/whl', '--backend', 'cu124')
    """
    from gpusetup.catalog.builds import INDEX_ROOT

    found = re.fullmatch(rf"(.*://.+?)/{BACKEND}(/torch\w*)?/*", url.strip(), re.IGNORECASE)
    if found is None:
        return None
    own = found[1].removeprefix("http://").removeprefix("https://")
    usual = own.rstrip("/") == INDEX_ROOT.partition("://")[2]
    root = () if usual else ("--index", own_word(found[1]))
    return (*root, "--backend", found[2].lower())
