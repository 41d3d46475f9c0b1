"""uv is asked which versions go together: one question, its answer or its reason, kept a while."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from gpusetup.errors import GpuSetupError, Unsatisfiable
from gpusetup.install.complaints import complaint, plain_lines
from gpusetup.install.credentials import without_logins
from gpusetup.install.settings.uv_config import parse_toml
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.system.processes import Output, run

SECONDS = 300.0
FRESH_SECONDS = 600.0
"""How long an answer counts, as an index's page does."""
GLIBCS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minors of glibc that uv has a platform for."""
MOST_CHARACTERS = 1 << 18
"""Of a file of settings."""
USUAL_MACOS = "15.0"
USUAL_GLIBC = "2.35"
"""What is taken where the machine's is not known: Ubuntu 22.04's."""


class Question(Frozen):
    """What uv is asked: requirements and constraints, for a platform and a Python."""

    wants: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    python: str
    platform: str
    macos: str | None = None
    """The version of macOS; uv takes an old one where it is not told."""
    links: str | None = None
    """The folder of stand-ins."""
    standing_in: tuple[str, ...] = ()
    """Their names: two folders with the same are the same."""


class Locked(Frozen):
    """One package of an answer."""

    name: str
    version: str
    index: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Name and sha256 of its wheels."""


class Answer(Frozen):
    """What uv says: the packages that go together, or why none do."""

    packages: tuple[Locked, ...] = ()
    reason: str | None = None

    def version(self, name: str) -> str | None:
        return next((one.version for one in self.packages if one.name == name), None)


class Asker:
    """Asks uv in one environment of settings, and keeps what it says."""

    def __init__(
        self,
        uv: str,
        environment: Mapping[str, str],
        folder: Path,
        trusted: Callable[[], Mapping[str, str]] = dict,
        *,
        offline: bool = False,
    ) -> None:
        self._uv, self._environment, self._folder = uv, dict(environment), folder
        self._trusted, self._offline = cache(trusted), offline
        self.asked = 0
        """How often uv was run."""

    def ask(self, question: Question) -> Answer | None:
        """The answer; None where we are offline and it is not kept. Raises what `complaint` makes
        of an index that does not answer."""
        place = self._folder / f"{self._key(question)}.json"
        kept = _kept(place, None if self._offline else FRESH_SECONDS)
        if kept is None:
            if self._offline:
                return None
            kept = self._run(question)
            _keep(place, kept)
        return _answer(kept, question.wants)

    def remembered(self, question: str, ask: Callable[[], str]) -> str:
        """What was said to a question of ours: asked until something is, then once in a while."""
        place = self._folder / f"{_digest(question)}.json"
        kept = _kept(place, FRESH_SECONDS)
        if kept is not None and kept.stdout:
            return kept.stdout
        said = ask()
        if said:
            _keep(place, Output(argv=("",), exit=0, stdout=said, stderr=""))
        return said

    def _run(self, question: Question) -> Output:
        self.asked += 1
        argv = (
            *(self._uv, "pip", "compile", "--format", "pylock.toml", "--no-build", "--quiet"),
            *("--no-header", "--no-annotate", "--python-version", question.python),
            # Ours builds nothing: without it uv asks each Python of the machine for its version.
            *("--python", sys.executable),
            *("--python-platform", question.platform),
            *(("--find-links", question.links) if question.links else ()),
        )
        text = "\n".join((*question.wants, "")) + "\n"
        environment = {**self._environment, **self._trusted()}
        if question.macos:
            environment["MACOSX_DEPLOYMENT_TARGET"] = question.macos
        if question.constraints and question.links:
            file = Path(question.links) / f"constraints-{_digest(question.constraints)}.txt"
            file.write_text("\n".join(question.constraints) + "\n", encoding="utf-8")
            argv += ("--constraints", str(file))
        return run((*argv, "-"), timeout=SECONDS, environment=environment, stdin=text)

    def _key(self, question: Question) -> str:
        settings = {k: _told(k, v) for k, v in self._environment.items() if COUNTS.match(k)}
        platform = f"{question.platform} {question.macos or ''}".rstrip()
        parts = (question.wants, question.constraints, question.python, platform)
        return _digest((*parts, question.standing_in, sorted(settings.items())))


COUNTS = re.compile(
    r"UV_(.*IND|.*LINKS|EXCLUDE|RESOLUTION|PRERELEASE|CONSTRAINT|OVERRIDE|CONFIG_FILE)"
)
"""The variables by which one question has different answers."""


def _told(name: str, value: str) -> list[str]:
    """What a variable says; where it names files, what they say."""
    if not re.fullmatch(r"UV_(CONFIG_FILE|CONSTRAINT|OVERRIDE|EXCLUDE)", name):
        return [value]
    return [_said_in(word) for word in ([value] if "CONFIG" in name else value.split())]


def _said_in(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")[:MOST_CHARACTERS]
    except OSError:
        return file


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _kept(place: Path, seconds: float | None) -> Output | None:
    """What was said before; None where it is too old, or is not what we keep."""
    try:
        if seconds is not None and time.time() - place.stat().st_mtime > seconds:
            return None
        said = json.loads(place.read_text(encoding="utf-8"))
        return Output(argv=("uv",), exit=said["exit"], stdout=said["out"], stderr=said["err"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(place: Path, said: Output) -> None:
    """Keep an answer, or a "no solution"; a failure is asked again."""
    if not said.ok and "No solution found" not in said.stderr:
        return
    text = json.dumps({"exit": said.exit, "out": said.stdout, "err": without_logins(said.stderr)})
    part = place.with_suffix(f".{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(place)
    except OSError:
        part.unlink(missing_ok=True)


def _answer(said: Output, wants: Sequence[str]) -> Answer:
    if said.ok:
        return Answer(packages=tuple(map(_locked, parse_toml(said.stdout).get("packages", ()))))
    problem: GpuSetupError = complaint("uv finds no set", said, wants)
    if not isinstance(problem, Unsatisfiable):
        raise problem
    return Answer(reason=reason_in(said.stderr))


def _locked(row: Mapping[str, object]) -> Locked:
    wheels = row.get("wheels") or ()
    files = tuple(
        (str(one.get("name") or str(one.get("url", "")).rpartition("/")[2]), _sha(one))
        for one in wheels  # type: ignore[attr-defined]
    )
    index = row.get("index")
    return Locked(
        name=str(row["name"]),
        version=str(row.get("version", "")),
        index=str(index) if index else None,
        files=files,
    )


def _sha(wheel: Mapping[str, object]) -> str:
    hashes = wheel.get("hashes")
    return str(hashes.get("sha256", "")) if isinstance(hashes, dict) else ""


def reason_in(text: str) -> str:
    """Why uv finds no solution, in one sentence.

    >>> reason_in("cause: Because vllm==0.32.0 depends on torch==2.13.0 and you require "
    ...           "torch==2.15.0, we can conclude that your requirements are unsatisfiable.")
    'vllm 0.32.0 requires torch==2.13.0'
    >>> reason_in("Because only certifi<=2026.10.18 is available and vllm>=0.33.0 depends on "
    ...           "certifi>=2026.10.19, we can conclude")
    'vllm>=0.33.0 requires certifi>=2026.10.19, and the index has only certifi<=2026.10.18'
    """
    plain = " ".join(plain_lines(text).split())
    because = plain.partition("Because ")[2].partition(", we can conclude")[0] or plain
    only = re.search(r"only (\S+) is available", because)
    needs = re.search(r"([A-Za-z][\w.-]*\S*) depends on ([A-Za-z][^\s,]*)", because)
    if needs is None:
        return without_logins(re.sub(r"\s+(hint|help):.*", "", because))[:LONGEST]
    who = re.sub(r"^([\w.-]+)==(\S+)$", r"\1 \2", needs[1])
    there = f", and the index has only {only[1]}" if only else ""
    return f"{who} requires {needs[2]}{there}"


LONGEST = 240


def platform_of(machine: Snapshot) -> str:
    """uv's name of a platform: `x86_64-manylinux_2_35`."""
    family, own = machine.os.family or "linux", machine.os.machine or "x86_64"
    if family == "windows":
        return "x86_64-pc-windows-msvc" if own == "x86_64" else "aarch64-pc-windows-msvc"
    if family == "macos":
        return "aarch64-apple-darwin" if own == "aarch64" else "x86_64-apple-darwin"
    minor = int(glibc_of(machine).partition(".")[2] or 35)
    fitting = next((one for one in GLIBCS if one <= minor), GLIBCS[-1])
    return f"{own}-manylinux_2_{fitting}"


def macos_of(machine: Snapshot) -> str | None:
    """The macOS that wheels are sought for; None on another system."""
    if machine.os.family != "macos":
        return None
    found = re.fullmatch(r"\d+(\.\d+)?", ".".join((machine.os.version or "").split(".")[:2]))
    return found[0] if found else USUAL_MACOS


def glibc_of(machine: Snapshot) -> str:
    found = re.fullmatch(r"glibc (\d+\.\d+)", machine.os.libc or "")
    return found[1] if found else USUAL_GLIBC
