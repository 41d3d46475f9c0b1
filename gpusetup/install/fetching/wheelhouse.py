"""A folder of wheels with a manifest: filled where there is a network, used where there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from gpusetup.errors import Blocked
from gpusetup.install.fetching.file_url import local_path
from gpusetup.install.fetching.wheels import Wheel, parsed_name
from gpusetup.install.switching.files import link_or_copy, refuse_newer, write_safely
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.versions import parsed
from gpusetup.system.refused import blocked_by_files

MANIFEST = "manifest.json"


class Manifest(Frozen):
    """What `--download` has put into a folder."""

    schema: Literal["gpusetup.wheelhouse/1"] = "gpusetup.wheelhouse/1"
    wheels: Mapping[str, str]
    """File name -> sha256."""


def write_manifest(folder: Path, files: Iterable[Path]) -> None:
    """Note every wheel that was fetched, besides those noted before that are still there."""
    from gpusetup.model.codec import to_json

    known = {name: digest for name, digest in _noted(folder).items() if (folder / name).is_file()}
    known.update({path.name: sha256_of(path) for path in files})
    write_safely(folder / MANIFEST, to_json(Manifest(wheels=known), indent=1) + "\n")


def _noted(folder: Path) -> Mapping[str, str]:
    from gpusetup.model.codec import from_json

    path = folder / MANIFEST
    if not path.is_file():
        return {}
    raw = path.read_bytes()
    refuse_newer(raw, "gpusetup.wheelhouse/1", what=str(path))
    return from_json(raw, Manifest, what=str(path)).wheels


def wheels_in(folder: Path) -> tuple[Wheel, ...]:
    """The wheels of a folder, with the hashes of its manifest; `Blocked` where there are none."""
    hint = "`--offline` names the folder that `gpusetup install --download DIR` filled"
    with blocked_by_files(f"{folder} cannot be read", hint):
        files = sorted(folder.iterdir())
    noted = _noted(folder)
    if lost := sorted(name for name in noted if not (folder / name).is_file()):
        raise Blocked(
            f"{folder} lacks {lost[0]}, which its manifest names",
            hint="nothing was changed; copy the folder again, whole",
        )
    found = tuple(
        Wheel(
            name=named[0],
            version=named[1],
            filename=path.name,
            url=path.absolute().as_uri(),
            sha256=noted.get(path.name),
            size_bytes=path.stat().st_size,
            source=str(path.parent),
        )
        for path in files
        if (named := parsed_name(path.name)) is not None
    )
    if not found:
        raise Blocked(
            f"{folder} holds no wheels",
            hint="fill it on a machine with a network: `gpusetup install --download DIR`",
        )
    return found


def newest_torch(wheels: Sequence[Wheel], tag: str) -> str:
    """The newest torch that the folder has for a Python (`cp311`), without its local label."""
    torches = [one for one in wheels if one.name == "torch" and f"-{tag}-" in one.filename]
    if not torches:
        folder = wheels[0].source if wheels else "the folder"
        raise Blocked(
            f"{folder} has no wheel of torch for {tag}",
            hint="fill it with a Python of the same version: `gpusetup install --download DIR`",
        )
    return max((one.version.partition("+")[0] for one in torches), key=parsed)


def links_to(wheels: Sequence[Wheel], backend: str, folder: Path) -> Path:
    """A folder with links to the wheels of a backend, and to those of none."""
    folder.mkdir()
    for wheel in wheels:
        if wheel.version.partition("+")[2] in ("", backend):
            link_or_copy(local_path(wheel.url), folder / wheel.filename)
    return folder


def checked(found: Sequence[Wheel], wheels: Sequence[Wheel]) -> tuple[Wheel, ...]:
    """What uv named, as the files of the folder that they are; `Blocked` where one is not what the
    manifest says."""
    here = {one.filename: one for one in wheels}
    for one in found:
        noted = here[one.filename].sha256
        if noted and noted.lower() != one.sha256:
            raise Blocked(
                f"{local_path(here[one.filename].url)}: wrong hash: expected sha256 "
                f"{noted.lower()}, found sha256 {one.sha256}",
                hint="nothing was changed; fill it again: `gpusetup install --download DIR`",
            )
    return tuple(replace(here[one.filename], sha256=one.sha256) for one in found)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
