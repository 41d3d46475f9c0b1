"""Expresses a job and its recipe in the config keys and values of each trainer.

The names are those of the trainer versions in `data/plan/trainers.json`. Data, learning rate and
similar settings are left to the user.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpusetup.plan.job import Recipe, TrainingJob, samples, tokens, yarn
from gpusetup.plan.models import hub_id
from gpusetup.plan.settings_text import Values


class JobAndRecipe(NamedTuple):
    """A job and its recipe, from which a trainer's settings are derived."""

    job: TrainingJob
    recipe: Recipe

    @property
    def model(self) -> str:
        """The model's id on the Hugging Face hub, or its name if plan does not know the model."""
        name = self.job.shape.name
        return hub_id(name)

    @property
    def samples(self) -> int:
        """The number of sequences in one micro-batch on one GPU."""
        return samples(self.job, self.recipe)

    @property
    def half(self) -> str:
        """The type used for computing: `bf16`, `fp16` or `fp32`."""
        weights = self.job.dtype
        return self.job.amp or weights

    @property
    def budget(self) -> int | None:
        """The tokens that one GPU processes at once if the job fills a token budget; None if the
        batch is a number of sequences."""
        if not self.job.fills_token_budget:
            return None
        return tokens(self.job, self.recipe)

    @property
    def has_4_bit_base(self) -> bool:
        """Whether the base for adapters is stored in 4 bits (nf4)."""
        storage = self.job.quantize
        return storage in ("nf4", "nf4-dq")


def only_if(condition: object, value: Any) -> Any:
    """The value if the condition is true; otherwise None, which leaves the key out of the
    settings."""
    return value if condition else None


# --- trainers for reinforcement learning ----------------------------------------------------------


def trinity(facts: JobAndRecipe) -> Values:
    """The settings for Trinity-RFT. If its two token limits are not set, they default to `ceil(2 *
    max_model_len / SP)`."""
    is_dynamic = facts.budget is not None
    actor: Values = {
        "ppo_max_token_len_per_gpu": facts.budget,
        "ppo_micro_batch_size_per_gpu": only_if(not is_dynamic, facts.samples),
    }
    if facts.recipe.offload:
        actor |= {"strategy": "fsdp2", "fsdp_config": {"offload_policy": True}}
    reference: Values = {"log_prob_max_token_len_per_gpu": facts.budget}
    return {
        "model": {
            "model_path": facts.model,
            "max_model_len": facts.job.context,
            "rope_scaling": yarn(facts.job),
        },
        "trainer": {
            "use_dynamic_bsz": is_dynamic,
            "ulysses_sequence_parallel_size": facts.recipe.sp,
            "max_token_len_per_gpu": facts.budget,
            "trainer_config": {"actor_rollout_ref": {"actor": actor, "ref": reference}},
        },
    }


def verl(facts: JobAndRecipe) -> Values:
    """The Hydra overrides for verl; reference and rollout get the same token budget as the
    actor."""
    is_dynamic = facts.budget is not None
    is_fsdp1 = facts.job.strategy == "fsdp1" and not facts.recipe.offload
    actor: Values = {
        "strategy": "fsdp" if is_fsdp1 else "fsdp2",
        "use_dynamic_bsz": is_dynamic,
        "ppo_max_token_len_per_gpu": facts.budget,
        "ppo_micro_batch_size_per_gpu": only_if(not is_dynamic, facts.samples),
        "ulysses_sequence_parallel_size": facts.recipe.sp,
        "fsdp_config": {"offload_policy": only_if(facts.recipe.offload, True)},
    }
    log_prob: Values = {
        "log_prob_use_dynamic_bsz": is_dynamic,
        "log_prob_max_token_len_per_gpu": facts.budget,
        "log_prob_micro_batch_size_per_gpu": only_if(not is_dynamic, facts.samples),
    }
    return {
        "actor_rollout_ref": {
            "model": {
                "path": facts.model,
                "enable_gradient_checkpointing": facts.job.checkpointing,
            },
            "actor": actor,
            "ref": log_prob,
            "rollout": log_prob,
        },
        "trainer": {"n_gpus_per_node": min(facts.job.gpus, 8)},
    }


# --- transformers' Trainer and trainers based on it -----------------------------------------------

HF_OPTIMIZERS = {
    "adamw8bit": "adamw_bnb_8bit", "adamw4bit": "adamw_torch_4bit",
    "paged-adamw": "paged_adamw_32bit", "paged-adamw8bit": "paged_adamw_8bit",
    "adafactor": "adafactor", "lion": "lion_32bit", "lion8bit": "lion_8bit", "sgd": "sgd",
    "adagrad": "adagrad", "rmsprop": "rmsprop",
}  # fmt: skip
"""Optimizers other than AdamW -> their names in `TrainingArguments.optim`."""
TORCH_TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def hf_optimizer(job: TrainingJob) -> str | None:
    """The value for the `optim` argument of transformers; None if transformers does not have the
    optimizer."""
    if job.optimizer not in ("adam", "adamw"):
        return HF_OPTIMIZERS.get(job.optimizer)
    if job.step == "fused":
        return "adamw_torch_fused"
    return "adamw_torch"


def deepspeed_file(job: TrainingJob) -> str | None:
    """The name of the DeepSpeed config for the job's ZeRO stage; None without ZeRO. The user must
    create this file."""
    if not job.strategy.startswith("zero"):
        return None
    return f"ds_{job.strategy}.json"


def hf(facts: JobAndRecipe) -> Values:
    """The `TrainingArguments` of transformers, as flags for a script that parses them."""
    job = facts.job
    return {
        "model_name_or_path": facts.model,
        "per_device_train_batch_size": facts.samples,
        "gradient_accumulation_steps": job.accumulate,
        "gradient_checkpointing": job.checkpointing,
        "optim": hf_optimizer(job),
        "dtype": TORCH_TYPES[job.dtype],
        "bf16": only_if(job.amp == "bf16", True),  # autocast, with weights in `dtype`
        "fp16": only_if(job.amp == "fp16", True),
        "torch_compile": only_if(job.compile, True),
        "use_liger_kernel": only_if(job.fused_kernels, True),
        "deepspeed": deepspeed_file(job),
        "fsdp": only_if(job.strategy in ("fsdp", "fsdp1"), "full_shard auto_wrap"),
    }


def trl(facts: JobAndRecipe) -> Values:
    """The flags for `trl sft`: those of `SFTConfig`, `ModelConfig` and transformers."""
    job = facts.job
    return hf(facts) | {
        "bf16": only_if(facts.half == "bf16", True),
        "fp16": only_if(facts.half == "fp16", True),
        "max_length": job.context,
        "use_peft": only_if(job.lora is not None, True),
        "lora_r": job.lora,
        "lora_target_modules": only_if(job.lora is not None, "all-linear"),
        "load_in_4bit": only_if(facts.has_4_bit_base, True),
        "use_bnb_nested_quant": only_if(job.quantize == "nf4-dq", True),
        "load_in_8bit": only_if(job.quantize == "int8", True),
        "activation_offloading": only_if(job.offload_checkpoints, True),
    }


def llama_factory(facts: JobAndRecipe) -> Values:
    """The settings for `llamafactory-cli train`, which builds on transformers' arguments."""
    job = facts.job
    quantization_bits = {"nf4": 4, "nf4-dq": 4, "int8": 8}.get(job.quantize or "")
    names_of_attention = {"flash": "fa2", "sdpa": "sdpa", "eager": "disabled"}
    arguments = hf(facts)
    for name in ("gradient_checkpointing", "use_liger_kernel", "dtype"):
        del arguments[name]  # LLaMA-Factory has its own names for these settings
    return arguments | {
        "bf16": only_if(facts.half == "bf16", True),
        "fp16": only_if(facts.half == "fp16", True),
        "finetuning_type": "full" if job.lora is None else "lora",
        "lora_rank": job.lora,
        "lora_target": only_if(job.lora is not None, "all"),
        "quantization_bit": quantization_bits,
        "double_quantization": only_if(quantization_bits == 4, job.quantize == "nf4-dq"),
        "cutoff_len": job.context,
        "flash_attn": names_of_attention[job.attention],
        "disable_gradient_checkpointing": not job.checkpointing,
        "pure_bf16": only_if(job.lora is None and job.dtype == "bf16" and not job.amp, True),
        "enable_liger_kernel": only_if(job.fused_kernels, True),
    }


def axolotl(facts: JobAndRecipe) -> Values:
    job = facts.job
    adapter = only_if(job.lora is not None, "qlora" if facts.has_4_bit_base else "lora")
    return {
        "base_model": facts.model,
        "sequence_len": job.context,
        "sample_packing": True,
        "adapter": adapter,
        "lora_r": job.lora,
        "lora_target_linear": only_if(adapter, True),
        "load_in_4bit": only_if(facts.has_4_bit_base, True),
        "bnb_4bit_use_double_quant": only_if(facts.has_4_bit_base, job.quantize == "nf4-dq"),
        "load_in_8bit": only_if(job.quantize == "int8", True),
        "micro_batch_size": facts.samples,
        "gradient_accumulation_steps": job.accumulate,
        "optimizer": hf_optimizer(job),
        "bf16": only_if(facts.half == "bf16", True),
        "fp16": only_if(facts.half == "fp16", True),
        "gradient_checkpointing": job.checkpointing,
        "flash_attention": only_if(job.attention == "flash", True),
        "sdp_attention": only_if(job.attention == "sdpa", True),
        "cut_cross_entropy": only_if(job.loss == "fused", True),
        "torch_compile": only_if(job.compile, True),
        "tensor_parallel_size": only_if(job.tensor_parallel > 1, job.tensor_parallel),
        "context_parallel_size": only_if(job.context_parallel > 1, job.context_parallel),
        "deepspeed": only_if(deepspeed_file(job), f"deepspeed_configs/{job.strategy}.json"),
        "fsdp_version": only_if(job.strategy in ("fsdp", "fsdp1"), 2),
    }
