"""The rules for data loader, precision and compilation, applied to a config and a machine. Pure
functions.

A change never alters the experiment; advice that would alter it is only printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpusetup.configs.config import Config, edited
from gpusetup.configs.settings import Setting, dotted, name_of, switch_value, unquoted, whole_number
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.model.versions import Capability
from gpusetup.plan.place import FIRST_WITH_BFLOAT16
from gpusetup.tune.advice import embedding_cache, network_size, sequence_length, unclipped_gradients
from gpusetup.tune.batch import batch_fixed_by, cannot_fit, split_batches, too_large
from gpusetup.tune.case import (
    LONGEST_SHOWN,
    MEASURED,
    ConfigCase,
    Facts,
    Measured,
    Proposal,
    Proposed,
    Suggestion,
    add_key,
    change_value,
    known_settings,
    label,
)

MOST_WORKERS = 16
"""The maximum number of workers to suggest. With more, the loader's main process becomes the
bottleneck (the guide stops at 8 for 16 cores and more)."""
WORKER_BYTES = GIB
"""The RAM for one worker: 0.3 to 0.8 GiB for importing torch, and room for its batches."""
WINDOWS_WORKER_BYTES = 3 * GIB
"""The memory for one worker on Windows, where it also commits 2 to 3 GiB for the CUDA libraries. If
that fails, Windows reports error 1455 (the paging file is too small)."""
WORKERS_SOURCE = f"torch.utils.data; one worker per usable core, at most {MOST_WORKERS}"
LOADER_SOURCE = "optimisation guide; torch.utils.data"


def worker_count(facts: Facts) -> tuple[int, str]:
    """The number of loader workers for each process, with its reason: usable cores divided by the
    number of GPUs, limited by RAM.

    >>> worker_count(Facts(cores=16, gpus=2))[0], worker_count(Facts(cores=64, gpus=1))[0]
    (8, 16)
    """
    # There is one training process per GPU, or a single process if there is no GPU.
    processes = max(1, facts.gpus)
    cores_each = max(1, (facts.cores or 0) // processes)
    count = min(cores_each, MOST_WORKERS)
    reason = f"{facts.cores or 0} usable cores"
    if facts.where:
        reason = f"this machine has {reason}"
    if processes > 1:
        reason += f" for {processes} GPUs, a process each"
    worker_bytes = WINDOWS_WORKER_BYTES if facts.family == "windows" else WORKER_BYTES
    if facts.ram_bytes is not None:
        carried_by_ram = max(1, facts.ram_bytes // worker_bytes // processes)
        if carried_by_ram < count:
            count = carried_by_ram
            reason += f"; RAM for {count} workers, {worker_bytes / GIB:g} GiB each"
    return count, reason


def loader(case: ConfigCase) -> Iterator[Suggestion]:
    """Suggest the number of loader workers, and the loader settings that go with it."""
    facts, settings = case.facts, case.with_role("workers")
    is_faster = case.measured.is_faster.get("workers")
    # If workers were not faster, persistent workers stay as they are too, because a loader without
    # workers raises an error for them. Without the number of cores there is nothing to suggest.
    if not facts.cores or is_faster is False:
        return
    count, reason = worker_count(facts)
    source = WORKERS_SOURCE
    if is_faster:
        reason, source = f"it trains faster with {count} loader workers", MEASURED
    for setting in settings:
        number = whole_number(setting)
        # A negative number is not a valid number of workers.
        if number is not None and number >= 0:
            yield from change_value(case, setting, str(count), reason, source)
    added = add_key(case, "workers", str(count), reason)
    yield from added
    # Without a setting for workers, the trainer is not known to read the others.
    if not settings and not added:
        return
    if facts.family == "windows":
        yield (
            'On Windows, start the training below `if __name__ == "__main__":`, because each worker'
            " imports your script and would start the training again"
        )
    reason = "persistent workers do not start again in every epoch"
    yield from _switch_on(case, "persistent", reason, LOADER_SOURCE)
    yield from add_key(case, "persistent", "true", reason)


def _switch_on(case: ConfigCase, role: str, reason: str, source: str) -> Iterator[Suggestion]:
    """Suggest switching on each setting with this role that is off; any other value stays."""
    for setting in case.with_role(role):
        if switch_value(setting) is False:
            yield from change_value(case, setting, "true", reason, source)


def pinning(case: ConfigCase) -> Iterator[Suggestion]:
    """Suggest pinned memory; not without a GPU, nor for one that shares the host's memory, as on a
    Jetson."""
    card = case.facts.card
    if case.facts.gpus and not (card and card.unified):
        reason = "copies from pinned memory run while the GPU computes"
        yield from _switch_on(case, "pin", reason, "acceleration guide; torch.utils.data")


AMP_ROLES = ("amp", "bf16", "fp16", "precision")
TENSOR_CORES_SINCE = Capability(7, 0)
"""The compute capability of Volta, the first GPUs with tensor cores."""
WITHOUT_TENSOR_CORES = "GTX 16"
"""Turing cards of this series have no tensor cores although their capability, 7.5, is that of an
RTX 2060."""
FULL_PRECISION = ("32", "32-true")
"""The values for 32 bits in Lightning and litgpt."""
HALF_PRECISION = re.compile(r"(?i)\b(?:bf16|fp16|bfloat16|float16|half|16)\b|^pure_bf16$")
"""Matches values, and names of switches, that mean that the training already computes in 16
bits."""
DTYPE_NAMES = ("torch_dtype", "dtype", "model_dtype", "amp_dtype", "pure_bf16")


def precision(case: ConfigCase) -> Iterator[Suggestion]:
    """Suggest mixed precision if the GPU benefits from it or a measurement showed that it is
    faster."""
    is_faster = case.measured.is_faster.get("amp")
    settings = case.with_role(*AMP_ROLES)
    # If mixed precision was measured to be faster, an unknown card counts as one with bfloat16.
    capability = case.facts.capability or (FIRST_WITH_BFLOAT16 if is_faster else None)
    if capability is None or is_faster is False:
        return
    if case.fixed_by:
        for setting in settings:
            if switch_value(setting) is False:
                yield f"{label(setting)} stays off: {case.fixed_by}"
        return
    is_gtx_16 = WITHOUT_TENSOR_CORES in (case.facts.gpu or "")
    if not is_faster and (capability < TENSOR_CORES_SINCE or is_gtx_16):
        if settings:
            yield "This GPU has no tensor cores: mixed precision saves memory, but hardly any time"
        return
    half = "bf16" if capability >= FIRST_WITH_BFLOAT16 else "fp16"
    reason = "uses tensor cores and may save up to 49 % of the memory; the loss may differ slightly"
    source = "acceleration guide"
    if is_faster:
        reason, source = "it trains faster; the loss may differ slightly", MEASURED
        if not settings:
            yield from add_key(case, half, "true", reason)
    yield from _half_switches(case, half, reason, source)


def _half_switches(case: ConfigCase, half: str, reason: str, source: str) -> Iterator[Suggestion]:
    """Set the config's own precision, or one of its switches for mixed precision, to the type
    `half` (bf16 or fp16)."""
    for setting in case.with_role("precision"):
        if unquoted(setting.text) in FULL_PRECISION:
            # Lightning writes `16-mixed` and `bf16-mixed`.
            value = f"{half.removeprefix('fp')}-mixed"
            yield from change_value(case, setting, value, reason, source)
    # This GPU has no bfloat16, or `half` would be bf16.
    if half == "fp16":
        yield from _advice_against_bf16(case)
    # Only one switch is set, because two would conflict. With `auto`, the trainer chooses the type.
    switches = case.with_role("amp", "bf16", "fp16")
    if any(switch_value(one) or unquoted(one.text) == "auto" for one in switches):
        return
    suitable = case.with_role("amp", half)
    switch = next((one for one in suitable if switch_value(one) is False), None)
    if switch is not None:
        # In accelerate and diffusers, a type's name switches mixed precision on, and `no` off.
        takes_type = name_of(switch.path) == "mixed_precision" and unquoted(switch.text) == "no"
        yield from change_value(case, switch, half if takes_type else "true", reason, source)
    elif not suitable:
        yield from _without_switch(case, half, reason)


def _advice_against_bf16(case: ConfigCase) -> Iterator[str]:
    """Advise against bf16 on a GPU without it, for each setting that asks for it."""
    for setting in case.with_role(*AMP_ROLES):
        is_bf16_switch = setting in case.with_role("bf16") and switch_value(setting)
        if is_bf16_switch or unquoted(setting.text).lower().startswith("bf16"):
            yield (
                f"{label(setting)} asks for bf16, which is slow or refused on this GPU (before "
                "compute capability 8.0): use fp16 with loss scaling. Not changed, because the "
                "loss may differ"
            )


def _without_switch(case: ConfigCase, half: str, reason: str) -> Iterator[Suggestion]:
    """Add a switch for the type `half` to a config that only has one for the other type
    (`fp16: false` on a GPU that bf16 suits better), or explain why not."""
    switches = case.with_role("bf16", "fp16")
    # Without any switch for 16 bits, nothing shows that the training may use them.
    if not switches:
        return
    other, in_16_bits = switches[0], _half_setting(case)
    if in_16_bits is not None:
        value = unquoted(in_16_bits.text)[:LONGEST_SHOWN]
        yield f"{label(other)} stays off, because {label(in_16_bits)} is {value}"
    elif added := add_key(case, half, "true", reason):
        yield from added
    else:
        yield (
            f"{label(other)} is off, and this GPU has tensor cores: mixed precision in {half} "
            f"saves 1 to 49 % of the memory. Not written, because the config has no key for {half}"
        )


def _half_setting(case: ConfigCase) -> Setting | None:
    """A setting by which the training computes in 16 bits without mixed precision, by its value
    (`torch_dtype: bfloat16`) or its name (`pure_bf16: true`); None if there is none."""
    for setting in (*case.with_role("precision"), *case.with_name(*DTYPE_NAMES)):
        switch = switch_value(setting)
        if switch is False:
            continue
        # A switch names the type in its key, any other setting in its value.
        text = unquoted(setting.text) if switch is None else name_of(setting.path)
        if HALF_PRECISION.search(text):
            return setting
    return None


def compiling(case: ConfigCase) -> Iterator[Suggestion]:
    """Suggest `torch.compile` if a measurement showed that it is faster; explain why it stays off
    if there was none."""
    is_faster = case.measured.is_faster.get("compile")
    if is_faster:
        reason = "fused kernels access memory less often; the first step takes minutes"
        yield from _switch_on(case, "compile", reason, MEASURED)
        yield from add_key(case, "compile", "true", reason)
    elif is_faster is None:
        for setting in case.with_role("compile"):
            if switch_value(setting) is False:
                yield (
                    f"{dotted(setting.path)} stays off: torch.compile makes some models faster,"
                    " others slower (sizes that change), and fails with some; `--benchmark`"
                    f" measures it{case.facts.where}"
                )


def several_gpus(case: ConfigCase) -> Iterator[Suggestion]:
    """Advice on starting the training on several GPUs, or a note that there is no GPU."""
    gpus = case.facts.gpus
    if not gpus:
        yield "gpusetup sees no NVIDIA GPU here, so it looked only at settings for the CPU"
    elif gpus > 1:
        yield (
            f"{gpus} GPUs: start one process each (`torchrun --nproc-per-node {gpus} ...`);"
            " DataParallel divides the loader's batch and gathers on one"
        )


RULES: tuple[Callable[[ConfigCase], Iterator[Suggestion]], ...] = (
    loader,
    pinning,
    precision,
    compiling,
    network_size,
    sequence_length,
    unclipped_gradients,
    embedding_cache,
)
"""All rules except those for the batch, which run last because plan judges the batch with the other
changes already made."""


def propose(config: Config, facts: Facts, measured: Measured | None = None) -> Proposal:
    """The changes that all rules propose, in the file's order, and the advice that is only
    printed. `measured`: None if nothing was measured."""
    measured = measured or Measured()
    # `tune` ignores the keys that only `plan` uses.
    keyed = tuple((setting, key) for setting, key in known_settings(config) if not key.plan)
    fixed_by = batch_fixed_by(config)
    case = ConfigCase(config=config, facts=facts, measured=measured, keyed=keyed, fixed_by=fixed_by)
    suggestions = [suggestion for rule in RULES for suggestion in rule(case)]
    # Judge the batch with the config as the other rules change it.
    edits = [part.edit for part in suggestions if isinstance(part, Proposed)]
    case = replace(case, tuned=edited(config, edits))
    problem = cannot_fit(case)
    splits = [] if problem else list(split_batches(case))
    suggestions = [*several_gpus(case), *splits, *suggestions]
    # If not even one sample fits, a faster loader does not help, so propose no change.
    changes = [part for part in suggestions if isinstance(part, Proposed) and not problem]
    # A batch that is too large is no problem if its split is changed.
    if not any(isinstance(part, Proposed) for part in splits):
        problem = problem or too_large(case)
    changes.sort(key=lambda part: (part.edit.start, part.edit.text))
    return Proposal(
        changes=tuple(part.change for part in changes),
        edits=tuple(part.edit for part in changes),
        # Two rules may give the same advice.
        words=tuple(dict.fromkeys(part for part in suggestions if isinstance(part, str))),
        cannot_fit=problem,
    )
