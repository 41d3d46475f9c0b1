"""What a text gets that shows no known failure: what was read, and whether it fits together."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from each_row import each

from gpusetup.cli import main


def asked(text: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    """The exit code, the document and the screen of `doctor --report FILE`."""
    file = folder / "post.txt"
    file.write_text(text, encoding="utf-8")
    shown = []
    code = 0
    for options in (["--json"], []):
        out = io.StringIO()
        with redirect_stdout(out):
            code = main(["doctor", "--report", str(file), *options])
        shown.append(out.getvalue())
    return code, json.loads(shown[0]), shown[1]


@each(
    "text, code, cause, said",
    [
        ("RTX 4070 Ti SUPER, driver 576.80, Windows 11", 0, "ok", "CUDA 12.9 and older"),
        ("RTX 3090, driver 550.54.14\ntorch 2.5.1+cu124", 0, "ok", "has kernels for RTX 3090"),
        (
            "RTX 5090, driver 570.86\ntorch 2.5.1+cu124",
            1,
            "arch-too-new-for-wheel",
            "no kernels",
        ),
        ("RTX 3090, driver 470.57.02\ntorch 2.8.0+cu128", 1, "driver-too-old", "470.57.02"),
        ("RTX 3090\ntorch 2.5.1+cpu\nIt does not use the GPU", 1, "torch-cpu-build", "+cpu"),
        ("my RTX 3090 does not work with this program", 1, "unknown", "no error message"),
        (
            "Traceback (most recent call last):\n  File 'a.py', line 3",
            1,
            "unknown",
            "still unknown",
        ),
    ],
)
def test_facts_decide_and_a_failure_never_fits(
    text: str, code: int, cause: str, said: str, tmp_path: Path
) -> None:
    exit_code, answer, screen = asked(text, tmp_path)
    assert (exit_code, answer["cause"]) == (code, cause)
    assert said in " ".join(screen.split())
    assert ("fits together" in screen) <= (code == 0)


def test_a_fact_has_its_line_and_a_likely_cause_its_check(tmp_path: Path) -> None:
    _, answer, _ = asked("a title\nRTX 3090, driver 550.54.14\ntorch 2.5.1+cu124", tmp_path)
    facts = {fact["name"]: fact for fact in answer["facts"]}
    assert facts["driver"]["value"].startswith("550.54.14, runs builds for CUDA")
    assert facts["torch"]["source"] == "report, line 3"
    assert answer["fit"] and all(fit["fits"] for fit in answer["fit"])
    _, answer, screen = asked("AssertionError: Torch not compiled with CUDA enabled", tmp_path)
    assert (answer["cause"], answer["certainty"]) == ("torch-cpu-build", "likely")
    check = answer["check"]["command"] if answer["check"] else answer["next_reading"]
    assert screen.index(check) < screen.index("What to do")
