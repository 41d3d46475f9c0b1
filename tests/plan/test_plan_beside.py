"""What a config holds beside its model is counted, and what is not counted takes the tick away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli import main

GRPO = """model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
per_device_train_batch_size: 4
num_generations: 8
max_prompt_length: 512
max_completion_length: 512
gradient_checkpointing: true
bf16: true
"""
COLOCATED = "use_vllm: true\nvllm_mode: colocate\nvllm_gpu_memory_utilization: 0.4\n"
PPO = """model_name_or_path: EleutherAI/pythia-1b
sft_model_path: EleutherAI/pythia-1b
num_ppo_epochs: 4
per_device_train_batch_size: 4
response_length: 64
bf16: true
"""
DPO = """model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
stage: dpo
finetuning_type: full
cutoff_len: 1024
per_device_train_batch_size: 2
bf16: true
"""
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


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def answer(text: str, *words: str) -> dict[str, Any]:
        file = tmp_path / "train.yaml"
        file.write_text(text, encoding="utf-8")
        card = words or ("--gpu-mem", "80GiB")
        main(["plan", "--from-config", str(file), *card, "--json"])
        return dict(json.loads(capsys.readouterr().out))

    return answer


def total(answer: dict[str, Any]) -> float:
    return float(answer["memory_gib"]["total"])


def test_grpo_holds_a_reference_only_if_it_is_weighed(planned: Any) -> None:
    weighed = planned(GRPO + COLOCATED + "beta: 0.04\n")
    assert total(weighed) - total(planned(GRPO + COLOCATED)) > 2.5
    assert any("the reference model" in note for note in weighed["advice"])


def test_an_engine_on_the_same_gpus_takes_its_share_of_the_card(planned: Any) -> None:
    alone = planned(GRPO + "use_vllm: true\nvllm_mode: server\n")
    both = planned(GRPO + COLOCATED)
    assert total(both) - total(alone) == pytest.approx(0.4 * alone["memory_gib"]["capacity"])
    assert both["confidence"] == "close"


def test_a_sleeping_engine_is_there_only_while_it_generates(planned: Any) -> None:
    awake = planned(GRPO + COLOCATED)
    asleep = planned(GRPO + COLOCATED + "vllm_enable_sleep_mode: true\n")
    assert total(asleep) < total(awake)


def test_ppo_holds_a_reference_a_reward_model_and_a_critic(planned: Any) -> None:
    answer = planned(PPO + "reward_model_path: EleutherAI/pythia-1b\n")
    (note,) = [note for note in answer["advice"] if "plan also counts" in note]
    assert all(f"the {role} model" in note for role in ("reference", "reward", "critic"))
    # Policy and critic: 16 bytes a parameter each; two frozen models with 2 to 4.
    assert answer["memory_gib"]["states"] > 2 * 16 * 0.95
    assert answer["confidence"] == "close"


def test_a_reward_model_of_unknown_size_is_named_in_the_first_line(
    planned: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PPO + "reward_model_path: my/own-reward\n"
    assert "the reward model my/own-reward" in planned(text)["uncounted"]
    main(["plan", "--from-config", str(tmp_path / "train.yaml"), "--gpu-mem", "80GiB"])
    screen = capsys.readouterr().out
    assert "! may fit, not counted: the reward model my/own-reward" in screen


def test_preference_pairs_count_both_answers_and_the_reference(planned: Any) -> None:
    pairs = planned(DPO)
    supervised = planned(DPO.replace("dpo", "sft"))
    assert total(pairs) > total(supervised) + 2.5
    assert any("the reference model" in note for note in pairs["advice"])
    assert pairs["confidence"] == "close"
    adapters = planned(DPO.replace("full", "lora"))
    assert not any("the reference model" in note for note in adapters["advice"])


VERL = """actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B}
  actor:
    ppo_micro_batch_size_per_gpu: 2
    use_kl_loss: true
    fsdp_config: {param_offload: false, optimizer_offload: false}
  rollout: {name: vllm, n: 5, gpu_memory_utilization: 0.6}
  ref: {fsdp_config: {param_offload: false}}
data: {max_prompt_length: 512, max_response_length: 512, train_batch_size: 64}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1}
"""


def test_verl_counts_its_engine_beside_what_stays_on_the_gpu(planned: Any) -> None:
    stays = planned(VERL)
    leaves = planned(VERL.replace("false", "true"))
    assert total(leaves) < total(stays)
    assert stays["batch"] == 16  # sequences, because verl fills no budget unless it is told to


def test_nothing_is_uncounted_in_an_ordinary_config(planned: Any) -> None:
    answer = planned(SFT)
    assert answer["uncounted"] == [] and answer["confidence"] == "clear"


@pytest.mark.parametrize(
    "key",
    ["use_galore: true", "rank_pattern: x", "freeze_vit: true", "use_ema: true", "use_dora: 1"],
)
def test_no_tick_stands_beside_an_unread_key_that_may_take_memory(key: str, planned: Any) -> None:
    answer = planned(f"{SFT}{key}\n")
    assert answer["uncounted"] == [key.partition(":")[0]]
    assert answer["confidence"] == "close"


@pytest.mark.parametrize(
    "key",
    ["use_galore: false", "ema: null", "eval_strategy: steps", "dataset_dir: data",
     "per_device_eval_batch_size: 4", "lora_alpha: 32", "hub_token: x", "overlap_comm: true"],
)  # fmt: skip
def test_a_key_that_takes_no_memory_takes_no_tick_away(key: str, planned: Any) -> None:
    assert planned(f"{SFT}{key}\n")["confidence"] == "clear"


def test_what_does_not_fit_does_not_fit_whatever_is_unread(planned: Any) -> None:
    answer = planned(f"{SFT}use_galore: true\n", "--gpu-mem", "2GiB")
    assert not answer["fits"] and answer["confidence"] == "clear"


def test_a_plugin_that_the_answer_uses_is_read(planned: Any) -> None:
    text = """base_model: Qwen/Qwen2.5-0.5B
sequence_len: 512
micro_batch_size: 1
plugins:
  - axolotl.integrations.liger.LigerPlugin
"""
    answer = planned(text)
    assert answer["uncounted"] == []
    assert any(key["key"].startswith("plugins") for key in answer["config"]["read"])
