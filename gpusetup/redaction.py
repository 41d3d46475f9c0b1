"""Takes out of a snapshot what says who and where somebody is, before it is shared.

Two gates. The first is an allow-list: only the known environment variables pass. The second
goes over every text that is left: home folders become `~`, GPU UUIDs become aliases, addresses
of unknown servers, names of users and hosts, long secrets and serial numbers lose themselves.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gpusetup.catalog_file import load_catalog
from gpusetup.codec import from_plain, to_plain
from gpusetup.model import Snapshot
from gpusetup.probe.environment import is_kept
from gpusetup.probe.packages import CONDA_WATCHED, WATCHED
from gpusetup.value import Value, fields

AS_IT_IS = frozenset({"schema", "origin", "family", "taken_at", "compute_capability"})
"""Fields of a closed vocabulary or shape, which carry nothing of their own."""
FREE_NAMES = "values"
"""The mapping whose keys readers choose; the names of all others are the record's own."""
_VERSION = re.compile(r"\d[\w.+!-]{0,40}")

COMMON_NAMES = frozenset(
    "root user users admin administrator ubuntu debian fedora centos rocky "  # noqa: SIM905
    "nvidia jetson jovyan torch pytorch python cuda conda docker container host hostname "
    "localhost localdomain linux windows macos darwin gpu cpu system runner workspace home test "
    "app dev local default public none self venv nobody model data tmp var opt usr lib bin live "
    "report driver kernel module pip uv mamba pixi arch opensuse alpine".split()
)
"""Names that say nothing about a person, and whose replacement would spoil the record."""

PUBLIC_HOSTS = ("pytorch.org", "nvidia.com", "anaconda.org", "127.0.0.1", "localhost")
"""Servers that may stay in an address."""


class Private(Value):
    """What is known of the person whose machine it is."""

    names: tuple[str, ...] = ()
    """Users and hosts."""
    homes: tuple[str, ...] = ()
    """Home folders, where they are not where one expects them."""


def private_here() -> Private:
    """The user, the host and the home folder of this process."""
    users = (os.environ.get(name) for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"))
    host = socket.gethostname()
    machines = (
        host,
        host.split(".")[0],
        os.environ.get("HOSTNAME"),
        os.environ.get("COMPUTERNAME"),
    )
    homes = (os.environ.get("HOME"), os.environ.get("USERPROFILE"), _home())
    return Private(
        names=tuple(dict.fromkeys(filter(None, (*users, *machines)))),
        homes=tuple(dict.fromkeys(h for h in homes if h and len(h.strip("/\\")) > 1)),
    )


def _home() -> str | None:
    try:
        return str(Path.home())
    except RuntimeError:  # a user id without an entry and without HOME, as containers have
        return None


def redact(snapshot: Snapshot, private: Private | None = None) -> Snapshot:
    """The snapshot as it may be shared. `private` None: this process's user, host and home."""
    plain = to_plain(snapshot)
    plain["environment"] = {k: v for k, v in plain["environment"].items() if is_kept(k)}
    scrub = Scrubber.of(plain, private_here() if private is None else private)
    return from_plain(_walk(plain, scrub.text), Snapshot, what="the redacted snapshot")


def _walk(value: Any, scrub: Callable[[str], str], key: str = "") -> Any:
    if isinstance(value, str):
        return _text(value, scrub, key)
    if isinstance(value, dict):
        names = {name: scrub(name) if key == FREE_NAMES else name for name in value}
        return {names[name]: _walk(inner, scrub, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(inner, scrub, key) for inner in value]
    return value


def _text(value: str, scrub: Callable[[str], str], key: str) -> str:
    if key in AS_IT_IS or (key.endswith("version") and _VERSION.fullmatch(value)):
        return value
    return "<secret>" if is_secret_key(key) else scrub(value)


def is_secret_key(key: str) -> bool:
    """Whether a field's name says that its value is nobody's business.

    >>> is_secret_key("serial_number"), is_secret_key("name")
    (True, False)
    """
    return (
        re.fullmatch(r"(?i).*(password|passwd|token|secret|serial|api_?key|credential).*", key)
        is not None
    )


# --- the second gate ------------------------------------------------------------------------------

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_GPU = re.compile(
    rf"\b(GPU|MIG)-({_UUID}|[0-9a-fA-F]{{8}}[-0-9a-fA-F]*|[0-9a-fA-F]{{4,7}})(?![0-9a-zA-Z])"
)
_ALIAS = re.compile(r"\d{4}")
_NAME = r"[^\\/:*?\"'<>|;,\r\n\s]+"
_HOMES = (
    re.compile(
        rf"(?:[A-Za-z]:)?(?:\\\\|\\)Users(?:\\\\|\\)([^\\/:*?\"'<>|;\r\n]+?(?=[\\/;\"']|$)|{_NAME})"
    ),
    re.compile(rf"(?:[A-Za-z]:)?(?<![\w.~])(?:/[\w.-]+)*?/(?:home|Users)/({_NAME})"),
    re.compile(r"(?<![\w./~-])/(root)(?![\w-])"),
)
"""Home folders of anybody, on any system; the name is the group."""

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.S), "<secret>"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 <secret>"),
    (
        re.compile(
            r"(?i)([\w-]*(?:password|passwd|pwd|token|secret|api[_-]?key|credentials?"
            r"|serial(?:[ _-]?(?:number|no))?)"
            r"[\"']?\s*[=:]\s*[\"']?)(?!<secret>)[^\s\"',;&]+"
        ),
        r"\1<secret>",
    ),
    (
        re.compile(
            r"(?i)\b(user(?:name)?|login|host(?:name)?|computername)(\s*[=:]\s*)(?!<)[^\s\"',;]+"
        ),
        r"\1\2<private>",
    ),
    (
        re.compile(
            r"\b(gh[opsu]_|github_pat_|glpat-|hf_|sk-|xox[abp]-|npm_|AKIA|ASIA|AIza|pypi-|eyJ)"
            r"[\w.-]{8,}"
        ),
        "<secret>",
    ),
    (re.compile(r"(?<=://)[^/\s@]+@"), ""),
    (re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)*(?=[\s:,;>)\]]|$)"), "<user>@<host>"),
    (re.compile(rf"\b{_UUID}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-fA-F]{20,}\b"), "<hex>"),
    (re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"), "<mac>"),
    (
        re.compile(r"\b(?=[\w+-]*[A-Z])(?=[\w+-]*[a-z])(?=[\w+-]*\d)[A-Za-z0-9+-]{32,}={0,2}"),
        "<secret>",
    ),
    (
        re.compile(
            r"^(\w{3} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT[\d:.+-]+Z?) [\w.-]+ (?=[\w.-]+(\[\d+\])?: )",
            re.M,
        ),
        r"\1 <host> ",
    ),
)
"""What is a secret or a name by its shape, whoever's it is -> what stands there instead."""

_ADDRESS = re.compile(r"(?<=://)(\[[0-9a-fA-F:]+\]|[\w.-]+)")
_BYTE = r"\d{1,3}"
_IPV4 = re.compile(
    rf"(?<![\w.])(?:(?:10\.{_BYTE}|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.{_BYTE}){{2}}(?![\w.])"
    rf"|(?!127\.0\.0\.1|0\.0\.0\.0)(?:{_BYTE}\.){{3}}{_BYTE}(?=:\d))"
)
"""Private addresses, and any other with a port; four numbers alone may be a version."""
_SHARE = re.compile(r"(?<![\w\\:])\\\\([\w.-]+)(?=\\)")


class Scrubber(Value):
    """Takes the private parts out of one text after another, always in the same way."""

    homes: tuple[str, ...]
    pattern: re.Pattern[str] | None
    uuids: tuple[str, ...]
    """The GPUs' own, in the snapshot's order: the first becomes `GPU-0001`."""
    aliases: dict[str, str] = {}

    @classmethod
    def of(cls, plain: Mapping[str, Any], private: Private) -> Scrubber:
        """The scrubber for one snapshot: its GPUs are counted, its home folders name the people."""
        texts = tuple(_texts(plain))
        found = (m[1] for text in texts for pattern in _HOMES for m in pattern.finditer(text))
        homes = tuple(sorted(private.homes, key=len, reverse=True))
        last = (re.split(r"[\\/]", home)[-1] for home in homes)
        uuids = tuple(str(gpu["uuid"]) for gpu in plain.get("gpus") or () if gpu.get("uuid"))
        pattern = names_pattern((*private.names, *found, *last), vocabulary())
        return cls(homes=homes, pattern=pattern, uuids=uuids)

    def text(self, text: str) -> str:
        for home in self.homes:
            text = re.sub(re.escape(home) + r"(?![\w-])", "~", text)
        for pattern in _HOMES:
            text = pattern.sub("~", text)
        text = _GPU.sub(self._alias, text)
        for pattern, instead in _RULES:
            text = pattern.sub(instead, text)
        text = _ADDRESS.sub(_public, text)
        text = _SHARE.sub(r"\\\\<host>", _IPV4.sub("<address>", text))
        return self.pattern.sub("<private>", text) if self.pattern else text

    def _alias(self, match: re.Match[str]) -> str:
        kind, number = match[1], match[2]
        if _ALIAS.fullmatch(number):
            return match[0]
        whole = next(
            (u for u in self.uuids if u.lower().startswith(match[0].lower())), match[0].lower()
        )
        return self._numbered(whole, kind)

    def _numbered(self, whole: str, kind: str) -> str:
        if not self.aliases:
            for position, uuid in enumerate(self.uuids, 1):
                self.aliases.setdefault(uuid, f"{uuid.partition('-')[0]}-{position:04d}")
        return self.aliases.setdefault(whole, f"{kind}-{len(self.aliases) + 1:04d}")


@cache
def vocabulary() -> frozenset[str]:
    """Words that a record is made of: a host called `h100` or `triton` tells nothing."""
    models = " ".join(row.name for row in load_catalog().gpus)
    own = frozenset(part.name for part in fields(Snapshot))
    return COMMON_NAMES | own | WATCHED | CONDA_WATCHED | frozenset(models.lower().split())


def names_pattern(
    names: Iterable[str], known: frozenset[str] = COMMON_NAMES
) -> re.Pattern[str] | None:
    """A pattern that finds the names as whole words, the longest first; None without any.

    >>> names_pattern(["root", "al", "alice"]).sub("<private>", "alice alices root")
    '<private> alices root'
    """
    telling = {n for n in names if len(n) > 2 and n.lower() not in known and not n.isdigit()}
    if not telling:
        return None
    words = "|".join(re.escape(name) for name in sorted(telling, key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.I)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _public(match: re.Match[str]) -> str:
    host = match[1].lower()
    known = any(host == public or host.endswith("." + public) for public in PUBLIC_HOSTS)
    return match[1] if known else "<host>"
