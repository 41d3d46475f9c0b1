"""The loader, the precision and the compiler, for a machine's facts. Pure.

A change never alters the experiment; what would is said in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.configs.config import Config, changed
from gpusetup.configs.settings import NOTHING, Setting, in_words, name_of, truth, unquoted, whole
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.tune.batch import batch, cannot_fit, fixed_by_another
from gpusetup.tune.case import (
    MEASURED,
    Case,
    DoesNotFit,
    Facts,
    Option,
    Part,
    Proposal,
    Proposed,
    Why,
    added_key,
    meant,
    no_number,
    place,
    trainer_in,
    written_over,
)

WORKERS_MOST = 16
"""Above this the loader's own process becomes the limit (the guide ends at 8 from 16 cores)."""
RAM_PER_WORKER_BYTES = {False: GIB, True: 3 * GIB}
"""A worker that has imported torch holds 0.3 to 0.8 GiB, and its batches; on Windows (True) it also
commits the CUDA libraries' 2 to 3 GiB (error 1455, the paging file is too small)."""
PREFETCH_LEAST = 2
WORKERS_SOURCE = (
    "acceleration guide, corrected: a worker for each usable core (affinity, cgroup),"
    f" {WORKERS_MOST} at most"
)
LOADER_SOURCE = "optimisation guide; torch.utils.data"

# --- the loader ---------------------------------------------------------------------------------


def wanted_workers(facts: Facts) -> tuple[int, Why]:
    """Loader workers of one process: the usable cores shared by the GPUs, and what RAM carries.

    >>> wanted_workers(Facts(cores=16, gpus=2))[0], wanted_workers(Facts(cores=64, gpus=1))[0]
    (8, 16)
    """
    gpus, cores = max(1, facts.gpus), facts.cores or 0
    each = RAM_PER_WORKER_BYTES[facts.family == "windows"]
    share, room = max(1, cores // gpus), max(1, (facts.ram_bytes or 1 << 50) // each // gpus)
    count = min(share, room, WORKERS_MOST)
    reason = f"{cores} usable cores" + (f" for {gpus} GPUs, a process each" if gpus > 1 else "")
    if count < min(share, WORKERS_MOST):
        reason += f"; RAM for {count}, at {each / GIB:g} GiB a worker"
    elif count < share:
        reason += f"; more than {WORKERS_MOST} workers are rarely faster"
    return count, Why(reason=reason, source=WORKERS_SOURCE)


def loader(case: Case) -> Iterator[Part]:
    """The number of workers, and what goes with it."""
    facts, there = case.facts, case.having("workers")
    if not facts.cores:
        return
    count, why = wanted_workers(facts)
    for setting in there:
        if (whole(setting) or 0) < 0 or whole(setting) is None:
            yield no_number(setting)
        else:
            yield from written_over(case, setting, str(count), why)
    added = added_key(case, "workers", str(count), why)
    yield from added
    if not (there or added):
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
    why = Why(reason="workers that stay are not started again every epoch", source=LOADER_SOURCE)
    yield from _switched_on(case, "persistent", why)
    yield from added_key(case, "persistent", "true", why)
    why = Why(reason=f"each worker has {PREFETCH_LEAST} batches ready", source=LOADER_SOURCE)
    for setting in case.having("prefetch"):
        size = whole(setting)
        if (size is not None and size < PREFETCH_LEAST) or setting.text in NOTHING[1:]:
            yield from written_over(case, setting, str(PREFETCH_LEAST), why)


def _switched_on(case: Case, role: str, why: Why) -> Iterator[Part]:
    for setting in case.having(role):
        if truth(setting) is False:
            yield from written_over(case, setting, "true", why)


def other_workers(case: Case) -> Iterator[Part]:
    """What Ray, Dask and others call as a loader does: their processes are the experiment."""
    for setting in case.having("not a loader"):
        yield (f"{place(setting)} is not below a loader and may mean something else: left as it is")


def pinning(case: Case) -> Iterator[Part]:
    """Pinned memory makes the copy to the GPU overlap; a Jetson's memory is the GPU's already."""
    if case.facts.gpus and not case.facts.jetson:
        why = "copies from pinned memory run while the GPU computes"
        source = "acceleration guide; torch.utils.data"
        yield from _switched_on(case, "pin", Why(reason=why, source=source))


# --- computing ----------------------------------------------------------------------------------

AMP = ("amp", "bf16", "fp16", "precision")
TYPES = {"bf16": "bfloat16", "fp16": "float16"}


def half(facts: Facts) -> str:
    """The 16-bit type of a GPU: bf16, before Ampere fp16."""
    return "fp16" if (facts.capability or (8, 0)) < (8, 0) else "bf16"


def precision(case: Case) -> Iterator[Part]:
    """Mixed precision where a key for it stands in the config and the GPU gains by it."""
    measured, kind = case.option.gained.get("amp"), half(case.facts)
    capability = case.facts.capability or ((8, 0) if measured else None)
    if capability is None or measured is False or case.fixed:
        return
    if capability < (7, 0) and not measured:
        if case.having(*AMP):
            yield "This GPU has no tensor cores: mixed precision saves memory, hardly time"
        return
    why = Why(
        reason="tensor cores; measured savings of memory are 1 to 49 %, by model",
        source="acceleration guide, with its correction",
    )
    if measured:
        why = Why(reason="it trains faster", source=MEASURED)
        line = f"with torch.autocast(device, torch.{TYPES[kind]}): loss = step(batch)"
        yield from _added(case, (kind, *AMP), line)
    on = any(map(truth, case.having("amp", "bf16", "fp16")))
    for setting in case.having(*AMP):
        role = next(key.role for one, key in case.found if one is setting)
        text, switch = unquoted(setting.text).lower(), truth(setting)
        if switch is False and (role == "amp" or (role == kind and not on)):
            yield from written_over(case, setting, _switch(case, setting, kind), why)
            on = True
        elif role == "precision" and text in ("32", "32-true"):
            yield from written_over(case, setting, f"{kind.removeprefix('fp')}-mixed", why)
        elif kind == "fp16" and (text.startswith("bf16") or (role == "bf16" and switch)):
            yield (
                f"{place(setting)} asks for bf16, which this GPU computes slowly (before capability"
                " 8.0): use fp16 with loss scaling. Left as it is, because the loss may differ"
            )


def _switch(case: Case, setting: Setting, kind: str) -> str:
    """`true`, or the type where the trainer's `mixed_precision` is `no`, `fp16` or `bf16`."""
    trainer, quoted = trainer_in(case.config), unquoted(setting.text) != setting.text
    in_types = quoted or (trainer and trainer.name in ("accelerate", "diffusers"))
    return kind if in_types and name_of(setting.path) == "mixed_precision" else "true"


def compiling(case: Case) -> Iterator[Part]:
    """`torch.compile` only if it was measured to be faster."""
    measured = case.option.gained.get("compile")
    if measured:
        why = "fused kernels: fewer passes over memory; the first step takes minutes"
        yield from _switched_on(case, "compile", Why(reason=why, source=MEASURED))
        yield from _added(case, ("compile",), "model = torch.compile(model)")
    for setting in case.having("compile") if measured is None else ():
        if truth(setting) is False:
            yield (
                f"{in_words(setting.path)} stays off: torch.compile makes some models faster,"
                " others slower (sizes that change), and fails with some; `--benchmark`"
                " measures it"
            )


NO_KEY = "Measured to be faster, and this config has no key for it: `{}` in the code"


def _added(case: Case, roles: tuple[str, ...], line: str) -> Iterator[Part]:
    """What was faster here and has no key in the config: the trainer's own, or a line of code."""
    if not case.having(*roles):
        why = Why(reason="it trains faster", source=MEASURED)
        yield from added_key(case, roles[0], "true", why) or (NO_KEY.format(line),)


# --- in words only ------------------------------------------------------------------------------


def rollout(case: Case) -> Iterator[Part]:
    """Reinforcement learning: the batch is part of the algorithm, the tokens on a GPU are not."""
    if case.having("rollout-batch"):
        yield (
            "The batch of a reinforcement-learning run is part of the algorithm: left as it is."
            " Memory is set by max_token_len_per_gpu and sequence parallelism: `gpusetup plan`"
        )


def several_gpus(case: Case) -> Iterator[Part]:
    gpus = case.facts.gpus
    if not gpus:
        yield "No NVIDIA GPU is visible here: only what depends on the CPU was looked at"
    elif gpus > 1:
        yield (
            f"{gpus} GPUs: start one process each (`torchrun --nproc-per-node {gpus} ...`);"
            " DataParallel divides the loader's batch and gathers on one"
        )


RULES: tuple[Callable[[Case], Iterator[Part]], ...] = (
    loader,
    other_workers,
    pinning,
    precision,
    compiling,
    rollout,
)
"""All but the batch, which is judged by the config as these leave it."""

NOTHING_ASKED = Option()


def propose(config: Config, facts: Facts, option: Option = NOTHING_ASKED) -> Proposal:
    """Every rule's changes and words, in the file's order."""
    found = tuple(one for one in meant(config) if not one[1].plan)
    fixed = fixed_by_another(config)
    case = Case(config=config, facts=facts, option=option, found=found, fixed=fixed)
    parts = [part for rule in RULES for part in rule(case)]
    if option.interrupted:
        parts = [one for one in parts if isinstance(one, str) or one.change.source == MEASURED]
    edits = [part.edit for part in parts if isinstance(part, Proposed)]
    case = replace(case, changed=changed(config, edits))
    one_sample = cannot_fit(case)
    if option.measured or not option.interrupted:
        parts = [*several_gpus(case), *(() if one_sample else batch(case)), *parts]
    stopped = one_sample or next((part for part in parts if isinstance(part, DoesNotFit)), None)
    made = [part for part in parts if isinstance(part, Proposed) and not stopped]
    made.sort(key=lambda one: (one.edit.start, one.edit.text))
    return Proposal(
        changes=tuple(one.change for one in made),
        edits=tuple(one.edit for one in made),
        words=tuple(
            dict.fromkeys(part for part in parts if isinstance(part, str) and part != stopped)
        ),
        cannot_fit=stopped,
    )
