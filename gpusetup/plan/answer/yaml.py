"""A plan as settings to paste: for Trinity-RFT's trainer, and for torchrun with FSDP2.

The keys are those of Trinity-RFT's configuration guide and of verl's FSDP workers, which it trains
by; the second document names FSDP2's own arguments (torch.distributed.fsdp.fully_shard).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.errors import Unsatisfiable
from gpusetup.model.documents import PlanCell
from gpusetup.model.frozen import Frozen
from gpusetup.plan.model.named import hub_id


class Own(Frozen):
    """The named trainer's own configuration."""

    start: str
    text: str


LONG_DTYPE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def plan_yaml(
    plan: PlanCell, own: Own | None = None, *, text: bool = True, unsaid: str = ""
) -> str:
    """The trainer's own configuration, or else both documents; Unsatisfiable without a recipe.

    Trinity-RFT's is of models of text alone. `unsaid`: the flags that its keys cannot say.
    """
    if not plan.fits:
        raise Unsatisfiable(
            f"{plan.model} does not fit: there are no settings for it",
            hint="`gpusetup plan` without `--format yaml` says what would help",
        )
    note = "# max_prompt_tokens: half of the length is left to the response; your data decides\n"
    head = f"# {plan.model}, {plan.context:,} tokens, {plan.gpus} x {plan.gpu}: {plan.recipe}\n"
    left = f"# not in these settings, see to it yourself: {unsaid}\n" if unsaid else ""
    if own is not None:
        lines = [f"export {name}={value}" for name, value in plan.env.items()] + [own.start]
        return head + "".join(f"# {line}\n" for line in lines) + left + own.text
    trinity = "# Trinity-RFT" + "".join(f"\n# {line}" for line in _exports(plan)) + "\n" + left
    first = trinity + note + yaml_text(trinity_settings(plan)) + "---\n" if text else ""
    found = torchrun_settings(plan)
    with_fsdp = " and FSDP2" * ("fully_shard" in found)
    return f"{head}{first}# torchrun{with_fsdp}\n{yaml_text(found)}"


def _exports(plan: PlanCell) -> Iterator[str]:
    if plan.env:
        yield "before Ray starts:"
        yield from (f"  export {name}={value}" for name, value in plan.env.items())


def trinity_settings(plan: PlanCell) -> dict[str, Any]:
    """The keys of Trinity-RFT that a recipe decides."""
    s = plan.settings
    model: dict[str, Any] = {
        "model_path": f"${{oc.env:TRINITY_MODEL_PATH,{hub_id(plan.model)}}}",
        "max_prompt_tokens": plan.context // 2,
        "max_model_len": plan.context,
    }
    if "rope_scaling" in s:
        model["rope_scaling"] = s["rope_scaling"]
    trainer: dict[str, Any] = {
        "use_dynamic_bsz": plan.batch is None,
        "ulysses_sequence_parallel_size": s["sequence_parallel_size"],
    }
    actor: dict[str, Any] = {}
    found: dict[str, Any] = {"actor": actor}
    if "max_token_len_per_gpu" in s:
        tokens = s["max_token_len_per_gpu"]
        trainer["max_token_len_per_gpu"] = tokens
        actor["ppo_max_token_len_per_gpu"] = tokens
        found["ref"] = found["rollout"] = {"log_prob_max_token_len_per_gpu": tokens}
    if s["cpu_offload"]:
        actor |= {"strategy": "fsdp2", "fsdp_config": {"offload_policy": True}}
    if actor:
        trainer["trainer_config"] = {"actor_rollout_ref": found}
    return {"model": model, "trainer": trainer}


def torchrun_settings(plan: PlanCell) -> dict[str, Any]:
    """What a plain training script needs to know."""
    s = plan.settings
    mixed = None if s["mixed_precision"] == "none" else s["mixed_precision"]
    found: dict[str, Any] = {
        "launch": f"torchrun --standalone --nproc_per_node={plan.gpus} train.py",
        "environment": dict(plan.env),
        "strategy": s["strategy"],
    }
    if s["strategy"] in ("fsdp2", "hsdp", "zero3"):
        found["fully_shard"] = {
            "reshard_after_forward": True,
            "mp_policy": {
                "param_dtype": LONG_DTYPE[mixed or s["param_dtype"]],
                "reduce_dtype": "float32",
            },
            "offload_policy": "CPUOffloadPolicy" if s["cpu_offload"] else None,
        }
    kept = ("sequence_parallel_size", "gradient_checkpointing", "optimizer", "mixed_precision",
            "max_model_len", "max_token_len_per_gpu", "batch_per_gpu", "rope_scaling",
            "loss")  # fmt: skip
    return found | {name: s[name] for name in kept if name in s}


def yaml_text(values: Mapping[str, Any], indent: int = 0) -> str:
    """Block YAML of mappings of plain values.

    >>> print(yaml_text({"a": {"b": True, "c": None}, "d": "x: y"}), end="")
    a:
      b: true
      c: null
    d: "x: y"
    """
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            lines.append(f"{' ' * indent}{name}:\n{yaml_text(value, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{name}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, int | float):
        return f"{value}"
    plain = value.replace("_", "").replace("-", "").replace(".", "").isalnum()
    word = plain and not value[0].isdigit() and value not in ("true", "false", "null", "none")
    return str(value) if word else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
