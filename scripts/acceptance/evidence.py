"""What is kept of a run: evidence.json, and an archive of what the commands printed, redacted."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from acceptance.claims import ALL, claims_of
from acceptance.values import Result
from acceptance.work import EARLIER, ROOT, run_program

SCHEMA = "gpusetup.acceptance/1"
FILE, ARCHIVE = "evidence.json", "runs.tar.gz"
MOST_BYTES = 1 << 20
BESIDE = ("accelerate", "bitsandbytes", "lightning", "pytorch-lightning", "triton", "numpy")
ASK_TORCH = """
import json, sys, torch
told = {"torch": torch.__version__, "cuda": torch.version.cuda, "count": torch.cuda.device_count()}
if sys.argv[1] != "cpu" and torch.cuda.is_available():
    told["card"] = torch.cuda.get_device_name(0)
print(json.dumps(told))
"""


def machine(wanted: str) -> dict[str, Any]:
    """What the run is of: card, driver, torch, Python; asked in a child, which may hang."""
    said = run_program((sys.executable, "-c", ASK_TORCH, wanted), 120)
    told = said.document
    if wanted == "cuda" and not told.get("card"):
        raise SystemExit(f"torch computes on no GPU here: {told or said.problem}")
    device = "cuda" if told.get("card") else "cpu"
    smi = run_program(("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"), 30)
    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": device,
        "stand_in": device == "cpu",
        "card": told.get("card"),
        "driver": smi.stdout.strip().partition("\n")[0] if smi.exit == 0 else None,
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


def written(out: Path, facts: dict[str, Any], results: Iterable[Result], runs: Path) -> Any:
    """evidence.json and the archive; parts of an earlier call stay unless they ran again."""
    out.mkdir(parents=True, exist_ok=True)
    before = {part["name"]: part for part in read(out).get("parts", ())}
    parts = before | {result.name: result.plain() for result in results}
    whole = {**facts, "parts": list(parts.values()), "open": unanswered(parts)}
    whole = redacted(json.loads(json.dumps(whole, default=str)))
    half = out / f"{FILE}.half"
    half.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    half.replace(out / FILE)
    archived(out / ARCHIVE, runs)
    return whole


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
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}


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
    half = archive.with_name(f"{archive.name}.half")
    with tarfile.open(half, "w:gz") as packed:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))
    half.replace(archive)


def _end_of(file: Path) -> str:
    """The last of a file, however long it grew."""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - MOST_BYTES))
        return opened.read().decode("utf-8", "replace")


def _earlier(archive: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    with contextlib.suppress(OSError, tarfile.TarError), tarfile.open(archive) as packed:
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
