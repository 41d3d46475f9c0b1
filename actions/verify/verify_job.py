"""The verify action: runs the folder `gpusetup/verify` in an environment or an image, and sums up.

Only the standard library: nothing is installed, neither on the runner nor in the target.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

VERIFY = Path(__file__).resolve().parent.parent.parent / "gpusetup" / "verify"
THERE = "/opt/gpusetup-verify"
OUT = "/gpusetup-out"
LONGEST = 200


def words(environ: Mapping[str, str], junit: str) -> tuple[str, ...]:
    """The options of verify. Every input is one word, whatever stands in it."""
    found = ["--format", "github", f"--junit={junit}"]
    for name in ("level", "device"):
        if value := environ.get(f"VERIFY_{name.upper()}", "").strip():
            found.append(f"--{name}={value}")
    for name in ("expect", "with"):
        lines = environ.get(f"VERIFY_{name.upper()}", "").splitlines()
        found += [f"--{name}={line.strip()}" for line in lines if line.strip()]
    strict = environ.get("VERIFY_STRICT", "").strip().lower() or "false"
    if strict not in ("true", "false"):
        raise ValueError(f"`strict` is true or false, and {strict[:LONGEST]!r} is neither")
    if strict == "true":
        found.append("--strict")
    return tuple(found)


def command(environ: Mapping[str, str], junit: Path) -> tuple[str, ...]:
    """What is run: verify by the environment's Python, or in the image.

    `junit` is the report's file; in an image it is written through a folder of its own.
    """
    python = environ.get("VERIFY_PYTHON", "").strip() or "python"
    image = environ.get("VERIFY_IMAGE", "").strip()
    if not image:
        return (python, str(VERIFY), *words(environ, str(junit)))
    if image.startswith("-"):
        raise ValueError("the image's name begins with a dash")
    gpus = environ.get("VERIFY_GPUS", "").strip()
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


def rows(report: Path) -> Iterator[Row]:
    """The checks of a JUnit report."""
    for case in ElementTree.parse(report).iter("testcase"):
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


def started(argv: tuple[str, ...]) -> tuple[int, str]:
    """Run it, its words passed on: the exit code, and the last error that it named."""
    last = ""
    streams = {"stderr": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"}
    with subprocess.Popen(argv, **streams) as process:  # type: ignore[call-overload]
        for line in process.stderr:
            sys.stderr.write(line)
            if ERROR.match(line):
                last = line
    return process.returncode, last


ERROR = re.compile(r"error: |docker: |[\w./-]+: (?:can't|error|cannot)|exec: ")


def in_a_line(text: str) -> str:
    """A text in an annotation, which holds one line.

    >>> in_a_line("error: 5 %\\n")
    'error: 5 %25'
    """
    return " ".join(text.split())[:LONGEST].replace("%", "%25")


def main(environ: Mapping[str, str] = os.environ) -> int:
    junit = Path(environ.get("VERIFY_JUNIT", "").strip() or "gpusetup-verify.xml").resolve()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "verify.xml"
        try:
            code, said = started(command(environ, report))
        except ValueError as problem:
            print(f"::error::gpusetup verify: {in_a_line(str(problem))}")
            return 2
        except OSError as problem:
            print(f"::error::gpusetup verify does not start: {problem.strerror}")
            return 3
        if not report.is_file() and code != 0:
            print(f"::error::gpusetup verify: {in_a_line(said) or WITHOUT.format(code)}")
        if report.is_file():
            junit.parent.mkdir(parents=True, exist_ok=True)
            junit.write_bytes(report.read_bytes())
            append(environ.get("GITHUB_STEP_SUMMARY"), table(list(rows(report)), code))
            append(environ.get("GITHUB_OUTPUT"), f"junit={junit}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
