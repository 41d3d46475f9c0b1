"""Finds the wheels to download, by asking uv for the URL and hash of each file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from gpusetup.catalog.companion_table import companion_table
from gpusetup.errors import Unreached, Unsatisfiable
from gpusetup.install.job import InstallJob
from gpusetup.install.target.find import Target
from gpusetup.install.wheels import in_folder
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import split_login
from gpusetup.model.shell import own_line
from gpusetup.uv.errors import names_without_wheel
from gpusetup.uv.lock import Wheel, wheel_of
from gpusetup.uv.pages import answered
from gpusetup.uv.question import Question, Requirements, changes_of, lock_of

SIZE_TIMEOUTS = (5.0, 5.0)
WORKERS = 4
MOST_DIGITS = 19
"""The maximum number of digits in a file's length, because a number of bytes fits into 64 bits."""
MOST_ROUNDS = 8
"""How often uv is asked again without the packages that it found to have no wheel. It names one or
two at a time."""


class WheelsToCome(Frozen):
    """The wheels to download, and notes about them."""

    wheels: tuple[Wheel, ...] = ()
    notes: tuple[str, ...] = ()


def wheels_for(job: InstallJob, target: Target, wanted: Requirements) -> WheelsToCome:
    """The wheels to download for these requirements. A package without a wheel is left out, and a
    note says how to build it. Raises Unsatisfiable if there is no solution."""
    sources: dict[NormalizedName, str] = {}
    while True:
        try:
            coming = _wheels_for(job, target, wanted)
            break
        except Unsatisfiable as problem:
            missing = {}
            for word in names_without_wheel(problem.message, only_sources=True):
                name = canonicalize_name(Requirement(word).name)
                if name not in wanted.names:
                    missing[name] = word
            # A folder of wheels has everything, or it was not filled for this request.
            if not missing.keys() - sources.keys() or job.wheels or len(sources) > MOST_ROUNDS:
                raise
            sources |= missing
        wanted = replace(wanted, without=tuple(sources))
    return replace(coming, notes=(*coming.notes, *_build_notes(target, wanted, sources)))


def _build_notes(
    target: Target, wanted: Requirements, sources: dict[NormalizedName, str]
) -> tuple[str, ...]:
    """A note for each package that is only released as source, with the command that builds it."""
    asked = {canonicalize_name(Requirement(word).name): word for word in wanted.others}
    notes = []
    for name, word in sources.items():
        uses_torch = companion_table().project(name) is not None
        options = ("--no-build-isolation",) if uses_torch else ()
        needs = " (if it compiles CUDA code, this needs nvcc)" if uses_torch else ""
        line = own_line(
            *("uv", "pip", "install", "--python", target.python, *options, asked.get(name, word))
        )
        notes.append(f"built from source when you install: {name}: afterwards, run `{line}`{needs}")
    return tuple(notes)


def _wheels_for(job: InstallJob, target: Target, wanted: Requirements) -> WheelsToCome:
    """The wheels to download.

    For an existing environment, only packages that change are downloaded. If torch and all
    requested companions are already installed in these versions, nothing would change, so they are
    all downloaded again.
    """
    installed = target.installed
    if not installed:
        return _locked(job, target, wanted)
    changes = changes_of(question_of(job, target, wanted))
    new_versions = changes.versions
    family = wanted.names
    changing = [name for name in family if installed.get(name) != new_versions.get(name)]
    # If all of them already have this version, download them again, because the user requested
    # them.
    coming_family = changing or family
    others = [name for name in new_versions if name not in family]
    exact = replace(
        wanted,
        family=tuple(f"{name}=={new_versions[name]}" for name in coming_family),
        others=tuple(f"{name}=={new_versions[name]}" for name in others),
    )
    if not coming_family and not others:
        return WheelsToCome()
    coming = _locked(job, target, exact, with_dependencies=False)
    return replace(coming, notes=changes.notes)


def question_of(job: InstallJob, target: Target, wanted: Requirements) -> Question:
    """The question to uv about these requirements in this environment."""
    return Question(
        requirements=wanted,
        python=target.layout.python,
        python_version=target.layout.version,
        wheels_folder=job.wheels,
        title="uv cannot plan the installation",
    )


def _locked(
    job: InstallJob, target: Target, wanted: Requirements, *, with_dependencies: bool = True
) -> WheelsToCome:
    """The wheels in uv's lock, torch and its companions first."""
    family = wanted.names
    question = question_of(job, target, wanted)
    locked = lock_of(question, with_dependencies=with_dependencies)
    rows = sorted(locked.rows, key=lambda row: row["name"] not in family)
    wheels = [wheel_of(row, family, target.layout.version) for row in rows]
    if job.wheels:
        return WheelsToCome(wheels=tuple(in_folder(job.wheels, wheels)), notes=locked.notes)
    login = split_login(wanted.index)[1]
    with ThreadPoolExecutor(WORKERS) as pool:
        sized = tuple(pool.map(lambda wheel: with_size(wheel, login), wheels))
    return WheelsToCome(wheels=sized, notes=locked.notes)


def with_size(wheel: Wheel, login: tuple[str, str] | None) -> Wheel:
    """The wheel with its size. If the index does not state the size, as torch's own, the server is
    asked; if that fails too, the size is None."""
    import requests
    from urllib3.exceptions import HTTPError

    if wheel.size_bytes is not None or not wheel.url.startswith("http"):
        return wheel
    url, own_login = split_login(wheel.url)
    # Only torch's index states no sizes and has this login.
    login = own_login or (login if wheel.is_of_torch_index else None)
    try:
        with answered(url, login=login, timeouts=SIZE_TIMEOUTS, method="HEAD") as answer:
            length = answer.headers.get("Content-Length", "") if answer.ok else ""
    except (requests.RequestException, HTTPError, OSError, ValueError, Unreached):
        # The server may not speak HTTP properly. Ignore that, because the size is only shown.
        return wheel
    if not (length.isascii() and length.isdigit()) or len(length) > MOST_DIGITS:
        return wheel
    return replace(wheel, size_bytes=int(length))
