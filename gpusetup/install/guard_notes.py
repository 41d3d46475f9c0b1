"""What the guard of an environment does not reach, and what a shell still has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpusetup.install.guard import CONSTRAINTS, STATE, Change, settings_beside
from gpusetup.install.guard_answer import GuardState
from gpusetup.install.settings.uv_config import is_guard
from gpusetup.install.tool_environment import tool_note
from gpusetup.model.shell import own_line


def reach(prefix: Path) -> tuple[str, ...]:
    """The file that `guard --project` should be told, where it is not the one of this folder."""
    found = settings_beside(prefix)
    if found is None or is_guard(found) or found == Path.cwd() / "pyproject.toml":
        return ()
    return (str(found),)


def notes(
    prefix: Path,
    named: str,
    state: GuardState,
    wanted: Sequence[Change],
    pins: Mapping[str, str],
) -> Iterator[str]:
    """`named`: how pip's and uv's lists name the constraints file."""
    if state == "restored" or not (prefix / CONSTRAINTS).exists():
        yield from _after(named)
    if state == "restored":
        return
    yield from _stronger(named)
    yield from tool_note(prefix, pins)
    beside = settings_beside(prefix)
    if beside is not None and not is_guard(beside):
        yield (
            f"without activating, `uv pip` in {prefix.parent} reads {beside}, which is yours: "
            f"{_written_by(beside)} holds it back there too"
        )
    if state == "written" and _sets_the_variable(wanted) and named not in _set("UV_CONSTRAINT"):
        yield "a shell in which the environment is active already: activate it once more"


def _written_by(project: Path) -> str:
    return f"`{own_line('gpusetup', 'guard', '--project', str(project), '--write')}`"


def hidden_by_uv_toml(path: Path) -> Iterator[str]:
    """`uv pip` reads a `uv.toml` in place of the constraints of the `pyproject.toml` beside it."""
    beside = path.with_name("uv.toml")
    if path.name == "pyproject.toml" and beside.is_file():
        yield (
            f"`uv pip` reads {beside} in place of these: {_written_by(beside)} holds it back too"
        )


def _after(named: str) -> Iterator[str]:
    if named in _set("UV_CONSTRAINT"):
        yield "UV_CONSTRAINT of this shell still names the file: `deactivate`, or unset it"


def _stronger(named: str) -> Iterator[str]:
    """What counts more in this shell than the settings of the environment."""
    if (held := _set("PIP_CONSTRAINT")) and named not in held:
        yield "PIP_CONSTRAINT is set in this shell and counts more: add the file to it"
    if os.environ.get("PIP_CONFIG_FILE") == os.devnull:
        yield f"PIP_CONFIG_FILE is {os.devnull}: in this shell pip reads no configuration"
    if os.environ.get("UV_NO_CONFIG") or os.environ.get("UV_CONFIG_FILE"):
        yield "UV_NO_CONFIG or UV_CONFIG_FILE is set: in this shell uv reads no file of a folder"


def _set(name: str) -> list[str]:
    return os.environ.get(name, "").split()


def _sets_the_variable(wanted: Sequence[Change]) -> bool:
    return any(change.path.name == Path(STATE).name for change in wanted)
