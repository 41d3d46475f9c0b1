"""Asks uv which packages work together, in a private folder and with all settings passed
explicitly.

The question is its own project and the root of its own workspace, so that uv does not search the
parent folders. torch and its companions come only from torch's own index (an explicit index of uv);
everything else comes from the indexes in the user's settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gpusetup.accelerators.amd import INDEX_OF_AMD
from gpusetup.errors import Blocked, ToolFailed, Unsatisfiable
from gpusetup.model.frozen import Frozen
from gpusetup.model.logins import split_login, without_logins
from gpusetup.system.processes import Output, run
from gpusetup.system.refusals import blocked_by_files
from gpusetup.uv.errors import QUESTION, complaint, explanation, names_not_found, said_by
from gpusetup.uv.hosts import ON_DISK, AllowedHosts
from gpusetup.uv.indexes import login_variables
from gpusetup.uv.program import ALONE, uv_program
from gpusetup.uv.releases import newest_release
from gpusetup.uv.settings import PersonSettings
from gpusetup.uv.toml import parse_toml
from gpusetup.uv.world import CONFIGURATION, World, private_world

ASK_SECONDS = 300.0
COMPILE = ("--format", "pylock.toml", "--quiet", "--no-header", "--no-annotate")
PROJECT = "pyproject.toml"
MAKE_ROOM = "nothing was changed; make room there"
MOST_ROUNDS = 5
"""How often uv is asked again with the pre-releases of its last answer forbidden; each round may
find new ones."""
Disallowed = frozenset[str]
"""The names of packages whose pre-releases uv must not use."""
Rows = dict[str, Mapping[str, Any]]
"""Maps a package's name to uv's data about it, such as its `version`."""


class Requirements(Frozen):
    """The request to uv: torch and its companions from one index, other packages from the user's
    indexes."""

    family: tuple[str, ...]
    """The requirements for torch and its companions, such as `torch==2.9.1+cu128`."""
    others: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    index: str
    """The URL of the index for torch and its companions; with a folder of wheels, the place of the
    backend in that folder."""
    needs_more_of_index: bool = False
    """Whether torch and its companions need packages that only their own index has, such as ROCm's
    Triton."""

    @property
    def names(self) -> tuple[str, ...]:
        """The normalised names of the packages that come from torch's index."""
        words = [Requirement(word) for word in self.family]
        names = [canonicalize_name(word.name) for word in words]
        return tuple(names)

    @property
    def text(self) -> str:
        """The request as the text of the pyproject.toml that uv reads."""
        rows = [
            f'[project]\nname = "{QUESTION}"\nversion = "0"',
            f"dependencies = {json.dumps([*self.family, *self.others])}",
            # It is the root of its own workspace, because otherwise uv looks for one in the parent
            # folders.
            "[tool.uv.workspace]\nmembers = []",
            f"[[tool.uv.index]]\n{self.index_table}[tool.uv.sources]",
            *(f'{name} = {{ index = "torch" }}' for name in self.names),
        ]
        return "\n".join(rows) + "\n"

    @property
    def index_table(self) -> str:
        """torch's index as a table in uv's settings, without its login.

        By default, uv uses this index for torch and its companions only. If they need more packages
        from it, it is the first of all indexes, so every package that it has comes from it.
        """
        url = split_login(self.index)[0]
        rows = ['name = "torch"', f"url = {json.dumps(url)}"]
        if not self.needs_more_of_index:
            rows.append("explicit = true")
        elif url.startswith(INDEX_OF_AMD):
            # AMD's index returns status 403 for a package that it does not have. uv accepts that
            # only from PyTorch's index, unless the table allows it.
            rows.append("ignore-error-codes = [403]")
        return "\n".join((*rows, ""))

    @property
    def asked_prereleases(self) -> frozenset[str]:
        """The packages for which the request names a pre-release version."""
        words = map(Requirement, self.others)
        return frozenset(
            canonicalize_name(word.name) for word in words if word.specifier.prereleases
        )


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
    """The beginning of the error message if uv finds no answer."""

    @property
    def addresses(self) -> tuple[str, ...] | None:
        """The URL of torch's index, which is used in addition to the user's indexes; None if no
        index is used."""
        if self.wheels_folder:
            return None
        return (split_login(self.requirements.index)[0],)

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
            options += ["--no-sources", "--no-index", "--find-links", links, "--offline"]
        return tuple(options)


class Locked(Frozen):
    """The packages in uv's lock, and notes about them."""

    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()


class Changes(Frozen):
    """The packages that uv would install, with versions, and notes about them."""

    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()


# --- the two questions ----------------------------------------------------------------------------


def lock_of(
    question: Question, settings: PersonSettings, *, with_dependencies: bool = True
) -> Locked:
    """The packages that meet the requirements, with their files, from uv's lock.

    Raises Unsatisfiable if nothing meets them, and Unreached if an index does not respond.
    """
    words = ["compile", *COMPILE]
    if not with_dependencies:
        words.append("--no-deps")

    def ask(disallowed: Disallowed) -> Rows:
        output = _ask(question, settings, tuple(words), disallowed)
        packages = parse_toml(output.stdout).get("packages", ())
        return {package["name"]: package for package in packages}

    rows, notes = _without_prereleases(question, settings, ask)
    _require_shown_hosts(question, settings, rows)
    return Locked(rows=tuple(rows.values()), notes=notes)


def changes_of(question: Question, settings: PersonSettings) -> Changes:
    """The packages that uv would install into the existing environment.

    torch and its companions are always looked up again, because another build of the same version
    may be installed.
    """
    words = ["install", "--dry-run", "--output-format", "json"]
    for name in question.requirements.names:
        words.append(f"--reinstall-package={name}")

    def ask(disallowed: Disallowed) -> Rows:
        with lock_file_removed(question.python):
            output = _ask(question, settings, tuple(words), disallowed)
        return _planned(output)

    rows, notes = _without_prereleases(question, settings, ask)
    versions = {name: str(row["version"]) for name, row in rows.items()}
    return Changes(versions=versions, notes=notes)


def _require_shown_hosts(question: Question, settings: PersonSettings, rows: Rows) -> None:
    """Raise `Unreached` if a file in a result is on a host, or in a folder, that was not shown to
    the user.

    The proxy does not see a link to a file on this machine. uv may also answer from its cache
    without a connection.
    """
    if question.addresses is None:
        return
    allowed = AllowedHosts((*question.addresses, *settings.addresses))
    for name, row in rows.items():
        # uv would install the first file, which is the best one.
        for wheel in row.get("wheels", ())[:1]:
            url = str(wheel.get("url") or Path(wheel.get("path", "")).absolute().as_uri())
            if url.startswith(ON_DISK):
                allowed.require_file(url, name)
            else:
                allowed.require(url)


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


def _planned(output: Output) -> Rows:
    """The versions of the packages that a dry run of uv would install, by name. Raises ToolFailed
    if its output cannot be read."""
    try:
        changes = json.loads(output.stdout)["changes"]
        # A package that is only removed does not count; a replaced package is also listed as
        # installed.
        coming = [change for change in changes if change["action"] != "uninstalled"]
        return {change["name"]: {"version": change["version"]} for change in coming}
    except (ValueError, KeyError, TypeError) as problem:
        message = f"cannot read uv's plan: {problem}"
        raise ToolFailed(message, hint="nothing was changed") from problem


def _ask(
    question: Question, settings: PersonSettings, words: tuple[str, ...], disallowed: Disallowed
) -> Output:
    """Run uv and return its output. If uv fails, raise the gpusetup error for that failure.

    The command line contains nothing of the request, because other users may be able to read it.
    """
    if settings.single("no-index") and not question.wheels_folder:
        raise _no_index(settings)
    verb, *options = words
    environment = _environment(question, settings)
    with private_world(settings, environment, question.addresses) as world:
        folder = world.folder
        with blocked_by_files(f"{folder} cannot be written", MAKE_ROOM):
            limits = _write_question(question, settings, world, disallowed)
        # The two commands name a project differently. The names are relative to uv's working
        # folder, because uv rejects an absolute path with bytes that are not UTF-8.
        named = f"--requirement={PROJECT}" if verb == "install" else PROJECT
        # gpusetup's settings file is the only one; uv does not look for others.
        configuration = ("--config-file", CONFIGURATION)
        argv = (uv_program(), "pip", verb, *ALONE, *configuration, *question.options)
        output = run(
            (*argv, *options, *limits, named),
            timeout=ASK_SECONDS,
            environment=world.environment,
            cwd=str(folder),
        )
        if not output.ok:
            world.refuse_strange_hosts()
    if output.ok:
        return output
    if settings.single("offline") and not question.wheels_folder:
        raise _offline(settings, output)
    notes = settings.notes_of_limits
    problem = complaint(question.title, output, notes=notes, failures=world.failures)
    if names_not_found(problem.message):
        places = settings.notes_on_places(without_logins(question.requirements.index))
        problem.hint = f"nothing was changed; {'; '.join(places)}"
    raise problem


def _offline(settings: PersonSettings, output: Output) -> Blocked:
    """The error for a request that uv could not answer from its cache. The user's settings forbid
    the network."""
    source = settings.source_of("offline")
    return Blocked(
        f"No index may be asked, because {source} sets offline, and uv's cache does not have all "
        f"that is needed: {explanation(said_by(output))}",
        hint="nothing was changed; unset it, or install from a folder of wheels: "
        "`gpusetup install --offline DIR`",
    )


def _no_index(settings: PersonSettings) -> Blocked:
    """The error if the user's settings forbid using any index."""
    source = settings.source_of("no-index")
    return Blocked(
        f"No index may be asked, because {source} sets no-index",
        hint="nothing was changed; unset it, or install from a folder of wheels: "
        "`gpusetup install --offline DIR`",
    )


def _environment(question: Question, settings: PersonSettings) -> dict[str, str]:
    """The environment variables for a request: the user's, those of the question, and the login for
    torch's index."""
    variables = dict(question.environment)
    _, login = split_login(question.requirements.index)
    if login:
        variables |= login_variables("TORCH", login)
    return settings.environment(variables)


def _write_question(
    question: Question, settings: PersonSettings, world: World, disallowed: Disallowed
) -> tuple[str, ...]:
    """Write the files of a request into uv's folder, and return the options that name the files
    with limits."""
    configuration = ""
    # With a folder of wheels no index is used, so the user's settings are not needed.
    if not question.wheels_folder:
        changes: dict[str, Mapping[str, Any]] = {}
        if disallowed:
            changes["prerelease-package"] = dict.fromkeys(sorted(disallowed), "disallow")
        if settings.single("exclude-newer"):
            # torch's index states no dates, so with a limit by date it would seem empty.
            by_package = settings.single("exclude-newer-package")
            limits_by_date = by_package if isinstance(by_package, dict) else {}
            without_limit = dict.fromkeys(question.requirements.names, False)
            changes["exclude-newer-package"] = {**limits_by_date, **without_limit}
        # uv reports that an index refuses to answer only if its settings name that index, so
        # torch's index is in the settings too.
        torch_index = f"[[index]]\n{question.requirements.index_table}"
        configuration = settings.configuration(first_index=torch_index, **changes)
    world.configure(configuration)
    folder = world.folder
    project = question.requirements.text
    (folder / PROJECT).write_text(project, encoding="utf-8")
    limits = settings.limits
    options: list[str] = []
    for option, lines in (
        ("--constraints", (*question.requirements.constraints, *limits.constraints)),
        ("--overrides", limits.overrides),
        ("--excludes", limits.exclusions),
    ):
        if lines:
            path = folder / f"{option.strip('-')}.txt"
            path.write_text("\n".join((*lines, "")), encoding="utf-8")
            options += [option, path.name]
    return tuple(options)


# --- pre-releases that were not requested ---------------------------------------------------------


def _without_prereleases(
    question: Question, settings: PersonSettings, ask: Callable[[Disallowed], Rows]
) -> tuple[Rows, tuple[str, ...]]:
    """uv's result without pre-releases that the user did not request, and a note about each one
    that remains.

    Because gpusetup builds nothing, uv ignores releases without a wheel. So if a project's only
    wheels are old pre-releases, uv would choose a development version from years ago. If the
    project has a regular release, uv is therefore asked again without the project's pre-releases.
    Otherwise the pre-release is used.
    """
    answer = ask(frozenset())
    # The user filled the folder of wheels, or decided in a setting how to treat pre-releases, so a
    # pre-release is not unexpected.
    if question.wheels_folder or settings.single("prerelease"):
        return answer, ()
    requirements = question.requirements
    named = {canonicalize_name(Requirement(word).name) for word in requirements.others}
    expected = requirements.asked_prereleases | {*requirements.names}
    disallowed: Disallowed = frozenset()
    for _ in range(MOST_ROUNDS):
        replaceable: set[str] = set()
        for name in _prereleases(answer, expected):
            release = newest_release(name, settings, question.python_version)
            if release is not None and name not in disallowed:
                replaceable.add(name)
        if not replaceable:
            break
        disallowed |= replaceable
        try:
            answer = ask(disallowed)
        except Unsatisfiable:
            # Never take a pre-release of a package that the user named without a version. A
            # dependency may be a pre-release if another package requires one; a note names it.
            if named & replaceable:
                raise
            break
    notes: list[str] = []
    for name, version in _prereleases(answer, expected).items():
        notes.append(f"{name} {version} is a pre-release")
    return answer, tuple(notes)


def _prereleases(answer: Rows, expected: frozenset[str]) -> dict[str, str]:
    """The versions of the packages in a result that are unexpected pre-releases, by name."""
    prereleases: dict[str, str] = {}
    for name, row in answer.items():
        version = str(row.get("version", ""))
        try:
            is_prerelease = Version(version).is_prerelease
        except InvalidVersion:
            # uv states no version for a package from a folder or a URL.
            continue
        if is_prerelease and canonicalize_name(name) not in expected:
            prereleases[name] = version
    return prereleases
