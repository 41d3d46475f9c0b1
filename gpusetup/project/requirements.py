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
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.project.ask import Ask, Later, NamedIndex, Requested
from gpusetup.project.words import comes_with_torch, named_index, requested, wheel_named

MOST_BYTES = 1 << 20
MOST_FILES = 100
"""A limit on nested files, because a stranger's files may name each other without end."""
OPTION = re.compile(
    r"(?P<short>-[ricef])(?![a-z-])[ \t=]*(?P<value>.*)|(?P<long>--[a-z-]+)(?:[ \t=]+(?P<rest>.*))?"
)
LONG_NAMES = {
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
ADDRESS = re.compile(r"(?i)(?:(?:git|hg|svn|bzr)\+|https?://|file:|ssh://|git@)\S*|[./~\\]\S*")


def read_requirements(path: str) -> Ask:
    """What a requirements file asks for, with the files that it names.

    Raises BadInput if the file itself cannot be read.
    """
    ask = Ask(path=path, kind="requirements")
    read: set[str] = set()
    waiting: list[tuple[Path, bool, str]] = [(Path(path), False, "")]
    while waiting and len(read) < MOST_FILES:
        file, is_constraints, named_by = waiting.pop(0)
        whole_path = os.path.realpath(file)
        if whole_path in read:
            continue
        read.add(whole_path)
        try:
            text = named_file.read_text_once(file, MOST_BYTES)
        except BadInput as problem:
            # A missing file that another one names does not end the answer; the first one does.
            if not named_by:
                raise
            ask = replace(ask, unread=(*ask.unread, f"{named_by}: {problem.message}"))
            continue
        if "--hash" in text:
            ask = replace(ask, has_hashes=True)
        name = os.path.relpath(file, Path(path).parent) if named_by else os.path.basename(path)  # noqa: PTH119
        for number, line in lines_of(text):
            place = f"{name}, line {number}"
            option = OPTION.fullmatch(line)
            kind, value = "", line
            if option:
                kind = option["short"] or LONG_NAMES.get(option["long"], option["long"])
                value = (option["value"] or option["rest"] or "").strip().strip("\"'")
            if kind in ("-r", "-c"):
                waiting.append((file.parent / value, is_constraints or kind == "-c", place))
            else:
                ask = with_line(ask, kind, value, place, is_constraints=is_constraints)
    return ask


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    r"""Yields the number and the text of each line that is not empty, without comments. A line that
    ends in a backslash goes on in the next one.

    >>> list(lines_of("a  # b\n\n# d\nc \\\n --hash=x"))
    [(1, 'a'), (4, 'c  --hash=x')]
    """
    begun, parts = 0, [""]
    for number, line in enumerate(text.splitlines(), start=1):
        if not parts[-1]:
            begun, parts = number, []
        plain = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if plain.endswith("\\"):
            parts.append(plain[:-1] or " ")
            continue
        whole = "".join((*parts, plain)).strip()
        parts = [""]
        if whole:
            yield begun, whole


def with_line(ask: Ask, kind: str, value: str, place: str, *, is_constraints: bool = False) -> Ask:
    """What is asked for with one more line. `kind` is pip's option (`-e`, `-i`), or empty for a
    requirement."""
    if kind == "-i":
        return replace(ask, indexes=(*ask.indexes, named_index(value, place)))
    if kind == "-f":
        # A page of wheels, such as torch's own stable page, or an extension's for one torch.
        return with_find_links(ask, value, place)
    if kind == "-e":
        return replace(ask, later=(*ask.later, Later(text=f"-e {value}", place=place)))
    if kind:
        if kind in WITHOUT_EFFECT:
            return ask
        return replace(ask, unread=(*ask.unread, f"{place}: {without_logins(kind)}"))
    # A requirement may be followed by options of its own, such as `--hash=sha256:...`.
    word = re.split(r"\s--[a-z]", value, maxsplit=1)[0].strip()
    later = later_of(word, place)
    if later is not None:
        return replace(ask, later=(*ask.later, later))
    request = requested(word, place)
    if request is None:
        return replace(ask, unread=(*ask.unread, f"{place}: {without_logins(word[:80])}"))
    if is_constraints:
        return replace(ask, constraints=(*ask.constraints, request))
    return with_request(ask, request)


def with_request(ask: Ask, request: Requested) -> Ask:
    """What is asked for with one more requirement. What torch's wheels bring themselves is left
    out, because it belongs to the CUDA of the machine on which the file was made."""
    if comes_with_torch(request.name):
        return replace(ask, left_out=(*ask.left_out, request.text.partition(";")[0].strip()))
    return replace(ask, requests=(*ask.requests, request))


def later_of(word: str, place: str, variant: str | None = None) -> Later | None:
    """A line that installs from an address or a folder; None for a requirement from an index."""
    text, _, marker = word.partition(" ;")
    # `name @ https://...` names the package, too (PEP 508).
    named = re.match(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*@\s*(\S.*)", text)
    address = (named[2] if named else text).strip()
    wheel = wheel_named(address)
    if wheel is None and not named and not ADDRESS.fullmatch(address.split("[")[0]):
        return None
    name = named[1] if named else None
    if wheel is None and name is None:
        found = re.search(
            r"(?:#|&)egg=([\w.-]+)|/([\w.-]+?)(?:\.git)?(?:@[^/]*)?(?:#.*)?$", address
        )
        name = (found[1] or found[2]) if found else None
    return Later(
        text=text.strip(),
        place=place,
        name=wheel.name if wheel else name,
        marker=marker.strip(),
        torch=wheel.torch if wheel else None,
        backend=wheel.backend if wheel else None,
        variant=variant,
    )


def with_find_links(ask: Ask, url: str, place: str) -> Ask:
    """What is asked for with a page of wheels. The pages of extensions name their CUDA:
    `https://data.pyg.org/whl/torch-2.4.0+cu121.html`, `.../mmcv/dist/cu118/torch2.1/index.html`."""
    found = re.search(r"[+/](cu\d{3}|cpu)(?![a-z\d])", url)
    index = NamedIndex(url=url, place=place, backend=found[1] if found else None)
    return replace(ask, indexes=(*ask.indexes, index))
