"""`gpusetup plan` as a person meets it: whole screens, exit codes, bad input, JSON."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import Same
from each_row import each
from machines_named import there

from gpusetup.cli import main

RENDERED = Path(__file__).parents[1] / "rendered" / "plan"
A100X4 = ("--gpu", "A100 80GB", "--gpus", "4")
ON_ONE = ("--model", "qwen3-8b", "--gpu", "RTX 3090")

SCREENS: dict[str, tuple[str, ...]] = {
    "one-gpu": ON_ONE,
    "measured": ("--model", "qwen3-8b", "--context", "32768", *A100X4),
    "ddp": ("--params", "124M", "--dtype", "fp32", "--amp", "bf16", "--batch", "2048",
            "--gpus", "8", "--gpu-mem", "8GiB"),
    "laptop": ("--from", "rtx3050-laptop", "--model", "qwen3-0.6b", "--context", "1024"),
    "max-batch": ("--model", "gpt2", "--context", "1024", "--max-batch", "--gpu-mem", "24GiB"),
    "nothing-fits": ("--model", "qwen3-14b", "--context", "4096", "--gpu-mem", "16GiB",
                     "--trainer", "trl"),
}  # fmt: skip
DOES_NOT_FIT = ("laptop", "nothing-fits")


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen(name: str, same_as_file: Same, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plan", *SCREENS[name]])
    same_as_file(capsys.readouterr().out, RENDERED / f"{name}.txt")
    assert code == (1 if name in DOES_NOT_FIT else 0)


# --- one GPU --------------------------------------------------------------------------------------


def test_one_gpu_hears_what_fits_with_what_batch_and_length(
    planned: Any,
) -> None:
    document = planned(*ON_ONE)
    ways = {way["name"]: way for way in document["ways"]}
    assert not ways["full in fp32"]["fits"] and ways["full in fp32"]["total_gib"] > 24
    for name, words in (("LoRA", ()), ("QLoRA", ("--quantize", "nf4"))):
        how = ("--trainer", "hf", "--lora", "16", "--checkpointing", *words)
        most, longest = (("--batch", str(ways[name]["batch"])),
                         ("--batch", "1", "--context", str(ways[name]["context"])))  # fmt: skip
        assert planned(*ON_ONE, *how, *most)["fits"]
        assert planned(*ON_ONE, *how, *longest)["fits"]
        assert ways[f"{name}, fused loss"]["batch"] > ways[name]["batch"]
    assert not planned(*ON_ONE, "--lora", "16")["ways"]


@pytest.mark.parametrize("machine", ["rtx3050-laptop", "wsl2", "jetson-orin"])
def test_env_is_never_offered_if_it_does_not_work(machine: str, planned: Any) -> None:
    document = planned("--from", machine, "--params", "300M", "--context", "2048")
    said = json.dumps([document["recipe"], document["helps"], document["env"]])
    assert "Env" not in said and "expandable" not in said
    if machine != "wsl2":
        assert "SP=" not in said and "Offload" not in said


# --- many rows ------------------------------------------------------------------------------------


HEAD = "gpu,num_gpus,model,max_model_len\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs the columns num_gpus, model"),
        (f"{HEAD}H20,two,qwen3-8b,1\n", "line 2: num_gpus is 'two'"),
        ("gpu,gpu_mem_gb,num_gpus,model,max_model_len\nH20,141,1,gpt2,1\n", "called 'H20 141GB'"),
        (f"{HEAD}{'x' * 200_000}", "is not a CSV file of jobs"),
    ],
)
def test_a_broken_row_is_named_by_its_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cells.csv"
    file.write_text(text, encoding="utf-8")
    assert main(["plan", "--cells", str(file)]) == 2
    assert said in capsys.readouterr().err


# --- solving --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "flag", "name"),
    [
        (("--model", "qwen3-14b", "--gpu", "H200", "--gpus", "8"), "--max-context", "context"),
        (("--model", "gpt2", "--context", "512", "--gpu-mem", "24GiB"), "--max-batch", "batch"),
    ],
)  # fmt: skip
def test_the_largest_fits_and_one_more_does_not(
    words: tuple[str, ...], flag: str, name: str, planned: Any
) -> None:
    document = planned(*words, flag)
    value = document[name]
    assert document["fits"] and document["solved"] == name and value > 1
    assert planned(*words, f"--{name}", str(value))["fits"]
    one_more = planned(*words, f"--{name}", str(value + 1))
    # The largest batch is the largest without offload.
    assert not one_more["fits"] or (name == "batch" and one_more["memory_gib"]["host"])


def test_a_batch_gets_no_tick_that_a_plain_loop_would_break(
    planned: Any,
) -> None:
    words = ("--model", "gpt2", "--context", "1024", "--batch", "40", "--gpu-mem", "24GiB")
    answer = planned(*words)
    assert answer["fits"] and "plain training loop" in answer["close_because"]


# --- bad input ------------------------------------------------------------------------------------

H20 = ("--gpu", "H20")
MODEL = ("--model", "qwen3-8b", "--context", "4096")


@each(
    "words, said",
    [
        ((*MODEL, *A100X4, "--sp", "3"), "divides both the 4 GPUs and the 32 heads"),
        ((*MODEL, "--gpu", "H21"), "No GPU is called 'H21'"),
        ((*MODEL, "--gpu", "A100"), "one of: A100 SXM4 40 GB, A100 SXM4 80 GB"),
        ((*MODEL, *H20, "--gpu-mem", "4GiB"), "--gpu-mem: not allowed with argument --gpu"),
        ((*MODEL, *H20, "--quantize", "nf4"), "cannot be trained directly"),
        ((*MODEL, *H20, "--trainer", "paddlenlp"), "torchtitan"),
        (
            ("--cells", "cells.csv", "--optimizer", "sgd"),
            "`--optimizer` has no effect with `--cells`",
        ),
    ],
)
def test_a_wrong_question_is_answered_in_words(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    found = capsys.readouterr()
    message = found.err or json.loads(found.out)["message"]
    assert said in message and "Traceback" not in message
    assert (found.out == "") != ("--json" in words)


def test_machines_without_a_gpu_with_unlike_gpus_and_with_too_few(
    capsys: pytest.CaptureFixture[str],
    planned: Any,
) -> None:
    assert main(["plan", *MODEL, "--from", "no-gpu"]) == 1
    assert "no NVIDIA GPU" in capsys.readouterr().err
    words = ("--from", there("mixed-gpus"), "--params", "100M", "--context", "512")
    document = planned(*words)
    assert "1080 Ti" in document["gpu"] and document["memory_gib"]["capacity"] < 11
    assert document["gpus"] == 2
    four = planned(*words, "--gpus", "4")
    assert "this machine has 2 GPUs, but the plan is for 4" in four["advice"]
    two = ("--from", there("ecc-error"), "--model", "qwen3-0.6b", "--gpus", "2")
    assert planned(*two)["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"


def documented() -> list[str]:
    """The commands of the guide that need no file."""
    guide = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "plan.md"
    lines = [line.removeprefix("$ ") for line in guide.read_text(encoding="utf-8").splitlines()]
    found = [line for line in lines if line.startswith("gpusetup plan")]
    return [line for line in found if "path/to" not in line and ".csv" not in line]


@pytest.mark.parametrize("line", documented())
def test_a_documented_command_answers_yes(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--model gpt2 --context 1024 --batch 8 --amp bf16 --gpu-mem 80GiB", None),
        ("--model qwen3-8b --context 2048 --gpu-mem 30GiB --gpus 8", "within 3 % of the limit"),
        ("--model qwen3-8b --context 16384 --gpu H20", None),
        (
            "--model qwen3-8b --context 2048 --gpus 2 --strategy dp --gpu-mem 400GiB",
            "plan's estimate for DataParallel was never compared with a measurement",
        ),
    ],
)
def test_close_names_the_reason_that_holds(
    words: str, reason: str | None, capsys: pytest.CaptureFixture[str], planned: Any
) -> None:
    document = planned(*words.split())
    assert document["close_because"] == reason
    assert (document["confidence"] == "close") == (reason is not None)
    main(["plan", *words.split()])
    screen = capsys.readouterr().out
    assert (f"close: {reason}" in screen) == (reason is not None)


# --- what a newcomer asks -------------------------------------------------------------------------


def test_a_method_counts_what_it_holds_beside_the_policy(planned: Any) -> None:
    words = ("--model", "qwen2.5-1.5b", "--context", "1024", "--batch", "2", "--gpu", "H200")
    by_method = {
        method: planned(*words, "--method", method)["memory_gib"]["total"]
        for method in ("sft", "dpo", "ppo")
    }
    assert by_method["sft"] < by_method["dpo"] < by_method["ppo"]
    assert planned(*words, "--method", "grpo")["confidence"] == "close"
    assert "No method" in planned(*words, "--method", "magic")["message"]
