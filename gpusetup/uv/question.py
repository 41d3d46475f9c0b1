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
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpusetup.accelerators.amd import INDEX_OF_AMD
from gpusetup.catalog.builds import index_url
from gpusetup.choose.host import python_tag
from gpusetup.choose.packages import IndexAnswer, SetQuestion
from gpusetup.choose.wish import name_of
from gpusetup.errors import ToolFailed, Unsatisfiable
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import split_login, without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.steps import Step
from gpusetup.readings.toml import parse_toml
from gpusetup.system.processes import run
from gpusetup.system.refusals import blocked_by_files
from gpusetup.uv.errors import QUESTION, explanation, names_not_found, names_without_wheel, uv_error
from gpusetup.uv.program import (
    TORCH_INDEX_NAME,
    Settings,
    private_folder,
    uv_environment,
    uv_program,
    with_torch_index,
)

ASK_SECONDS = 300.0
"""The time limit for one question to uv, which may have to read many packages' metadata."""
LIMITS = {"UV_HTTP_TIMEOUT": "6", "UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_RETRIES": "1"}
"""uv's timeout in seconds and number of retries for a question, so that an unreachable host is
reported within 15 s. The user's own settings come before these."""
MAKE_ROOM = "nothing was changed; free some space there"
PROJECT, LOCK = "pyproject.toml", "pylock.toml"
NO_INDEX = "in the provided package locations"
"""uv's words for its folders of wheels, if a setting forbids all indexes."""


class Question(Frozen):
    """A request to uv: torch and its companions from one index, other packages from the user's
    indexes, for one Python and platform."""

    family: tuple[str, ...]
    """The requirements for torch and its companions, such as `torch==2.9.1+cu128`."""
    index: str
    """The URL of the index for torch and its companions."""
    python: str
    """The path of the Python interpreter."""
    python_version: str
    """The Python version of the environment or of the described machine."""
    others: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    needs_more_of_index: bool = False
    """Whether torch needs packages that only its own index has, such as ROCm's Triton."""
    platform: str | None = None
    """uv's name for another machine's platform; None for this machine."""
    environment: Mapping[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The normalised names of the packages that come from torch's index."""
        return tuple(map(name_of, self.family))

    @property
    def text(self) -> str:
        """The request as the text of the pyproject.toml that uv reads."""
        rows = [
            f'[project]\nname = "{QUESTION}"\nversion = "0"',
            f"dependencies = {json.dumps([*self.family, *self.others])}",
            # Without its own workspace, uv looks for one in the parent folders.
            "[tool.uv.workspace]\nmembers = []",
            f'[[tool.uv.index]]\nname = "{TORCH_INDEX_NAME}"',
            f"url = {json.dumps(split_login(self.index)[0])}\nexplicit = true",
            "[tool.uv.sources]",
            *(f'{name} = {{ index = "{TORCH_INDEX_NAME}" }}' for name in self.names),
        ]
        return "\n".join(rows) + "\n"

    @property
    def options(self) -> tuple[str, ...]:
        """uv's command-line options. They forbid building, which would run the packages' code."""
        options = ["--no-build", "--python", self.python]
        if self.platform:
            options += ["--python-platform", self.platform, "--python-version", self.python_version]
        return tuple(options)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables for uv, with the login of torch's index."""
        more = {name: os.environ.get(name, value) for name, value in LIMITS.items()}
        if self.needs_more_of_index:
            # As the first of all indexes, uv also takes from it what torch requires.
            more["UV_INDEX"] = with_torch_index(self.index)
            if split_login(self.index)[0].startswith(INDEX_OF_AMD):
                # AMD's index returns status 403 for a package that it does not have, after which uv
                # asks no further index unless this is set.
                more["UV_INDEX_STRATEGY"] = "unsafe-first-match"
        return uv_environment({**more, **self.environment}, login_of=self.index)


Packages = Mapping[str, Mapping[str, Any]]
"""The packages in uv's answer: a package's name and uv's data about it, such as its `version`."""


def lock_of(question: Question, *, with_dependencies: bool = True) -> Packages:
    """The packages that meet the requirements, with their files, from uv's lock.

    Raises Unsatisfiable if nothing meets them, and Unreached if an index does not respond.
    """
    words = ["compile", "--format", LOCK, "--no-header", "--no-annotate"]
    return _ask(question, words if with_dependencies else [*words, "--no-deps"])


def changes_of(question: Question) -> Packages:
    """The packages that uv would install into the existing environment.

    torch and its companions are always looked up again, because another build of the same version
    may be installed.
    """
    words = ["install", "--dry-run", "--output-format", "json"]
    words += [f"--reinstall-package={name}" for name in question.names]
    return _ask(question, words)


def _ask(question: Question, words: Sequence[str]) -> Packages:
    """uv's answer to `uv pip compile` or `uv pip install --dry-run` with these words. If uv fails,
    raise the gpusetup error for that failure.

    The command line contains nothing of the request, because other users may be able to read it.
    """
    verb, *options = words
    with private_folder() as folder:
        with blocked_by_files(f"{folder} cannot be written", MAKE_ROOM):
            project = folder / PROJECT
            project.write_text(question.text, encoding="utf-8")
            if question.constraints:
                limits = folder / "constraints.txt"
                limits.write_text("\n".join((*question.constraints, "")), encoding="utf-8")
                # The option alone would replace the files that the user's variable names.
                of_user = question.variables.get("UV_CONSTRAINT", "").split()
                for file in (*of_user, str(limits)):
                    options += ["--constraints", file]
        lock = folder / LOCK
        # `compile` reads the project as an argument, `install` as a requirements file.
        files = ["--requirements", str(project)]
        if verb == "compile":
            # The lock has its own place, because the user's settings may name a file for it.
            files = ["--output-file", str(lock), str(project)]
        argv = [uv_program(), "pip", verb, *question.options, *options, *files]
        output = run(argv, timeout=ASK_SECONDS, environment=question.variables)
        # If the user's settings forbid all indexes, uv fails, because the project's sources name
        # torch's index. Without the sources, uv looks for torch in the user's folders of wheels.
        if not output.ok and NO_INDEX in output.stderr:
            argv.append("--no-sources")
            output = run(argv, timeout=ASK_SECONDS, environment=question.variables)
        if output.ok and verb == "compile":
            return _packages_in_lock(lock)
        if output.ok:
            return _packages_in_plan(output.stdout)
    raise uv_error("uv cannot plan the installation", output)


def _packages_in_lock(lock: Path) -> Packages:
    """The packages in a pylock.toml, by name. uv names a wheel on this disk by its path from the
    lock; here it gets a path that stays valid."""
    packages = parse_toml(lock.read_text(encoding="utf-8")).get("packages", ())
    for package in packages:
        for wheel in package.get("wheels", ()):
            if "path" in wheel:
                wheel["path"] = os.path.normpath(lock.parent / wheel["path"])
    return {package["name"]: package for package in packages}


def _packages_in_plan(text: str) -> Packages:
    """The packages that uv would install, from the JSON of `uv pip install --dry-run`. Raises
    ToolFailed for anything else."""
    try:
        # A package that is replaced is listed twice: as uninstalled and as installed.
        return {
            change["name"]: {"version": str(change["version"])}
            for change in json.loads(text)["changes"]
            if change["action"] != "uninstalled"
        }
    except (ValueError, KeyError, TypeError) as problem:
        message = f"cannot read uv's plan: {problem}"
        raise ToolFailed(message, hint="nothing was changed") from problem


# --- as the index that choosing packages asks -----------------------------------------------------

GLIBCS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minor versions of glibc for which uv has a platform name."""
USUAL_GLIBC, USUAL_MACOS, USUAL_PYTHON = 35, "15.0", "3.12"
"""The versions that are assumed if the machine's are unknown; for glibc, the minor one (2.35)."""


class UserIndexes:
    """The user's indexes and torch's own indexes below a root URL, asked for one machine."""

    def __init__(self, machine: Snapshot, root: str) -> None:
        self.root = root
        self.platform, self.environment = platform_of(machine)
        self.python_version = (python_tag(machine) or USUAL_PYTHON).rstrip("t")

    @property
    def torch_root(self) -> str:
        """The root of torch's own indexes, without a login."""
        return without_logins(self.root)

    def ask(self, question: SetQuestion) -> IndexAnswer:
        """The newest releases that answer the question, or uv's reason why there are none."""
        # Without torch, every package comes from the default index.
        if question.torch is None:
            return self._answer(question, ())
        on_torch_index = (*FAMILY, *question.of_torch_index)
        named = [name for name in map(name_of, question.words) if name in on_torch_index]
        answer = self._answer(question, named)
        # uv takes a package from torch's index only if it is named. So ask again with the packages
        # that another package brought from elsewhere, or because of which there was no answer.
        # torch itself is always named.
        mentioned = {*answer.packages, *re.findall(r"[\w.-]+", answer.reason or "")}
        companions = on_torch_index[1:]
        unnamed = [one for one in companions if one in mentioned and one not in named]
        if not unnamed:
            return answer
        words = (*question.words, *unnamed)
        second_answer = self._answer(replace(question, words=words), (*named, *unnamed))
        # Without an answer in both cases, the first reason is about what was requested.
        return answer if second_answer.reason and answer.reason else second_answer

    def _answer(self, question: SetQuestion, on_torch_index: Sequence[str]) -> IndexAnswer:
        """uv's answer, with torch and the packages of these names from torch's own index."""
        family = [word for word in question.words if name_of(word) in on_torch_index]
        others = tuple(word for word in question.words if word not in family)
        # In a question without torch, `family` is empty, and uv takes nothing from this index.
        index = self.root
        if question.torch is not None:
            family.insert(0, f"torch{question.torch}")
            index = index_url(question.backend, self.root)
        try:
            locked = lock_of(
                Question(
                    family=tuple(family),
                    index=index,
                    others=others,
                    constraints=question.limits,
                    # Name gpusetup's own Python, so that uv does not start each Python on the
                    # machine to get its version. Nothing is built, so any Python will do.
                    python=sys.executable,
                    python_version=question.python or self.python_version,
                    platform=self.platform,
                    environment=self.environment,
                ),
                with_dependencies=question.with_dependencies,
            )
        except Unsatisfiable as problem:
            sources = map(name_of, names_without_wheel(problem.message))
            return IndexAnswer(
                reason=explanation(problem.message),
                unknown=names_not_found(problem.message),
                without_wheel=tuple(dict.fromkeys(sources)),
            )
        return IndexAnswer(
            packages={name: row.get("version", "") for name, row in locked.items()},
            # torch's family always comes from there.
            on_torch_index=tuple(name for name in on_torch_index if name not in FAMILY),
        )


def platform_of(machine: Snapshot) -> tuple[str, dict[str, str]]:
    """uv's name for the platform, such as `x86_64-manylinux_2_35`, and variables that complete it.
    An unknown system counts as Linux."""
    processor = machine.os.machine or "x86_64"
    if machine.os.family == "windows":
        return f"{processor}-pc-windows-msvc", {}
    if machine.os.family == "macos":
        release = re.match(r"\d+(\.\d+)?", machine.os.version or "")
        target = release[0] if release else USUAL_MACOS
        # uv's name for macOS has no version. uv reads it from the variable that compilers use.
        return f"{processor}-apple-darwin", {"MACOSX_DEPLOYMENT_TARGET": target}
    library = re.fullmatch(r"glibc \d{1,3}\.(\d{1,3})", machine.os.libc or "")
    minor = int(library[1]) if library else USUAL_GLIBC
    # The newest version that uv has a name for and that the machine's glibc still satisfies.
    nearest = next((known for known in GLIBCS if known <= minor), GLIBCS[-1])
    return f"{processor}-manylinux_2_{nearest}", {}


APPLIED = ("UV_CONSTRAINT", "UV_OVERRIDE")
"""The user's variables that were applied in the plan, and that uv refuses together with a lock."""


class Wheel(Frozen):
    """A wheel to download."""

    name: str
    """The project's name."""
    version: str
    url: str
    sha256: str | None = None
    """The hash that the index states; None if it states none."""
    size_bytes: int | None = None
    index: str | None = None
    """The URL of the index that the wheel comes from, without a login; None if it is unknown, or if
    the wheel is not from an index."""
    is_of_torch_index: bool = False

    @property
    def host(self) -> str:
        """The host of the wheel's URL, without a login; "" for a file on disk."""
        # A login may contain a `[`, with which `urlsplit` fails.
        return urlsplit(split_login(self.url)[0]).netloc


def wheel_of(package: Mapping[str, Any], question: Question, settings: Settings) -> Wheel:
    """The wheel to download for a package in the lock that answers a question. uv lists the best of
    the fitting wheels first.

    Raises Unsatisfiable if the package has none.
    """
    wheels, name, version = package.get("wheels"), package["name"], package.get("version", "")
    if not wheels:
        raise Unsatisfiable(
            f"{name} {version} has no wheel for Python {question.python_version} here",
            hint="nothing was changed; install that package alone first, then run this again",
        )
    best = wheels[0]
    # A wheel from a folder on this disk has a path instead of a URL.
    url = best.get("url") or Path(best["path"]).absolute().as_uri()
    is_of_torch_index = name in question.names
    index = split_login(question.index)[0] if is_of_torch_index else settings.only_index
    # With `no-index`, a URL is of a page of wheels (`--find-links`).
    is_from_index = url.startswith("http") and not settings.has_no_index
    return Wheel(
        name=name,
        version=version,
        url=url,
        sha256=best.get("hashes", {}).get("sha256"),
        size_bytes=best.get("size"),
        index=index if is_from_index else None,
        is_of_torch_index=is_of_torch_index,
    )


def lock_text(wheels: Sequence[Wheel]) -> str:
    """The text of a lock file with these wheels, each with its URL and hash, and with its index, by
    which uv finds a wheel that it has in its cache already."""
    rows = ['lock-version = "1.0"\ncreated-by = "gpusetup"\n']
    for wheel in wheels:
        # Some old indexes state no hash; the plan mentions that before anything is downloaded.
        hashes = f"{{ sha256 = {json.dumps(wheel.sha256)} }}" if wheel.sha256 else "{}"
        index = f"index = {json.dumps(wheel.index)}\n" if wheel.index else ""
        rows.append(
            f'[[packages]]\nname = "{wheel.name}"\nversion = "{wheel.version}"\n{index}'
            f"wheels = [{{ url = {json.dumps(wheel.url)}, hashes = {hashes} }}]\n"
        )
    return "\n".join(rows)


DOWNLOAD_SECONDS = 6 * 3600.0
"""Long enough for 5 GB of wheels at 2 Mbit/s."""


def unpack_step(python: str, stage: str, settings: Settings) -> Step:
    """The step that downloads the wheels of a lock and unpacks them in the folder `stage`.

    Each wheel is given by its URL and hash, with which uv compares the file.
    """
    # Without bytecode, the unpacked files are exactly those that the wheels list.
    options = ["--quiet", "--no-deps", "--no-build", "--no-compile-bytecode"]
    options += ["--preview-features", "pylock"]
    if settings.has_target:
        # A target folder in the user's settings would count more than `--prefix`.
        options.append("--no-config")
    if settings.links_files:
        # A link into the cache would break when the cache is emptied.
        options += ["--link-mode", "copy"]
    # `unpack.py` makes the folder `tmp`, writes this lock, and reads `root`.
    where = ("--python", python, "--prefix", str(Path(stage, "root")))
    lock = ("-r", str(Path(stage, "pylock.toml")))
    # On the environment's own disk, whose space was checked; `/tmp` may be too small for torch.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(Path(stage, "tmp")))
    return Step(
        argv=(uv_program(), "pip", "install", *options, *where, *lock),
        environment={"PYTHONDONTWRITEBYTECODE": "1", **temporary},
        timeout_seconds=DOWNLOAD_SECONDS,
    )


def size_text(count: int | float) -> str:
    """A number of bytes as text, in B, KiB, MiB or GiB.

    >>> size_text(191_794_682), size_text(812)
    ('182.9 MiB', '812 B')
    """
    # At 1,000 the next unit begins, so that no number has four digits before the point.
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if count < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.2f} GiB"
