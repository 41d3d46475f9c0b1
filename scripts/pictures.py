#!/usr/bin/env python3
"""Draw the pictures of the documentation: what a terminal shows, as SVG.

python scripts/pictures.py                 draw docs/pictures/*.svg
python scripts/pictures.py --check         exit 1 where a picture shows what no command prints now

Each command runs on an example machine and with the catalog of the tests. The SVGs name no font
that a browser would fetch.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from html import unescape
from io import StringIO
from pathlib import Path
from unittest import mock

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("", "scripts", "tests", "tests/monitor")]
OUT = ROOT / "docs" / "pictures"
FORM = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace"
)
COLUMNS = 112


def printed(*words: str) -> None:
    from write_reference import _frozen_catalog

    from gpusetup.cli import main

    with _frozen_catalog():
        main(words)


def watched() -> None:
    """The table of the GPUs of a composed run, in which one rank works alone."""
    from composed_runs import RUNS

    from gpusetup.model.codec import from_json
    from gpusetup.monitor.documents import Sample
    from gpusetup.render.monitor import once

    sample = from_json(RUNS["one slow rank"].text().splitlines()[-2], Sample, what="a sample")
    print(once(sample).shown(width=COLUMNS, colour=True))


ONE_GPU = ("plan", "--model", "qwen3-8b", "--gpu", "RTX 4090")
PICTURES: dict[str, tuple[str, Callable[[], None]]] = {
    "doctor": (
        "gpusetup doctor --from rtx3050-laptop",
        lambda: printed("doctor", "--from", "rtx3050-laptop"),
    ),
    "plan": (
        'gpusetup plan --model qwen3-8b --gpu "RTX 4090"',
        lambda: printed(*ONE_GPU),
    ),
    "monitor": ("gpusetup monitor", watched),
}
"""Name -> what is typed, and what prints the answer."""


class Terminal(StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def svg(name: str) -> str:
    command, show = PICTURES[name]
    out = Terminal()
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    told = {**kept, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    with mock.patch.dict(os.environ, told, clear=True), redirect_stdout(out):
        show()
    console = Console(
        file=StringIO(), record=True, width=COLUMNS, color_system="truecolor", force_terminal=True
    )
    console.print(Text(f"$ {command}", style="dim"), soft_wrap=True)
    # A line that is drawn again is what was drawn last.
    text = re.sub(r"[^\n]*\r(?!\n)", "", out.getvalue().rstrip("\n"))
    console.print(Text.from_ansi(text), soft_wrap=True)
    picture = console.export_svg(title="gpusetup", code_format=FORM, theme=SVG_EXPORT_THEME)
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE).strip() + "\n"


def words(picture: str) -> str:
    """The text of a picture, without its colours and places."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    return " ".join(unescape(" ".join(found)).split())


def main() -> int:
    check, stale = "--check" in sys.argv[1:], []
    for name in PICTURES:
        file, picture = OUT / f"{name}.svg", svg(name)
        if re.search(r"url\(\s*['\"]?(?!#)|href=", picture):
            raise ValueError(f"{name} fetches something")
        if not check:
            file.write_text(picture, encoding="utf-8")
        elif words(file.read_text(encoding="utf-8")) != words(picture):
            stale.append(f"{file.name}: shows what is not printed now")
    print("\n".join(stale) or f"{len(PICTURES)} pictures show what is printed now")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
