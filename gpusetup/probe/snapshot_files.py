"""Snapshots as files: what is written, what is read, and the example machines of the package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.codec import from_json, from_plain, to_json, to_plain
from gpusetup.model.frozen import Frozen
from gpusetup.model.hidden_marks import map_texts, without_hidden_marks
from gpusetup.model.machine import Snapshot

MACHINES = Path(__file__).resolve().parent.parent / "data" / "machines"
MOST_BYTES = 8 << 20
"""A snapshot is some 20 KiB; what is larger than this is something else."""
VERSION = 1


class _Head(Frozen):
    """What tells one of our documents from another, and the snapshot that a doctor judged."""

    schema: str | None = None


class _Doctor(Frozen):
    snapshot: Snapshot


def dump_snapshot(snapshot: Snapshot) -> str:
    """The text of a snapshot file."""
    return to_json(snapshot, indent=1) + "\n"


def load_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot file, or the snapshot in a doctor's answer; `BadInput` names the place."""
    return parse_snapshot(read_bytes(Path(path)), str(path))


def parse_snapshot(raw: bytes, what: str) -> Snapshot:
    """The snapshot in a file's bytes, without hidden marks: it may come from anybody. `what` names
    the file in messages."""
    text = named_file.text_of(raw, what)
    if text.lstrip()[:1] not in ("", "{", "["):
        raise BadInput(
            f"{what} is no snapshot but a text",
            hint="`gpusetup doctor --report FILE` reads a text",
        )
    try:
        schema = from_json(text, _Head, what=what).schema or ""
        if schema.startswith("gpusetup.doctor/"):
            found = from_json(text, _Doctor, what=what).snapshot
        else:
            _check_schema(schema, what)
            found = from_json(text, Snapshot, what=what)
        # Only an escape or another script can hide marks or breaks; most snapshots have none.
        if text.isascii() and not re.search(r"\\[unrf]", text):
            return found
        plain = map_texts(on_one_line(to_plain(found)), without_hidden_marks)
        return from_plain(plain, Snapshot, what="the snapshot")
    except BadInput as problem:
        if "truncated" in problem.message:
            raise BadInput(
                f"{what} is cut off after {len(raw)} bytes", hint=_SAVE_AGAIN
            ) from problem
        raise


def on_one_line(value: Any, key: str = "") -> Any:
    """A document whose values have no line breaks: one would begin a line of our own answer.

    What a program said (`text` of an event) may have several lines.

    >>> on_one_line({"name": "a\\nb", "text": "a\\nb"})
    {'name': 'a b', 'text': 'a\\nb'}
    """
    if isinstance(value, dict):
        return {name: on_one_line(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [on_one_line(item, key) for item in value]
    if isinstance(value, str) and key != "text":
        return " ".join(value.splitlines())
    return value


_SAVE_AGAIN = "write it again with `gpusetup snapshot --output FILE`"


def _check_schema(schema: str, what: str) -> None:
    named = f"`$.schema` is {schema!r}" if schema else "`$.schema` is missing"
    found = re.fullmatch(r"gpusetup\.snapshot/(\d+)", schema)
    if found is None:
        raise BadInput(f"{what} is no snapshot: {named}", hint=_SAVE_AGAIN)
    if int(found[1]) > VERSION:
        raise BadInput(
            f"{what} was written by a newer gpusetup: {named}, "
            f"this one reads up to 'gpusetup.snapshot/{VERSION}'",
            hint="update gpusetup",
        )


def read_bytes(path: Path) -> bytes:
    """A record's file; `BadInput` if it cannot be one."""
    try:
        if named_file.is_folder(path):
            raise BadInput(f"{path} is a folder, not a snapshot file")
        return named_file.read(path, MOST_BYTES)
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror or problem}") from problem


# --- the example machines -------------------------------------------------------------------------

FIRST = "rtx3050-laptop"


def example_machines() -> tuple[str, ...]:
    """The names that `--from` knows; `rtx3050-laptop` is the first."""
    names = sorted(path.stem for path in MACHINES.glob("*.json"))
    return tuple(sorted(names, key=lambda name: name != FIRST))


def machine_named(name_or_path: str) -> Snapshot:
    """The example machine of that name, else the snapshot file at that path."""
    known = MACHINES / f"{name_or_path}.json"
    if Path(name_or_path).name == name_or_path and named_file.is_there(known):
        return load_snapshot(known)
    if named_file.is_there(name_or_path) or re.search(r"[/\\]|\.json$", name_or_path):
        return load_snapshot(name_or_path)
    raise UsageError(
        f"`--from {name_or_path}` is neither a file nor an example machine",
        hint=f"the example machines: {', '.join(f'`{name}`' for name in example_machines())}",
    )
