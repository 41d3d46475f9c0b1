"""Branches that only a GPU runs, by stand-ins: a test a row of `scripts/acceptance/claims.py`."""

from __future__ import annotations

import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_verify_program import SEEN, Answers

from gpusetup.verify import worker
from gpusetup.verify.checks import convolution, memory, programs
from gpusetup.verify.device import identity, lock
from gpusetup.verify.judging.precision import read_conv_precision, read_precision
from gpusetup.verify.options import read_options
from gpusetup.verify.program import Run, Together
from gpusetup.verify.ranks.launch import Rank
from gpusetup.verify.values import CRASHED, FAILED, PASSED, SKIPPED, Outcome

GIB = 2**30


def card(free: int, total: int = 80 * GIB, reserved: int = 0) -> Any:
    """torch.cuda of a card with so much memory."""
    return types.SimpleNamespace(
        mem_get_info=lambda _: (free, total),
        memory_reserved=lambda _: reserved,
        empty_cache=lambda: None,
        get_device_properties=lambda _: types.SimpleNamespace(name="NVIDIA A100-SXM4-80GB"),
    )


def test_row_2_a_second_verify_on_one_gpu_knows_of_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    one, two = "GPU-1", "GPU-2"
    with lock.alone_on(one) as first, lock.alone_on(one) as second, lock.alone_on(two) as other:
        assert (first, second, other) == (True, False, True)
    with lock.alone_on("GPU-1") as again:
        assert again


def test_row_2_memory_that_others_work_in_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "attributes", lambda _: {})
    monkeypatch.setattr(torch, "cuda", card(free=40 * GIB))
    wanted, why = memory.amount("cuda:0")
    assert wanted == 4 * GIB
    assert "others work on this GPU" in why
    monkeypatch.setattr(torch, "cuda", card(free=40 * GIB, reserved=40 * GIB))
    assert memory.amount("cuda:0")[0] == 36 * GIB


@pytest.mark.parametrize(("local", "asked"), [(0, True), (3, False)])
def test_row_4_one_rank_of_a_node_copies_between_its_gpus(local: int, asked: bool) -> None:
    rank = Rank(local, 8, local, "127.0.0.1", 29500, "node", "job")
    link: Any = types.SimpleNamespace(come_to=lambda _: ["late"], doing=lambda _: None)
    answers = Answers(SEEN)
    Run(read_options(["--level", "standard"]), answers, Together(rank, link)).all()
    assert any(each.startswith("peers@") for each in answers.asked) is asked


def test_row_7_the_driver_itself_is_asked_for_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory, "driver_refuses", lambda *_: True)
    monkeypatch.setattr(torch, "cuda", card(free=GIB, total=80 * GIB))

    def overdrawn(device: str, count: int) -> Outcome:
        asked.append(count)
        return Outcome(PASSED, device)

    monkeypatch.setattr(memory, "_overdrawn", overdrawn)
    assert memory.out_of_memory("cuda:0").status == PASSED
    assert asked == [80 * GIB]


@pytest.mark.parametrize(
    ("gpu", "status", "words"),
    [("121a", FAILED, "TRITON_PTXAS_PATH"), ("110", FAILED, "newer Triton"), ("61", SKIPPED, "")],
)
def test_row_11_a_gpu_that_is_too_new_is_not_too_old(gpu: str, status: str, words: str) -> None:
    said = f"ptxas fatal: Value 'sm_{gpu}' is not defined for option 'gpu-name'"
    found = programs.uncompiled(RuntimeError(said))
    assert found.status == status
    assert words in (found.hint or "")


@pytest.mark.parametrize("judge", [programs.uncompiled, programs.unloaded, worker.raised])
def test_row_13_a_sticky_error_ends_the_process_whoever_caught_it(
    judge: Callable[[Exception], Outcome],
) -> None:
    for said in (
        "CUDA error: an illegal memory access was encountered",
        "Triton Error [CUDA]: an illegal memory access was encountered",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "CUDA error: unspecified launch failure",
    ):
        found = judge(RuntimeError(said))
        assert (found.status, found.spent) == (FAILED, True)
    assert not judge(RuntimeError("shapes do not fit")).spent


def test_row_18_without_a_temporary_folder_what_needs_one_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "has_scratch", lambda: False)
    for name in ("compile", "dataloader", "language-model", "determinism"):
        found = worker.served({"name": name, "device": "cpu"}, False)["outcome"]
        assert found["status"] == SKIPPED, name
        assert "TMPDIR" in found["hint"]


def test_row_20_a_device_that_hangs_twice_is_left_alone_and_the_other_is_not() -> None:
    silent = {"status": CRASHED, "detail": "no answer in 300 s; the process was ended"}
    names = ("float64@cuda:0", "float32@cuda:0")
    answers = Answers({**SEEN, **dict.fromkeys(names, silent)})
    run = Run(read_options(["--level", "standard"]), answers)
    run.all()
    later = [r for r in run.results if r.device == "cuda:0" and r.name == "softmax"]
    assert [r.outcome.status for r in later] == [SKIPPED]
    assert "the device hangs" in later[0].outcome.detail
    assert "softmax@cuda:1" in answers.asked
    assert "softmax@cuda:0" not in answers.asked


def test_row_24_each_way_to_convolve_has_its_own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn = types.SimpleNamespace(is_available=lambda: True, allow_tf32=True, enabled=True)
    monkeypatch.setattr(torch.backends, "cudnn", cudnn)
    ways = {name: (read, switch) for name, read, switch in convolution.library_ways("cuda:0")}
    assert set(ways) == {"with cuDNN", "with cuDNN, TF32 off", "without cuDNN"}
    assert ways["without cuDNN"][0] is read_precision
    assert ways["with cuDNN"][0] is read_conv_precision
    with ways["with cuDNN, TF32 off"][1]():
        assert not cudnn.allow_tf32
    assert cudnn.allow_tf32


def test_row_36_both_versions_of_cgroups_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit, used = tmp_path / "memory.limit_in_bytes", tmp_path / "memory.usage_in_bytes"
    limit.write_text(f"{8 * GIB}\n")
    used.write_text(f"{3 * GIB}\n")
    monkeypatch.setattr(memory, "CPU_BYTES", 2**60)
    missing = (str(tmp_path / "memory.max"), str(tmp_path / "memory.current"))
    monkeypatch.setattr(memory, "CGROUPS", (missing, (str(limit), str(used))))
    assert memory.available_bytes() <= 5 * GIB


def test_row_37_the_driver_names_an_instance_before_torch_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = types.SimpleNamespace(name="NVIDIA A100 MIG 1g.5gb", uuid="whole")
    cuda = types.SimpleNamespace(get_device_properties=lambda _: row)
    monkeypatch.setattr(identity, "asked_of_driver", lambda _: "instance")
    stand_in: Any = types.SimpleNamespace(cuda=cuda)
    assert identity.gpu_uuid(stand_in, "cuda:0") == "MIG-instance"
    monkeypatch.setattr(identity, "asked_of_driver", lambda _: "")
    assert identity.gpu_uuid(stand_in, "cuda:0") == "MIG-whole"
