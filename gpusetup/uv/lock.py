"""Reads from uv's lock which files to download, and writes a lock with which uv downloads exactly
these files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gpusetup.errors import Unsatisfiable
from gpusetup.model.frozen import Frozen
from gpusetup.model.logins import split_login
from gpusetup.model.steps import Step
from gpusetup.uv.program import Settings, uv_environment, uv_program, with_torch_index
from gpusetup.uv.question import Question

FETCHING = {"UV_HTTP_TIMEOUT": "30", "UV_HTTP_RETRIES": "3"}
"""uv's timeout in seconds and number of retries while it downloads gigabytes."""
APPLIED = ("UV_CONSTRAINT", "UV_OVERRIDE")
"""The user's variables that were applied in the plan, and that uv refuses together with a lock."""


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
    served_by: str | None = None
    """The host to which the URL is redirected; None if it is not, or if that is unknown."""
    index: str | None = None
    """The URL of the index that the wheel comes from, without a login; None if it is unknown."""
    is_of_torch_index: bool = False
    unpacked_bytes: int | None = None
    """The size of its files, if the wheel is on this disk."""

    @property
    def host(self) -> str:
        """The host of the wheel's URL, without a login; "" for a file on disk."""
        place = urlsplit(self.url).netloc
        _, _, host = place.rpartition("@")
        return host


def wheel_of(package: Mapping[str, Any], question: Question, settings: Settings) -> Wheel:
    """The wheel to download for a package in the lock that answers a question. uv lists the best of
    the fitting wheels first.

    Raises Unsatisfiable if the package has none.
    """
    rows, name, version = package.get("wheels"), package["name"], package.get("version", "")
    if not rows:
        raise Unsatisfiable(
            f"{name} {version} has no wheel for Python {question.python_version} here",
            hint="nothing was changed; install it by itself first, then run this again",
        )
    row = rows[0]
    # A wheel from a folder has a path instead of a URL.
    url = row.get("url") or Path(row["path"]).absolute().as_uri()
    is_of_torch_index = name in question.names
    index = split_login(question.index)[0] if is_of_torch_index else settings.only_index
    is_from_index = url.startswith("http") and not settings.has_no_index
    return Wheel(
        name=name,
        version=version,
        filename=row.get("name") or unquote(urlsplit(url).path).rpartition("/")[2],
        url=url,
        sha256=row.get("hashes", {}).get("sha256"),
        size_bytes=row.get("size"),
        index=index if is_from_index else None,
        is_of_torch_index=is_of_torch_index,
    )


def lock_text(wheels: Sequence[Wheel]) -> str:
    """The text of a lock file with these wheels, each with its URL and hash, and with its index, by
    which uv finds a wheel that it has in its cache already."""
    rows = ['lock-version = "1.0"\ncreated-by = "gpusetup"\n']
    for wheel in wheels:
        # Some old indexes state no hash; the plan mentions that before anything is downloaded.
        hashes = f"{{ sha256 = {json.dumps(wheel.sha256)} }}" if wheel.sha256 else "{}"
        index = f"index = {json.dumps(wheel.index)}\n" if wheel.index else ""
        rows.append(
            f'[[packages]]\nname = "{wheel.name}"\nversion = "{wheel.version}"\n{index}'
            f"wheels = [{{ url = {json.dumps(wheel.url)}, hashes = {hashes} }}]\n"
        )
    return "\n".join(rows)


def unpack_step(python: str, stage: str, settings: Settings) -> Step:
    """The step that downloads the wheels of a lock and unpacks them in the folder `stage`.

    Each wheel is given by its URL and hash, with which uv compares the file.
    """
    options = ["--quiet", "--no-deps", "--no-build", "--no-compile-bytecode"]
    options += ["--preview-features", "pylock"]
    where = ("--python", python, "--prefix", str(Path(stage, "root")))
    lock = ("-r", str(Path(stage, "pylock.toml")))
    if settings.has_target:
        # A target folder in the user's settings would count more than `--prefix`.
        options.append("--no-config")
    if settings.links_files:
        # A link into the cache would break when the cache is emptied.
        options += ["--link-mode", "copy"]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(Path(stage, "tmp")))
    return Step(
        argv=(uv_program(), "pip", "install", *options, *where, *lock),
        environment={"PYTHONDONTWRITEBYTECODE": "1", **temporary},
        timeout_seconds=6 * 3600.0,
    )


def fetching_environment(torch_index: str) -> dict[str, str]:
    """The environment variables for uv's download: the user's, and the login of torch's index."""
    more = {name: os.environ.get(name, value) for name, value in FETCHING.items()}
    # If torch's index is a folder of wheels, it needs no login.
    if split_login(torch_index)[1]:
        more["UV_INDEX"] = with_torch_index(torch_index)
    return uv_environment(more, login_of=torch_index, drop=APPLIED)
