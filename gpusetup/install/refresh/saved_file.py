"""Where what `resolve --refresh` saw is kept: apart, so that asking for it costs nothing."""

from __future__ import annotations

from pathlib import Path


def saved_file() -> Path:
    """In the user's cache, beside the pages."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("gpusetup", appauthor=False)) / "refreshed.json"


def is_saved() -> bool:
    """Whether what `resolve --refresh` saw is there."""
    return saved_file().exists()
