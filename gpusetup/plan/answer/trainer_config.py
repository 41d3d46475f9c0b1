"""A plan in the words of the trainer that was named: its own configuration, ready to paste.

One function a trainer. The keys are those that `plan --from-config` reads back
(`gpusetup/configs/keys.py` says whose documentation has them). What a plan does not decide, such as
data and learning rate, is left to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.model.frozen import Frozen
from gpusetup.plan.model.named import hub_id
from gpusetup.plan.model.workload import Recipe, Workload, samples_per_group

Settings = dict[str, Any]


class Job(Frozen):
    """What is written down: a workload with its recipe, and how often gradients accumulate."""

    w: Workload
    r: Recipe
    accumulate: int = 1

    @property
    def model(self) -> str:
        return hub_id(self.w.shape.name)

    @property
    def batch(self) -> int:
        """Sequences of one micro-batch on one GPU."""
        return samples_per_group(self.w, self.r)

    @property
    def half(self) -> str | None:
        """The 16 bits that are computed in."""
        computed = self.w.amp or self.w.dtype
        return None if computed == "fp32" else computed

    @property
    def stage(self) -> int | None:
        """ZeRO's stage."""
        return int(self.w.strategy[4:]) if self.w.strategy.startswith("zero") else None

    @property
    def sharded(self) -> bool:
        return self.w.strategy in ("fsdp", "fsdp1", "hsdp")


def trainer_config(trainer: str | None, job: Job) -> tuple[str, Settings] | None:
    """How it is started, and its settings; None for a trainer that reads no YAML, or a plain loop.

    >>> from gpusetup.plan.model.named import model_named
    >>> w = Workload(shape=model_named("qwen3-8b"), context=4096, batch=2, strategy="single")
    >>> trainer_config("axolotl", Job(w=w, r=Recipe()))[1]["micro_batch_size"]
    2
    >>> trainer_config("torchtitan", Job(w=w, r=Recipe())) is None
    True
    """
    written = WRITERS.get(trainer or "")
    if written is None or job.w.batch is None:
        return None
    start, write = written
    kept = {name: value for name, value in write(job).items() if value not in (None, {})}
    return start(job, kept), kept


# --- words that several share -------------------------------------------------------------------

OPTIMIZERS: dict[str, str] = {
    "adamw": "adamw_torch", "adam": "adamw_torch", "adamw8bit": "adamw_bnb_8bit",
    "adamw4bit": "adamw_torch_4bit", "paged-adamw": "paged_adamw_32bit",
    "paged-adamw8bit": "paged_adamw_8bit", "adafactor": "adafactor", "lion": "lion_32bit",
    "lion8bit": "lion_8bit", "sgd": "sgd",
}  # fmt: skip
"""transformers' `OptimizerNames`, which axolotl, trl, LLaMA-Factory and Unsloth take, too."""

LONG = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
ATTENTION = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager", "written": "eager"}
TARGETS = {
    "attention": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "qv": ["q_proj", "v_proj"],
}


def _optimizer(w: Workload) -> str | None:
    name = OPTIMIZERS.get(w.optimizer)
    return f"{name}_fused" if name == "adamw_torch" and w.step == "fused" else name


def _halves(job: Job) -> Settings:
    return {job.half: True} if job.half else {}


def _steps(job: Job) -> Settings:
    return {
        "per_device_train_batch_size": job.batch,
        "gradient_accumulation_steps": job.accumulate,
        "optim": _optimizer(job.w),
        **_halves(job),
    }


def _transformers(job: Job) -> Settings:
    """transformers.TrainingArguments."""
    return {
        **_steps(job),
        "gradient_checkpointing": job.w.checkpointing,
        "torch_compile": job.w.compile or None,
        "use_liger_kernel": job.w.fused_kernels or None,
        **_deepspeed(job),
        **_fsdp(job),
    }


def _deepspeed(job: Job) -> Settings:
    if job.stage is None:
        return {}
    zero: Settings = {"stage": job.stage}
    if job.w.offload_optimizer or job.r.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    if job.r.offload:
        zero["offload_param"] = {"device": "cpu"}
    usual = {"gradient_accumulation_steps": "auto", "train_micro_batch_size_per_gpu": "auto"}
    return {"deepspeed": {**usual, "zero_optimization": zero}}


def _fsdp(job: Job) -> Settings:
    if not job.sharded:
        return {}
    words = "hybrid_shard" if job.w.strategy == "hsdp" else "full_shard"
    offload = " offload" if job.r.offload else ""
    version = 1 if job.w.strategy == "fsdp1" else 2
    return {"fsdp": f"{words} auto_wrap{offload}", "fsdp_config": {"fsdp_version": version}}


def _bits(w: Workload, double: str) -> Settings:
    """bitsandbytes' switches."""
    if w.quantize in ("nf4", "nf4-dq"):
        return {"load_in_4bit": True, double: w.quantize == "nf4-dq"}
    return {"load_in_8bit": True} if w.quantize == "int8" else {}


# --- one function a trainer ---------------------------------------------------------------------


def hf(job: Job) -> Settings:
    kept = {"torch_dtype": LONG[job.w.dtype]} if job.w.amp is None and job.half else {}
    return {"model_name_or_path": job.model, **kept, **_transformers(job),
            "block_size": job.w.context}  # fmt: skip


def trl(job: Job) -> Settings:
    w = job.w
    adapters: Settings = {}
    if w.lora is not None:
        targets = TARGETS.get(w.lora_targets, "all-linear")
        adapters = {"use_peft": True, "lora_r": w.lora, "lora_target_modules": targets,
                    "use_dora": w.dora or None, **_bits(w, "use_bnb_nested_quant")}  # fmt: skip
    return {
        "model_name_or_path": job.model,
        "dtype": LONG[w.dtype],
        "attn_implementation": ATTENTION[w.attention],
        "max_length": w.context,
        **adapters,
        **_transformers(job),
        "activation_offloading": w.offload_checkpoints or None,
    }


def axolotl(job: Job) -> Settings:
    w = job.w
    adapters: Settings = {}
    if w.lora is not None:
        four = w.quantize in ("nf4", "nf4-dq")
        beside = TARGETS.get(w.lora_targets)
        targets = {"lora_target_modules": beside} if beside else {"lora_target_linear": True}
        adapters = {"adapter": "qlora" if four else "lora", "lora_r": w.lora, **targets,
                    "peft_use_dora": w.dora or None,
                    **_bits(w, "bnb_4bit_use_double_quant")}  # fmt: skip
    fused = {"plugins": [CUT], "cut_cross_entropy": True} if w.loss == "fused" else {}
    sharded: Settings = {"fsdp_version": 2, "fsdp_config": {"offload_params": job.r.offload}}
    return {
        "base_model": job.model,
        "sequence_len": w.context,
        "sample_packing": True,
        **adapters,
        "micro_batch_size": job.batch,
        "gradient_accumulation_steps": job.accumulate,
        "optimizer": _optimizer(w),
        **_halves(job),
        "gradient_checkpointing": w.checkpointing,
        {"flash": "flash_attention", "sdpa": "sdp_attention"}.get(
            w.attention, "eager_attention"
        ): True,
        **fused,
        "torch_compile": w.compile or None,
        "tensor_parallel_size": w.tensor_parallel if w.tensor_parallel > 1 else None,
        "sequence_parallel_degree": job.r.sp if job.r.sp > 1 else None,
        "deepspeed": f"deepspeed_configs/zero{job.stage}.json" if job.stage else None,
        **(sharded if job.sharded else {}),
    }


CUT = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"


def llama_factory(job: Job) -> Settings:
    w = job.w
    adapters: Settings = {"finetuning_type": "full" if w.lora is None else "lora"}
    if w.trained_layers is not None:
        adapters = {"finetuning_type": "freeze", "freeze_trainable_layers": w.trained_layers}
    if w.lora is not None:
        targets = ",".join(TARGETS.get(w.lora_targets, ["all"]))
        adapters |= {"lora_rank": w.lora, "lora_target": targets, "use_dora": w.dora or None}
    if w.quantize in ("nf4", "nf4-dq", "int8"):
        adapters["quantization_bit"] = 8 if w.quantize == "int8" else 4
    if w.quantize in ("nf4", "nf4-dq"):
        adapters["double_quantization"] = w.quantize == "nf4-dq"
    pure = w.lora is None and w.amp is None and job.half == "bf16"
    return {
        "model_name_or_path": job.model,
        "stage": "sft",
        "do_train": True,
        **adapters,
        "cutoff_len": w.context,
        "flash_attn": {"flash": "fa2", "sdpa": "sdpa"}.get(w.attention, "disabled"),
        **_steps(job),
        "pure_bf16": pure or None,
        "disable_gradient_checkpointing": not w.checkpointing,
        "enable_liger_kernel": w.fused_kernels or None,
        "deepspeed": f"examples/deepspeed/ds_z{job.stage}_config.json" if job.stage else None,
        **_fsdp(job),
    }


CLASSES = {
    "adamw8bit": "bitsandbytes.optim.AdamW8bit", "paged-adamw": "bitsandbytes.optim.PagedAdamW",
    "paged-adamw8bit": "bitsandbytes.optim.PagedAdamW8bit", "sgd": "torch.optim.SGD",
}  # fmt: skip


def torchtune(job: Job) -> Settings:
    """What stands over the recipe's own configuration."""
    w = job.w
    optimizer = CLASSES.get(w.optimizer, "torch.optim.AdamW")
    chunked = "CEWithChunkedOutputLoss" if w.loss == "chunked" else "LinearCrossEntropyLoss"
    beside = [name.replace("o_proj", "output_proj") for name in TARGETS.get(w.lora_targets, ALL)]
    model = {"lora_rank": w.lora, "lora_attn_modules": beside,
             "apply_lora_to_mlp": w.lora_targets == "all", "use_dora": w.dora}  # fmt: skip
    fused = {"fused": True} if optimizer == "torch.optim.AdamW" and w.step == "fused" else {}
    return {
        "model": model if w.lora is not None else None,
        "checkpointer": {"checkpoint_dir": f"checkpoints/{job.model}"},
        "tokenizer": {"max_seq_len": w.context},
        "batch_size": job.batch,
        "gradient_accumulation_steps": job.accumulate,
        "dtype": w.dtype,
        "optimizer": {"_component_": optimizer, **fused},
        "optimizer_in_bwd": w.step == "backward" or None,
        "loss": {"_component_": f"torchtune.modules.loss.{chunked}"},
        "compile": w.compile,
        "enable_activation_checkpointing": w.checkpointing,
        "enable_activation_offloading": w.offload_checkpoints,
        "tensor_parallel_dim": w.tensor_parallel if w.tensor_parallel > 1 else None,
        "fsdp_cpu_offload": job.r.offload or None,
    }


ALL = TARGETS["attention"]


def litgpt(job: Job) -> Settings:
    w = job.w
    adapters: Settings = {}
    if w.lora is not None:
        on = {"all": ("query", "key", "value", "projection", "mlp"),
              "attention": ("query", "key", "value", "projection"),
              "qv": ("query", "value")}[w.lora_targets]  # fmt: skip
        adapters = {"lora_r": w.lora} | {
            f"lora_{name}": name in on for name in ("query", "key", "value", "projection", "mlp")
        }
    kept = {"bf16": "bf16-true", "fp16": "16-true", "fp32": "32-true"}[w.dtype]
    stored = {"nf4": "bnb.nf4", "nf4-dq": "bnb.nf4-dq", "int8": "bnb.int8"}.get(w.quantize or "")
    groups = max(w.gpus // w.tensor_parallel, 1)
    return {
        "checkpoint_dir": f"checkpoints/{job.model}",
        "precision": f"{w.amp.removeprefix('fp')}-mixed" if w.amp else kept,
        "quantize": stored,
        "devices": w.gpus,
        "optimizer": {"class_path": CLASSES[w.optimizer]} if w.optimizer in CLASSES else None,
        **adapters,
        "train": {
            "micro_batch_size": job.batch,
            "global_batch_size": job.batch * groups * job.accumulate,
            "max_seq_length": w.context,
        },
    }


def unsloth(job: Job) -> Settings:
    w = job.w
    return {
        "model_name": job.model,
        "max_seq_length": w.context,
        "load_in_4bit": w.quantize in ("nf4", "nf4-dq"),
        "load_in_8bit": w.quantize == "int8" or None,
        "use_dora": w.dora or None,
        "lora_r": w.lora,
        "target_modules": TARGETS.get(w.lora_targets) if w.lora is not None else None,
        "use_gradient_checkpointing": "unsloth" if w.offload_checkpoints else w.checkpointing,
        **_steps(job),
    }


def megatron(job: Job) -> Settings:
    """Megatron-LM's arguments."""
    w = job.w
    groups = max(w.data_parallel // w.context_parallel, 1)
    whole: Settings = {"recompute_granularity": "full", "recompute_method": "uniform",
                       "recompute_num_layers": 1}  # fmt: skip
    return {
        "tensor_model_parallel_size": w.tensor_parallel,
        "pipeline_model_parallel_size": w.pipeline_parallel,
        "context_parallel_size": w.context_parallel,
        "expert_model_parallel_size": w.expert_parallel,
        "sequence_parallel": w.sequence_parallel and w.tensor_parallel > 1,
        "use_distributed_optimizer": w.strategy == "zero1",
        "micro_batch_size": job.batch,
        "global_batch_size": job.batch * groups * job.accumulate,
        "seq_length": w.context,
        **_halves(job),
        **(whole if w.checkpointing else {}),
        "optimizer_cpu_offload": w.offload_optimizer or None,
    }


# --- how each is started ------------------------------------------------------------------------


def _own_script(job: Job, settings: Settings) -> str:
    read = "your script, with HfArgumentParser.parse_yaml_file"
    return f"torchrun --standalone --nproc_per_node={job.w.gpus} train.py train.yaml  ({read})"


def _arguments(job: Job, settings: Settings) -> str:
    """Megatron-LM takes them on the command line."""
    words = [f"torchrun --standalone --nproc_per_node={job.w.gpus} pretrain_gpt.py"]
    for name, value in settings.items():
        if value is not False:
            words.append(f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}"))
    return " ".join(words)


def _tune(job: Job, settings: Settings) -> str:
    kind = "full" if job.w.lora is None else "lora"
    if job.w.gpus == 1:
        return f"tune run {kind}_finetune_single_device --config train.yaml"
    return f"tune run --nproc_per_node {job.w.gpus} {kind}_finetune_distributed --config train.yaml"


def _factory(job: Job, settings: Settings) -> str:
    several = "FORCE_TORCHRUN=1 " if job.w.gpus > 1 else ""
    return f"{several}llamafactory-cli train train.yaml"


def _litgpt(job: Job, settings: Settings) -> str:
    return f"litgpt finetune_{'full' if job.w.lora is None else 'lora'} --config train.yaml"


def _trl(job: Job, settings: Settings) -> str:
    return f"trl sft --config train.yaml --num_processes {job.w.gpus}"


def _axolotl(job: Job, settings: Settings) -> str:
    return "axolotl train train.yaml"


def _unsloth(job: Job, settings: Settings) -> str:
    return "arguments of FastLanguageModel.from_pretrained, get_peft_model and SFTConfig"


WRITERS: Mapping[str, tuple[Callable[[Job, Settings], str], Callable[[Job], Settings]]] = {
    "hf": (_own_script, hf),
    "trl": (_trl, trl),
    "axolotl": (_axolotl, axolotl),
    "llama-factory": (_factory, llama_factory),
    "torchtune": (_tune, torchtune),
    "litgpt": (_litgpt, litgpt),
    "unsloth": (_unsloth, unsloth),
    "megatron": (_arguments, megatron),
}
"""Trainer -> how it is started, its settings. torchtitan reads TOML; Trinity-RFT has a form of its
own (`gpusetup/plan/answer/yaml.py`)."""
