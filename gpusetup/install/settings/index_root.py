"""The root of torch's indexes: the usual one, or the mirror that the user names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpusetup.accelerators.makers import LABEL
from gpusetup.errors import UsageError

URL = re.compile(r"https?://([^/@\s]*@)?(\[[\da-fA-F:.]+\]|[^\[\]/\s]+)(/\S*)?")


def index_root_of(named: str | None, environ: Mapping[str, str], usual: str) -> str:
    """`--index`, else GPUSETUP_INDEX, else the usual one; UsageError for no URL.

    >>> index_root_of(None, {"GPUSETUP_INDEX": "https://mirror.example/whl/"}, "https://x")
    'https://mirror.example/whl'
    """
    root = named or environ.get("GPUSETUP_INDEX") or usual
    if not URL.fullmatch(root):
        raise UsageError(
            f"`--index {root}` is no http or https URL",
            hint="it is the part before the backend: `https://download.pytorch.org/whl`",
        )
    if found := re.fullmatch(rf"(.+?)/({LABEL})(/torch\w*)?/*", root, re.IGNORECASE):
        raise UsageError(
            f"`--index {root}` ends with a backend; the index is the part before it",
            hint=f"did you mean `--index {found[1]} --backend {found[2].lower()}`?",
        )
    return root.rstrip("/")
