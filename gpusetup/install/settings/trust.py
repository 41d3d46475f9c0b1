"""Which certificates are trusted: by our own fetches, by uv and by pip alike.

Every program has its own setting for a company's certificates, and looks at no other's. Here one
is enough: what any of them names is trusted beside the system's store and the public ones. A
setting that names nothing usable is passed over, and told where a TLS connection fails.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import ssl
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from gpusetup.errors import Blocked
from gpusetup.install.leftovers import held, released, sweep
from gpusetup.install.settings.pip_config import pip_settings
from gpusetup.model.frozen import Frozen

if TYPE_CHECKING:
    import requests

VARIABLES = (
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    "NIX_SSL_CERT_FILE",
)
LARGEST_BUNDLE = 16 << 20
MOST_FILES = 2000
MOST_FOLDERS = 8
CERTIFICATE = re.compile(
    rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----[A-Za-z0-9+/=\s]{1,200000}"
    rb"-----END (?:TRUSTED )?CERTIFICATE-----"
)
SYSTEM_STORES = (
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    *("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"),
)
"""Where Linux distributions keep theirs: Debian, Fedora and RHEL, older ones, SUSE, Alpine."""


class Trust(Frozen):
    """What the user's settings name."""

    certificates: tuple[str, ...] = ()
    """In PEM, each one that can be read."""
    problems: tuple[str, ...] = ()
    """Settings that name nothing usable: `SSL_CERT_FILE names /x, which is not there`."""
    client: str | None = None
    """The file of a certificate of our own, for a server that asks who we are."""


def trust(environ: Mapping[str, str] | None = None, home: Path | None = None) -> Trust:
    """What is trusted by setting, whosever setting it is."""
    environ = os.environ if environ is None else environ
    home = home or Path.home()
    pip = pip_settings(environ, home)
    named = [(name, environ.get(name, "")) for name in VARIABLES]
    named.append(("pip's `cert`", pip.get("cert", "")))
    found: dict[str, None] = {}
    problems = []
    for name, path in named:
        if not path.strip():
            continue
        place = _place(path, home)
        try:
            read = _usable(place)
        except (OSError, ValueError) as problem:
            problems.append(f"{name} names {place}, {_why(problem)}")
            continue
        found.update(dict.fromkeys(read))
        if not read:
            problems.append(f"{name} names {place}, which holds no certificate in PEM")
    client = pip.get("client-cert") or environ.get("SSL_CLIENT_CERT") or None
    return Trust(
        certificates=tuple(found),
        problems=tuple(problems),
        client=str(_place(client, home)) if client and _place(client, home).is_file() else None,
    )


def _place(path: str, home: Path) -> Path:
    text = path.strip()
    return home / text[2:] if text.startswith("~/") else Path(text)


def _why(problem: Exception) -> str:
    if isinstance(problem, FileNotFoundError):
        return "which is not there"
    words = problem.strerror if isinstance(problem, OSError) else str(problem)
    return f"which cannot be read ({words})"


def _usable(place: Path) -> tuple[str, ...]:
    """The certificates of a file or a folder that OpenSSL takes."""
    return _read(place, place.stat().st_mtime_ns)


@lru_cache(MOST_FOLDERS)
def _read(place: Path, _changed: int) -> tuple[str, ...]:
    """Read once as long as it stays as it is. A store of OpenSSL has each file twice, once under
    its hash; what a link leads to may be gone."""
    if not place.is_dir():
        return _taken(_blocks(place))
    found: dict[str, None] = {}
    for one in (place / name for name in sorted(os.listdir(place))[:MOST_FILES]):
        if one.is_file():
            found.update(dict.fromkeys(_blocks(one)))
    return _taken(tuple(found))


def _blocks(file: Path) -> tuple[str, ...]:
    return tuple(block.decode("ascii") for block in CERTIFICATE.findall(_content(file)))


def _taken(blocks: tuple[str, ...]) -> tuple[str, ...]:
    """Those that OpenSSL takes: all at once, for one by one takes ten times as long."""
    if not blocks or _takes("\n".join(blocks)):
        return blocks
    return tuple(filter(_takes, blocks))


def _takes(certificates: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        return False
    return True


def _content(file: Path) -> bytes:
    with open(file, "rb", opener=_without_waiting) as stream:
        state = os.fstat(stream.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ValueError("it is no file")
        return stream.read(min(state.st_size, LARGEST_BUNDLE))


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to would be waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


# --- our own fetches -----------------------------------------------------------------------------


def trusting(session: requests.Session, log: Callable[[str], None]) -> requests.Session:
    """The session with every certificate that is trusted: public, the system's, the user's."""
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    trusted = trust()
    for problem in trusted.problems:
        log(problem)
    session.verify = DEFAULT_CA_BUNDLE_PATH
    session.cert = trusted.client
    session.mount("https://", _adapter(_context(trusted)))
    return session


def _context(trusted: Trust) -> ssl.SSLContext:
    """On Linux the system's store is a file: what uv and pip are given counts for us. OpenSSL is
    not asked for its defaults, which go by variables that may name a pipe."""
    if sys.platform == "linux":
        return _context_of(_everything(trusted), trusted.client)
    import truststore

    system: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if trusted.certificates:
        system.load_verify_locations(cadata="\n".join(trusted.certificates))
    return system


@lru_cache(1)
def _context_of(certificates: tuple[str, ...], _client: str | None) -> ssl.SSLContext:
    """OpenSSL takes hundreds of certificates in a tenth of a second: sessions that trust the same
    and show the same certificate of their own share a context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata="\n".join(certificates))
    return context


def _adapter(context: ssl.SSLContext) -> Any:
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):
        """Connections, straight or by a proxy, with one context."""

        def init_poolmanager(self, *words: Any, **options: Any) -> None:
            super().init_poolmanager(*words, ssl_context=context, **options)

        def proxy_manager_for(self, *words: Any, **options: Any) -> Any:
            options |= {"ssl_context": context, "proxy_ssl_context": context}
            return super().proxy_manager_for(*words, **options)

    return Adapter()


# --- uv and pip ----------------------------------------------------------------------------------


def trusted_environment(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The variables by which uv and pip trust the same: one file that holds it all.

    On Windows and macOS the system's store is no file. Where no setting names anything, uv is told
    to look there itself; pip does since 24.2.
    """
    trusted = trust(environ, home)
    client = (
        {"SSL_CLIENT_CERT": trusted.client, "PIP_CLIENT_CERT": trusted.client}
        if trusted.client
        else {}
    )
    if sys.platform != "linux" and not trusted.certificates:
        return {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1", **client}
    with _WRITING:
        bundle = _bundle(trusted)
    if bundle is None:
        return client
    names = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    return {**dict.fromkeys(names, bundle), **client}


_WRITTEN: dict[tuple[str, ...], str] = {}
"""The user's certificates -> the file with these and all others, which goes when we end."""
_WRITING = Lock()
"""Two that ask at once write one file."""


def _everything(trusted: Trust) -> tuple[str, ...]:
    """The user's certificates, the public ones and the system's."""
    import certifi  # requests' own; requests itself takes ten times as long to load

    own = ssl.get_default_verify_paths().openssl_cafile
    stores = map(os.path.realpath, (certifi.where(), *SYSTEM_STORES, own))
    found = dict.fromkeys(trusted.certificates)
    for store in dict.fromkeys(stores):
        with contextlib.suppress(OSError, ValueError):
            found.update(dict.fromkeys(_usable(Path(store))))
    return tuple(found)


def _bundle(trusted: Trust) -> str | None:
    """A file with all that is trusted; None where none can be written."""
    known = _WRITTEN.get(trusted.certificates)
    if known and Path(known).is_file():
        return known
    folder = Path(tempfile.gettempdir())
    sweep(folder, f"{BUNDLE}*.pem")
    try:
        path = held(_new_bundle)
    except OSError:
        return None
    _WRITTEN[trusted.certificates] = str(path)
    try:
        path.write_text("\n".join((*_everything(trusted), "")), encoding="ascii")
    except OSError as problem:
        _drop_bundles()
        raise Blocked(
            f"{folder} cannot hold the certificates that uv and pip are to trust: "
            f"{problem.strerror}",
            hint=f"nothing was changed; make room in {folder}, or set TMPDIR to a folder on "
            "another disk",
        ) from problem
    return str(path)


BUNDLE = "gpusetup-ca-"


def _new_bundle() -> Path:
    handle, path = tempfile.mkstemp(prefix=BUNDLE, suffix=".pem")
    os.close(handle)
    return Path(path)


@atexit.register
def _drop_bundles() -> None:
    while _WRITTEN:
        path = Path(_WRITTEN.popitem()[1])
        released(path)
        with contextlib.suppress(OSError):
            path.unlink()
