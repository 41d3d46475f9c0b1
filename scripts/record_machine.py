"""Records this machine as a folder of `tests/machines/`, with what is private taken out.

    python scripts/record_machine.py NAME --what "what it is" [--deep] [--replace OLD=NEW]...

The tape keeps what the readers asked and nothing else: variables of the allow-list, the watched
distributions of site-packages, the libraries of their RECORDs. Home folders become those of
`user`. The script refuses to write a tape in which a name of this user or host is left.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpusetup.model.frozen import replace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpusetup.errors import GpuSetupError  # noqa: E402
from gpusetup.model.codec import from_plain, to_json, to_plain  # noqa: E402
from gpusetup.probe.machine import read_machine  # noqa: E402
from gpusetup.readings.environment import kept  # noqa: E402
from gpusetup.redaction import Private, Scrubber, private_here  # noqa: E402
from gpusetup.redaction.words import COMMON_NAMES  # noqa: E402
from gpusetup.system.system import System  # noqa: E402
from gpusetup.system.tape import RecordingSystem, ReplaySystem, Tape  # noqa: E402

HOMES = {"linux": "/home/user", "macos": "/Users/user", "windows": "C:\\Users\\user"}
SHELVES = ("read", "list", "stat", "link", "space", "environ", "which", "run", "ask")
DAY = "2026-01-01T00:00:00Z"


def _lines(*beginnings: str) -> Callable[[str], str]:
    """Keeps the lines that begin so."""
    return lambda text: "".join(
        line for line in text.splitlines(keepends=True) if line.startswith(beginnings)
    )


def _libraries(record: str) -> str:
    form = r"(?m)^\"?([^,\n]+\.(?:so|dll|dylib|pyd)(?:\.[\d.]+)?|torch/version\.py)\"?,"
    return "".join(f"{name},,\n" for name in re.findall(form, record))


def _cached(cache: str) -> str:
    return "".join(re.findall(r"/[^\0]*/(?:libcuda|libnvidia-ml)\.so\.1\0", cache))


TRIMS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("/RECORD", _libraries),
    ("/proc/cpuinfo", _lines("processor", "model name")),
    ("/proc/meminfo", _lines("MemTotal", "MemAvailable")),
    ("/etc/ld.so.cache", _cached),
)
"""What is kept of files that are long."""


def record(*, deep: bool) -> Tape:
    """What the readers ask of this machine, and the answers."""
    recorder = RecordingSystem(System())
    read_machine(recorder, deep=deep)
    return recorder.tape


def lightened(tape: Tape) -> Tape:
    """The tape without what no reader uses of the answers."""
    tape.environ = kept(tape.environ)
    for path, text in tape.read.items():
        trim = next((trim for end, trim in TRIMS if path.endswith(end)), None)
        if trim and isinstance(text, str):
            tape.read[path] = trim(text)
    needed = {*tape.read, *tape.list, *tape.stat, *tape.link}
    for folder, names in tape.list.items():
        if not isinstance(names, int):
            tape.list[folder] = tuple(n for n in names if _is_needed(folder, n, needed))
    tape.stat = {
        p: s if isinstance(s, int) else replace(s, mtime=None) for p, s in tape.stat.items()
    }
    tape.facts = {**tape.facts, "now": DAY}
    for shelf in SHELVES:
        setattr(tape, shelf, dict(sorted(getattr(tape, shelf).items())))
    return tape


def _is_needed(folder: str, name: str, needed: set[str]) -> bool:
    below = f"{folder.rstrip('/')}/{name}"
    asked = any(path == below or path.startswith(f"{below}/") for path in needed)
    return asked or name == "null" or (name.startswith(("python", "nvidia")) and "-" not in name)


def redacted(tape: Tape, replacements: dict[str, str], private: Private) -> Tape:
    """The tape with homes, names, UUIDs and the given texts replaced, in paths as in answers."""
    plain = to_plain(tape)
    scrub = Scrubber(plain, private)

    def changed(text: str) -> str:
        for old, new in replacements.items():
            text = text.replace(old, new)
        return re.sub(
            r"(?<![\w~])~(?=[/\\:;\s\"']|$)", lambda _: HOMES[tape.family], scrub.text(text)
        )

    fixed = {"family": plain.pop("family"), "facts": _walk(plain.pop("facts"), changed)}
    return from_plain({**_walk(plain, changed), **fixed}, Tape, what="the tape")


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(name): _walk(inner, change) for name, inner in value.items()}
    return [_walk(inner, change) for inner in value] if isinstance(value, list | tuple) else value


def left_over(text: str, private: Private) -> list[str]:
    """The private names that still stand somewhere."""
    names = {n.lower() for n in private.names if len(n) > 2 and n.lower() not in COMMON_NAMES}
    return sorted(name for name in names | set(private.homes) if name in text.lower())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", help="the folder: <os>-<gpu>-<driver>[-<condition>]")
    parser.add_argument("--what", required=True, help="what kind of machine it is, in a line")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--replace", action="append", default=[], metavar="OLD=NEW")
    options = parser.parse_args()
    pairs = dict(pair.split("=", 1) for pair in options.replace)
    private = private_here()
    tape = redacted(lightened(record(deep=options.deep)), pairs, private)
    read_machine(ReplaySystem(tape), deep=options.deep)  # it can be played
    about = {
        "origin": "recorded",
        "source": "scripts/record_machine.py",
        "what": options.what,
        "example": None,
    }
    texts = {
        "machine.json": to_json(about, indent=1) + "\n",
        "tape.json": to_json(tape, indent=1) + "\n",
    }
    if found := left_over("".join(texts.values()), private):
        raise GpuSetupError(f"not written: {', '.join(found)} would be left; use `--replace`")
    folder = ROOT / "tests" / "machines" / options.name
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(folder.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
