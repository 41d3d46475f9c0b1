"""A folder of wheels with a manifest: filled where there is a network, used where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from gpusetup import __version__
from gpusetup.errors import Blocked
from gpusetup.install.fetching.file_url import local_path
from gpusetup.install.fetching.wheels import Wheel, best, parsed_name
from gpusetup.install.switching.files import link_or_copy, refuse_newer, write_safely
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import parsed
from gpusetup.system.refused import blocked_by_files

MANIFEST = "manifest.json"


class Kept(Frozen):
    name: str
    version: str
    filename: str
    sha256: str
    size_bytes: int


class Manifest(Frozen):
    """What a wheelhouse holds, and for which Python and machine it was filled."""

    schema: Literal["gpusetup.wheelhouse/1"] = "gpusetup.wheelhouse/1"
    gpusetup: str = __version__
    filled_at: str
    python: str
    platform: str
    wheels: tuple[Kept, ...]


def write_manifest(
    folder: Path, files: Iterable[Path], python: str, platform: str, filled_at: str
) -> Path:
    """Note every wheel that was fetched, besides those noted before that are still there."""
    from gpusetup.install.fetching.wheel_cache import digest_of
    from gpusetup.model.codec import to_json

    known = {one.filename: one for one in _noted(folder) if (folder / one.filename).is_file()}
    for path in files:
        named = parsed_name(path.name)
        assert named is not None, "it was chosen by its name"
        known[path.name] = Kept(
            name=named[0],
            version=named[1],
            filename=path.name,
            sha256=digest_of(path),
            size_bytes=path.stat().st_size,
        )
    manifest = Manifest(
        filled_at=filled_at, python=python, platform=platform, wheels=tuple(known.values())
    )
    write_safely(folder / MANIFEST, to_json(manifest, indent=1) + "\n")
    return folder / MANIFEST


def _noted(folder: Path) -> tuple[Kept, ...]:
    from gpusetup.model.codec import from_json

    path = folder / MANIFEST
    if not path.is_file():
        return ()
    raw = path.read_bytes()
    refuse_newer(raw, "gpusetup.wheelhouse/1", what=str(path))
    return from_json(raw, Manifest, what=str(path)).wheels


def wheels_in(folder: Path) -> tuple[Wheel, ...]:
    """The wheels of a folder, with the hashes of its manifest; `Blocked` where there are none."""
    hint = "`--wheelhouse` names the folder that `gpusetup install --download DIR` filled"
    with blocked_by_files(f"{folder} cannot be read", hint):
        files = sorted(folder.iterdir())
    noted = {one.filename: one for one in _noted(folder)}
    lost = sorted(name for name in noted if not (folder / name).is_file())
    if lost:
        raise Blocked(
            f"{folder} lacks {lost[0]}, which its manifest names",
            hint="nothing was changed; copy the folder again, whole",
        )
    found = []
    for path in files:
        named = parsed_name(path.name)
        if named is not None:
            found.append(_wheel(path, named[0], named[1], noted.get(path.name)))
    if not found:
        raise Blocked(
            f"{folder} holds no wheels",
            hint="fill it where there is a network: `gpusetup install --download DIR`",
        )
    return tuple(found)


def _wheel(path: Path, name: str, version: str, noted: Kept | None) -> Wheel:
    return Wheel(
        name=name,
        version=version,
        filename=path.name,
        url=path.absolute().as_uri(),
        sha256=noted.sha256 if noted else None,
        size_bytes=path.stat().st_size,
        source=str(path.parent),
    )


def newest_torch(wheels: Sequence[Wheel], tags: Sequence[str]) -> str:
    """The newest torch that the folder has for a target, without its local label."""
    torches = [w for w in wheels if w.name == "torch" and best([w], None, tags)]
    if not torches:
        folder = wheels[0].source if wheels else "the folder"
        raise Blocked(
            f"{folder} has no wheel of torch for {tags[0]}",
            hint="fill it by a Python of the same version: `gpusetup install --download DIR`",
        )
    return max((w.version.partition("+")[0] for w in torches), key=parsed)


def page_of(wheels: Sequence[Wheel]) -> Callable[[str, str], tuple[str, str, str] | None]:
    """The folder as index pages: what it has of a project on a backend (`.../cu124/torch/`)."""

    def page(url: str, _accept: str) -> tuple[str, str, str] | None:
        *_, backend, project, _end = unquote(urlsplit(url).path).split("/")
        rows = [
            {
                "filename": wheel.filename,
                "url": wheel.url,
                "hashes": {"sha256": wheel.sha256} if wheel.sha256 else {},
                "size": wheel.size_bytes,
            }
            for wheel in wheels
            if wheel.name == project and wheel.version.partition("+")[2] in ("", backend)
        ]
        if not rows:
            return None
        return url, "application/vnd.pypi.simple.v1+json", json.dumps({"files": rows})

    return page


def located(found: Iterable[Wheel], wheels: Sequence[Wheel]) -> tuple[Wheel, ...]:
    """What a resolver named, as the files of the folder that they are."""
    here = {wheel.filename: wheel for wheel in wheels}
    return tuple(here.get(one.filename, one) for one in found)


def link_others(wheels: Iterable[Wheel], family: Iterable[Wheel], folder: Path) -> None:
    """Links to the folder's wheels but those of the family, for which there are stand-ins."""
    names = {one.name for one in family}
    for wheel in wheels:
        if wheel.name not in names:
            link_or_copy(local_path(wheel.url), folder / wheel.filename)
