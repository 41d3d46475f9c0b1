"""The person's settings, read once as data: what counts for gpusetup, and what is ignored.

What may decide is listed (`PASSED_TO_UV`). Everything else that bears on packages is named in a
note instead of failing an installation halfway.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gpusetup.uv.configuration import (
    Source,
    files_not_read,
    ignored_settings,
    sources_of_settings,
)
from gpusetup.uv.indexes import (
    Index,
    handed_over,
    indexes_of,
    indexes_of_pip,
    usual_default,
    with_whole_path,
)
from gpusetup.uv.limits import Limits, limits_of
from gpusetup.uv.pip_settings import pip_settings
from gpusetup.uv.program import clean_environment
from gpusetup.uv.toml import toml_text

PASSED_TO_UV = (
    *("index-strategy", "keyring-provider", "no-index", "offline", "system-certs"),
    *("resolution", "prerelease", "exclude-newer", "concurrent-downloads", "concurrent-installs"),
)
"""Single settings that uv is told as they are."""
SAFE_LINK_MODES = ("clone", "copy", "hardlink")
"""How uv may bring files from its cache. With symbolic links the environment would stop working as
soon as the cache is cleaned, so that `symlink` is not used."""
PROXIES = {"http-proxy": "HTTP_PROXY", "https-proxy": "HTTPS_PROXY", "no-proxy": "NO_PROXY"}


class PersonSettings:
    """What a person has set for uv and pip, where it counts here."""

    def __init__(
        self, sources: tuple[Source, ...], pip: Mapping[str, str], prefix: str | None = None
    ) -> None:
        """`prefix`: the environment whose own pip.conf is named because it is not read."""
        self.sources = sources
        self.pip = pip
        self.prefix = prefix

    @cached_property
    def indexes(self) -> tuple[Index, ...]:
        """The extra indexes in uv's order, and the default one last; torch's own is not one."""
        indexes = indexes_of(self.sources) or indexes_of_pip(self.pip)
        has_default = any(index.is_default for index in indexes)
        default = None if has_default or self.single("no-index") else usual_default()
        return (*indexes, *((default,) if default else ()))

    @property
    def is_pips(self) -> bool:
        """Whether pip's settings name the indexes, because uv's name none."""
        return not indexes_of(self.sources) and bool(indexes_of_pip(self.pip))

    @cached_property
    def limits(self) -> Limits:
        """Constraints, overrides and exclusions."""
        return limits_of(self.sources)

    def single(self, key: str) -> Any:
        """The value of a setting, from the first place that has it."""
        for source in self.sources:
            if key in source.values:
                return source.values[key]
        return None

    def listed(self, key: str) -> list[str]:
        """All values of a setting that is a list, from every place."""
        items: list[str] = []
        for source in self.sources:
            values = source.values.get(key)
            if isinstance(values, list):
                items += [value for value in values if isinstance(value, str)]
        return items

    @property
    def uses_keyring(self) -> bool:
        """Whether uv asks the program `keyring` for passwords."""
        providers = (self.single("keyring-provider"), self.pip.get("keyring-provider"))
        return any(provider == "subprocess" for provider in providers)

    @property
    def link_mode(self) -> str | None:
        """How files are brought from the cache, if the person has set a way that is safe."""
        mode = self.single("link-mode")
        return mode if mode in SAFE_LINK_MODES else None

    # --- what is shown ----------------------------------------------------------------------------

    @property
    def shown_indexes(self) -> tuple[str, ...]:
        """Each index with who names it: `packages.example (UV_INDEX)`."""
        folders = [f"{place} (find-links)" for place in self._find_links()]
        return (*(index.shown for index in self.indexes), *folders)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: settings that count, and those that do not."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        yield from self.limits.notes
        mode = self.single("link-mode")
        if mode is not None and mode not in SAFE_LINK_MODES:
            yield f"link-mode {mode} is not used: the files are put into the environment itself"
        yield from ignored_settings(self.sources)
        yield from files_not_read(Path.cwd(), self.prefix)

    # --- what uv is told --------------------------------------------------------------------------

    def configuration(self, **more: Any) -> str:
        """The settings as the one uv.toml that uv is given, without any login."""
        rows = {key: self.single(key) for key in PASSED_TO_UV}
        rows |= self._from_pip()
        if rows["system-certs"] is None:
            rows["system-certs"] = self.single("native-tls")
        lists = {"find-links": self._find_links(), "allow-insecure-host": self.insecure_hosts}
        tables = {key: self.single(key) for key in ("exclude-newer-package", "prerelease-package")}
        every = {**rows, **lists, **tables, **more}
        lines = [f"{key} = {toml_text(value)}" for key, value in every.items() if value]
        for index in handed_over(self.indexes)[0]:
            lines += [
                "[[index]]",
                f"name = {toml_text(index.name)}",
                f"url = {toml_text(index.url)}",
            ]
            lines += [f"default = {toml_text(index.is_default)}"]
            lines += [f"{key} = {toml_text(value)}" for key, value in index.options.items()]
        return "\n".join((*lines, ""))

    def _from_pip(self) -> dict[str, Any]:
        """What pip's settings say where uv's say nothing."""
        rows: dict[str, Any] = {}
        if self.pip.get("keyring-provider") == "subprocess" and not self.single("keyring-provider"):
            rows["keyring-provider"] = "subprocess"
        # pip takes the best of all its indexes, uv the first that has a name at all.
        if self.is_pips and self.pip.get("extra-index-url") and not self.single("index-strategy"):
            rows["index-strategy"] = "unsafe-best-match"
        return rows

    def _find_links(self) -> list[str]:
        places: list[str] = []
        for source in self.sources:
            links = source.values.get("find-links")
            for link in links if isinstance(links, list) else ():
                places.append(with_whole_path(str(link), source.folder))
        return places

    @property
    def insecure_hosts(self) -> list[str]:
        """The hosts whose certificates are not checked."""
        hosts = self.listed("allow-insecure-host")
        return hosts or (self.pip.get("trusted-host", "").split() if self.is_pips else [])

    def environment(self, more: Mapping[str, str] = {}) -> dict[str, str]:
        """The variables of uv: logins, proxies and certificates of the person."""
        environment = clean_environment(keyring=self.uses_keyring)
        if False in (self.single("system-certs"), self.single("native-tls")):
            environment.pop("UV_SYSTEM_CERTS", None)
        for key, variable in PROXIES.items():
            proxy = self.single(key) or self.pip.get("proxy" if key != "no-proxy" else "")
            if isinstance(proxy, str) and variable not in environment:
                environment[variable] = proxy
        bundle = os.environ.get("REQUESTS_CA_BUNDLE") or self.pip.get("cert")
        if bundle and "SSL_CERT_FILE" not in environment:
            environment["SSL_CERT_FILE"] = bundle
        return {**environment, **handed_over(self.indexes)[1], **more}


def person_settings(prefix: str | None = None) -> PersonSettings:
    """The settings of whoever runs gpusetup; `BadInput` for a file that cannot be read."""
    return PersonSettings(sources_of_settings(), pip_settings(), prefix)
