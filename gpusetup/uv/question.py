"""Asks uv what goes together: in a private folder, with everything handed over explicitly.

The question is a project of its own and the root of a workspace of its own, so that uv looks into
no parent folder. torch and its companions come from torch's own index and from no other (an
explicit index of uv); everything else comes from the indexes that the person's settings name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gpusetup.errors import ToolFailed, Unsatisfiable
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import Output, run
from gpusetup.system.refusals import blocked_by_files
from gpusetup.uv.errors import QUESTION, complaint
from gpusetup.uv.indexes import login_variables
from gpusetup.uv.logins import split_login
from gpusetup.uv.program import ALONE, private_folder, uv_program
from gpusetup.uv.releases import newest_release
from gpusetup.uv.settings import PersonSettings
from gpusetup.uv.toml import parse_toml

ASK_SECONDS = 300.0
COMPILE = ("--format", "pylock.toml", "--quiet", "--no-header", "--no-annotate")
MAKE_ROOM = "nothing was changed; make room there"
MOST_ROUNDS = 5
"""How often uv is asked again without the pre-releases of its answer; each round names new ones."""
Disallowed = frozenset[str]
"""The packages of which no pre-release may be taken."""


class Requirements(Frozen):
    """What uv is asked: the family from one index, the rest from the person's own."""

    family: tuple[str, ...]
    """`torch==2.9.1+cu128`."""
    others: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    index: str
    """The index of the family, or of a backend in a folder of wheels."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the family's members."""
        return tuple(canonicalize_name(Requirement(word).name) for word in self.family)

    @property
    def text(self) -> str:
        """The question as the project file that uv reads."""
        rows = [
            f'[project]\nname = "{QUESTION}"\nversion = "0"',
            f"dependencies = {json.dumps([*self.family, *self.others])}",
            # The root of its own workspace: without it uv looks for one in the parent folders.
            "[tool.uv.workspace]\nmembers = []",
            f'[[tool.uv.index]]\nname = "torch"\nurl = {json.dumps(split_login(self.index)[0])}',
            "explicit = true\n[tool.uv.sources]",
            *(f'{name} = {{ index = "torch" }}' for name in self.names),
        ]
        return "\n".join(rows) + "\n"

    @property
    def asked_prereleases(self) -> frozenset[str]:
        """The packages of which a pre-release was asked for by its version."""
        words = map(Requirement, self.others)
        return frozenset(
            canonicalize_name(word.name) for word in words if word.specifier.prereleases
        )


class Question(Frozen):
    """What uv is asked, and for which Python."""

    requirements: Requirements
    python: str
    """The interpreter."""
    python_version: str
    """Its version, or that of the machine that is meant."""
    platform: str | None = None
    """uv's name of another machine's platform; None is this one."""
    environment: Mapping[str, str] = {}
    wheels_folder: str | None = None
    """The folder that holds every wheel; then no index is asked."""
    title: str
    """How the error begins where uv has no answer."""

    @property
    def options(self) -> tuple[str, ...]:
        """Nothing is built: a source distribution runs its author's code."""
        options = ["--no-build", "--python", self.python]
        if self.platform:
            options += ["--python-platform", self.platform, "--python-version", self.python_version]
        if self.wheels_folder:
            links = Path(self.wheels_folder).as_uri()
            options += ["--no-sources", "--no-index", "--find-links", links, "--offline"]
        return tuple(options)


class Locked(Frozen):
    """The rows of uv's lock, one for each package, and what is to be said of them."""

    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()


class Changes(Frozen):
    """Name and version of what uv would install, and what is to be said of it."""

    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()


# --- the two questions ----------------------------------------------------------------------------


def lock_of(
    question: Question, settings: PersonSettings, *, with_dependencies: bool = True
) -> Locked:
    """The files that meet the requirements, as uv's lock names them.

    Unsatisfiable if nothing does; Unreached if an index gives no answer.
    """
    words = COMPILE if with_dependencies else (*COMPILE, "--no-deps")

    def ask(disallowed: Disallowed) -> dict[str, Mapping[str, Any]]:
        output = _ask(question, settings, ("compile", *words), disallowed)
        return {row["name"]: row for row in parse_toml(output.stdout).get("packages", ())}

    def versions(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        return {name: str(row.get("version", "")) for name, row in rows.items()}

    rows, notes = _without_prereleases(question, settings, ask, versions)
    return Locked(rows=tuple(rows.values()), notes=notes)


def changes_of(question: Question, settings: PersonSettings) -> Changes:
    """What uv would install into the environment as it is.

    The family is always looked up again: another build of the same version may be installed.
    """
    again = [f"--reinstall-package={name}" for name in question.requirements.names]
    words = ("install", "--dry-run", "--output-format", "json", *again)

    def ask(disallowed: Disallowed) -> dict[str, str]:
        return _planned(_ask(question, settings, words, disallowed))

    versions, notes = _without_prereleases(question, settings, ask, dict)
    return Changes(versions=versions, notes=notes)


def _planned(output: Output) -> dict[str, str]:
    """Name and version of what a dry run of uv would install."""
    try:
        rows = json.loads(output.stdout)["changes"]
        return {row["name"]: row["version"] for row in rows if row["action"] != "uninstalled"}
    except (ValueError, KeyError, TypeError) as problem:
        message = f"cannot read uv's plan: {problem}"
        raise ToolFailed(message, hint="nothing was changed") from problem


def _ask(
    question: Question, settings: PersonSettings, words: tuple[str, ...], disallowed: Disallowed
) -> Output:
    """uv's answer; its error as one of ours. Nothing of the question is in its arguments, which
    other users may read."""
    wanted, verb = question.requirements, words[0]
    with private_folder() as folder:
        project, configuration = folder / "pyproject.toml", folder / "uv.toml"
        limits = _written(question, settings, folder)
        modes = dict.fromkeys(sorted(disallowed), "disallow")
        text = settings.configuration(**{"prerelease-package": modes} if modes else {})
        with blocked_by_files(f"{folder} cannot be written", MAKE_ROOM):
            project.write_text(wanted.text, encoding="utf-8")
            configuration.write_text("" if question.wheels_folder else text, encoding="utf-8")
        named = f"--requirement={project}" if verb == "install" else str(project)
        handed = (*ALONE, "--config-file", str(configuration), *question.options)
        argv = (uv_program(), "pip", verb, *handed, *words[1:], *limits, named)
        temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
        login = split_login(wanted.index)[1]
        logins = login_variables("TORCH", login) if login else {}
        environment = settings.environment({**temporary, **question.environment, **logins})
        output = run(argv, timeout=ASK_SECONDS, environment=environment, cwd=str(folder))
    if not output.ok:
        raise complaint(question.title, output, notes=settings.limits.notes)
    return output


def _written(question: Question, settings: PersonSettings, folder: Path) -> tuple[str, ...]:
    """The options that name the files of constraints, overrides and exclusions, once written."""
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
            options += [option, str(path)]
    return tuple(options)


# --- no pre-release unasked -----------------------------------------------------------------------


def _without_prereleases(
    question: Question,
    settings: PersonSettings,
    ask: Callable[[Disallowed], dict[str, Any]],
    versions: Callable[[dict[str, Any]], dict[str, str]],
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """uv's answer without pre-releases that nobody asked for, and a note about each that stays.

    Nothing is built here, so that for uv a project without wheels has only its old pre-releases
    that do have one: it would take a development version from years ago. If a project has a regular
    release, uv is asked again without its pre-releases; without any, its pre-release is what there
    is.
    """
    answer = ask(frozenset())
    if question.wheels_folder or settings.single("prerelease"):
        # The person filled that folder, or has said how pre-releases are to be treated.
        return answer, ()
    asked = question.requirements.asked_prereleases
    named = frozenset(canonicalize_name(Requirement(w).name) for w in question.requirements.others)
    disallowed: Disallowed = frozenset()
    for _ in range(MOST_ROUNDS):
        prereleases = _prereleases(versions(answer), asked | {*question.requirements.names})
        replaceable = {
            name
            for name in prereleases.keys() - disallowed
            if newest_release(name, settings, question.python_version) is not None
        }
        if not replaceable:
            break
        try:
            disallowed |= replaceable
            answer = ask(disallowed)
        except Unsatisfiable:
            # A package that was asked for by its name alone is refused. A dependency may be
            # required as a pre-release by what depends on it; then it comes, and is named.
            if named & replaceable:
                raise
            break
    stays = _prereleases(versions(answer), asked | {*question.requirements.names})
    notes = (f"{name} {version} is a pre-release" for name, version in stays.items())
    return answer, tuple(notes)


def _prereleases(versions: Mapping[str, str], asked: frozenset[str]) -> dict[str, str]:
    """The packages of an answer that come as a pre-release although nobody asked for one."""
    prereleases: dict[str, str] = {}
    for name, version in versions.items():
        try:
            is_prerelease = Version(version).is_prerelease
        except InvalidVersion:
            continue
        if is_prerelease and canonicalize_name(name) not in asked:
            prereleases[name] = version
    return prereleases
