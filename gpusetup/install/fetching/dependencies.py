"""What else has to be fetched: uv is asked, with the user's own indexes, and locks it.

torch and its companions are known already; where their wheels are not here yet, stand-ins that
hold nothing but their METADATA tell what they require.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from gpusetup.errors import Unsatisfiable
from gpusetup.install.complaints import complaint
from gpusetup.install.fetching.missing_package import index_problem
from gpusetup.install.fetching.wheel_cache import check_here, is_here
from gpusetup.install.fetching.wheelhouse import link_others, located
from gpusetup.install.fetching.wheels import Wheel, locked, target_tags
from gpusetup.install.job import Job, temporary
from gpusetup.install.plan import Plan
from gpusetup.install.settings.environment import (
    asking_environment,
    switching_environment,
    with_links,
)
from gpusetup.install.settings.uv_config import (
    parse_toml,
    split_credentials,
    users_settings,
    write_settings,
)
from gpusetup.install.target.find import Target
from gpusetup.install.target.layout import Layout
from gpusetup.system.processes import run

ASK_SECONDS = 120.0


def pins(family: Iterable[Wheel]) -> tuple[str, ...]:
    """The exact requirements, local versions and all.

    >>> pins([Wheel(name="torch", version="2.5.1+cu124", filename="", url="")])
    ('torch==2.5.1+cu124',)
    """
    return tuple(f"{wheel.name}=={wheel.version}" for wheel in family)


def ask_uv(
    uv: str,
    python: str,
    layout: Layout,
    family: Sequence[Wheel],
    packages: Sequence[str],
    sources: Sequence[str],
    environment: Mapping[str, str],
    *,
    fresh: bool,
) -> tuple[Wheel, ...]:
    """The wheels that uv would fetch beyond the family, for an environment as it is now."""
    asked = (*pins(family), *packages)
    skip = {wheel.name for wheel in family}
    if not fresh:
        with _no_lock_left(Path(layout.prefix)):
            changes = _uv_changes(uv, python, asked, sources, environment)
        asked = tuple(f"{name}=={version}" for name, version in changes if name not in skip)
        if not asked:
            return ()
    lock = _uv_lock(uv, python, asked, sources, environment, deps=fresh)
    try:
        return locked(lock, target_tags(layout), skip)
    except ValueError as problem:
        raise Unsatisfiable(
            f"{problem} has no wheel for Python {layout.version} here",
            hint="nothing was changed; install it by itself first, then run this again",
        ) from problem


@contextmanager
def _no_lock_left(prefix: Path) -> Iterator[None]:
    """uv leaves an empty `.lock` in an environment that it was only asked about."""
    lock = prefix / ".lock"
    was_there = lock.exists()
    try:
        yield
    finally:
        with suppress(OSError):
            if not was_there and lock.stat().st_size == 0:
                lock.unlink()


def _uv_changes(
    uv: str,
    python: str,
    asked: Sequence[str],
    sources: Sequence[str],
    environment: Mapping[str, str],
) -> tuple[tuple[str, str], ...]:
    argv = (
        uv,
        "pip",
        "install",
        "--python",
        python,
        "--dry-run",
        "--no-build",
        *sources,
        "-r",
        "-",  # not in the arguments, which others may read: an address may hold a password
    )
    output = run(argv, timeout=ASK_SECONDS, environment=environment, stdin="\n".join(asked) + "\n")
    if not output.ok:
        raise complaint("uv cannot plan the installation", output, asked)
    return parse_changes(output.stderr)


def parse_changes(text: str) -> tuple[tuple[str, str], ...]:
    """What uv says it would install.

    >>> parse_changes(" - torch==2.1\\n + torch==2.2+cpu\\n ~ a==1 (from file:///a)\\n")
    (('torch', '2.2+cpu'), ('a', '1'))
    """
    found = re.findall(r"(?m)^ [+~] ([A-Za-z0-9._-]+)==([^\s]+)", text)
    return tuple((canonicalize_name(name), version) for name, version in found)


def _uv_lock(
    uv: str,
    python: str,
    asked: Sequence[str],
    sources: Sequence[str],
    environment: Mapping[str, str],
    *,
    deps: bool,
) -> dict[str, Any]:
    argv = (
        *(uv, "pip", "compile", "--python", python, "--format", "pylock.toml", "--no-build"),
        *("--no-header", "--no-annotate", "--quiet", *sources),
        *(() if deps else ("--no-deps",)),
        "-",
    )
    output = run(argv, timeout=ASK_SECONDS, environment=environment, stdin="\n".join(asked) + "\n")
    if not output.ok:
        raise complaint("uv cannot plan the installation", output, asked)
    return parse_toml(output.stdout)


def ask_dependencies(job: Job, target: Target, plan: Plan, links: Path) -> tuple[Wheel, ...]:
    """What uv would fetch beyond the family, asked with the user's own settings."""
    prefix = target.layout.prefix
    environment = asking_environment(job.environ, Path.home(), prefix) | temporary(links.parent)
    settings, logins = split_credentials(users_settings(job.environ, Path.home()), environment)
    environment |= {**logins, "UV_CONFIG_FILE": str(write_settings(settings, links / "uv.toml"))}
    environment.pop("UV_NO_CONFIG", None)
    sources: tuple[str, ...] = ()
    if job.wheels:
        link_others(job.wheels, plan.family, links)
        sources = ("--no-index",)
        environment = {**switching_environment(job.environ), "UV_OFFLINE": "1", "UV_NO_CONFIG": "1"}
        environment |= temporary(links.parent)
    if plan.constraints:
        file = links / "cuda.txt"
        file.write_text("\n".join(plan.constraints) + "\n", encoding="utf-8")
        sources = (*sources, "--constraint", str(file))
    try:
        found = ask_uv(
            job.uv,
            target.layout.python,
            target.layout,
            plan.family,
            (*plan.packages, *plan.pinned),
            sources,
            with_links(environment, str(links)),
            fresh=target.venv is not None or not target.installed,
        )
    except Unsatisfiable as problem:
        if job.wheels:
            raise
        raise index_problem(problem, job.fetcher, environment, Path.home()) from problem
    named = located(found, job.wheels)
    for wheel in named:
        if is_here(wheel, job.cache / wheel.filename):
            check_here(wheel, job.cache / wheel.filename)
    return named
