"""The verify action: runs the folder `gpusetup/verify` in an environment or an image, and sums up.

Only the standard library: nothing is installed, neither on the runner nor in the target.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

VERIFY = Path(__file__).resolve().parent.parent.parent / "gpusetup" / "verify"
THERE = "/opt/gpusetup-verify"
OUT = "/gpusetup-out"
LONGEST = 200
MOST = 200
"""Rows of a report that are annotations; GitHub shows ten of a kind."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What no line has in it: GitHub reads its files by lines."""
NO_PROOF = 4
"""The exit code where a program that was run gave no answer."""


def given(environ: Mapping[str, str], name: str, usual: str = "") -> str:
    """An input that is one line. Raises ValueError for one that is more.

    >>> given({"VERIFY_LEVEL": " quick\\n"}, "level"), given({}, "python", "python")
    ('quick', 'python')
    """
    value = environ.get(f"VERIFY_{name.upper()}", "").strip()
    if CONTROL.search(value):
        raise ValueError(f"`{name}` is one line without control characters")
    return value or usual


def several(environ: Mapping[str, str], name: str) -> list[str]:
    """An input of which each line is one value."""
    lines = environ.get(f"VERIFY_{name.upper()}", "").splitlines()
    if any(CONTROL.search(line.strip()) for line in lines):
        raise ValueError(f"`{name}` has a control character in it")
    return [line.strip() for line in lines if line.strip()]


def words(environ: Mapping[str, str], junit: str) -> tuple[str, ...]:
    """The options of verify. Every input is one word, whatever stands in it."""
    found = [f"--junit={junit}"]
    for name in ("level", "device"):
        if value := given(environ, name):
            found.append(f"--{name}={value}")
    found += [f"--expect={line}" for line in several(environ, "expect")]
    strict = given(environ, "strict", "false").lower()
    if strict not in ("true", "false"):
        raise ValueError(f"`strict` is true or false, and {strict[:LONGEST]!r} is neither")
    if strict == "true":
        found.append("--strict")
    return tuple(found)


def command(environ: Mapping[str, str], junit: Path) -> tuple[str, ...]:
    """What is run: verify by the environment's Python, or in the image.

    `junit` is the report's file; in an image it is written through a folder of its own.
    """
    python, image = given(environ, "python", "python"), given(environ, "image")
    if not image:
        return (python, str(VERIFY), *words(environ, str(junit)))
    if image.startswith("-"):
        raise ValueError("the image's name begins with a dash")
    gpus = given(environ, "gpus")
    return (
        *("docker", "run", "--rm", *((f"--gpus={gpus}",) if gpus else ())),
        *(f"--volume={VERIFY}:{THERE}:ro", f"--volume={junit.parent}:{OUT}"),
        *(f"--entrypoint={python}", image, THERE, *words(environ, f"{OUT}/{junit.name}")),
    )


class Row(NamedTuple):
    """One check of the report."""

    name: str
    place: str
    status: str
    detail: str


ELEMENTS = {"failure": "failed", "error": "crashed", "skipped": "skipped"}


def checks(report: Path) -> list[Row]:
    """The checks of a JUnit report; none where there is no report. An image may have put a link
    there, to a file of the runner."""
    try:
        return [] if report.is_symlink() else list(rows(ElementTree.parse(report)))
    except (OSError, ElementTree.ParseError):
        return []


def rows(report: ElementTree.ElementTree[Any]) -> Iterator[Row]:
    for case in report.iter("testcase"):
        problem = next((one for one in case if one.tag in ELEMENTS), None)
        name, place = case.get("name") or "", case.get("classname") or ""
        if problem is None:
            yield Row(name, place, "passed", "")
        else:
            detail = problem.get("message") or problem.text or ""
            yield Row(name, place, ELEMENTS[problem.tag], detail)


MARKS = {"passed": "✅", "failed": "❌", "crashed": "❌", "skipped": "➖"}


def table(found: list[Row], code: int) -> str:
    """The job's summary, in Markdown."""
    verdict = "passed" if code == 0 else "failed"
    lines = [
        f"### gpusetup verify: {verdict}",
        "",
        "| check | on | status | detail |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join((*lines, *map(line_of, found))) + "\n"


def line_of(row: Row) -> str:
    status = f"{MARKS[row.status]} {row.status}"
    return f"| {cell(row.name)} | {cell(row.place)} | {status} | {cell(row.detail)} |"


def cell(text: str) -> str:
    """A text in a table's cell that Markdown and HTML show as it is.

    >>> cell("a | <b> `c`\\nd")
    'a &#124; &lt;b&gt; &#96;c&#96; d'
    """
    line = " ".join(text.split())[:LONGEST]
    for letter in "&<>|`*_[]\\@#~":
        line = line.replace(letter, f"\0{ord(letter)};")
    named = line.replace("\0", "&#")
    return named.replace("&#38;", "&amp;").replace("&#60;", "&lt;").replace("&#62;", "&gt;")


def append(path: str | None, text: str) -> None:
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


WITHOUT = "it ended with exit code {} and wrote no report; its own words stand above"
UNPROVEN = "`python` ended with exit code 0 and wrote no report: nothing is proven. Is it a Python?"


def started(argv: tuple[str, ...]) -> tuple[int, str]:
    """Run it, its words passed on as words only: the exit code, and the last error that it named.

    What is tested may print what a runner obeys. No line of it is a command as it is passed on, and
    meanwhile the runner obeys none, but for a word that nobody can guess.
    """
    last, token = "", secrets.token_hex(16)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    text = {"encoding": "utf-8", "errors": "replace"}
    with subprocess.Popen(argv, **streams, **text) as process:  # type: ignore[call-overload]
        say(f"::stop-commands::{token}")
        try:
            for line in process.stdout:
                say(harmless(line))
                if ERROR.match(line):
                    last = line
        finally:
            say(f"::{token}::")
    return process.returncode, last


def say(line: str) -> None:
    print(line.encode("utf-8", "replace").decode(), flush=True)


def harmless(line: str) -> str:
    """One line that a runner does not obey.

    >>> harmless(" ::error::x ##[y]"), harmless("50 %, torch::nms")
    (' : :error: :x ## [y]', '50 %, torch::nms')
    """
    shown = CONTROL.sub(" ", line.rstrip("\r\n").replace("\t", "    ")).replace("##[", "## [")
    return shown.replace("::", ": :") if re.match(r"\W*::", shown) else shown


ERROR = re.compile(r"error: |docker: |[\w./-]+: (?:can't|error|cannot)|exec: ")


def annotated(found: list[Row]) -> Iterator[str]:
    """A workflow command for each check that did not pass, in the words of the report.

    >>> list(annotated([Row("a,b", "cuda:0", "failed", "50 %\\nlost")]))
    ['::error title=verify%3A a%2Cb on cuda%3A0 failed::50 %25 lost']
    """
    for row in found[:MOST]:
        if row.status != "passed":
            kind = "notice" if row.status == "skipped" else "error"
            title = in_a_line(f"verify: {row.name} on {row.place} {row.status}")
            title = title.replace(":", "%3A").replace(",", "%2C")
            yield f"::{kind} title={title}::{in_a_line(row.detail)}"


def in_a_line(text: str) -> str:
    """A text in an annotation, which holds one line.

    >>> in_a_line("error: 5 %\\n")
    'error: 5 %25'
    """
    return CONTROL.sub(" ", " ".join(text.split()))[:LONGEST].replace("%", "%25")


def main(environ: Mapping[str, str] = os.environ) -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "verify.xml"
        try:
            junit = Path(given(environ, "junit", "gpusetup-verify.xml")).resolve()
            code, said = started(command(environ, report))
        except ValueError as problem:
            print(f"::error::gpusetup verify: {in_a_line(str(problem))}")
            return 2
        except OSError as problem:
            print(f"::error::gpusetup verify does not start: {problem.strerror}")
            return 3
        if not (found := checks(report)):
            return unproven(code, said)
        for line in annotated(found):
            say(line)
        try:
            kept(report, junit)
        except OSError as problem:
            print(f"::error::gpusetup verify: `junit` cannot be written: {problem.strerror}")
            return code or 3
    append(environ.get("GITHUB_STEP_SUMMARY"), table(found, code))
    append(environ.get("GITHUB_OUTPUT"), f"junit={junit}\n")
    return code


def unproven(code: int, said: str) -> int:
    """Without a report no exit code is a proof."""
    if code == 0:
        print(f"::error::gpusetup verify: {UNPROVEN}")
        return NO_PROOF
    print(f"::error::gpusetup verify: {in_a_line(said) or WITHOUT.format(code)}")
    return code


def kept(report: Path, junit: Path) -> None:
    junit.parent.mkdir(parents=True, exist_ok=True)
    junit.write_bytes(report.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
