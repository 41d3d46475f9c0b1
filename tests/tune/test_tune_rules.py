"""What `tune` may write, by the config and the card: nothing unmeasured, nothing alone."""

from __future__ import annotations

import re

import pytest

from gpusetup.configs.config import edited, read_config
from gpusetup.model.frozen import replace
from gpusetup.plan.batch_verdict import batch_verdict
from gpusetup.tune.case import Facts, Measured, Proposal
from gpusetup.tune.rules import propose


def card(gib: int, capability: tuple[int, int] = (8, 9), gpus: int = 1) -> Facts:
    return Facts(
        gpu="A card", gpus=gpus, memory_bytes=gib << 30, capability=capability, cores=8,
        ram_bytes=64 << 30, family="linux",
    )  # fmt: skip


CARDS = {gib: card(gib) for gib in (4, 6, 8, 24, 80)}


def tuned(text: str, facts: Facts, name: str = "c.yaml", **asked: object) -> tuple[str, Proposal]:
    config = read_config(text.encode(), name)
    proposal = propose(config, facts, replace(Measured(), **asked))
    return edited(config, proposal.edits).raw.decode(), proposal


def values(text: str) -> dict[tuple[object, ...], str]:
    return {one.path: one.text for one in read_config(text.encode(), "c.yaml").settings}


HF = """\
model_name_or_path: Qwen/Qwen3-0.6B
per_device_train_batch_size: {size}
gradient_accumulation_steps: {steps}
max_length: 1024
bf16: true
gradient_checkpointing: true
dataloader_num_workers: 8
dataloader_persistent_workers: true
"""


# --- nothing is raised unmeasured -----------------------------------------------------------------


def test_what_ran_here_is_written() -> None:
    text = "base_channels: 64\nbatch_size: 4\naccumulation_steps: 16\n"
    new, _ = tuned(text, CARDS[24], batch_size=40)
    assert (values(new)[("batch_size",)], values(new)[("accumulation_steps",)]) == ("32", "2")


@pytest.mark.parametrize(("gib", "size", "steps"), [(24, 1, 256), (80, 4, 64), (24, 256, 1)])
def test_plan_raises_or_lowers_to_what_it_calls_clear(gib: int, size: int, steps: int) -> None:
    facts = CARDS[gib]
    new, proposal = tuned(HF.format(size=size, steps=steps), facts)
    micro = int(values(new)[("per_device_train_batch_size",)])
    assert micro != size and micro * int(values(new)[("gradient_accumulation_steps",)]) == 256
    after = read_config(new.encode(), "c.yaml")
    there = facts.card
    assert there
    assert batch_verdict(after, micro, there).verdict == "clear"
    more = [one for one in range(micro + 1, 257) if 256 % one == 0]
    assert all(batch_verdict(after, one, there).verdict != "clear" for one in more)
    assert "clear on this card" in proposal.changes[0].source


def test_a_model_that_cannot_fit_says_so_first_with_what_would() -> None:
    text = HF.format(size=8, steps=1).replace("Qwen3-0.6B", "Qwen3-8B")
    new, proposal = tuned(text, CARDS[24])
    assert "The model fits with one of these: LoRA" in (proposal.cannot_fit or "")
    assert values(new)[("per_device_train_batch_size",)] == "8"
    assert tuned(HF.format(size=8, steps=1), CARDS[24])[1].cannot_fit is None
    lora = (
        "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: lora\nstage: sft\ncutoff_len: 1024\n"
        "bf16: false\nper_device_train_batch_size: 8"
    )
    assert "bf16: true" in tuned(lora, CARDS[24])[0]


def test_a_batch_that_is_too_much_proposes_nothing_else() -> None:
    text = (
        "base_model: Qwen/Qwen3-8B\nload_in_4bit: true\nadapter: qlora\nlora_r: 16\nbf16: true\n"
        "sequence_len: 8192\ngradient_checkpointing: true\n"
        "micro_batch_size: 2\ngradient_accumulation_steps: 1\ndataloader_num_workers: 0\n"
    )
    _, proposal = tuned(text, CARDS[24])
    assert "a batch of 2 needs" in (proposal.cannot_fit or "") and not proposal.changes


def test_what_the_benchmark_found_to_bring_no_gain_is_not_written() -> None:
    text = "amp: false\ncompile: false\n"
    assert tuned(text, CARDS[24])[0] != text
    none = dict.fromkeys(("amp", "compile"), False)
    assert tuned(text, CARDS[24], is_faster=none)[0] == text


# --- what goes with a batch -----------------------------------------------------------------------

SPLIT = "max_seq_length: 128\nbatch_size: 64\naccumulation_steps: 1\n"
TRAINER = "trainer:\n  accumulate_grad_batches: 1\n{more}data:\n  batch_size: 64\n  seq_len: 9\n"

STAYS = (
    ("unknown steps", f"{SPLIT}max_steps: 1000\n", "max_steps (line 4) counts steps"),
    ("unknown warm-up", f"{SPLIT}warmup_steps: 10\n", "warmup_steps (line 4) counts steps"),
    ("unknown iterations", f"{SPLIT}total_iters: 10\n", "total_iters (line 4) counts steps"),
    ("by_epoch", f"{SPLIT}param: {{by_epoch: false}}\n", "counts steps"),
    ("contrastive", f"{SPLIT}loss: info_nce\n", "compares the samples of one batch"),
    ("negatives", f"{SPLIT}loss: MultipleNegativesRankingLoss\n", "compares the samples of one"),
    ("BatchNorm", f"{SPLIT}norm: batchnorm\n", "change its statistics"),
    ("resnet", f"{SPLIT}model: resnet50\n", "resnet50, which has BatchNorm"),
    ("torchtune", SPLIT.replace("accumulation_steps", "gradient_accumulation_steps")
     + "optimizer_in_bwd: true\n", "steps within the backward"),
    ("rate", f"{SPLIT}auto_scale_lr: {{enable: true, base_batch_size: 64}}\n", "rate changes"),
    ("generations", f"{SPLIT}steps_per_generation: 4\n", "depends on the micro-batch"),
    ("lightning odd", TRAINER.format(more="  limit_train_batches: 7\n  overfit_batches: 0.5\n")
     .replace("batch_size: 64", "batch_size: 32"), "counts micro-batches: change it and the batch"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "said"), [row[1:] for row in STAYS], ids=[r[0] for r in STAYS])
def test_a_batch_that_would_take_more_along_stays_with_its_reason(text: str, said: str) -> None:
    new, proposal = tuned(text, CARDS[4], batch_size=16)
    key = next(path for path in values(text) if path[-1:] == ("batch_size",))
    assert values(new)[key] == values(text)[key]
    assert not said or any(said in word for word in proposal.words), proposal.words


def test_counts_of_updates_stay_where_the_trainer_counts_them() -> None:
    text = HF.format(size=256, steps=1) + "max_steps: 1000\nwarmup_steps: 50\nsave_steps: 100\n"
    after = values(tuned(text, CARDS[24])[0])
    assert after[("per_device_train_batch_size",)] != "256"
    assert after[("max_steps",)] == "1000"


@pytest.mark.parametrize("section", ["val_dataloader", "validation_ds", "inference_data"])
def test_loaders_of_other_than_training_are_left_alone(section: str) -> None:
    text = (
        f"{SPLIT}num_workers: 8\n{section}:\n  batch_size: 64\n  num_workers: 0\n  pin_memory: no\n"
    )
    after = values(tuned(text, CARDS[4], batch_size=16)[0])
    assert after[("batch_size",)] == "16"
    assert after[(section, "batch_size")] == "64"
    assert (after[(section, "num_workers")], after[(section, "pin_memory")]) == ("0", "no")


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("mixed_precision: 'no'\n", "mixed_precision: 'bf16'\n"),
        ("distributed_type: X\nmixed_precision: no\n",
         "distributed_type: X\nmixed_precision: bf16\n"),
        ("use_amp: 'false'\n", "use_amp: 'true'\n"),
        ("mixed_precision: no\n", "mixed_precision: yes\n"),
    ],
)  # fmt: skip
def test_a_switch_is_written_as_its_trainer_reads_it(text: str, after: str) -> None:
    assert tuned(text, CARDS[24])[0] == after


JUDGED = HF.format(size=8, steps=1)
REASONS = (
    ("own loop", "model: my_net\nbatch_size: 8\n", "it names no model that plan knows"),
    ("no length", "model_name_or_path: gpt2\nper_device_train_batch_size: 8\n", "how long"),
    ("preference", JUDGED + "beta: 0.1\n", "`beta` belongs to preference or reinforcement"),
    ("fsdp file", JUDGED + "fsdp_config: fsdp.json\n", "leaves to another file how the model is"),
    ("base", "_base_: [default.py]\nbatch_size: 8\n", "takes the other settings from another file"),
)


@pytest.mark.parametrize(
    ("text", "reason"), [row[1:] for row in REASONS], ids=[r[0] for r in REASONS]
)
def test_a_config_that_plan_cannot_judge_says_why_and_still_gets_its_loader(
    text: str, reason: str
) -> None:
    text = text.replace("dataloader_num_workers: 8", "dataloader_num_workers: 0")
    text += "" if "dataloader" in text else "num_workers: 0\npin_memory: false\n"
    _, proposal = tuned(text, CARDS[24])
    sentences = [word for word in proposal.words if "cannot judge this config" in word]
    assert any(reason in sentence for sentence in sentences), proposal.words
    assert any("num_workers" in change.key for change in proposal.changes)


@pytest.mark.parametrize("value", ["ds.json", "zero3", "true"])
def test_any_value_of_deepspeed_leaves_batch_and_precision_to_it(value: str) -> None:
    text = HF.format(size=256, steps=1).replace("bf16: true", "bf16: false")
    text = text.replace("dataloader_num_workers: 8", "dataloader_num_workers: 0")
    new, proposal = tuned(f"{text}deepspeed: {value}\n", CARDS[24], batch_size=64)
    assert values(new)[("per_device_train_batch_size",)] == "256"
    assert values(new)[("bf16",)] == "false"
    assert values(new)[("dataloader_num_workers",)] == "8"
    assert any("sets a batch and a precision too" in word for word in proposal.words)


FULL_8B = HF.format(size=1, steps=1).replace("Qwen3-0.6B", "Qwen3-8B")


def test_a_run_is_not_called_impossible_beside_a_way_to_train_that_plan_does_not_know() -> None:
    """BAdam trains 8 billion parameters on 24 GB; a card below its weights never does."""
    text = FULL_8B + "use_badam: true\nbadam_mode: layer\n"
    _, proposal = tuned(text.replace("num_workers: 8", "num_workers: 0"), CARDS[24])
    assert proposal.cannot_fit is None
    assert any("how much memory `use_badam`" in word for word in proposal.words)
    assert [change.key for change in proposal.changes] == ["dataloader_num_workers"]
    assert not any(re.search(r"\d GiB", word) for word in proposal.words)
    assert "its weights alone take" in (tuned(text, CARDS[8])[1].cannot_fit or "")


def test_axolotl_trains_the_whole_model_where_its_adapter_is_empty() -> None:
    text = (
        "base_model: mosaicml/mpt-7b\nadapter:\nlora_r: 8\nsequence_len: 2048\nbf16: true\n"
        "micro_batch_size: 1\ngradient_accumulation_steps: 1\noptimizer: adamw_bnb_8bit\n"
    )
    assert "does not fit" in (tuned(text, CARDS[24])[1].cannot_fit or "")
    assert tuned(text.replace("adapter:", "adapter: lora"), CARDS[24])[1].cannot_fit is None


def test_a_model_far_larger_than_the_guides_gets_none_of_their_sizes() -> None:
    small = "hidden_size: {width}\nnum_layers: {depth}\nnum_workers: 8\n"
    words = tuned(small.format(width=512, depth=4), CARDS[24])[1].words
    assert any("acceleration guide starts with hidden_size" in word for word in words)
    for width, depth in ((1024, 4), (512, 12)):
        words = tuned(small.format(width=width, depth=depth), CARDS[24])[1].words
        assert not any("acceleration guide starts with" in word for word in words)
