"""Wheels that hold nothing but their METADATA, to ask uv or pip with before torch is fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpusetup.install.fetching.hollow_wheel import stand_in
from gpusetup.install.fetching.ranged import METADATA_BYTES, metadata_in
from gpusetup.install.fetching.wheel_cache import check_here, is_here, is_kept
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.job import work_folder
from gpusetup.system.refused import blocked_by_files

if TYPE_CHECKING:
    from gpusetup.install.job import Job


def is_metadata_of(wheel: Wheel, text: str) -> bool:
    """Whether a text is the METADATA of a wheel, and can be read by a resolver.

    >>> one = Wheel(name="x", version="1.0", filename="", url="")
    >>> head = "Metadata-Version: 2.1\\nName: X\\nVersion: 1.0\\n"
    >>> [is_metadata_of(one, f"{head}Requires-Dist: {need}") for need in ("y", "?")]
    [True, False]
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

    if len(text) > METADATA_BYTES or not text.startswith("Metadata-Version:"):
        return False
    head = text.replace("\r\n", "\n").partition("\n\n")[0]
    rows = [line.partition(":")[::2] for line in head.splitlines() if not line[:1].isspace()]
    said = {key.lower(): value.strip() for key, value in reversed(rows)}
    try:
        version = Version(said.get("version", ""))
        for key, value in rows:
            if key.lower() == "requires-dist":
                Requirement(value.strip())
    except (InvalidRequirement, InvalidVersion):
        return False
    major = said["metadata-version"].partition(".")[0]
    same = (canonicalize_name(said.get("name", "")), str(version)) == (wheel.name, wheel.version)
    return same and major in ("1", "2")


@contextmanager
def stand_ins(job: Job, family: Sequence[Wheel]) -> Iterator[Path | None]:
    """A folder of stand-ins for the family's wheels; None where one's METADATA cannot be had yet.

    Not the wheels themselves: uv would unpack gigabytes only to read what they require.
    """
    with work_folder(job) as place:
        folder = place / "links"
        folder.mkdir()
        yield folder if all(_add_stand_in(job, wheel, folder) for wheel in family) else None


def _add_stand_in(job: Job, wheel: Wheel, folder: Path) -> bool:
    metadata = _metadata(job, wheel)
    if metadata is None:
        return False
    hint = "nothing was changed; make room there, or set XDG_CACHE_HOME to a larger disk"
    with blocked_by_files(f"{folder} cannot be written", hint):
        stand_in(wheel, metadata, folder)
    return True


def _metadata(job: Job, wheel: Wheel) -> str | None:
    kept = job.cache / wheel.filename
    if is_here(wheel, kept):
        check_here(wheel, kept)
    if is_kept(wheel, kept):
        return metadata_in(kept)
    if wheel.metadata_url and (answer := job.fetcher.text(wheel.metadata_url)):
        text = answer[2].lstrip("\ufeff")
        if is_metadata_of(wheel, text):
            job.fetcher.planned_by[wheel.filename] = text
            return text
        job.log.line(f"{wheel.filename}: what came as its METADATA is none")
    return job.fetcher.metadata_inside(wheel.url)
