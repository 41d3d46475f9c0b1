"""Recognises keys of training configs that are known not to need GPU memory.

A key needs none if every word of its name is in `WORDS` (`output_dir`, `logging_steps`), if it is
in a map about data, logging or the like, or if its value switches it off. If plan does not
understand a key and this module does not know it either, the plan is not certain.
"""

from __future__ import annotations

from gpusetup.configs.keys import is_other_phase, key_of
from gpusetup.configs.settings import EMPTY, FALSE, Path, words_of

WORDS = frozenset((
    # Filler words in the names of settings.
    "a", "and", "as", "at", "by", "count", "default", "dict", "do", "each", "enable", "enabled",
    "every", "first", "for", "freq", "frequency", "from", "id", "ids", "if", "in", "index", "init",
    "interval", "is", "kwargs", "last", "list", "mode", "n", "name", "names", "no", "num", "number",
    "of", "on", "only", "or", "per", "period", "strategy", "the", "to", "total", "type", "use",
    "value", "version", "with", "args", "arguments", "config", "options", "max", "min", "limit",
    # Files and folders.
    "dir", "directory", "file", "files", "folder", "path", "paths", "prefix", "root", "output",
    "outputs", "out", "overwrite", "resume", "save", "saving", "saves", "safe", "safetensors",
    "serialization", "checkpoint", "checkpoints", "dump", "keep", "best", "load", "end", "start",
    "json", "yaml", "csv", "cache", "local", "shm", "disk",
    # Logging and accounts.
    "log", "logs", "logging", "logger", "loggers", "report", "reports", "reporting", "wandb",
    "mlflow", "tensorboard", "swanlab", "trackio", "comet", "neptune", "clearml", "project", "run",
    "runs", "experiment", "exp", "entity", "group", "tag", "tags", "notes", "watch", "hub", "push",
    "token", "private", "trust", "remote", "code", "verbose", "print", "progress", "bar", "tqdm",
    "plot", "loss", "level", "debug", "dry", "job", "description", "desc", "author", "username",
    "proxy", "url", "host", "port", "master", "addr", "address", "rdzv", "endpoint", "timeout",
    "ddp", "backend", "nccl", "gloo", "message", "notify", "email", "include", "revision", "tokens",
    "seen", "throughput", "speed", "metric", "metrics", "greater", "better", "stdout", "console",
    # Randomness and schedules.
    "seed", "seeds", "seedable", "random", "deterministic", "determinism", "benchmark", "cudnn",
    "tf", "epoch", "epochs", "step", "steps", "iter", "iters", "iterations", "duration", "time",
    "hours", "minutes", "lr", "learning", "rate", "warmup", "warm", "up", "decay", "scheduler",
    "schedule", "cosine", "linear", "constant", "cycle", "cycles", "gamma", "factor", "patience",
    "early", "stopping", "stop", "threshold", "delta", "weight", "beta", "betas", "eps", "epsilon",
    "momentum", "nesterov", "clip", "clipping", "norm", "grad", "gradient", "gradients", "final",
    "peak", "power", "ratio", "fraction", "percent", "temperature", "top", "p", "k", "label",
    "labels", "smoothing", "smoother", "noise", "neftune", "alpha", "coef", "coeff", "kl",
    "entropy", "lam", "lambda", "mu", "sigma", "discount", "whiten", "advantages", "normalize",
    "advantage", "adam", "average", "across", "devices", "watchdog", "stats",
    # Data.
    "data", "dataset", "datasets", "datamodule", "split", "splits", "subset", "train", "training",
    "trainer", "test", "testing", "val", "valid", "validation", "eval", "evaluation", "evaluate",
    "evals", "predict", "shuffle", "sampler", "sampling", "streaming", "buffer", "shard", "shards",
    "worker", "workers", "proc", "procs", "process", "preprocess", "preprocessing", "prefetch",
    "pin", "mem", "persistent", "dataloader", "loader", "drop", "last", "collator", "collate",
    "template", "prompt", "prompts", "system", "chat", "conversation", "conversations", "messages",
    "instruction", "role", "roles", "user", "assistant", "field", "fields", "key", "keys", "column",
    "columns", "text", "format", "formatting", "tokenizer", "tokenize", "tokenized", "special",
    "eos", "bos", "pad", "padding", "side", "truncation", "truncate", "mask", "history", "repeat",
    "augment", "augmentation", "mean", "std", "samples", "sample", "examples", "remove", "unused",
    "instance", "class", "caption", "captions", "answer", "question", "response", "query", "group",
    "language", "task", "tasks", "num", "ignore", "skip", "sanity", "check", "checks", "strict",
    "find", "parameters", "rslora", "pissa", "rank", "world", "node", "machine", "accelerator",
    "device", "plugin", "environment", "env", "main", "compute", "launcher", "rdzv", "static",
    "network", "downcast", "same", "tpu", "cpu", "hostfile", "monitor", "callbacks", "callback",
    "profiler", "profile", "freq", "weights", "ckpt", "bench", "exist", "ok", "fast", "tool",
    "tools", "episodes", "prepared", "everything", "batches", "thinking", "thought", "turns",
    "rollout", "custom",
))  # fmt: skip
"""Words that do not refer to GPU memory. Words that sometimes do are left out: `model`, `reward`,
`quant`, `bits`, `offload`, `generations`, `expert`, `ema`, `lora`, `cached`, `size`, `memory`."""

NAMES = frozenset((
    # Adapters: scale, dropout (its mask is small compared with the other activations) and
    # initialisation.
    "lora_alpha", "lora_dropout", "lora_bias", "lora_init", "init_lora_weights", "use_rslora",
    "bias", "peft_type", "alpha", "dropout", "rank_dropout", "lora_scale",
    # Settings that plan assumes even without them: 16-bit computing and the kind of 4-bit weights.
    "bnb_4bit_compute_dtype", "bnb_4bit_quant_type", "bnb_4bit_quant_storage", "quant_method",
    "quantization_method", "remove_unused_columns", "group_by_length", "length_column_name",
    "model_type", "tokenizer_type", "is_llama_derived_model", "is_mistral_derived_model",
    "is_falcon_derived_model", "is_qwen_derived_model", "model_revision", "trust_remote_code",
    "model_author", "train_type", "tuner_type", "cls_model_type", "task_type", "add_bos_token",
    "use_fast_tokenizer", "use_reentrant", "strict", "packing", "packing_strategy", "padding_free",
    "sample_packing", "eval_sample_packing", "pad_to_sequence_len", "flash_attn_fuse_qkv",
    "s2_attention", "xformers_attention", "full_determinism",
    # Communication settings of DeepSpeed and FSDP. plan already counts buffers for the buckets.
    "overlap_comm", "contiguous_gradients", "reduce_scatter", "allgather_partitions",
    "round_robin_gradients", "loss_scale", "loss_scale_window", "initial_scale_power", "hysteresis",
    "min_loss_scale", "auto_cast", "steps_per_print", "wall_clock_breakdown",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "reduce_bucket_size",
    "allgather_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
    "stage3_gather_16bit_weights_on_model_save", "stage3_max_live_parameters",
    "stage3_max_reuse_distance", "sub_group_size", "fsdp_auto_wrap_policy",
    "fsdp_transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap", "auto_wrap_policy",
    "fsdp_backward_prefetch", "fsdp_backward_prefetch_policy", "backward_prefetch",
    "forward_prefetch", "limit_all_gathers", "sync_module_states", "fsdp_sync_module_states",
    "fsdp_use_orig_params", "use_orig_params", "fsdp_state_dict_type", "state_dict_type",
    "fsdp_cpu_ram_efficient_loading", "cpu_ram_efficient_loading", "fsdp_forward_prefetch",
    "fsdp_final_state_dict_type", "final_state_dict_type", "fsdp_reshard_after_forward",
    "data_parallel_shard_degree", "fsdp_size", "selective_ac_option", "hybrid_engine",
    # Settings of the optimizer's step, which plan reads elsewhere, and kernels that only save
    # memory.
    "fused", "foreach", "maximize", "torch_compile_backend", "torch_compile_mode",
    "lora_qkv_kernel", "lora_mlp_kernel", "lora_o_kernel", "loraplus_lr_ratio", "use_mps_device",
    "log_peak_memory_stats", "torch_empty_cache_steps", "gradient_checkpointing_kwargs",
    # Usual settings of trainers for text models.
    "use_remove_padding", "remove_padding", "use_liger", "external_lib", "return_raw_input_ids",
    "return_raw_chat", "lora_query", "lora_key", "lora_value", "lora_projection", "lora_mlp",
    "lora_head", "lora_target_linear", "lora_modules", "peft_layers_to_transform", "trl",
    "num_epochs", "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "special_tokens_mask",
    "vocab_file", "chat_template", "attn_temperature",
    # RL: the number of updates per generated batch, and the weights in the loss.
    "num_iterations", "ppo_epochs", "num_ppo_epochs", "num_mini_batches", "ppo_mini_batch_size",
    "cliprange", "cliprange_value", "vf_coef", "clip_ratio", "cliprange_low", "clip_ratio_low",
    "clip_ratio_high", "scale_rewards", "reward_weights", "loss_agg_mode", "critic_warmup",
    "missing_eos_penalty", "kl_estimator", "pref_loss", "pref_beta", "pref_ftx", "simpo_gamma",
    "loss_type", "log_completions", "mask_truncated_completions", "rpo_alpha", "sft_weight",
    "top_entropy_quantile", "importance_sampling_level", "use_kl_in_reward", "kl_ctrl",
    "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_server_base_url",
    "repeat_times", "sft_model_path", "total_epochs", "enforce_eager", "min_p",
    "repetition_penalty", "undesirable_weight", "desirable_weight", "actor_learning_rate",
    "critic_learning_rate",
))  # fmt: skip
"""Full names of keys that need no GPU memory in addition to what plan counts."""

ROLES = frozenset((
    "learning-rate", "warm-up", "clip", "workers", "pin", "persistent", "prefetch", "rollout-batch",
))  # fmt: skip
"""Roles of keys (`data/plan/keys.json`) that do not affect GPU memory."""

MAPS = frozenset((
    "data", "dataset", "datasets", "train_dataset", "eval_dataset", "val_dataset", "test_datasets",
    "train_loader", "eval_loader", "val_loader", "validation", "logger", "logging", "log", "wandb",
    "swanlab", "tensorboard", "callbacks", "scheduler", "lr_scheduler", "lr_schedule", "tokenizer",
    "eval", "evaluation", "evaluator", "metrics", "checkpoint", "checkpointing", "checkpoints",
    "checkpointer", "metric_logger", "profiler", "monitor", "experiment", "exp_manager", "hub",
    "special_tokens", "aio", "flops_profiler", "comms_logger", "lr_scheduler_kwargs", "job",
    "metric", "metric_log", "buffer", "explorer", "log_config", "synchronizer", "general", "hooks",
    "default_hooks", "custom_hooks", "val_dataloader", "test_dataloader", "train_dataloader",
))  # fmt: skip
"""Maps whose keys never need GPU memory, whatever their names are."""


PURPOSES = frozenset(("save", "saves", "saving", "log", "logging", "tokenizer", "wandb", "hub"))
"""Words that, at the start of a key, tell its purpose whatever follows
(`save_adapter_weights_only`)."""


def is_switched_off(text: str) -> bool:
    """Whether a value switches its key off, such as `false`, `0` or `none`."""
    without_blanks = text.strip()
    bare = without_blanks.strip("'\"")
    return bare.lower() in OFF


OFF = frozenset((*FALSE, *EMPTY, "0", "0.0", "none", "no", "disabled", "-1"))
"""Values that switch a key off."""


def takes_no_memory(path: Path) -> bool:
    """Whether a key is known not to need GPU memory.

    >>> takes_no_memory(("output_dir",)), takes_no_memory(("data", "frames"))
    (True, True)
    >>> takes_no_memory(("reward_model_path",)), takes_no_memory(("use_galore",))
    (False, False)
    """
    parts = [part for part in path if isinstance(part, str)]
    if not parts:
        return True
    # Keys about evaluation count as costless, because evaluation has a separate batch and no
    # gradients.
    if any(map(is_other_phase, parts)):
        return True
    *maps, name = map(plain_key, parts)
    if name in NAMES or not MAPS.isdisjoint(maps):
        return True
    key = key_of(path)
    if key is not None and key.role in ROLES:
        return True
    words = words_of(name)
    # A name without words, such as a number, does not show what the key is for.
    if not words:
        return False
    first_word = name.partition("_")[0]
    return first_word in PURPOSES or words <= WORDS


def plain_key(word: str) -> str:
    """A key in lower case with underscores, and without leading dashes or underscores."""
    small = word.lower()
    with_underlines = small.replace("-", "_")
    return with_underlines.lstrip("_")
