"""Asks uv which packages work together, as `uv pip` would in the current folder.

uv reads the user's own settings there: uv.toml, pyproject.toml and the UV_ variables, .netrc, the
keyring, proxies and certificates. The question itself is a project in a private folder, in which
torch and its companions have torch's own index as their source (an explicit index of uv).
Everything else comes from the user's indexes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gpusetup.accelerators.amd import INDEX_OF_AMD
from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.errors import ToolFailed, Unreached, Unsatisfiable
from gpusetup.model.frozen import Frozen
from gpusetup.model.logins import split_login, without_logins
from gpusetup.system.processes import run
from gpusetup.system.refusals import blocked_by_files
from gpusetup.uv.errors import (
    QUESTION,
    complaint,
    hint_for,
    names_not_found,
    names_without_wheel,
)
from gpusetup.uv.pages import answered
from gpusetup.uv.program import (
    TORCH_INDEX_NAME,
    private_folder,
    shown_settings,
    uv_environment,
    uv_program,
    with_torch_index,
)
from gpusetup.uv.toml import parse_toml

ASK_SECONDS = 300.0
LIMITS = {"UV_HTTP_TIMEOUT": "6", "UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_RETRIES": "1"}
"""uv's timeout in seconds and number of retries for a question, so that an unreachable host is
reported within 15 s. The user's own settings come before these."""
MAKE_ROOM = "nothing was changed; make room there"
PAGE_TIMEOUTS = (5.0, 5.0)
PROJECT, LOCK = "pyproject.toml", "pylock.toml"
Rows = dict[str, Mapping[str, Any]]
"""Maps a package's name to uv's data about it, such as its `version`."""


class Requirements(Frozen):
    """The request to uv: torch and its companions from one index, other packages from the user's
    indexes."""

    family: tuple[str, ...]
    """The requirements for torch and its companions, such as `torch==2.9.1+cu128`."""
    others: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """The names of packages that are left out wherever they are required, because they have no
    wheel."""
    index: str
    """The URL of the index for torch and its companions; with a folder of wheels, the place of the
    backend in that folder."""
    needs_more_of_index: bool = False
    """Whether torch and its companions need packages that only their own index has, such as ROCm's
    Triton."""

    @property
    def names(self) -> tuple[str, ...]:
        """The normalised names of the packages that come from torch's index."""
        return tuple(canonicalize_name(Requirement(word).name) for word in self.family)

    @property
    def text(self) -> str:
        """The request as the text of the pyproject.toml that uv reads."""
        rows = [
            f'[project]\nname = "{QUESTION}"\nversion = "0"',
            f"dependencies = {json.dumps([*self.family, *self.others])}",
            # It is the root of its own workspace, because otherwise uv looks for one in the parent
            # folders.
            "[tool.uv.workspace]\nmembers = []",
            f'[[tool.uv.index]]\nname = "{TORCH_INDEX_NAME}"',
            f"url = {json.dumps(split_login(self.index)[0])}\nexplicit = true",
            "[tool.uv.sources]",
            *(f'{name} = {{ index = "{TORCH_INDEX_NAME}" }}' for name in self.names),
        ]
        return "\n".join(rows) + "\n"


class Question(Frozen):
    """A request to uv, with the Python and the platform that it is for."""

    requirements: Requirements
    python: str
    """The path of the Python interpreter."""
    python_version: str
    """The Python version of the environment or of the described machine."""
    platform: str | None = None
    """uv's name for another machine's platform; None for this machine."""
    environment: Mapping[str, str] = {}
    wheels_folder: str | None = None
    """The folder that contains every wheel; if it is set, no index is asked."""
    title: str
    """What failed, for the error message if uv finds no answer."""

    @property
    def options(self) -> tuple[str, ...]:
        """uv's command-line options. They forbid building, because building a source distribution
        runs its author's code."""
        options = ["--no-build", "--python", self.python]
        if self.platform:
            options += ["--python-platform", self.platform, "--python-version", self.python_version]
        # With a folder of wheels, uv must not use the network at all.
        if self.wheels_folder:
            links = Path(self.wheels_folder).as_uri()
            return (*options, "--no-sources", "--no-index", "--find-links", links, "--offline")
        for name in self.requirements.names:
            # torch's index states no dates, so with the user's limit by date it would seem empty.
            options += ["--exclude-newer-package", f"{name}=false"]
        return tuple(options)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables for uv, with the login of torch's index."""
        index = self.requirements.index
        more = {name: os.environ.get(name, value) for name, value in LIMITS.items()}
        if self.requirements.needs_more_of_index and not self.wheels_folder:
            # As the first of all indexes, it also serves what torch requires.
            more["UV_INDEX"] = with_torch_index(index)
            if split_login(index)[0].startswith(INDEX_OF_AMD):
                # AMD's index returns status 403 for a package that it does not have, after which uv
                # asks no further index unless this is set.
                more["UV_INDEX_STRATEGY"] = "unsafe-first-match"
        return uv_environment({**more, **self.environment}, login_of=index)


class Locked(Frozen):
    """The packages in uv's lock, and notes about them."""

    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()


class Changes(Frozen):
    """The packages that uv would install, with versions, and notes about them."""

    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()


def lock_of(question: Question, *, with_dependencies: bool = True) -> Locked:
    """The packages that meet the requirements, with their files, from uv's lock.

    Raises Unsatisfiable if nothing meets them, and Unreached if an index does not respond.
    """
    words = ["compile", "--format", LOCK, "--quiet", "--no-header", "--no-annotate"]
    if not with_dependencies:
        words.append("--no-deps")

    def ask(more: Sequence[str]) -> Rows:
        text, folder = _ask(question, (*words, *more))
        packages = parse_toml(text).get("packages", ())
        for wheel in (wheel for package in packages for wheel in package.get("wheels", ())):
            if "path" in wheel:
                # uv names a wheel on this disk by its path from the lock.
                wheel["path"] = os.path.normpath(folder / wheel["path"])
        return {package["name"]: package for package in packages}

    rows, notes = _without_prereleases(question, ask)
    return Locked(rows=tuple(rows.values()), notes=notes)


def changes_of(question: Question) -> Changes:
    """The packages that uv would install into the existing environment.

    torch and its companions are always looked up again, because another build of the same version
    may be installed.
    """
    words = ["install", "--dry-run", "--output-format", "json"]
    words += [f"--reinstall-package={name}" for name in question.requirements.names]

    def ask(more: Sequence[str]) -> Rows:
        with lock_file_removed(question.python):
            text, _ = _ask(question, (*words, *more))
        try:
            changes = json.loads(text)["changes"]
            # A package that is only removed does not count; a replaced package is also listed as
            # installed.
            coming = [change for change in changes if change["action"] != "uninstalled"]
            return {change["name"]: {"version": change["version"]} for change in coming}
        except (ValueError, KeyError, TypeError) as problem:
            message = f"cannot read uv's plan: {problem}"
            raise ToolFailed(message, hint="nothing was changed") from problem

    rows, notes = _without_prereleases(question, ask)
    return Changes(versions={name: str(row["version"]) for name, row in rows.items()}, notes=notes)


@contextmanager
def lock_file_removed(python: str) -> Iterator[None]:
    """A context manager that, after its block, removes the empty `.lock` file that uv leaves in an
    environment.

    uv locks an environment with its file `.lock`, even in a dry run, which should leave no trace. A
    file that existed before belongs to another uv process.
    """
    lock = Path(python).parent.parent / ".lock"
    was_there = lock.exists()
    try:
        yield
    finally:
        if not was_there:
            with suppress(OSError):
                if lock.stat().st_size == 0:
                    lock.unlink()


def _ask(question: Question, words: Sequence[str]) -> tuple[str, Path]:
    """Run uv and return its answer (its lock, or what it prints) and the folder of the question,
    which is gone then. If uv fails, raise the gpusetup error for that failure.

    The command line contains nothing of the request, because other users may be able to read it.
    """
    requirements = question.requirements
    verb, *options = words
    variables = question.variables
    with private_folder() as folder:
        with blocked_by_files(f"{folder} cannot be written", MAKE_ROOM):
            project = folder / PROJECT
            project.write_text(requirements.text, encoding="utf-8")
            for option, variable, lines in (
                ("--constraints", "UV_CONSTRAINT", requirements.constraints),
                ("--excludes", "UV_EXCLUDE", requirements.without),
            ):
                if lines:
                    path = folder / f"{option.strip('-')}.txt"
                    path.write_text("\n".join((*lines, "")), encoding="utf-8")
                    # The option alone would replace the files that the user's variable names.
                    for file in (*variables.get(variable, "").split(), str(path)):
                        options += [option, file]
        # The two commands name a project differently. The lock gets a place of its own, because
        # the user's settings may name a file for it.
        lock = folder / LOCK
        if verb == "compile":
            options += ["--output-file", str(lock), str(project)]
        else:
            options += ["--requirements", str(project)]
        argv = (uv_program(), "pip", verb, *question.options, *options)
        output = run(argv, timeout=ASK_SECONDS, environment=variables)
        has_no_index = "in the provided package locations" in output.stderr
        if has_no_index and not (output.ok or question.wheels_folder):
            # The user's settings forbid all indexes, so torch comes from their folders of wheels.
            output = run((*argv, "--no-sources"), timeout=ASK_SECONDS, environment=variables)
        if output.ok:
            is_lock = verb == "compile"
            return lock.read_text(encoding="utf-8") if is_lock else output.stdout, folder
    problem = complaint(question.title, output)
    if isinstance(problem, Unsatisfiable) and not question.wheels_folder:
        for name in {*requirements.names} & {*names_not_found(problem.message)}:
            _require_page(requirements.index, name)
    raise problem


def _require_page(index: str, name: str) -> None:
    """Raise Unreached if torch's index refused to show its page for a package, or showed something
    else. To uv, the package then does not exist."""
    import requests
    from urllib3.exceptions import HTTPError

    url, login = split_login(f"{index}/{name}/")
    try:
        with answered(url, login=login, timeouts=PAGE_TIMEOUTS) as page:
            status, is_list = page.status_code, ".whl" in page.text
            said = f"{status} {page.reason}"
    except (requests.RequestException, HTTPError, ValueError) as problem:
        status, is_list, said = 0, False, without_logins(str(problem))[:200]
    # torch's own index returns 403 for a page that it does not have.
    is_missing = status == 404 or (status == 403 and url.startswith(INDEX_ROOT))
    if not is_missing and not is_list:
        message = f"{without_logins(url)}: {said}, and no list of wheels"
        raise Unreached(message, hint=hint_for(Unreached, "request"))


# --- pre-releases that were not requested ---------------------------------------------------------


def _without_prereleases(
    question: Question, ask: Callable[[Sequence[str]], Rows]
) -> tuple[Rows, tuple[str, ...]]:
    """uv's result without pre-releases that the user did not request, and a note about each one
    that remains.

    Because gpusetup builds nothing, uv ignores releases without a wheel. So if a project's only
    wheels are old pre-releases, uv would choose a development version from years ago. uv is
    therefore asked once more without pre-releases.
    """
    answer = ask(())
    requests = [Requirement(word) for word in question.requirements.others]
    named = {canonicalize_name(word.name) for word in requests}
    expected = {*question.requirements.names} | {
        canonicalize_name(word.name) for word in requests if word.specifier.prereleases
    }
    unasked = _prereleases(answer, expected)
    # The user filled the folder of wheels, or decided in a setting how to treat pre-releases.
    if not unasked or question.wheels_folder or _prereleases_are_set():
        return answer, ()
    try:
        answer = ask(("--prerelease", "explicit"))
    except Unsatisfiable as problem:
        # If a package that the user named has regular releases, but only as source, that is the
        # reason to stop. A dependency may be a pre-release if another package requires one.
        sources = {
            Requirement(word).name
            for word in names_without_wheel(problem.message, only_sources=True)
        }
        if named & sources & {*unasked}:
            raise
    rest = _prereleases(answer, expected)
    return answer, tuple(f"{name} {version} is a pre-release" for name, version in rest.items())


def _prereleases(answer: Rows, expected: set[str]) -> dict[str, str]:
    """The versions of the packages in a result that are unexpected pre-releases, by name."""
    prereleases: dict[str, str] = {}
    for name, row in answer.items():
        version = str(row.get("version", ""))
        # uv states no version for a package from a folder or a URL.
        with suppress(InvalidVersion):
            if Version(version).is_prerelease and canonicalize_name(name) not in expected:
                prereleases[name] = version
    return prereleases


def _prereleases_are_set() -> bool:
    """Whether the user's settings say how to treat pre-releases, as uv itself shows them."""
    decided = r"prerelease: \S+ \{\s*global: (?!IfNecessary)"
    return re.search(decided, shown_settings()) is not None
