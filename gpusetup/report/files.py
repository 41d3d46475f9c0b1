"""Files that a text shows: one that failed to load, with its owner; those that a listing has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.readings.owner import owner_of
from gpusetup.report.facts import GUESS, Claim, Facts

LIBRARY = r"[\w.+~@-]*\.(?:so(?:\.\d+)*|dylib|dll|pyd)"
PATH = rf"(?:/(?:[\w.+~@-]+/)+|[A-Za-z]:\\(?:[^\\/:*?\"<>|\n]+\\)+){LIBRARY}"
"""The whole path of a library."""
LISTED = lazy(
    rf"^\s*(?:[-lrwxs.+]{{10,11}}\s.*?\s)?(?P<path>{PATH})(?: -> \S+)?$"
    r"|^\s*(?P<tool>/(?:[\w.+~@-]+/)+bin/nvcc)$"
    rf"|^\s*lib[\w.+-]+\.so[.\d]* \([^)]*\) => (?P<cached>{PATH})$",
    re.I,
)
"""A line of `find`, `ls -l`, `whereis` or `ldconfig -p`: nothing but the path of a file."""
FAILED = lazy(
    rf"\b(?:OSError|ImportError|RuntimeError|FileNotFoundError)\b:? (?P<a>{PATH}): "
    rf"|\bError loading \W?(?P<b>{PATH})"
    rf"|\b(?:[Cc]ould not|[Cc]annot|[Ff]ailed to|[Uu]nable to) (?:load|find|open|locate)\b[^\n]{{0,80}}?[\"'(: ](?P<c>{PATH})"
    rf"|(?P<d>{PATH}): (?:undefined symbol|cannot open shared object)",
    re.I,
)
"""What a loader says of a file that it could not load."""
REQUIRED_BY = lazy(rf"\bnot found \(required by ({PATH})\)", re.I)
"""The file that asks a library for a version that it lacks: that file failed, not the library."""
MOST_LISTED = 12
SOURCE_TREE = ("setup.py", "pyproject.toml", "cmakelists.txt", "csrc")
"""What a listing of a project's own folder has."""
LIST_COMMAND = lazy(r"[$#>%] ?(?:ls|dir)\b(?: -\w+)*\s*$")


def files(text: Text) -> Facts:
    """The file that failed to load, and the libraries that a listing shows to be there."""
    if "no module named" in text.low and (imported := _compiled_part(text)):
        yield imported
    if not any(ending in text.low for ending in (".so", ".dll", ".pyd", ".dylib", "/nvcc")):
        return
    yield from _failing_file(text)
    yield from _loaded_first(text)
    listed = 0
    for number, line in enumerate(text.lines, 1):
        match = LISTED.match(line) if len(line) < 300 else None
        if match is None:
            continue
        path = match["path"] or match["tool"] or match["cached"]
        source = f"report, line {number}"
        yield Event(kind="file-listed", values={"path": path}, source=source, text=line.strip())
        listed += 1
        if listed == MOST_LISTED:
            return


def _failing_file(text: Text) -> Facts:
    """The last file that a loader could not load, with its owner."""
    failed: Event | None = None
    for number, line in enumerate(text.lines, 1):
        is_short = len(line) < 2000
        match = (REQUIRED_BY.search(line) or FAILED.search(line)) if is_short else None
        if match is None:
            continue
        path = next(filter(None, match.groups()))
        owner = owner_of(path)
        values = {
            "path": path,
            "package": owner.package,
            "place": owner.place,
            "root": owner.root,
            "checkout": "yes" if owner.place == "checkout" and _lists_a_project(text) else "",
        }
        known = {name: value for name, value in values.items() if value}
        source = f"report, line {number}"
        failed = Event(kind="failing-file", values=known, source=source, text=line.strip()[:300])
    if failed:
        yield failed
        yield from _its_python(failed)


FRAME = lazy(r"^\s*File \"(?P<path>[^\"\n]{3,300}\.py)\", line \d+")
COMPILED_PART = lazy(
    r"No module named '?(?:[\w.]+\.)?(?P<module>_C|\w+_cuda|\w+_ext|_ext|\w+_kernels?|\w+\._C)'?\b"
)


def _compiled_part(text: Text) -> Event | None:
    """The file that imports a compiled module which is not there, if it is a project's source."""
    path = ""
    for number, line in enumerate(text.lines, 1):
        if frame := FRAME.match(line):
            path = frame["path"]
        elif path and COMPILED_PART.search(line):
            owner = owner_of(path)
            if owner.place == "checkout" and _lists_a_project(text):
                values = {
                    "path": path,
                    "package": owner.package,
                    "place": owner.place,
                    "root": owner.root,
                }
                values["checkout"] = "yes"
                return Event(
                    kind="failing-file",
                    values=values,
                    source=f"report, line {number}",
                    text=line.strip(),
                )
    return None


def _its_python(failed: Event) -> Iterator[Claim]:
    """The interpreter of a conda environment on Linux, whose packages the file is one of."""
    root = failed.values.get("root", "")
    if failed.values.get("place") == "environment" and re.search(r"^/.*/envs/[^/]+$", root):
        yield Claim("python.executable", f"{root}/bin/python", failed.source or "report", GUESS)


def _lists_a_project(text: Text) -> bool:
    """Whether a listing of the working folder shows the sources of a project."""
    for number, line in enumerate(text.lines):
        if LIST_COMMAND.search(line):
            shown = " ".join(text.lines[number + 1 : number + 8]).lower()
            if any(name in shown for name in SOURCE_TREE):
                return True
    return False


OWN_RUNTIME = ("PySide2", "PySide6", "PyQt5", "PyQt6", "wx", "cv2", "onnxruntime", "tensorflow", "paddle", "pyarrow", "vtk", "open3d")  # fmt: skip
"""Packages for Windows that bring a C++ runtime, OpenMP or MKL of their own (their wheels' files, as
of November 2026): whichever loads first decides which copy the process has."""
IMPORT = lazy(r"^\s*(?:\d{1,4}[:.|]?\s+)?(?:import|from) (?P<module>\w+)")


def _loaded_first(text: Text) -> Iterator[Event]:
    """What is imported before torch and brings DLLs of its own, where a DLL of torch's fails."""
    if "torch" not in text.low or ".dll" not in text.low:
        return
    for number, line in enumerate(text.lines, 1):
        match = IMPORT.match(line)
        module = match["module"] if match else ""
        if module in OWN_RUNTIME:
            values = {"package": module}
            source = f"report, line {number}"
            yield Event(kind="loaded-first", values=values, source=source, text=line.strip())
            return
