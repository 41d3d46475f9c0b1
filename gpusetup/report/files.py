"""Finds files in a text: the file that failed to load, with its owner, and files in listings."""

from __future__ import annotations

import re

from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.readings.owner import owner_of
from gpusetup.report.facts import Facts

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

LIBRARY_ENDINGS = (".so", ".dll", ".pyd", ".dylib", "/nvcc")


def files(text: Text) -> Facts:
    """The last file that failed to load, with its owner, and the first libraries that a listing
    shows."""
    # The patterns are slow, and they cannot find anything in a text without a library's ending.
    if not text.has_any(LIBRARY_ENDINGS):
        return
    failing, listed = None, []
    for number, line in enumerate(text.lines, 1):
        match = None
        if len(line) < MAX_LOADER_LINE and (
            match := REQUIRED_BY.search(line) or FAILED.search(line)
        ):
            # Each form of the message has its own group, so only one group has a value.
            failing = (number, line, next(filter(None, match.groups())))
        if len(line) < MAX_LISTED_LINE and (match := LISTED.match(line)):
            listed.append((number, line, match["path"] or match["tool"] or match["cached"]))
    if failing:
        number, line, path = failing
        owner, source = owner_of(path), line_source(number)
        known = {"path": path, "package": owner.package, "place": owner.place, "root": owner.root}
        values = {name: value for name, value in known.items() if value}
        # A mangled symbol at the end of the line is long.
        quote = line.strip()[:300]
        yield Event(kind="failing-file", values=values, source=source, text=quote)
    for number, line, path in listed[:MAX_LISTED]:
        values = {"path": path}
        source = line_source(number)
        yield Event(kind="file-listed", values=values, source=source, text=line.strip())
