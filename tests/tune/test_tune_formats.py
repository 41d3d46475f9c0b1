"""Configs in every format that trainers read: changed in place, and nothing else in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusetup.configs.config import edited, read_config
from gpusetup.tune.case import Facts, Measured
from gpusetup.tune.rules import propose

CARD = Facts(
    gpu="A card", gpus=1, memory_bytes=4 << 30, capability=(8, 6), cores=8, ram_bytes=64 << 30,
    family="linux",
)  # fmt: skip


def tuned(text: str, name: str, facts: Facts = CARD, **asked: object) -> str:
    config = read_config(text.encode(), name)
    proposal = propose(config, facts, Measured(**asked))  # type: ignore[arg-type]
    new = edited(config, proposal.edits).raw.decode()
    again = propose(read_config(new.encode(), name), facts, Measured(**asked))  # type: ignore[arg-type]
    assert not again.changes, "a second run changes nothing"
    return new


ROWS = (
    ("jsonc", "c.json",
     '{ // hi\n "batch_size": 64, /* a, b */ "accumulation_steps": 1,\n "seq_len": 9, }\n',
     '{ // hi\n "batch_size": 16, /* a, b */ "accumulation_steps": 4,\n "seq_len": 9, }\n'),
    ("a comment's marks in text", "c.jsonc",
     '{"num_workers": 0, "url": "http://x/*", "y": "*/"}',
     '{"num_workers": 8, "url": "http://x/*", "y": "*/"}'),
    ("toml", "c.toml",
     '[data]\nnum_workers = 0 # loader\npin_memory = false\n[train]\n'
     'batch_size = 64\naccumulation_steps = 1\nseq_len=8\n',
     '[data]\nnum_workers = 8 # loader\npin_memory = true\n[train]\n'
     'batch_size = 16\naccumulation_steps = 4\nseq_len=8\n'),
    ("toml in quotes", "c.toml", '[trainer]\nprecision = "32"\n',
     '[trainer]\nprecision = "bf16-mixed"\n'),
    ("toml twice", "c.toml", "[[loader]]\nnum_workers = 0\n[[loader]]\nnum_workers = 1\n", None),
    ("toml text that looks like it", "c.toml",
     'num_workers = 0\nnote = """\nnum_workers = 3\n"""\n', None),
    ("nanogpt", "c.py",
     "batch_size = 64\nblock_size = 1024\ngradient_accumulation_steps = 1 # é\n",
     "batch_size = 16\nblock_size = 1024\ngradient_accumulation_steps = 4 # é\n"),
    ("mmengine", "c.py",
     "train_dataloader = dict(batch_size=8, num_workers=2, persistent_workers=False)\n"
     "val_dataloader = dict(batch_size=1, num_workers=2)\nmodel = dict(norm=dict(type='BN'))\n",
     "train_dataloader = dict(batch_size=8, num_workers=8, persistent_workers=True)\n"
     "val_dataloader = dict(batch_size=1, num_workers=2)\nmodel = dict(norm=dict(type='BN'))\n"),
    ("detectron2 lazy", "c.py",
     "from detectron2.config import LazyCall as L\ndataloader.train.num_workers = 4\n"
     "train['amp'] = dict(enabled=False)\ndataloader.train.total_batch_size = 16\n",
     "from detectron2.config import LazyCall as L\ndataloader.train.num_workers = 8\n"
     "train['amp'] = dict(enabled=True)\ndataloader.train.total_batch_size = 16\n"),
    ("a call", "c.py", "loader = L(build)(data=L(get)(names='x'), num_workers=0)\n",
     "loader = L(build)(data=L(get)(names='x'), num_workers=8)\n"),
    ("a class", "c.py", "class Config:\n    num_workers: int = 0\n    amp = False\n",
     "class Config:\n    num_workers: int = 8\n    amp = True\n"),
    ("bytes before it", "c.py", "x = 'é漢'; num_workers = 0; y = '漢'\r\n",
     "x = 'é漢'; num_workers = 8; y = '漢'\r\n"),
    ("an expression", "c.py", "num_workers = 5 * 8\nbatch_size = other\n", None),
    ("assigned twice", "c.py", "num_workers = 0\nnum_workers = 4\n", None),
    ("a function's own", "c.py", "num_workers = 8\ndef f():\n    num_workers = 0\n", None),
    ("timm", "c.yaml", "workers: 4\npin_mem: false\namp: false\namp_dtype: float16\n",
     "workers: 8\npin_mem: true\namp: true\namp_dtype: float16\n"),
    ("diffusers", "c.yaml",
     "pretrained_model_name_or_path: x\ntrain_batch_size: 64\ngradient_accumulation_steps: 1\n"
     "seq_len: 77\nmax_train_steps: 15000\nmixed_precision: 'no'\n",
     "pretrained_model_name_or_path: x\ntrain_batch_size: 16\ngradient_accumulation_steps: 4\n"
     "seq_len: 77\nmax_train_steps: 15000\nmixed_precision: 'bf16'\n"),
    ("detectron2 yacs", "c.yaml",
     "SOLVER:\n  IMS_PER_BATCH: 16\n  AMP:\n    ENABLED: False\nDATALOADER:\n  NUM_WORKERS: 4\n",
     "SOLVER:\n  IMS_PER_BATCH: 16\n  AMP:\n    ENABLED: True\nDATALOADER:\n  NUM_WORKERS: 8\n"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "before", "after"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_only_the_values_change(name: str, before: str, after: str | None) -> None:
    assert tuned(before, name, batch_size=16) == (before if after is None else after)


def test_python_is_never_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\nnum_workers = 0\n"
    text += f"x = dict(a=pathlib.Path({str(mark)!r}).touch())\n"
    assert "num_workers = 8" in tuned(text, "c.py")
    assert not mark.exists()
