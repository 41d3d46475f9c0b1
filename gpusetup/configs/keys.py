"""Which keys of a training config mean what: the table of synonyms.

A row is a name as it stands in a config, its role, and whose it is. `under` narrows a name that is
common elsewhere (`compile`, `workers`); a row with a narrower `under` is found first. A key is
added only for a family that is known to read it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.configs.settings import plain, words_of
from gpusetup.model.frozen import Frozen

BATCH, ACCUMULATION, TOTAL = "batch", "accumulation", "total"
WORKERS, PIN, PERSISTENT, PREFETCH = "workers", "pin", "persistent", "prefetch"
NOT_A_LOADER = "not a loader"
COMPILE, AMP, PRECISION, BF16, FP16 = "compile", "amp", "precision", "bf16", "fp16"
ALLOCATOR, LEARNING_RATE, ROLLOUT = "allocator", "learning-rate", "rollout-batch"
LENGTH, MODEL, LOSS, CLIP, TOKENS = "length", "model", "loss", "clip", "tokens"

NAMED, ADAPTER, RANK, TARGETS = "named-model", "adapter", "rank", "targets"
FOUR_BIT, EIGHT_BIT, QUANTIZE, DOUBLE = "four-bit", "eight-bit", "quantize", "double-quantize"
CHECKPOINTS, NO_CHECKPOINTS, OPTIMIZER = "checkpoints", "no-checkpoints", "optimizer"
ZERO, FSDP, STRATEGY, OFFLOAD = "zero", "fsdp", "strategy", "offload"
OPTIMIZER_OFFLOAD, CHECKPOINT_OFFLOAD = "optimizer-offload", "checkpoint-offload"
GPUS, NODES, TP, PP, CP, SP, EP = "gpus", "nodes", "tp", "pp", "cp", "sp", "ep"
REPLICAS, ATTENTION, DTYPE, PURE = "replicas", "attention", "dtype", "pure-16-bit"
LOSS_KERNEL, KERNELS, IN_BACKWARD = "loss-kernel", "kernels", "step-in-backward"
TRAINED_TOO, PROMPT, RESPONSE = "trained-too", "prompt", "response"
TOTAL_LENGTH, DYNAMIC, STAGE, FLAVOR = "total-length", "dynamic", "stage", "flavor"
BESIDE_MLP, DISTRIBUTED, TP_SP = "beside-mlp", "distributed-optimizer", "tp-sp"
TRAINED_LAYERS = "trained-layers"
PLANS = frozenset((
    NAMED, ADAPTER, RANK, TARGETS, FOUR_BIT, EIGHT_BIT, QUANTIZE, DOUBLE, CHECKPOINTS,
    NO_CHECKPOINTS, OPTIMIZER, ZERO, FSDP, STRATEGY, OFFLOAD, OPTIMIZER_OFFLOAD, GPUS, NODES,
    CHECKPOINT_OFFLOAD, TP, PP, CP, SP, EP, REPLICAS, ATTENTION, DTYPE, PURE, LOSS_KERNEL,
    KERNELS, IN_BACKWARD, TRAINED_TOO, PROMPT, RESPONSE, TOTAL_LENGTH, DYNAMIC, STAGE,
    FLAVOR, BESIDE_MLP, DISTRIBUTED, TP_SP, TRAINED_LAYERS,
))  # fmt: skip
"""Roles that only `plan` asks for: they say what memory takes, and `tune` never writes them."""

GUIDES = "the plain names of the acceleration and optimisation guides"
HUGGING_FACE = "transformers.TrainingArguments"
LIGHTNING = "lightning.Trainer, LightningDataModule"
DEEPSPEED = "DeepSpeed configuration JSON"
TRINITY = "Trinity-RFT configuration, veRL"
AXOLOTL = "axolotl configuration"
MEGATRON = "NeMo, Megatron-LM"
ULTRALYTICS = "Ultralytics train settings"
DETECTRON = "detectron2 configuration"
FACTORY = "LLaMA-Factory arguments"
TORCHTUNE = "torchtune recipe configuration"
TITAN = "torchtitan job configuration"
LITGPT = "litgpt configuration"
UNSLOTH = "Unsloth arguments"
ACCELERATE = "accelerate configuration"
TRL = "trl configuration"
MMENGINE = "mmengine configuration"
TIMM = "timm, train.py"
NANOTRON = "nanotron configuration"
NEMO_RL = "NeMo-RL configuration"
WENET = "WeNet, ESPnet"


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
    *_rows(AMP, "enabled ENABLED", DETECTRON, under=("amp", "AMP")),
    *_rows(BATCH, "IMS_PER_BATCH", DETECTRON, under=("SOLVER",), written=False),
    *_rows(WORKERS, "NUM_WORKERS", DETECTRON, under=("DATALOADER",)),
    *_rows(PRECISION, "precision", LIGHTNING, under=("trainer",)),
    *_rows(ACCUMULATION, "accumulate_grad_batches", LIGHTNING),
    *_rows(NAMED, "path", TRINITY, under=("model",), written=False),
    *_rows(NAMED, "name", TITAN, under=("model",), written=False),
    *_rows(NAMED, "_component_", TORCHTUNE, under=("model",), written=False),
    *_rows(OPTIMIZER, "_component_", TORCHTUNE, under=("optimizer",), written=False),
    *_rows(LOSS_KERNEL, "_component_", TORCHTUNE, under=("loss",), written=False),
    *_rows(OPTIMIZER, "type", DEEPSPEED, under=("optimizer",), written=False),
    *_rows(OPTIMIZER, "name", TITAN, under=("optimizer",), written=False),
    *_rows(OPTIMIZER, "class_path", LITGPT, under=("optimizer",), written=False),
    *_rows(IN_BACKWARD, "early_step_in_backward", TITAN, under=("optimizer",), written=False),
    *_rows(CHECKPOINTS, "mode", TITAN, under=("activation_checkpoint",), written=False),
    *_rows(ZERO, "stage", DEEPSPEED, under=("zero_optimization",), written=False),
    *_rows(OPTIMIZER_OFFLOAD, "device", DEEPSPEED, under=("offload_optimizer",), written=False),
    *_rows(OFFLOAD, "device", DEEPSPEED, under=("offload_param",), written=False),
    *_rows(RANK, "r rank", "peft.LoraConfig", under=("lora", "peft", "lora_config"), written=False),
    *_rows(BATCH, "local_batch_size", TITAN, under=("training",), written=False),
    *_rows(TOTAL, "global_batch_size", LITGPT, under=("train",), written=False),
    *_rows(COMPILE, "enable", TITAN, under=("compile",)),
    *_rows(STRATEGY, "strategy", TRINITY, under=("actor", "trainer"), written=False),
    *_rows(STAGE, "algorithm_type", TRINITY, under=("algorithm",), written=False),
    # Batch times accumulation.
    *_rows(BATCH, "batch_size train_batch_size_per_gpu batch_size_per_gpu batchsize"),
    *_rows(BATCH, "per_device_train_batch_size", HUGGING_FACE),
    *_rows(BATCH, "samples_per_gpu", MMENGINE),
    *_rows(BATCH, "total_batch_size", DETECTRON, written=False),
    *_rows(BATCH, "train_micro_batch_size_per_gpu", DEEPSPEED),
    *_rows(BATCH, "ppo_micro_batch_size_per_gpu", TRINITY, written=False),
    *_rows(BATCH, "micro_batch_size", f"{AXOLOTL}; {MEGATRON}"),
    *_rows(BATCH, "batch", ULTRALYTICS, written=False),
    *_rows(BATCH, "train_micro_batch_size", NEMO_RL),
    *_rows(TOTAL, "train_global_batch_size", NEMO_RL),
    *_rows(TOTAL, "train_batch_size", DEEPSPEED),
    *_rows(TOTAL, "global_batch_size", MEGATRON),
    *_rows(ACCUMULATION, "gradient_accumulation_steps", f"{HUGGING_FACE}; DeepSpeed; axolotl"),
    *_rows(ACCUMULATION, "accumulation_steps grad_accumulation_steps grad_accum_steps grad_accum"),
    *_rows(ACCUMULATION, "accumulate_steps gradient_accumulation accum_steps"),
    *_rows(ACCUMULATION, "accumulative_counts", MMENGINE),
    *_rows(ACCUMULATION, "accum_grad", WENET),
    *_rows(ACCUMULATION, "batch_accumulation_per_replica", NANOTRON),
    # Loading.
    *_rows(WORKERS, "num_workers workers n_workers loader_workers"),
    *_rows(WORKERS, "dataloader_num_workers", HUGGING_FACE),
    *_rows(WORKERS, "workers_per_gpu", MMENGINE),
    *_rows(WORKERS, "num_loading_workers", NANOTRON),
    *_rows(PIN, "pin_memory"),
    *_rows(PIN, "pin_mem", TIMM),
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
    *_rows(LENGTH, "model_max_length encoder_seq_length", written=False),
    *_rows(MODEL, "base_channels num_blocks patch_size hidden_size hidden_dim", written=False),
    *_rows(MODEL, "embedding_dim num_users num_items n_embd d_model", written=False),
    *_rows(LOSS, "use_perceptual", written=False),
    *_rows(CLIP, "grad_clip max_grad_norm gradient_clip_val gradient_clipping", written=False),
    *_rows(CLIP, "clip_grad_norm clip_grad clip_norm clip_gradient grad_clip_norm", written=False),
    *_rows(TOKENS, "max_token_len_per_gpu ppo_max_token_len_per_gpu", TRINITY, written=False),
    # What only a plan asks for.
    *_rows(NAMED, "model_name_or_path", f"{HUGGING_FACE}; {TRL}; {FACTORY}", written=False),
    *_rows(NAMED, "base_model", AXOLOTL, written=False),
    *_rows(NAMED, "model_path", TRINITY, written=False),
    *_rows(NAMED, "model_name checkpoint_dir", f"{LITGPT}; {UNSLOTH}", written=False),
    *_rows(FLAVOR, "flavor", TITAN, under=("model",), written=False),
    *_rows(
        ADAPTER,
        "adapter finetuning_type use_peft use_lora",
        f"{AXOLOTL}; {FACTORY}; {TRL}",
        written=False,
    ),
    *_rows(RANK, "lora_r lora_rank", f"{AXOLOTL}; {TRL}; {FACTORY}; {TRINITY}", written=False),
    *_rows(
        TARGETS,
        "lora_target lora_target_modules target_modules lora_target_linear lora_attn_modules",
        f"{AXOLOTL}; {FACTORY}; {TRL}; {TORCHTUNE}",
        written=False,
    ),
    *_rows(TRAINED_LAYERS, "freeze_trainable_layers", FACTORY, written=False),
    *_rows(BESIDE_MLP, "apply_lora_to_mlp", TORCHTUNE, written=False),
    *_rows(
        TRAINED_TOO,
        "modules_to_save lora_modules_to_save additional_target",
        "peft.LoraConfig",
        written=False,
    ),
    *_rows(FOUR_BIT, "load_in_4bit", "transformers.BitsAndBytesConfig", written=False),
    *_rows(EIGHT_BIT, "load_in_8bit", "transformers.BitsAndBytesConfig", written=False),
    *_rows(QUANTIZE, "quantize quantization_bit", f"{LITGPT}; {FACTORY}", written=False),
    *_rows(
        DOUBLE,
        "bnb_4bit_use_double_quant double_quantization use_bnb_nested_quant",
        "transformers.BitsAndBytesConfig",
        written=False,
    ),
    *_rows(
        CHECKPOINTS,
        "gradient_checkpointing enable_gradient_checkpointing "
        "use_gradient_checkpointing enable_activation_checkpointing activation_checkpointing "
        "fsdp_activation_checkpointing recompute_granularity activations_checkpoint_granularity",
        "the trainers' own documentation",
        written=False,
    ),
    *_rows(NO_CHECKPOINTS, "disable_gradient_checkpointing", FACTORY, written=False),
    *_rows(
        CHECKPOINT_OFFLOAD,
        "enable_activation_offloading activation_offloading use_unsloth_gc",
        f"{TORCHTUNE}; {TRL}; {FACTORY}",
        written=False,
    ),
    *_rows(OPTIMIZER, "optim optimizer", f"{HUGGING_FACE}; {AXOLOTL}; {LITGPT}", written=False),
    *_rows(IN_BACKWARD, "optimizer_in_bwd", TORCHTUNE, written=False),
    *_rows(ZERO, "deepspeed zero_stage", f"{HUGGING_FACE}; {ACCELERATE}", written=False),
    *_rows(FSDP, "fsdp", HUGGING_FACE, written=False),
    *_rows(FSDP, "fsdp_sharding_strategy fsdp_version", ACCELERATE, written=False),
    *_rows(STRATEGY, "distributed_type", ACCELERATE, written=False),
    *_rows(
        OFFLOAD,
        "fsdp_offload_params offload_params fsdp_cpu_offload enable_cpu_offload "
        "param_offload offload_policy",
        f"{ACCELERATE}; {TORCHTUNE}; {TITAN}; {TRINITY}",
        written=False,
    ),
    *_rows(
        OPTIMIZER_OFFLOAD,
        "optimizer_offload offload_optimizer_device",
        f"{TRINITY}; {ACCELERATE}",
        written=False,
    ),
    *_rows(
        GPUS,
        "num_processes nproc_per_node n_gpus_per_node gpu_per_node num_gpus devices "
        "gpus trainer_gpu_num",
        f"{ACCELERATE}; {TRINITY}; {LITGPT}",
        written=False,
    ),
    *_rows(NODES, "nnodes num_nodes node_num", f"{TRINITY}; {LITGPT}", written=False),
    *_rows(
        TP,
        "tensor_model_parallel_size tensor_parallel_size tensor_parallel_degree "
        "tensor_parallel_dim",
        f"{MEGATRON}; {TITAN}; {AXOLOTL}; {TORCHTUNE}",
        written=False,
    ),
    *_rows(
        PP,
        "pipeline_model_parallel_size pipeline_parallel_degree",
        f"{MEGATRON}; {TITAN}",
        written=False,
    ),
    *_rows(
        CP, "context_parallel_size context_parallel_degree", f"{MEGATRON}; {TITAN}", written=False
    ),
    *_rows(
        SP,
        "ulysses_sequence_parallel_size sequence_parallel_size sequence_parallel_degree",
        f"{TRINITY}; {AXOLOTL}",
        written=False,
    ),
    *_rows(
        EP,
        "expert_model_parallel_size expert_parallel_degree",
        f"{MEGATRON}; {TITAN}",
        written=False,
    ),
    *_rows(DISTRIBUTED, "use_distributed_optimizer", MEGATRON, written=False),
    *_rows(TP_SP, "sequence_parallel", MEGATRON, written=False),
    *_rows(REPLICAS, "data_parallel_replicate_degree", TITAN, written=False),
    *_rows(
        ATTENTION,
        "attn_implementation flash_attention flash_attn sdp_attention eager_attention",
        f"{TRL}; {AXOLOTL}; {FACTORY}",
        written=False,
    ),
    *_rows(DTYPE, "torch_dtype dtype model_dtype", f"{TRL}; {TORCHTUNE}; {TRINITY}", written=False),
    *_rows(PRECISION, "precision", LITGPT, written=False),
    *_rows(PURE, "pure_bf16", FACTORY, written=False),
    *_rows(
        LOSS_KERNEL,
        "liger_fused_linear_cross_entropy cut_cross_entropy use_fused_kernels "
        "flash_attn_cross_entropy loss_fn",
        f"{AXOLOTL}; {TRINITY}; llm-foundry",
        written=False,
    ),
    *_rows(
        KERNELS,
        "use_liger_kernel enable_liger_kernel use_liger use_unsloth",
        f"{HUGGING_FACE}; {FACTORY}; {TRINITY}",
        written=False,
    ),
    *_rows(PROMPT, "max_prompt_tokens max_prompt_length", TRINITY, written=False),
    *_rows(RESPONSE, "max_response_tokens max_response_length", TRINITY, written=False),
    *_rows(TOTAL_LENGTH, "max_model_len", TRINITY, written=False),
    *_rows(DYNAMIC, "use_dynamic_bsz", TRINITY, written=False),
    *_rows(STAGE, "stage rl", f"{FACTORY}; {AXOLOTL}", written=False),
)

NOT_TRAINING = frozenset((
    "val", "valid", "validate", "validation", "eval", "evaluation", "evaluator", "test", "testing",
    "predict", "prediction", "infer", "inference", "explorer", "generation", "sampling", "serve",
    "serving",
))  # fmt: skip
"""A key under one of these words (`val_dataloader`, `cfg.eval`) says nothing about training."""
TRAINING = frozenset(("train", "training", "trainer"))
"""Where one of these stands beside it (`train_test_loader`), it does."""
ELSEWHERE = frozenset((
    "offload_optimizer", "offload_param", "zero_optimization", "aio", "autotuning", "elasticity",
    "flops_profiler", "rollout", "vllm", "ray_init", "preprocessing", "tokenization",
))  # fmt: skip
"""Maps in which a loader's names mean something else (`offload_optimizer.pin_memory`)."""

ADDED: tuple[tuple[str, str, str, str], ...] = (
    ("per_device_train_batch_size", ACCUMULATION, "gradient_accumulation_steps", HUGGING_FACE),
    ("per_device_train_batch_size", WORKERS, "dataloader_num_workers", HUGGING_FACE),
    ("per_device_train_batch_size", COMPILE, "torch_compile", HUGGING_FACE),
    ("per_device_train_batch_size", BF16, "bf16", HUGGING_FACE),
    ("per_device_train_batch_size", FP16, "fp16", HUGGING_FACE),
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
    words = [plain(word) for word in path if isinstance(word, str)]
    if not words or any(not_training(word) for word in words[:-1]):
        return None
    found = next(
        (
            row
            for row in KEYS
            if row.name == words[-1] and (not row.under or set(row.under) & set(words[:-1]))
        ),
        None,
    )
    elsewhere = found and found.role in LOADER and ELSEWHERE & set(words[:-1])
    return None if elsewhere else found


LOADER = frozenset((BATCH, WORKERS, PIN, PERSISTENT, PREFETCH))


def not_training(word: str) -> bool:
    """
    >>> not_training("val_dataloader"), not_training("validation_ds"), not_training("evalLoader")
    (True, True, True)
    >>> not_training("train_eval_loader"), not_training("value_network")
    (False, False)
    """
    parts = words_of(word)
    return bool(parts & NOT_TRAINING) and not parts & TRAINING


def looked_for() -> str:
    """The names that are written, for the message when none of them is there."""
    return ", ".join(dict.fromkeys(row.name for row in KEYS if row.written and not row.under))
