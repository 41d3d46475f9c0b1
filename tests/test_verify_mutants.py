"""Mutants in a file of somebody else's: read, applied, and told in one figure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from verify_faults import meets, outside
from verifying import ROOT

MODES = """
from torch.utils._python_dispatch import TorchDispatchMode

class Wrong(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found + 1 if func.overloadpacket.__name__ == "erf" else found

def erf_is_wrong():
    return Wrong()

def nothing_is_wrong():
    pass

def helper(x):
    return x
"""


def module_of(tmp_path: Path, text: str = MODES) -> Any:
    file = tmp_path / f"mutants_{abs(hash(text))}.py"
    file.write_text(text, encoding="utf-8")
    return outside.loaded(file)


def test_a_function_without_parameters_is_a_mutant(tmp_path: Path) -> None:
    assert set(outside.mutants(module_of(tmp_path))) == {"erf_is_wrong", "nothing_is_wrong"}
    listed = module_of(tmp_path, MODES + "MUTANTS = [('a', erf_is_wrong), nothing_is_wrong]\n")
    assert set(outside.mutants(listed)) == {"a", "nothing_is_wrong"}


def test_a_mode_holds_on_every_thread_and_ends(tmp_path: Path) -> None:
    import torch

    zero, seen = torch.zeros(1), []
    with outside.applied(module_of(tmp_path), "erf_is_wrong") as mode:
        assert mode
        thread = threading.Thread(target=lambda: seen.append(float(zero.erf())))
        thread.start()
        thread.join()
        seen.append(float(zero.erf()))
    assert seen == [1.0, 1.0]
    assert float(zero.erf()) == 0.0


def test_what_calls_a_replaced_operator_runs_first_and_the_rest_after_it() -> None:
    from gpusetup.verify.checks import census

    calls = meets.called(["sorting", "fft"])
    assert "sort" in calls["sorting"]
    assert "sort" not in calls["fft"]
    usual = [each.name for each in census.chosen("sorting")]
    calls[f"census-sorting/{usual[-1]}"] = ["sort"]
    with meets.sooner(["fft", "census-sorting", "sorting"], calls, {"sort"}) as checks:
        assert checks == ["census-sorting", "sorting", "fft"]
        assert [each.name for each in census.chosen("sorting")] == [usual[-1], *usual[:-1]]
    assert [each.name for each in census.chosen("sorting")] == usual


def test_the_operators_that_a_mutant_replaces_are_known() -> None:
    import torch

    with meets.replaced() as names:
        library = torch.library.Library("replaced_in_a_test", "DEF")
        library.define("turned_(Tensor x) -> Tensor")
        library.impl("turned_", torch.neg, "CPU")
    assert names == {"turned"}
    library._destroy()


def test_a_fork_that_dies_is_no_miss() -> None:
    def dies(tell: Any) -> None:
        tell({"check": "a", "status": "passed"})
        os.kill(os.getpid(), signal.SIGKILL)

    assert outside.answers(dies) == ([{"check": "a", "status": "passed"}], False)
    assert outside.answers(lambda tell: tell({"check": "a"})) == ([{"check": "a"}], True)


def test_the_figure_counts_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    def row(word: str, met: bool | None = None) -> dict[str, Any]:
        return outside.Judged(word, [], "", met, 1)._asdict()

    done = {"nothing": row("missed"), "a": row("caught"), "b": row("missed", False)}
    assert outside.concluded({**done, "c": row("error")}) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == ["missed: b met by no computation", "no answer: c", "caught 1 of 3"]
    assert outside.concluded({"nothing": row("caught")}) == 1


def test_what_only_hung_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def row(said: str) -> dict[str, Any]:
        return outside.Judged("caught", ["all_reduce"], said, None, 1)._asdict()

    late = "rank 1 hangs in all_reduce; rank 0: all_reduce/sum-33 ended by RuntimeError"
    value = f"{late}; rank 2: all_reduce/sum-33: 1 of 33 elements are wrong"
    outside.concluded({"nothing": row(""), "late": row(late), "value": row(value)})
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["caught by a hang alone: late", "caught 2 of 2"]


@pytest.mark.slow
def test_a_file_of_mutants_is_run_and_resumed(tmp_path: Path) -> None:
    file, results = tmp_path / "theirs.py", tmp_path / "results.json"
    file.write_text(MODES, encoding="utf-8")
    words = ("--from", str(file), "--results", str(results), "--only", "erf")
    command = [sys.executable, str(ROOT / "scripts/mutants_verify.py"), *words]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "caught 1 of 1"
    assert json.loads(results.read_text())["erf_is_wrong"]["word"] == "caught"
