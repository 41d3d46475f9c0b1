"""Which keys of a training config mean what: the table of synonyms.

A row is a name as it stands in a config, its role, and whose it is. `under` narrows a name that is
common elsewhere (`compile`, `workers`); a row with a narrower `under` is found first. A key is
added only for a family that is known to read it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.model.frozen import Frozen

BATCH, ACCUMULATION, TOTAL = "batch", "accumulation", "total"
WORKERS, PIN, PERSISTENT, PREFETCH = "workers", "pin", "persistent", "prefetch"
COMPILE, AMP, PRECISION, BF16, FP16 = "compile", "amp", "precision", "bf16", "fp16"
ALLOCATOR, LEARNING_RATE, ROLLOUT = "allocator", "learning-rate", "rollout-batch"
LENGTH, MODEL, LOSS, CLIP, TOKENS = "length", "model", "loss", "clip", "tokens"

GUIDES = "the plain names of the acceleration and optimisation guides"
HUGGING_FACE = "transformers.TrainingArguments"
LIGHTNING = "lightning.Trainer, LightningDataModule"
DEEPSPEED = "DeepSpeed configuration JSON"
TRINITY = "Trinity-RFT configuration, veRL"
AXOLOTL = "axolotl configuration"
MEGATRON = "NeMo, Megatron-LM"
ULTRALYTICS = "Ultralytics train settings"
DETECTRON = "detectron2 configuration"


class Key(Frozen):
    """One name, what it means, and whose documentation says so."""

    name: str
    role: str
    source: str = GUIDES
    under: tuple[str, ...] = ()
    """One of these is the key of a map that it stands in; () anywhere."""
    written: bool = True
    """False where the program derives other things from it: then only words."""


def _rows(
    role: str, names: str, source: str = GUIDES, under: tuple[str, ...] = (), written: bool = True
) -> tuple[Key, ...]:
    return tuple(
        Key(name=name, role=role, source=source, under=under, written=written)
        for name in names.split()
    )


KEYS: tuple[Key, ...] = (
    # What stands under a certain map first.
    *_rows(ROLLOUT, "batch_size train_batch_size", TRINITY, under=("buffer",)),
    *_rows(ROLLOUT, "train_batch_size ppo_mini_batch_size", TRINITY, under=("actor", "algorithm")),
    *_rows(FP16, "enabled", DEEPSPEED, under=("fp16",)),
    *_rows(BF16, "enabled", DEEPSPEED, under=("bf16", "bfloat16")),
    *_rows(BATCH, "IMS_PER_BATCH", DETECTRON, under=("SOLVER",), written=False),
    *_rows(WORKERS, "NUM_WORKERS", DETECTRON, under=("DATALOADER",)),
    *_rows(PRECISION, "precision", LIGHTNING, under=("trainer",)),
    *_rows(ACCUMULATION, "accumulate_grad_batches", LIGHTNING),
    # Batch times accumulation.
    *_rows(BATCH, "batch_size train_batch_size_per_gpu batch_size_per_gpu batchsize"),
    *_rows(BATCH, "per_device_train_batch_size", HUGGING_FACE),
    *_rows(BATCH, "train_micro_batch_size_per_gpu", DEEPSPEED),
    *_rows(BATCH, "ppo_micro_batch_size_per_gpu", TRINITY, written=False),
    *_rows(BATCH, "micro_batch_size", f"{AXOLOTL}; {MEGATRON}"),
    *_rows(BATCH, "batch", ULTRALYTICS, written=False),
    *_rows(TOTAL, "train_batch_size", DEEPSPEED),
    *_rows(TOTAL, "global_batch_size", MEGATRON),
    *_rows(ACCUMULATION, "gradient_accumulation_steps", f"{HUGGING_FACE}; DeepSpeed; axolotl"),
    *_rows(ACCUMULATION, "accumulation_steps grad_accumulation_steps grad_accum_steps grad_accum"),
    *_rows(ACCUMULATION, "accumulate_steps gradient_accumulation accum_steps"),
    # Loading.
    *_rows(WORKERS, "num_workers workers n_workers loader_workers"),
    *_rows(WORKERS, "dataloader_num_workers", HUGGING_FACE),
    *_rows(PIN, "pin_memory"),
    *_rows(PIN, "dataloader_pin_memory", HUGGING_FACE),
    *_rows(PERSISTENT, "persistent_workers"),
    *_rows(PERSISTENT, "dataloader_persistent_workers", HUGGING_FACE),
    *_rows(PREFETCH, "prefetch_factor"),
    *_rows(PREFETCH, "dataloader_prefetch_factor", HUGGING_FACE),
    # Computing.
    *_rows(COMPILE, "compile_model compile use_compile"),
    *_rows(COMPILE, "torch_compile", HUGGING_FACE),
    *_rows(AMP, "use_mixed_precision mixed_precision use_amp amp"),
    *_rows(BF16, "bf16", f"{HUGGING_FACE}; {AXOLOTL}"),
    *_rows(FP16, "fp16", f"{HUGGING_FACE}; {AXOLOTL}"),
    *_rows(ALLOCATOR, "PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF", "torch's CUDA allocator"),
    # Read, never written.
    *_rows(LEARNING_RATE, "learning_rate lr base_lr", written=False),
    *_rows(LENGTH, "max_length max_seq_length seq_length seq_len sequence_length", written=False),
    *_rows(LENGTH, "cutoff_len max_seq_len sequence_len block_size", written=False),
    *_rows(MODEL, "base_channels num_blocks patch_size hidden_size hidden_dim", written=False),
    *_rows(MODEL, "embedding_dim num_users num_items n_embd d_model", written=False),
    *_rows(LOSS, "use_perceptual", written=False),
    *_rows(CLIP, "grad_clip", written=False),
    *_rows(TOKENS, "max_token_len_per_gpu ppo_max_token_len_per_gpu", TRINITY, written=False),
)

NOT_TRAINING = (
    "val", "valid", "validation", "eval", "evaluation", "test", "testing", "predict", "inference",
    "val_loader", "test_loader", "eval_loader", "val_dataloader", "test_dataloader", "explorer",
)  # fmt: skip
"""A key under one of these says nothing about training."""

ADDED: tuple[tuple[str, str, str, str], ...] = (
    ("per_device_train_batch_size", ACCUMULATION, "gradient_accumulation_steps", HUGGING_FACE),
    ("per_device_train_batch_size", WORKERS, "dataloader_num_workers", HUGGING_FACE),
    ("dataloader_num_workers", PERSISTENT, "dataloader_persistent_workers", HUGGING_FACE),
    ("per_device_train_batch_size", PERSISTENT, "dataloader_persistent_workers", HUGGING_FACE),
    ("train_micro_batch_size_per_gpu", ACCUMULATION, "gradient_accumulation_steps", DEEPSPEED),
    ("micro_batch_size", ACCUMULATION, "gradient_accumulation_steps", AXOLOTL),
)
"""(beside this key, a missing role, may be added as, whose documentation knows it)."""


def key_of(path: Iterable[str | int]) -> Key | None:
    """The row of a path; None where it says nothing about the training.

    >>> key_of(("trainer", "precision")).role, key_of(("buffer", "batch_size")).role
    ('precision', 'rollout-batch')
    >>> key_of(("val_loader", "batch_size")) is None
    True
    """
    words = [word for word in path if isinstance(word, str)]
    if not words or any(word.lower() in NOT_TRAINING for word in words[:-1]):
        return None
    return next(
        (
            row
            for row in KEYS
            if row.name == words[-1] and (not row.under or set(row.under) & set(words[:-1]))
        ),
        None,
    )


def looked_for() -> str:
    """The names that are written, for the message when none of them is there."""
    return ", ".join(dict.fromkeys(row.name for row in KEYS if row.written and not row.under))
