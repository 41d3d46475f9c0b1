"""Finds files in a text: the file that failed to load, with its owner, and files in listings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.readings.owner import Owner, owner_of
from gpusetup.report import fields
from gpusetup.report.facts import GUESS, Claim, Facts

# `libcudart.so.12`, `torch_cuda.dll`, `_C.pyd`.
LIBRARY = r"[\w.+~@-]*\.(?:so(?:\.\d+)*|dylib|dll|pyd)"
# `/usr/lib/libcuda.so.1`, `C:\\Windows\\System32\\nvcuda.dll`.
PATH = rf"(?:/(?:[\w.+~@-]+/)+|[A-Za-z]:\\(?:[^\\/:*?\"<>|\n]+\\)+){LIBRARY}"
"""The whole path of a library."""
# `lrwxrwxrwx 1 root root 12 May  3 10:00 /usr/lib/libcuda.so -> libcuda.so.1`; the path of nvcc;
# `libcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1`.
LISTED = lazy(
    rf"^\s*(?:[-lrwxs.+]{{10,11}}\s.*?\s)?(?P<path>{PATH})(?: -> \S+)?$"
    r"|^\s*(?P<tool>/(?:[\w.+~@-]+/)+bin/nvcc)$"
    rf"|^\s*lib[\w.+-]+\.so[.\d]* \([^)]*\) => (?P<cached>{PATH})$",
    re.I,
)
"""A line from `find`, `ls -l`, `whereis` or `ldconfig -p` that only lists a file."""
# `OSError: /x/libc10.so: ...`, `Error loading "C:\\x\\c10.dll"`, `Could not load /x/libc10.so`,
# `/x/libc10.so: undefined symbol`.
FAILED = lazy(
    rf"\b(?:OSError|ImportError|RuntimeError|FileNotFoundError)\b:? (?P<a>{PATH}): "
    rf"|\bError loading \W?(?P<b>{PATH})"
    rf"|\b(?:[Cc]ould not|[Cc]annot|[Ff]ailed to|[Uu]nable to) (?:load|find|open|locate)\b[^\n]{{0,80}}?[\"'(: ](?P<c>{PATH})"
    rf"|(?P<d>{PATH}): (?:undefined symbol|cannot open shared object)",
    re.I,
)
"""A loader's message about a file that it could not load."""
# `version 'GLIBCXX_3.4.32' not found (required by /x/_C.so)`.
REQUIRED_BY = lazy(rf"\bnot found \(required by ({PATH})\)", re.I)
"""The file that needs a newer version of a library. The failing file is this one, not the library.
"""
MAX_LISTED = 12
"""The most files that are kept from listings, because a full `ldconfig -p` has thousands."""
MAX_LISTED_LINE, MAX_LOADER_LINE = 300, 2000
"""Longer lines are skipped when listings and loader messages are read, because the patterns are
slow on them."""
SHOWN_CHARACTERS = 300
"""At most this many characters of the line are quoted as evidence."""
SOURCE_TREE = ("setup.py", "pyproject.toml", "cmakelists.txt", "csrc")
"""Names that show that a listed folder contains a project's sources."""
# A prompt with a command that lists the working folder: `$ ls -la`, `C:\\x> dir`.
LIST_COMMAND = lazy(r"[$#>%] ?(?:ls|dir)\b(?: -\w+)*\s*$")
LISTING_LINES = 7
"""This many lines after such a command are read as its output."""


def files(text: Text) -> Facts:
    """The file that failed to load, and the libraries that a listing shows."""
    if "no module named" in text.low:
        missing_part = _missing_compiled_part(text)
        if missing_part:
            yield missing_part
    # The readers below are slow, and they cannot find anything in a text without a library's file
    # ending.
    if not text.has_any(LIBRARY_ENDINGS):
        return
    yield from _failing_file(text)
    yield from _loaded_before_torch(text)
    yield from _listed_files(text)


LIBRARY_ENDINGS = (".so", ".dll", ".pyd", ".dylib", "/nvcc")


def _listed_files(text: Text) -> Iterator[Event]:
    """The first libraries in listings, at most `MAX_LISTED`."""
    listed_count = 0
    for number, line in enumerate(text.lines, 1):
        if len(line) >= MAX_LISTED_LINE:
            continue
        match = LISTED.match(line)
        if match is None:
            continue
        path = match["path"] or match["tool"] or match["cached"]
        yield Event(
            kind="file-listed",
            values={"path": path},
            source=line_source(number),
            text=line.strip(),
        )
        listed_count += 1
        if listed_count == MAX_LISTED:
            return


def _failing_file(text: Text) -> Facts:
    """The last file that could not be loaded, with its owner."""
    failing_file: Event | None = None
    for number, line in enumerate(text.lines, 1):
        if len(line) >= MAX_LOADER_LINE:
            continue
        match = REQUIRED_BY.search(line) or FAILED.search(line)
        if match is None:
            continue
        # Each form of the message has its own group, so only one group has a value.
        path = next(filter(None, match.groups()))
        owner = owner_of(path)
        is_of_sources = owner.place == "checkout" and _lists_a_project(text)
        failing_file = Event(
            kind="failing-file",
            values=_owner_values(path, owner, is_of_sources=is_of_sources),
            source=line_source(number),
            text=line.strip()[:SHOWN_CHARACTERS],
        )
    if failing_file:
        yield failing_file
        yield from _python_of_environment(failing_file)


def _owner_values(path: str, owner: Owner, *, is_of_sources: bool) -> dict[str, str]:
    """The known values of a failing file: its path, its package, and where the package is
    installed."""
    values = {
        "path": path,
        "package": owner.package,
        "place": owner.place,
        "root": owner.root,
        "checkout": "yes" if is_of_sources else "",
    }
    return {name: value for name, value in values.items() if value}


# `  File "/home/me/mmcv/ops/roi_align.py", line 11`.
FRAME = lazy(r"^\s*File \"(?P<path>[^\"\n]{3,300}\.py)\", line \d+")
# The names that packages give to their compiled module: `mmcv._ext`, `flash_attn_2_cuda`, `x._C`.
COMPILED_PART = lazy(
    r"No module named '?(?:[\w.]+\.)?(?P<module>_C|\w+_cuda|\w+_ext|_ext|\w+_kernels?|\w+\._C)'?\b"
)


def _missing_compiled_part(text: Text) -> Event | None:
    """The source file that imports a compiled module which was not built; None if there is none.

    Only files in a project's own sources count, because an installed package contains its compiled
    modules.
    """
    importing_file = ""
    for number, line in enumerate(text.lines, 1):
        frame = FRAME.match(line)
        if frame:
            importing_file = frame["path"]
            continue
        if not importing_file or not COMPILED_PART.search(line):
            continue
        owner = owner_of(importing_file)
        if owner.place != "checkout" or not _lists_a_project(text):
            continue
        values = {
            "path": importing_file,
            "package": owner.package,
            "place": owner.place,
            "root": owner.root,
            "checkout": "yes",
        }
        return Event(
            kind="failing-file",
            values=values,
            source=line_source(number),
            text=line.strip(),
        )
    return None


# `/home/me/miniconda3/envs/ml`: a conda environment on Linux.
CONDA_ENVIRONMENT = lazy(r"^/.*/envs/[^/]+$")


def _python_of_environment(failing_file: Event) -> Iterator[Claim]:
    """The Python of the conda environment (Linux only) in which the failing file is installed."""
    values = failing_file.values
    if values.get("place") != "environment":
        return
    root = values.get("root", "")
    if CONDA_ENVIRONMENT.search(root):
        executable = f"{root}/bin/python"
        source = failing_file.source or "report"
        yield Claim(fields.PYTHON_EXECUTABLE, executable, source, GUESS)


def _lists_a_project(text: Text) -> bool:
    """Whether a listing of the working folder shows a project's source files."""
    for index, line in enumerate(text.lines):
        if not LIST_COMMAND.search(line):
            continue
        first = index + 1
        listing = " ".join(text.lines[first : first + LISTING_LINES]).lower()
        if any(name in listing for name in SOURCE_TREE):
            return True
    return False


BRING_A_RUNTIME = ("PySide2", "PySide6", "PyQt5", "PyQt6", "wx", "cv2", "onnxruntime", "tensorflow", "paddle", "pyarrow", "vtk", "open3d")  # fmt: skip
"""Packages that include their own C++ runtime, OpenMP or MKL on Windows.

The package that is loaded first decides which copy the process uses. Source: the files in their
wheels, November 2026.
"""
# `import cv2`, `from cv2 import`, also after a line number, as notebooks and tracebacks show it.
IMPORT = lazy(r"^\s*(?:\d{1,4}[:.|]?\s+)?(?:import|from) (?P<module>\w+)")


def _loaded_before_torch(text: Text) -> Iterator[Event]:
    """The first imported package that brings its own DLLs, in a text about torch and DLLs."""
    if "torch" not in text.low or ".dll" not in text.low:
        return
    for number, line in enumerate(text.lines, 1):
        match = IMPORT.match(line)
        if match and match["module"] in BRING_A_RUNTIME:
            yield Event(
                kind="loaded-first",
                values={"package": match["module"]},
                source=line_source(number),
                text=line.strip(),
            )
            return
