"""`tune` on a folder of training configs and four machines: what is changed, what is refused.

    python scripts/compare_configs.py tests/tune_shapes

Each result is checked by rules that share no code with `tune`: trees read by other parsers, the
effective batch, counts of micro-batches, loaders of validation, what trainers refuse, a second
run, and `plan`'s verdict on every batch that was written. Exit 1 where a rule is broken.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpusetup.configs.config import read_config, written
from gpusetup.plan.config.clear import Card, batch_verdict
from gpusetup.tune.beside import fixed_beside
from gpusetup.tune.propose import Facts, Option, Proposal, edits, propose

MACHINES = {
    "laptop 4 GB": Facts(gpu="RTX 3050 Laptop", gpus=1, memory_bytes=4 << 30, capability=(8, 6),
                         cores=16, ram_bytes=16 << 30, family="windows"),
    "T4 16 GB": Facts(gpu="Tesla T4", gpus=1, memory_bytes=15 << 30, capability=(7, 5), cores=4,
                      ram_bytes=32 << 30, family="linux", shm_bytes=64 << 20),
    "2 x 4090 24 GB": Facts(gpu="NVIDIA GeForce RTX 4090", gpus=2, memory_bytes=24564 << 20,
                            capability=(8, 9), cores=32, ram_bytes=128 << 30, family="linux"),
    "A100 80 GB": Facts(gpu="NVIDIA A100-SXM4-80GB", gpus=1, memory_bytes=80 << 30,
                        capability=(8, 0), cores=64, ram_bytes=512 << 30, family="linux"),
}  # fmt: skip
BATCHES = (
    "per_device_train_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size",
    "batch_size", "train_batch_size", "batch_size_per_gpu", "samples_per_gpu",
)  # fmt: skip
STEPS = (
    "gradient_accumulation_steps", "accumulation_steps", "accumulate_steps", "grad_accum_steps",
    "accumulate_grad_batches", "accumulative_counts", "accum_grad", "accum_count",
)  # fmt: skip
MICRO = ("limit_train_batches", "val_check_interval", "overfit_batches", "eval_iters")
OTHER_LOADERS = re.compile(r"(?i)val|test|eval|infer|predict|rollout|offload")
Tree = dict[str, Any]


def tree_of(path: Path, raw: bytes) -> Tree:
    """Dotted name -> value, by a parser that `tune` does not use."""
    text = raw.decode("utf-8-sig")
    if path.suffix in (".json", ".jsonc"):
        blank = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
        blank = re.sub(r",(\s*[}\]])", r"\1", blank)
        return dict(_flat(json.loads(blank), ""))
    if path.suffix == ".toml":
        import tomlkit

        return dict(_flat(tomlkit.parse(text).unwrap(), ""))
    if path.suffix == ".py":
        return dict(_python(ast.parse(text)))
    import yaml

    return dict(_flat(yaml.load(text, yaml.BaseLoader), ""))


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{name}.{number}")
    else:
        yield name, str(value)


def _python(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Every keyword and assignment with its constant, numbered so that none hides another."""
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Assign):
            names = [ast.unparse(one) for one in node.targets]
            if isinstance(node.value, ast.Constant):
                yield names[0], str(node.value.value)
            elif isinstance(node.value, ast.Call):
                for word in node.value.keywords:
                    if isinstance(word.value, ast.Constant):
                        yield f"{names[0]}.{word.arg}", str(word.value.value)
        elif isinstance(node, ast.Constant):
            yield f"#{number}", str(node.value)


def number(text: Any) -> int | None:
    return int(text) if re.fullmatch(r"\d+", str(text)) else None


def last(name: str) -> str:
    return name.rpartition(".")[2]


def micro_of(tree: Tree) -> tuple[str, int] | None:
    """The training's batch on one GPU: the first of the names, outside of other loaders."""
    for word in BATCHES:
        for name, value in tree.items():
            found = number(value)
            if last(name) == word and found and not OTHER_LOADERS.search(name):
                return name, found
    return None


def steps_of(tree: Tree) -> int:
    found = [number(v) for name, v in tree.items() if last(name) in STEPS]
    return found[0] or 1 if found else 1


def broken(path: Path, facts: Facts) -> tuple[Proposal, list[str]]:
    """The proposal for one config on one machine, and the rules that it breaks."""
    raw = path.read_bytes()
    config = read_config(raw, path.name)
    option = Option(fixed_beside=fixed_beside(str(path), config))
    proposal = propose(config, facts, option)
    new = written(config, edits(proposal.changes))
    before, after = tree_of(path, raw), tree_of(path, new)
    again = propose(read_config(new, path.name), facts, option)
    found = [*_batch(path, facts, before, after, new), *_beside(before, after)]
    found += _unmeasured(before, after)
    found += [f"refused by its trainer: {one}" for one in _refused(before, after)]
    if again.changes:
        found.append("a second run changes more")
    return proposal, found


def _batch(path: Path, facts: Facts, before: Tree, after: Tree, new: bytes) -> Iterator[str]:
    old, now = micro_of(before), micro_of(after)
    if old is None or now is None or old == now:
        return
    derived = any(last(name) in ("global_batch_size", "train_batch_size") for name in before)
    if not derived and old[1] * steps_of(before) != now[1] * steps_of(after):
        yield f"effective batch {old[1]} x {steps_of(before)} -> {now[1]} x {steps_of(after)}"
    card = Card(name=facts.gpu, memory_bytes=facts.memory_bytes or 0, gpus=facts.gpus,
                linux=facts.family == "linux")  # fmt: skip
    verdict = batch_verdict(read_config(new, path.name), now[1], card)
    if now[1] > old[1] and verdict.verdict != "clear":
        yield f"raised unmeasured to {now[1]}: plan says {verdict.verdict}"
    if verdict.verdict not in ("clear", "unknown"):
        yield f"plan says {verdict.verdict} of the {now[1]} that was written"
    for name in before:
        size, then = number(before[name]), number(after[name])
        if last(name) in MICRO and size and then and size * old[1] != then * now[1]:
            yield f"{name} counts micro-batches and was not carried along"


def _beside(before: Tree, after: Tree) -> Iterator[str]:
    for name, value in before.items():
        parents = name.rpartition(".")[0]
        if OTHER_LOADERS.search(parents) and "train" not in parents and after.get(name) != value:
            yield f"{name} is no setting of the training"


def _unmeasured(before: Tree, after: Tree) -> Iterator[str]:
    """What only a measurement may switch on, and keys that this trainer's parser does not know."""
    for name, value in after.items():
        if "compile" in name and value != before.get(name):
            yield f"{name} is {value}, which nobody measured"
    hugging = any(last(name) == "per_device_train_batch_size" for name in before)
    for name in sorted(after.keys() - before.keys()):
        if last(name).startswith("dataloader_") and not hugging:
            yield f"{name} is added, and this is not transformers' trainer"


def _refused(before: Tree, after: Tree) -> Iterator[str]:
    """What a trainer says no to, of all that was not so before."""
    yield from sorted(set(_bad(after)) - set(_bad(before)))


def _bad(tree: Tree) -> Iterator[str]:
    short = {last(name): str(value).lower() for name, value in tree.items()}
    on = {name for name, value in short.items() if value in ("true", "yes", "on")}
    if {"bf16", "fp16"} <= on:
        yield "bf16 and fp16 both"
    if "optimizer_in_bwd" in on and steps_of(tree) > 1:
        yield "optimizer_in_bwd with accumulation"
    if "base_model" in short and {"batch_size", "gradient_accumulation_steps"} <= set(short):
        yield "axolotl's batch_size with gradient_accumulation_steps"
    in_types = {"distributed_type", "pretrained_model_name_or_path"} & set(short)
    if in_types and short.get("mixed_precision") in ("true", "yes"):
        yield "mixed_precision takes no, fp16, bf16"
    workers = {name: value for name, value in tree.items() if "num_workers" in last(name)}
    for name, value in workers.items():
        near = name.rpartition(".")[0]
        kept = [one for one, v in tree.items() if one.rpartition(".")[0] == near
                and "persistent_workers" in last(one) and str(v).lower() == "true"]  # fmt: skip
        if kept and str(value) == "0":
            yield f"{kept[0]} without workers"


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/tune_shapes")
    files = sorted(one for one in folder.iterdir() if one.suffix != ".md")
    wrong = changed = raised = refused = 0
    for path in files:
        for machine, facts in MACHINES.items():
            try:
                proposal, found = broken(path, facts)
            except Exception as problem:
                print(f"{path.name:28} {machine:15} FAILS {type(problem).__name__}: {problem}")
                wrong += 1
                continue
            told = [f"{one.key} {one.before}->{one.after}" for one in proposal.changes]
            stays = sum(" stays " in one for one in proposal.words)
            refused, wrong = refused + stays, wrong + len(found)
            changed += bool(told)
            raised += any("clear on this card" in one.source for one in proposal.changes)
            no = "cannot fit; " if proposal.cannot_fit else ""
            print(f"{path.name:28} {machine:15} {no}{'; '.join(told) or '-'}")
            for one in found:
                print(f"{'':28} BROKEN {one}")
    print(
        f"{len(files)} configs, {len(files) * len(MACHINES)} runs: {changed} changed, {raised} by"
        f" plan, {refused} batches kept with a reason, {wrong} rules broken"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
