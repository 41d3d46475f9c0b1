"""Where a joint question is asked: the user's own indexes, by uv's and pip's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpusetup.install.credentials import without_credentials
from gpusetup.install.settings.environment import asking_environment, indexes, uv_program
from gpusetup.model.frozen import Frozen


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
    environment = asking_environment(environ, home)
    found = indexes(environment)
    named = found != indexes({})
    return Places(uv=uv_program(), environment=environment, indexes=found, named=named)
