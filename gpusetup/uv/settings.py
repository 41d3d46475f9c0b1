"""The user's settings for uv and pip, read once as data, and which of them gpusetup applies.

`PASSED_TO_UV` lists the settings that uv gets. Any other setting that affects packages is mentioned
in a note, so that it does not make an installation fail halfway.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gpusetup.uv.configuration import (
    SettingsSource,
    files_not_read,
    ignored_settings,
    sources_of_settings,
    working_folder,
)
from gpusetup.uv.hosts import NAMED_BY_PERSON, hosts_named_by_person
from gpusetup.uv.indexes import (
    Index,
    handed_over,
    indexes_of,
    indexes_of_pip,
    is_usual_default,
    usual_default,
    with_whole_path,
)
from gpusetup.uv.limits import Limits, limits_of
from gpusetup.uv.pip_settings import pip_settings
from gpusetup.uv.program import clean_environment
from gpusetup.uv.releases import file_hosts_of
from gpusetup.uv.toml import toml_text

PASSED_TO_UV = (
    *("index-strategy", "keyring-provider", "no-index", "offline", "system-certs"),
    *("resolution", "prerelease", "exclude-newer", "concurrent-downloads", "concurrent-installs"),
)
"""Settings that are passed to uv unchanged."""
SAFE_LINK_MODES = ("clone", "copy", "hardlink")
"""The allowed ways for uv to put files from its cache into an environment. `symlink` is not used,
because the environment would break as soon as the cache is cleaned."""
NEVER_CHANGES = "max-age=365000000, immutable"
"""The caching header for files of uv's default index, where a file name is never used twice. If a
proxy drops the index's own header, uv would otherwise check each file again with every question."""
PROXIES = {"http-proxy": "HTTP_PROXY", "https-proxy": "HTTPS_PROXY", "no-proxy": "NO_PROXY"}


class PersonSettings:
    """The user's settings for uv and pip, as far as gpusetup applies them."""

    def __init__(
        self, sources: tuple[SettingsSource, ...], pip: Mapping[str, str], prefix: str | None = None
    ) -> None:
        """Read the settings from these sources. `prefix` is an environment whose own pip.conf is
        not read; a note mentions it."""
        self.sources = sources
        self.pip = pip
        self.prefix = prefix

    @cached_property
    def indexes(self) -> tuple[Index, ...]:
        """The user's indexes: extra ones in uv's order, the default one last. torch's own index is
        not among them."""
        indexes = indexes_of(self.sources)
        # uv's own settings win: pip's are only used if uv has no index at all.
        if not indexes:
            indexes = indexes_of_pip(self.pip)
        has_default = any(index.is_default for index in indexes)
        # Without any index, only the folders from find-links are used.
        if has_default or self.single("no-index"):
            return indexes
        default = usual_default()
        if default is None:
            return indexes
        return (*indexes, default)

    @property
    def is_pips(self) -> bool:
        """Whether the indexes come from pip's settings, because uv's settings name none."""
        named_for_uv = indexes_of(self.sources)
        named_for_pip = indexes_of_pip(self.pip)
        return bool(named_for_pip) and not named_for_uv

    @cached_property
    def limits(self) -> Limits:
        """The constraints, overrides and exclusions in the user's settings."""
        return limits_of(self.sources)

    def single(self, key: str) -> Any:
        """The value of a setting, from the first source that has it; None if none does."""
        for source in self.sources:
            if key in source.values:
                return source.values[key]
        return None

    def source_of(self, key: str) -> str:
        """The name of the first variable or file that has a setting; "" if none does."""
        for source in self.sources:
            if key in source.values:
                return source.name
        return ""

    def listed(self, key: str) -> list[str]:
        """All values of a setting that is a list, from all sources in order."""
        items: list[str] = []
        for source in self.sources:
            values = source.values.get(key)
            # A file may contain another type where a list of texts is expected.
            if not isinstance(values, list):
                continue
            for value in values:
                if isinstance(value, str):
                    items.append(value)
        return items

    @property
    def uses_keyring(self) -> bool:
        """Whether uv asks the `keyring` program for passwords."""
        for_uv = self.single("keyring-provider")
        # pip's setting may also be `auto` or `import`, but uv can only start the program `keyring`.
        for_pip = self.pip.get("keyring-provider")
        return bool(for_uv == "subprocess" or for_pip == "subprocess")

    @property
    def link_mode(self) -> str | None:
        """How uv puts files from its cache into an environment (`clone`, `copy` or `hardlink`);
        None if the user chose none of these."""
        mode = self.single("link-mode")
        if mode in SAFE_LINK_MODES:
            return str(mode)
        return None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The URLs of all indexes, wheel pages and file hosts in the settings, without logins."""
        addresses = [index.url for index in self.indexes]
        addresses += self.wheel_folders
        addresses += [f"https://{host}" for host in self.file_hosts]
        return tuple(addresses)

    @cached_property
    def file_hosts(self) -> tuple[str, ...]:
        """The hosts where uv's default index keeps its files; empty if the user does not use that
        index."""
        hosts: list[str] = []
        for index in self.indexes:
            if is_usual_default(index):
                hosts += file_hosts_of(index.url)
        return tuple(hosts)

    # --- texts for the user -----------------------------------------------------------------------

    @property
    def shown_indexes(self) -> tuple[str, ...]:
        """The indexes, wheel folders and file hosts as text, each with the setting that names it:
        `packages.example (UV_INDEX)`."""
        shown = [index.shown for index in self.indexes]
        # Folders with wheels are searched too, so they must be shown.
        for folder in self.wheel_folders:
            shown.append(f"{folder} (find-links)")
        for file_host in self.file_hosts:
            shown.append(f"{file_host} (files of uv's default)")
        for host in hosts_named_by_person():
            shown.append(f"{host} ({NAMED_BY_PERSON})")
        return tuple(shown)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on the settings that apply, and on those that are not used."""
        return tuple(self._notes())

    @property
    def notes_of_limits(self) -> tuple[str, ...]:
        """Notes on the settings that limit versions."""
        notes = list(self.limits.notes)
        newest_day = self.single("exclude-newer")
        if newest_day is not None:
            notes.append(
                f"{self.source_of('exclude-newer')} hides packages newer than {newest_day} "
                "(exclude-newer), except on torch's own index, which states no dates; another "
                "index without dates offers no packages then"
            )
        return tuple(notes)

    def notes_on_places(self, torch_index: str) -> tuple[str, ...]:
        """Notes for a user whose package was not found: which indexes are asked, and which files
        may name another index but are not read."""
        asked = ", ".join((torch_index, *self.shown_indexes))
        return f"asked: {asked}", *self._files_not_read()

    def _files_not_read(self) -> Iterator[str]:
        return files_not_read(Path(working_folder()), self.prefix)

    def _notes(self) -> Iterator[str]:
        yield from self.notes_of_limits
        mode = self.single("link-mode")
        is_unsafe = mode is not None and mode not in SAFE_LINK_MODES
        if is_unsafe:
            yield f"link-mode {mode} is not used: the files are put into the environment itself"
        yield from ignored_settings(self.sources)
        # uv itself would read these files, so the user may expect gpusetup to read them too.
        yield from self._files_not_read()

    # --- the settings for uv ----------------------------------------------------------------------

    def configuration(self, first_index: str = "", **changes: Any) -> str:
        """The text of the only uv.toml that uv gets; it contains no logins.

        `first_index` is the table of an index that comes before the user's indexes, because uv
        takes a package from the first index that has it.
        """
        settings = {key: self.single(key) for key in PASSED_TO_UV}
        settings |= self._from_pip()
        # An older name for the same setting.
        if settings["system-certs"] is None:
            settings["system-certs"] = self.single("native-tls")
        settings["find-links"] = self.wheel_folders
        settings["allow-insecure-host"] = self.insecure_hosts
        for key in ("exclude-newer-package", "prerelease-package"):
            settings[key] = self.single(key)
        settings |= changes
        lines: list[str] = []
        for key, value in settings.items():
            # If a setting is missing or false, uv's default applies.
            if value:
                lines.append(f"{key} = {toml_text(value)}")
        lines += first_index.splitlines()
        renamed, _ = handed_over(self.indexes)
        # Tables come last, because in TOML every later key would belong to them.
        for index in renamed:
            table: dict[str, Any] = {
                "name": index.name,
                "url": index.url,
                "default": index.is_default,
            }
            if is_usual_default(index):
                table["cache-control"] = {"files": NEVER_CHANGES}
            table |= index.options
            lines.append("[[index]]")
            for key, value in table.items():
                lines.append(f"{key} = {toml_text(value)}")
        return "\n".join((*lines, ""))

    def _from_pip(self) -> dict[str, Any]:
        """The settings for uv that follow from pip's settings, as far as uv's own settings do not
        contain them."""
        settings: dict[str, Any] = {}
        # uv's own setting wins, even if it is `disabled`.
        has_provider = self.single("keyring-provider") is not None
        if self.uses_keyring and not has_provider:
            settings["keyring-provider"] = "subprocess"
        # pip takes the best release from all its indexes, while uv by default stops at the first
        # index that has the package. So tell uv to do what pip does.
        has_strategy = self.single("index-strategy") is not None
        has_extra_index = "extra-index-url" in self.pip
        if self.is_pips and has_extra_index and not has_strategy:
            settings["index-strategy"] = "unsafe-best-match"
        return settings

    @property
    def wheel_folders(self) -> list[str]:
        """The folders and pages in uv's `find-links`, with absolute paths."""
        folders: list[str] = []
        for source in self.sources:
            links = source.values.get("find-links")
            if not isinstance(links, list):
                continue
            for link in links:
                # uv runs in another folder, so a relative path would be wrong there.
                folder = with_whole_path(str(link), source.folder)
                folders.append(folder)
        return folders

    @property
    def insecure_hosts(self) -> list[str]:
        """The hosts whose certificates uv does not check, according to the settings."""
        hosts = self.listed("allow-insecure-host")
        if hosts:
            return hosts
        # pip's trusted hosts belong to pip's indexes, and only count together with them.
        if self.is_pips:
            return self.pip.get("trusted-host", "").split()
        return []

    def environment(self, variables: Mapping[str, str] = {}) -> dict[str, str]:
        """The environment variables for uv: logins, proxies and certificates from the settings, and
        `variables`."""
        environment = clean_environment(keyring=self.uses_keyring)
        # If the user's settings switch off the system's certificates, keep them off.
        refuses_system_store = False in (self.single("system-certs"), self.single("native-tls"))
        if refuses_system_store:
            environment.pop("UV_SYSTEM_CERTS", None)
        for key, variable in PROXIES.items():
            proxy = self.single(key)
            # pip has one proxy setting for both protocols, and none for exceptions.
            if proxy is None and key != "no-proxy":
                proxy = self.pip.get("proxy")
            if isinstance(proxy, str):
                environment.setdefault(variable, proxy)
        bundle = os.environ.get("REQUESTS_CA_BUNDLE") or self.pip.get("cert")
        if bundle:
            environment.setdefault("SSL_CERT_FILE", bundle)
        _, logins = handed_over(self.indexes)
        return {**environment, **logins, **variables}


def person_settings(prefix: str | None = None) -> PersonSettings:
    """The settings of the user who runs gpusetup. Raises BadInput if a configuration file is
    invalid."""
    for_uv = sources_of_settings()
    for_pip = pip_settings()
    return PersonSettings(for_uv, for_pip, prefix)
