"""The loader, the precision and the compiler, for a machine's facts. Pure.

A change never alters the experiment; what would is said in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.configs.config import Config, edited
from gpusetup.configs.settings import (
    EMPTY,
    Setting,
    dotted,
    name_of,
    switch_value,
    unquoted,
    whole_number,
)
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.tune.batch import batch_fixed_by, cannot_fit, split_batches
from gpusetup.tune.case import (
    MEASURED,
    Case,
    DoesNotFit,
    Facts,
    Measured,
    Proposal,
    Proposed,
    Suggestion,
    Why,
    add_key,
    change_value,
    known_settings,
    label,
    not_a_number,
    trainer_in,
)

MOST_WORKERS = 16
"""Above this the loader's own process becomes the limit (the guide ends at 8 from 16 cores)."""
RAM_PER_WORKER_BYTES = {False: GIB, True: 3 * GIB}
"""A worker that has imported torch holds 0.3 to 0.8 GiB, and its batches; on Windows (True) it also
commits the CUDA libraries' 2 to 3 GiB (error 1455, the paging file is too small)."""
LEAST_PREFETCH = 2
WORKERS_SOURCE = (
    "acceleration guide, corrected: a worker for each usable core (affinity, cgroup), "
    f"{MOST_WORKERS} at most"
)
LOADER_SOURCE = "optimisation guide; torch.utils.data"

# --- the loader ---------------------------------------------------------------------------------


def worker_count(facts: Facts) -> tuple[int, Why]:
    """Loader workers of one process: the usable cores shared by the GPUs, and what RAM carries.

    >>> worker_count(Facts(cores=16, gpus=2))[0], worker_count(Facts(cores=64, gpus=1))[0]
    (8, 16)
    """
    gpus, cores = max(1, facts.gpus), facts.cores or 0
    bytes_each = RAM_PER_WORKER_BYTES[facts.family == "windows"]
    share = max(1, cores // gpus)
    ram_count = max(1, (facts.ram_bytes or 1 << 50) // bytes_each // gpus)
    count = min(share, ram_count, MOST_WORKERS)
    reason = f"{cores} usable cores" + (f" for {gpus} GPUs, a process each" if gpus > 1 else "")
    if count < min(share, MOST_WORKERS):
        reason += f"; RAM for {count}, at {bytes_each / GIB:g} GiB a worker"
    elif count < share:
        reason += f"; more than {MOST_WORKERS} workers are rarely faster"
    return count, Why(reason=reason, source=WORKERS_SOURCE)


def loader(case: Case) -> Iterator[Suggestion]:
    """The number of workers, and what goes with it."""
    facts, settings = case.facts, case.with_role("workers")
    if not facts.cores:
        return
    count, why = worker_count(facts)
    is_faster = case.measured.is_faster.get("workers")
    if is_faster is False:
        # Without workers, persistent ones and a prefetch are errors of the loader.
        yield from _workers_stay(settings, count)
        return
    if is_faster:
        why = Why(reason=f"it trains faster with {count} loader workers", source=MEASURED)
    for setting in settings:
        if (whole_number(setting) or 0) < 0 or whole_number(setting) is None:
            yield not_a_number(setting)
        else:
            yield from change_value(case, setting, str(count), why)
    added = add_key(case, "workers", str(count), why)
    yield from added
    if not (settings or added):
        if is_faster:
            yield NO_KEY.format(f"DataLoader(..., num_workers={count})")
        return
    if facts.family == "windows":
        yield (
            "On Windows each worker starts Python again: the training must start below"
            ' `if __name__ == "__main__":`, or every worker starts it again'
        )
    if facts.shm_bytes is not None and facts.shm_bytes < GIB:
        yield (
            f"/dev/shm has {facts.shm_bytes >> 20} MiB, through which workers pass batches:"
            " start the container with `--shm-size 8g` (or `--ipc host`)"
        )
    why = Why(reason="persistent workers do not start again in every epoch", source=LOADER_SOURCE)
    yield from _switch_on(case, "persistent", why)
    yield from add_key(case, "persistent", "true", why)
    why = Why(reason=f"each worker prepares {LEAST_PREFETCH} batches ready", source=LOADER_SOURCE)
    for setting in case.with_role("prefetch"):
        size = whole_number(setting)
        if (size is not None and size < LEAST_PREFETCH) or setting.text in EMPTY[1:]:
            yield from change_value(case, setting, str(LEAST_PREFETCH), why)


def _workers_stay(settings: list[Setting], count: int) -> Iterator[str]:
    """That more workers brought nothing on this machine."""
    for setting in settings:
        yield f"{label(setting)} stays {setting.text}: {count} were not faster ({MEASURED})"


def _switch_on(case: Case, role: str, why: Why) -> Iterator[Suggestion]:
    for setting in case.with_role(role):
        if switch_value(setting) is False:
            yield from change_value(case, setting, "true", why)


def other_workers(case: Case) -> Iterator[Suggestion]:
    """What Ray, Dask and others call as a loader does: their processes are the experiment."""
    for setting in case.with_role("not a loader"):
        yield (
            f"{label(setting)} is not in a loader's settings and may mean something else, so "
            "it stays as it is"
        )


def pinning(case: Case) -> Iterator[Suggestion]:
    """Pinned memory makes the copy to the GPU overlap; a Jetson's memory is the GPU's already."""
    if case.facts.gpus and not case.facts.jetson:
        why = "copies from pinned memory run while the GPU computes"
        source = "acceleration guide; torch.utils.data"
        yield from _switch_on(case, "pin", Why(reason=why, source=source))


# --- computing ----------------------------------------------------------------------------------

AMP_ROLES = ("amp", "bf16", "fp16", "precision")
TORCH_TYPES = {"bf16": "bfloat16", "fp16": "float16"}


def half_type(facts: Facts) -> str:
    """The 16-bit type of a GPU: bf16, before Ampere fp16."""
    return "fp16" if (facts.capability or (8, 0)) < (8, 0) else "bf16"


def precision(case: Case) -> Iterator[Suggestion]:
    """Mixed precision where a key for it stands in the config and the GPU gains by it."""
    is_faster, kind = case.measured.is_faster.get("amp"), half_type(case.facts)
    capability = case.facts.capability or ((8, 0) if is_faster else None)
    if capability is None or is_faster is False or case.fixed_by:
        return
    if capability < (7, 0) and not is_faster:
        if case.with_role(*AMP_ROLES):
            yield "This GPU has no tensor cores: mixed precision saves memory, but hardly any time"
        return
    why = Why(
        reason="tensor cores; measured savings of memory are 1 to 49 %, by model",
        source="acceleration guide, with its correction",
    )
    if is_faster:
        why = Why(reason="it trains faster", source=MEASURED)
        line = f"with torch.autocast(device, torch.{TORCH_TYPES[kind]}): loss = step(batch)"
        yield from _add_or_say(case, (kind, *AMP_ROLES), line)
    is_on = any(map(switch_value, case.with_role("amp", "bf16", "fp16")))
    for setting in case.with_role(*AMP_ROLES):
        role = next(key.role for one, key in case.keyed if one is setting)
        text, switch = unquoted(setting.text).lower(), switch_value(setting)
        if switch is False and (role == "amp" or (role == kind and not is_on)):
            yield from change_value(case, setting, _on_value(case, setting, kind), why)
            is_on = True
        elif role == "precision" and text in ("32", "32-true"):
            yield from change_value(case, setting, f"{kind.removeprefix('fp')}-mixed", why)
        elif kind == "fp16" and (text.startswith("bf16") or (role == "bf16" and switch)):
            yield (
                f"{label(setting)} asks for bf16, which this GPU computes slowly (before "
                "capability 8.0): use fp16 with loss scaling. Not changed, because the loss may "
                "differ"
            )


def _on_value(case: Case, setting: Setting, kind: str) -> str:
    """`true`, or the type where the trainer's `mixed_precision` is `no`, `fp16` or `bf16`."""
    trainer, quoted = trainer_in(case.config), unquoted(setting.text) != setting.text
    in_types = quoted or (trainer and trainer.name in ("accelerate", "diffusers"))
    return kind if in_types and name_of(setting.path) == "mixed_precision" else "true"


def compiling(case: Case) -> Iterator[Suggestion]:
    """`torch.compile` only if it was measured to be faster."""
    is_faster = case.measured.is_faster.get("compile")
    if is_faster:
        why = "fused kernels read the memory less often; the first step takes minutes"
        yield from _switch_on(case, "compile", Why(reason=why, source=MEASURED))
        yield from _add_or_say(case, ("compile",), "model = torch.compile(model)")
    for setting in case.with_role("compile") if is_faster is None else ():
        if switch_value(setting) is False:
            yield (
                f"{dotted(setting.path)} stays off: torch.compile makes some models faster,"
                " others slower (sizes that change), and fails with some; `--benchmark`"
                " measures it"
            )


NO_KEY = "Measured to be faster, and this config has no key for it: `{}` in the code"


def _add_or_say(case: Case, roles: tuple[str, ...], line: str) -> Iterator[Suggestion]:
    """What was faster here and has no key in the config: the trainer's own, or a line of code."""
    if not case.with_role(*roles):
        why = Why(reason="it trains faster", source=MEASURED)
        yield from add_key(case, roles[0], "true", why) or (NO_KEY.format(line),)


# --- in words only ------------------------------------------------------------------------------


def rollout(case: Case) -> Iterator[Suggestion]:
    """Reinforcement learning: the batch is part of the algorithm, the tokens on a GPU are not."""
    if case.with_role("rollout-batch"):
        yield (
            "The batch of a reinforcement-learning run is part of the algorithm, so it stays as "
            "it is. Memory is set by max_token_len_per_gpu and sequence parallelism: `gpusetup "
            "plan`"
        )


def several_gpus(case: Case) -> Iterator[Suggestion]:
    gpus = case.facts.gpus
    if not gpus:
        yield "gpusetup sees no NVIDIA GPU here, so it looked only at settings for the CPU"
    elif gpus > 1:
        yield (
            f"{gpus} GPUs: start one process each (`torchrun --nproc-per-node {gpus} ...`);"
            " DataParallel divides the loader's batch and gathers on one"
        )


RULES: tuple[Callable[[Case], Iterator[Suggestion]], ...] = (
    loader,
    other_workers,
    pinning,
    precision,
    compiling,
    rollout,
)
"""All but the batch, which is judged by the config as these leave it."""

NOTHING_MEASURED = Measured()


def propose(config: Config, facts: Facts, measured: Measured = NOTHING_MEASURED) -> Proposal:
    """Every rule's changes and words, in the file's order."""
    keyed = tuple(one for one in known_settings(config) if not one[1].plan)
    fixed = batch_fixed_by(config)
    case = Case(config=config, facts=facts, measured=measured, keyed=keyed, fixed_by=fixed)
    suggestions = [one for rule in RULES for one in rule(case)]
    if measured.interrupted:
        suggestions = [
            one for one in suggestions if isinstance(one, str) or one.change.source == MEASURED
        ]
    edits = [one.edit for one in suggestions if isinstance(one, Proposed)]
    case = replace(case, tuned=edited(config, edits))
    sample_problem = cannot_fit(case)
    if measured.batch_size or not measured.interrupted:
        splits = () if sample_problem else split_batches(case)
        suggestions = [*several_gpus(case), *splits, *suggestions]
    batch_problem = next((one for one in suggestions if isinstance(one, DoesNotFit)), None)
    problem = sample_problem or batch_problem
    proposed = [one for one in suggestions if isinstance(one, Proposed) and not problem]
    proposed.sort(key=lambda one: (one.edit.start, one.edit.text))
    return Proposal(
        changes=tuple(one.change for one in proposed),
        edits=tuple(one.edit for one in proposed),
        words=tuple(
            dict.fromkeys(
                one for one in suggestions if isinstance(one, str) and one != batch_problem
            )
        ),
        cannot_fit=problem,
    )
