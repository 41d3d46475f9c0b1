"""What the page asks, answered by the command line itself in the browser's Python.

Each question becomes the words that somebody would type (`gpusetup doctor --report FILE --json`),
so an answer is the command's own, byte for byte. `answer` takes and gives JSON text.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FRAGMENT = "1."
"""The form of a link's machine: raw deflate of the snapshot's JSON without nulls, in base64url."""
MOST_FRAGMENT = 1 << 20
MOST_BYTES = 8 << 20
"""A snapshot's most bytes, as `--from` has it: a fragment may come from anybody."""
OPTIONS = {
    "driver": "--driver",
    "os": "--os",
    "machine": "--machine",
    "python": "--python",
    "glibc": "--glibc",
    "torch": "--torch",
    "backend": "--backend",
}
"""A field of "describe a machine" -> resolve's option."""


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp())


def run(*words: str) -> dict[str, Any]:
    """One command: its exit code, its stdout and its stderr."""
    from gpusetup.cli import main

    out, talk = io.StringIO(newline=""), io.StringIO(newline="")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(talk):
        code = main(words)
    return {"exit": code, "out": out.getvalue(), "talk": talk.getvalue()}


def both(*words: str) -> dict[str, Any]:
    """The JSON document and the text of one command."""
    document, text = run(words[0], "--json", *words[1:]), run(*words)
    return {
        "exit": document["exit"],
        "json": document["out"],
        "text": text["out"],
        "command": words[0],
    }


# --- one machine: a report's, or a link's ---------------------------------------------------------

_machine: tuple[str, ...] = ()


def report(raw: bytes) -> dict[str, Any]:
    """Somebody's text, as `gpusetup doctor --report FILE` reads it."""
    file = folder() / "report.txt"
    file.write_bytes(raw)
    return _asked("--report", str(file))


def linked(fragment: str) -> dict[str, Any]:
    """The machine of a link, as `gpusetup doctor --from FILE` reads it."""
    raw, problem = unpacked(fragment)
    if problem:
        return refused(problem, COPY_AGAIN)
    from gpusetup.errors import BadInput
    from gpusetup.probe.snapshot_files import parse_snapshot

    try:
        parse_snapshot(raw, "The machine in this link")
    except BadInput as wrong:
        return refused(wrong.message, COPY_AGAIN)
    file = folder() / "linked.json"
    file.write_bytes(raw)
    return _asked("--from", str(file))


COPY_AGAIN = "Ask whoever sent the link to copy it again, or to send the report itself."


def refused(message: str, hint: str) -> dict[str, Any]:
    """A question that cannot be asked, as the command line says it."""
    from gpusetup.errors import BadInput
    from gpusetup.render.console import Console

    out = io.StringIO(newline="")
    problem = BadInput(message, hint=hint)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = Console(json=True).fail(problem)
    text = f"error: {message}\nhint: {hint}\n"
    return {"exit": code, "json": out.getvalue(), "text": text, "command": "doctor"}


def _asked(*machine: str) -> dict[str, Any]:
    global _machine
    _machine = machine
    return both("doctor", *machine)


def link() -> dict[str, Any]:
    """The fragment that carries the redacted machine."""
    from gpusetup.probe.snapshot_files import dump_snapshot, parse_snapshot
    from gpusetup.redaction import redact

    done = run("doctor", *_machine, "--json")
    snapshot = json.dumps(json.loads(done["out"])["snapshot"]).encode()
    shared = redact(parse_snapshot(snapshot, "The machine of this page"))
    return {**done, "out": packed(dump_snapshot(shared))}


def packed(snapshot: str) -> str:
    """
    >>> unpacked(packed('{"schema": "gpusetup.snapshot/1", "taken_at": null}'))
    (b'{"schema":"gpusetup.snapshot/1"}', '')
    """
    slim = json.dumps(_known(json.loads(snapshot)), separators=(",", ":"))
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    pressed = press.compress(slim.encode()) + press.flush()
    return FRAGMENT + base64.urlsafe_b64encode(pressed).rstrip(b"=").decode()


def _known(value: Any) -> Any:
    """The same without the fields that nobody answered."""
    if isinstance(value, dict):
        return {key: _known(inner) for key, inner in value.items() if inner is not None}
    return [_known(inner) for inner in value] if isinstance(value, list) else value


def unpacked(fragment: str) -> tuple[bytes, str]:
    """The snapshot of a fragment, or what is wrong with the link.

    >>> unpacked("2.abcd")[1], unpacked("1.")[1]
    ('This link was made by another version of this page', 'This link carries no machine')
    """
    form, dot, body = fragment.partition(".")
    if not dot or f"{form}." != FRAGMENT:
        known = dot and form.isascii() and form.isdigit()
        other = "was made by another version of this page"
        return b"", f"This link {other if known else 'is none of this page'}"
    if not body:
        return b"", "This link carries no machine"
    if len(fragment) > MOST_FRAGMENT:
        return b"", f"This link is too long: more than {MOST_FRAGMENT >> 20} MiB"
    return _inflated(body)


DAMAGED = "This link is damaged: a part of it is missing or was changed"


def _inflated(body: str) -> tuple[bytes, str]:
    press = zlib.decompressobj(wbits=-15)
    try:
        pressed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        raw = press.decompress(pressed, MOST_BYTES + 1)
    except (ValueError, zlib.error):
        return b"", DAMAGED
    if len(raw) > MOST_BYTES:
        return b"", f"The machine in this link is larger than {MOST_BYTES >> 20} MiB"
    return (raw, "") if press.eof and raw else (b"", DAMAGED)


# --- a described machine, and what is known -------------------------------------------------------


def resolve(fields: Mapping[str, str]) -> dict[str, Any]:
    """The build for a machine that is described, as `resolve --offline` chooses it.

    What the fields leave out is unknown: nothing is taken from the machine that shows the page.
    """
    words = resolve_words(fields, str(_nothing_known()))
    answer = both(*words)
    commands = json.loads(answer["json"]).get("commands", {})
    return {**answer, "ways": [*typed(commands, fields.get("os", ""))]}


def typed(commands: Mapping[str, Any], system: str) -> Iterator[dict[str, str]]:
    """The steps of each installer as lines for the machine's shell."""
    from gpusetup.model.shell import shell_line

    for title, steps in commands.items():
        lines = (shell_line(argv, system or None) for argv in steps)
        if text := "".join(f"{line}\n" for line in lines):
            yield {"title": title, "text": text}


def resolve_words(fields: Mapping[str, str], base: str) -> tuple[str, ...]:
    """
    >>> resolve_words({"gpu": "A100 80GB, T4", "os": "linux", "packages": "vllm"}, "x.json")[2:]
    ('x.json', '--gpu', 'A100 80GB', '--gpu', 'T4', '--os', 'linux', '--offline', '--', 'vllm')
    """
    given = {name: text.strip() for name, text in fields.items() if text.strip()}
    gpus = [name.strip() for name in given.get("gpu", "").replace("\n", ",").split(",")]
    words = ["resolve", "--from", base]
    words += [word for name in filter(None, gpus) for word in ("--gpu", name)]
    words += [w for name, option in OPTIONS.items() if name in given for w in (option, given[name])]
    packages = given.get("packages", "").replace(",", " ").split()
    return (*words, *(("--offline", "--", *packages) if packages else ()))


def _nothing_known() -> Path:
    file = folder() / "nothing.json"
    file.write_text('{"schema":"gpusetup.snapshot/1"}', encoding="utf-8")
    return file


def finding(id: str) -> dict[str, Any]:
    return both("doctor", "--explain", id)


def start() -> dict[str, Any]:
    """What the page's lists hold: GPUs, Pythons, packages, findings; and how old the catalog is."""
    from gpusetup import __version__
    from gpusetup.catalog.companion_table import companion_table
    from gpusetup.catalog.file import load_catalog
    from gpusetup.diagnosis.explanations import known_finding, records
    from gpusetup.model.codec import to_plain

    catalog = load_catalog()
    pythons = {python for build in catalog.builds for python in build.pythons}
    return {
        "version": __version__,
        "catalog_as_of": catalog.as_of,
        "gpus": list(dict.fromkeys(row.name for row in catalog.gpus)),
        "pythons": sorted(pythons, key=lambda text: [int(n) for n in text.rstrip("t").split(".")]),
        "packages": [project.name for project in companion_table().projects],
        "findings": [to_plain(known_finding(row)) for row in records()],
    }


def warm() -> dict[str, Any]:
    """Loads what the first answer needs, while nobody waits for it."""
    file = folder() / "empty.txt"
    file.write_bytes(b"")
    return both("doctor", "--report", str(file))


QUESTIONS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "warm": warm,
    "linked": linked,
    "resolve": resolve,
    "finding": finding,
    "link": link,
    "start": start,
}


def answer(question: str, raw: bytes | memoryview = b"") -> str:
    """`question`: a JSON list, a name of `QUESTIONS` and its arguments; or `report` with `raw`."""
    name, *arguments = json.loads(question)
    done = report(bytes(raw)) if name == "report" else QUESTIONS[name](*arguments)
    return json.dumps(done)
