"""Writes and reads snapshot files, and finds the example machines that come with gpusetup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.codec import from_json, from_plain, to_json, to_plain
from gpusetup.model.hidden_marks import map_texts, without_hidden_marks
from gpusetup.model.machine import Snapshot

MACHINES = Path(__file__).resolve().parent.parent / "data" / "machines"
MOST_BYTES = 8 << 20
"""The maximum size of a snapshot file. A snapshot has about 20 KiB, so more is something else."""
SCHEMA = "gpusetup.snapshot/1"
ENDLESS_NUMBER = re.compile(r"\d{300,}")
"""More digits than a number or version of a machine has; Python reads no more than 4,300."""


def dump_snapshot(snapshot: Snapshot) -> str:
    """The text of a snapshot file, as indented JSON."""
    return to_json(snapshot, indent=1) + "\n"


def load_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot file, or the snapshot in doctor's output; BadInput names the position."""
    return parse_snapshot(read_bytes(Path(path)), str(path))


def parse_snapshot(raw: bytes, what: str) -> Snapshot:
    """The snapshot in a file's bytes. Hidden characters are replaced, because the file may come
    from anybody.

    `what` names the file in error messages.
    """
    text = ENDLESS_NUMBER.sub("0", named_file.text_of(raw, what))
    # A file that is empty or begins like JSON gets the message of the JSON reader instead.
    if text.lstrip()[:1] not in ("", "{", "["):
        raise BadInput(
            f"{what} is a text file, not a snapshot",
            hint="`gpusetup doctor --report FILE` reads a text",
        )
    document: Any = from_json(text, dict[str, Any], what=what)
    schema = str(document.get("schema") or "")
    # Of doctor's output, only the snapshot is read.
    if schema.startswith("gpusetup.doctor/"):
        document = document.get("snapshot")
    elif schema != SCHEMA:
        problem = f"`$.schema` is {schema!r}" if schema else "`$.schema` is missing"
        hint = "write it again with `gpusetup snapshot --output FILE`"
        raise BadInput(f"{what} is not a snapshot of this gpusetup: {problem}", hint=hint)
    snapshot = from_plain(document, Snapshot, what=what)
    # The snapshot has no unknown fields any more, which may be nested too deeply to be searched.
    plain = map_texts(on_one_line(to_plain(snapshot)), without_hidden_marks)
    return from_plain(plain, Snapshot, what="the snapshot")


def without_endless_numbers(machine: Snapshot) -> Snapshot:
    """The machine with 0 for each number that Python would refuse to read. A package may have any
    text as its version."""
    text = to_json(machine)
    if not ENDLESS_NUMBER.search(text):
        return machine
    return from_json(ENDLESS_NUMBER.sub("0", text), Snapshot, what="this machine")


def on_one_line(value: Any, key: str = "") -> Any:
    """The document with line breaks in its strings replaced by spaces, so that no string can look
    like a line of our output.

    An event's `text` is a program's output and may have several lines.

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


def read_bytes(path: Path) -> bytes:
    """The bytes of a snapshot file. Raises BadInput if the path is a folder or cannot be read."""
    try:
        return named_file.read(path, MOST_BYTES)
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror or problem}") from problem


# --- the example machines -------------------------------------------------------------------------


def example_machines() -> tuple[str, ...]:
    """The names of the example machines for `--from`."""
    return tuple(sorted(path.stem for path in MACHINES.glob("*.json")))


def machine_named(name_or_path: str) -> Snapshot:
    """The example machine with this name or, if there is none, the snapshot file at this path."""
    example = MACHINES / f"{name_or_path}.json"
    # Only a plain name is accepted: `../x` must not lead out of the folder of examples.
    is_plain_name = Path(name_or_path).name == name_or_path
    if is_plain_name and named_file.is_there(example):
        return load_snapshot(example)
    looks_like_path = re.search(r"[/\\]|\.json$", name_or_path)
    if looks_like_path or named_file.is_there(name_or_path):
        return load_snapshot(name_or_path)
    names = ", ".join(f"`{name}`" for name in example_machines())
    raise UsageError(
        f"`--from {name_or_path}` is neither a file nor an example machine",
        hint=f"the example machines: {names}",
    )
