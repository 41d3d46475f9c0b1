"""A package that is built from its source on request: what will be run is shown and asked first,
then its wheel is one of the plan's like any other."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from gpusetup.catalog.companion_table import companion_table
from gpusetup.errors import Blocked, GpuSetupError, Unsatisfiable
from gpusetup.install.building.needs import Place, compiles_cuda, problems, variables
from gpusetup.install.complaints import complaint
from gpusetup.install.decide import Task
from gpusetup.install.fetching.page import ACCEPT, rows_of
from gpusetup.install.fetching.wheel_cache import digest_of
from gpusetup.install.fetching.wheels import Wheel, file_name, parsed_name
from gpusetup.install.job import Job, run_step, work_folder
from gpusetup.install.joint.places import users_places
from gpusetup.install.joint.releases import version_of
from gpusetup.install.target.disk_space import disk_need
from gpusetup.install.target.find import Target
from gpusetup.install.target.layout import distributions, versions
from gpusetup.model.finding import Step
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed
from gpusetup.system.processes import run

BUILD_SECONDS = 6 * 3600.0
MOST_BYTES = 1 << 20
"""Of a `pyproject.toml` that is read."""


class Source(Frozen):
    """One release's source archive on an index."""

    name: str
    version: str
    filename: str
    url: str
    sha256: str


class Build(Frozen):
    """What would be built, how, and what it takes."""

    source: Source
    argv: tuple[str, ...]
    environment: dict[str, str]
    cost: str


def build_text(builds: Sequence[Build]) -> str:
    """What is shown before anybody is asked."""
    lines = []
    for one in builds:
        flags = " ".join(f"{name}={value}" for name, value in one.environment.items())
        lines += [f"Build    {one.source.name} {one.source.version} from its source ({one.cost})"]
        lines += [f"         {flags} {' '.join(one.argv)}"]
    return "\n".join(lines) + "\n"


def plan_builds(job: Job, target: Target, task: Task, words: Sequence[str]) -> tuple[Build, ...]:
    """The builds of packages that have no wheel, checked; Blocked with everything that is lacking.

    A word whose package has a wheel is not built: it comes as that.
    """
    if task.decision.moves or target.venv is not None:
        raise Blocked(
            "A build from source is made against the torch that will load it, and that is not "
            "there yet",
            hint="`gpusetup install` first, without that package; then this again",
        )
    sources = [found for word in words if (found := source_of(job, word))]
    for source in sources:
        _check(job, target, task, source)
    return tuple(_build(job, target, task.machine, source) for source in sources)


def source_of(job: Job, word: str) -> Source | None:
    """The newest source archive that a requirement takes; None where a wheel does too."""
    said = Requirement(word)
    name = canonicalize_name(said.name)
    for index in users_places(job.environ, Path.home()).indexes:
        answer = job.fetcher.text(f"{index.rstrip('/')}/{name}/", ACCEPT)
        rows = rows_of(*answer) if answer else []
        if answer and rows:
            return newest_source(name, said.specifier, answer[0], rows)
    return None


def newest_source(
    name: str, allowed: SpecifierSet, page: str, rows: Sequence[dict[str, Any]]
) -> Source | None:
    """The newest release that has a source archive and no wheel; None where a wheel is newer."""
    found: dict[str, Source | None] = {}
    for row in rows:
        url = str(row.get("url") or "")
        file = str(row.get("filename") or file_name(url))
        version, is_wheel = version_of(name, file)
        if version is None or row.get("yanked") or not allowed.contains(version, prereleases=True):
            continue
        digest = (row.get("hashes") or {}).get("sha256") or ""
        source = Source(
            name=name, version=version, filename=file, url=urljoin(page, url), sha256=digest
        )
        found[version] = None if is_wheel or found.get(version, source) is None else source
    final = [one for one in found if not parsed(one).is_prerelease] or [*found]
    return found[max(final, key=parsed)] if final else None


def _check(job: Job, target: Target, task: Task, source: Source) -> None:
    project = companion_table().project(source.name)
    place = Place(
        cuda=getattr(task.resolution.build, "cuda", None),
        headers=_has_headers(target),
        free_bytes=disk_need(str(job.cache), 0).free_bytes,
    )
    lacking = problems(task.machine, place) if compiles_cuda(project) else ()
    if lacking:
        said = "".join(f"\n  {what}: {do}" for what, do in lacking)
        other = f"; instead: {project.alternative}" if project and project.alternative else ""
        raise Blocked(
            f"{source.name} {source.version} cannot be built from source here:{said}",
            hint=f"nothing was changed{other}",
        )


def _has_headers(target: Target) -> bool:
    code = "import os, sysconfig; print(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
    said = run((target.layout.python, "-c", code), timeout=30)
    return Path(said.stdout.strip() or "/nowhere").is_file()


def _build(job: Job, target: Target, machine: Snapshot, source: Source) -> Build:
    project = companion_table().project(source.name)
    words = ("build", "--wheel", "--no-build-isolation", "--python", target.layout.python)
    return Build(
        source=source,
        argv=(job.uv, *words, source.filename),
        environment=variables(machine, cuda=compiles_cuda(project)),
        cost=project.build if project and project.build else "how long it takes is not known",
    )


def build_all(job: Job, target: Target, builds: Sequence[Build]) -> tuple[Wheel, ...]:
    """Fetch each source, build it, and keep its wheel; ToolFailed with the build's own words."""
    return tuple(_built(job, target, one) for one in builds)


def _built(job: Job, target: Target, build: Build) -> Wheel:
    with work_folder(job) as folder:
        archive = folder / build.source.filename
        _fetch(job, build.source, archive)
        _require_tools(target, build.source, archive)
        job.talk(f"Building {build.source.name} {build.source.version} ...")
        argv = (*build.argv[:-1], "--out-dir", str(folder / "dist"), str(archive))
        step = Step(
            argv=argv, title="build", environment=build.environment, timeout_seconds=BUILD_SECONDS
        )
        output = run_step(job, step, dict(job.environ))
        made = sorted((folder / "dist").glob("*.whl"))
        if not output.ok or len(made) != 1:
            raise _failed(build.source, complaint(f"{build.source.name} does not build", output))
        return _kept(job, made[0])


def _fetch(job: Job, source: Source, place: Path) -> None:
    """The archive, by its hash; Blocked where its index names none."""
    if not source.sha256:
        raise Blocked(
            f"{source.filename} has no hash on its index: what would be built is not known",
            hint="nothing was changed",
        )
    job.fetcher.archive(source.url, place)
    if digest_of(place) != source.sha256.lower():
        raise Blocked(f"{source.filename} has another hash than its index says", hint=UNCHANGED)


UNCHANGED = "nothing was changed"


def _require_tools(target: Target, source: Source, archive: Path) -> None:
    """What the source's own `pyproject.toml` builds with must be in the target: nothing else is
    seen by a build without isolation."""
    there = versions(distributions(target.layout))
    missing = [
        w for w in build_requires(archive) if canonicalize_name(Requirement(w).name) not in there
    ]
    if missing:
        names = " ".join(f"'{word}'" for word in missing)
        raise Blocked(
            f"{source.name} is built with {', '.join(missing)}, which the target lacks",
            hint=f"nothing was changed; `gpusetup install {names}` first",
        )


def build_requires(archive: Path) -> tuple[str, ...]:
    """`build-system.requires` of a source archive but for torch; setuptools where it has none."""
    from gpusetup.install.settings.uv_config import parse_toml

    try:
        with tarfile.open(archive) as files:
            inside = next(
                (m for m in files if m.isfile() and re.fullmatch(r"[^/]+/pyproject\.toml", m.name)),
                None,
            )
            held = files.extractfile(inside) if inside and inside.size < MOST_BYTES else None
            text = held.read().decode("utf-8", "replace") if held else ""
    except (tarfile.TarError, OSError, EOFError) as problem:
        raise Blocked(f"{archive.name} is no archive: {problem}", hint=UNCHANGED) from problem
    try:
        wanted = parse_toml(text).get("build-system", {}).get("requires") or ["setuptools"]
    except (ValueError, AttributeError) as problem:
        raise Blocked(f"{archive.name}: pyproject.toml: {problem}", hint=UNCHANGED) from problem
    names = [str(word) for word in wanted if _is_requirement(word)]
    return tuple(w for w in names if canonicalize_name(Requirement(w).name) not in ("torch",))


def _is_requirement(word: object) -> bool:
    try:
        said = Requirement(str(word))
    except ValueError:
        return False
    return said.marker is None or said.marker.evaluate()


def _failed(source: Source, problem: GpuSetupError) -> GpuSetupError:
    missing = re.search(r"No module named '([\w.]+)'", problem.message)
    if missing is None:
        return problem
    return Unsatisfiable(
        f"{source.name} does not build: it needs {missing[1]} in the target while it is built",
        hint=f"nothing was changed; `gpusetup install {missing[1].partition('.')[0]}` first",
    )


def _kept(job: Job, made: Path) -> Wheel:
    """The wheel in our cache, from where the plan takes it."""
    named = parsed_name(made.name)
    assert named is not None, made.name
    wheel = Wheel(
        name=named[0],
        version=named[1],
        filename=made.name,
        url=made.as_uri(),
        sha256=digest_of(made),
        size_bytes=made.stat().st_size,
        source="built here",
    )
    kept = job.fetcher.wheel(wheel, job.cache)
    return replace(wheel, url=kept.as_uri())


def with_wheels(task: Task, wheels: Sequence[Wheel]) -> Task:
    """The task with the wheels of what was built."""
    built = {one.name for one in wheels}
    words = task.asked.packages
    left = tuple(w for w in words if canonicalize_name(Requirement(w).name) not in built)
    files = (*task.asked.files, *wheels)
    return replace(task, asked=replace(task.asked, packages=left, files=files))
