"""Reads from uv's lock which files to download, and writes a lock with which uv downloads exactly
these files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gpusetup.errors import Unsatisfiable
from gpusetup.model.frozen import Frozen
from gpusetup.model.logins import split_login
from gpusetup.model.steps import Step
from gpusetup.uv.configuration import NUMBERS
from gpusetup.uv.indexes import handed_over, login_variables
from gpusetup.uv.program import ALONE, uv_program
from gpusetup.uv.settings import PersonSettings

FETCHING = {"UV_HTTP_TIMEOUT": "30", "UV_HTTP_RETRIES": "3"}
"""uv's timeout in seconds and number of retries while it downloads gigabytes."""
TORCH_INDEX = "torch index"
DEFAULT_INDEX = "default index"


class Wheel(Frozen):
    """A wheel to download."""

    name: str
    """The project's name."""
    version: str
    filename: str
    url: str
    sha256: str | None = None
    """The hash that the index states; None if it states none."""
    size_bytes: int | None = None
    source: str = DEFAULT_INDEX

    @property
    def host(self) -> str:
        """The host of the wheel's URL, without a login; "" for a file on disk."""
        place = urlsplit(self.url).netloc
        _, _, host = place.rpartition("@")
        return host


def wheel_of(package: Mapping[str, Any], family: Sequence[str], python_version: str) -> Wheel:
    """The wheel to download for a package in a lock. uv lists the best of the fitting wheels first.

    Raises Unsatisfiable if the package has none.
    """
    rows, name, version = package.get("wheels"), package["name"], package.get("version", "")
    if not rows:
        raise Unsatisfiable(
            f"{name} {version} has no wheel for Python {python_version} here",
            hint="nothing was changed; install it by itself first, then run this again",
        )
    row = rows[0]
    # A wheel from a folder has a path instead of a URL.
    url = row.get("url") or Path(row["path"]).absolute().as_uri()
    return Wheel(
        name=name,
        version=version,
        filename=row.get("name") or unquote(urlsplit(url).path).rpartition("/")[2],
        url=url,
        sha256=row.get("hashes", {}).get("sha256"),
        size_bytes=row.get("size"),
        source=TORCH_INDEX if name in family else DEFAULT_INDEX,
    )


def lock_text(wheels: Sequence[Wheel]) -> str:
    """The text of a lock file with these wheels, each with its URL and hash."""
    rows = ['lock-version = "1.0"\ncreated-by = "gpusetup"\n']
    for wheel in wheels:
        # Some old indexes state no hash; the plan mentions that before anything is downloaded.
        hashes = f'{{ sha256 = "{wheel.sha256}" }}' if wheel.sha256 else "{}"
        rows.append(
            f'[[packages]]\nname = "{wheel.name}"\nversion = "{wheel.version}"\n'
            f"wheels = [{{ url = {json.dumps(wheel.url)}, hashes = {hashes} }}]\n"
        )
    return "\n".join(rows)


def unpack_step(python: str, stage: str, *, hashed: bool, link_mode: str | None = None) -> Step:
    """The step that downloads the wheels of a lock and unpacks them in the folder `stage`.

    Each wheel is given by its URL and hash. `hashed` tells whether the index states a hash for each
    of them. The user's settings about versions were already applied in the plan, and uv accepts no
    such settings together with a lock.
    """
    options = ["--quiet", "--no-deps", "--no-build", "--preview-features", "pylock"]
    # uv refuses the whole lock if a single file has no hash.
    if hashed:
        options.append("--require-hashes")
    if link_mode:
        options += ["--link-mode", link_mode]
    where = ("--python", python, "--prefix", str(Path(stage, "root")))
    lock = ("-r", str(Path(stage, "pylock.toml")))
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(Path(stage, "tmp")))
    return Step(
        argv=(uv_program(), "pip", "install", *ALONE, *options, *where, *lock),
        title="download the wheels and unpack them next to the environment",
        environment={"PYTHONDONTWRITEBYTECODE": "1", **temporary},
        timeout_seconds=6 * 3600.0,
    )


def fetching_environment(settings: PersonSettings, torch_index: str) -> dict[str, str]:
    """The environment variables for uv's download, including every index that needs a login."""
    variables = dict(FETCHING)
    named: list[str] = []
    # If torch's index is a folder of wheels, it needs no login.
    if torch_index.startswith("http"):
        url, login = split_login(torch_index)
        named.append(f"torch={url}")
        if login:
            variables |= login_variables("TORCH", login)
    renamed, _ = handed_over(settings.indexes)
    for index in renamed:
        if index.login:
            named.append(f"{index.name}={index.url}")
    variables["UV_INDEX"] = " ".join(named)
    if settings.uses_keyring:
        variables["UV_KEYRING_PROVIDER"] = "subprocess"
    if settings.single("offline"):
        variables["UV_OFFLINE"] = "1"
    if settings.insecure_hosts:
        variables["UV_INSECURE_HOST"] = " ".join(settings.insecure_hosts)
    # Keep the user's limit on simultaneous downloads, because a slow disk or proxy may not handle
    # many.
    for variable, key in NUMBERS.items():
        count = settings.single(key)
        if count:
            variables[variable] = str(count)
    return settings.environment(variables)
