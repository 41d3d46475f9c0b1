"""`plan --trainer NAME --format yaml`: the trainer's own configuration says the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from each_row import each

from gpusetup.cli import main
from gpusetup.plan.answer.trainer_config import WRITERS
from gpusetup.plan.model.trainers import rows

MODEL = ("--model", "qwen3-1.7b")
QUESTION = (*MODEL, "--context", "2048", "--batch", "8", "--checkpointing")
GPU = ("--gpu", "H100 80GB SXM")
MISSING = "# not in these settings, see to it yourself: "

SAID: tuple[tuple[str, str, str, str, object], ...] = (
    ("axolotl", "--gpus 1 --lora 8 --quantize nf4", "axolotl train", "adapter", "qlora"),
    ("hf", "--gpus 8 --strategy fsdp --amp fp16 --dtype fp32", "torchrun", "fp16", True),
    ("litgpt", "--gpus 8 --accumulate 4", "litgpt finetune_full", "train",
     {"micro_batch_size": 1, "global_batch_size": 32, "max_seq_length": 2048}),
    ("llama-factory", "--gpus 1 --trained-layers 4", "llamafactory-cli train",
     "freeze_trainable_layers", 4),
    ("megatron", "--gpus 8 --tp 2", "--tensor-model-parallel-size 2",
     "tensor_model_parallel_size", 2),
    ("torchtune", "--gpus 8 --accumulate 4", "--nproc_per_node 8 full_finetune_distributed",
     "gradient_accumulation_steps", 4),
    ("trl", "--gpus 2 --lora 8 --dora --optimizer paged-adamw8bit", "--num_processes 2",
     "lora_target_modules", "all-linear"),
    ("unsloth", "--gpus 1 --lora 8 --lora-targets qv --dtype fp16", "get_peft_model",
     "target_modules", ["q_proj", "v_proj"]),
)  # fmt: skip
"""Trainer, what is asked, what the line that starts it says, a key of its own and its value."""


def written(trainer: str, conditions: str, capsys: pytest.CaptureFixture[str]) -> str:
    words = ("plan", "--trainer", trainer, *QUESTION, *GPU, *conditions.split())
    assert main([*words, "--format", "yaml"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def missing(text: str) -> str:
    lines = (line for line in text.splitlines() if line.startswith(MISSING))
    return next(lines, "").removeprefix(MISSING)


@each("trainer, conditions, start, key, value", SAID)
def test_a_trainers_own_file_is_read_back_as_the_same_plan(
    trainer: str, conditions: str, start: str, key: str, value: object,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    text = written(trainer, conditions, capsys)
    assert not missing(text)
    assert any(start in line for line in text.splitlines() if line.startswith("# "))
    assert yaml.safe_load(text)[key] == value
    file = tmp_path / "train.yaml"
    file.write_text(text, encoding="utf-8")
    asked = ("--trainer", trainer, *QUESTION, *conditions.split())
    named = MODEL if trainer == "megatron" else ()  # its arguments name no model
    figures = []
    for words in (asked, ("--from-config", str(file), *named, "--gpus", conditions.split()[1])):
        main(["plan", *words, *GPU, "--json"])
        figures.append(json.loads(capsys.readouterr().out)["memory_gib"])
    assert figures[0] == figures[1]


def test_every_writer_has_a_row() -> None:
    assert {row[0] for row in SAID} == set(WRITERS)


@each("trainer, conditions, left", (
    ("hf", "--gpus 1 --lora 8 --quantize nf4", "--lora 8, --quantize nf4"),
    ("torchtune", "--gpus 1 --lora 8 --quantize nf4", "--quantize nf4"),
    ("llama-factory", "--gpus 8 --tp 2", "--tp 2"),
    ("trinity", "--gpus 8 --loss fused", "--loss fused"),
))  # fmt: skip
def test_what_a_trainer_has_no_key_for_is_said(
    trainer: str, conditions: str, left: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert left in missing(written(trainer, conditions, capsys))


def test_a_recipe_is_in_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "qwen3-8b", "--context", "16384", "--batch", "4", "--gpus", "4")
    how = ("--gpu", "RTX 4090", "--strategy", "fsdp", "--checkpointing", "--dtype", "bf16")
    main(["plan", *words, *how, "--trainer", "trl", "--format", "yaml"])
    text = capsys.readouterr().out
    assert "Offload" in text.splitlines()[0]
    assert "# export PYTORCH_ALLOC_CONF=expandable_segments:True" in text
    assert "offload" in yaml.safe_load(text)["fsdp"].split()
    assert not missing(text)


def test_a_trainer_without_a_yaml_of_its_own_gets_both_documents(
    capsys: pytest.CaptureFixture[str],
) -> None:
    without = set(rows().trainers) - set(WRITERS)
    assert without
    for trainer in without:
        assert len(list(yaml.safe_load_all(written(trainer, "--gpus 8", capsys)))) == 2
