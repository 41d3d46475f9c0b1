#!/usr/bin/env python3
"""Build the page that answers in a browser: one folder of files for any plain file server.

python scripts/build_page.py --out DIR
python -m http.server --directory DIR

What it needs beside this checkout is fetched by name, version and SHA-256 (`web/needs.json`):
Python for WebAssembly by `npm pack`, wheels by `pip download`. They are kept in `--cache` and
checked each time; nothing is fetched while the page is used.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
PACKAGE = ROOT / "gpusetup"
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
STATIC = ("index.html", "page.css", "page.js", "show.js", "ask.js", "worker.js", "messages.json")
LEFT_OUT = (
    *("verify", "child_scripts", "fleet", "monitor", "tune", "plan"),
    *("data/machines", "data/plan"),
)
"""Folders of the package that no question of the page needs."""
KEPT = (
    *("verify/__init__.py", "verify/streams.py"),
    *("child_scripts/nvml_fields.py", "child_scripts/read_python.py"),
)
"""Files of these folders that every command needs."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in the archive: the same sources make the same bytes."""


class NotBuilt(Exception):
    """Why there is no page, in one sentence."""


# --- what is fetched ------------------------------------------------------------------------------


def fetched(row: Mapping[str, Any], command: tuple[str, ...], cache: Path) -> Path:
    """A file of `needs.json` in the cache; it is fetched where it is not there."""
    file: Path = cache / row["file"]
    if not file.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        _run(command, cache)
    if not file.is_file():
        raise NotBuilt(f"`{' '.join(command)}` gave no {row['file']}")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != row["sha256"]:
        file.unlink()
        raise NotBuilt(
            f"{row['file']} has SHA-256 {found}, and web/needs.json says {row['sha256']}"
        )
    return file


def _run(command: tuple[str, ...], folder: Path) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise NotBuilt(f"{command[0]} is not on PATH: it fetches Python for WebAssembly")
    done = subprocess.run(
        (program, *command[1:]), cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NotBuilt(f"`{' '.join(command)}` failed: {said[-1] if said else done.returncode}")


def npm_command(row: Mapping[str, Any]) -> tuple[str, ...]:
    return ("npm", "pack", "--silent", f"{row['name']}@{row['version']}")


def wheel_command(row: Mapping[str, Any], python: str, platform: str) -> tuple[str, ...]:
    """pip takes the wheel for the page's Python, whatever runs here."""
    return (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "."),
        *("--only-binary", ":all:", "--implementation", "cp", "--python-version", python),
        *("--platform", platform, f"{row['name']}=={row['version']}"),
    )


# --- what is built --------------------------------------------------------------------------------


def build(out: Path, cache: Path) -> Path:
    """The page in `out`, which is made again, whole or not at all."""
    _refuse_others(out)
    asked = json.loads((WEB / "needs.json").read_text(encoding="utf-8"))
    print("1 of 2: Python and its wheels, fetched or from the cache", file=sys.stderr, flush=True)
    python = [(row, fetched(row, npm_command(row), cache)) for row in asked["npm"]]
    wheels = [
        fetched(row, wheel_command(row, asked["python"], asked["platform"]), cache)
        for row in asked["wheels"]
    ]
    print("2 of 2: packing", file=sys.stderr, flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as beside:
        made = Path(beside) / "page"
        for row, tarball in python:
            unpack_python(tarball, row["takes"], made / "python")
        fill(made, wheels)
        if out.exists():
            out.rename(Path(beside) / "former")
        made.rename(out)
    return out


def fill(made: Path, wheels: list[Path]) -> None:
    """Everything but Python in a folder that nobody reads yet."""
    made.mkdir(parents=True, exist_ok=True)
    (made / "gpusetup.zip").write_bytes(archive(wheels))
    for name in STATIC:
        shutil.copyfile(WEB / name, made / name)
    (made / "offline.js").write_text(service_worker(made), encoding="utf-8")


def _refuse_others(out: Path) -> None:
    """A folder that holds something else than a page is left alone."""
    if out.is_dir() and any(out.iterdir()) and not (out / "offline.js").is_file():
        raise NotBuilt(f"{out} is not empty and holds no page: name another `--out`")
    if out.exists() and not out.is_dir():
        raise NotBuilt(f"{out} is no folder: name another `--out`")


def unpack_python(tarball: Path, names: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(tarball) as archive:
        for name in names:
            file = archive.extractfile(f"package/{name}")
            assert file is not None, name
            (folder / name).write_bytes(file.read())


def archive(wheels: list[Path]) -> bytes:
    """gpusetup, its dependencies and the page's questions, as the browser's Python unpacks them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        for name, raw in sorted(contents(wheels)):
            made.writestr(zipfile.ZipInfo(name, DATE), raw, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def contents(wheels: list[Path]) -> Iterator[tuple[str, bytes]]:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as parts:
            yield from ((n, parts.read(n)) for n in parts.namelist() if not n.endswith("/"))
    for path in package_files():
        yield path.relative_to(ROOT).as_posix(), path.read_bytes()
    yield "page_answers.py", (WEB / "page_answers.py").read_bytes()


def package_files() -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*")):
        place = path.relative_to(PACKAGE).as_posix()
        out = place not in KEPT and any(place.startswith(f"{one}/") for one in LEFT_OUT)
        if path.suffix in (".py", ".json", ".csv") and "__pycache__" not in place and not out:
            yield path


def service_worker(out: Path) -> str:
    """The worker with the list of the page's files, and a version that changes with any of them."""
    files = sorted(p for p in out.rglob("*") if p.is_file())
    digest = hashlib.sha256((WEB / "offline.js").read_bytes())
    for path in files:
        digest.update(path.relative_to(out).as_posix().encode() + path.read_bytes())
    places = [path.relative_to(out).as_posix() for path in files]
    text = (WEB / "offline.js").read_text(encoding="utf-8")
    version = f"gpusetup-{digest.hexdigest()[:16]}"
    return text.replace("@VERSION@", version).replace("@FILES@", json.dumps(places))


def default_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gpusetup-page"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="DIR")
    options = parser.parse_args()
    try:
        out = build(options.out.resolve(), options.cache.resolve())
    except NotBuilt as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out / 'index.html'}: {size / 1e6:.1f} MB; python -m http.server --directory {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
