"""`plan --from-config`: what is read of each trainer's config, what is refused or not counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from each_row import each

from gpusetup.cli import main

HERE = Path(__file__).parents[1]
HF = (HERE / "plan_configs" / "hf_trainer.json").read_text(encoding="utf-8")
TRL = (HERE / "plan_configs" / "trl_sft.yaml").read_text(encoding="utf-8")


def total(answer: dict[str, Any]) -> float:
    return float(answer["memory_gib"]["total"])


def test_every_key_is_read_assumed_or_named_as_not_understood(planned: Any) -> None:
    found = planned(
        "model_name_or_path: gpt2\nper_device_train_batch_size: 4\nmax_seq_length: 128\n"
        "frobnicate_layers: 3\noutput_dir: x\n"
    )["config"]
    assert {one["key"] for one in found["read"]} == {
        "model_name_or_path", "per_device_train_batch_size", "max_seq_length",
    }  # fmt: skip
    (unread,) = found["not_understood"]
    assert (unread["key"], unread["line"]) == ("frobnicate_layers", 4)


@each(
    "text, said",
    [
        (f"model_name_or_path: gpt2\nper_device_train_batch_size: {'9' * 5000}\n", "line 2"),
        ("model_name_or_path: gpt2\nmax_seq_length: -4\n", "line 2"),
        (f"a: {'{a: ' * 90}1{'}' * 90}\n", "nested too deeply"),
        # A config cannot make another file be read.
        ("a: 1\nmodel_name_or_path: /dev/zero\nmax_seq_length: 8\n", "line 2"),
        (f"batch_size: {'[' * 100_000}\n", "nested too deeply"),
        ("model: lstm\nbatch_size: 4\n", "plan finds no model in"),
        ("model: gpt2\ntensor_parallel_size: 2\n", "line 2: `tensor_parallel_size` is 2"),
    ],
)
def test_a_hostile_or_empty_config_is_refused_with_its_place(
    text: str, said: str, planned: Any
) -> None:
    message = planned(text)["message"]
    assert said in message and len(message) < 300


@each(
    "text, words, said",
    [
        ("model: nobody/model-0.5b\nbatch_size: 4\n", (), "the usual one for its size"),
        ("model: lstm\nbatch_size: 4\n", (), "or `--params 7B`"),
        (
            "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\n",
            (),
            "line 2: plan does not know the model in `model._component_: torchtune.models",
        ),
        ("model:\n  path: ${oc.env:UNSET_PATH}\n", (), "UNSET_PATH, which is not set"),
        ("model: lstm\nbatch_size: 4\n", ("--params", "10M"), "10M (10M parameters)"),
        (TRL, ("--max-batch",), "largest batch"),
        (TRL, ("--max-batch", "--batch", "4"), "searches for what `--batch` sets"),
        (HF, ("--gpu", "H20", "--max-context"), "do not set CPU offload of the parameters"),
    ],
)
def test_a_config_is_completed_by_options(
    text: str, words: tuple[str, ...], said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "train.yaml"
    file.write_text(text, encoding="utf-8")
    main(["plan", "--from-config", str(file), "--gpu", "L4", *words])
    output = capsys.readouterr()
    assert said in output.out + output.err


# --- 32-bit masters -------------------------------------------------------------------------------

SFT_7B = """model_name_or_path: Qwen/Qwen2.5-7B
per_device_train_batch_size: 1
max_length: 2048
gradient_checkpointing: true
use_peft: false
"""
FACTORY_7B = """model_name_or_path: Qwen/Qwen2.5-7B
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
pure_bf16: true
deepspeed: ds_z3.json
"""
FOUR = ("--gpu", "A100 80GB", "--gpus", "4")


def test_deepspeeds_masters_are_counted_whatever_dtype_the_config_names(planned: Any) -> None:
    """Qwen2.5-7B under ZeRO-3 on 4 GPUs took 42 GB; without masters plan said 25.0 GiB."""
    zero = SFT_7B + "deepspeed: ds_zero3.json\n"
    with_masters = total(planned(zero + "bf16: true\n", *FOUR))
    assert with_masters > 35 and total(planned(FACTORY_7B, *FOUR)) > 35
    for dtype in ("torch_dtype: bfloat16\n", "dtype: bfloat16\nbf16: true\n"):
        assert total(planned(zero + dtype, *FOUR)) == pytest.approx(with_masters, rel=0.01)
    # Without DeepSpeed, weights that are loaded in 16 bits on purpose stay so.
    sharded = SFT_7B + "fsdp: full_shard\nbf16: true\n"
    in_16_bits = total(planned(sharded + "torch_dtype: bfloat16\n", *FOUR))
    assert in_16_bits < 0.8 * total(planned(sharded, *FOUR))


# --- preferences and reinforcement learning -------------------------------------------------------

DPO = """model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
stage: dpo
finetuning_type: full
cutoff_len: 1024
per_device_train_batch_size: 2
bf16: true
"""


def test_preference_pairs_count_both_answers_and_the_reference(planned: Any) -> None:
    pairs = planned(DPO)
    assert total(pairs) > total(planned(DPO.replace("dpo", "sft"))) + 2.5
    assert "dpo" in pairs["close_because"]


# --- what is not counted --------------------------------------------------------------------------

SFT = """model_name_or_path: Qwen/Qwen2.5-0.5B
finetuning_type: full
stage: sft
cutoff_len: 512
per_device_train_batch_size: 1
bf16: true
output_dir: saves/out
logging_steps: 10
seed: 1
run_name: first
warmup_ratio: 0.1
"""


@each(
    "key",
    ["use_galore: true", "rank_pattern: x", "freeze_vit: true", "use_ema: true", "use_dora: 1"],
)
def test_no_tick_stands_beside_an_unread_key_that_may_take_memory(key: str, planned: Any) -> None:
    answer = planned(f"{SFT}{key}\n")
    assert answer["uncounted"] == [key.partition(":")[0]]
    assert answer["confidence"] == "close"
    # What does not fit does not fit, whatever is unread.
    answer = planned(f"{SFT}{key}\n", "--gpu-mem", "2GiB")
    assert not answer["fits"] and answer["confidence"] == "clear"


@each(
    "key",
    ["", "use_galore: false", "ema: null", "eval_strategy: steps", "dataset_dir: data",
     "per_device_eval_batch_size: 4", "lora_alpha: 32", "hub_token: x", "overlap_comm: true"],
)  # fmt: skip
def test_a_key_that_takes_no_memory_takes_no_tick_away(key: str, planned: Any) -> None:
    assert planned(f"{SFT}{key}\n")["confidence"] == "clear"
