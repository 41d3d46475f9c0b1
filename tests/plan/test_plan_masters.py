"""DeepSpeed's 32-bit masters are counted whatever dtype the config names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusetup.cli import main

SFT = """model_name_or_path: Qwen/Qwen2.5-7B
per_device_train_batch_size: 1
max_length: 2048
gradient_checkpointing: true
use_peft: false
deepspeed: ds_zero3.json
"""


def total_gib(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> float:
    file = folder / "train.yaml"
    file.write_text(text, encoding="utf-8")
    main(["plan", "--from-config", str(file), "--gpu", "A100 80GB", "--gpus", "4", "--json"])
    return float(json.loads(capsys.readouterr().out)["memory_gib"]["total"])


@pytest.mark.parametrize(
    "dtype", ["torch_dtype: bfloat16", "dtype: bfloat16\nbf16: true", "torch_dtype: float16"]
)
def test_masters_do_not_vanish_with_a_16_bit_dtype_in_the_config(
    dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Qwen2.5-7B under ZeRO-3 on 4 GPUs took 42 GB; without masters plan said 25.0 GiB."""
    with_masters = total_gib(SFT + "bf16: true\n", tmp_path, capsys)
    assert with_masters > 35
    assert total_gib(SFT + dtype + "\n", tmp_path, capsys) == pytest.approx(with_masters, rel=0.01)


def test_deepspeed_keeps_masters_also_where_the_trainer_trains_in_16_bits_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factory = """model_name_or_path: Qwen/Qwen2.5-7B
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
pure_bf16: true
"""
    sharded = total_gib(factory + "deepspeed: ds_z3.json\n", tmp_path, capsys)
    assert sharded > 35


def test_weights_loaded_in_16_bits_on_purpose_stay_so_without_deepspeed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = SFT.replace("deepspeed: ds_zero3.json\n", "fsdp: full_shard\n")
    in_16_bits = total_gib(alone + "torch_dtype: bfloat16\nbf16: true\n", tmp_path, capsys)
    in_32_bits = total_gib(alone + "bf16: true\n", tmp_path, capsys)
    assert in_16_bits < 0.8 * in_32_bits
