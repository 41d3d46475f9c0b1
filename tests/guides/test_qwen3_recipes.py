"""Guide 000, which recipe trains which Qwen3 model: what its reader asks, and what plan answers."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from each_row import each
from measured_cells import cells

A100X4 = ("--gpu", "A100 80GB", "--gpus", "4")
A100X6 = ("--gpu", "A100 80GB", "--gpus", "6")
SMALL = ("--model", "qwen3-0.6b", "--context", "4096", *A100X4)


def lines_between(screen: str, start: str) -> list[str]:
    """The lines below a heading, up to an empty line."""
    after = screen.partition(start)[2].partition("\n")[2]
    return after.partition("\n\n")[0].splitlines()


# --- 000-1: the cells, and the names of cards -----------------------------------------------------


CARDS = {"A100": "A100 80GB", "H20": "H20 96GB"}
"""The guide's own names of the cards."""


def of_cell(row: dict[str, str]) -> tuple[str, ...]:
    """The options that ask for one of the measured cells."""
    job = ("--model", row["model"], "--context", row["max_model_len"])
    return (*job, "--gpu", CARDS[row["gpu"]], "--gpus", row["num_gpus"])


def test_forty_cells_asked_one_command_each_are_as_measured(planned: Any) -> None:
    """000-1: drawn by a seed; `tests/plan/test_plan_memory.py` compares all 560 in one table."""
    for row in random.Random(20261126).sample(list(cells()), 40):
        assert planned(*of_cell(row))["recipe"] == row["recipe"], row


@each(
    "name, gib",
    [
        ("H20 96GB", 96), ("H20 95 GiB", 96), ("RTX 4090 24GB", 24), ("L40S 48GB", 48),
        ("T4 16GB", 16), ("RTX 3080 10GB", 10), ("RTX 2080Ti 11G", 11), ("A6000 48GB", 48),
    ],
)  # fmt: skip
def test_a_name_with_its_memory_is_the_card(name: str, gib: int, planned: Any) -> None:
    """000-1: memory in a name selects; it may be the number that the card is sold by."""
    answer = planned("--model", "qwen3-0.6b", "--context", "512", "--gpu", name)
    assert 0.9 * gib < answer["memory_gib"]["capacity"] < gib


@each(
    "name, message",
    [
        ("RTX 4090 48GB", "similar names are GeForce RTX 4090"),
        ("H21 96GB", "No GPU is called 'H21 96GB'"),
    ],
)
def test_another_memory_and_an_unknown_card_are_refused(name: str, message: str, says: Any) -> None:
    """000-1: a wrong size is no reason to take another card."""
    said = says("plan", "--model", "qwen3-0.6b", "--context", "512", "--gpu", name)
    assert message in said.words


def test_a_bad_row_fails_alone(tmp_path: Path, says: Any) -> None:
    """000-1: one bad row of a CSV says its error, the others are answered."""
    file = tmp_path / "cells.csv"
    file.write_text(
        "gpu,gpu_mem_gb,num_gpus,model,max_model_len\n"
        "H20 96GB,96,4,qwen3-8b,8192\nH21,96,4,qwen3-8b,8192\nA100,80,4,Qwen3-8B,8192\n"
        "A100,80,4,Qwen3-8B\n",
        encoding="utf-8",
    )
    said = says("plan", "--cells", str(file))
    answers = said.document["cells"]
    assert said.code == 0
    assert [cell["recipe"] for cell in answers] == ["vanilla", "", "vanilla", ""]
    assert "line 3: No GPU is called 'H21 96GB'" in answers[1]["error"]
    assert "max_model_len" in answers[3]["error"]


# --- 000-3: when the allocator's variable is set --------------------------------------------------


def test_the_allocator_is_set_before_ray_and_the_workers_start(says: Any) -> None:
    """000-3: in both spellings."""
    job = ("--model", "qwen3-0.6b", "--context", "24576", "--gpu", "A100 80GB")
    lines = lines_between(says("plan", *job).out, "Set")
    assert [line.strip() for line in lines[:3]] == [
        "# before Python starts (or before Ray and the workers start):",
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "export PYTORCH_ALLOC_CONF=expandable_segments:True",
    ]


# --- 000-7: the guide's config --------------------------------------------------------------------

GUIDE = """model:
  model_path: ${{oc.env:MODEL_PATH,Qwen/Qwen3-0.6B}}
  max_prompt_tokens: 2048
  max_model_len: ${{oc.env:MAX_MODEL_LEN,4096}}
  rope_scaling:
    rope_type: yarn
    factor: {factor}
    original_max_position_embeddings: 40960
"""


@pytest.mark.parametrize(
    ("factor", "variables", "remark"),
    [
        ("${oc.decode:${oc.env:FACTOR}}", {"FACTOR": "2.0"}, ""),
        ("${oc.decode:${oc.env:FACTOR,1.0}}", {}, "the factor is 1, but it must be 2"),
        ("${oc.env:FACTOR,'2.0'}", {}, ""),
        ("${.other}", {}, ""),
        ("1.0", {}, "it must be 2 (81,920 tokens / 40,960)"),
        ("4.0", {}, "the factor is 4, but it must be 2"),
        ("2.0", {}, ""),
    ],
)
def test_the_factor_is_read_and_held_against_the_length(
    factor: str,
    variables: dict[str, str],
    remark: str,
    monkeypatch: pytest.MonkeyPatch,
    planned: Any,
) -> None:
    """000-7: variables with and without default, nested, references; a wrong factor is told."""
    for name, value in {"MAX_MODEL_LEN": "81920", **variables}.items():
        monkeypatch.setenv(name, value)
    answer = planned(GUIDE.format(factor=factor), *A100X4)
    assert answer["context"] == 81920
    unread = {key["key"] for key in answer["config"]["not_understood"]}
    assert "model.rope_scaling.factor" not in unread
    remarks = [line for line in answer["advice"] if "rope_scaling.factor" in line]
    assert bool(remarks) == bool(remark) and all(remark in line for line in remarks)


def test_a_config_that_refers_to_itself_ends(planned: Any) -> None:
    """000-7: a hostile reference is no endless loop."""
    config = GUIDE.format(factor="${model.rope_scaling.factor}")
    assert planned(config, *A100X4)["context"] == 4096


# --- 000-9: the trainer's own knobs ---------------------------------------------------------------

TRINITY = """model: {{model_path: Qwen/Qwen3-14B, max_model_len: 51200}}
trainer:
  trainer_type: verl
  ulysses_sequence_parallel_size: {sp}
  trainer_config:
    actor_rollout_ref:
      actor: {{ppo_max_token_len_per_gpu: {actor}}}
      ref: {{log_prob_max_token_len_per_gpu: {reference}}}
"""


@pytest.mark.parametrize(
    ("sp", "actor", "reference", "message"),
    [
        (1, 30000, 60000, "(`ppo_max_token_len_per_gpu`) are too few"),
        (2, 30000, 20000, "(`log_prob_max_token_len_per_gpu`) are too few"),
        (2, 30000, 30000, ""),
    ],
)
def test_both_budgets_are_read_and_refused_if_too_small(
    sp: int, actor: int, reference: int, message: str, tmp_path: Path, says: Any
) -> None:
    """000-9: one sequence must fit into the budget of the GPUs that share it."""
    file = tmp_path / "train.yaml"
    file.write_text(TRINITY.format(sp=sp, actor=actor, reference=reference), encoding="utf-8")
    said = says("plan", "--from-config", str(file), *A100X4)
    assert (said.code == 2) == bool(message) and message in said.err


@pytest.mark.parametrize(
    ("trainer", "line"),
    [
        ("verl", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"),
        ("hf", "--per_device_train_batch_size 2"),
        ("axolotl", "micro_batch_size: 2"),
    ],
)
def test_other_trainers_get_their_own_keys_or_flags(trainer: str, line: str, planned: Any) -> None:
    """000-9: the same for each trainer whose words plan knows."""
    job = ("--model", "qwen3-4b", "--context", "4096", "--batch", "8", *A100X4)
    answer = planned(*job, "--trainer", trainer, "--checkpointing")
    assert line in answer["trainer_settings"]["text"]


# --- 000-11 to 000-13 -----------------------------------------------------------------------------


def test_the_steps_come_in_the_order_env_sp_offload(planned: Any) -> None:
    """000-11: each with what it saves, and none that saves less than an earlier one."""
    helps = planned(*SMALL)["helps"]
    recipes = [help for help in helps if help["kind"] == "recipe"]
    steps = [help["recipe"] for help in recipes]
    assert steps[:2] == ["Env", "SP=2"] and "Offload" in steps[-1]
    offloads = ["Offload" in step for step in steps]
    assert offloads == sorted(offloads)
    saved = [help["saves_gib"] for help in recipes]
    assert saved == sorted(saved) and helps[: len(recipes)] == recipes


def test_a_degree_that_does_not_divide_is_refused_with_those_that_do(says: Any) -> None:
    """000-12: 40 heads on 6 GPUs; no strategy is advised, because it is none that is wrong."""
    job = ("--model", "qwen3-14b", "--context", "32768", *A100X6)
    said = says("plan", *job, "--sp", "3")
    assert said.code == 2
    assert "6 GPUs and the 40 heads" in said.err and "1 or 2" in said.err
    assert "--strategy" not in said.err and "not fsdp" not in said.err


def test_four_of_six_gpus_are_named_with_the_reason(says: Any) -> None:
    """000-12: 14B with 51,200 tokens does not fit on six A100, but on four of them."""
    screen = says("plan", "--model", "qwen3-14b", "--context", "51200", *A100X6).out
    lines = lines_between(screen, "Use 4 of your 6 GPUs instead")
    assert "with Env + Offload + SP=4" in lines[0] and "the 40 heads" in " ".join(lines)
    assert lines[-1].strip() == "export CUDA_VISIBLE_DEVICES=0,1,2,3"


def test_several_gpus_are_told_with_what_they_bring(planned: Any, says: Any) -> None:
    """000-13: one would do; four are up to four times as fast, less what they send."""
    job = ("--model", "qwen3-0.6b", "--context", "4096", "--gpu", "A100 SXM4 80GB", "--gpus", "4")
    assert "one GPU would be enough; 4 GPUs are up to 4 times as fast" in says("plan", *job).out
    alone = planned("--model", "qwen3-8b", "--context", "4096", *A100X4)["advice"]
    assert not any("times as fast" in note for note in alone)


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.20 GiB is free."
)


VERL = 'File "/opt/Trinity-RFT/trinity/trainer/verl/fsdp_workers.py", line 612, in update_actor'
DEEPSPEED = 'File "/venv/lib/python3.11/site-packages/deepspeed/runtime/zero/stage3.py", line 1'
FSDP = 'File "/lib/python3.12/site-packages/torch/distributed/fsdp/_runtime_utils.py", line 9'
IN_ORDER = (
    "1. Env", "2. SP", "3. Offload", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)  # fmt: skip


@each(
    "line, said, unsaid",
    [
        (VERL, IN_ORDER, ()),
        (DEEPSPEED, IN_ORDER, ()),
        # FSDP alone has the variable and the offload, and Windows not even the variable.
        (FSDP, ("1. Env", "2. Offload"), ("SP:",)),
        ("Windows 11, RTX 4090", (), ("expandable_segments",)),
        # Without a trainer that ran: what saves memory anywhere.
        ("", ("checkpointing", "8-bit optimizer", "LoRA", "gpusetup tune"), ("2. SP",)),
        ("Should I use verl or deepspeed?", ("1. a smaller batch", "gpusetup plan"), ("2. SP",)),
    ],
)
def test_out_of_memory_leads_to_the_steps_of_the_trainer_in_the_guides_order(
    line: str, said: tuple[str, ...], unsaid: tuple[str, ...], reads: Any
) -> None:
    """000-11: Env, then SP, then Offload, and `gpusetup plan` for the card of the message."""
    read = reads(f"{line}\n{OUT_OF_MEMORY}\n")
    assert read.cause == "out-of-memory"
    assert all(words in read.screen for words in said), read.screen
    assert not any(words in read.screen for words in unsaid), read.screen
    steps = [read.screen.index(step) for step in said if re.match(r"\d\. ", step)]
    assert steps == sorted(steps)
