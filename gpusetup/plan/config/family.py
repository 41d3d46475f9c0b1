"""Which trainer a config is written for, by the names that only its configs have."""

from __future__ import annotations

from gpusetup.configs.config import Config
from gpusetup.configs.settings import names_in
from gpusetup.model.frozen import Frozen


class Family(Frozen):
    """A trainer and the names of which one says that the config is its own."""

    trainer: str
    names: frozenset[str]
    together: frozenset[str] = frozenset()
    """Names that say so only together: each is another's, too."""

    def wrote(self, names: frozenset[str]) -> bool:
        together = bool(self.together) and self.together <= names
        return together or bool(self.names & names)


FAMILIES = (
    Family(
        trainer="trinity",
        names=frozenset((
            "actor_rollout_ref", "trainer_type", "algorithm_type", "explorer", "use_dynamic_bsz",
        )),
        together=frozenset(("max_model_len", "rope_scaling")),
    ),
    Family(
        trainer="torchtitan",
        names=frozenset((
            "activation_checkpoint", "local_batch_size", "flavor", "tensor_parallel_degree",
            "data_parallel_shard_degree", "pipeline_parallel_degree",
        )),
    ),
    Family(trainer="llama-factory", names=frozenset(("finetuning_type", "cutoff_len"))),
    Family(trainer="axolotl", names=frozenset(("base_model", "sequence_len"))),
    Family(trainer="unsloth", names=frozenset(("use_gradient_checkpointing", "use_rslora"))),
    Family(trainer="litgpt", names=frozenset(("checkpoint_dir", "lora_query", "lora_mlp"))),
    Family(
        trainer="megatron",
        names=frozenset(("tensor_model_parallel_size", "pipeline_model_parallel_size")),
    ),
    Family(
        trainer="hf",  # transformers' example scripts name their data as trl's scripts do
        names=frozenset((
            "do_train", "mlm_probability", "preprocessing_num_workers", "dataset_config_name",
            "max_train_samples", "max_source_length", "validation_split_percentage",
        )),
    ),
    Family(
        trainer="trl",
        names=frozenset(("use_peft", "dataset_name", "max_length", "packing", "lora_r")),
    ),
    Family(
        trainer="hf",
        names=frozenset((
            "per_device_train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization",
            "model_name_or_path",
        )),
    ),
)  # fmt: skip
"""In order: names that several have come last."""


def trainer_of(config: Config) -> str | None:
    """The trainer's name as `--trainer` takes it; None for a plain loop."""
    components = [one.text for one in config.settings if one.path[-1:] == ("_component_",)]
    if any(text.startswith("torchtune.") for text in components):
        return "torchtune"
    names = names_in(config.settings)
    return next((row.trainer for row in FAMILIES if row.wrote(names)), None)


LENGTHS = {"trl": 1024, "llama-factory": 2048, "torchtitan": 2048}
"""Trainer -> tokens of a sequence where its config says nothing (their own documentation)."""
