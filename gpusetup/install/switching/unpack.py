"""Fetches the wheels and unpacks them beside the environment, by uv; and compares every file with
the lists of the wheels (RECORD).

uv checks the hash of each wheel as it comes; what lies in its cache may have changed since, on the
disk or by whoever edits a file of an environment that shares it.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from filecmp import cmp
from pathlib import Path

from packaging.utils import canonicalize_name

from gpusetup.errors import Blocked, ToolFailed, Unreached
from gpusetup.install.job import Job, run_step
from gpusetup.install.plan import Plan
from gpusetup.install.switching.files import files_below, remove, sha256_of
from gpusetup.install.switching.journal import STAGING, STORE
from gpusetup.install.target.layout import (
    LIBRARIES,
    Layout,
    distributions,
    files_listed,
    files_of_all,
    record_rows,
)
from gpusetup.model.logins import split_login
from gpusetup.uv.errors import complaint
from gpusetup.uv.lock import Wheel, fetching_environment, lock_text
from gpusetup.uv.program import forget_step, private_folder
from gpusetup.uv.world import private_world

UV_LOCK = ".lock"
"""What uv leaves in a prefix that it has installed into."""


def stage_of(prefix: str) -> str:
    """The folder of an environment in which wheels are unpacked before they are moved."""
    return os.path.join(prefix, STORE, STAGING)


def unpacked(job: Job, plan: Plan, layout: Layout) -> dict[str, str]:
    """Everything that comes, unpacked beside the environment and compared with its lists; once more
    from the index if our cache has changed."""
    try:
        return _unpack(job, plan, layout)
    except Differs:
        names = tuple(wheel.name for wheel in plan.wheels)
        with private_folder() as folder:
            run_step(job, forget_step(names), job.settings.environment(), folder=str(folder))
        return _unpack(job, plan, layout)


def _unpack(job: Job, plan: Plan, layout: Layout) -> dict[str, str]:
    folder = Path(layout.prefix, STORE, STAGING)
    remove(folder)
    (folder / "tmp").mkdir(parents=True)
    folder.chmod(0o700)
    (folder / "pylock.toml").write_text(lock_text(plan.wheels), encoding="utf-8")
    settings = job.settings
    environment = fetching_environment(settings, plan.choice.index_url)
    # A folder of wheels is no index, so that there is nobody to ask.
    addresses = None if job.wheels else (split_login(plan.choice.index_url)[0],)
    with private_world(settings, environment, addresses) as world:
        # The command that is shown stays as it can be typed: the way into the network is no part.
        variables = {**world.environment, "UV_CONFIG_FILE": str(world.configure())}
        with job.show_progress(plan.wheels, Path(environment["UV_CACHE_DIR"])):
            output = run_step(job, plan.steps[-1], variables, folder=str(folder))
        job.contacted = world.contacted
        if not output.ok:
            world.refuse_strange_hosts()
            title = "cannot download and unpack the wheels"
            raise complaint(title, output, Unreached, failures=world.failures)
    return compared(folder / "root", plan.wheels, layout)


# --- what was unpacked ----------------------------------------------------------------------------


class Differs(ToolFailed):
    """What was unpacked is not what the wheels hold."""


def differs(said: str) -> Differs:
    return Differs(said, hint="nothing was changed; run this again")


def compared(root: Path, wheels: Sequence[Wheel], layout: Layout) -> dict[str, str]:
    """Every unpacked file, and where it will be. `Differs` where one is not what a list says."""
    found = frozenset(files_below(str(root)))
    for path in found:
        if os.path.islink(path) or not os.path.isfile(path):
            raise differs(f"uv wrote what is no file: {os.path.relpath(path, root)}")
    lists = {path: record_rows(path) for path in found if _is_list(path)}
    names = {wheel.name for wheel in wheels}
    if odd := set(map(_name, lists)) ^ names:
        said = f"The files unpacked in {root} are not the requested package"
        raise differs(f"{said}: {', '.join(sorted(odd))}")
    promised: dict[str, dict[str, str]] = {}
    for path, rows in lists.items():
        for row in rows:
            digest = row[1] if len(row) > 1 else ""
            promised.setdefault(_listed(path, row), {})[digest] = path
    if missing := sorted(promised.keys() - found):
        raise differs(f"{os.path.relpath(missing[0], root)} was not unpacked")
    if strange := sorted(found - promised.keys() - {str(root / UV_LOCK)}):
        raise differs(f"uv wrote what no wheel lists: {os.path.relpath(strange[0], root)}")
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for path, digest in zip(promised, pool.map(_digest, promised), strict=True):
            if not promised[path].keys() & {"", digest}:
                name = os.path.relpath(path, root)
                raise differs(f"The unpacked files differ from the wheel's list: {name}")
    coming = {path: _target(path, root, layout) for path in promised}
    for path, owner in _taken(coming, names, layout):
        name = _name(*promised[path].values())
        raise Blocked(
            f"{name} brings a file that {owner} has already: {coming[path]}",
            hint="nothing was changed; uninstall the one that you do not need, or use another "
            "environment: `--venv DIR`",
        )
    return coming


def _taken(coming: Mapping[str, str], names: set[str], layout: Layout) -> Iterator[tuple[str, str]]:
    """What would come in place of another file, of the environment itself or of a package that
    stays; and whose that is."""
    leaving = files_of_all(names, layout)[1]
    stay = [one for one in distributions(layout) if one.name not in names]
    owners = {path: one.name for one in stay for path in files_listed(one, layout) - leaving}
    for path, target in coming.items():
        own = OWN.fullmatch(target[len(layout.prefix) :]) and "the environment itself"
        owner = owners.get(target, own)
        if owner and os.path.isfile(target) and not cmp(path, target, shallow=False):
            yield path, owner


OWN = re.compile(r"\W(pyvenv\.cfg|(bin|Scripts)\W((de)?activate|python)[^/]*)", re.IGNORECASE)
"""What an environment itself has."""


def _name(record: str, *_: str) -> str:
    """The project whose list it is."""
    return canonicalize_name(os.path.basename(os.path.dirname(record)).partition("-")[0])


def _is_list(path: str) -> bool:
    """Whether it is a wheel's own list; setuptools vendors packages with theirs."""
    info, name = os.path.split(path)
    library = os.path.basename(os.path.dirname(info))
    return name == "RECORD" and info.endswith(".dist-info") and library in LIBRARIES


def _listed(record: str, row: Sequence[str]) -> str:
    library = os.path.dirname(os.path.dirname(record))
    return os.path.normpath(os.path.join(library, row[0]))


def _digest(path: str) -> str:
    """As a RECORD writes it."""
    digest = base64.urlsafe_b64encode(bytes.fromhex(sha256_of(path)))
    return f"sha256={digest.decode().rstrip('=')}"


def _target(path: str, root: Path, layout: Layout) -> str:
    """Where a file goes: uv's folders below its root are those of a scheme with another prefix."""
    parts = Path(os.path.relpath(path, root)).parts
    if parts[0] == "local":  # Debian's and Fedora's Python put it before all
        parts = parts[1:]
    library = next((n for n, name in enumerate(parts[:-1]) if name in LIBRARIES), None)
    if library is not None and library <= 2:
        platform = parts[0] == "lib64" and layout.platlib != layout.purelib
        return os.path.join(layout.platlib if platform else layout.purelib, *parts[library + 1 :])
    if parts[0] in ("bin", "Scripts"):
        return os.path.join(layout.scripts, *parts[1:])
    return os.path.join(layout.data, *parts)
