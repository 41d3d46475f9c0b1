"""Whose config it is, for what changes a batch brings along: dated rows. Pure.

A trainer counts its steps in micro-batches (each call of the loader) or in updates (each step of
the optimizer); what is counted in updates means the same after another split of one batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.configs import keys
from gpusetup.configs.config import Config
from gpusetup.configs.keys import Key, key_of
from gpusetup.configs.loaders import of_a_loader
from gpusetup.configs.settings import Setting, names_in
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.trainers import trainer_of


class Trainer(Frozen):
    """A trainer, the names that only its configs have, and what its steps count."""

    name: str
    names: frozenset[str] = frozenset()
    steps: Literal["updates", "unknown"] = "unknown"
    """What a name that is in no list below counts."""
    micro: frozenset[str] = frozenset()
    """Names of whole numbers that count micro-batches."""
    updates: frozenset[str] = frozenset()
    """Names that count updates, where the others are unknown."""
    batch: str | None = None
    """A name that is its batch on one GPU, and something else in other trainers."""
    stays: str = ""
    """Why its batch is not for `tune` to change, as a clause."""
    workers: bool = True
    """Whether its `num_workers` may be the loader's."""
    source: str = ""


TRAINERS: tuple[Trainer, ...] = (
    Trainer(
        name="ray",
        names=frozenset(
            ("resources_per_worker", "num_cpus_per_worker", "num_gpus_per_worker",
             "num_envs_per_worker", "num_env_runners", "num_envs_per_env_runner",
             "rollout_fragment_length", "sgd_minibatch_size", "num_sgd_iter", "threads_per_worker",
             "num_rollout_workers", "env_config", "entropy_coeff", "framework")
        ),
        workers=False,
        source="RLlib, AlgorithmConfig; Ray Train, ScalingConfig; Dask, LocalCluster",
    ),
    Trainer(
        name="nanotron",
        names=frozenset(("batch_accumulation_per_replica",)),
        steps="updates",
        source="nanotron, trainer.py: train_steps, warm-up and checkpoints count updates",
    ),
    Trainer(
        name="nemo-rl",
        names=frozenset(("num_prompts_per_step", "train_global_batch_size")),
        steps="updates",
        source="NeMo-RL: max_num_steps counts steps of the algorithm",
    ),
    Trainer(
        name="nnunet",
        names=frozenset(("plans_name", "experiment_planner_used")),
        stays="nnU-Net's planner chose it together with the patch size, for a memory of its own:"
        " `nnUNetv2_plan_experiment -gpu_memory_target` plans both anew",
        source="nnU-Net, plans.json",
    ),
    Trainer(
        name="lerobot",
        names=frozenset(("use_policy_training_preset",)),
        stays="LeRobot accumulates no gradients, so that another batch is another experiment",
        source="LeRobot, TrainPipelineConfig",
    ),
    Trainer(
        name="rt-detr",
        names=frozenset(("epoches",)),
        stays="this trainer accumulates no gradients, so that another batch is another experiment",
        source="RT-DETR, D-FINE: their configs spell `epoches`",
    ),
    Trainer(
        name="mmengine",
        names=frozenset(("train_dataloader", "optim_wrapper", "train_cfg", "default_hooks")),
        source="mmengine, OptimWrapper.accumulative_counts: its loops count micro-batches",
    ),
    Trainer(
        name="lightning",
        names=frozenset(("accumulate_grad_batches", "limit_train_batches", "seed_everything")),
        micro=frozenset(("limit_train_batches", "val_check_interval", "overfit_batches")),
        updates=frozenset(("max_steps", "min_steps", "every_n_train_steps")),
        source="lightning.Trainer",
    ),
    Trainer(
        name="nanogpt",
        names=frozenset(("lr_decay_iters", "eval_iters")),
        steps="updates",
        micro=frozenset(("eval_iters",)),
        source="nanoGPT, train.py",
    ),
    Trainer(
        name="diffusers",
        names=frozenset(
            ("pretrained_model_name_or_path", "instance_prompt", "instance_data_dir",
             "max_train_steps", "checkpointing_steps")
        ),
        steps="updates",
        batch="train_batch_size",
        source="diffusers, examples: global_step counts updates",
    ),
    Trainer(
        name="timm",
        names=frozenset(("torchcompile", "pin_mem", "crop_pct", "lr_base")),
        steps="updates",
        source="timm, train.py: schedules count epochs or updates",
    ),
    Trainer(name="detectron2", names=frozenset(("IMS_PER_BATCH", "total_batch_size"))),
    Trainer(name="ultralytics", names=frozenset(("nbs", "imgsz"))),
    Trainer(
        name="accelerate",
        names=frozenset(("compute_environment", "distributed_type")),
        steps="updates",
        source="accelerate configuration",
    ),
)  # fmt: skip
"""Read in their source, 2026-11. A row's names are looked for after those of `plan`'s trainers."""

HF_BATCHES = frozenset(("per_device_train_batch_size", "train_micro_batch_size_per_gpu"))
MICRO = frozenset(("micro_batch_size", "global_batch_size"))
COUNTED_IN_UPDATES: Mapping[str, frozenset[str]] = {
    "hf": HF_BATCHES, "trl": HF_BATCHES, "llama-factory": HF_BATCHES, "unsloth": HF_BATCHES,
    "axolotl": MICRO, "litgpt": MICRO, "megatron": MICRO, "torchtune": frozenset(("batch_size",)),
    "torchtitan": frozenset(("local_batch_size",)), "trinity": frozenset(("batch_size",)),
}  # fmt: skip
"""`plan`'s trainers, all of which count updates (NeMo's loader yields global batches) -> the names
of their batch, of which one proves that a config is theirs: other names of theirs are common."""


def trainer_in(config: Config) -> Trainer | None:
    """The trainer that a config is written for; None for a loop of one's own."""
    names = names_in(config.settings)
    ours = next((row for row in TRAINERS if row.names & names), None)
    known = trainer_of(config)
    proven = known and COUNTED_IN_UPDATES[known] & names
    return Trainer(name=known or "", steps="updates") if proven else ours


def meant(config: Config) -> tuple[tuple[Setting, Key], ...]:
    """Every setting that a key's row means, as this config's trainer means it."""
    trainer = trainer_in(config)
    own = trainer.batch if trainer else None
    others = any(not row.workers and row.names & names_in(config.settings) for row in TRAINERS)
    found = []
    for one in config.settings:
        key = key_of(one.path)
        if key and own == key.name:
            key = Key(name=key.name, role=keys.BATCH, source=trainer.source if trainer else "")
        loads = of_a_loader(one.path, alone=not others) if key else True
        if key and key.role in (keys.WORKERS, keys.PIN) and not loads:
            key = replace(key, role=keys.NOT_A_LOADER)
        if key and one.kind != "map":
            found.append((one, key))
    return tuple(found)
