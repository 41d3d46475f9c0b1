"""What `tune` writes into a config, by its trainer, the card and what was measured: not one byte
outside the values that were meant, nothing unmeasured, nothing alone."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from each_row import each
from machines_named import machine_named

from gpusetup.configs.config import edited, read_config
from gpusetup.model.versions import Capability
from gpusetup.plan.place import place_of
from gpusetup.tune.case import Facts, Measured, Proposal, facts_of
from gpusetup.tune.rules import propose

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
LAPTOP = facts_of(machine_named("rtx3050-laptop"))


def card(gib: int, capability: tuple[int, int] = (8, 9)) -> Facts:
    place = place_of("A card", gib << 30, Capability(*capability))
    return Facts(gpu="A card", gpus=1, card=place, cores=8, ram_bytes=64 << 30, family="linux")


def tuned(
    text: str, facts: Facts, name: str = "c.yaml", batch_size: int | None = None
) -> tuple[str, Proposal]:
    """The new text. Outside of the proposed values it is the old one, and a second run changes
    nothing."""
    config, measured = read_config(text.encode(), name), Measured(batch_size=batch_size)
    proposal = propose(config, facts, measured)
    new = edited(config, proposal.edits)
    old_rest, new_rest, shift = config.text, new.text, 0
    for edit in proposal.edits:
        at = edit.start + shift
        assert new_rest[at : at + len(edit.text)] == edit.text
        new_rest = new_rest[:at] + new_rest[at + len(edit.text) :]
        old_rest = old_rest[:at] + old_rest[edit.end + shift :]
        shift -= edit.end - edit.start
    assert new_rest == old_rest and new.bom == config.bom
    assert not propose(new, facts, measured).changes
    return new.raw.decode(), proposal


def values(text: str) -> dict[tuple[object, ...], str]:
    return {one.path: one.text for one in read_config(text.encode(), "c.yaml").settings}


# --- every byte outside the values stays --------------------------------------------------------


@each("name", sorted(path.name for path in CONFIGS.iterdir() if path.suffix != ".diff"))
def test_configs_of_known_trainers_change_only_where_meant(
    name: str, request: pytest.FixtureRequest
) -> None:
    raw = (CONFIGS / name).read_text(encoding="utf-8")
    new, proposal = tuned(raw, LAPTOP, name)
    lines = difflib.unified_diff(raw.splitlines(), new.splitlines(), lineterm="", n=0)
    text = "\n".join([*lines, *(f"· {word}" for word in proposal.words)]) + "\n"
    same = request.getfixturevalue("same_as_file")
    same(text, CONFIGS.parent / "rendered" / "tune" / f"{name}.txt")


FORMATS = (
    ("timm", "c.yaml", "workers: 4\npin_mem: false\namp: false\namp_dtype: float16\n",
     "workers: 8\npin_mem: true\namp: true\namp_dtype: float16\n"),
    ("a new line with its neighbour's indent and line ends", "c.yaml",
     "args:\r\n dataloader_num_workers: 8\r\n dataloader_persistent_workers: true\r\n"
     " bf16: true\r\n per_device_train_batch_size: 64 # é\r\n max_len: 9\r\n",
     "args:\r\n dataloader_num_workers: 8\r\n dataloader_persistent_workers: true\r\n"
     " bf16: true\r\n per_device_train_batch_size: 16 # é\r\n"
     " gradient_accumulation_steps: 4\r\n max_len: 9\r\n"),
    ("yaml with a mark, comments, quotes, a block, a flow and an anchor", "c.yaml",
     "\ufeff%YAML 1.2\r\n---\r\ndata:   # é → 漢字\r\n  num_workers:   0  # keep me\r\n"
     "  pin_memory: No   #\r\n  # pin_memory: no\r\n  name: 'it''s'\r\n  notes: |\r\n"
     "    num_workers: 3\r\nbase: &base\r\n  persistent_workers: off\r\nderived:\r\n  <<: *base\r\n"
     'loader: {num_workers: 1, prefetch_factor: 1, "x": "a # b"}',
     "\ufeff%YAML 1.2\r\n---\r\ndata:   # é → 漢字\r\n  num_workers:   8  # keep me\r\n"
     "  pin_memory: Yes   #\r\n  # pin_memory: no\r\n  name: 'it''s'\r\n  notes: |\r\n"
     "    num_workers: 3\r\nbase: &base\r\n  persistent_workers: off\r\nderived:\r\n  <<: *base\r\n"
     'loader: {num_workers: 8, prefetch_factor: 1, "x": "a # b"}'),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "before", "after"), [row[1:] for row in FORMATS], ids=[row[0] for row in FORMATS]
)
def test_only_the_values_change_in_each_format(name: str, before: str, after: str | None) -> None:
    assert tuned(before, card(4, (8, 6)), name, batch_size=16)[0] == (after or before)


@each(
    "text",
    [
        *('batch_size: "32"\n', "batch_size: -4\n", "batch_size: [64, 32]\n"),
        *("batch_size: !foo 64\n", "a: &x 64\nbatch_size: *x\n"),
    ],
)
def test_a_value_that_is_no_plain_number_is_left(text: str) -> None:
    assert tuned(text, LAPTOP)[0] == text


# --- the batch ------------------------------------------------------------------------------------


def test_a_batch_that_ran_here_is_split_with_its_accumulation_and_never_alone() -> None:
    text = "base_channels: 64\nbatch_size: 4\naccumulation_steps: 16\n"
    after = values(tuned(text, card(24), batch_size=40)[0])
    assert (after[("batch_size",)], after[("accumulation_steps",)]) == ("32", "2")
    text = "batch_size: 64\nseq_len: 99\n"
    new, proposal = tuned(text, LAPTOP, batch_size=16)
    assert new == text
    assert any("a smaller batch alone is another experiment" in word for word in proposal.words)


SPLIT = "max_seq_length: 128\nbatch_size: 64\naccumulation_steps: 1\n"
TIED = (
    ("max_steps: 1000", "max_steps (line 4) counts steps"),
    ("loss: info_nce", "compares the samples of one batch"),
    ("model: resnet50", "resnet50, which has BatchNorm"),
    ("optimizer_in_bwd: true", "depends on the micro-batch"),
    ("steps_per_generation: 4", "depends on the micro-batch"),
    (
        "trainer: {accumulate_grad_batches: 1, overfit_batches: 5}",
        "overfit_batches (line 3) count",
    ),
)


@each("line, said", TIED)
def test_a_batch_that_would_take_more_along_stays_with_its_reason(line: str, said: str) -> None:
    text = SPLIT.replace("accumulation_steps: 1\n", "") if "accumulate_grad" in line else SPLIT
    new, proposal = tuned(f"{text}{line}\n", card(4), batch_size=16)
    assert values(new)[("batch_size",)] == "64"
    assert any(said in word for word in proposal.words), proposal.words
