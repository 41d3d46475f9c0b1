"""Configs in the shape of real trainers on four machines: no rule is broken in any of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
import compare_configs

SHAPES = Path(__file__).resolve().parent / "tune_shapes"
FILES = sorted(path for path in SHAPES.iterdir() if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=[one.name for one in FILES])
@pytest.mark.one_in(12)
def test_no_rule_is_broken(path: Path) -> None:
    for machine, facts in compare_configs.MACHINES.items():
        _, broken = compare_configs.broken(path, facts)
        assert not broken, machine


def test_the_rules_see_what_they_are_for() -> None:
    """The same rules find what is wrong where it is."""
    before = {"batch_size": "8", "accumulation_steps": "2", "val.batch_size": "4", "bf16": "true"}
    bad = {"batch_size": "8", "optimizer_in_bwd": "true", "gradient_accumulation_steps": "2"}
    assert list(compare_configs._refused({"bf16": "true"}, {"bf16": "true", "fp16": "true"}))
    assert list(compare_configs._refused({}, bad))
    assert list(compare_configs._beside(before, before | {"val.batch_size": "2"}))
    assert list(compare_configs._unmeasured({"compile": "no"}, {"compile": "true"}))
    assert list(compare_configs._unmeasured({}, {"dataloader_persistent_workers": "true"}))
    after = before | {"batch_size": "4", "eval_iters": "3"}
    before = before | {"eval_iters": "3"}
    facts = compare_configs.MACHINES["T4 16 GB"]
    found = list(compare_configs._batch(SHAPES / "lstm.yaml", facts, before, after, b"a: 1\n"))
    assert len(found) == 2 and "effective batch" in found[0] and "carried along" in found[1]


def words_for(name: str, machine: str) -> tuple[str, ...]:
    return compare_configs.broken(SHAPES / name, compare_configs.MACHINES[machine])[0].words


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nanogpt_finetune.py", "compile stays off: torch.compile makes some models faster"),
        ("espnet_numel.yaml", "batch_type (line 1) is numel"),
        ("fairseq_tokens.yaml", "dataset.max_tokens (line 17) rules"),
        ("nemo_gpt.yaml", "trainer.precision (line 6) asks for bf16"),
    ],
)
def test_what_is_left_is_said(name: str, said: str) -> None:
    assert any(said in word for word in words_for(name, "T4 16 GB"))


def test_marks_of_small_models_are_not_said_of_a_wide_one() -> None:
    assert not any("the mark" in word for word in words_for("nemo_gpt.yaml", "T4 16 GB"))


def test_there_are_configs_of_at_least_25_kinds_and_plan_raised_some() -> None:
    assert len(FILES) >= 25
    facts = compare_configs.MACHINES["A100 80 GB"]
    proposal, _ = compare_configs.broken(SHAPES / "hf_args.json", facts)
    assert any("clear on this card" in one.source for one in proposal.changes)
