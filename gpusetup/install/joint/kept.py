"""Where answers of uv are kept for a while, and whether there are any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def kept_folder(environ: Mapping[str, str]) -> Path:
    import platformdirs

    cache = Path(environ.get("GPUSETUP_CACHE") or platformdirs.user_cache_dir("gpusetup", False))
    return cache / "together"


def is_any_kept(environ: Mapping[str, str]) -> bool:
    """Whether anything was asked before: without it our table is all there is offline."""
    return any(kept_folder(environ).glob("*.json"))
