"""`plan --trainer NAME --format yaml`: the trainer's own configuration says the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gpusetup.cli import main
from gpusetup.plan.answer.trainer_config import WRITERS
from gpusetup.plan.model.trainers import rows

MODEL = ("--model", "qwen3-1.7b")
QUESTION = (*MODEL, "--context", "2048", "--batch", "8", "--checkpointing")
GPU = ("--gpu", "H100 80GB SXM")

CONDITIONS = (
    "--gpus 1 --lora 8 --quantize nf4",
    "--gpus 8 --strategy zero3",
    "--gpus 8 --strategy fsdp",
    "--gpus 8 --accumulate 4",
    "--gpus 1 --lora 8 --quantize int8 --attention eager",
    "--gpus 1 --lora 8 --lora-targets qv --dtype fp16",
    "--gpus 8 --tp 2",
    "--gpus 2 --lora 8 --dora --optimizer paged-adamw8bit",
    "--gpus 8 --strategy fsdp --amp fp16 --dtype fp32",
)

MISSING = "# not in these settings, see to it yourself: "

SAID_BY = {
    "trl": CONDITIONS[:6] + CONDITIONS[7:],
    "axolotl": CONDITIONS[:8],
    "llama-factory": CONDITIONS[:6] + CONDITIONS[7:],
    "torchtune": (*CONDITIONS[2:4], *CONDITIONS[5:8]),
    "hf": (*CONDITIONS[1:4], CONDITIONS[8]),
    "unsloth": (CONDITIONS[0], CONDITIONS[5]),
    "megatron": (CONDITIONS[3], CONDITIONS[6]),
}
"""Trainer -> the conditions that its own keys say, all of them."""


def written(trainer: str, conditions: str, capsys: pytest.CaptureFixture[str]) -> str:
    words = ("plan", "--trainer", trainer, *QUESTION, *GPU, *conditions.split())
    assert main([*words, "--format", "yaml"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def missing(text: str) -> str:
    lines = (line for line in text.splitlines() if line.startswith(MISSING))
    return next(lines, "").removeprefix(MISSING)


@pytest.mark.parametrize("trainer", WRITERS)
@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.one_in(3)
def test_the_configuration_says_the_plan_or_says_what_it_leaves_out(
    trainer: str, conditions: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = written(trainer, conditions, capsys)
    assert yaml.safe_load(text)
    file = tmp_path / "train.yaml"
    file.write_text(text, encoding="utf-8")
    own = ("--trainer", trainer, *QUESTION, *conditions.split())
    named = MODEL if trainer == "megatron" else ()
    figures = []
    for words in (own, ("--from-config", str(file), *named, "--gpus", conditions.split()[1])):
        main(["plan", *words, *GPU, "--json"])
        figures.append(json.loads(capsys.readouterr().out)["memory_gib"])
    assert (figures[0] == figures[1]) or missing(text)
    if conditions in SAID_BY.get(trainer, ()):
        assert figures[0] == figures[1]
        assert not missing(text)


def test_what_a_trainer_has_no_key_for_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert missing(written("hf", CONDITIONS[0], capsys)) == "--lora 8, --quantize nf4"
    assert missing(written("torchtune", CONDITIONS[0], capsys)) == "--quantize nf4"
    assert missing(written("llama-factory", CONDITIONS[6], capsys)) == "--tp 2"
    plain = ("plan", "--trainer", "trinity", *MODEL, *GPU, "--context", "2048", "--format", "yaml")
    main([*plain, "--loss", "fused"])
    assert missing(capsys.readouterr().out) == "--loss fused"


def test_the_keys_are_the_trainers_own(capsys: pytest.CaptureFixture[str]) -> None:
    def of(trainer: str, conditions: str) -> dict[str, object]:
        found: dict[str, object] = yaml.safe_load(written(trainer, conditions, capsys))
        return found

    assert of("axolotl", CONDITIONS[0])["adapter"] == "qlora"
    assert of("axolotl", CONDITIONS[1])["deepspeed"] == "deepspeed_configs/zero3.json"
    assert of("llama-factory", CONDITIONS[0])["quantization_bit"] == 4
    assert of("trl", CONDITIONS[0])["lora_target_modules"] == "all-linear"
    assert of("litgpt", CONDITIONS[3])["train"] == {
        "micro_batch_size": 1, "global_batch_size": 32, "max_seq_length": 2048,
    }  # fmt: skip
    assert of("unsloth", CONDITIONS[0])["use_gradient_checkpointing"] == "unsloth"
    assert of("megatron", CONDITIONS[6])["tensor_model_parallel_size"] == 2


def test_megatron_is_started_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    text = written("megatron", CONDITIONS[6], capsys)
    start = next(line for line in text.splitlines() if line.startswith("# torchrun"))
    assert "--tensor-model-parallel-size 2" in start
    assert "--recompute-granularity full" in start


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
