"""The checks: each mutant is seen by its check, clean runs pass, odd machines are named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from verify_faults.mutants import MUTANTS, Mutant
from verify_faults.runs import bad, checks, run, run_all

from gpusetup.verify.answer.render import as_text
from gpusetup.verify.checks import attention, chance, memory, programs
from gpusetup.verify.checks.ration import SOURCES
from gpusetup.verify.checks.rows import STANDARD
from gpusetup.verify.checks.table import LEVELS, every, function_of, named
from gpusetup.verify.child import Child
from gpusetup.verify.judging import tolerance
from gpusetup.verify.options import read_options
from gpusetup.verify.program import Run
from gpusetup.verify.values import Asked, ask_for

SLOW = {"compile", "speed", "copy-within"}
"""Named by their mutants in the long form only: each takes many seconds."""


@pytest.fixture(autouse=True, scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    variables = ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
    before = {name: os.environ.get(name) for name in variables}
    os.environ[variables[0]] = str(tmp_path_factory.mktemp("compiled"))
    os.environ[variables[1]] = "1"
    yield
    ask_for(Asked())
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def quick_enough(mutant: Mutant) -> bool:
    return mutant.catcher not in SLOW


@pytest.mark.parametrize("mutant", [*filter(quick_enough, MUTANTS)], ids=lambda each: each.name)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(16)
def test_a_mutant_is_seen_by_the_check_that_is_named_for_it(mutant: Mutant) -> None:
    assert mutant.catcher in checks()
    assert bad(run_all(mutant, [mutant.catcher])), f"{mutant.catcher} passed"


@pytest.mark.parametrize("seed", [0, 987_654_321])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(4)
def test_a_clean_run_passes_with_other_numbers_and_leaves_settings_as_they_were(seed: int) -> None:
    def settings() -> tuple[Any, ...]:
        return (
            torch.get_float32_matmul_precision(),
            torch._C._get_mkldnn_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
        )

    before = settings()
    names = [name for name in checks() if name not in (*SLOW, *SOURCES)]
    assert bad(run_all(names=names, seed=seed)) == {}
    assert settings() == before


def test_every_row_says_what_it_proves_what_a_failure_means_and_the_next_step() -> None:
    for check in every():
        assert check.proves and check.means and check.then, check.name
        assert callable(function_of(check))
    gpu_only = {check.name for check in STANDARD if "cpu" not in check.on}
    assert all("cuda" in check.on for check in STANDARD)
    assert gpu_only == {"copy-in", "copy-out", "pinned", "streams", "graph", "speed-half"}
    assert dict(named("determinism").environment) == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        ("a tall product is off in one element", "2048 x 33 x 7: 1 of 2048 elements are wrong"),
        ("one bit of the memory is stuck", " bit 17 turned (wrote 0x"),
    ],
)
def test_a_failure_says_how_many_elements_which_first_and_what_it_should_be(
    mutant: str, words: str
) -> None:
    found = next(each for each in MUTANTS if each.name == mutant)
    assert words in run(found.catcher, found).detail


@pytest.mark.parametrize(
    ("found", "share"),
    [
        ({memory.TIMEOUT: 1}, "display"),
        ({memory.TIMEOUT: 0}, "alone"),
        ({memory.INTEGRATED: 1}, "unified"),
        ({memory.HOST_TABLES: 1, memory.TIMEOUT: 1}, "unified"),
    ],
)
def test_with_whom_a_gpu_shares_its_memory(
    monkeypatch: pytest.MonkeyPatch, found: dict[int, int], share: str
) -> None:
    monkeypatch.setattr(memory, "attributes", lambda _: found)
    assert memory.sharing("cuda:0") == share


def test_memory_that_cannot_be_had_is_a_failure_and_not_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 64.00 MiB")

    monkeypatch.setattr(torch, "empty", full)
    assert memory.memory("cpu").detail == "not one block of memory could be had"


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ("Cannot find a working triton installation", "skipped", "Triton is not installed"),
        ("Found Tesla P100 which is too old to be supported by the triton GPU", "skipped", "old"),
        ("fatal error: Python.h: No such file or directory", "skipped", "headers are missing"),
        ("Dynamo is not supported on Python 3.13+", "skipped", "under this Python"),
        ("raised: ModuleNotFoundError: No module named 'setuptools'", "skipped", "setuptools"),
        ("CppCompileError: C++ compile error", "failed", "C++ compile error"),
    ],
)
def test_why_compiling_cannot_be_tried(
    monkeypatch: pytest.MonkeyPatch, said: str, status: str, words: str
) -> None:
    def compiler(*_: Any, **__: Any) -> Any:
        raise RuntimeError(said)

    monkeypatch.setattr(torch, "compile", compiler)
    found = programs.compiled("cpu")
    assert (found.status, words in found.detail) == (status, True)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert programs.compiled("cpu").detail == "no C compiler"


def test_a_small_dev_shm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def loader(*_: Any, **__: Any) -> Any:
        raise RuntimeError("worker (pid 12) is killed by signal: Bus error. insufficient")

    monkeypatch.setattr(torch.utils.data, "DataLoader", loader)
    assert "--shm-size" in (programs.dataloader("cpu").hint or "")


def test_an_attention_backend_that_is_not_offered_is_left_out() -> None:
    assert "by math, flash," in attention.attention("cpu").detail


@pytest.mark.parametrize("kind", ["rand", "bernoulli"])
def test_a_part_of_a_draw_that_comes_again_is_seen_wherever_it_stands(kind: str) -> None:
    made = torch.Generator().manual_seed(5)
    first, second = (torch.rand(2**14, generator=made) for _ in "ab")
    if kind == "bernoulli":
        first, second = ((each < 0.3).float() for each in (first, second))
    assert [part.worst for part in chance.anew(kind, first, second)] == [0.0]
    within, between = first.clone(), second.clone()
    within[777:1033] = first[5:261]
    between[1001:1257] = first[4000:4256]
    for both in ((within, second), (first, between), (first, first)):
        (part,) = chance.anew(kind, *both)
        assert part.worst > 1


def test_what_cannot_be_compared_is_wrong() -> None:
    three, four = torch.zeros(3), torch.zeros(4)
    assert tolerance.agree("x", three, four, 1.0).first == "shape [3], not [4]"
    assert tolerance.same("x", three, three.double()).worst == float("inf")
    nan = torch.tensor([1.0, float("nan")])
    assert tolerance.agree("x", nan, torch.ones(2), 1.0).wrong == 1
    assert tolerance.judged([tolerance.agree("x", nan, torch.ones(2), 1.0)], "").value is None


@pytest.mark.slow
def test_a_crash_in_the_middle_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies in the first Fourier transform; the check after it gets a new one."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if '--worker' in sys.orig_argv:\n"
        "    import os, torch\n"
        "    torch.fft.rfft = lambda *_: os.abort()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = ("import", "properties", "fft", "linear-algebra", "determinism")
    monkeypatch.setitem(LEVELS, "standard", tuple(map(named, names)))
    options = read_options(["--level", "standard", "--device", "cpu", "--seed", "5"])
    whole = Run(options, Child(False, options.asked))
    try:
        whole.all()
    finally:
        whole.end()
    report = whole.report()
    states = {each.name: each.outcome.status for each in report.results}
    assert states == {**dict.fromkeys(names, "passed"), "fft": "crashed"}
    screen = as_text(report)
    assert "verdict: failed (fft on cpu crashed)" in screen
    assert "fft on cpu: audio, imaging and physics models would be wrong" in screen
