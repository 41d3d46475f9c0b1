"""Makes the plan: asks the target, the torch index and uv or pip; changes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from gpusetup.errors import Blocked, Unsatisfiable, UsageError
from gpusetup.install.house import check_here, is_here, is_kept
from gpusetup.install.inuse import users_of
from gpusetup.install.layout import Layout, distributions, requirers, versions
from gpusetup.install.obstacles import check_places, check_seen
from gpusetup.install.owned import at_links, files_of_all, refuse_shared
from gpusetup.install.plan import (
    UNPACKED_FACTOR,
    Asked,
    Plan,
    choices_of,
    device_to_prove,
    first_that_has,
    switch_steps,
    venv_step,
    versions_of,
)
from gpusetup.install.ranged import metadata_in
from gpusetup.install.rest import ask_pip, ask_uv, is_metadata_of, stand_in
from gpusetup.install.room import require_room, room
from gpusetup.install.run import WORKERS, Job, temporary, workplace
from gpusetup.install.second_look import second_look
from gpusetup.install.tools import asking_environment, switching_environment
from gpusetup.install.transaction import STORE
from gpusetup.install.uv_config import apart, users_settings, written
from gpusetup.install.wheelhouse import link_others, located, page_of
from gpusetup.install.wheels import Wheel, target_tags
from gpusetup.install.wish import as_links
from gpusetup.model import Resolution, Snapshot
from gpusetup.probe.system import System
from gpusetup.value import Value, replace


class Where(Value):
    """The target: an environment that is there, or one to be made from a base interpreter."""

    layout: Layout
    """Of the target, or of the base where the environment is to be made."""
    venv: str | None = None

    @property
    def python(self) -> str:
        """The interpreter that will hold the packages."""
        if self.venv is None:
            return self.layout.python
        place = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
        return str(Path(self.venv, *place))

    @property
    def installed(self) -> dict[str, str]:
        return {} if self.venv else versions(distributions(self.layout))


def venv_to_make(folder: str) -> bool:
    """Whether `--venv DIR` is to be made; UsageError where the folder is something else."""
    path = Path(folder)
    if (path / "pyvenv.cfg").is_file():
        return False
    if path.exists() and (not path.is_dir() or any(p.name != STORE for p in path.iterdir())):
        raise UsageError(
            f"`--venv {folder}` is there already and is no environment",
            hint="name an empty or a new folder, or an environment",
        )
    return True


def layout_of(system: System, python: str) -> Layout:
    """Where an interpreter installs to, by asking it."""
    answer = system.ask("read_scheme", python=python, timeout=30)
    if "problem" in answer:
        raise Blocked(
            f"{python} does not run: {answer['problem']}",
            hint="name another interpreter with `--python PATH`",
        )
    said = {key: value for key, value in answer.items() if key not in ("executable", "python")}
    said["ahead"] = tuple(said.get("ahead", ()))
    return by_one_name(Layout(python=python, version=answer["python"], **said))


def by_one_name(layout: Layout) -> Layout:
    """The layout with one name for a folder that has two: Fedora's and RHEL's Python says `lib64`
    where compiled packages go, which is a link to `lib` in an environment."""
    same = os.path.realpath(layout.purelib) == os.path.realpath(layout.platlib)
    layout = replace(layout, platlib=layout.purelib) if same else layout
    places = {name: getattr(layout, name) for name in ("purelib", "platlib", "scripts", "data")}
    return replace(layout, **{name: _in(layout.prefix, at) for name, at in places.items()})


def _in(prefix: str, folder: str) -> str:
    """A folder below the prefix by its real name, where a link in the environment leads to it."""
    real, root = os.path.realpath(folder), os.path.realpath(prefix)
    return prefix + real[len(root) :] if real.startswith(root + os.sep) else folder


OWN = "gpusetup install --venv .venv"


def check_target(layout: Layout, way: str = OWN) -> None:
    """Refuse what must not or cannot be changed; `way` makes an environment in its place."""
    hint = f"use an environment of your own: `{way}`"
    if layout.externally_managed:
        raise Blocked(
            f"The Python of {layout.prefix} is managed by the operating system "
            f"({layout.externally_managed})",
            hint=hint,
        )
    for folder in (*layout.libraries, layout.scripts, layout.prefix):
        if not os.access(folder, os.W_OK) and Path(folder).exists():
            raise Blocked(
                f"{folder} cannot be written by this user",
                hint=hint,
            )


def check_implementation(layout: Layout) -> None:
    """Refuse a Python for which torch has no wheels."""
    if layout.implementation != "cpython":
        raise Blocked(
            f"{layout.python} is {layout.implementation}; torch has wheels for CPython only",
            hint="name a CPython with `--python PATH`",
        )


def make_plan(
    job: Job,
    where: Where,
    resolution: Resolution,
    asked: Asked,
    snapshot: Snapshot,
    *,
    backend: str,
    installer: str,
    index_root: str,
    early: bool = False,
) -> Plan:
    """The plan with everything that can be known before a wheel is fetched.

    `early`: nobody will be asked, so that the fetching may begin beside the planning.
    """
    check_places(job, where, installer)
    if where.venv is None:
        check_seen(where.layout, asked.family)
    family_versions = versions_of(resolution, asked.family)
    choices = choices_of(resolution, backend)
    tags = target_tags(where.layout)
    page = page_of(job.wheels) if job.wheels else job.fetcher.text
    choice, family, passed = first_that_has(page, choices, index_root, family_versions, tags)
    gpus = None if snapshot.gpus is None else len(snapshot.gpus)
    plan = Plan(
        target=where.venv or where.layout.prefix,
        python=where.python,
        venv=where.venv,
        installer=installer,
        choice=replace(choice, index_url=f"{index_root.rstrip('/')}/{choice.backend}"),
        passed_over=passed,
        fallbacks=choices[choices.index(choice) + 1 :],
        family=_sized(job, family),
        packages=(*asked.packages, *asked.followers),
        pinned=asked.pinned,
        device=device_to_prove(choice.backend, gpus),
        notes=resolution.notes,
    )
    if early:
        check_room_before(job, plan)
        job.fetcher.early(plan.family, job.house)
    return with_rest(job, where, plan)


def with_rest(job: Job, where: Where, plan: Plan) -> Plan:
    """The plan with what else is fetched, where that can be known now; then the steps."""
    rest = None
    with _links(job, plan.family) as folder:
        if folder is not None:
            rest = ask_rest(job, where, plan, folder)
    return finished(job, where, replace(plan, rest=rest))


def finished(job: Job, where: Where, plan: Plan) -> Plan:
    """The plan with sizes, steps and what it would break."""
    installed = where.installed
    rest = None if plan.rest is None else _sized(job, plan.rest)
    plan = replace(plan, rest=rest, family=_changing(plan.family, installed))
    target = where.layout if where.venv is None else replace(where.layout, python=where.python)
    steps = switch_steps(plan, target, job.uv, plan.target)
    if where.venv is not None:
        seed = plan.installer == "pip"
        steps = (venv_step(job.uv, where.venv, where.layout.python, seed=seed), *steps)
    before = {name: installed[name] for name in plan.after if name in installed}
    if where.venv is None:
        check_leaving(where.layout, before)
    breaks = () if where.venv else requirers(distributions(where.layout), plan.after)
    used_by = users_of(where.layout.libraries) if "torch" in before else ()
    return replace(plan, steps=steps, before=before, breaks=breaks, used_by=used_by)


def _changing(family: tuple[Wheel, ...], installed: Mapping[str, str]) -> tuple[Wheel, ...]:
    """The wheels that are not installed at this very version; all where every one is (again)."""
    return tuple(w for w in family if installed.get(w.name) != w.version) or family


def ask_rest(job: Job, where: Where, plan: Plan, links: Path) -> tuple[Wheel, ...]:
    """What uv or pip would fetch beyond the family, asked with the user's own settings."""
    prefix = where.layout.prefix
    environment = asking_environment(job.environ, Path.home(), prefix) | temporary(links.parent)
    settings, logins = apart(users_settings(job.environ, Path.home()), environment)
    environment |= {**logins, "UV_CONFIG_FILE": str(written(settings, links / "uv.toml"))}
    environment.pop("UV_NO_CONFIG", None)
    sources: tuple[str, ...] = ("--find-links", as_links(str(links)))
    if job.wheels:
        link_others(job.wheels, plan.family, links)
        sources = ("--no-index", *sources)
        environment = {**switching_environment(job.environ), "UV_OFFLINE": "1", "UV_NO_CONFIG": "1"}
        environment |= temporary(links.parent)
    fresh = where.venv is not None
    wanted = (*plan.packages, *plan.pinned)
    # A new environment has no pip to ask before it is made: its base's is asked, else uv.
    by_pip = plan.installer == "pip" and (where.layout.has_pip or not fresh)
    try:
        if by_pip:
            found = ask_pip(where.layout, plan.family, wanted, sources, environment, fresh=fresh)
        else:
            found = _by_uv(job, where, plan, sources, environment)
    except Unsatisfiable as problem:
        if job.wheels:
            raise
        raise second_look(problem, job.fetcher, environment, Path.home()) from problem
    named = located(found, job.wheels)
    for wheel in named:
        if is_here(wheel, job.house / wheel.filename):
            check_here(wheel, job.house / wheel.filename)
    return named


def _by_uv(
    job: Job, where: Where, plan: Plan, sources: Sequence[str], environment: Mapping[str, str]
) -> tuple[Wheel, ...]:
    fresh = where.venv is not None or not where.installed
    return ask_uv(
        job.uv,
        where.layout.python,
        where.layout,
        plan.family,
        (*plan.packages, *plan.pinned),
        sources,
        environment,
        fresh=fresh,
    )


@contextmanager
def _links(job: Job, family: Sequence[Wheel]) -> Iterator[Path | None]:
    """A folder of stand-ins for the family's wheels; None where one's METADATA cannot be had yet.

    Not the wheels themselves: uv would unpack gigabytes only to read what they require.
    """
    with workplace(job) as place:
        folder = place / "links"
        folder.mkdir()
        yield folder if all(_link(job, wheel, folder) for wheel in family) else None


def _link(job: Job, wheel: Wheel, folder: Path) -> bool:
    metadata = _metadata(job, wheel)
    if metadata is None:
        return False
    try:
        stand_in(wheel, metadata, folder)
    except OSError as problem:
        raise Blocked(
            f"{folder} cannot be written: {problem.strerror or problem}",
            hint="nothing was changed; make room there, or set XDG_CACHE_HOME to a larger disk",
        ) from problem
    return True


def _metadata(job: Job, wheel: Wheel) -> str | None:
    kept = job.house / wheel.filename
    if is_here(wheel, kept):
        check_here(wheel, kept)
    if is_kept(wheel, kept):
        return metadata_in(kept)
    if wheel.metadata_url and (answer := job.fetcher.text(wheel.metadata_url)):
        text = answer[2].lstrip("\ufeff")
        if is_metadata_of(wheel, text):
            return text
        job.log.line(f"{wheel.filename}: what came as its METADATA is none")
    return job.fetcher.metadata_inside(wheel.url)


def _sized(job: Job, wheels: Sequence[Wheel]) -> tuple[Wheel, ...]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return tuple(pool.map(lambda wheel: _with_size(job, wheel), wheels))


def _with_size(job: Job, wheel: Wheel) -> Wheel:
    if wheel.size_bytes is not None:
        return wheel
    kept = job.house / wheel.filename
    size = kept.stat().st_size if is_kept(wheel, kept) else job.fetcher.size(wheel.url)
    return replace(wheel, size_bytes=size)


def missing_bytes(job: Job, plan: Plan) -> int:
    """What is still to be fetched."""
    wheels = (w for w in plan.wheels if not is_kept(w, job.house / w.filename))
    return sum(wheel.size_bytes or 0 for wheel in wheels)


def check_room_before(job: Job, plan: Plan) -> None:
    """Room for what will be fetched and, by its usual growth, unpacked in the target."""
    unpacked = int(sum(wheel.size_bytes or 0 for wheel in plan.wheels) * UNPACKED_FACTOR)
    require_room((room(str(job.house), missing_bytes(job, plan)), room(plan.target, unpacked)))


def check_leaving(layout: Layout, leaving: Iterable[str]) -> None:
    """`Blocked` where what leaves could not be put back: told before anything is fetched."""
    gone, files = files_of_all(leaving, layout)
    refuse_shared(at_links(files, layout.roots)[1], gone, layout)


def base_interpreter() -> str:
    """What a new environment is made from: the interpreter that gpusetup runs in."""
    return sys.executable


def _has_a_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:  # brackets without an address in them
        return False


def index_root_of(named: str | None, environ: Mapping[str, str], usual: str) -> str:
    """`--index-root`, else GPUSETUP_INDEX_ROOT, else the usual one; UsageError for no URL.

    >>> index_root_of(None, {"GPUSETUP_INDEX_ROOT": "https://mirror.example/whl/"}, "https://x")
    'https://mirror.example/whl'
    """
    root = named or environ.get("GPUSETUP_INDEX_ROOT") or usual
    if not root.startswith(("http://", "https://")) or not _has_a_host(root):
        raise UsageError(
            f"`--index-root {root}` is no http or https URL",
            hint="it is what stands before the backend: `https://download.pytorch.org/whl`",
        )
    from gpusetup.install.words import root_and_backend

    if words := root_and_backend(root):
        raise UsageError(
            f"`--index-root {root}` ends with a backend: the root stands before it",
            hint=f"did you mean `{' '.join(words)}`?",
        )
    return root.rstrip("/")
