"""The programs that install: where they are, their environment, what they complain of."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gpusetup.errors import Blocked
from gpusetup.install.credentials import split_login
from gpusetup.install.settings.pip_config import as_variables, pip_settings
from gpusetup.install.settings.uv_config import (
    index_urls,
    index_variable,
    link_urls,
    names_an_index,
    url_of_index,
    users_settings,
)
from gpusetup.installers.options import as_links

LIMITS = {
    "UV_HTTP_TIMEOUT": "6",
    "UV_HTTP_CONNECT_TIMEOUT": "5",
    "UV_HTTP_RETRIES": "1",
    "PIP_TIMEOUT": "6",
    "PIP_RETRIES": "0",
}
"""Seconds and tries while uv and pip are asked, so that a dead host is reported within 15 s."""
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
GUARD = "/gpusetup-constraints.txt"
"""How the name of a file ends that `gpusetup guard` wrote."""
CONDA_PROGRAMS = ("conda", "mamba", "micromamba")


def uv_program() -> str:
    """The uv binary that came with gpusetup, else the one on PATH."""
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise Blocked("The program uv is not found.", hint="`pip install uv`")
    return found


def asking_environment(
    environ: Mapping[str, str], home: Path, prefix: str | None = None
) -> dict[str, str]:
    """The environment in which uv and pip are asked: the user's own settings, short time limits.

    Where only pip is told which index to use, uv is told the same. Settings of another target, or
    of another question, are left out: only where packages come from is theirs to say. `prefix` is
    the target's, where its pip may have settings.
    """
    from gpusetup.install.settings.trust import trusted_environment

    always = {
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        **dict.fromkeys(PIP_OFF, "0"),
    }
    pip = pip_settings(environ, home, prefix)
    pip |= {"constraint": _not_ours(pip["constraint"])} if "constraint" in pip else {}
    learned = {} if uv_is_configured(environ, home) else uv_settings(pip)
    trusted = trusted_environment(environ, home)  # instead of pip's own on certificates
    pip = {key: value for key, value in pip.items() if key not in ("cert", "client-cert")}
    return {**learned, **_counting(environ), **as_variables(pip), **trusted, **LIMITS, **always}


def _counting(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of uv and pip that are about other questions, and without the
    guard's constraints: those are for other installers."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("PIP_", "UV_", "SSL_CERT_DIR")) or UV_COUNTS.fullmatch(name)
    }
    others = _not_ours(kept.pop("UV_CONSTRAINT", ""))
    return {**kept, **({"UV_CONSTRAINT": others} if others else {})}


def _not_ours(constraints: str) -> str:
    return " ".join(one for one in constraints.split() if not one.endswith(GUARD))


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
    texts += [index_root or "", environ.get("UV_FIND_LINKS", "").replace(",", " ")]
    texts += link_urls(users_settings(environ, home))
    named = [*index_urls(users_settings(environ, home))]
    words = (word.partition("=") for word in environ.get("UV_INDEX", "").split())
    named += [(name, url) for name, _, url in words if url and "://" not in name]
    texts += [url for _, url in named]
    logins = dict(filter(None, (_login_by_name(environ, name, url) for name, url in named)))
    return logins | dict(filter(None, (login_of(word) for text in texts for word in text.split())))


def _login_by_name(
    environ: Mapping[str, str], name: str | None, url: str
) -> tuple[str, tuple[str, str]] | None:
    """What `UV_INDEX_<NAME>_USERNAME` and `_PASSWORD` say for an index of uv's."""
    stem = index_variable(name or "")
    who, password = (environ.get(f"{stem}_{end}", "") for end in ("USERNAME", "PASSWORD"))
    if name is None or not (who or password):
        return None
    return urlsplit(split_login(url)[0]).netloc, (who, password)


def login_of(word: str) -> tuple[str, tuple[str, str]] | None:
    """Host and login of a URL, or of an index as uv names one: `name=URL`."""
    url, login = split_login(url_of_index(word))
    return (urlsplit(url).netloc, login) if login else None


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
)


def indexes(environ: Mapping[str, str], home: Path) -> Iterator[str]:
    """The indexes that variables and files of uv and pip name."""
    named = " ".join(environ.get(name, "") for name in (*UV_INDEX_VARIABLES, "PIP_INDEX_URL"))
    words = [url_of_index(word) for word in named.split()]
    words += [url for _, url in index_urls(users_settings(environ, home))]
    yield from (word for word in words if word.startswith(("http://", "https://")))


def uv_is_configured(environ: Mapping[str, str], home: Path) -> bool:
    """Whether anything tells uv which indexes to use."""
    if any(environ.get(name) for name in UV_INDEX_VARIABLES):
        return True
    return names_an_index(users_settings(environ, home))


def uv_settings(pip: Mapping[str, str]) -> dict[str, str]:
    """pip's settings in uv's words. pip takes the best of all its indexes, uv the first that has a
    name at all: with an extra index uv is told to do as pip does.

    >>> uv_settings({"index-url": "https://mirror.example/simple"})
    {'UV_DEFAULT_INDEX': 'https://mirror.example/simple'}
    """
    words = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "trusted-host": "UV_INSECURE_HOST",
        "keyring-provider": "UV_KEYRING_PROVIDER",
    }
    variables = {words[key]: " ".join(pip[key].split()) for key in words if pip.get(key)}
    if variables.get("UV_KEYRING_PROVIDER") not in (None, "disabled", "subprocess"):
        del variables["UV_KEYRING_PROVIDER"]  # `auto` and `import` are pip's alone
    if "UV_INDEX" in variables:
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if proxy := pip.get("proxy"):
        variables |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    if places := [*filter(None, map(_uv_place, pip.get("find-links", "").split()))]:
        variables["UV_FIND_LINKS"] = ",".join(places)
    return variables


def _uv_place(place: str) -> str | None:
    """One of pip's `find-links` as uv takes it; None for a folder that is not there, which pip
    passes over, and at which uv ends.

    >>> _uv_place("https://h/a,b"), _uv_place("/no/such/folder")
    ('https://h/a%2Cb', None)
    """
    if "://" in place:
        return place.replace(",", "%2C")
    path = os.path.expanduser(place)
    return as_links(path) if os.path.exists(path) else None


def with_links(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """The environment of a question to uv that finds a folder's wheels, too. A `--find-links` would
    take the place of what the user's variable names, and others may read a login in an argument.

    >>> with_links({"UV_FIND_LINKS": "/wheels,http://i/x/"}, "/a,b")["UV_FIND_LINKS"]
    'file:///a%2Cb,/wheels,http://i/x/'
    """
    places = filter(None, (as_links(folder), environment.get("UV_FIND_LINKS")))
    return {**environment, "UV_FIND_LINKS": ",".join(places)}
