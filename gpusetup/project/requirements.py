"""Reads requirements files as pip does: nested files, constraints, options, URLs and hashes.

https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.logins import without_logins
from gpusetup.project.ask import MOST_BYTES, Ask, DirectReference

MOST_FILES = 100
"""A limit on nested files, because a stranger's files may name each other without end."""
OPTION = re.compile(
    r"(?P<short>-[ricef])(?![a-z-])[ \t=]*(?P<after_short>.*)"
    r"|(?P<long>--[a-z-]+)(?:[ \t=]+(?P<after_long>.*))?"
)
"""An option and its value: `-r dev.txt`, `-rdev.txt` or `--requirement=dev.txt`."""
SHORT_NAMES = {
    "--requirement": "-r",
    "--constraint": "-c",
    "--editable": "-e",
    "--index-url": "-i",
    "--extra-index-url": "-i",
    "--index": "-i",
    "--default-index": "-i",
    "--find-links": "-f",
}
WITHOUT_EFFECT = (
    *("--require-hashes", "--pre", "--prefer-binary", "--no-binary", "--only-binary"),
    *("--trusted-host", "--use-feature", "--no-index", "--no-build-isolation"),
)
"""Options that name no package and no index; the installer's own settings decide about these."""


def add_file(ask: Ask, file: Path, named_by: str = "", *, is_limit: bool = False) -> None:
    """Add what a requirements file asks for, with the files that it names; `is_limit` if it is a
    file of `-c`.

    `named_by` is the place that names it. If the file cannot be read, it then only counts as
    unread; without a place, this raises BadInput.
    """
    try:
        whole_path = os.path.realpath(file)
        if whole_path in ask.files:
            return
        if len(ask.files) == MOST_FILES:
            ask.unread.append(f"{named_by}: only {MOST_FILES} files are read")
            return
        ask.files.add(whole_path)
        text = named_file.read_text(file, MOST_BYTES)
    except (BadInput, ValueError) as problem:  # a path may hold a null character
        if not named_by:
            raise
        ask.unread.append(f"{named_by}: {str(problem).splitlines()[0]}")
        return
    name = os.path.relpath(file, Path(ask.path).parent)
    for number, line in lines_of(text):
        option, value = option_of(re.sub(r"\s#.*", "", line))
        add_line(ask, option, value, f"{name}, line {number}", file.parent, is_limit=is_limit)


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    r"""Yields each line with the number at which it begins. One that ends in a backslash goes on in
    the next; empty lines and those that are only a comment do not count.

    >>> list(lines_of("a\n\n# d\nc \\\n --hash=x\nlast \\"))
    [(1, 'a'), (4, 'c  --hash=x'), (6, 'last')]
    """
    begun, whole = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        plain = line.rstrip()
        if not plain or plain.lstrip().startswith("#"):
            continue
        begun = begun if whole else number
        whole += plain.removesuffix("\\")
        if not plain.endswith("\\"):
            yield begun, whole.strip()
            whole = ""
    if whole.strip():
        yield begun, whole.strip()


def option_of(line: str) -> tuple[str, str]:
    """pip's option in a line, by its short name, and its value; "" for a requirement.

    >>> option_of("--requirement=dev.txt"), option_of("-r dev.txt"), option_of("torch>=2")
    (('-r', 'dev.txt'), ('-r', 'dev.txt'), ('', 'torch>=2'))
    """
    option = OPTION.fullmatch(line.strip())
    if not option:
        return "", line.strip()
    value = (option["after_short"] or option["after_long"] or "").strip().strip("\"'")
    return option["short"] or SHORT_NAMES.get(option["long"], option["long"]), value


def add_line(
    ask: Ask, option: str, value: str, place: str, folder: Path, *, is_limit: bool = False
) -> None:
    """Add what a line asks for: a requirement (`option` is ""), or the value of one of pip's
    options. Paths in it are relative to `folder`; `is_limit` as in `Ask.add`."""
    if not option:
        ask.add(value, place, is_limit=is_limit)
    elif option in ("-r", "-c") and "://" in value:
        # A joined path would hide that it is an address, which may hold a login or a token.
        ask.unread.append(f"{place}: {option} {without_logins(value).partition('?')[0]}")
    elif option in ("-r", "-c"):
        add_file(ask, folder / value, place, is_limit=is_limit or option == "-c")
    elif option in ("-i", "-f"):
        ask.add_index(value, place)
    elif option == "-e":
        ask.direct.append(DirectReference(text=f"-e {value}", place=place))
    elif option not in WITHOUT_EFFECT:
        ask.unread.append(f"{place}: {without_logins(option)}")
