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
import re
import sys
from pathlib import Path

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

BELONGS: tuple[tuple[str, str], ...] = (
    ("container.py", r"docker|podman|containerd|nvidia-container|\bcdi\b|kubelet|daemon"),
    ("kernel.py", r"nvrm|\bxid\b|nvidia-modeset|kernel:"),
    ("parallel.py", r"nccl|/dev/shm|dataloader|rendezvous|gloo|\brank\b"),
    ("makers.py", r"\bhip|rocm|rocblas|\bxpu\b|level zero|sycl|\bmps\b|metal"),
    ("results.py", r"dcgm|gpu_burn|gpu-burn|faulty|bandwidthtest|devicequery"),
    ("installing.py", r"\bpip\b|\buv\b|conda|pixi|poetry|wheel|requirement|resolv|index"),
    ("builds.py", r"nvcc|ninja|cmake|setup\.py|compil|\bgcc\b|\bcl\.exe|triton"),
    ("imports.py", r"import|module|attribute"),
    ("libraries.py", r"\.so\b|\.dll|symbol|glibc|librar"),
    ("driver.py", r"nvml|nvidia-smi|driver"),
    ("cuda.py", r"cuda|torch"),
)
"""The file of `gpusetup/messages/` -> what its lines are about; the first that fits."""
COMPLAINS = re.compile(
    r"error|fail|cannot|could not|unable|not |missing|invalid|refused|denied|warn", re.I
)


def where_a_row_belongs(line: str) -> str:
    """
    >>> where_a_row_belongs("nvidia-container-cli: a new kind of error")
    'container.py'
    """
    low = line.lower()
    return next((name for name, words in BELONGS if re.search(words, low)), "beside.py")


def unread_complaints(reading: Reading) -> list[tuple[int, str]]:
    """The lines that complain of something and that nothing was read of."""
    lines = ((number, reading.lines[number - 1]) for number in reading.unread)
    return [(number, line) for number, line in lines if COMPLAINS.search(line)]


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
        reading_text(reading),
        f"labelled {options.cause}, answered {diagnosis.cause}: {'right' if right else 'WRONG'}",
    ]
    for number, line in unread_complaints(reading)[:20]:
        place = where_a_row_belongs(line)
        parts.append(f"line {number} was not read; a row belongs into gpusetup/messages/{place}:")
        parts.append(f"    {plain(line[:160])}")
    return "\n".join(parts)


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
        text = redact_document({"text": decode(read_text(options.file))})["text"]
        folder = options.out / options.id
        folder.mkdir(parents=True)
    except (GpuSetupError, FileExistsError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    diagnosis = diagnose(read_report(text), load_catalog())
    (folder / "text.txt").write_text(text, encoding="utf-8")
    case = json.dumps(case_of(text, options, diagnosis), indent=1)
    (folder / "case.json").write_text(case + "\n", encoding="utf-8")
    print(shown(reading_of(text), diagnosis, options))
    print(f"written: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
