"""uv: where it is, its cache that is ours alone, and the environment in which it is run.

uv reads its own settings. pip's index is handed on to it where nothing tells uv of one.
"""

from __future__ import annotations

import os
import platform
import re
import stat
import sys
from collections.abc import Mapping
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import Any

from gpusetup.errors import BadInput, Blocked
from gpusetup.system.processes import run
from gpusetup.system.refusals import blocked_by_files

LIMITS = {"UV_HTTP_TIMEOUT": "6", "UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_RETRIES": "1"}
"""Seconds and tries while uv is asked, so that a dead host is reported within 15 s."""
FETCHING = {"UV_HTTP_TIMEOUT": "30", "UV_HTTP_RETRIES": "3"}
"""While it fetches gigabytes."""
UV_COUNTS = re.compile(
    r"UV_(INDEX\b.*|INDEX_.*|DEFAULT_INDEX|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|INDEX_STRATEGY"
    r"|KEYRING_PROVIDER|INSECURE_HOST|NATIVE_TLS|SYSTEM_CERTS|OFFLINE|LINK_MODE|EXCLUDE_NEWER.*"
    r"|RESOLUTION|PRERELEASE|CONSTRAINT|OVERRIDE|EXCLUDE|CONFIG_FILE|NO_CONFIG|CREDENTIALS_DIR"
    r"|.*_TOKEN|CONCURRENT_.*)"
)
"""The variables of uv that say where packages come from, and which count."""
GUARD = "/gpusetup-constraints.txt"
"""How the name of a file ends that `gpusetup guard` wrote."""
SYSTEM_STORES = (
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    *("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"),
)
"""Where Linux distributions keep the certificates that they trust."""

ASK_SECONDS = 30.0


def certificates() -> str | bool:
    """The certificates that requests is to trust: as uv does."""
    named = map(os.environ.get, ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"))
    return next(filter(os.path.exists, (*filter(None, named), *SYSTEM_STORES)), True)


def uv_program() -> str:
    """The uv that came with gpusetup."""
    import uv

    return str(uv.find_uv_bin())


def own_cache() -> Path:
    """The folder of uv's cache that only we use, made where it is missing; `Blocked` where others
    could put something into it. What lies in the user's own cache is not trusted."""
    from platformdirs import user_cache_path

    named = os.environ.get("GPUSETUP_CACHE_DIR")
    folder = Path(named).absolute() if named else user_cache_path("gpusetup", False) / "uv"
    hint = "nothing was changed; set GPUSETUP_CACHE_DIR to a folder that only you can write"
    with blocked_by_files(f"The cache {folder} cannot be made", hint):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
    if os.name == "posix" and (found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022):
        raise Blocked(f"Others own the cache {folder}, or may write to it", hint=hint)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Blocked(f"The cache {folder} cannot be written", hint=hint)
    return folder


def asking_environment(prefix: str | None = None) -> dict[str, str]:
    """The environment of uv: the user's own settings of where packages come from, short time
    limits, our cache. `prefix` is the target's, where its pip may have settings.

    Settings of another target, or of another question, are left out, and so are the constraints
    of `gpusetup guard`, which are for other installers.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_")) or UV_COUNTS.fullmatch(name)
    }
    others = (one for one in kept.pop("UV_CONSTRAINT", "").split() if not one.endswith(GUARD))
    if constraints := " ".join(others):
        kept["UV_CONSTRAINT"] = constraints
    if any(map(os.path.exists, SYSTEM_STORES)) or os.name != "posix":
        kept = {"UV_SYSTEM_CERTS": "1", **kept}
    ours = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    ours["UV_CACHE_DIR"] = str(own_cache())
    asked = {**LIMITS, **kept, **ours}
    return {**of_pip(pip_settings(prefix), asked), **asked}


# --- pip's settings -------------------------------------------------------------------------------

KEYS = (
    *("index-url", "extra-index-url", "trusted-host"),
    *("cert", "proxy", "keyring-provider", "constraint"),
)
"""The settings that count (https://pip.pypa.io/en/stable/cli/pip_install/#options)."""
PIP = "pip.ini" if sys.platform == "win32" else "pip.conf"


def pip_settings(prefix: str | None = None) -> dict[str, str]:
    """What counts of pip's files and variables (`KEYS`): `[install]` of any file counts more than
    `[global]` of any other, and a variable more than both. `BadInput` for a file that is no
    configuration: without it, packages would come from elsewhere."""
    parser = RawConfigParser(strict=False)
    parser.optionxform = lambda name: name.lower().replace("_", "-")  # type: ignore[assignment]
    for path in filter(Path.is_file, _files(prefix)):
        try:
            parser.read(path, encoding="utf-8-sig")
        except (Error, UnicodeDecodeError):  # its words may quote a password
            raise BadInput(
                f"{path} is not a pip configuration",
                hint="fix it (`pip config debug` shows what pip reads), or set "
                f"PIP_CONFIG_FILE={os.devnull}",
            ) from None
    found = {
        key: os.environ.get(f"PIP_{key.upper().replace('-', '_')}")
        or parser.get("install", key, fallback="")
        or parser.get("global", key, fallback="")
        for key in KEYS
    }
    return {key: value for key, value in found.items() if value}


def _files(prefix: str | None) -> tuple[Path, ...]:
    """The files that pip reads, the one that counts most last: the machine's, the user's, the
    environment's own, the one that a variable names."""
    environ, home, named = os.environ, Path.home(), os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return ()
    config = environ.get("APPDATA") or environ.get("XDG_CONFIG_HOME") or home / ".config"
    machine = Path(environ.get("PROGRAMDATA", "/etc"), *(("pip",) if os.name == "nt" else ()), PIP)
    files = (machine, home / ".pip" / PIP, Path(config, "pip", PIP))
    own = (Path(prefix, PIP),) if prefix else ()
    return (*files, *own, *((Path(named),) if named else ()))


# --- pip's settings for uv -----------------------------------------------------------------------

WORDS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
}


def of_pip(pip: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """pip's settings in uv's words; its indexes only where nothing tells uv of one. pip takes the
    best of all its indexes, uv the first that has a name at all: with an extra index uv is told to
    do as pip does."""
    found = {
        "SSL_CERT_FILE": environment.get("REQUESTS_CA_BUNDLE") or pip.get("cert", ""),
        "HTTP_PROXY": pip.get("proxy", ""),
        "HTTPS_PROXY": pip.get("proxy", ""),
        "UV_KEYRING_PROVIDER": "subprocess" if pip.get("keyring-provider") == "subprocess" else "",
    }
    named = {WORDS[key]: " ".join(pip.get(key, "").split()) for key in WORDS}
    if any(named.values()) and indexes(environment) == indexes({}):
        found |= named
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match" if named["UV_INDEX"] else ""
    return {name: value for name, value in found.items() if value}


def indexes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The indexes that uv takes by its own settings, its default index among them; it is asked for
    nothing. With no environment, as uv comes."""
    argv: tuple[str, ...] = (uv_program(), "pip", "compile", "--emit-index-url", "--no-header")
    argv += ("--quiet", "--offline", "--python", sys.executable, "-")
    argv += () if environment else ("--no-config",)
    said = run(argv, timeout=ASK_SECONDS, environment=environment, stdin="\n")
    return tuple(re.findall(r"(?m)^--(?:extra-)?index-url (\S+)", said.stdout))


def in_image_build() -> bool:
    """Whether we run in a step of an image build, as far as its builder shows: BuildKit, buildah,
    kaniko. The old docker builder does not show itself."""
    return (
        platform.node() == "buildkitsandbox"
        or "BUILDAH_ISOLATION" in os.environ
        or Path("/kaniko/executor").exists()
    )


def parse_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    return dict(tomllib.loads(text))
