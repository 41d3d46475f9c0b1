"""What trainers do by default, whose a config is, and a plan in the words of a trainer.

One row each with its source (`data/plan/trainers.json`). A row names a trainer's keys and the fact
that each says; what it has no key for is said in a comment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusetup.configs.config import Config
from gpusetup.configs.settings import names_in, unquoted
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.documents import PlanCell
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.job import FIELDS, Job, Recipe, samples, tokens, yarn
from gpusetup.plan.models import hub_id

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "trainers.json"


class Table(Frozen):
    as_of: str
    trainers: Mapping[str, Mapping[str, Any]]


@lru_cache(maxsize=1)
def rows() -> Mapping[str, Mapping[str, Any]]:
    """Trainer -> fields of a job as it sets them, and what else is known of it.

    `several`: what it changes on several GPUs. `also`: other names. `masters`: whether it makes
    trained 16-bit weights 32-bit (`always`, under FSDP's `sharded` weights, `never`). `kernels`: it
    runs its `own` classes, not those of transformers, also with `capped` scores. `start`, `writes`:
    how it is started, and the keys of its config with the fact that each says.
    """
    return from_json(ROWS.read_bytes(), Table, what=ROWS.name).trainers


def trainer_named(text: str | None) -> str | None:
    """A trainer's name in the table for one that people give it.

    >>> trainer_named("Transformers"), trainer_named("trl")
    ('hf', 'trl')
    """
    word = (text or "").lower().replace("_", "-")
    return next((name for name, row in rows().items() if word in row.get("also", ())), text)


CAPPED = ("gemma2",)
"""Families that cap attention's scores by a tanh, for which transformers writes them to memory."""
WITHOUT_SDPA = (
    "bloom", "codegen", "deberta", "deberta-v2", "gpt_neo", "gptj", "mpnet", "mpt",
    "openai-gpt", "xglm",
)  # fmt: skip
"""Families whose class in transformers (5.23.0) does not say `_supports_sdpa`."""


def defaults(trainer: str, kind: str, gpus: int, said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that a trainer sets for a family, under what was said.

    ZeRO, as DeepSpeed means it, steps a 32-bit copy of trained 16-bit weights.

    >>> found = defaults("hf", "llama", 2, {"strategy": "zero2"})
    >>> found["dtype"], found["amp"]
    ('fp32', 'bf16')
    >>> defaults("trl", "gptj", 1, {})["attention"]
    'eager'
    """
    row = rows().get(trainer)
    if row is None:
        raise UsageError(f"No trainer is called {trainer!r}", hint=f"one of {', '.join(rows())}")
    found = {name: value for name, value in row.items() if name in FIELDS}
    found |= row.get("several", {}) if gpus > 1 else {}
    kernels = row.get("kernels")
    if (kind in CAPPED and kernels != "capped") or (kind in WITHOUT_SDPA and not kernels):
        found["attention"] = "eager"
    if trainer == "diffusers" and said.get("lora") is not None:  # `weight_dtype` of its scripts
        found["dtype"] = said.get("amp") or found["amp"]
    both = found | dict(said)
    if both.get("upcast_rest") and both.get("quantize") in ("nf4", "nf4-dq", "int8"):
        # PEFT's `prepare_model_for_kbit_training`
        found |= {"checkpointing": True, "reentrant": found.get("reentrant", True)}
    both = found | dict(said)
    if "amp" not in said and said.get("lora") is None and is_widened(row, both, "dtype" in said):
        both |= {"dtype": "fp32", "amp": both["dtype"]}
    return both


def is_widened(row: Mapping[str, Any], how: Mapping[str, Any], said: bool) -> bool:
    """Whether trained 16-bit weights are stepped in 32 bits; `said`: their dtype was named."""
    strategy, masters = str(how.get("strategy")), row.get("masters")
    wide = strategy.startswith("zero") and masters != "never"
    sharded = masters == "sharded" and strategy in ("fsdp", "fsdp1", "hsdp")
    wide |= not said and (masters == "always" or sharded)
    return wide and how.get("dtype") in ("bf16", "fp16") and not how.get("amp")


# --- whose a config is ----------------------------------------------------------------------------

FAMILIES = (
    ("trinity", "actor_rollout_ref trainer_type algorithm_type explorer use_dynamic_bsz"),
    ("trinity", "max_model_len+rope_scaling"),
    ("torchtitan", "activation_checkpoint local_batch_size flavor tensor_parallel_degree "
                   "data_parallel_shard_degree pipeline_parallel_degree"),
    ("llama-factory", "finetuning_type cutoff_len"),
    ("axolotl", "base_model sequence_len"),
    ("unsloth", "use_gradient_checkpointing use_rslora"),
    ("litgpt", "checkpoint_dir lora_query lora_mlp"),
    ("megatron", "tensor_model_parallel_size pipeline_model_parallel_size"),
    ("hf", "do_train mlm_probability preprocessing_num_workers dataset_config_name "
           "max_train_samples max_source_length validation_split_percentage"),
    ("trl", "use_peft dataset_name max_length packing lora_r"),
    ("hf", "per_device_train_batch_size train_micro_batch_size_per_gpu zero_optimization "
           "model_name_or_path"),
)  # fmt: skip
"""Trainer -> names of which one says that a config is its own (`+`: both); in order."""


def trainer_of(config: Config) -> str | None:
    """The trainer's name as `--trainer` takes it; None for a plain loop."""
    for one in config.settings:
        if one.path[-1:] == ("_component_",) and unquoted(one.text).startswith("torchtune."):
            return "torchtune"
    there = names_in(config.settings)
    own = ((name, word.split("+")) for name, words in FAMILIES for word in words.split())
    return next((name for name, words in own if there.issuperset(words)), None)


# --- a trainer's own settings --------------------------------------------------------------------

Values = dict[str, Any]


class Plan(Frozen):
    """What is written down."""

    trainer: str
    job: Job
    recipe: Recipe


def facts(plan: Plan) -> Values:
    """What a key may say: the fields of the job, and what follows from several of them."""
    job, recipe = plan.job, plan.recipe
    model = hub_id(job.shape.name)
    each, groups = samples(job, recipe), max(job.data_parallel // job.context_parallel, 1)
    method = "freeze" if job.trained_layers else "full"
    if job.lora is not None:
        method = "qlora" if job.quantize in ("nf4", "nf4-dq") else "lora"
    fused = "-fused" * (job.optimizer in ("adam", "adamw") and job.step == "fused")
    sharded = job.strategy in ("fsdp", "fsdp1", "hsdp")
    words = f"{'hybrid' if job.strategy == 'hsdp' else 'full'}_shard auto_wrap"
    host = {"device": "cpu"}
    zero: Values = {"stage": int(job.strategy[4:])} if job.strategy.startswith("zero") else {}
    zero |= {"offload_optimizer": host} if job.offload_optimizer or recipe.offload else {}
    zero |= {"offload_param": host} if recipe.offload else {}
    auto = dict.fromkeys(("gradient_accumulation_steps", "train_micro_batch_size_per_gpu"), "auto")
    return {name: getattr(job, name) for name in FIELDS} | {
        "model": model,
        "folder": f"checkpoints/{model}",
        "each": each,
        "every": each * groups * job.accumulate,
        "adapted": method,
        "lora_targets": job.lora_targets if job.lora is not None else None,
        "half": job.amp or (job.dtype if job.dtype != "fp32" else None),
        "pure": job.dtype if job.amp is None and job.lora is None else None,
        "lightning": f"{job.amp} mixed" if job.amp else job.dtype,
        "optimizer": job.optimizer + fused,
        "recomputed": "offloaded" if job.offload_checkpoints else (
            "yes" if job.checkpointing else "no"),
        "sp": recipe.sp if recipe.sp > 1 else None,
        "offload": recipe.offload,
        "deepspeed": {**auto, "zero_optimization": zero} if "stage" in zero else None,
        "fsdp": words + " offload" * recipe.offload if sharded else None,
        "trinity": f"${{oc.env:TRINITY_MODEL_PATH,{model}}}",
        "prompt": job.context // 2,
        "rope_scaling": yarn(job),
        "dynamic": job.batch is None,
        "degree": recipe.sp,
        "budget": tokens(job, recipe) if job.batch is None else None,
        "fsdp_offload": recipe.offload if sharded else None,
    }  # fmt: skip


SAYS = {
    "adapted": ("lora", "trained_layers"), "half": ("amp", "dtype"), "pure": ("dtype",),
    "lightning": ("amp", "dtype"), "recomputed": ("checkpointing", "offload_checkpoints"),
    "every": ("accumulate",), "deepspeed": ("strategy", "offload_optimizer"),
    "fsdp": ("strategy",),
}  # fmt: skip
"""Fact -> the fields of a job that it says; others are fields themselves."""


def said(plan: Plan) -> tuple[Values, set[str]]:
    """A trainer's own settings, and the fields of the job that they say.

    Of a row's keys each has a fact, a fact with the text of each of its values, or one text in a
    list. A key with dots is inside maps.
    """
    found, fields = facts(plan), set[str]()
    settings: Values = {}
    for key, what in rows()[plan.trainer].get("writes", {}).items():
        if isinstance(what, str):
            fact, value = what, found[what]
        elif isinstance(what, Mapping):
            ((fact, texts),) = what.items()
            held = found[fact]
            value = texts.get(str(held).lower() if isinstance(held, bool) else held)
        else:
            fact, value = "", what[0]
        fields |= {*SAYS.get(fact, (fact,))} if value is not None else set()
        alone = fact.endswith("_parallel") and value is not True and value == 1
        if value is None or alone:
            continue
        *outer, last = key.split(".")
        place = settings
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = value
    return settings, fields


CONDITIONS = (
    "lora", "quantize", "optimizer", "loss", "attention", "trained_layers", "selective",
    "trained_embeddings", "tensor_parallel", "pipeline_parallel", "context_parallel",
    "expert_parallel", "fused_kernels", "compile", "strategy", "offload_optimizer",
    "offload_checkpoints", "checkpointing", "lora_targets", "dtype", "accumulate",
)  # fmt: skip
"""Fields of a job that a run must be told."""


def unsaid(plan: Plan, fields: set[str]) -> Iterator[str]:
    """The conditions of a plan that its trainer does without by default and has no key for."""
    job = plan.job
    usual = FIELDS | defaults(plan.trainer, job.shape.kind, job.gpus, {})
    for name in CONDITIONS:
        value, word = getattr(job, name), name.replace("_", " ")
        if name not in fields and value != usual[name] and (job.lora or name != "lora_targets"):
            yield word if value is True else f"{word} {value or 'none'}"
    if plan.recipe.offload and "strategy" not in fields:
        yield "parameters on the host"


# --- the documents ------------------------------------------------------------------------------


def document(found: PlanCell, plan: Plan, *, text: bool) -> str:
    """The trainer's own configuration, or Trinity-RFT's (of text alone) and a plain script's."""
    if not found.fits:
        raise Unsatisfiable(
            f"{found.model} does not fit: there are no settings for it",
            hint="`gpusetup plan` without `--format yaml` says what would help",
        )
    lines = [f"{found.model}, {found.context:,} tokens, {found.gpus} x {found.gpu}: {found.recipe}"]
    lines += [f"export {name}={value}" for name, value in found.env.items()]
    is_own = plan.job.batch is not None and "start" in rows().get(plan.trainer, {})
    own, fields = said(plan if is_own else replace(plan, trainer="trinity"))
    if left := ", ".join(unsaid(plan, fields)) if is_own or plan.trainer == "trinity" else "":
        lines.append(f"not in these settings, see to it yourself: {left}")
    lines += [start(plan, own)] if is_own else []
    head = "".join(f"# {line}\n" for line in lines)
    if is_own:
        return head + yaml_text(own)
    trinity = f"# Trinity-RFT\n{PROMPT}{yaml_text(own)}---\n" if text else ""
    launch = f"torchrun --standalone --nproc_per_node={found.gpus} train.py"
    plain = {"launch": launch, "environment": dict(found.env), **found.settings}
    return f"{head}{trinity}# torchrun\n{yaml_text(plain)}"


PROMPT = "# max_prompt_tokens: half of the length is left to the response; your data decides\n"


def start(plan: Plan, own: Values) -> str:
    """How the trainer is started; Megatron-LM takes its settings as arguments."""
    job = plan.job
    kind = "full" if job.lora is None else "lora"
    alone = f"{kind}_finetune_single_device"
    several = f"--nproc_per_node {job.gpus} {kind}_finetune_distributed"
    line = str(rows()[plan.trainer]["start"]).format(
        gpus=job.gpus, kind=kind, torchtune=several if job.gpus > 1 else alone,
        several="FORCE_TORCHRUN=1 " * (job.gpus > 1),
    )  # fmt: skip
    if plan.trainer != "megatron":
        return line
    said = (f"--{name.replace('_', '-')}" + f" {value}" * (value is not True)
            for name, value in own.items() if value is not False)  # fmt: skip
    return " ".join((line, *said))


def yaml_text(values: Mapping[str, Any], indent: str = "") -> str:
    """Block YAML of mappings of plain values, each as JSON, which YAML reads.

    >>> print(yaml_text({"a": {"b": True, "c": None}, "d": "x: y"}), end="")
    a:
      b: true
      c: null
    d: "x: y"
    """
    import json

    return "".join(
        f"{indent}{name}:\n{yaml_text(value, indent + '  ')}"
        if isinstance(value, Mapping) and value
        else f"{indent}{name}: {json.dumps(value)}\n"
        for name, value in values.items()
    )
