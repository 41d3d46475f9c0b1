"""Where what `resolve --refresh` saw is kept: apart, so that asking for it costs nothing."""

from __future__ import annotations

import os
from pathlib import Path


def saved_file() -> Path:
    """In the user's cache, beside the pages."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("gpusetup", appauthor=False)) / "refreshed.json"


CACHES = ("~/.cache", "~/Library/Caches", "$XDG_CACHE_HOME", "$LOCALAPPDATA")
"""Where systems keep caches: a filter only, so that `platformdirs` is asked where it may matter."""
PLACES = ("gpusetup/refreshed.json", "gpusetup/Cache/refreshed.json")


def is_saved() -> bool:
    """Whether what `resolve --refresh` saw is there."""
    caches = (os.path.expandvars(Path(cache).expanduser()) for cache in CACHES)
    there = any(Path(cache, place).exists() for cache in caches for place in PLACES)
    return there and saved_file().exists()
