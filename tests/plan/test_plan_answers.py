"""What plan answers, in numbers: every condition of a run changes the parts that it should.

`plan_answers.txt` has a line for each question: what was asked with the first words of its group,
the recipe, GiB of states, checkpoints, logits, gaps and other, reserved if there is room, and the
settings that a trainer brings. Words without dashes stand in a config.
`pytest --accept` writes it; read what changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from each_row import each

from gpusetup.cli import main

PLAIN = "--model llama-3.1-8b --gpu-mem 200GiB --gpus 1 --dtype bf16 --context"
MANY = "--model qwen2.5-7b --gpu-mem 200GiB --gpus 8 --trainer hf --checkpointing --context 4096"
NAMED = "--model qwen3-4b --context 4096 --batch 16 --gpu-mem 80GiB --gpus 8"

HERE = Path(__file__).parents[1]
GROUPS: dict[str, tuple[str, ...]] = {
    f"{PLAIN} 2048 --batch 4": (
        "", "--checkpointing", "--checkpointing selective", "--attention eager",
        "plugins=liger", "torch_compile=yes", "--dtype fp32 --amp bf16", "--accumulate 4",
        "activation_offloading=yes --checkpointing", "--loss fused",
        "--loss hf", "--loss eager-old", "--lora 16",
    ),
    f"{PLAIN} 512 --batch 1": (
        "--dtype fp32", "optim=adamw_torch_fused", "optim=adamw_hf", "--optimizer adamw8bit",
        "--optimizer paged-adamw8bit", "--optimizer adafactor", "--optimizer sgd",
        "optimizer_offload=cpu", "--lora 16 --quantize nf4", "--lora 16 --quantize int8",
    ),
    f"{MANY} --batch 16": (
        "", "--strategy zero1",
        "--strategy zero2", "--strategy zero2 optimizer_offload=cpu", "--strategy zero3",
        "--strategy fsdp", "--strategy shard-grad-op",
        "--strategy fsdp1 --lora 16", "--strategy hsdp --gpus 16", "--strategy fsdp --sp 4",
    ),
    NAMED: tuple(
        f"--trainer {name}"
        for name in ("hf", "trl", "axolotl", "llama-factory", "ms-swift --strategy zero2",
                     "unsloth", "torchtune", "torchtitan", "litgpt", "llm-foundry", "nanogpt",
                     "llama-recipes --lora 8 --quantize nf4", "deepspeed",
                     "verl", "openrlhf", "lightning", "accelerate", "loop", "trinity",
                     "axolotl --lora 8 --quantize nf4 --strategy fsdp")
    ),
    "--batch 8 --gpu-mem 80GiB": (
        "--model bert-large --context 512", "--model vit-large", "--model t5-base --context 512",
        "--model whisper-small --context 448", "--model gpt2 --context 1024",
        "--model mixtral-8x7b --context 512 --gpus 8 --strategy ddp --amp bf16 --lora 8",
        "--model gemma-2-9b --context 1024 --trainer hf --gpus 8 --strategy fsdp",
        "--model qwen2.5-vl-7b --context 1024 --lora 8 --quantize nf4",
        "--params 124M --context 1 --batch 2048",
    ),
    "--model qwen3-8b --context 65536 --gpu H200": (
        "--gpus 4", "--gpus 8 --sp 8", "--gpus-needed", "--gpu H20 --gpus 2",
    ),
}  # fmt: skip


def lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    for first, questions in GROUPS.items():
        yield f"# {first}"
        for more in questions:
            code = main(["plan", *first.split(), *words(more, folder), "--json"])
            said = json.loads(capsys.readouterr().out)
            yield f"{more or '(alone)'}: {code} {told(said)}"
    yield "# --from-config, on 80 GiB"
    for file in sorted(f for room in ("configs", "plan_configs") for f in (HERE / room).iterdir()):
        code = main(["plan", "--from-config", str(file), "--gpu-mem", "80GiB", "--json"])
        said = json.loads(capsys.readouterr().out)
        if "config" in said:
            start = f"{said['config']['trainer']}, {said['model']}, {said['context']} tokens, batch"
            yield f"{file.name}: {code} {start} {said['batch']}, {told(said)}"


def words(more: str, folder: Path) -> list[str]:
    """A question's options; what is none stands in a config."""
    own = [word for word in more.split() if "=" in word]
    file = folder / "train.yaml"
    file.write_text("".join(f"{word.replace('=', ': ')}\n" for word in own))
    options = [word for word in more.split() if word not in own]
    return [*options, "--from-config", str(file)] if own else options


def told(said: dict[str, Any]) -> str:
    memory = [f"{value:.2f}" for name, value in said["memory_gib"].items() if name in PARTS]
    kept = [f"{name}={value}" for name, value in said["settings"].items() if name in SETTINGS]
    return f"{said['recipe']}, {said['confidence']}; {' '.join(memory)}; {' '.join(kept)}"


PARTS = ("states", "checkpoints", "logits", "fragmentation", "other", "host", "reserved")
SETTINGS = ("strategy", "gradient_checkpointing", "mixed_precision", "param_dtype", "attention",
            "step", "loss", "max_token_len_per_gpu", "rope_scaling")  # fmt: skip


def test_what_plan_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], same_as_file: Callable[[str, Path], None]
) -> None:
    found = "".join(f"{line}\n" for line in lines(tmp_path, capsys))
    same_as_file(found, HERE / "plan_answers.txt")


ONE = "--model qwen2.5-7b --context 2048 --batch 1"
ADAPTERS = "--model llama-2-7b --context 512 --batch 2 --gpus 2 --gpu-mem 140GiB --lora 8"
SAID = (
    (f"{ADAPTERS} --trainer hf --strategy zero3", 0, "training adapters with ZeRO", ""),
    (f"{ADAPTERS} --trainer hf --strategy ddp", 0, "clear", "runs of adapters"),
    (f"{ONE} --gpu-mem 80GiB optimizer_offload=cpu", 0, "offload to RAM", ""),
    ("--model qwen2.5-vl-7b --context 512 --batch 1 --gpu-mem 300GiB", 0, "image encoder", ""),
    ("--params 1B --batch 8 --gpu-mem 80GiB", 0, "samples of one token (a table row)", ""),
    ("--model vit-large --gpu-mem 24GiB", 0, "one sample of 197 tokens per GPU", ""),
    ("--model qwen3-0.6b --gpu T4 --amp bf16", 0, "no bfloat16 units", ""),
    ("--model qwen3-0.6b --gpu T4 --amp fp16", 0, "", "no bfloat16 units"),
    ("--params 70B --gpu-mem 24GiB", 1, "a transformer with 80 layers", ""),
    ("--params 57M --model yolo11x --gpu-mem 80GiB", 2, "convolutional", ""),
)  # fmt: skip


@each("question, code, said, unsaid", SAID)
def test_what_plan_says_with_its_numbers(
    question: str, code: int, said: str, unsaid: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(["plan", *words(question, tmp_path), "--json"]) == code
    screen = capsys.readouterr().out
    assert said in screen
    assert not unsaid or unsaid not in screen
