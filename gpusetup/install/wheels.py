"""Folders of wheels, which bring an installation to a machine without a network: `--download DIR`
fills one, `--offline DIR` installs from it. Its SHA256SUMS lists the hash of each wheel."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from gpusetup import named_file
from gpusetup.errors import BadInput, Blocked, Unreached
from gpusetup.install.job import InstallJob, Plan
from gpusetup.install.switching.files import no_link, sha256_of, write_safely
from gpusetup.model.frozen import replace
from gpusetup.model.logins import split_login, without_logins
from gpusetup.model.versions import parsed
from gpusetup.system.refusals import blocked_by
from gpusetup.uv.pages import answered
from gpusetup.uv.question import Wheel

SUMS = "SHA256SUMS"
"""The file in which `--download` lists its wheels, in the form that `sha256sum -c` reads."""
MOST_SUMS_BYTES = 16 << 20
"""The maximum size of a list of hashes; one for ten thousand wheels has 1.5 MB."""
SUM = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](?:\./)?(?P<name>[^/\\]+)")
"""A line from `sha256sum`, with `*` before the name if `--binary` was used. Names with a slash do
not match, because they could lead out of the folder."""
MOST_SHOWN = 100
"""The maximum length of a quoted line, in characters."""
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")


def noted(folder: Path) -> dict[str, str]:
    """Maps file names to sha256, for those listed files that still exist in a folder.

    Raises Blocked if the list cannot be read, because then no wheel could be checked.
    """
    path = folder / SUMS
    if not os.path.lexists(path):
        return {}
    sums: dict[str, str] = {}
    try:
        for line in filter(str.strip, named_file.read_text(path, MOST_SUMS_BYTES).splitlines()):
            row = SUM.fullmatch(line.rstrip())
            if row is None:
                raise BadInput(f"no sha256 with a file of this folder: {line[:MOST_SHOWN]!r}")
            if sums.setdefault(row["name"], row["digest"].lower()) != row["digest"].lower():
                raise BadInput(f"two hashes for {row['name'][:MOST_SHOWN]}")
    except BadInput as problem:
        raise Blocked(
            f"{path} cannot be understood, so no wheel can be compared with it: {problem.message}",
            hint="nothing was changed; write the list again in that folder: "
            f"`sha256sum *.whl > {SUMS}`, or delete it if you trust the files",
        ) from None
    return {name: digest for name, digest in sums.items() if (folder / name).is_file()}


def in_folder(folder: str, wheels: Iterable[Wheel]) -> Iterator[Wheel]:
    """Yields the wheels with their size in the folder and the hash that was recorded when the
    folder was filled."""
    sums = noted(Path(folder))
    for wheel in wheels:
        path = Path(folder, wheel.filename)
        try:
            with zipfile.ZipFile(path) as archive:
                unpacked_bytes = sum(file.file_size for file in archive.infolist())
        except (OSError, ValueError, zipfile.BadZipFile):
            # uv says what is wrong with the file.
            unpacked_bytes = None
        yield replace(
            wheel,
            sha256=sums.get(wheel.filename, wheel.sha256),
            size_bytes=path.stat().st_size if path.is_file() else wheel.size_bytes,
            unpacked_bytes=unpacked_bytes,
        )


def newest_torch(folder: str, python: str) -> str:
    """The newest torch version, without its label, that has a wheel in the folder for a Python
    version such as `3.11.7`. Raises Blocked if there is none."""
    tag = f"cp{''.join(python.split('.')[:2])}"
    torches = [path.name.split("-")[1] for path in Path(folder).glob(f"torch-*-{tag}-*.whl")]
    if not torches:
        raise Blocked(
            f"{folder} has no wheel of torch for {tag}",
            hint="fill it with a Python of the same version: `gpusetup install --download DIR`",
        )
    return max((version.partition("+")[0] for version in torches), key=parsed)


def fetch_into_folder(job: InstallJob, plan: Plan) -> int:
    """Download the wheels of a plan into its folder, and return how many they are."""
    folder = Path(plan.target)
    # Maps a host to the user and password for it. uv's lock leaves out the logins of the user's
    # indexes, and uv cannot save a wheel as a file.
    logins: dict[str, tuple[str, str]] = {}
    for word in (plan.torch_index, *(os.environ.get(name, "") for name in INDEX_VARIABLES)):
        for url in word.split():
            # An index may have a name: `corp=https://...`.
            url, login = split_login(re.sub(r"^[^/=]*=", "", url))
            if login:
                logins.setdefault(urlsplit(url).netloc, login)
    # Read the list of hashes first, so that an invalid list stops the download before the list is
    # overwritten.
    sums = noted(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for wheel in plan.wheels:
            sums[wheel.filename] = _fetched(job, wheel, folder, logins.get(wheel.host))
        rows = (f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
        write_safely(folder / SUMS, "".join(rows))
    except OSError as problem:
        raise blocked_by(problem, f"{folder} cannot be filled", "make room there") from problem
    return len(plan.wheels)


def _fetched(job: InstallJob, wheel: Wheel, folder: Path, login: tuple[str, str] | None) -> str:
    """Download a wheel and return its sha256, which is checked before the file gets its final name.
    An existing wheel is only checked."""
    path, part = folder / wheel.filename, folder / f"{wheel.filename}.part"
    if path.is_file() and wheel.sha256 == sha256_of(path):
        return wheel.sha256
    job.talk(f"Fetching {wheel.filename} ({size_text(wheel.size_bytes or 0)})")
    part.unlink(missing_ok=True)
    try:
        with answered(wheel.url, login=login) as answer, open(part, "xb", opener=no_link) as file:
            answer.raise_for_status()
            file.writelines(answer.iter_content(1 << 20))
        digest = sha256_of(part)
        # Some old indexes state no hash; the plan mentions that.
        if wheel.sha256 not in (None, digest):
            part.unlink()
            shown = without_logins(wheel.url)
            raise Unreached(f"{shown}: wrong hash: expected sha256 {wheel.sha256}")
    except Unreached as problem:
        raise Unreached(
            problem.message,
            hint="nothing was changed; run this again (complete files are kept), or name a mirror: "
            "`--index URL`",
        ) from problem
    os.replace(part, path)
    return digest


def size_text(count: int | float) -> str:
    """A number of bytes as text, in B, KiB, MiB or GiB.

    >>> size_text(191_794_682), size_text(812)
    ('182.9 MiB', '812 B')
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
