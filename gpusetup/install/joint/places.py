"""Where a joint question is asked: the user's own indexes, by uv's and pip's own settings."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from gpusetup.install.credentials import without_credentials
from gpusetup.install.settings.environment import asking_environment, indexes, uv_program
from gpusetup.install.settings.uv_config import (
    split_credentials,
    users_settings,
    write_settings,
)
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import run

SECONDS = 20.0


class Places(Frozen):
    """Where is asked: uv, its environment, the indexes of the user's own."""

    uv: str
    environment: Mapping[str, str]
    indexes: tuple[str, ...]
    """Those that settings name, else uv's own default."""
    named: bool = True
    """Whether settings name them: uv's own default has every package, torch too."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The indexes without anybody's password."""
        return tuple(map(without_credentials, self.indexes))


def users_places(environ: Mapping[str, str], home: Path) -> Places:
    """uv, told of the user's settings that say where packages come from, and of no other."""
    import platformdirs

    environment = asking_environment(environ, home)
    settings, logins = split_credentials(users_settings(environ, home), environment)
    cache = Path(environ.get("GPUSETUP_CACHE") or platformdirs.user_cache_dir("gpusetup", False))
    folder = cache / "together"
    folder.mkdir(parents=True, exist_ok=True)
    environment |= {**logins, "UV_CONFIG_FILE": str(write_settings(settings, folder / "uv.toml"))}
    environment.pop("UV_NO_CONFIG", None)
    uv, found = uv_program(), tuple(dict.fromkeys(indexes(environment, home)))
    usual = found or usual_index(uv, environment)
    return Places(uv=uv, environment=environment, indexes=usual, named=bool(found))


def usual_index(uv: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The index that uv takes by itself: an empty question names it."""
    argv: tuple[str, ...] = (uv, "pip", "compile", "--emit-index-url", "--no-header", "--quiet")
    argv += ("--offline", "--python", sys.executable, "-")
    said = run(argv, timeout=SECONDS, environment=environment, stdin="\n")
    found = re.search(r"(?m)^--index-url (https?://\S+)", said.stdout)
    return (found[1],) if found else ()
