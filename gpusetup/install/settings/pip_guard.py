"""One more constraint in a configuration of pip, with every other byte as it was."""

from __future__ import annotations

import re
from configparser import Error, RawConfigParser
from pathlib import Path

from gpusetup.errors import BadInput
from gpusetup.install.settings.pip_config import without_content

SECTION = "install"
"""Where pip looks first (https://pip.pypa.io/en/stable/topics/configuration/#precedence)."""


def with_constraint(raw: bytes, ours: str, former: str, path: Path) -> bytes:
    """A configuration that names our constraints file too; `raw` itself where it does.

    `former`: what pip reads now as `constraint`, from any of its files: a value in `[install]`
    hides those of the others, so they are named beside ours. `BadInput` where the file is no
    configuration, or where the line would not do what it should.

    >>> with_constraint(b"[install]\\nconstraint = a.txt\\n", "/o.txt", "a.txt", Path("pip.conf"))
    b'[install]\\nconstraint = a.txt\\n    /o.txt\\n'
    >>> with_constraint(b"", "/o.txt", "", Path("pip.conf"))
    b'[install]\\nconstraint = /o.txt\\n'
    """
    text = raw.decode("utf-8", "surrogateescape")
    before = _read(text, path)
    own = before.get(SECTION, {}).get("constraint")
    if own is not None and ours in own.split():
        return raw
    lines = text.splitlines(keepends=True)
    end = "\r\n" if "\r\n" in text else "\n"
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += end
    changed = "".join(_inserted(lines, ours, former if own is None else None, end))
    expected = [*(own if own is not None else former).split(), ours]
    after = _read(changed, path)
    said = after.setdefault(SECTION, {}).pop("constraint", "").split()
    before.setdefault(SECTION, {}).pop("constraint", None)
    if sorted(said) != sorted(expected) or after != before:
        raise BadInput(
            f"{path} is written in a way that no line can be added to safely",
            hint=f"add this to its section [install] yourself: constraint = {' '.join(expected)}",
        )
    return changed.encode("utf-8", "surrogateescape")


def _inserted(lines: list[str], ours: str, former: str | None, end: str) -> list[str]:
    """The lines with ours: below the key of `[install]` (`former` None: it is there), or new."""
    heads = [n for n, line in enumerate(lines) if re.match(rf"\ufeff?\[{SECTION}\]", line)]
    value = " ".join(f"{former or ''} {ours}".split())
    if not heads:
        return [*lines, f"[{SECTION}]{end}", f"constraint = {value}{end}"]
    place = heads[0] + 1
    if former is not None:
        return [*lines[:place], f"constraint = {value}{end}", *lines[place:]]
    for number in range(place, len(lines)):
        if found := re.match(r"([^\S\n]*)(?:--)?constraint\s*[=:]", lines[number], re.IGNORECASE):
            return [*lines[: number + 1], f"{found[1]}    {ours}{end}", *lines[number + 1 :]]
    return lines


def _read(text: str, path: Path) -> dict[str, dict[str, str]]:
    parser = RawConfigParser()
    try:
        parser.read_string(text.removeprefix("\ufeff"))
    except Error as problem:
        raise BadInput(
            f"{path} is no configuration of pip: {without_content(str(problem))}",
            hint="nothing was changed; mend it (`pip config debug` shows what pip reads)",
        ) from None
    found = {name: dict(parser.items(name)) for name in parser.sections()}
    return {name: {_key(key): value for key, value in rows.items()} for name, rows in found.items()}


def _key(name: str) -> str:
    return name.removeprefix("--").replace("_", "-")
