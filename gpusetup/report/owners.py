"""Finds who manages the environment in a text: the folder of its torch, a container image, or a
program that includes its own Python.

These are facts, not failures. `fixes.owners` uses them to decide how that torch may be changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from gpusetup.messages.owners import COMPILED, ROWS
from gpusetup.messages.row import MessageRow, is_switched_off
from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.report.facts import GUESS, Claim, Facts

CHARACTERS_READ = 200_000
"""Only this many characters at the beginning are read. That is enough, because the same paths occur
again and again."""
TORCHS_FILE = lazy(
    r"(?P<root>(?<![\w.~$}])/[\w.@+~/-]{2,200}?"
    r"|(?:\b[A-Z]:\\|(?<=[ \"'>])\.[\\/])[^\"'\n<>|*?:;,]{0,200}?)[\\/]+"
    r"(?P<folder>site|dist)-packages[\\/]+torch[\\/]",
    re.I,
)
"""The path of one of torch's files, in a traceback or a warning. The group `root` is the folder
above `site-packages`."""
# `Update/update_comfyui_and_python_dependencies.bat`, but not `should I run update_wizard_linux.sh`.
UPDATER = lazy(
    r"(?<!should I run )\b(?:update_comfyui_and_python_dependencies|update_wizard_(?:windows|linux|macos))\b",
    re.I,
)
"""The script with which a program updates its own environment."""
SHOWN = 200
"""Characters of a quote."""


def owners(text: Text) -> Facts:
    """The folder of torch, the owner of its environment, and packages that were compiled for it.

    >>> from gpusetup.report.cleaning import text_of
    >>> [event.values for event in owners(text_of("docker run vllm/vllm-openai:v0.8.5 --model x"))]
    [{'owner': 'image', 'name': 'vllm/vllm-openai:v0.8.5'}]
    """
    flat = text.flat[:CHARACTERS_READ]
    if "-packages" in text.low:
        yield from _folder_of_torch(text, flat)
    for row in ROWS:
        if text.has_any(row.letters):
            yield from _owner_of_row(text, flat, row)
    yield from _compiled_for_torch(text, flat)
    updater = UPDATER.search(flat)
    if updater:
        yield _event(text, "remedy-tried", updater, {"what": "program-update"})


def _folder_of_torch(text: Text, flat: str) -> Facts:
    """The folder from which torch is loaded, if all of torch's files in the text are in the same
    folder."""
    matches = list(TORCHS_FILE.finditer(flat))
    folders = Counter(match["root"].replace("\\\\", "\\") for match in matches)
    if len(folders) == 1:
        first = matches[0]
        values = {"root": next(iter(folders)), "packages": f"{first['folder']}-packages"}
        yield _event(text, "torch-folder", first, values)
        # This is a conda environment on Linux. Its Python is in `bin` below its root.
        if re.search(r"^/.*/envs/[^/]+/lib/python[\d.]+$", values["root"]):
            root = re.sub(r"/lib/python[\d.]+$", "", values["root"])
            yield Claim("python.executable", f"{root}/bin/python", "paths", GUESS)


# `stable-diffusion-webui\models\Lora`, a folder that other programs also read.
FOLDER_OF_DATA = lazy(
    r"[^\s\"'<>|*?:;,]{0,120}?[\\/](?:models?|loras?|checkpoints|embeddings|outputs?)\b", re.I
)
"""The rest of a path that leads to a program's data and not into its environment."""


def _owner_of_row(text: Text, flat: str, row: MessageRow) -> Iterator[Event]:
    match = _first_in_use(flat, row)
    if match is None:
        return
    if row.unless and in_any_case(row.unless).search(text.shown(*match.span())):
        return
    yield _event(text, row.kind, match, {"name": "", **row.values, **match.groupdict()})


def _first_in_use(flat: str, row: MessageRow) -> re.Match[str] | None:
    """The first place that names the owner and is neither a folder of data nor a setting that is
    off, such as `zluda=False`."""
    for match in in_any_case(row.pattern).finditer(flat):
        is_data = FOLDER_OF_DATA.match(flat, match.end())
        if not is_data and not is_switched_off(flat, match.end()):
            return match
    return None


def _compiled_for_torch(text: Text, flat: str) -> Iterator[Event]:
    """Packages with compiled parts that the text shows with a version or by one of their files."""
    known: set[str] = set()
    for match in COMPILED.finditer(flat):
        package = (match["listed"] or match["file"]).lower().replace("_", "-")
        if package not in known:
            known.add(package)
            yield _event(text, "compiled-for-torch", match, {"package": package})


def _event(text: Text, kind: str, match: re.Match[str], values: dict[str, str]) -> Event:
    return Event(
        kind=kind,
        values=values,
        source=text.source(match.start()),
        text=text.shown(*match.span())[:SHOWN],
    )
