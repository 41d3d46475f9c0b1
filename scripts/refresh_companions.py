"""What the live index says of torchvision and torchaudio: which backends list them, and what the
METADATA of each wheel declares of torch."""

from __future__ import annotations

import email
import html
import re
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urljoin

import requests
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import parse_wheel_filename

from gpusetup.catalog.builds import index_url
from gpusetup.model.versions import parsed
from gpusetup.uv.question import Wheel

Row = dict[str, Any]
NAMES = ("torchvision", "torchaudio")
SECONDS = 20.0
PLATFORMS = {
    "manylinux": "linux",
    "linux": "linux",
    "win": "windows",
    "macosx": "macos",
}
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def with_companions(document: dict[str, Any], root: str, backends: Iterable[str]) -> bool:
    """Put what the indexes say into the rows of companions; whether anything changed."""
    rows = document["companions"]["rows"]
    before = repr(rows)
    for backend in backends:
        for name in NAMES:
            for wheel in _newest(_page(root, backend, name)):
                _note(rows, name, backend, wheel)
    return repr(rows) != before


def _page(root: str, backend: str, name: str) -> list[Wheel]:
    try:
        return wheels_on(f"{index_url(backend, root)}/{name}/")
    except requests.RequestException as problem:
        print(f"not asked: {problem}", file=sys.stderr)
        return []


def wheels_on(url: str) -> list[Wheel]:
    """The wheels that a page of an index lists."""
    page = requests.get(url, timeout=SECONDS)
    page.raise_for_status()
    found = []
    for link in re.findall(r'<a (?![^>]*data-yanked)[^>]*href="([^"#]+\.whl)', page.text):
        name = unquote(link.rpartition("/")[2])
        project, version, *_ = parse_wheel_filename(name)
        found.append(
            Wheel(
                name=project,
                version=str(version),
                filename=name,
                url=urljoin(page.url, html.unescape(link)),
            )
        )
    return found


def _newest(wheels: Iterable[Wheel]) -> list[Wheel]:
    """The wheels of the newest final release."""
    final = [w for w in wheels if not parsed(w.version).is_prerelease]
    newest = max((parsed(w.version).release for w in final), default=())
    return [w for w in final if parsed(w.version).release == newest]


def _note(rows: list[Row], name: str, backend: str, wheel: Wheel) -> None:
    """One wheel: the row of its release, made where it is new, says where it was seen."""
    public = wheel.version.partition("+")[0]
    row = next((r for r in rows if (r["name"], r["version"]) == (name, public)), None)
    if row is None or "declares" not in row:
        declared = declared_torch(read_metadata(wheel))
        if declared is None:
            return
        row = row or _new_row(rows, name, public, declared)
        if row is None:
            return
        row["declares"] = declared
    for platform in platforms_of(wheel):
        here = set(row.setdefault("seen", {}).get(platform, "").split())
        row["seen"][platform] = " ".join(sorted(here | {backend}))


def _new_row(rows: list[Row], name: str, public: str, declared: str) -> Row | None:
    """A row for a release that serves more than one torch; None for one that is pinned."""
    spec = declared.removeprefix("torch")
    if not spec or spec.startswith("=="):
        return None
    like = next((r for r in reversed(rows) if r["name"] == name), {"cuda": "label"})
    row = {"name": name, "version": public, "torch": spec, "cuda": like["cuda"]}
    row |= {"status": "inferred", "source": "its METADATA on the index; CUDA as the row before"}
    rows.append(row)
    return row


def declared_torch(metadata: str | None) -> str | None:
    """What a wheel asks of torch: `torch>=2.11`, "" for nothing; None where it was not read.

    >>> declared_torch("Name: a\\nRequires-Dist: torch (>=2.14.0)\\n\\n")
    'torch>=2.14.0'
    """
    if metadata is None:
        return None
    for text in email.message_from_string(metadata).get_all("Requires-Dist", []):
        try:
            asked = Requirement(text)
        except InvalidRequirement:
            continue
        if asked.name == "torch":
            return f"torch{asked.specifier}"
    return ""


def read_metadata(wheel: Wheel) -> str | None:
    """The METADATA of a wheel, from beside it (PEP 658)."""
    try:
        answer = requests.get(f"{wheel.url}.metadata", timeout=SECONDS)
        answer.raise_for_status()
    except requests.RequestException as problem:
        print(f"METADATA of {wheel.filename} was not read: {problem}", file=sys.stderr)
        return None
    return answer.text


def platforms_of(wheel: Wheel) -> set[str]:
    """The platforms of a wheel in the catalog's words: `linux-x86_64`."""
    found = set()
    for tag in parse_wheel_filename(wheel.filename)[3]:
        family = next(
            (ours for start, ours in PLATFORMS.items() if tag.platform.startswith(start)), ""
        )
        machine = next((MACHINES[m] for m in MACHINES if tag.platform.endswith(m)), "")
        if family and machine:
            found.add(f"{family}-{machine}")
    return found
