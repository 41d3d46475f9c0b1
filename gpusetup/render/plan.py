"""Shows a plan as text: whether the job fits, with which recipe, where the memory goes, and what to
set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.model.documents import ConfigKey, ConfigRead, PlanCell
from gpusetup.plan.models import size_name
from gpusetup.render.screen import (
    BUT,
    DIM,
    HEADING,
    NO,
    OK,
    Screen,
    ScreenLine,
    command,
    facts,
    marked,
    notes,
    plural,
    section,
    table,
    yaml_value,
)

PARTS = {
    "states": "weights, gradients and optimizer",
    "checkpoints": "activations kept for the backward pass",
    "logits": "scores for the whole vocabulary, and the loss",
    "fragmentation": "gaps between tensors",
    "other": "CUDA, NCCL and short-lived tensors",
}
"""Maps each part of a GPU's memory, named as in `plan --json`, to what it contains."""
RECIPES = {
    "vanilla": "no special settings",
    "Env": "expandable segments",
    "Offload": "FSDP2's CPU offload",
    "SP": "sequence parallelism",
}
"""Maps each part of a recipe to its meaning."""


def plan_text(plan: PlanCell) -> Screen:
    """The screen of a plan: the question, the verdict, where the memory goes, and what to set."""
    lines: list[str] = [ScreenLine(_question(plan), hang=2)]
    assumed = [*plan.assumed, *(plan.config.assumed if plan.config else ())]
    if assumed:
        lines.append(ScreenLine(f"Assumed: {'; '.join(assumed)}", hang=2))
    lines += ["", *_verdict(plan)]
    lines += section("Ways to train on one GPU, with checkpointing", _ways(plan))
    lines += _fewer_gpus(plan)

    # The memory below is that of full fine-tuning. If that does not fit into the GPU itself and the
    # table of ways shows one that does, the memory of full fine-tuning no longer matters.
    fits_on_gpu = plan.fits and plan.memory_gib.host == 0
    some_way_fits = any(way.fits for way in plan.ways)
    if fits_on_gpu or not some_way_fits:
        lines += _memory(plan)
    # The settings still matter if it fits with offload.
    if plan.fits or not some_way_fits:
        lines += _settings(plan)
    lines += _settings_of_trainer(plan)
    # If there is a table of the usual ways to train, it already shows what helps.
    if not plan.ways:
        lines += _helps(plan)
    if plan.config:
        lines += _config(plan.config)
    lines += notes(plan.advice)
    lines += _next_step(plan)
    return Screen(lines)


def _fewer_gpus(plan: PlanCell) -> Iterator[str]:
    """A section with the smaller number of GPUs that works better than all, if there is one."""
    fewer = plan.better
    if fewer is None:
        return
    fits = "may fit" if fewer.confidence == "close" else "fits"
    gain = f", up to {fewer.context:,} tokens" if plan.solved == "context" else ""
    lines = [
        ScreenLine(f"  The job {fits} on {fewer.gpus} of them with {fewer.recipe}{gain}.", hang=2),
        ScreenLine(f"  {fewer.reason}", hang=2),
        *(command(f"export {name}={value}") for name, value in fewer.environment.items()),
    ]
    yield from section(f"Use {fewer.gpus} of your {plan.gpus} GPUs instead", lines)


SAFE_SHARE = 0.8
"""A way to train that needs at most this share of the GPU's memory gets a tick. The estimate is not
exact, but its error is smaller than the fifth that is then free."""


def _ways(plan: PlanCell) -> Iterator[ScreenLine]:
    """A table of the usual ways to train: whether each fits, its largest batch or length, and the
    memory that a batch of one sequence needs. Its lines fit in 80 columns."""
    if not plan.ways:
        return
    rows = []
    for way in plan.ways:
        mark, batch, context = NO, "does not fit", ""
        if way.fits:
            mark = OK if way.total_gib <= SAFE_SHARE * plan.memory_gib.capacity else BUT
            batch, context = f"{way.batch:,}", f"{way.context:,} tokens"
        sign, role = mark
        rows.append(((f"{sign} {way.name}", role), batch, context, f"{way.total_gib:.1f}"))
    yield from table(("", "largest batch", "longest sequence", "GiB at batch 1"), rows)
    if any(way.fits for way in plan.ways):
        yield ScreenLine(
            "  to see a row's memory and settings, add its options: `--lora 16` (LoRA), `--lora 16 "
            "--quantize nf4` (QLoRA), `--loss fused`",
            hang=2,
        )


def _question(plan: PlanCell) -> str:
    """The question in one line: the model, the job and the GPUs that the plan is for."""
    size = f"{size_name(plan.parameters)} parameters"
    # In a mixture of experts, each token uses only some of the parameters.
    if plan.active_parameters != plan.parameters:
        size += f", {size_name(plan.active_parameters)} active"
    job = f", {plural(plan.context, 'token')}" if plan.context else ""
    if plan.batch is not None:
        job += f", batch {plan.batch:,}"
    return f"{plan.model} ({size}){job}, on {plan.gpus} x {plan.gpu}, {plan.strategy}"


UNCOUNTED_SHOWN = 4
"""More names would push the recipe off the line; `--json` lists all."""


def _verdict(plan: PlanCell) -> Iterator[str]:
    """Yields the value that was searched for, whether the job fits, and how certain this is."""
    if plan.solved:
        yield ScreenLine((_solution(plan), HEADING))

    recipe = f"{plan.recipe} ({_meaning(plan.recipe)})"
    host_gib = plan.memory_gib.host
    with_ram = f" with {host_gib:.0f} GiB of RAM" if host_gib else ""
    # With the table of usual ways, the verdict is about the first of them.
    is_one_of_several = bool(plan.ways)
    if not plan.fits:
        what = "full fine-tuning does not fit" if is_one_of_several else "does not fit"
        yield marked(NO, what)
    elif plan.uncounted:
        names = ", ".join(plan.uncounted[:UNCOUNTED_SHOWN])
        hidden = len(plan.uncounted) - UNCOUNTED_SHOWN
        more = f" and {hidden} more" if hidden > 0 else ""
        yield marked(BUT, f"may fit{with_ram}, not counted: {names}{more}", f"; recipe: {recipe}")
    elif plan.confidence == "close":
        yield marked(BUT, f"may fit{with_ram}", f": {recipe}; measure one step first")
    elif host_gib:
        what = "full fine-tuning fits only" if is_one_of_several else "fits only"
        yield marked(BUT, f"{what}{with_ram}", f": {recipe}")
    else:
        yield marked(OK, "fits", f": {recipe}")

    left_or_missing = "left" if plan.fits else "missing"
    confidences = {
        "measured": "measured by the authors of Trinity-RFT",
        "clear": f"more than {plan.near_percent} % of the memory is {left_or_missing}",
        "close": f"close: {plan.close_because}",
    }
    yield from facts({"confidence": confidences[plan.confidence]})


def _solution(plan: PlanCell) -> str:
    """The value that was searched for, in words; 0 if no value fits."""
    if plan.solved == "context":
        longest = plan.context if plan.fits else 0
        return f"longest context: {longest:,} tokens"
    if plan.solved == "batch":
        most = plan.batch if plan.fits and plan.batch else 0
        return f"largest batch: {most:,}"
    if plan.fits:
        return f"GPUs needed: {plan.gpus}"
    # These strategies do not split the model among the GPUs.
    if plan.strategy in ("single", "dp", "ddp"):
        return (
            "GPUs needed: more GPUs do not help, because each holds the whole model; to divide it "
            "among them, use `--strategy fsdp`"
        )
    return f"GPUs needed: more than {plan.gpus}"


def _memory(plan: PlanCell) -> Iterator[str]:
    """A section with the parts of a GPU's memory in GiB, their total, and torch's figures."""
    memory = plan.memory_gib
    lines = {name: f"{getattr(memory, name):8.2f}  {what}" for name, what in PARTS.items()}
    percent = abs(plan.margin_percent)
    if plan.margin_percent >= 0:
        margin = f"{percent:.1f} % free"
        margin += " for what is not counted" if plan.fits and plan.uncounted else ""
    elif plan.fits:
        # A measured job may have run although the memory model estimates more than the card has.
        margin = f"measured to fit; this estimate is {percent:.1f} % above the card's memory"
    else:
        margin = f"{percent:.1f} % too much"
    lines["total"] = f"{memory.total:8.2f}  of {memory.capacity:.2f}, {margin}"

    # Before it fails, the allocator frees all gaps but those of `fragmentation`.
    least_reserved = memory.allocated + memory.fragmentation
    figures = f"{memory.allocated:8.2f}  in tensors, {least_reserved:.2f} reserved"
    lines["torch reports"] = figures
    title = "Memory per GPU (GiB)"
    if plan.ways:
        title = f"Memory per GPU for full fine-tuning with {plan.recipe} (GiB)"
    if memory.other_gpus:
        title = "Memory of the first GPU (GiB)"
        lines["others"] = f"{memory.other_gpus:8.2f}  on each of the other GPUs"
    return section(title, facts(lines))


def _helps(plan: PlanCell) -> Iterator[str]:
    """A section with the changes that save memory, in the answer's order (`PlanCell.helps`)."""
    lines = []
    for help in plan.helps:
        what = f"{help.step} ({_meaning(str(help.recipe))})" if help.kind == "recipe" else help.step
        then = ""
        if not plan.fits:
            fits = "may fit" if help.confidence == "close" else "fits"
            with_recipe = "" if help.recipe == "vanilla" else f" with {help.recipe}"
            then = f", then {fits}{with_recipe}" if help.recipe else ", not enough alone"
        lines.append(ScreenLine(f"  {what}  saves {help.saves_gib:.1f} GiB{then}", hang=4))
    if not plan.env and any("Env" in (help.recipe or "") for help in plan.helps):
        # The settings above show the variable only for the plan's own recipe.
        variable = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        lines.append(ScreenLine(f"  for Env, `export {variable}` before Python starts", hang=4))
    title = "If it still runs out of memory, try one of these" if plan.fits else "What saves memory"
    return section(title, lines)


def _next_step(plan: PlanCell) -> Iterator[str]:
    """What to do next, after an empty line. The table of ways ends with its own next step."""
    if any(way.fits for way in plan.ways):
        return
    if plan.fits and plan.confidence == "close":
        text = "measure your own code: `gpusetup tune --batch-size --code MODULE:FUNCTION`"
    elif plan.fits:
        text = (
            "start the training with `gpusetup monitor -- COMMAND`, which shows how busy the GPU is"
        )
    elif plan.better:
        text = "train on fewer GPUs, as shown above"
    elif any(help.recipe for help in plan.helps):
        text = "run `plan` again with a change with which it fits"
    else:
        text = "choose a smaller model or a GPU with more memory"
    yield from ("", ScreenLine(f"Next: {text}", hang=2))


def _meaning(recipe: str) -> str:
    """The meanings of a recipe's parts, as text.

    >>> _meaning("Env + SP=2")
    'expandable segments, sequence parallelism'
    """
    # `SP=2` is sequence parallelism over two GPUs.
    return ", ".join(RECIPES.get(part.partition("=")[0], "") for part in recipe.split(" + "))


def _settings(plan: PlanCell) -> Iterator[str]:
    """A section with the environment variables and the settings, ready to be copied; nothing if
    there are no settings."""
    if not plan.settings:
        return
    lines = []
    # The allocator reads its variable only once, when a process first uses the GPU. Ray's workers
    # get the variables that Ray was started with.
    if any("ALLOC_CONF" in name for name in plan.env):
        lines.append(command("# before Python starts (or before Ray and the workers start):"))
    lines += [command(f"export {name}={value}") for name, value in plan.env.items()]
    lines += [command(f"{name}: {yaml_value(value)}") for name, value in plan.settings.items()]
    what_for = f" for full fine-tuning with {plan.recipe}" if plan.ways else ""
    names = "under plan's own names; `--trainer NAME` adds your trainer's"
    yield from section(f"Settings{what_for} ({names})", lines)


def _settings_of_trainer(plan: PlanCell) -> Iterator[str]:
    """A section with the settings under the names of the user's trainer, if it is known."""
    settings = plan.trainer_settings
    if settings is None:
        return
    yield from section(settings.title, map(command, settings.text.splitlines()))
    if missing := ", ".join(settings.missing):
        where = "set it in the trainer's or DeepSpeed's own config"
        yield ScreenLine(f"  These lines do not set {missing}: {where}", hang=4)


# --- a training config ---------------------------------------------------------------------------

MOST_UNKNOWN = 12
"""How many unknown keys are listed; more would push the verdict off the screen."""


def _config(config: ConfigRead) -> Iterator[str]:
    """Yields sections about a config: the keys that were read, and the unknown ones."""
    title = f"Read from {config.file}, a config of {config.trainer or 'an unknown trainer'}"
    yield from section(title, _key_table(config.read))

    unknown = _key_table(config.not_understood[:MOST_UNKNOWN])
    hidden = len(config.not_understood) - MOST_UNKNOWN
    if hidden > 0:
        unknown.append(ScreenLine(f"      and {hidden} more"))
    title = "Not counted (plan does not know these keys; some may need memory)"
    yield from section(title, unknown)


def _key_table(keys: Sequence[ConfigKey]) -> list[ScreenLine]:
    """Table rows for keys of a config: the line number, the key with its value, and its meaning."""
    rows = []
    for key in keys:
        setting = f"{key.key}: {key.value}" if key.value else key.key
        rows.append((str(key.line), setting, (key.meaning, DIM)))
    return table(("", "", ""), rows, left=(0, 1, 2))
