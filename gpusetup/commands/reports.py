"""`doctor --report` and `--reports`: reading the texts, bounded in memory, and answering many."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TextIO

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.codec import to_json
from gpusetup.model.documents import DoctorAnswer, ErrorAnswer
from gpusetup.model.frozen import fields, replace
from gpusetup.model.machine import Event, Snapshot
from gpusetup.render.clock import CLOCK
from gpusetup.system.refused import refused

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.render.console import Console

MIB = 1 << 20
WHOLE = MIB
"""Bytes of a text that are read in full; of a longer one its beginning, end, and what matters."""
HEAD = MIB // 2
END = MIB // 4
"""Least of the end that is read: from there on to twice as much."""
KEPT = MIB // 4
"""How much of the middle of a long log is kept."""
BLOCK = MIB // 4
SAME_KEPT = 3
TELLING = (
    rb"(?i:error|fail|warn|cuda|nvrm|xid|nvidia|torch|gpu|nccl|dll|driver|python|glibc|killed"
    rb"|version)"
)
DIGITS = rb"[0-9]+"
STDIN = "-"


class Sifted(NamedTuple):
    """What is read of a text, and how long it is."""

    raw: bytes
    size: int

    @property
    def is_whole(self) -> bool:
        return len(self.raw) == self.size


def read_text(name: str | bytes) -> bytes:
    """The bytes of a report that are read: all of a short one, of a long one what tells most."""
    return read_sifted(name).raw


def read_sifted(name: str | bytes) -> Sifted:
    """A report: itself, a file, or `-` for standard input."""
    if isinstance(name, bytes):
        return sifted(io.BytesIO(name))
    if name == STDIN:
        return _sifted_alone(sys.stdin.buffer)
    try:
        with open(name, "rb") as stream:  # noqa: PTH123
            if named_file.is_endless(stream):
                raise BadInput(f"{name} is a device, and a text is meant")
            return _sifted_alone(stream)
    except OSError as problem:
        if named_file.is_folder(name):
            hint = "`--reports DIR` reads a folder of reports"
            raise BadInput(f"{name} is a folder", hint=hint) from problem
        raise BadInput(
            f"{name} cannot be read: {problem.strerror}", hint=_text_meant(name)
        ) from problem


def _sifted_alone(stream: BinaryIO) -> Sifted:
    """Where it is a terminal, somebody pastes, and nothing is drawn meanwhile."""
    with CLOCK.still() if stream.isatty() else nullcontext():
        return sifted(stream)


def _text_meant(name: str) -> str | None:
    """Where a text stands in a file's place.

    >>> _text_meant("nosuch.txt")
    """
    if re.search(r"\s", name) and not re.search(r"\.\w{2,4}$", name):
        return "a text is read from standard input: `gpusetup doctor --report -`, then paste it"
    return None


def sifted(stream: BinaryIO) -> Sifted:
    """All of a short text; of a long one the first part, the telling lines, and the last part."""
    from gpusetup.report.cleaning.decode import is_wide

    head = stream.read(WHOLE + 1)
    if len(head) <= WHOLE:
        return Sifted(head, len(head))
    counted = Counted(stream, len(head))
    if is_wide(head):
        while counted.read(BLOCK):
            pass
        return Sifted(head[:WHOLE], counted.size)
    cut = head.rfind(b"\n", 0, HEAD) + 1 or HEAD
    parts = (head[:cut], *_middle_and_end(counted, head[cut:]))
    return Sifted(b"".join(parts), counted.size)


class Counted:
    """A stream that knows how much was read of it."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self.stream, self.size = stream, size

    def read(self, most: int) -> bytes:
        block = self.stream.read(most)
        self.size += len(block)
        return block


def _middle_and_end(stream: Counted, rest: bytes) -> Iterator[bytes]:
    """The telling lines up to `KEPT` bytes, then the last part whole."""
    room = KEPT
    seen: dict[bytes, int] = {}
    while block := stream.read(BLOCK):
        rest += block
        if len(rest) < END + BLOCK:
            continue
        cut = rest.rfind(b"\n", 0, len(rest) - END) + 1 or len(rest) - END
        for line in telling(rest[:cut], seen) if room > 0 else ():
            room -= len(line) + 1
            if room < 0:
                break
            yield line + b"\n"
        rest = rest[cut:]
    yield rest


def telling(text: bytes, seen: dict[bytes, int]) -> list[bytes]:
    """The lines that may say something; what differs in numbers only is kept three times."""
    kept, tells = [], re.compile(TELLING)
    for line in text.split(b"\n"):
        if not tells.search(line, 0, 2000):
            continue
        shape = re.sub(DIGITS, b"", line[:200])
        seen[shape] = seen.get(shape, 0) + 1
        if seen[shape] <= SAME_KEPT:
            kept.append(line[:4000])
    if len(seen) > 50_000:
        seen.clear()
    return kept


def snapshot_of(name: str | bytes) -> Snapshot:
    """The machine that a report shows."""
    text = read_sifted(name)
    if text.is_whole:
        return _read(text.raw)
    snapshot = _read(text.raw)
    return replace(snapshot, events=(*snapshot.events, _cut(text)))


@lru_cache(maxsize=1)
def _read(raw: bytes) -> Snapshot:
    """The machine of a text; the page asks for one several times, as JSON, as text, as a reply."""
    from gpusetup.report.read import read_bytes

    snapshot = read_bytes(raw)
    if has_words(raw):
        return snapshot
    from gpusetup.causes.running import REPORT_EMPTY

    empty = Event(kind=REPORT_EMPTY.id, source="report")
    return replace(snapshot, events=(*snapshot.events, empty))


COLOURS = r"\x1b\[[0-9;?]*[A-Za-z]"


def has_words(raw: bytes) -> bool:
    """Whether a letter or a digit stands in a text, beside the codes of a terminal.

    >>> has_words(b"a"), has_words(b" > ```"), has_words(b"\\x1b[0m"), has_words(b"")
    (True, False, False, False)
    """
    from gpusetup.report.cleaning.decode import decode

    return any(
        re.search(r"[^\W_]", _without_colours(decode(part))) for part in (raw[:4096], raw) if part
    )


def _without_colours(text: str) -> str:
    return re.sub(COLOURS, "", text) if "\x1b" in text else text


def _cut(text: Sifted) -> Event:
    from gpusetup.causes.running import REPORT_CUT

    values = {"size": in_mib(text.size), "read": in_mib(len(text.raw))}
    return Event(kind=REPORT_CUT.id, values=values, source="report")


def in_mib(size: int) -> str:
    """
    >>> in_mib(10_000_000), in_mib((1 << 20) + 1)
    ('9.5 MiB', '1.0 MiB')
    """
    return f"{size / MIB:.1f} MiB"


# --- a folder -------------------------------------------------------------------------------------


class ReportAnswer(DoctorAnswer):
    """One line of `--reports`: doctor's document, and the file that it answers."""

    report: str


def answer_folder(folder: str, out: Console, catalog: Catalog) -> int:
    """One line for each file of a folder, by name; 1 where one is not healthy."""
    check_folder(folder)
    codes: set[int] = set()
    lines = lines_of(folder, catalog, codes, json=out.json or out.output is not None)
    if out.output:
        with opened(out.output) as stream:
            stream.writelines(f"{line}\n" for line in lines)
    else:
        for line in lines:
            (out.json_text if out.json else out.text)(f"{line}\n")
    return 1 if codes - {0} else 0


def opened(path: str) -> TextIO:
    try:
        return open(path, "w", encoding="utf-8")  # noqa: PTH123
    except OSError as problem:
        raise refused(problem, f"Cannot write {path}", "name another `--output`") from problem


def check_folder(folder: str) -> None:
    """Before anything is written. Raises BadInput."""
    try:
        os.scandir(folder).close()
    except NotADirectoryError as problem:
        raise BadInput(f"{folder} is no folder", hint="`--report FILE` reads one") from problem
    except OSError as problem:
        raise BadInput(f"{folder} cannot be read: {problem.strerror}") from problem


def files(folder: str) -> list[str]:
    """The names of the files in a folder, sorted; hidden ones and folders are left out."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_file())


def lines_of(folder: str, catalog: Catalog, codes: set[int], *, json: bool) -> Iterator[str]:
    """The answers in one line each; `codes` gathers their exit codes."""
    for name in files(folder):
        path = f"{folder}{os.sep}{name}"
        answer, code = answer_of(path, catalog)
        codes.add(code)
        yield to_json(answer) if json else f"{path}: {in_short(answer)}"


def answer_of(name: str, catalog: Catalog) -> tuple[ReportAnswer | ErrorAnswer, int]:
    """What is said about one file; one that cannot be read has an error of its own."""
    from gpusetup.commands.doctor_answer import document, exit_code
    from gpusetup.diagnosis.diagnose import diagnose

    try:
        diagnosis = diagnose(snapshot_of(name), catalog)
    except BadInput as problem:
        answer = ErrorAnswer(message=problem.message, hint=problem.hint, exit=problem.exit_code)
        return answer, problem.exit_code
    told = document(diagnosis, catalog)
    known = {part.name: getattr(told, part.name) for part in fields(told)}
    name_alone = os.path.basename(name)  # noqa: PTH119
    return ReportAnswer(**known, report=name_alone), exit_code(diagnosis, strict=False)


def in_short(answer: ReportAnswer | ErrorAnswer) -> str:
    return answer.message if isinstance(answer, ErrorAnswer) else answer.cause
