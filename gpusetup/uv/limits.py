"""The user's settings that limit versions in every installation: constraints, overrides and
exclusions.

They are read as data. A line does not apply if it would fetch a file from a URL that is not shown
to the user, or would replace the chosen torch; a note then names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen
from gpusetup.model.logins import without_logins
from gpusetup.uv.configuration import SettingsSource

MOST_BYTES = 1 << 20
"""The maximum size of a constraints file."""
GUARD = "/gpusetup-constraints.txt"
"""The end of the name of a file that `gpusetup guard` wrote. Such a file is meant for other
installers, so gpusetup ignores it."""
KINDS = {"constraint": "constraints", "override": "overrides", "exclude": "exclusions"}
"""Maps the beginning of a setting's name, as in `constraint-dependencies`, to the kind of limits
that it contains."""


class Limits(Frozen):
    """The lines with constraints, overrides and exclusions for uv, and notes about them."""

    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    exclusions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def limits_of(sources: tuple[SettingsSource, ...]) -> Limits:
    """The limits from all variables and files with settings, with a note for each source that
    contributes."""
    lines: dict[str, list[str]] = {kind: [] for kind in KINDS.values()}
    notes: list[str] = []
    for source in sources:
        for prefix, kind in KINDS.items():
            written = _lines_in(source, prefix)
            counted, refused = _counted(written, _may_count(kind))
            lines[kind] += counted
            # Name the source in both cases, because uv does not say where a limit comes from.
            if counted:
                notes.append(f"{source.name} counts ({kind}): {', '.join(counted)}")
            if refused:
                notes.append(f"{source.name} does not count ({kind}): {', '.join(refused)}")
    return Limits(
        constraints=tuple(lines["constraints"]),
        overrides=tuple(lines["overrides"]),
        exclusions=tuple(lines["exclusions"]),
        notes=tuple(notes),
    )


def _lines_in(source: SettingsSource, prefix: str) -> Iterator[str]:
    """Yields the lines of one source: those that it contains itself, and those in the files that it
    names."""
    written = source.values.get(f"{prefix}-dependencies")
    if isinstance(written, list):
        yield from map(str, written)
    # Variables name files, while settings in a file contain the lines themselves.
    files = source.values.get(f"{prefix}-files")
    if not isinstance(files, list):
        return
    for name in map(str, files):
        # The guard keeps other installers from replacing torch, but gpusetup itself replaces torch
        # on purpose.
        if not name.endswith(GUARD):
            yield from _lines_of_file(name, source)


def _lines_of_file(name: str, source: SettingsSource) -> Iterator[str]:
    """Yields the lines of a file without comments. A URL instead of a file is yielded unchanged.
    Raises BadInput if the file cannot be read."""
    parts = urlsplit(name)
    if parts.scheme in ("http", "https"):
        yield name
        return
    path = Path(source.folder, unquote(parts.path) if parts.scheme == "file" else name)
    try:
        text = named_file.read_text_once(path, MOST_BYTES)
    except BadInput as problem:
        raise BadInput(f"{source.name}: {problem.message}", hint="fix or unset it") from problem
    for line in text.replace("\\\n", " ").splitlines():
        plain = line.partition(" #")[0].strip()
        if plain and not plain.startswith("#"):
            yield plain


def _counted(
    lines: Iterator[str], may_count: Callable[[Requirement], bool]
) -> tuple[list[str], list[str]]:
    """The lines that apply as limits, and the lines that gpusetup refuses."""
    counted: list[str] = []
    refused: list[str] = []
    for line in lines:
        try:
            requirement = Requirement(line.partition(" --hash")[0])
        except (InvalidRequirement, RecursionError):
            refused.append(without_logins(line[:80]))
            continue
        if may_count(requirement):
            counted.append(str(requirement))
        else:
            refused.append(without_logins(str(requirement)))
    return counted, refused


def _may_count(kind: str) -> Callable[[Requirement], bool]:
    """Returns a function that checks whether a requirement may be used as this kind of limit
    (`constraints`, for example)."""

    def may_count(requirement: Requirement) -> bool:
        # A file given by its URL would come from a host that the user has not been shown.
        if requirement.url:
            return False
        # An override or an exclusion replaces the requested version, which could be the chosen
        # torch.
        is_torch = canonicalize_name(requirement.name) in FAMILY
        return kind == "constraints" or not is_torch

    return may_count
