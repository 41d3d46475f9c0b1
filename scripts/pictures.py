#!/usr/bin/env python3
"""Draw the pictures of the documentation: what a terminal shows, as SVG.

python scripts/pictures.py                 draw docs/pictures/*.svg
python scripts/pictures.py --check         exit 1 where a picture shows what no command prints now

Each command runs in a terminal of its own, on an example machine and with the catalog of the tests.
The SVGs name no font that a browser would fetch.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from html import unescape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")]
OUT = ROOT / "docs" / "pictures"
LONGEST = 60_000
"""Bytes of a picture."""
SECONDS = 60


class Picture(NamedTuple):
    """A command as it is typed, and the columns of the terminal that it is typed in."""

    name: str
    command: str
    columns: int = 100
    lines: int | None = None
    """How many are shown, from the first."""


PICTURES = (
    Picture("doctor", "gpusetup doctor --from rtx3050-laptop"),
    Picture("plan-grid", 'gpusetup plan --table --model qwen3-8b --gpu "A100 80GB"', 112),
    Picture("monitor", "gpusetup monitor", 112),
)


# --- in a terminal --------------------------------------------------------------------------------


def shown(picture: Picture) -> str:
    """What the command prints into a terminal of that many columns, with its colours."""
    argv = [sys.executable, __file__, "--type", picture.command]
    text = in_terminal(argv, picture.columns)
    if not text.strip():
        raise ValueError(f"`{picture.command}` printed nothing")
    return text


def in_terminal(argv: Sequence[str], columns: int) -> str:
    """What a program leaves on a terminal of that many columns."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    dropped = ("NO_COLOR", "COLUMNS", "LINES", "CI")
    kept = {k: v for k, v in os.environ.items() if k not in dropped}
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
    )
    os.close(theirs)
    try:
        text = read_all(ours, child)
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    # A line that is drawn again is what was drawn last.
    return re.sub(r"[^\n]*\r(?!\n)", "", re.sub(r"\r+\n", "\n", text))


def read_all(terminal: int, child: subprocess.Popen[bytes]) -> str:
    parts, until = [], time.monotonic() + SECONDS
    while time.monotonic() < until:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        try:
            part = os.read(terminal, 65536) if ready else b""
        except OSError:  # the child closed its end
            part = b""
        parts.append(part)
        if not part and child.poll() is not None:
            return b"".join(parts).decode("utf-8")
    raise TimeoutError(f"no end after {SECONDS} s")


def typed(command: str) -> int:
    """Run a picture's command here, where the terminal is."""
    if command == "gpusetup monitor":
        return watched()
    from write_reference import _frozen_catalog

    from gpusetup.cli import main as gpusetup

    os.environ.pop("COLUMNS", None)  # which the import has set
    with _frozen_catalog():
        gpusetup(shlex.split(command)[1:])
    return 0


def watched() -> int:
    """The live screen at the end of a composed run of eight GPUs, one of which is too hot."""
    from monitor_kinds import composed
    from rich.console import Console as Rich
    from rich.live import Live

    from gpusetup.monitor.tally import Tally
    from gpusetup.render.live import LiveScreen

    run, tally = composed("one hot card of eight makes all ranks wait", 0), Tally()
    live = Live(auto_refresh=False)
    screen = LiveScreen(tally, live, command=run.command)
    for sample in run.samples:
        tally.add(sample)
        screen.sample(sample)
    Rich().print(live.renderable)
    return 0


# --- the picture ----------------------------------------------------------------------------------


def svg(picture: Picture, ansi: str) -> str:
    from rich.text import Text

    text = Text.from_ansi(ansi.rstrip("\n"))
    typed = Text(f"$ {picture.command}", style="dim")
    return drawn([typed, *text.split("\n")[: picture.lines]], picture.columns)


def drawn(lines: Sequence[Text], columns: int) -> str:
    """Lines of a terminal as SVG."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.terminal_theme import SVG_EXPORT_THEME

    console = Console(
        file=StringIO(), record=True, width=columns, color_system="truecolor",
        force_terminal=True, legacy_windows=False,
    )  # fmt: skip
    for line in lines:
        console.print(line, soft_wrap=True)
    form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = form.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    picture = console.export_svg(title="gpusetup", code_format=form, theme=SVG_EXPORT_THEME)
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE).strip() + "\n"


def words(picture: str) -> str:
    """The text of a picture, without its colours and places."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    return " ".join(unescape(" ".join(found)).split())


def faults() -> list[str]:
    """Each picture that is missing, too large, fetches, or shows what is not printed now."""
    found = []
    for picture in PICTURES:
        place = OUT / f"{picture.name}.svg"
        if not place.is_file():
            found.append(f"{place.name}: missing")
            continue
        kept = place.read_text(encoding="utf-8")
        if words(kept) != words(svg(picture, shown(picture))):
            found.append(f"{place.name}: shows what is not printed now")
        if len(kept.encode()) > LONGEST:
            found.append(f"{place.name}: {len(kept.encode())} bytes, more than {LONGEST}")
        if re.search(r"url\(\s*['\"]?(?!#)|href=", kept):
            found.append(f"{place.name}: fetches something")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="draw nothing, name what is stale")
    parser.add_argument("--type", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.type:
        return typed(options.type)
    if not options.check:
        OUT.mkdir(exist_ok=True)
        for picture in PICTURES:
            text = svg(picture, shown(picture))
            (OUT / f"{picture.name}.svg").write_text(text, encoding="utf-8")
    found = faults()
    print("\n".join(found) or f"{len(PICTURES)} pictures show what is printed now")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
