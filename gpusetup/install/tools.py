"""The programs that install: where they are, their environment, what they complain of."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unreached, Unsatisfiable
from gpusetup.install.pip_config import as_variables, pip_settings
from gpusetup.install.trust import trusted_environment
from gpusetup.install.uv_config import index_urls, says_where, users_settings
from gpusetup.install.wheels import without_credentials
from gpusetup.install.words import what_is_missing
from gpusetup.run import Output

LIMITS = {
    "UV_HTTP_TIMEOUT": "6",
    "UV_HTTP_CONNECT_TIMEOUT": "5",
    "UV_HTTP_RETRIES": "1",
    "PIP_TIMEOUT": "6",
    "PIP_RETRIES": "0",
}
"""Seconds and tries while uv and pip are asked, so that a dead host is told within 15 s."""
PIP_OFF = (
    *("PIP_USER", "PIP_REQUIRE_HASHES", "PIP_NO_DEPS", "PIP_REQUIRE_VIRTUALENV"),
    *("PIP_IGNORE_INSTALLED", "PIP_FORCE_REINSTALL"),
)
"""Switches that an old pip's configuration may turn on although it is told to read none."""
UV_COUNTS = re.compile(
    r"UV_(INDEX\b.*|INDEX_.*|DEFAULT_INDEX|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|INDEX_STRATEGY"
    r"|KEYRING_PROVIDER|INSECURE_HOST|NATIVE_TLS|SYSTEM_CERTS|OFFLINE|CACHE_DIR|NO_CACHE|LINK_MODE"
    r"|EXCLUDE_NEWER.*|RESOLUTION|PRERELEASE|CONSTRAINT|OVERRIDE|EXCLUDE|CONFIG_FILE|NO_CONFIG"
    r"|CREDENTIALS_DIR|.*_TOKEN|CONCURRENT_.*)"
)
"""The variables of uv that say where packages come from, and which count."""
CONDA_PROGRAMS = ("conda", "mamba", "micromamba")


def uv_program() -> str:
    """The uv binary that came with gpusetup, else the one on PATH."""
    import uv

    try:
        return str(uv.find_uv_bin())
    except FileNotFoundError:
        found = shutil.which("uv")
    if found is None:
        raise Blocked("The program uv is not found.", hint="`pip install uv`, or `--installer pip`")
    return found


def asking_environment(
    environ: Mapping[str, str], home: Path, prefix: str | None = None
) -> dict[str, str]:
    """The environment in which uv and pip are asked: the user's own settings, short time limits.

    Where only pip is told which index to use, uv is told the same. Settings of another target, or
    of another question, are left out: only where packages come from is theirs to say. `prefix` is
    the target's, where its pip may have settings.
    """
    always = {
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        **dict.fromkeys(PIP_OFF, "0"),
    }
    pip = pip_settings(environ, home, prefix)
    learned = {} if uv_is_configured(environ, home) else uv_settings(pip)
    trusted = trusted_environment(environ, home)  # instead of pip's own words on certificates
    pip = {key: value for key, value in pip.items() if key not in ("cert", "client-cert")}
    return {**learned, **_counting(environ), **as_variables(pip), **trusted, **LIMITS, **always}


def _counting(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of uv and pip that are about other questions."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("PIP_", "UV_", "SSL_CERT_DIR")) or UV_COUNTS.fullmatch(name)
    }


def switching_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the switch: no setting of uv or pip but where their caches are."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("UV_", "PIP_")) or name in ("UV_LINK_MODE", "UV_CACHE_DIR")
    }
    return {
        **kept,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
    }


def uv_cache(environ: Mapping[str, str]) -> str:
    """Where uv unpacks wheels before it links them into an environment."""
    from platformdirs import user_cache_path

    return environ.get("UV_CACHE_DIR") or str(user_cache_path("uv", appauthor=False))


def logins(
    environ: Mapping[str, str], home: Path, index_root: str | None = None
) -> dict[str, tuple[str, str]]:
    """The credentials that the user's index URLs carry: host (and port) -> name and password.

    A page of an index may name its files without them. `index_root` is what `--index-root` says.

    >>> logins({"UV_INDEX": "https://me:s%40me@i.example:8443/simple"}, Path("/nowhere"))
    {'i.example:8443': ('me', 's@me')}
    """
    settings = {**pip_settings(environ, home)}
    texts = [settings.get("index-url", ""), settings.get("extra-index-url", "")]
    texts += [environ.get(name, "") for name in (*UV_INDEX_VARIABLES, "GPUSETUP_INDEX_ROOT")]
    texts.append(index_root or "")
    named = [*index_urls(users_settings(environ, home))]
    words = (word.partition("=") for word in environ.get("UV_INDEX", "").split())
    named += [(name, url) for name, _, url in words if url and "://" not in name]
    texts += [url for _, url in named]
    told = dict(filter(None, (_login_by_name(environ, name, url) for name, url in named)))
    return told | dict(filter(None, (login_of(word) for text in texts for word in text.split())))


def _login_by_name(
    environ: Mapping[str, str], name: str | None, url: str
) -> tuple[str, tuple[str, str]] | None:
    """What `UV_INDEX_<NAME>_USERNAME` and `_PASSWORD` say for an index of uv's."""
    stem = "UV_INDEX_" + re.sub(r"[^A-Z0-9]", "_", (name or "").upper())
    who, password = (environ.get(f"{stem}_{end}", "") for end in ("USERNAME", "PASSWORD"))
    if name is None or not (who or password):
        return None
    return urlsplit(url).netloc.rpartition("@")[2], (who, password)


def login_of(url: str) -> tuple[str, tuple[str, str]] | None:
    parts = urlsplit(url.partition("=")[2] if "=" in url.partition("://")[0] else url)
    who, _, host = parts.netloc.rpartition("@")
    if not who:
        return None
    name, _, password = who.partition(":")
    return host, (unquote(name), unquote(password))


def in_image_build() -> bool:
    """Whether we run in a step of an image build, as far as its builder shows: BuildKit, buildah,
    kaniko. The old docker builder does not show itself."""
    return (
        platform.node() == "buildkitsandbox"
        or "BUILDAH_ISOLATION" in os.environ
        or Path("/kaniko/executor").exists()
    )


UV_INDEX_VARIABLES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
)


def uv_is_configured(environ: Mapping[str, str], home: Path) -> bool:
    """Whether anything tells uv which indexes to use."""
    if any(environ.get(name) for name in UV_INDEX_VARIABLES):
        return True
    return says_where(users_settings(environ, home))


def uv_settings(pip: Mapping[str, str]) -> dict[str, str]:
    """pip's settings in uv's words.

    >>> uv_settings({"index-url": "https://mirror.example/simple"})
    {'UV_DEFAULT_INDEX': 'https://mirror.example/simple'}
    """
    words = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "trusted-host": "UV_INSECURE_HOST",
        "keyring-provider": "UV_KEYRING_PROVIDER",
    }
    told = {words[key]: " ".join(pip[key].split()) for key in words if pip.get(key)}
    if told.get("UV_KEYRING_PROVIDER") not in (None, "disabled", "subprocess"):
        del told["UV_KEYRING_PROVIDER"]  # `auto` and `import` are pip's alone
    if proxy := pip.get("proxy"):
        told |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    if pip.get("find-links"):
        told["UV_FIND_LINKS"] = ",".join(pip["find-links"].split())
    return told


# --- what a program complained of ----------------------------------------------------------------

COMPLAINTS: tuple[tuple[str, type[GpuSetupError]], ...] = (
    (r"No space left on device|File too large|quota exceeded|os error (27|28|122)\b|"
     r"Errno (27|28|122)\b|not enough space", Blocked),
    (r"Permission denied|os error 13\b|Errno 13\b|Read-only file system|Access is denied", Blocked),
    (r"externally.managed", Blocked),
    (r"invalid metadata|does not match given name|does not match given version|Received some "
     r"unexpected (JSON|HTML)|not a valid (JSON|HTML)|Metadata field|inconsistent (name|version)",
     Unreached),
    (r"timed out|[Tt]imeout|operation timed", Unreached),
    (r"\b(429|5\d\d) (Too Many|Internal|Bad Gateway|Service|Server|Gateway)|"
     r"status code[:]? (429|5\d\d)", Unreached),
    (r"[Cc]onnection (error|refused|reset|aborted)|error sending request|dns error|"
     r"Failed to fetch|Max retries|NewConnectionError|certificate|Could not connect|"
     r"Hash mismatch|DO NOT MATCH THE HASHES", Unreached),
    (r"No solution found|No matching distribution|Could not find a version|ResolutionImpossible|"
     r"has no wheels|because .* was not found in the package registry", Unsatisfiable),
)  # fmt: skip
"""What uv's or pip's complaint holds -> what it means for the user; first match."""


def complaint(title: str, said: Output, packages: Sequence[str] = ()) -> GpuSetupError:
    """The error for a program that failed: what it was to do, and its own last words."""
    text = plain_lines(said.stderr or said.stdout)
    if wanted := re.search(LOGIN, " ".join(text.split())):
        return Unreached(
            f"{without_credentials(wanted[1])}: the index wants a user name and a password "
            f"({wanted[2]})",
            hint="nothing was changed; put them into ~/.netrc or the index's URL "
            "(they are never printed or stored)",
        )
    kind = next((kind for pattern, kind in COMPLAINTS if re.search(pattern, text)), ToolFailed)
    if said.problem:
        return Blocked(f"{title}: {said.argv[0]}: {said.problem}", hint="nothing was changed")
    told = last_words(text) or how_it_ended(said)
    return kind(f"{title}: {told}", hint=what_is_missing(told, packages) or HINTS.get(kind))


def how_it_ended(said: Output) -> str:
    """For a program that said nothing.

    >>> how_it_ended(Output(argv=("/usr/bin/uv", "pip"), exit=-9))
    'uv was ended by SIGKILL'
    """
    program = Path(said.argv[0]).name
    if said.exit is not None and said.exit < 0:
        return f"{program} was ended by {signal.Signals(-said.exit).name}"
    return f"{program} ended with {said.exit} and said nothing"


LOGIN = r"index URL \((\S+)\) could not be queried due to a lack of .*?credentials \((40[137])"
"""How uv says, below a `No solution found`, that an index did not let it in."""

HINTS: dict[type[GpuSetupError], str] = {
    Unreached: "nothing was changed; try again, check the way to that host (proxy, certificates)",
    Blocked: "nothing was changed; mend that, then run this again",
    Unsatisfiable: "nothing was changed; name packages and versions that your index has",
    ToolFailed: "nothing was changed",
}


def plain_lines(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def last_words(text: str) -> str:
    """The lines that say why, on one line: from the first `error`, without help texts.

    >>> last_words("Resolved 1 package\\nerror: Failed to fetch `x`\\n  Caused by: 503\\n")
    'Failed to fetch `x`: 503'
    """
    lines = [line.strip(" │╰╭─▶\u00d7\t") for line in text.splitlines() if line.strip()]
    start = next(
        (i for i, line in enumerate(lines) if re.match(r"(?i)error\b|No solution", line)), None
    )
    chosen = lines[-3:] if start is None else lines[start : start + 8]
    told = [line for line in chosen if not line.startswith(("hint", "help"))]
    words = [re.sub(r"(?i)^(error|(caused by|cause)):\s*", "", line).rstrip(":") for line in told]
    whole = ": ".join(words)
    return whole if len(whole) <= LONGEST else f"{words[0][:LONGEST]}: ...: {words[-1][-LONGEST:]}"


LONGEST = 400
