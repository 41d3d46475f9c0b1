"""A plan as text: does it fit, with which recipe, where the memory goes, what to set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.model.documents import (
    CodePlan,
    ConfigKey,
    ConfigRead,
    FewerGpus,
    Help,
    PlanCell,
    ServePlan,
    SmallestGpu,
    Speed,
    TrainerSettings,
    Way,
)
from gpusetup.render.screen import (
    BUT,
    DIM,
    HEADING,
    NO,
    OK,
    Row,
    Screen,
    command,
    facts,
    notes,
    plural,
    section,
    table,
    verdict,
)

PARTS = ("states", "checkpoints", "logits", "fragmentation", "other")
RECIPES = {
    "vanilla": "no special setting",
    "Env": "expandable segments",
    "Offload": "FSDP2's CPU offload",
    "SP": "sequence parallelism",
}
"""Part of a recipe -> what it means."""


def plan_text(plan: PlanCell) -> Screen:
    """The whole screen."""
    ways = (_way(way, plan.memory_gib.capacity) for way in plan.ways)
    lines = [
        Row(_question(plan), hang=2),
        "",
        *_verdict(plan),
        *section("On this GPU alone, with checkpointing (!: less than a fifth free)", ways),
        *(_fewer_gpus(plan, plan.better) if plan.better else ()),
        *_memory(plan),
        *section("Set", _settings(plan) if plan.settings else ()),
        *(_trainer_settings(plan.trainer_settings) if plan.trainer_settings else ()),
        *(() if plan.ways else _helps(plan)),
        *(_speed(plan, plan.speed) if plan.speed else ()),
        *(_config(plan.config) if plan.config else ()),
        *notes(plan.advice),
        *(_code(plan.code) if plan.code else ()),
    ]
    return Screen(lines)


def _way(way: Way, capacity: float) -> Row:
    """One way to train: does it fit, up to which batch or length, what one sequence takes."""
    mark, most = NO, "does not fit"
    if way.fits:
        leaves_a_fifth = way.total_gib <= 0.8 * capacity
        mark = OK if leaves_a_fifth else BUT
        most = f"batch {way.batch:,}, or {way.context or 0:,} tokens"
    needs = f"one sequence needs {way.total_gib:.1f} GiB"
    return Row("  ", mark, f" {way.name:25} {most:27} ", (needs, DIM), whole=True)


def _question(plan: PlanCell) -> str:
    size = f"{_count(plan.parameters)} parameters"
    if plan.active_parameters != plan.parameters:
        size += f", {_count(plan.active_parameters)} active"
    batch = f", batch {plan.batch:,}" if plan.batch is not None else ""
    length = f", {plural(plan.context, 'token')}" if plan.context else ""
    return f"{plan.model} ({size}){length}{batch}, on {plan.gpus} x {plan.gpu}, {plan.strategy}"


def _count(parameters: int) -> str:
    """
    >>> _count(8190735360), _count(124439808)
    ('8.19B', '124M')
    """
    billions = parameters / 1e9
    return f"{billions:.3g}B" if billions >= 1 else f"{parameters / 1e6:.3g}M"


def _verdict(plan: PlanCell) -> Iterator[str]:
    """What was looked for, whether the job fits and with which recipe, and how sure that is."""
    if plan.solved and not plan.code:
        yield Row((_solution(plan), HEADING))
    recipe = f"{plan.recipe} ({_meaning(plan.recipe)})"
    host = plan.memory_gib.host
    with_ram = f" with {host:.0f} GiB of RAM" if host else ""
    if not plan.fits:
        yield verdict(NO, "does not fit")
    elif plan.uncounted:
        missing = _first_names(plan.uncounted)
        yield verdict(BUT, f"may fit{with_ram}, not counted: {missing}", f"; recipe: {recipe}")
    elif host:
        yield verdict(BUT, f"fits only{with_ram}", f": {recipe}")
    elif plan.confidence == "close":
        yield verdict(BUT, "may fit", f": {recipe}; measure one step first")
    else:
        yield verdict(OK, "fits", f": {recipe}")
    near = f"{plan.near_percent} % of the limit"
    reason = f"within {near}"
    is_measured_kind = plan.near_percent <= 3
    if plan.fits and plan.uncounted:
        reason = "something that may take memory is not counted"
    elif plan.fits and not is_measured_kind:
        reason += " or a kind of job that plan knows little about"
    confidence = {
        "measured": "measured",
        "clear": f"clear: nothing is within {near}",
        "close": f"close: {reason}",
    }
    lines = {"confidence": confidence[plan.confidence], "from": plan.source}
    if plan.smallest_gpu is not None:
        lines["smallest"] = _smallest_gpu(plan, plan.smallest_gpu)
    yield from facts(lines)


def _smallest_gpu(plan: PlanCell, smallest: SmallestGpu) -> str:
    """The smallest card that is enough, with the margin for the estimate's error."""
    size = f"{smallest.memory_gb:g} GB"
    cards = f"a card of {size}" if plan.gpus == 1 else f"{plan.gpus} cards of {size}"
    recipe = "" if smallest.recipe == "vanilla" else f", with {smallest.recipe}"
    return (
        f"{cards}, such as {smallest.names[0]}{recipe} (even if the run needs "
        f"{smallest.margin_percent} % more than estimated)"
    )


MOST_NAMES = 4


def _first_names(names: tuple[str, ...]) -> str:
    """The first few names of a list, and how many more there are.

    >>> _first_names(("use_galore", "quant_bits")), _first_names(tuple("abcdefg"))
    ('use_galore, quant_bits', 'a, b, c, d and 3 more')
    """
    shown = ", ".join(names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _solution(plan: PlanCell) -> str:
    """The value that was looked for; 0 if not even the smallest fits."""
    if plan.solved == "context":
        return f"longest context: {plan.context if plan.fits else 0:,} tokens"
    if plan.solved == "batch":
        return f"largest batch: {plan.batch or 0 if plan.fits else 0:,}"
    if plan.fits:
        return f"GPUs needed: {plan.gpus}"
    if plan.strategy in ("single", "dp", "ddp"):
        return "GPUs needed: more do not help, because each holds the whole model"
    return f"GPUs needed: more than {plan.gpus}"


def _memory(plan: PlanCell) -> Iterator[str]:
    """The parts, and what the card has."""
    memory, free = plan.memory_gib, plan.margin_percent
    left = f"{free:.1f} % free" if free >= 0 else f"{-free:.1f} % too much"
    if free < 0 and plan.fits:
        # A measured job ran, although the memory model adds its parts up to more than the card has.
        left = f"which ran; this estimate is {-free:.1f} % above the card's memory"
    lines = {name: f"{getattr(memory, name):8.2f}" for name in PARTS}
    lines["total"] = f"{memory.total:8.2f}  of {memory.capacity:.2f}, {left}"
    if memory.reserved:
        # Gaps that the allocator gives back before it fails are no part of the total.
        must_reserve = memory.allocated + memory.fragmentation
        more = f", up to {memory.reserved:.2f} while there is room"
        with_room = more if memory.reserved > must_reserve + 0.01 else ""
        lines["torch says"] = (
            f"{memory.allocated:8.2f}  allocated, {must_reserve:.2f} reserved{with_room}"
        )
    if not memory.other_gpus:
        return section("Memory of a GPU, GiB", facts(lines))
    lines["others"] = f"{memory.other_gpus:8.2f}  on each other GPU"
    return section("Memory of the first GPU, GiB", facts(lines))


def _fewer_gpus(plan: PlanCell, fewer: FewerGpus) -> Iterator[str]:
    """The number of GPUs that does better than all of them, why, and how to use just those."""
    gain = ""
    if plan.solved == "context":
        gain = f", up to {fewer.context:,} tokens"
    elif fewer.without_offload:
        gain = ", without the offload that costs most speed"
    yield from section(
        f"Use {fewer.gpus} of your {plan.gpus} GPUs instead",
        (
            Row(f"  The job fits on {fewer.gpus} with {fewer.recipe}{gain}.", hang=2),
            Row(f"  {fewer.reason}", hang=2),
            *(command(f"export {name}={value}") for name, value in fewer.environment.items()),
        ),
    )


def _speed(plan: PlanCell, speed: Speed) -> Iterator[str]:
    """How much faster the GPUs are than one of them, and what that is reckoned from."""
    low, high = f"{speed.times_low:g}", f"{speed.times_high:g}"
    if speed.computing_seconds is None:
        times = f"up to {high}"
        computing = "the longer a step computes, the less that counts"
    else:
        times = f"about {high}" if low == high else f"{low} to {high}"
        computing = f"its computing takes {_seconds(speed.computing_seconds)} (an estimate)"
    sentence = (
        f"  Each computes its own samples, so a step does {speed.gpus} times the work. For that "
        f"each GPU sends {speed.exchanged_gib:.2f} GiB in a step, by {speed.link} in "
        f"{_seconds(speed.sending_seconds)}; {computing}."
    )
    # A batch that all GPUs share is several micro-batches for one of them.
    how = ", by accumulating" if plan.batch else ""
    title = f"One GPU would do{how}; {speed.gpus} are {times} times as fast"
    return section(title, (Row(sentence, hang=2),))


def _seconds(seconds: float) -> str:
    """
    >>> _seconds(0.0042), _seconds(1.234)
    ('4 ms', '1.23 s')
    """
    return f"{seconds:.3g} s" if seconds >= 1 else f"{max(1000 * seconds, 1):.0f} ms"


def _helps(plan: PlanCell) -> Iterator[str]:
    """What would help: recipes in their order, then what is enough alone, then what is not."""
    recipes = [help for help in plan.helps if help.kind == "recipe"]
    others = [help for help in plan.helps if help.kind != "recipe"]
    if plan.fits:
        yield from _steps("If it runs out of memory anyway, in this order", recipes, plan)
        title = "Or change a setting" if recipes else "If it runs out of memory anyway"
        yield from _steps(title, others, plan)
    else:
        enough = [help for help in others if help.recipe]
        not_enough = [help for help in others if not help.recipe]
        yield from _steps("What would help, each alone", enough, plan)
        yield from _steps("Not enough alone", not_enough, plan)


def _steps(title: str, helps: list[Help], plan: PlanCell) -> Iterator[str]:
    """Steps with what each saves; a part of a recipe is explained where it first comes."""
    explained: set[str] = set()
    labels = []
    for help in helps:
        new_parts = set(help.step.strip("`").split(" + ")) - explained
        meanings = _meaning(" + ".join(sorted(new_parts))) if help.kind == "recipe" else ""
        explained |= new_parts
        labels.append(f"{help.step} ({meanings})" if meanings else help.step)
    width = max(map(len, labels), default=0)
    rows = []
    for help, label in zip(helps, labels, strict=True):
        then = f"   then fits with {help.recipe}" if help.recipe and not plan.fits else ""
        rows.append(Row(f"  {label:{width}}  saves {help.saves_gib:6.1f} GiB{then}", hang=4))
    return section(title, rows)


def _meaning(recipe: str) -> str:
    """
    >>> _meaning("Env + SP=2")
    'expandable segments, sequence parallelism'
    """
    parts = (part.partition("=")[0] for part in recipe.split(" + "))
    return ", ".join(RECIPES.get(part, "") for part in parts)


def _settings(plan: PlanCell) -> Iterator[str]:
    if any("ALLOC_CONF" in name for name in plan.env):
        yield command("# before Ray and the workers start:")
    for name, value in plan.env.items():
        yield command(f"export {name}={value}")
    for name, value in plan.settings.items():
        yield command(f"{name}: {_value(value)}")


def _trainer_settings(settings: TrainerSettings) -> Iterator[str]:
    """The trainer's own keys or flags to paste, and what they do not say."""
    lines = settings.text.splitlines()
    yield from section(settings.title, [command(line) for line in lines])
    if settings.missing:
        yield Row(f"  The text does not set: {', '.join(settings.missing)}", hang=4)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- a training config, somebody's code ---------------------------------------------------------

MOST_UNKNOWN = 12


def _config(config: ConfigRead) -> Iterator[str]:
    """What was read, assumed and not understood, each key with its line."""
    whose = f"a config of {config.trainer}" if config.trainer else "a config of an unknown trainer"
    # A list is shown once, and not again for each of its items.
    names = {key.key for key in config.read}
    read = [_key(key) for key in config.read if key.key.partition("[")[0] not in names - {key.key}]
    unknown = [_key(key) for key in config.not_understood[:MOST_UNKNOWN]]
    yield from section(f"Read from {config.file}, {whose}", _keys(read))
    assumed = (Row(f"  {line}", hang=4) for line in config.assumed)
    yield from section("Assumed, because the config does not say", assumed)
    lines = _keys(unknown)
    more = len(config.not_understood) - MOST_UNKNOWN
    if more > 0:
        lines.append(Row(f"      and {more} more"))
    title = "Not counted (plan does not know these keys; some may take memory)"
    yield from section(title, lines)


KeyRow = tuple[str, str, tuple[str, Any]]
"""Line, key with its value, and what it means, dim."""


def _key(key: ConfigKey) -> KeyRow:
    setting = f"{key.key}: {key.value}" if key.value else key.key
    return str(key.line), setting, (key.meaning, DIM)


def _keys(rows: list[KeyRow]) -> list[Row]:
    """Keys in columns, without a heading."""
    return table(("", "", ""), rows, left=(0, 1, 2))[1:]


def _code(code: CodePlan) -> Iterator[str]:
    """What the trace of `plan --code` saw: the phases, and the largest batch."""
    phases = facts({name: f"{gib:8.3f}" for name, gib in code.phases_gib.items()})
    yield from section(f"Most at once in each phase, GiB (torch {code.torch})", phases)
    batch = code.largest_batch
    most = "unknown, see the note" if batch is None else f"{batch:,}"
    most = "not even one sample fits on a GPU" if batch == 0 else most
    yield from ("", Row(("Largest batch on all GPUs together:", HEADING), f" {most}"))


# --- a server ------------------------------------------------------------------------------------


def serve_text(plan: ServePlan) -> Screen:
    """The screen of a serving plan."""
    requests, most = plural(plan.sequences, "request"), plural(plan.largest_sequences, "request")
    size, engine = f"{plan.parameters / 1e9:.3g}B parameters", f"{plan.weights}, {plan.engine}"
    mark, said = (OK, "fits") if plan.command else (BUT, "the memory is enough")
    if plan.uncounted:
        mark, said = BUT, f"may fit, but {'; '.join(plan.uncounted)}"
    if not plan.fits:
        mark, said = NO, "does not fit"
    told = {
        "longest": f"{plan.largest_context:,} tokens for {requests}",
        "most": f"{most} of {plan.context:,} tokens",
    }
    gib = {
        "weights": plan.weights_gib,
        "cache": plan.cache_gib,
        "a pass": plan.pass_gib,
        "left": plan.free_gib,
        "capacity": plan.capacity_gib,
    }
    parts = {name: f"{value:8.2f}" for name, value in gib.items()}
    parts["a token"] = f"{plan.token_kib:8.2f} KiB of cache"
    return Screen(
        (
            Row(f"{plan.model} ({size}) in {engine}, on {plan.gpus} x {plan.gpu}", hang=2),
            "",
            verdict(mark, said, f": {requests} of {plan.context:,} tokens, cache in {plan.cache}"),
            *facts(told),
            *section("Memory of a GPU, GiB", facts(parts)),
            *section("Start it with", [command(plan.command)] if plan.command else ()),
            *notes(plan.notes),
        )
    )
