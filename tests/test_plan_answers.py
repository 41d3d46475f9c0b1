"""What plan answers, in numbers: every condition of a run changes the parts that it should.

`plan_answers.txt` has a line for each question: what was asked beside the first words of its group,
the recipe, GiB of states, checkpoints, logits, gaps and other, reserved where there is room, and
the settings that a trainer brings. `pytest --accept` writes it; read what changed.
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

GROUPS: dict[str, tuple[str, ...]] = {
    f"{PLAIN} 2048 --batch 4": (
        "", "--batch 5", "--context 4096", "--checkpointing", "--checkpointing --compile",
        "--selective op", "--selective op --compile", "--selective 2",
        "--attention eager", "--attention eager --checkpointing", "--attention sdpa",
        "--attention written", "--fused-kernels", "--fused-kernels --checkpointing", "--compile",
        "--dtype fp32 --amp bf16", "--dtype fp32 --amp bf16 --checkpointing", "--accumulate 4",
        "--varied", "--beside 8", "--offload checkpoints --checkpointing", "--frozen 0.5",
        "--trained-layers 4", "--trained-layers 4 --checkpointing", "--classes 1", "--reference",
        "--loss fused", "--loss chunked", "--loss hf", "--loss eager-old", "--loss compiled",
        "--loss in-graph", "--loss in-place", "--loss in-place-shifted",
        "--lora 16", "--lora 16 --lora-targets qv", "--lora 16 --lora-targets attention",
        "--lora 16 --dora", "--lora 16 --train-embeddings", "--lora 16 --eval-batch 64",
    ),
    f"{PLAIN} 512 --batch 1": (
        "", "--checkpointing", "--dtype fp32", "--step fused", "--step loop", "--step backward",
        "--optimizer adamw8bit", "--optimizer adamw4bit", "--optimizer paged-adamw8bit",
        "--optimizer adafactor", "--optimizer muon", "--optimizer sgd", "--optimizer prodigy",
        "--optimizer schedule-free", "--offload optimizer", "--accumulate 2",
        "--lora 16 --quantize nf4", "--lora 16 --quantize nf4-dq", "--lora 16 --quantize int8",
        "--lora 16 --quantize int4", "--lora 16 --quantize mxfp4",
    ),
    f"{MANY} --batch 16": (
        "", "--strategy dp", "--strategy ddp", "--strategy device-map --batch 1",
        "--strategy zero1", "--strategy zero2", "--strategy zero2 --amp bf16 --dtype fp32",
        "--strategy zero2 --offload optimizer", "--strategy zero3", "--strategy zero3 --load-whole",
        "--strategy zero3 --load-whole --no-checkpointing", "--strategy fsdp",
        "--strategy fsdp --no-reshard", "--strategy fsdp1", "--strategy shard-grad-op",
        "--strategy fsdp1 --lora 16", "--strategy fsdp1 --lora 16 --no-reentrant",
        "--strategy fsdp --lora 16", "--strategy zero3 --lora 16",
        "--strategy hsdp --shard 4", "--strategy fsdp --sp 4", "--strategy fsdp --tp 4",
        "--strategy fsdp --tp 4 --tp-sp", "--strategy fsdp --cp 2", "--strategy fsdp --pp 2",
        "--strategy zero1 --pp 4 --accumulate 2",
    ),
    NAMED: tuple(
        f"--trainer {name}"
        for name in ("hf", "trl", "axolotl", "llama-factory", "ms-swift --strategy zero2",
                     "unsloth", "torchtune", "torchtitan", "torchtitan --compile", "litgpt",
                     "llm-foundry", "llama-recipes --lora 8 --quantize nf4", "nanogpt", "megatron",
                     "megatron --quantize fp8", "nemo", "nanotron", "gpt-neox", "deepspeed", "verl",
                     "openrlhf", "lightning", "accelerate", "loop", "trinity",
                     "litgpt --lora 8 --quantize nf4",
                     "axolotl --lora 8 --quantize nf4 --strategy fsdp",
                     "trl --lora 8 --quantize nf4")
    ),
    "--batch 8 --gpu-mem 80GiB --predict": (
        "--model bert-large --context 512", "--model bert-large --context 512 --mlm",
        "--model vit-large", "--model whisper-small --context 448", "--model t5-base --context 512",
        "--model whisper-small --context 60 --amp bf16", "--model gpt2 --context 1024",
        "--model gpt2 --context 1024 --amp bf16 --attention eager",
        "--model chatglm-6b --context 512 --amp fp16 --frozen 0.9",
        "--model mixtral-8x7b --context 512 --gpus 8 --strategy ddp --ep 8 --amp bf16 --lora 8",
        "--model mixtral-8x7b --context 512 --gpus 8 --strategy fsdp --ep 8 --amp bf16",
        "--model gemma-2-9b --context 1024 --trainer hf --gpus 8 --strategy fsdp",
        "--model gpt-j-6b --context 512 --trainer hf --gpus 8 --strategy fsdp",
        "--model qwen2.5-vl-7b --context 1024 --lora 8 --quantize nf4",
        "--model qwen2.5-vl-7b --context 1024 --lora 8 --quantize int4",
        "--model cogvideox-5b --trainer finetrainers --lora 64 --batch 1 --size 480x720",
        "--model cogvideox-5b --frames 9 --amp bf16 --batch 1 --checkpointing --encoders loaded",
        "--model flux --trainer diffusers --lora 16 --amp bf16 --encoders resident --batch 1",
        "--model sdxl --size 1024 --batch 1 --amp fp16", "--params 124M --context 1 --batch 2048",
        "--model gpt2 --users 50000 --items 20000 --embedding-dim 96 --context 1 --batch 2048"
        " --gpus 8 --strategy dp",
    ),
    "--model qwen3-8b --context 65536 --gpu H200": (
        "", "--gpus 4", "--gpus 8 --sp 8", "--gpus 8 --max-tokens 16384", "--gpus-needed",
        "--gpu H20 --gpus 2", "--gpu L4 --gpus 8",
    ),
}  # fmt: skip


def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    for first, questions in GROUPS.items():
        yield f"# {first}"
        for more in questions:
            code = main(["plan", *first.split(), *more.split(), "--json"])
            said = json.loads(capsys.readouterr().out)
            yield f"{more or '(alone)'}: {code} {told(said)}"


def told(said: dict[str, Any]) -> str:
    memory = [f"{value:.2f}" for name, value in said["memory_gib"].items() if name in PARTS]
    kept = [f"{name}={value}" for name, value in said["settings"].items() if name in SETTINGS]
    return f"{said['recipe']}, {said['confidence']}; {' '.join(memory)}; {' '.join(kept)}"


PARTS = ("states", "checkpoints", "logits", "fragmentation", "other", "host", "reserved")
SETTINGS = ("strategy", "gradient_checkpointing", "mixed_precision", "param_dtype", "attention",
            "step", "loss", "max_token_len_per_gpu", "rope_scaling")  # fmt: skip


def test_what_plan_answers(
    capsys: pytest.CaptureFixture[str], same_as_file: Callable[[str, Path], None]
) -> None:
    same_as_file(
        "".join(f"{line}\n" for line in lines(capsys)), Path(__file__).parent / "plan_answers.txt"
    )


ONE = "--model qwen2.5-7b --context 2048 --batch 1"
ADAPTERS = (
    "--model llama-2-7b --context 512 --batch 2 --gpus 2 --gpu-mem 140GiB --lora 8 --trainer hf"
)
FLUX = "--model flux --lora 16 --batch 1 --checkpointing"
VIDEO = "--model cogvideox-2b --lora 16 --gpu-mem 80GiB --checkpointing"
SAID = (
    (f"{ADAPTERS} --trainer hf --strategy zero3", 0, "published runs of adapters under ZeRO", ""),
    (f"{ADAPTERS} --trainer hf --strategy ddp", 0, "clear", "published runs"),
    (f"{ONE} --gpu-mem 300GiB --reference", 0, "published runs with a reference model", ""),
    (f"{ONE} --gpu-mem 80GiB --offload optimizer", 0, "published runs with parts on the host", ""),
    ("--model qwen2.5-vl-7b --context 512 --batch 1 --gpu-mem 300GiB", 0, "tower of images", ""),
    (f"{ONE} --lora 16 --trainer hf --checkpointing --gpu-mem 24GiB --eval-batch 8", 1,
     "the highest moment is the evaluation", ""),
    (f"{ONE} --lora 16 --trainer hf --checkpointing --gpu-mem 24GiB --eval-batch 8", 1,
     "`--eval-batch 1`", ""),
    ("--params 1B --batch 8 --gpu-mem 80GiB", 0, "give `--context` (1: a row)", ""),
    ("--params 1B --batch 8 --gpu-mem 80GiB --context 128", 0, "clear", "give `--context`"),
    (f"{FLUX} --gpu-mem 40GiB", 0, "GiB are needed: `--encoders none`", ""),
    (f"{FLUX} --gpu-mem 40GiB --encoders none", 0, "clear", "--encoders none` where"),
    (f"{FLUX} --gpu-mem 40GiB --trainer finetrainers", 0, "encoders of text", "GiB are needed"),
    (VIDEO, 0, "49 frames of 480 x 720 are 17,776 tokens, 226 of them text's", ""),
    (f"{VIDEO} --frames 9 --size 240x360", 0, "9 frames of 240 x 360 are", "49 frames"),
    ("--model vit-large --gpu-mem 24GiB", 0, "one sample of 197 tokens a GPU", ""),
    ("--model vit-large --gpu-mem 24GiB --format yaml", 0, "batch_per_gpu: 1", "rinity"),
    ("--model llama-2-7b --lora 16 --gpu-mem 24GiB --batch 1 --context 2048 --trainer trl", 1,
     "`--dtype bf16`", ""),
    (f"{ONE} --gpu-mem 80GiB --lora 8 --reference", 0, "a LoRA needs no `--reference`", ""),
    (f"{ONE} --gpu-mem 80GiB --frames 9", 2, "for a denoiser", ""),
    (f"{ONE} --gpu-mem 80GiB --encoders loaded", 2, "stand beside a denoiser", ""),
    (f"{FLUX} --gpu-mem 80GiB --frames 9", 2, "makes images", ""),
    (f"{FLUX} --gpu-mem 80GiB --size 0x9", 2, "no size in pixels", ""),
    (f"{FLUX} --gpu-mem 80GiB --size 8x8", 2, "less than one token", ""),
    (f"{ONE} --gpu-mem 80GiB --trainer paddlenlp", 2, "torchtitan", ""),
    (f"{ONE} --gpu-mem 80GiB --quantize nf4", 2, "not trained themselves", ""),
    (f"{ONE} --gpu-mem 80GiB --trained-layers 99", 2, "more than the 28 layers", ""),
    (f"{ONE} --gpu-mem 80GiB --loss none", 2, "No loss is called", ""),
)  # fmt: skip


@each("words, code, said, unsaid", SAID)
def test_what_plan_says_beside_its_numbers(
    words: str, code: int, said: str, unsaid: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = () if "yaml" in words else ("--json",)
    assert main(["plan", *words.split(), *kind]) == code
    screen = capsys.readouterr().out
    assert said in screen
    assert not unsaid or unsaid not in screen


def test_a_trainer_may_have_the_name_that_people_give_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screens = []
    for name in ("hf", "Transformers"):
        main(["plan", *ONE.split(), "--gpu-mem", "80GiB", "--trainer", name])
        screens.append(capsys.readouterr().out)
    assert screens[0] == screens[1]
