"""The standard level: each mutant is seen by its check, clean runs pass, odd machines are named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator, element, shaped
from verify_faults.mutants import MUTANTS, Mutant
from verify_faults.runs import bad, checks, run, run_all
from verifying import ROOT, started

from gpusetup.verify.answer.render import as_text
from gpusetup.verify.checks import memory, moving, networks, products, programs
from gpusetup.verify.checks.rows_standard import STANDARD
from gpusetup.verify.checks.table import LEVELS, every, function_of, named
from gpusetup.verify.child import Child
from gpusetup.verify.judging import tolerance
from gpusetup.verify.options import read_options
from gpusetup.verify.program import verify
from gpusetup.verify.values import Asked, ask_for

SLOW = {"compile", "speed", "copy-within", "whole-products"}
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
    assert bad(run_all(mutant, [mutant.catcher])), f"{mutant.catcher} passed"


@pytest.mark.parametrize("seed", [0, 987_654_321])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(4)
def test_a_clean_run_passes_with_other_numbers(seed: int) -> None:
    names = [name for name in checks() if name not in SLOW and not name.startswith("census")]
    assert bad(run_all(names=names, seed=seed)) == {}


def test_each_mutant_is_named_for_a_check() -> None:
    assert {mutant.catcher for mutant in MUTANTS} <= set(checks())


def test_every_row_says_what_it_proves_what_a_failure_means_and_the_next_step() -> None:
    for check in every():
        assert check.proves and check.means and check.then, check.name
        assert callable(function_of(check))


def test_every_standard_check_stands_on_the_gpu_and_on_the_cpu_where_it_has_one() -> None:
    gpu_only = {check.name for check in STANDARD if "cpu" not in check.on}
    assert all("cuda" in check.on for check in STANDARD)
    assert gpu_only == {"copy-in", "copy-out", "pinned", "streams", "graph", "speed-half"}


def test_a_failure_says_how_many_elements_which_first_and_what_it_should_be() -> None:
    with Operator("mm", element(1e-3, place=9), shaped(2048, 7)):
        found = products.float32("cpu")
    assert found.status == "failed"
    assert found.detail.startswith("tall: 1 of 14336 elements are wrong, first at [1, 2]: ")
    assert found.value is not None and found.limit == 1.0 and found.value > 1


@pytest.mark.slow
def test_a_stuck_bit_is_named_with_its_address() -> None:
    with next(m for m in MUTANTS if m.name == "one bit of the memory is stuck").make():
        found = memory.memory("cpu")
    assert found.status == "failed"
    assert "at 0x" in found.detail and " bit 17 turned (wrote 0x" in found.detail


@pytest.mark.parametrize(
    ("name", "found", "share"),
    [
        ("NVIDIA GeForce RTX 4090", {memory.TIMEOUT: 1}, "display"),
        ("NVIDIA H100 80GB HBM3", {memory.TIMEOUT: 0}, "alone"),
        ("Orin", {memory.INTEGRATED: 1}, "unified"),
        ("NVIDIA GH200 480GB", {}, "unified"),
        ("NVIDIA something", {memory.HOST_TABLES: 1, memory.TIMEOUT: 1}, "unified"),
        ("NVIDIA A100-SXM4-80GB", {}, "alone"),
    ],
)
def test_with_whom_a_gpu_shares_its_memory(name: str, found: dict[int, int], share: str) -> None:
    assert memory.sharing(name, found) == share


def test_memory_that_cannot_be_had_is_a_failure_and_not_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 64.00 MiB")

    monkeypatch.setattr(torch, "empty", full)
    assert memory.memory("cpu").detail == "not one block of memory could be had"


@pytest.mark.slow
def test_without_a_compiler_compile_is_skipped_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    environment = {"PATH": str(tmp_path), "CXX": ""}
    script = (
        "from gpusetup.verify.checks.programs import compiled\n"
        "found = compiled('cpu')\nprint(found.status, found.detail, found.hint, sep=' | ')"
    )
    done = started(command=(sys.executable, "-c", script), cwd=ROOT, environment=environment)
    assert done.stdout.startswith("skipped | no C compiler | `apt install g++`"), done.stderr


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
def test_why_compiling_cannot_be_tried(said: str, status: str, words: str) -> None:
    found = programs._uncompiled(RuntimeError(said))
    assert (found.status, words in found.detail) == (status, True)


@pytest.mark.parametrize("looked_at", ["shape", "number"])
def test_a_compiler_that_forgets_to_look_at_one_thing_is_seen(
    looked_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps a kernel for each shape or for each number, and follows only that one."""

    def compiler(step: Any) -> Any:
        kept: dict[Any, Any] = {}

        def run(x: torch.Tensor, other: torch.Tensor) -> Any:
            seen = x.shape if looked_at == "shape" else step.factor
            shape, factor = kept.setdefault(seen, (x.shape, step.factor))
            now, step.factor = step.factor, factor
            found = step(x, other)
            step.factor = now
            return found if x.shape == shape else torch.zeros_like(found)

        return run

    monkeypatch.setattr(torch, "compile", compiler)
    assert any(part.worst > 1 for part in programs._recompiled(torch, "cpu"))


def test_a_small_dev_shm_is_named() -> None:
    said = "DataLoader worker (pid 12) is killed by signal: Bus error. insufficient shared memory"
    found = programs._unloaded(RuntimeError(said))
    assert "--shm-size" in (found.hint or "")


def test_an_attention_backend_that_is_not_offered_is_left_out() -> None:
    found = networks.attention("cpu")
    assert found.status == "passed"
    assert "by math, flash," in found.detail
    assert networks._by_backend(torch, "cpu", "CUDNN_ATTENTION") == []


def test_half_precision_sums_are_allowed_only_as_the_settings_say() -> None:
    class Settings:
        allow_fp16_reduced_precision_reduction = True
        allow_bf16_reduced_precision_reduction = (False, False)
        allow_fp16_accumulation = False

    class Torch:
        class backends:
            class cuda:
                matmul = Settings

    assert products.reduced(Torch, "cuda:0", "float16") == products.SPLIT
    assert products.reduced(Torch, "cuda:0", "bfloat16") == ""
    Settings.allow_fp16_accumulation = True
    assert products.reduced(Torch, "cuda:0", "float16") == products.WHOLLY


def test_the_limit_of_half_precision_leaves_room_for_partial_sums_and_not_for_more() -> None:
    """Sixteen partial sums along K, each rounded to float16, as split products keep them."""
    left, right = (
        tolerance.numbers(torch, *shape, salt=1).half() for shape in ((64, 4096), (4096, 64))
    )
    parts = left.float().view(64, 16, 256).transpose(0, 1) @ right.float().view(16, 256, 64)
    total = torch.zeros(64, 64).half()
    for each in parts:
        total = total + each.half()
    exact, allowed = products.bound(left, right, "float16", products.SPLIT)
    strict, tight = products.bound(left, right, "float16", "")
    assert 0.1 < tolerance.agree("split", total, exact, allowed).worst < 0.5
    assert tolerance.agree("split", total, strict, tight).worst > 1


def test_what_cannot_be_compared_is_wrong() -> None:
    three, four = torch.zeros(3), torch.zeros(4)
    assert tolerance.agree("x", three, four, 1.0).first == "shape [3], not [4]"
    assert tolerance.same("x", three, three.double()).worst == float("inf")
    nan = torch.tensor([1.0, float("nan")])
    assert tolerance.agree("x", nan, torch.ones(2), 1.0).wrong == 1
    assert tolerance.judged([tolerance.agree("x", nan, torch.ones(2), 1.0)], "").value is None


def test_a_rate_is_the_best_round_and_its_spread_how_much_the_middle_is_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = iter([4.0, 2.0, 2.0, 2.5, 2.5, 3.0, 9.0])
    monkeypatch.setattr(moving, "_timed", lambda *_: next(rounds))
    measured = moving.measured(torch, "cpu", lambda: None, 10.0)
    assert measured == pytest.approx((5.0, 0.2))


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    ask_for(Asked(seed=1))
    first, again = tolerance.numbers(torch, 9), tolerance.numbers(torch, 9)
    other = tolerance.numbers(torch, 9, salt=1)
    ask_for(Asked(seed=2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, tolerance.numbers(torch, 9))


def test_settings_of_torch_are_as_before_after_every_check() -> None:
    def settings() -> tuple[Any, ...]:
        return (
            torch.get_float32_matmul_precision(),
            torch._C._get_mkldnn_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
        )

    before = settings()
    for name in ("float32-modes", "convolution", "determinism", "attention"):
        assert run(name, None).status == "passed"
    assert settings() == before


def test_a_check_with_variables_of_its_own_has_them_before_torch_starts() -> None:
    assert dict(named("determinism").environment) == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


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
    report = verify(options, Child(False, options.asked))
    assert {each.name: each.outcome.status for each in report.results} == {
        "import": "passed",
        "properties": "passed",
        "fft": "crashed",
        "linear-algebra": "passed",
        "determinism": "passed",
    }
    screen = as_text(report)
    assert "verdict: failed (fft on cpu crashed)" in screen
    assert "fft on cpu: audio, imaging and physics models would be wrong" in screen
