"""What programs say: every message reaches its cause, and no text makes a pattern slow."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from each_row import each
from judging import spoken_of

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.table import CAUSES
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.report.read import read_report

LIMIT_CPU_SECONDS = 150
"""The kernel ends the child past it; time that other processes take does not count."""


@cache
def read(text: str) -> DoctorAnswer:
    return diagnose(read_report(text), load_catalog())


BY_ANOTHER_CAUSE = {
    "no-wheel-for-platform": "wrong-index",
    "python-no-wheel": "wrong-index",
    "extension-not-built": "module-shadowed",
    "no-kernel-image": "extension-arch-mismatch",
    "jit-arch-rejected": "cuda-toolkit-mismatch-extension-build",
    "triton-missing-windows": "triton-missing",
}
"""Causes one of whose examples, alone, shows another cause of the same failure."""


EXAMPLES = [(one.id, row.example) for one in CAUSES for row in one.rows if row.example]


@each("cause, text", EXAMPLES)
def test_a_message_alone_shows_its_cause_and_is_quoted(cause: str, text: str) -> None:
    answer = read(text)
    if spoken_of(answer) == BY_ANOTHER_CAUSE.get(cause):
        return
    assert cause in (spoken_of(answer), answer.symptom)
    if answer.cause == "unknown":
        return
    root = next(f for f in answer.findings if f.root or f.id == answer.cause)
    assert any(evidence.text for evidence in root.evidence)
    assert root.fix is not None and root.fix.text
    assert "None" not in root.title and "  " not in root.title


def test_a_row_hears_a_value_behind_many_that_repeat_another() -> None:
    lines = [f"NVRM: Xid (PCI:0000:{bus:02x}:00): 45, pid=1, Ch 00000001" for bus in range(8)]
    text = "\n".join((*lines, "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."))
    numbers = {e.values["number"] for e in read_report(text).events if e.kind == "xid"}
    assert numbers == {"45", "79"}


def test_a_message_is_found_however_it_is_wrapped() -> None:
    text = "Found no\nNVIDIA driver\n  on your\n\nsystem."
    assert [event.kind for event in read_report(text).events] == ["no-nvidia-driver"]


def test_an_event_says_where_it_was_read() -> None:
    event = read_report("first\nsecond\nAttributeError: _ARRAY_API not found\n").events[0]
    assert (event.source, event.text) == ("report, line 3", "AttributeError: _ARRAY_API not found")


ADVERSARIAL = """
import sys
sys.path[:0] = {paths!r}
if sys.platform != "win32":
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, ({limit}, {limit}))
from gpusetup.causes.table import ROWS
from gpusetup.report.read import read_report

LONG = 10_000
for one in sorted({{letters for row in ROWS for letters in row.letters}}){share}:
    for filler in (" ", "a(", "/.0 torch "):
        read_report((one + filler * 3) * (LONG // (len(one) + 3)))
for text in (
    "|" * LONG, "+-" * LONG, "[" * LONG, "\\x1b[" * LONG, "<" * LONG, "&lt;" * LONG, "> " * LONG,
    "GPU 0: " * LONG, "a@b:" * LONG, "/" * LONG, "C:\\\\" * LONG, "0." * LONG, "[pip3] " * LONG,
    "PyTorch version: " * LONG, "torch==" * LONG, "python3." * LONG, "\\u00c3" * LONG, ": " * LONG,
    "File \\"" * LONG, "x-1 | " * LONG, "2026-11-20T" * LONG, " " * (20 * LONG), "\\t" * LONG,
    "CUDA_VISIBLE_DEVICES=" * LONG, "version " * LONG, "tensor(1.000" * LONG,
):
    read_report(text)
    read_report("\\n".join(text[n : n + 79] for n in range(0, len(text), 79)))
print("done")
"""


@pytest.mark.parametrize("share", [pytest.param("", marks=pytest.mark.slow), "[::54]"])
def test_no_text_makes_a_pattern_slow(share: str) -> None:
    root = Path(__file__).resolve().parents[2]
    script = ADVERSARIAL.format(paths=[str(root)], limit=LIMIT_CPU_SECONDS, share=share)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "done\n", (done.returncode, done.stderr[-2000:])
