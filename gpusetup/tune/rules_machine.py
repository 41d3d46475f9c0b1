"""The loader, the precision, the compiler and the allocator, for a machine's facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.configs import keys
from gpusetup.configs.settings import NOTHING, Setting, in_words, name_of, truth, unquoted, whole
from gpusetup.model.units import GIB
from gpusetup.tune.case import MEASURED, Case, Facts, Part, added_key, no_number, written_over
from gpusetup.tune.trainers import trainer_in

WORKERS_MOST = 16
"""Above this the loader's own process becomes the limit (the guide ends at 8 from 16 cores)."""
RAM_PER_WORKER_BYTES = {False: GIB, True: 3 * GIB}
"""A worker that has imported torch holds 0.3 to 0.8 GiB, and its batches; on Windows (True) it also
commits the CUDA libraries' 2 to 3 GiB (error 1455, the paging file is too small)."""
PREFETCH_LEAST = 2
EXPANDABLE = "expandable_segments:True"
WORKERS_SOURCE = (
    "acceleration guide, corrected: a worker for each usable core (affinity, cgroup),"
    f" {WORKERS_MOST} at most"
)

# --- the loader ---------------------------------------------------------------------------------


def wanted_workers(facts: Facts) -> int | None:
    """Loader workers of one process: the usable cores shared by the GPUs, and what RAM carries.

    >>> wanted_workers(Facts(cores=16, gpus=2)), wanted_workers(Facts(cores=64, gpus=1))
    (8, 16)
    """
    if not facts.cores:
        return None
    share = max(1, facts.cores // max(1, facts.gpus))
    each = RAM_PER_WORKER_BYTES[facts.family == "windows"]
    room = max(1, (facts.ram_bytes or 1 << 50) // each // max(1, facts.gpus))
    return min(share, room, WORKERS_MOST)


def workers(case: Case) -> Iterator[Part]:
    count = case.option.workers if case.option.workers is not None else wanted_workers(case.facts)
    if count is None or "workers" in case.option.no_gain:
        return
    if count == 0 and (kept := _needs_workers(case)):
        yield f"No workers were the fastest, but {kept} needs at least one: change both by hand"
        return
    reason, source = _why_workers(case, count)
    for setting, _ in case.having(keys.WORKERS):
        if whole(setting) is None or (whole(setting) or 0) < 0:
            yield no_number(setting)
        else:
            yield from written_over(case, setting, str(count), reason, source)
    added = list(added_key(case, keys.WORKERS, str(count), reason))
    yield from added
    there = added or any(True for _ in case.having(keys.WORKERS))
    if case.facts.family == "windows" and count and there:
        yield (
            "On Windows each worker starts Python anew: the training must start below"
            ' `if __name__ == "__main__":`, or every worker starts it again'
        )
    if case.facts.shm_bytes is not None and case.facts.shm_bytes < GIB and count:
        yield (
            f"/dev/shm has {case.facts.shm_bytes >> 20} MiB, through which workers pass batches:"
            " start the container with `--shm-size 8g` (or `--ipc host`)"
        )


def _needs_workers(case: Case) -> str | None:
    """The setting that torch refuses without workers."""
    for setting, key in case.having(keys.PERSISTENT, keys.PREFETCH):
        if truth(setting) if key.role == keys.PERSISTENT else whole(setting):
            return in_words(setting.path)
    return None


def _why_workers(case: Case, count: int) -> tuple[str, str]:
    if case.option.workers is not None:
        return f"{count} was the fastest when the loader ran alone", MEASURED
    facts = case.facts
    shared = f" for {facts.gpus} GPUs, a process each" if facts.gpus > 1 else ""
    share = (facts.cores or 1) // max(1, facts.gpus)
    each = RAM_PER_WORKER_BYTES[facts.family == "windows"]
    why = ""
    if count < min(share, WORKERS_MOST):
        why = f"; RAM for {count}, at {each / GIB:g} GiB a worker"
    elif count < share:
        why = f"; more than {WORKERS_MOST} workers are seldom faster"
    return f"{facts.cores} usable cores{shared}{why}", WORKERS_SOURCE


def other_workers(case: Case) -> Iterator[Part]:
    """What Ray, Dask and others call as a loader does: their processes are the experiment."""
    for setting, _ in case.having(keys.NOT_A_LOADER):
        yield (
            f"{in_words(setting.path)} (line {setting.line}) does not stand below a loader and may"
            " mean something else: left as it is"
        )


def pinning(case: Case) -> Iterator[Part]:
    """Pinned memory makes the copy to the GPU overlap; a Jetson's memory is the GPU's already."""
    if not case.facts.gpus or case.facts.jetson:
        return
    for setting, _ in case.having(keys.PIN):
        if truth(setting) is False:
            reason = "copies from pinned memory run beside the computing"
            yield from written_over(
                case, setting, "true", reason, "acceleration guide; torch.utils.data"
            )


def loader_details(case: Case) -> Iterator[Part]:
    """With workers: keep them between epochs, and let each have batches ready."""
    if not _has_workers(case):
        return
    why = "workers that stay are not started again every epoch"
    for setting, _ in case.having(keys.PERSISTENT):
        if truth(setting) is False:
            yield from written_over(
                case, setting, "true", why, "optimisation guide; torch.utils.data"
            )
    yield from added_key(case, keys.PERSISTENT, "true", why)
    for setting, _ in case.having(keys.PREFETCH):
        size = whole(setting)
        if (size is not None and size < PREFETCH_LEAST) or setting.text in NOTHING[1:]:
            why = f"each worker has {PREFETCH_LEAST} batches ready"
            value = str(PREFETCH_LEAST)
            yield from written_over(
                case, setting, value, why, "optimisation guide; torch.utils.data"
            )


def _has_workers(case: Case) -> bool:
    """Whether the loader will have workers once the changes are made."""
    count = case.option.workers if case.option.workers is not None else wanted_workers(case.facts)
    there = [whole(setting) for setting, _ in case.having(keys.WORKERS)]
    added = [part for part in added_key(case, keys.WORKERS, str(count), "") if part]
    return bool(count) and (None not in there if there else bool(added))


# --- computing ----------------------------------------------------------------------------------


def precision(case: Case) -> Iterator[Part]:
    """Mixed precision where a key for it stands in the config and the GPU gains by it."""
    measured = case.option.amp
    capability = case.facts.capability or ((8, 0) if measured else None)
    if capability is None or measured is False or "amp" in case.option.no_gain:
        return
    if case.option.fixed_beside:
        return
    if capability < (7, 0) and not measured:
        if any(True for _ in case.having(*AMP_KEYS)):
            yield "This GPU has no tensor cores: mixed precision saves memory, hardly time"
        return
    on = any(truth(one) for one, _ in case.having(keys.AMP, keys.BF16, keys.FP16))
    kind = half(case.facts)
    why = "tensor cores; measured savings of memory are 1 to 49 %, by model"
    source = "acceleration guide, with its correction"
    if measured:
        why, source = "it trains faster", MEASURED
    for setting, key in case.having(keys.AMP, kind):
        if truth(setting) is False and (key.role == keys.AMP or not on):
            yield from written_over(case, setting, _switched(case, setting, kind), why, source)
            on = True
    for setting, _ in case.having(keys.PRECISION):
        if setting.text.strip("'\"") in ("32", "32-true"):
            value = "bf16-mixed" if capability >= (8, 0) else "16-mixed"
            yield from written_over(case, setting, value, why, source)
    if capability >= (8, 0):
        yield from (
            f"{in_words(one.path)} is on: bf16 needs no loss scaling on this GPU"
            for one, _ in case.having(keys.FP16)
            if truth(one)
        )
    elif capability >= (7, 0):
        yield from _half_it_lacks(case)


def _half_it_lacks(case: Case) -> Iterator[Part]:
    """bf16 on a GPU before Ampere: computed by detours, or refused by the trainer."""
    for setting, key in case.found:
        kind = unquoted(setting.text).lower()
        named = key.role in (keys.AMP, keys.PRECISION, keys.BF16) and kind.startswith("bf16")
        if named or (key.role == keys.BF16 and truth(setting)):
            yield (
                f"{in_words(setting.path)} (line {setting.line}) asks for bf16, for which this GPU"
                " has no tensor cores (they came with capability 8.0): fp16 with loss scaling is"
                " its 16-bit type, where the trainer takes it; the loss may differ, so it is left"
            )


def _switched(case: Case, setting: Setting, kind: str) -> str:
    """`true`, or the type where the trainer's `mixed_precision` is `no`, `fp16` or `bf16`."""
    trainer = trainer_in(case.config)
    in_types = name_of(setting.path) == "mixed_precision" and (
        setting.text[:1] in ("'", '"') or (trainer and trainer.name in ("accelerate", "diffusers"))
    )
    return kind if in_types else "true"


NO_TRITON = "torch.compile needs Triton (Linux, sm_70)"
TRY_COMPILE = (
    "torch.compile makes some models faster, others slower (sizes that change), and fails with"
    " some; `--benchmark` measures it"
)


def compiling(case: Case) -> Iterator[Part]:
    """`torch.compile` where Triton is: Linux, from Volta on."""
    facts = case.facts
    able = facts.family == "linux" and (facts.capability or (0, 0)) >= (7, 0) and not facts.jetson
    measured = case.option.compile
    for setting, _ in case.having(keys.COMPILE):
        if truth(setting) is not False or "compile" in case.option.no_gain:
            continue
        if measured:
            why = "fused kernels: fewer passes over memory; the first step takes minutes"
            yield from written_over(case, setting, "true", why, MEASURED)
        elif measured is None:
            yield f"{in_words(setting.path)} stays off: {TRY_COMPILE if able else NO_TRITON}"


AMP_KEYS = (keys.AMP, keys.BF16, keys.FP16, keys.PRECISION)
TYPES = {keys.BF16: "bfloat16", keys.FP16: "float16"}


def half(facts: Facts) -> str:
    """The 16-bit type of a GPU: bf16, before Ampere fp16."""
    return keys.FP16 if (facts.capability or (8, 0)) < (8, 0) else keys.BF16


def without_key(case: Case) -> Iterator[Part]:
    """What was faster here and has no key in the config: the trainer's own, or a line of code."""
    ours, kind = case.option, half(case.facts)
    rows = (
        (ours.compile, keys.COMPILE, "model = torch.compile(model)"),
        (ours.amp, kind, f"with torch.autocast(device, torch.{TYPES[kind]}): loss = step(batch)"),
        (ours.workers, keys.WORKERS, f"DataLoader(..., num_workers={ours.workers})"),
    )
    for faster, role, line in rows:
        there = case.having(*(AMP_KEYS if role == kind else (role,)))
        if not faster or any(True for _ in there):
            continue
        added = list(added_key(case, role, "true", "it trains faster"))
        if role != keys.WORKERS:  # `workers` has added that one
            yield from added
        if not added:
            yield f"Measured to be faster, and this config has no key for it: `{line}` in the code"


def allocator(case: Case) -> Iterator[Part]:
    """Expandable segments: never on Windows, WSL and Jetson, where the driver lacks them."""
    facts = case.facts
    if facts.family != "linux" or facts.wsl or facts.jetson or not facts.gpus:
        return
    why = "segments that grow leave no holes between them"
    there = list(case.having(keys.ALLOCATOR))
    for setting, _ in there:
        if setting.text in NOTHING:
            yield from written_over(
                case, setting, EXPANDABLE, why, "resources guide; torch.cuda memory notes"
            )
        elif "expandable_segments" not in setting.text:
            yield f"{in_words(setting.path)}: {EXPANDABLE} may be added to it; {why}"
    if not there:
        yield (
            f"Where memory is tight: PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE} (torch 2.9 and newer also"
            f" read PYTORCH_ALLOC_CONF) before the start; {why}"
        )
