"""What is kept of a run: evidence.json, and an archive of what the commands printed, redacted."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import itertools
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from acceptance.claims import ALL, claims_of
from acceptance.values import Claim, Result
from acceptance.work import EARLIER, ROOT

SCHEMA = "gpusetup.acceptance/1"
FILE, ARCHIVE = "evidence.json", "runs.tar.gz"
MOST_BYTES = 1 << 20
MOST_EVIDENCE = 64 << 20
LEAST_ROOM = 48 << 10
"""Bytes that must fit into the folder before anything is measured."""
BESIDE = ("bitsandbytes", "triton", "numpy")
VERSION = re.compile(r"\d+(?:\.\d+)+")


def facts(told: Mapping[str, Any], driver: str | None) -> dict[str, Any]:
    """What the run is of: card, driver, torch, Python."""
    device = "cuda" if told.get("card") else "cpu"
    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": device,
        "stand_in": device == "cpu",
        "card": told.get("card"),
        "driver": driver if driver and VERSION.fullmatch(driver) else None,
        "torch": told.get("torch"),
        "cuda": told.get("cuda"),
        "python": platform.python_version(),
        "gpusetup": version(),
        "commit": commit(),
        "packages": {name: found for name in BESIDE if (found := installed(name))},
    }


def version() -> str:
    text = (ROOT / "gpusetup" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    return found[1] if found else ""


def commit() -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        argv = ("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
        found = subprocess.run(argv, capture_output=True, text=True, timeout=10)
        return found.stdout.strip() or None
    return None


def installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def missing() -> Iterator[str]:
    """The dependencies of gpusetup that this interpreter lacks, as pip takes them."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"(?ms)^dependencies = \[(.*?)^\]", text)
    for wanted in re.findall(r'"([^"]+)"', listed[1] if listed else ""):
        name = re.split(r"[<>=!;\s\[]", wanted, maxsplit=1)[0]
        if installed(name) is None and "python_version" not in wanted:
            yield wanted


# --- written ---


class Foreign(Exception):
    """The evidence of a folder is of another card, driver, torch or commit."""


def prepared(out: Path) -> Iterator[str]:
    """Make the folder and try to write there; what is said about what stands in it.

    OSError where it cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out) as trial:
        trial.write(bytes(LEAST_ROOM))
        trial.flush()
        os.fsync(trial.fileno())
    if damaged(out):
        yield f"{FILE} is damaged or not ours: it is kept as {set_aside(out).name}"


def compatible(out: Path, facts: Mapping[str, Any]) -> None:
    """Raises Foreign where the folder holds evidence that this run would mix with its own."""
    there, now = read(out), redacted({name: facts.get(name) for name in SAME})
    other = [name for name in SAME if there and there.get(name) != now[name]]
    if other:
        told = ", ".join(f"{name} {there.get(name)} (now {now[name]})" for name in other)
        raise Foreign(f"it holds the evidence of another machine or code: {told}")


def set_aside(out: Path) -> Path:
    """Give the file a name under which no call writes."""
    numbers = (out / f"{FILE}.damaged-{number}" for number in itertools.count(1))
    place = next(name for name in numbers if not name.exists())
    return (out / FILE).rename(place)


def written(out: Path, facts: dict[str, Any], results: Iterable[Result], runs: Path) -> Any:
    """evidence.json and the archive; parts of an earlier call stay unless they ran again."""
    out.mkdir(parents=True, exist_ok=True)
    compatible(out, facts)
    before = {part["name"]: part for part in read(out).get("parts", ())}
    ran = {each.name: each.plain() for each in results if each.name not in before or each.ran}
    parts = before | ran
    whole = {**facts, "parts": list(parts.values()), "open": unanswered(parts)}
    whole = redacted(json.loads(json.dumps(whole, default=str)))
    text = json.dumps(whole, indent=1) + "\n"
    with replacing(out / FILE) as half:
        half.write_text(text, encoding="utf-8")
    archived(out / ARCHIVE, runs)
    return whole


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path to write to, which takes the file's place once it is whole; nothing else stays."""
    half = file.with_name(f"{file.name}.half")
    try:
        yield half
        half.replace(file)
    finally:
        with contextlib.suppress(OSError):
            half.unlink()


SAME = ("device", "card", "driver", "torch", "commit")


def tables(out: Path, facts: dict[str, Any], part: str) -> dict[str, Any]:
    """The tables that a part left there on an earlier call with the same card and code."""
    there = read(out)
    if any(there.get(name) != redacted({name: facts.get(name)})[name] for name in SAME):
        return {}
    found = [each["tables"] for each in there.get("parts", ()) if each["name"] == part]
    return dict(found[0]) if found else {}


def read(folder: Path) -> dict[str, Any]:
    """The evidence of a folder; empty where there is none, or none of ours."""
    try:
        with (folder / FILE).open("rb") as opened:
            found = json.loads(opened.read(MOST_EVIDENCE).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if sound(found) else {}


def damaged(folder: Path) -> bool:
    return (folder / FILE).exists() and not read(folder)


def sound(found: Any) -> bool:
    """Whether a document has the shape of our evidence.

    >>> sound({"schema": SCHEMA, "parts": []}), sound({"schema": SCHEMA, "parts": {"clean": 1}})
    (True, False)
    """
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return False
    parts, left = found.get("parts"), found.get("open", [])
    return isinstance(parts, list) and all(map(sound_part, parts)) and sound_claims(left)


def sound_part(part: Any) -> bool:
    if not isinstance(part, dict) or not sound_claims(part.get("claims")):
        return False
    texts = all(isinstance(part.get(name), str) for name in ("name", "status", "problem"))
    times = (part.get("seconds"), part.get("limit_seconds"))
    numbers = all(isinstance(each, (int, float)) for each in times)
    tables = part.get("tables")
    return texts and numbers and isinstance(tables, dict) and all(map(sound_rows, tables.values()))


def sound_rows(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) for row in rows)


def sound_claims(rows: Any) -> bool:
    return sound_rows(rows) and all(
        isinstance(row.get(name), str) for row in rows for name in Claim._fields
    )


def unanswered(parts: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims whose part did not run, so that each has its line in every file."""
    left = {known.part for known in ALL} - set(parts)
    return [claim._asdict() for name in sorted(left) for claim in claims_of(name, (), "cuda")]


def archived(archive: Path, runs: Path) -> None:
    """Everything the parts kept, redacted, in one file; that of an earlier call stays inside."""
    files = _earlier(archive) | {
        f"{file.parent.name}/{file.name}": redacted(_end_of(file))
        for file in sorted(runs.glob("*/*"))
        if file.is_file() and file.name != EARLIER
    }
    with replacing(archive) as half, tarfile.open(half, "w:gz") as packed:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))


def _end_of(file: Path) -> str:
    """The last of a file, however long it grew."""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - MOST_BYTES))
        return opened.read().decode("utf-8", "replace")


def _earlier(archive: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    unreadable = (OSError, EOFError, zlib.error, tarfile.TarError)
    with contextlib.suppress(*unreadable), tarfile.open(archive) as packed:
        for entry in packed:
            inner = packed.extractfile(entry)
            if inner is not None:
                found[entry.name] = inner.read().decode("utf-8", "replace")
    return found


def redacted(plain: Any) -> Any:
    """A document or a text without names, home folders, hosts and UUIDs.

    >>> redacted("GPU-12345678-1234-1234-1234-123456789012")
    'GPU-uuid'
    """
    plain = _walked(plain, _private())
    try:
        from gpusetup.redaction import redact_document
    except ImportError:  # a dependency is missing: the places of this machine at least are gone
        return plain
    if isinstance(plain, str):
        return "\n".join(redact_document(plain.split("\n")))
    return redact_document(plain)


UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")


SECRET = re.compile(r"(?i)TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|COOKIE|AUTH")
PERSON = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "HOSTNAME", "COMPUTERNAME")
LEAST_LETTERS = 3
"""A shorter name stands in too many words: the redaction of gpusetup judges it."""


def _private() -> list[tuple[re.Pattern[str], str]]:
    """(what it looks like, what stands for it): places of this machine, secrets of the environment,
    and who and where it is; needs nothing that may be missing here."""
    places = ((str(ROOT), "CHECKOUT"), (sys.prefix, "PYTHON"), (tempfile.gettempdir(), "TEMP"))
    found = [(re.compile(re.escape(place)), name) for place, name in places]
    secrets = [value for name, value in os.environ.items() if SECRET.search(name)]
    found += [(re.compile(re.escape(text)), "<secret>") for text in secrets if len(text) > 5]
    if len(home := str(Path("~").expanduser())) > 1:
        found.append((re.compile(re.escape(home) + r"(?![\w-])"), "~"))
    names = {*(os.environ.get(name, "") for name in PERSON), socket.gethostname()}
    for name in sorted(names, key=len, reverse=True):
        if len(name) >= LEAST_LETTERS and name not in ("root", "localhost"):
            found.append((re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), "<private>"))
    return [*found, (UUID, "uuid")]


def _walked(plain: Any, private: list[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(plain, str):
        for pattern, instead in private:
            plain = pattern.sub(instead, plain)
        return plain
    if isinstance(plain, dict):
        return {_walked(key, private): _walked(value, private) for key, value in plain.items()}
    return [_walked(value, private) for value in plain] if isinstance(plain, list) else plain
