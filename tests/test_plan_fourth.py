"""The fourth set of published runs, and the formulas that it led to."""

from __future__ import annotations

import csv
import importlib.util
import json
import statistics
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpusetup import cli
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.memory.activations import mlp_bytes, score_bytes
from gpusetup.plan.memory.constants import shipped_constants
from gpusetup.plan.memory.parts import gaps, parts
from gpusetup.plan.memory.states import cast_bytes, live_bytes
from gpusetup.plan.model.named import model_named, with_masked_head
from gpusetup.plan.model.workload import Recipe, Workload

ROOT = Path(__file__).resolve().parent.parent
C = shipped_constants()
VANILLA = Recipe()
LLAMA = model_named("llama-3.1-8b")


def the_script() -> ModuleType:
    path = ROOT / "scripts" / "fit_published.py"
    spec = importlib.util.spec_from_file_location("fit_published", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = the_script()


def a_job(**how: object) -> Workload:
    usual = {"shape": LLAMA, "context": 1024, "batch": 1, "strategy": "single", "dtype": "fp32",
             "amp": None, "loss": "eager", "checkpointing": False}  # fmt: skip
    return Workload(**{**usual, **how})  # type: ignore[arg-type]


def test_the_fourth_set_is_of_other_runs_from_many_places() -> None:
    rows = SCRIPT.blind_rows("fourth")
    projects = Counter(row["source"].split()[0] for row in rows)
    assert len(rows) >= 80 and len(projects) >= 12
    assert max(projects.values()) <= len(rows) / 4
    assert all(row["url"].startswith("https://") for row in rows)
    measures = Counter(row["measure"] for row in rows if row["gib"])
    assert min(measures["allocated"], measures["reserved"]) >= 15
    assert sum(not row["gib"] for row in rows if row["card"]) >= 20
    earlier = [SCRIPT.figures(), SCRIPT.later(), *map(SCRIPT.blind, ("all", "second", "third"))]
    known = [f.workload for some in earlier for f in some]
    assert not [f for f in SCRIPT.blind("fourth") if f.workload in known]


def test_the_fourth_set_is_met_as_the_page_says() -> None:
    asked, complete = SCRIPT.coverage(SCRIPT.FOURTH)
    assert asked == len(SCRIPT.blind_rows("fourth")) and asked / complete >= 0.85
    rows = SCRIPT.blind("fourth")
    found = SCRIPT.errors(rows, C)
    assert statistics.median(map(abs, found)) <= 0.06
    assert abs(statistics.median(found)) <= 0.04
    for measure, most in (("allocated", 0.08), ("reserved", 0.1)):
        some = SCRIPT.errors([f for f in rows if f.measure == measure], C)
        assert statistics.median(map(abs, some)) <= most
    runs = SCRIPT.outcomes("fourth", C)
    assert sum(run.fits == run.said for run in runs) / len(runs) >= 0.96
    failed = [run for run in runs if not run.fits]
    assert sum(run.said for run in failed) <= len(failed) / 20


def test_the_four_sets_together_are_met_as_the_page_says() -> None:
    sets = ("all", "second", "third", "fourth")
    rows = [figure for name in sets for figure in SCRIPT.blind(name)]
    found = SCRIPT.errors(rows, C)
    assert len(rows) >= 220
    assert statistics.median(map(abs, found)) <= 0.06
    assert abs(statistics.median(found)) <= 0.03
    runs = [run for name in sets for run in SCRIPT.outcomes(name, C)]
    assert sum(run.fits == run.said for run in runs) / len(runs) >= 0.95


def test_casts_of_autocast_go_with_the_backward_pass() -> None:
    w = a_job(amp="bf16")
    assert cast_bytes(w) == pytest.approx(2 * (LLAMA.parameters - LLAMA.vocabulary * LLAMA.hidden))
    assert cast_bytes(a_job()) == cast_bytes(replace(w, checkpointing=True)) == 0
    # With one token nothing is kept: the optimizer's step is the peak, and has no copies.
    short = replace(w, context=1)
    plain = replace(short, amp=None)
    assert parts(short, VANILLA, C).allocated <= 1.01 * parts(plain, VANILLA, C).allocated


def test_zero_3_keeps_a_billion_parameters_gathered() -> None:
    w = a_job(strategy="zero3", gpus=8, amp="bf16", batch=8)
    assert live_bytes(w) == 2e9
    small = replace(w, shape=model_named("qwen2.5-0.5b"))
    assert live_bytes(small) == 2 * small.shape.parameters
    assert live_bytes(replace(w, strategy="fsdp")) == 0
    assert live_bytes(replace(w, gpus=1, batch=1)) == 0


def test_torch_compile_keeps_no_activation_of_a_gated_mlp() -> None:
    w = a_job(dtype="bf16")
    kept = mlp_bytes(w)
    assert mlp_bytes(replace(w, compile=True)) == kept * 3 / 4
    assert mlp_bytes(replace(w, fused_kernels=True)) == kept * 3 / 4
    ungated = replace(w, shape=model_named("gpt2"))
    assert mlp_bytes(replace(ungated, compile=True)) == mlp_bytes(ungated)


@pytest.mark.parametrize(
    ("how", "bytes_a_pair"),
    [({}, 8), ({"amp": "bf16"}, 6), ({"dtype": "bf16"}, 4)],
)
def test_a_softmax_of_ones_own_keeps_its_powers(how: dict[str, Any], bytes_a_pair: int) -> None:
    assert score_bytes(a_job(attention="written", **how)) == bytes_a_pair * LLAMA.heads


def test_scores_that_layers_keep_leave_gaps_like_anything_else() -> None:
    def left(**how: object) -> float:
        return gaps(a_job(**how), VANILLA, C, 1e12, 0.0) / 1e12

    assert left(attention="eager", checkpointing=True) == pytest.approx(C.gaps_eager)
    assert C.gaps < left(attention="eager") < C.gaps_eager
    assert left() == left(checkpointing=True) == pytest.approx(C.gaps)


def test_fsdp2_leaves_the_gaps_of_one_gpu_and_fsdp1_more() -> None:
    def left(strategy: str) -> float:
        w = a_job(strategy=strategy, gpus=4, batch=4, checkpointing=True)
        return gaps(w, VANILLA, C, 1e9, 0.0) / 1e9

    assert left("fsdp") == pytest.approx(C.gaps)
    assert left("fsdp1") == left("zero3") == pytest.approx(C.gaps_sharded)


def test_a_model_that_is_loaded_whole_must_fit_whole() -> None:
    w = a_job(strategy="zero3", gpus=64, batch=64, context=16, amp="bf16", checkpointing=True)
    whole = parts(replace(w, load_whole=True), VANILLA, C)
    assert whole.allocated == 2 * LLAMA.parameters > parts(w, VANILLA, C).allocated
    long = replace(w, context=65536, load_whole=True)
    assert parts(long, VANILLA, C) == parts(replace(long, load_whole=False), VANILLA, C)


def test_an_encoder_with_its_masked_head_has_logits_of_every_token() -> None:
    bare = model_named("bert")
    headed = with_masked_head(bare)
    assert headed.parameters == pytest.approx(109_514_298, rel=0.01)
    more = (
        parts(a_job(shape=headed), VANILLA, C).logits - parts(a_job(shape=bare), VANILLA, C).logits
    )
    assert more == pytest.approx(16 * 1024 * 30522, rel=0.02)
    with pytest.raises(UsageError, match="no masked-language head"):
        with_masked_head(LLAMA)


def test_cuda_takes_half_a_gib_on_one_gpu_beside_what_torch_counts() -> None:
    """What a process has in use, less allocated and cached, by torch's own messages."""
    with (ROOT / "tests" / "plan_runtime.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    left: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        rest = float(row["in_use"]) - float(row["allocated"]) - float(row["cached"])
        left[int(row["gpus"]) == 1].append(rest)
    assert min(map(len, left.values())) >= 10
    assert statistics.median(left[True]) == pytest.approx(C.context_bytes / GIB, abs=0.1)
    assert statistics.median(left[False]) > statistics.median(left[True])


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("--model bert --context 512 --batch 8 --gpu-mem 24GiB", "--mlm"),
        ("--model gpt2 --context 1024 --batch 4 --gpu-mem 80GiB --attention", "eager written"),
        ("--params 11B --context 64 --batch 64 --gpus 64 --gpu-mem 24GiB --strategy zero3",
         "--load-whole"),
    ],
)  # fmt: skip
def test_the_conditions_can_be_said(
    words: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, _, more = flag.rpartition(" ")
    sizes = []
    for last in (plain, more):
        cli.main(["plan", *words.split(), *last.split(), "--json"])
        sizes.append(json.loads(capsys.readouterr().out)["memory_gib"]["allocated"])
    assert sizes[0] < sizes[1]
