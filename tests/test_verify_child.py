"""What happens to a check of many questions whose process dies in one of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gpusetup.verify import child

CHECK = """
import os, signal, sys
sys.path.insert(0, {root!r})
from gpusetup.verify import worker
from gpusetup.verify.values import Check, Outcome, asked_after, working_on

def asks(device):
    if {deadly} is None:
        import resource
        return Outcome("passed", str(resource.getrlimit(resource.RLIMIT_DATA)[0]))
    after = asked_after()
    found = after.kept if after else []
    for place in range(int(after.at) + 1 if after else 0, 30):
        working_on(str(place), reference=place != {of_device}, kept=found)
        if place in {deadly}:
            os.kill(os.getpid(), signal.SIGSEGV)
        found.append(place)
    return Outcome("passed", "%d questions" % len(found))

worker.named = lambda name: Check(name, "", ())
worker.function_of = lambda check: asks
sys.exit(worker.main())
"""


@pytest.mark.parametrize(
    ("deadly", "of_device", "status", "said"),
    [
        ([], -1, "passed", "30 questions"),
        (
            [3, 4, 29],
            -1,
            "passed",
            "27 questions; torch itself could not answer 3 questions (the first: 3)",
        ),
        ([3, 7], 7, "crashed", "the process died of SIGSEGV at 7"),
        (list(range(25)), -1, "crashed", "the process died of SIGSEGV at 20"),
    ],
)
def test_a_check_goes_on_behind_what_torch_itself_dies_of(
    deadly: list[int],
    of_device: int,
    status: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "HERE", program(tmp_path, deadly, of_device))
    (outcome,) = answers("cpu")
    assert (outcome["status"], outcome["detail"]) == (status, said)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_only_on_a_cpu_memory_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "HERE", program(tmp_path, None, -1))
    before, limited, after = (int(each["detail"]) for each in answers("cuda:0", "cpu", "auto"))
    assert before == after
    assert 2**31 < limited < 2**50


def program(folder: Path, deadly: list[int] | None, of_device: int) -> str:
    root = str(Path(__file__).resolve().parent.parent)
    (folder / "run.py").write_text(CHECK.format(root=root, deadly=deadly, of_device=of_device))
    return str(folder / "run.py")


def answers(*devices: str) -> list[dict[str, Any]]:
    process = child.Child(False)
    try:
        return [process.ask("asks", device, 60.0)["outcome"] for device in devices]
    finally:
        process.end()
