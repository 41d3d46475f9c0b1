"""Where a joint question is asked: the user's own indexes, by uv's and pip's own settings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from gpusetup.install.credentials import without_credentials
from gpusetup.install.joint.kept import counting, digest, keep_text, kept_folder, kept_text
from gpusetup.install.settings.environment import asking_environment, indexes, uv_program
from gpusetup.install.settings.uv_config import (
    split_credentials,
    users_settings,
    write_settings,
)
from gpusetup.model.frozen import Frozen, replace
from gpusetup.system.processes import run

SECONDS = 20.0


class Places(Frozen):
    """Where is asked: uv, its environment, the indexes of the user's own."""

    uv: str
    environment: Mapping[str, str]
    """Without the certificates: an answer that is kept needs none."""
    trusted: Callable[[], Mapping[str, str]]
    """The variables by which uv trusts what the user does; asked where uv is run."""
    indexes: tuple[str, ...]
    """Those that settings name, else uv's own default."""
    cache: Path
    named: bool = True
    """Whether settings name them: uv's own default has every package, torch too."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The indexes without anybody's password."""
        return tuple(map(without_credentials, self.indexes))


def users_places(environ: Mapping[str, str], home: Path) -> Places:
    """uv, told of the user's settings that say where packages come from, and of no other."""
    return with_usual(named_places(environ, home))


def with_usual(places: Places) -> Places:
    """The places with uv's own index, where no setting names one: uv is asked for it."""
    if places.named:
        return places
    return replace(places, indexes=usual_index(places.uv, places.environment, places.cache))


def named_places(environ: Mapping[str, str], home: Path) -> Places:
    """What the settings name; nobody is asked."""
    environment = asking_environment(environ, home, trusting=False)
    settings, logins = split_credentials(users_settings(environ, home), environment)
    folder = kept_folder(environ)
    environment |= logins
    folder.mkdir(parents=True, exist_ok=True)
    environment["UV_CONFIG_FILE"] = str(write_settings(settings, folder / "uv.toml"))
    environment.pop("UV_NO_CONFIG", None)
    found = tuple(dict.fromkeys(indexes(environment, home)))
    return Places(
        uv=uv_program(),
        environment=environment,
        trusted=partial(_trusted, environ, home),
        indexes=found,
        cache=folder,
        named=bool(found),
    )


def _trusted(environ: Mapping[str, str], home: Path) -> Mapping[str, str]:
    from gpusetup.install.settings.trust import trusted_environment

    return trusted_environment(environ, home, checked=False)


def usual_index(uv: str, environment: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """The index that uv takes by itself, where no setting names one: each uv is asked once."""
    place = folder / f"index-{digest((uv, _age_of(uv), counting(environment)))}.txt"
    found = kept_text(place, None)
    if found is None:
        found = " ".join(_usual_index(uv, environment))
        keep_text(place, found)
    return tuple(word for word in found.split() if re.fullmatch(r"https?://\S+", word))


def _age_of(program: str) -> int:
    """When it came there: another uv may have another index."""
    try:
        return os.stat(program).st_mtime_ns
    except OSError:
        return 0


def _usual_index(uv: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """By its help, which is there at once; an empty question makes it start a Python, too."""
    said = run((uv, "help", "pip", "compile"), timeout=SECONDS, environment=environment)
    found = re.search(r"--default-index <\w+>\s[^<]{0,200}<(https?://[^>\s]+)>", said.stdout)
    return (found[1],) if found else _asked_index(uv, environment)


def _asked_index(uv: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    argv: tuple[str, ...] = (uv, "pip", "compile", "--emit-index-url", "--no-header", "--quiet")
    argv += ("--offline", "--python", sys.executable, "-")
    said = run(argv, timeout=SECONDS, environment=environment, stdin="\n")
    found = re.search(r"(?m)^--index-url (https?://\S+)", said.stdout)
    return (found[1],) if found else ()
