"""Guide 003, a GPU that works 20 % of the time: what a reader of it must get, in its order."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpusetup import cli
from gpusetup.errors import BadInput, Blocked
from gpusetup.model.units import GIB
from gpusetup.tune import BatchSizeOptimizer, auto_optimize_config, bench

LIGHT = """\
# lightweight config
batch_size: 16        # small
base_channels: 32
num_workers: 0
lr: 0.0002
max_steps: 1000
use_mixed_precision: false
pin_memory: false
"""
Tune = Callable[..., dict[str, Any]]
GPU = {"status": "ok", "device": "cuda", "name": "NVIDIA L4", "counts": True, "half": "bf16"}


def ask_on_paper(self: Any, mode: str, batch: int = 1, **changes: Any) -> dict[str, Any]:
    """A GPU with room for 400 samples that is as fast with any batch."""
    if mode == "devices":
        return {**GPU, "limit_bytes": 24 * GIB}
    if batch > 400:
        return {"status": "error", "detail": "OutOfMemoryError: CUDA out of memory"}
    peak = GIB + batch * 22 * GIB // 400
    return {"status": "ok", "peak_bytes": peak, "samples_per_second": 100.0, "spread_percent": 1.0}


@pytest.fixture
def tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tune:
    """`gpusetup tune light.yaml --batch-size` with more words: its document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench.Bench, "ask", ask_on_paper)
    (tmp_path / "light.yaml").write_text(LIGHT)

    def run(*words: str) -> dict[str, Any]:
        code = cli.main(
            [
                "tune",
                "light.yaml",
                "--batch-size",
                "--code",
                "a:b",
                "-o",
                "new.yaml",
                "--json",
                *words,
            ]
        )
        assert code == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


def test_a_larger_batch_is_tried_up_to_max_and_only_named(tune: Tune) -> None:
    """003-6: the search goes above the config's 16; the effective batch stays."""
    document = tune("--max", "64")
    assert document["batch_size"] == 64
    assert 64 in [trial["batch"] for trial in document["trials"] if trial["status"] == "ok"]
    assert "batch_size: 16        # small" in Path("new.yaml").read_text()
    words = next(word for word in document["recommendations"] if "64 ran here" in word)
    assert "4 times as large is another experiment" in words and "`--grow-batch`" in words


def test_without_max_memory_is_the_limit(tune: Tune) -> None:
    """003-6: what the card holds, whatever the config says."""
    assert 380 <= tune()["batch_size"] <= 400


def test_grow_batch_writes_the_larger_batch_with_a_word_on_the_learning_rate(tune: Tune) -> None:
    """003-6: another experiment, so it is written only if it is asked for."""
    document = tune("--max", "64", "--grow-batch")
    written = Path("new.yaml").read_text()
    assert "batch_size: 64        # small" in written and "lr: 0.0002" in written
    words = " ".join(document["recommendations"])
    assert "lr (line 5) is 0.0002" in words
    assert "0.0008 for SGD (linear scaling), 0.0004 for Adam (square root)" in words
    assert "max_steps (line 6)" in words


def test_grow_batch_first_takes_the_accumulation_away(tune: Tune) -> None:
    """003-6: 16 x 4 becomes 64 at once, which is the same experiment."""
    config = LIGHT.replace("max_steps: 1000", "gradient_accumulation_steps: 4")
    Path("light.yaml").write_text(config)
    document = tune("--max", "64", "--grow-batch")
    written = Path("new.yaml").read_text()
    assert "batch_size: 64" in written and "gradient_accumulation_steps: 1" in written
    assert not any("learning rate" in word for word in document["recommendations"])


@pytest.mark.parametrize(
    "words", [["light.yaml", "--grow-batch"], ["--batch-size", "--code", "a:b", "--grow-batch"]]
)
def test_grow_batch_needs_a_config_and_a_measurement(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """003-6: a larger batch is written only if it ran here."""
    assert cli.main(["tune", *words]) == 2
    assert "`--grow-batch` writes a batch that ran" in capsys.readouterr().err


def searched(config: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(bench.Bench, "ask", ask_on_paper)
    lines: list[str] = []
    finder = BatchSizeOptimizer(torch.nn.Linear(2, 2), {**config, "say": lines.append})
    sample_data = (torch.ones(4, 2), torch.ones(4, 2))
    return finder.find_optimal_batch_size(sample_data, target_gpu_util=85.0), lines


def test_the_optimizer_reads_a_training_config_and_names_what_it_ignores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """003-14: the guide's dict is the config of the training."""
    config = {
        "batch_size": 16,
        "use_mixed_precision": True,
        "base_channels": 32,
        "max_batch_size": 32,
    }
    (size, about), lines = searched(config, monkeypatch)
    sizes = [trial["batch"] for trial in about["trials"]]
    assert sizes[0] == 16 and size in sizes and max(sizes) <= 32
    assert about["samples_per_second"] == 100.0
    assert about["ignored"] == ["base_channels"]
    assert any("not used by the search: base_channels" in line for line in lines)


def test_a_wrong_return_value_is_said_without_internal_names() -> None:
    """003-14: the error names the keys, not a class of gpusetup's."""
    steps = pytest.importorskip("trace_step")
    with pytest.raises(steps.Contract) as problem:
        steps.job_of({"model": None, "batches": None})
    assert str(problem.value) == (
        "it returned a dict with 'batches'; gpusetup takes model, batch, loss, optimizer, dataset"
    )


UNGUARDED = """\
import torch
from gpusetup.tune import BatchSizeOptimizer
model = torch.nn.Linear(64, 10)
BatchSizeOptimizer(model, {}).find_optimal_batch_size((torch.randn(4, 64), torch.zeros(4).long()))
"""


def test_a_script_that_starts_itself_again_is_told_the_missing_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """003-14: the child runs the script once more, and stops where the search would start."""
    monkeypatch.setenv("GPUSETUP_PROBE", "1")
    with pytest.raises(BadInput) as problem:
        exec(compile(UNGUARDED, "script.py", "exec"), {"__name__": "__mp_main__"})
    assert 'if __name__ == "__main__":' in (problem.value.hint or "")


def test_auto_optimize_config_returns_what_changed_as_a_dict_and_as_attributes(
    tmp_path: Path,
) -> None:
    """003-15: the second file is written, the first stays."""
    source, target = tmp_path / "light.yaml", tmp_path / "new.yaml"
    source.write_text(LIGHT)
    result = auto_optimize_config(source, target, machine="rtx3050-laptop")
    assert source.read_text() == LIGHT and "use_mixed_precision: true" in target.read_text()
    keys = {change.key for change in result.changes}
    assert keys == {change["key"] for change in result["changes"]} >= {"num_workers"}
    assert result["written"] == result.written == str(target)
    assert result["use_mixed_precision"] is True and result["batch_size"] == 16
    assert "num_workers" in str(result) and set(dict(result)) >= {"schema", "changes", "diff"}
    assert result.get("no such key") is None and "no such key" not in result


def test_a_missing_file_or_folder_gets_a_hint(tmp_path: Path) -> None:
    """003-15: what there is instead, or how to make it."""
    (tmp_path / "light.yaml").write_text(LIGHT)
    with pytest.raises(BadInput) as missing:
        auto_optimize_config(tmp_path / "ligth.yaml", tmp_path / "new.yaml")
    assert missing.value.hint == f"did you mean {tmp_path / 'light.yaml'}?"
    with pytest.raises(BadInput) as nowhere:
        auto_optimize_config(tmp_path / "configs" / "light.yaml", tmp_path / "new.yaml")
    assert f"there is no folder {tmp_path / 'configs'}" in (nowhere.value.hint or "")
    with pytest.raises(Blocked) as unwritable:
        auto_optimize_config(
            tmp_path / "light.yaml", tmp_path / "out" / "new.yaml", machine="rtx3050-laptop"
        )
    assert f"mkdir {tmp_path / 'out'}" in (unwritable.value.hint or "")


def test_a_training_that_runs_out_of_memory_goes_on_with_smaller_parts() -> None:
    """003-17: 64 does not fit, 16 does."""
    torch = pytest.importorskip("torch")
    from gpusetup.tune import recover_from_oom

    model, sizes = torch.nn.Linear(4, 1), []

    def step(part: Any) -> Any:
        sizes.append(len(part))
        if len(part) > 16:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return model(part).square().mean()

    done = recover_from_oom(step, torch.randn(64, 4), model=model)
    assert sizes[:3] == [64, 32, 16] and sizes.count(16) >= 4
    assert done.micro_batch_size == 16 and model.weight.grad is not None
