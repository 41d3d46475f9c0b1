#!/usr/bin/env python3
"""Turns a pasted text into a labelled case: what was read of it, what was not, where a row belongs.

    python scripts/new_report.py thread.txt --cause driver-too-old --source owner/repo#12
    python scripts/new_report.py - --cause ok --also unknown --out cases    from standard input

Write the cause down first: the script shows gpusetup's answer only beside a label. The case is a
folder, `text.txt` (redacted) and `case.json`; an id that is no cause is refused, nothing is
overwritten.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from gpusetup.catalog.file import load_catalog  # noqa: E402
from gpusetup.commands.reports import read_text  # noqa: E402
from gpusetup.diagnosis.diagnose import Diagnosis, diagnose  # noqa: E402
from gpusetup.diagnosis.knowledge import record  # noqa: E402
from gpusetup.errors import GpuSetupError  # noqa: E402
from gpusetup.redaction import redact_document  # noqa: E402
from gpusetup.render.language import plain  # noqa: E402
from gpusetup.render.reading import reading_text  # noqa: E402
from gpusetup.report.cleaning.decode import decode  # noqa: E402
from gpusetup.report.read import read_report  # noqa: E402
from gpusetup.report.reading import Reading, reading_of  # noqa: E402

SAMPLES = ROOT / "tests" / "messages"
"""Real lines of programs, in files with the names of those of `gpusetup/messages/`."""
MESSAGES = ROOT / "gpusetup" / "messages"
FINDINGS = ROOT / "gpusetup" / "findings"
BESIDE = "beside.py"
"""The file of programs beside torch that no other file is about."""
COMPLAINS = re.compile(
    r"error|fail|cannot|could not|unable|\bnot\b|missing|invalid|refused|denied|warn|crash|abort"
    r"|killed|exception|unsupported|mismatch|corrupt|segmentation|core dumped|timed? ?out|\bhang",
    re.I,
)


class Sample(NamedTuple):
    """A line of a program that a row reads, and the file of that row."""

    file: str
    line: str
    words: frozenset[str]


def words_of(line: str) -> frozenset[str]:
    """Its words, and the names that they are joined to, `ggml_cuda_init` or `nvidia-smi`."""
    low = line.lower()
    joined = re.findall(r"[a-z][a-z]+(?:[_-][a-z]+)+", low)
    return frozenset((*re.findall(r"[a-z]{3,}", low), *joined))


@cache
def samples() -> tuple[Sample, ...]:
    return tuple(
        Sample(file=f"{path.stem}.py", line=line, words=words_of(line.partition(" | ")[2]))
        for path in sorted(SAMPLES.glob("*.txt"))
        if (MESSAGES / f"{path.stem}.py").is_file()
        for line in path.read_text(encoding="utf-8").splitlines()
        if " | " in line and not line.startswith("- |")
    )


@cache
def weights() -> dict[str, float]:
    """How much a word tells: one that few samples have, more."""
    seen = Counter(word for sample in samples() for word in sample.words)
    return {word: math.log(len(samples()) / count) for word, count in seen.items()}


def nearest(line: str) -> Sample | None:
    """The known line most like it, of the file that most of the three nearest are in; None where no
    line shares two words with it."""
    words = words_of(line)
    near = [sample for sample in samples() if len(words & sample.words) > 1]
    ranked = sorted(near, key=lambda sample: -_alike(words, sample.words))[:3]
    by: Counter[str] = Counter()
    for sample in ranked:
        by[sample.file] += round(100 * _alike(words, sample.words))
    return next((one for one in ranked if one.file == by.most_common(1)[0][0]), None)


def _alike(words: frozenset[str], known: frozenset[str]) -> float:
    shared = sum(weights()[word] ** 2 for word in words & known)
    return shared / math.pow(sum(weights()[word] for word in known), 0.3)


def where_a_row_belongs(line: str) -> str:
    """
    >>> where_a_row_belongs("docker: Error response from daemon: a new kind of refusal")
    'container.py'
    """
    near = nearest(line)
    return near.file if near else BESIDE


SPOKEN = "spoken.py"
"""The file of what people say in their own words."""
OWN_WORDS = re.compile(r"\b(?:I|I'm|my|me|we|our|you|it's|does not work|doesn't work|anyone)\b")
OF_PROGRAMS = re.compile(r"\w(?:Error|Exception)\b|[a-z]\(|\w::\w|^\W*(?:ERROR|WARN|E\d{4})")


def is_somebodys(line: str) -> bool:
    """Whether a line is a sentence of somebody, and nothing that a program printed.

    >>> is_somebodys("my GPU is not used"), is_somebodys("RuntimeError: my_op failed")
    (True, False)
    """
    return OWN_WORDS.search(line) is not None and not OF_PROGRAMS.search(line)


def where_found(id: str) -> str:
    """The file whose rule finds a cause.

    >>> where_found("driver-missing")
    'gpusetup/findings/driver/presence.py'
    """
    named = (path for path in sorted(FINDINGS.rglob("*.py")) if f'id="{id}"' in path.read_text())
    return next((str(path.relative_to(ROOT)) for path in named), "no finding")


def unread_complaints(reading: Reading) -> list[tuple[int, str]]:
    """The lines that complain of something and that nothing was read of but that."""
    lines = ((number, reading.lines[number - 1]) for number in reading.untold)
    return [
        (number, line)
        for number, line in lines
        if COMPLAINS.search(line) and len(words_of(line)) > 2
    ]


def case_of(text: str, options: argparse.Namespace, diagnosis: Diagnosis) -> dict[str, object]:
    """The label and today's answer; the text itself stands in a file of its own."""
    return {
        "id": options.id,
        "source": options.source,
        "expected": {"cause": options.cause, "also_acceptable": options.also},
        "answered": {
            "cause": diagnosis.cause,
            "certainty": diagnosis.certainty,
            "program": diagnosis.program,
            "stage": diagnosis.stage,
        },
        "characters": len(text),
    }


def shown(reading: Reading, diagnosis: Diagnosis, options: argparse.Namespace) -> str:
    right = diagnosis.cause in (options.cause, *options.also)
    parts = [
        str(reading_text(reading)),
        f"labelled {options.cause}, answered {diagnosis.cause}: {'right' if right else 'WRONG'}",
        *(
            f"    {id} is found by {where_found(id)}"
            for id in dict.fromkeys((options.cause, diagnosis.cause))
            if id not in ("ok", "unknown")
        ),
    ]
    unread = unread_complaints(reading)[:20]
    for number, line in unread:
        parts += asked_for(number, line)
    if not (right or unread):
        parts.append(
            "Every line that complains was read: a rule decides otherwise (the files above), or "
            "the text does not say it, and its label is `unknown`"
        )
    return "\n".join(parts)


def asked_for(number: int, line: str) -> list[str]:
    """A line without a row, where one belongs, and the known line that is nearest to it."""
    said = f"    {plain(line[:160])}"
    if is_somebodys(line):
        place = f"gpusetup/messages/{SPOKEN}"
        why = f"a row for it belongs into {place}, and only where others say it like that, too"
        return [f"line {number} is somebody's own sentence; {why}:", said]
    near = nearest(line)
    place = f"gpusetup/messages/{where_a_row_belongs(line)}"
    known = [f"    the nearest line known there: {plain(near.line[:120])}"] if near else []
    why = f"complains and was not read; a row for it belongs into {place}"
    return [f"line {number} {why}:", said, *known]


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", help="the pasted text; `-` is standard input")
    parser.add_argument("--cause", required=True, help="the cause, as you read the text")
    parser.add_argument("--also", action="append", default=[], help="another that is right too")
    parser.add_argument("--source", default="", help="the thread: owner/repo#number")
    parser.add_argument("--id", help="the case's name; the file's by default")
    parser.add_argument("--out", type=Path, default=Path("cases"), help="where the case goes")
    options = parser.parse_args(arguments)
    name = options.id or ("report" if options.file == "-" else Path(options.file).stem)
    options.id = re.sub(r"[^\w-]+", "-", name).strip("-") or "report"
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    try:
        for id in (options.cause, *options.also):
            record(id)
        raw = decode(read_text(options.file))
        text = redact_document({"text": raw})["text"]
        folder = options.out / options.id
        folder.mkdir(parents=True)
    except (GpuSetupError, FileExistsError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    diagnosis = diagnose(read_report(raw), load_catalog())
    kept = diagnose(read_report(text), load_catalog()).cause
    (folder / "text.txt").write_text(text, encoding="utf-8")
    case = json.dumps(case_of(text, options, diagnosis), indent=1)
    (folder / "case.json").write_text(case + "\n", encoding="utf-8")
    print(shown(reading_of(raw), diagnosis, options))
    if kept != diagnosis.cause:
        print(f"as it is kept, without its names, the text is answered {kept}")
    print(f"written: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
