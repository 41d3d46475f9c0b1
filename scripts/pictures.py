#!/usr/bin/env python3
"""Draw the pictures of the documentation: what a terminal shows, as SVG.

python scripts/pictures.py                 draw docs/pictures/*.svg
python scripts/pictures.py --check         exit 1 where a picture shows what no command prints now

Each command runs in a terminal of its own, on an example machine and with the catalog of the tests.
The SVGs name no font that a browser would fetch. The pictures `beside-…` show beside ours what uv
and ruff print, in the versions that are installed where they are drawn; `--check` reads ours.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import shlex
import subprocess
import sys
import tempfile
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


class Beside(NamedTuple):
    """Our screens and those of others at the same columns, on one ground."""

    columns: int
    ground: str

    @property
    def name(self) -> str:
        return f"beside-{self.columns}-{self.ground}"


OURS = (
    "gpusetup resolve --from rtx3050-laptop --torch 2.5.1 --python 3.14",
    "gpusetup doctor --from library-mismatch",
)
THEIRS = (
    "uv pip install --no-index 'torch==2.5.1'",
    "uv pip install --no-index --find-links wheels --dry-run torch",
    "ruff check --isolated train.py",
)
BESIDE = tuple(Beside(columns, ground) for columns in (80, 120) for ground in ("dark", "light"))
TRAIN = """def train(model, batches):
    for batch in batches:
        loss = model(batch)
    return los
"""
"""What ruff is shown."""


# --- in a terminal --------------------------------------------------------------------------------


def shown(picture: Picture) -> str:
    """What the command prints into a terminal of that many columns, with its colours."""
    argv = [sys.executable, __file__, "--type", picture.command]
    text = in_terminal(argv, picture.columns)
    if not text.strip():
        raise ValueError(f"`{picture.command}` printed nothing")
    return text


ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")


def in_terminal(argv: Sequence[str], columns: int, folder: Path | None = None) -> str:
    """What a program leaves on a terminal of that many columns; `folder`: talk too."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    dropped = ("NO_COLOR", "COLUMNS", "LINES", "CI", *(ACTIVE if folder else ()))
    kept = {k: v for k, v in os.environ.items() if k not in dropped}
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs if folder else subprocess.DEVNULL,
        env={**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
        cwd=folder,
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
    from rich.segment import Segment, Segments
    from rich.style import Style

    from gpusetup.monitor.summary import summarise, tallied
    from gpusetup.render.frame import Past, View, frame

    run, past = composed("one hot card of eight makes all ranks wait", 0), Past()
    for sample in run.samples:
        past.add(sample)
    view = View(
        sample=run.samples[-1],
        past={label: tuple(values) for label, values in past.values.items()},
        so_far=summarise(tallied(run.samples), command=run.command),
    )
    screen = Rich()
    for line in frame(view, screen.width, 30):
        screen.print(Segments([Segment(text, Style.parse(role)) for text, role in line]), end="")
        screen.line()
    return 0


# --- the picture ----------------------------------------------------------------------------------


def svg(picture: Picture, ansi: str) -> str:
    from rich.text import Text

    text = Text.from_ansi(ansi.rstrip("\n"))
    typed = Text(f"$ {picture.command}", style="dim")
    return drawn([typed, *text.split("\n")[: picture.lines]], picture.columns)


def drawn(
    lines: Sequence[Text], columns: int, ground: str = "dark", title: str = "gpusetup"
) -> str:
    """Lines of a terminal as SVG."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME

    console = Console(
        file=StringIO(), record=True, width=columns, color_system="truecolor",
        force_terminal=True, legacy_windows=False,
    )  # fmt: skip
    for line in lines:
        console.print(line, soft_wrap=True)
    form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = form.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    theme = SVG_EXPORT_THEME if ground == "dark" else DEFAULT_TERMINAL_THEME
    picture = console.export_svg(title=title, code_format=form, theme=theme)
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE).strip() + "\n"


# --- beside others --------------------------------------------------------------------------------


def beside(picture: Beside) -> str:
    """Ours on the left, theirs on the right."""
    columns = picture.columns
    left, right = on_screen(of_ours(picture), columns), on_screen(of_others(picture), columns)
    rows = range(max(len(left), len(right)))
    lines = [side_by_side(left, right, n, columns) for n in rows]
    title = f"gpusetup beside {version('uv')} and {version('ruff')}, at {columns} columns"
    return drawn(lines, 2 * columns + GAP, picture.ground, title)


GAP = 4


def of_ours(picture: Beside) -> list[tuple[str, str]]:
    return [(one, shown(Picture("", one, picture.columns))) for one in OURS]


def of_others(picture: Beside) -> list[tuple[str, str]]:
    """What uv and ruff print in an empty project, with one wheel in a folder and no index."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN, encoding="utf-8")
        a_wheel(folder / "wheels")
        subprocess.run(["uv", "venv", "-q", "--no-project", ".venv"], cwd=folder, check=True)
        return [(one, in_terminal(shlex.split(one), picture.columns, folder)) for one in THEIRS]


FILES_OF_A_WHEEL = {
    "METADATA": ("Metadata-Version: 2.1", "Name: torch", "Version: 2.15.0+cu130"),
    "WHEEL": ("Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any"),
    "RECORD": (),
}


def a_wheel(folder: Path) -> None:
    """A wheel of torch that says its name and version, and holds nothing."""
    import zipfile

    folder.mkdir()
    info = "torch-2.15.0+cu130.dist-info"
    with zipfile.ZipFile(folder / "torch-2.15.0+cu130-py3-none-any.whl", "w") as wheel:
        for name, lines in FILES_OF_A_WHEEL.items():
            wheel.writestr(f"{info}/{name}", "".join(f"{line}\n" for line in lines))


def on_screen(told: Sequence[tuple[str, str]], columns: int) -> list[Text]:
    """Commands and what they print, a row of the terminal each: what is longer goes on below."""
    from rich.text import Text

    lines: list[Text] = []
    for command, ansi in told:
        lines += [Text()] if lines else []
        lines.append(Text(f"$ {command}", style="dim"))
        lines += Text.from_ansi(ansi.rstrip("\n")).split("\n")
    return [
        row for line in lines for row in line.divide(range(columns, len(line), columns)) or [line]
    ]


def side_by_side(left: Sequence[Text], right: Sequence[Text], n: int, columns: int) -> Text:
    from rich.text import Text

    line = left[n].copy() if n < len(left) else Text()
    line.pad_right(columns + GAP - line.cell_len)
    return line + right[n] if n < len(right) else line


def version(tool: str) -> str:
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    return " ".join(said.split()[:2])


def words(picture: str) -> str:
    """The text of a picture, without its colours and places."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    return " ".join(unescape(" ".join(found)).split())


def faults() -> list[str]:
    """Each picture that is missing, too large, fetches, or shows what is not printed now."""
    found = []
    every: tuple[Picture | Beside, ...] = (*PICTURES, *BESIDE)
    for picture in every:
        place = OUT / f"{picture.name}.svg"
        if not place.is_file():
            found.append(f"{place.name}: missing")
            continue
        kept = place.read_text(encoding="utf-8")
        if not is_fresh(picture, kept):
            found.append(f"{place.name}: shows what is not printed now")
        if len(kept.encode()) > LONGEST:
            found.append(f"{place.name}: {len(kept.encode())} bytes, more than {LONGEST}")
        if re.search(r"url\(\s*['\"]?(?!#)|href=", kept):
            found.append(f"{place.name}: fetches something")
    return found


def is_fresh(picture: Picture | Beside, kept: str) -> bool:
    if isinstance(picture, Picture):
        return words(kept) == words(svg(picture, shown(picture)))
    if picture.ground == "light":  # as the dark one, which is drawn with it
        return True
    ours = drawn(on_screen(of_ours(picture), picture.columns), picture.columns)
    return set(words(ours).split()) <= set(words(kept).split())


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
        for other in BESIDE:
            (OUT / f"{other.name}.svg").write_text(beside(other), encoding="utf-8")
    found = faults()
    count = len(PICTURES) + len(BESIDE)
    print("\n".join(found) or f"{count} pictures show what is printed now")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
