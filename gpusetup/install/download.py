"""`--download DIR` and `--offline DIR`, which bring wheels to a machine without a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gpusetup.choose.wish import Wish
from gpusetup.errors import Blocked, Unreached
from gpusetup.install.job import InstallJob
from gpusetup.install.plan import Plan
from gpusetup.install.planning import plan_newest_of_mirror
from gpusetup.install.switching.files import no_link, sha256_of, write_safely
from gpusetup.install.target.find import Target
from gpusetup.install.task import Task
from gpusetup.install.wheels import SUMS, noted, size_text
from gpusetup.model.frozen import replace
from gpusetup.model.logins import split_login, without_logins
from gpusetup.model.versions import parsed
from gpusetup.system.refusals import blocked_by
from gpusetup.uv.lock import Wheel
from gpusetup.uv.pages import answered

TIMEOUTS = (5.0, 30.0)
"""Timeouts in seconds, for connecting and between two parts of a file."""
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")


def use_wheelhouse(job: InstallJob, target: Target, folder: str, wish: Wish) -> Wish:
    """Use a folder of wheels for everything, and return the request. If the request names no torch,
    it gets the newest one in the folder."""
    job.wheels = os.path.realpath(folder)
    tag = f"cp{''.join(target.layout.version.split('.')[:2])}"
    torch = newest_torch(job.wheels, tag)
    if wish.torch:
        return wish
    return replace(wish, torch=f"=={torch}")


def plan_download(
    job: InstallJob, target: Target, task: Task, older: Callable[[str], Task]
) -> tuple[Task, Plan]:
    """The task and the plan to download everything that a new environment needs into a folder.
    `older` creates a task for a torch within a bound, in case a mirror lacks the newest."""
    folder = os.path.realpath(task.request.download or "")
    task, plan = plan_newest_of_mirror(job, replace(target, venv=folder), task, older)
    return task, replace(plan, target=folder, venv=None, steps=(), before={})


def fetch_into_folder(job: InstallJob, plan: Plan) -> str:
    """Download the wheels of a plan into its folder, and return a sentence about them."""
    folder = Path(plan.target)
    torch_index, torch_login = split_login(plan.choice.index_url)
    logins = {urlsplit(torch_index).netloc: torch_login} if torch_login else {}
    # uv's lock leaves out the logins of the user's indexes, and uv cannot save a wheel as a file.
    for variable in INDEX_VARIABLES:
        for word in os.environ.get(variable, "").split():
            # An index may have a name: `corp=https://...`.
            name, _, url = word.partition("=")
            url, login = split_login(word if "/" in name else url)
            if login:
                logins[urlsplit(url).netloc] = login
    # Read the list of hashes first, so that an invalid list stops the download before the list is
    # overwritten.
    noted_before = noted(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        came = {wheel.filename: _fetched(job, wheel, folder, logins) for wheel in plan.wheels}
        known = sorted({**noted_before, **came}.items())
        rows = "".join(f"{digest}  {name}\n" for name, digest in known)
        write_safely(folder / SUMS, rows)
    except OSError as problem:
        raise blocked_by(problem, f"{folder} cannot be filled", "make room there") from problem
    return f"{len(came)} wheels are in {folder}; there: `gpusetup install --offline DIR`"


def _fetched(
    job: InstallJob, wheel: Wheel, folder: Path, logins: Mapping[str, tuple[str, str]]
) -> str:
    """Download a wheel and return its sha256, which is checked before the file gets its final name.
    An existing wheel is only checked. `logins` maps a host to the user and password for it."""
    import requests

    path, part = folder / wheel.filename, folder / f"{wheel.filename}.part"
    if path.is_file() and wheel.sha256 == sha256_of(path):
        return wheel.sha256
    job.talk(f"Fetching {wheel.filename} ({size_text(wheel.size_bytes or 0)})")
    part.unlink(missing_ok=True)
    url, login = split_login(wheel.url)
    login = login or logins.get(urlsplit(url).netloc)
    try:
        with (
            answered(url, login=login, timeouts=TIMEOUTS) as answer,
            open(part, "xb", opener=no_link) as file,
        ):
            answer.raise_for_status()
            file.writelines(answer.iter_content(1 << 20))
    except requests.RequestException as problem:
        raise _blocked(wheel, without_logins(str(problem))) from problem
    digest = sha256_of(part)
    # Some old indexes state no hash; the plan mentions that.
    if wheel.sha256 not in (None, digest):
        part.unlink()
        raise _blocked(wheel, f"wrong hash: expected sha256 {wheel.sha256}")
    os.replace(part, path)
    return digest


def _blocked(wheel: Wheel, reason: str) -> Blocked:
    """The error for a wheel that could not be downloaded, with this reason."""
    return Unreached(
        f"{without_logins(wheel.url)}: {reason}",
        hint="nothing was changed; run this again (complete files are kept), or name a mirror: "
        "`--index URL`",
    )


# --- a folder that was filled ---------------------------------------------------------------------


def newest_torch(folder: str, tag: str) -> str:
    """The newest torch version, without its label, that has a wheel in the folder for a Python tag
    (`cp311`). Raises Blocked if there is none."""
    torches = [path.name.split("-")[1] for path in Path(folder).glob(f"torch-*-{tag}-*.whl")]
    if not torches:
        raise Blocked(
            f"{folder} has no wheel of torch for {tag}",
            hint="fill it with a Python of the same version: `gpusetup install --download DIR`",
        )
    return max((version.partition("+")[0] for version in torches), key=parsed)
