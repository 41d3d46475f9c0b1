"""What uv and the indexes said, kept for a while, and whether there is any."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

MOST_CHARACTERS = 1 << 18
"""Of a file of settings."""
COUNTS = re.compile(
    r"UV_(.*IND|.*LINKS|EXCLUDE|RESOLUTION|PRERELEASE|CONSTRAINT|OVERRIDE|CONFIG_FILE)"
)
"""The variables by which one question has different answers."""


def kept_folder(environ: Mapping[str, str]) -> Path:
    import platformdirs

    cache = Path(environ.get("GPUSETUP_CACHE") or platformdirs.user_cache_dir("gpusetup", False))
    return cache / "together"


def is_any_kept(environ: Mapping[str, str]) -> bool:
    """Whether anything was asked before: without it our table is all there is offline."""
    return any(kept_folder(environ).glob("*.json"))


def kept_text(place: Path, seconds: float | None) -> str | None:
    """What was said before; None where it is too old, or cannot be read."""
    try:
        if seconds is not None and time.time() - place.stat().st_mtime > seconds:
            return None
        return place.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def keep_text(place: Path, said: str) -> None:
    """Keep what was said; what cannot be written is asked again."""
    part = place.with_suffix(f".{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(said, encoding="utf-8")
        part.replace(place)
    except OSError:
        part.unlink(missing_ok=True)


def counting(environment: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """The settings that count, each with what it says."""
    return sorted((k, _told(k, v)) for k, v in environment.items() if COUNTS.match(k))


def _told(name: str, value: str) -> list[str]:
    """What a variable says; where it names files, what they say."""
    if not re.fullmatch(r"UV_(CONFIG_FILE|CONSTRAINT|OVERRIDE|EXCLUDE)", name):
        return [value]
    return [_said_in(word) for word in ([value] if "CONFIG" in name else value.split())]


def _said_in(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")[:MOST_CHARACTERS]
    except OSError:
        return file


def digest(value: object) -> str:
    """
    >>> len(digest(["vllm"])), digest(["vllm"]) == digest(("vllm",))
    (32, True)
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
