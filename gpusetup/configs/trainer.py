"""Recognises which trainer a config is for, by keys that only this trainer's configs have.

One common name is not enough: for example, `max_length` and `dataset_name` occur in configs for
TRL, for transformers' examples and for many custom training loops.
"""

from __future__ import annotations

import re

from gpusetup.configs.config import Config
from gpusetup.configs.keys import key_of
from gpusetup.configs.settings import names_in, unquoted

TRAINER_KEYS = (
    ("trinity", "actor_rollout_ref trainer_type algorithm_type explorer use_dynamic_bsz",
                "max_model_len rope_scaling"),
    ("llama-factory", "finetuning_type cutoff_len", ""),
    ("axolotl", "base_model sequence_len", ""),
    ("unsloth", "use_gradient_checkpointing use_rslora", ""),
    ("litgpt", "checkpoint_dir lora_query lora_mlp", ""),
    ("hf", "do_train mlm_probability preprocessing_num_workers dataset_config_name "
           "max_train_samples max_source_length validation_split_percentage", ""),
    ("trl", "use_peft packing dataset_text_field assistant_only_loss completion_only_loss "
            "num_generations num_ppo_epochs", "dataset_name max_length lora_r"),
    ("hf", "per_device_train_batch_size train_micro_batch_size_per_gpu zero_optimization "
           "model_name_or_path", ""),
)  # fmt: skip
"""The trainers in the order in which they are tried, each with the names that only this trainer
reads (one of them is enough to recognise it), and those that other programs read too (two of them
are needed). transformers comes last, because the others build on it."""

LONGEST_NAME = 200
ENCODER_NAME = re.compile(
    r"(?i)(?:^|[/_.-])(?:\w*bert\w*|(?:xlm-?)?roberta\w*|electra|mpnet|minilm\w*|longformer|bigbird"
    r"|xlnet|vit|deit|beit|swin\w*|convnext\w*|clip|wav2vec2?|hubert|whisper|t5|bart)(?:[/_.-]|$)"
)
"""Matches names of text encoders and of translation, image and audio models, which TRL's SFTTrainer
does not train."""


def trainer_of(config: Config) -> str | None:
    """The name of the config's trainer as in `plan --trainer`; None if no known trainer is
    recognised.

    >>> from gpusetup.configs.config import read_config
    >>> head = "model_name_or_path: bert-base-uncased\\nper_device_train_batch_size: 32\\n"
    >>> trainer_of(read_config(f"{head}max_length: 512".encode(), "c.yaml"))
    'hf'
    >>> trainer_of(read_config(b"model: Qwen/Qwen3-4B\\npacking: true", "c.yaml"))
    'trl'
    """
    if any(
        setting.path[-1:] == ("_component_",) and unquoted(setting.text).startswith("torchtune.")
        for setting in config.settings
    ):
        return "torchtune"
    names = names_in(config.settings)
    # Encoders, such as BERT, are trained with transformers' own scripts, whose keys are in the last
    # row. Cut long texts, which would take long to search; no model name is longer.
    names_encoder = any(
        ENCODER_NAME.search(unquoted(setting.text)[:LONGEST_NAME])
        for setting in config.settings
        if (key := key_of(setting.path)) is not None and key.role == "named-model"
    )
    for trainer, own, shared in TRAINER_KEYS:
        # TRL only trains models that generate text.
        if trainer == "trl" and names_encoder:
            continue
        if names.intersection(own.split()) or len(names.intersection(shared.split())) >= 2:
            return trainer
    return None
