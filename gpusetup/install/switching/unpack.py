"""Downloads and unpacks the wheels with uv into a staging folder, and checks every file against the
wheels' lists (RECORD).

uv checks each wheel's hash when it downloads the wheel. But the files in uv's cache may have
changed since then: cut on disk, or because somebody edited a file of an environment that shares it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from packaging.utils import canonicalize_name

from gpusetup.errors import ToolFailed, Unreached
from gpusetup.install.job import InstallJob, Plan, run_step
from gpusetup.install.switching.files import files_below, remove, sha256_of
from gpusetup.install.switching.journal import STAGING, STORE
from gpusetup.install.target import LIBRARIES, Layout, record_rows
from gpusetup.model.logins import split_login
from gpusetup.model.steps import Step
from gpusetup.uv.errors import uv_error
from gpusetup.uv.program import uv_environment, uv_program, with_torch_index
from gpusetup.uv.question import APPLIED, Wheel, lock_text, size_text

UV_LOCK = ".lock"
"""The file that uv leaves in a prefix into which it has installed."""
MOST_READERS = 8
"""How many files are read at once; more would not be faster on a disk."""
FILES_AT_ONCE = 200
"""How many files one thread reads at a time: most of torch's 15,000 files have few kilobytes."""
MOST_HASHED_BYTES = 4 << 20
"""A larger file is compared by its size alone. That shows a cut file, and nobody edits a library by
hand; to hash the gigabytes of CUDA's libraries takes longer than to link them."""
LIBRARY_DEPTH = 2
"""The maximum depth of the library folder below a prefix, as in `lib/python3.11/site-packages`."""


ListedDigests = dict[str, dict[str, str]]
"""Maps each unpacked file to the digests that the lists state for it, each with its number of bytes
as text; either is empty if a list states none, as for the list itself. Two wheels may contain the
same file, even with different content (opencv-python and opencv-python-headless): as with uv alone,
the one that is unpacked last counts."""


def staging_folder(prefix: str) -> str:
    """The folder in an environment in which wheels are unpacked before their files are moved."""
    return os.path.join(prefix, STORE, STAGING)


def unpacked(job: InstallJob, plan: Plan, layout: Layout) -> dict[str, str]:
    """Unpack the wheels, once more with an empty cache if a file fails its check. Maps each
    unpacked file to its place in the environment."""
    try:
        return _unpack(job, plan, layout)
    except UnpackedFilesDiffer:
        # Without these packages in its cache, uv downloads them again.
        forget = (uv_program(), "cache", "clean", *(wheel.name for wheel in plan.wheels))
        run_step(job, Step(argv=forget), uv_environment())
        return _unpack(job, plan, layout)


def _unpack(job: InstallJob, plan: Plan, layout: Layout) -> dict[str, str]:
    """Run uv in the staging folder, check the unpacked files, and map each to its place. Raises the
    error of uv, or UnpackedFilesDiffer."""
    folder = Path(staging_folder(layout.prefix))
    remove(folder)
    # The plan's last step (`unpack_step`) names `tmp`, `pylock.toml` and `root` in this folder.
    (folder / "tmp").mkdir(parents=True)
    # Nobody else may change the files between their check and their move.
    folder.chmod(0o700)
    (folder / "pylock.toml").write_text(lock_text(plan.wheels), encoding="utf-8")
    size_bytes = sum(wheel.size_bytes or 0 for wheel in plan.wheels)
    job.talk(f"Fetching {len(plan.wheels)} wheels ({size_text(size_bytes)}) ...")
    # uv finds a login under the name of torch's index, so the index must be named to it.
    is_private = split_login(plan.torch_index)[1] is not None
    more = {"UV_INDEX": with_torch_index(plan.torch_index)} if is_private else {}
    environment = uv_environment(more, login_of=plan.torch_index, drop=APPLIED)
    output = run_step(job, plan.steps[-1], environment)
    if not output.ok:
        raise uv_error("cannot download and unpack the wheels", output, Unreached)
    return checked_places(folder / "root", plan.wheels, layout)


# --- checking the unpacked files ------------------------------------------------------------------


class UnpackedFilesDiffer(ToolFailed):
    """The unpacked files differ from what the wheels' lists say."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="nothing was changed; run this again")


def checked_places(root: Path, wheels: Sequence[Wheel], layout: Layout) -> dict[str, str]:
    """Maps each unpacked file to its place in the environment.

    Raises UnpackedFilesDiffer if a file is not as its wheel's list states.
    """
    listed_digests = _digests_listed_in(root, {wheel.name for wheel in wheels})
    # Computed once for each folder: torch has 15,000 files in 1,100 folders.
    place_of_folder = cache(lambda folder: _place_of_folder(folder, root, layout))
    places = {}
    for path in listed_digests:
        folder, name = os.path.split(path)
        places[path] = os.path.join(place_of_folder(folder), name)
    _require_same_content(root, listed_digests)
    return places


def _digests_listed_in(root: Path, names: set[str]) -> ListedDigests:
    """What the lists of the unpacked wheels state about each of their files. Raises
    UnpackedFilesDiffer if there are other files or lists than those of the packages `names`."""
    unpacked_files = frozenset(files_below(str(root)))
    for path in unpacked_files:
        # A link could lead out of the environment, so only regular files are accepted.
        if os.path.islink(path) or not os.path.isfile(path):
            raise UnpackedFilesDiffer(f"This is not a regular file: {os.path.relpath(path, root)}")
    # Only lists directly in a library folder count: a package may hold a copy of another one.
    records = [
        path
        for path in unpacked_files
        if path.endswith(f".dist-info{os.sep}RECORD")
        and os.path.basename(os.path.dirname(os.path.dirname(path))) in LIBRARIES
    ]
    # `root/lib/python3.11/site-packages/torch-2.9.1.dist-info/RECORD` is of `torch`.
    projects = {Path(record).parent.name.partition("-")[0] for record in records}
    unexpected = {canonicalize_name(project) for project in projects} ^ names
    if unexpected:
        message = f"The files unpacked in {root} are not the requested package"
        raise UnpackedFilesDiffer(f"{message}: {', '.join(sorted(unexpected))}")
    listed_digests: ListedDigests = {}
    for record in records:
        library = os.path.dirname(os.path.dirname(record))
        for row in record_rows(record):
            # A script has a path outside the library, such as `../../../bin/torchrun`.
            path = os.path.normpath(os.path.join(library, row[0]))
            digest = row[1] if len(row) > 1 else ""
            size = row[2] if len(row) > 2 else ""
            listed_digests.setdefault(path, {})[digest] = size
    missing = sorted(listed_digests.keys() - unpacked_files)
    if missing:
        raise UnpackedFilesDiffer(f"{os.path.relpath(missing[0], root)} was not unpacked")
    unlisted = sorted(unpacked_files - listed_digests.keys() - {str(root / UV_LOCK)})
    if unlisted:
        raise UnpackedFilesDiffer(
            f"uv wrote a file that no wheel lists: {os.path.relpath(unlisted[0], root)}"
        )
    return listed_digests


def _require_same_content(root: Path, listed_digests: ListedDigests) -> None:
    """Raise UnpackedFilesDiffer if the content of a file does not match the digest in its list
    (https://packaging.python.org/specifications/recording-installed-packages/)."""

    def is_wrong(path: str) -> bool:
        """Whether the content of a file matches none of its digests."""
        size_of_digest = listed_digests[path]
        # A list contains itself, without a digest.
        if "" in size_of_digest:
            return False
        size = os.path.getsize(path)
        # A large file is not hashed if all lists state its size.
        if size > MOST_HASHED_BYTES and {*size_of_digest.values()} == {str(size)}:
            return False
        # A list states `sha256=` and the base64 text without its padding. Any other digest, which
        # wheels do not use, counts as wrong.
        digest = base64.urlsafe_b64encode(bytes.fromhex(sha256_of(path))).decode()
        return f"sha256={digest.rstrip('=')}" not in size_of_digest

    def wrong_in(batch: Sequence[str]) -> list[str]:
        return [path for path in batch if is_wrong(path)]

    paths = [*listed_digests]
    starts = range(0, len(paths), FILES_AT_ONCE)
    batches = [paths[start : start + FILES_AT_ONCE] for start in starts]
    wrong: list[str] = []
    with ThreadPoolExecutor(min(MOST_READERS, os.cpu_count() or 1)) as pool:
        for wrong in pool.map(wrong_in, batches):
            if wrong:
                break
    if wrong:
        name = os.path.relpath(wrong[0], root)
        raise UnpackedFilesDiffer(f"The unpacked files differ from the wheel's list: {name}")


# --- places in the environment --------------------------------------------------------------------


def _place_of_folder(folder: str, root: Path, layout: Layout) -> str:
    """The folder in the environment for the files of an unpacked folder."""
    below_root = os.path.relpath(folder, root)
    parts = [part for part in below_root.split(os.sep) if part != "."]
    # Python on Debian and Fedora puts `local` before all other parts.
    if parts and parts[0] == "local":
        parts = parts[1:]
    # A folder named like a library further down belongs to a package.
    for depth, part in enumerate(parts[: LIBRARY_DEPTH + 1]):
        if part in LIBRARIES:
            # Fedora keeps compiled packages in a separate folder.
            is_platform = parts[0] == "lib64" and layout.platlib != layout.purelib
            library = layout.platlib if is_platform else layout.purelib
            return os.path.join(library, *parts[depth + 1 :])
    if parts and parts[0] in ("bin", "Scripts"):
        return os.path.join(layout.scripts, *parts[1:])
    return os.path.join(layout.data, *parts)
