"""`--download DIR` and `--offline DIR`: wheels are carried to a machine without a network."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gpusetup.errors import Blocked, Unreached
from gpusetup.install.credentials import split_login, without_logins
from gpusetup.install.decide import Task
from gpusetup.install.fetching.wheels import Wheel, size_text, wheel_at
from gpusetup.install.job import Job
from gpusetup.install.make_plan import plan_task
from gpusetup.install.plan import Plan
from gpusetup.install.settings import asking_environment, certificates, indexes
from gpusetup.install.switching.files import no_link, write_safely
from gpusetup.install.target.find import Target
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Request
from gpusetup.model.versions import parsed
from gpusetup.system.refusals import blocked_by, blocked_by_files

TIMEOUTS = (5.0, 30.0)


def use_wheelhouse(job: Job, target: Target, folder: str, wanted: Request) -> Request:
    """Everything comes from a folder; where no torch is named, it is the newest that is there."""
    job.wheels = wheels_in(Path(os.path.realpath(folder)))
    tag = f"cp{''.join(target.layout.version.split('.')[:2])}"
    torch = newest_torch(job.wheels, tag)
    return wanted if wanted.torch else replace(wanted, torch=f"=={torch}")


def plan_download(job: Job, target: Target, task: Task) -> tuple[Task, Plan]:
    """The plan of fetching all that a new environment needs into a folder."""
    folder = os.path.realpath(task.question.request.download or "")
    task, plan = plan_task(job, replace(target, venv=folder), task)
    return task, replace(plan, target=folder, venv=None, steps=(), before={})


def fetch_into_folder(job: Job, plan: Plan) -> str:
    """Fetch the wheels; a sentence about what is there then."""
    folder = Path(plan.target)
    asked = (plan.choice.index_url, *indexes(asking_environment(job.environ, Path.home())))
    split = map(split_login, asked)
    logins = {urlsplit(url).netloc: login for url, login in split if login}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [_fetched(job, wheel, folder, logins) for wheel in plan.wheels]
        known = noted(folder) | {path.name: sha256_of(path) for path in files}
        rows = "".join(f"{digest}  {name}\n" for name, digest in sorted(known.items()))
        write_safely(folder / SUMS, rows)
    except OSError as problem:
        raise blocked_by(problem, f"{folder} cannot be filled", "make room there") from problem
    size = size_text(sum(path.stat().st_size for path in files))
    return f"{len(files)} wheels, {size}, are in {folder}; there: `gpusetup install --offline`"


def _fetched(job: Job, wheel: Wheel, folder: Path, logins: dict[str, tuple[str, str]]) -> Path:
    """One wheel, whole and checked before it gets its name; what is there already is checked."""
    import requests

    path, part = folder / wheel.filename, folder / f"{wheel.filename}.part"
    if path.is_file() and wheel.sha256 and sha256_of(path) == wheel.sha256:
        return path
    job.talk(f"Fetching {wheel.filename} ({size_text(wheel.size_bytes or 0)})")
    part.unlink(missing_ok=True)
    login, verify = logins.get(urlsplit(wheel.url).netloc), certificates(os.environ)
    try:
        with (
            requests.get(
                wheel.url, stream=True, timeout=TIMEOUTS, auth=login, verify=verify
            ) as got,
            open(part, "xb", opener=no_link) as file,
        ):
            got.raise_for_status()
            file.writelines(got.iter_content(1 << 20))
    except requests.RequestException as problem:
        raise _blocked(wheel, without_logins(str(problem))) from problem
    if wheel.sha256 not in (None, sha256_of(part)):
        part.unlink()
        raise _blocked(wheel, f"wrong hash: expected sha256 {wheel.sha256}")
    os.replace(part, path)
    return path


def _blocked(wheel: Wheel, said: str) -> Blocked:
    return Unreached(
        f"{without_logins(wheel.url)}: {said}",
        hint="nothing was changed; run this again (complete files are kept), or name a mirror: "
        "`--index URL`",
    )


# --- a folder that was filled ---------------------------------------------------------------------

SUMS = "SHA256SUMS"
"""What `--download` fetched, in the form that `sha256sum -c` reads."""


def noted(folder: Path) -> dict[str, str]:
    """File name -> sha256, of the wheels that are still there."""
    if not (folder / SUMS).is_file():
        return {}
    text = (folder / SUMS).read_text(encoding="utf-8", errors="replace")
    rows = re.findall(r"(?m)^([0-9a-f]{64})  ([^/\\\s]+)$", text)
    return {name: digest for digest, name in rows if (folder / name).is_file()}


def wheels_in(folder: Path) -> tuple[Wheel, ...]:
    """The wheels of a folder; `Blocked` where there are none."""
    hint = "`--offline` names the folder that `gpusetup install --download DIR` filled"
    with blocked_by_files(f"{folder} cannot be read", hint):
        files = sorted(path for path in folder.iterdir() if path.is_file())
        sums = noted(folder)
    each = (
        wheel_at(
            path.absolute().as_uri(),
            size_bytes=path.stat().st_size,
            sha256=sums.get(path.name),
            source=str(folder),
        )
        for path in files
    )
    found = tuple(filter(None, each))
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


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
