"""A folder of wheels with a manifest: filled where there is a network, used where there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from gpusetup.errors import Blocked
from gpusetup.install.fetching.wheels import Wheel, parsed_name
from gpusetup.install.switching.files import refuse_newer, write_safely
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


def exact_in(wheels: Sequence[Wheel], name: str, version: str, backend: str) -> str:
    """The requirement for a package of torch's family that only the wheel of a backend meets, or
    the one without a label."""
    there = {one.version for one in wheels if one.name == name}
    labelled = f"{version}+{backend}"
    plain = version in there and labelled not in there
    return f"{name}=={version if plain else labelled}"


def as_noted(found: Sequence[Wheel], wheels: Sequence[Wheel]) -> tuple[Wheel, ...]:
    """What uv named, as the files of the folder that they are: uv compares them with the hashes of
    the manifest."""
    here = {one.filename: one for one in wheels}
    noted = ((here[one.filename], one) for one in found)
    return tuple(replace(there, sha256=there.sha256 or one.sha256) for there, one in noted)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
