"""The sentences of verdicts, notes and next steps, and the phrases that they name in braces. Pure
functions.

`{worked}` is a phrase of this module, `{work.cpu}` an attribute of the subject. What no source
reported is None: a sentence shows a question mark, and a command that needs it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import attrgetter

from gpusetup.model.shell import own_word
from gpusetup.model.units import GIB
from gpusetup.monitor.documents import ProcessUse
from gpusetup.monitor.gpu import GpuRun
from gpusetup.monitor.programs import named_with_size
from gpusetup.monitor.run import Subject, WatchedRun
from gpusetup.monitor.work import or_zero

Phrase = Callable[[Subject], str | None]
NAMES = re.compile(r"\{([\w.]+)\}")


def figure(name: str, subject: Subject) -> str | None:
    """A phrase, or an attribute of the subject without decimals; None if no source reported it."""
    value = PHRASES[name](subject) if name in PHRASES else attrgetter(name)(subject)
    if isinstance(value, float):
        return f"{value:.0f}"
    return None if value is None else str(value)


def filled(template: str, subject: Subject) -> str:
    """A sentence with this subject's figures, and a question mark for each that is unknown."""

    def figure_or_mark(name: re.Match[str]) -> str:
        value = figure(name[1], subject)
        return "?" if value is None else value

    return NAMES.sub(figure_or_mark, template)


def filled_command(template: str, subject: Subject) -> str | None:
    """A command with this subject's figures; None if the run lacks one of them."""
    figures = [figure(name, subject) for name in NAMES.findall(template)]
    return None if None in figures else filled(template, subject)


def whole(value: float | None) -> str:
    """A figure without decimals; a question mark if it is unknown."""
    return "?" if value is None else f"{value:.0f}"


def labels(gpus: Iterable[GpuRun]) -> str:
    return ", ".join(gpu.label for gpu in gpus)


def with_gpu_names(gpus: Iterable[GpuRun], words: str) -> str:
    """The words after the names of these GPUs; some sentences name their GPU themselves."""
    return words if words.startswith("GPU ") else f"GPU {labels(gpus)}: {words}"


# --- the GPU's work -------------------------------------------------------------------------------


def worked(subject: Subject) -> str:
    """The beginning of most sentences: how much of the time the GPU worked or, without a GPU, how
    much CPU the command used."""
    work, parts = subject.work, subject.gpu.parts
    if subject.gpu is subject.run.machine:
        cores = subject.run.usable_cores
        of_cores = f" of {cores:g} cores" if cores else ""
        return f"the command used {whole(work.cpu)} % CPU{of_cores}"
    sentence = f"GPU {subject.gpu.label} was busy {work.utilization:.0f} % of the time"
    # The figures on the screen include the pauses, so say where this one does not.
    leaves_pauses_out = work is parts.work and parts.pause_share >= 1
    return f"{sentence} between its pauses" if leaves_pauses_out else sentence


def at_power(subject: Subject) -> str:
    """How much power the GPU drew, such as ` at 71 % of the power limit`; "" if unknown."""
    share = subject.work.power_share
    return "" if share is None else f" at {share:.0f} % of the power limit"


def paused(subject: Subject) -> str:
    """How often and how long the GPU paused."""
    parts = subject.gpu.parts
    times = "once" if len(parts.pauses) == 1 else f"{len(parts.pauses)} times"
    longest = max(parts.pauses, default=0.0)
    return f"paused {times} ({parts.pause_share:.0f} % of its time, {longest:.0f} s at most)"


def rates(subject: Subject) -> str:
    """The notable rates over NVLink, PCIe and the network, such as `, 11.0 GB/s over PCIe`."""
    work = subject.work
    links = {"NVLink": work.link_rate, "PCIe": work.pcie_rate, "the network": work.network_rate}
    words = ""
    for link, rate in links.items():
        # A lower rate (50 MB/s) may belong to metrics and logs, not to the exchange.
        if rate is not None and rate >= 5e7:
            words += f", {rate / 1e9:.1f} GB/s over {link}"
    return words


def well_used(subject: Subject) -> str:
    """The utilisation, memory and temperature of a good run, as far as they are known."""
    figures = [f"utilisation {subject.work.utilization:.0f} %"]
    if subject.gpu.memory.p95 is not None:
        figures.append(f"memory {subject.gpu.memory.p95:.0f} %")
    if subject.gpu.heat is not None:
        figures.append(f"{subject.gpu.heat:.0f} °C")
    return ", ".join(figures)


def nothing_slows_it_down(subject: Subject) -> str:
    """The end of a good run's sentence: throttle reasons in the figures that cost nothing, or that
    nothing slows the GPU down, as far as the source reports it."""
    words = reasons_that_cost_little(subject.run) or ": nothing slows it down"
    if subject.gpu.parts.pause_share >= 1:
        words += f" between its pauses ({subject.gpu.parts.pause_share:.0f} % of its time)"
    # Throttle reasons, or clocks near their maximum, show that nothing throttles the GPU.
    is_known = subject.gpu.latest.throttle_reasons is not None or subject.work.clock_most
    return words if is_known else f"{words}, as far as is known (throttling is not reported)"


def reasons_that_cost_little(run: WatchedRun) -> str:
    """The throttle reasons of a run that is good nevertheless. The figures on the screen show every
    GPU, so a reason of any of them counts."""
    highest_shares: dict[str, float] = {}
    for subject in run.subjects:
        for reason, share in subject.work.reasons.items():
            highest_shares[reason] = max(share, highest_shares.get(reason, 0.0))
    # An idle GPU always lowers its clocks, so this reason means nothing.
    highest_shares.pop("gpu_idle", None)
    reasons = [f"{reason} in {share:.0f} % of the work" for reason, share in highest_shares.items()]
    if not reasons:
        return ""
    return f"; {' and '.join(reasons)} costs little: a busy card reaches its limits"


def sm_clock(subject: Subject) -> str:
    """The SM clock as a share of its maximum."""
    if subject.work.clock_share is None:
        return "this recording has no SM clock"
    maximum = "its maximum" if subject.work.clock_most else "the highest in this run"
    return f"SM clock at {whole(subject.work.clock_share)} % of {maximum}"


def slowed(subject: Subject) -> str:
    """What slows the clocks down ("" if nothing does), and how often: 100 % if the source reports
    no reason."""
    throttle = subject.throttle
    if throttle is None:
        return ""
    share = subject.work.reasons.get(throttle.reason, 100.0)
    reason = f"{throttle.words} ({throttle.reason})"
    return f"{reason} slowed the clocks down in {share:.0f} % of the work"


def watts_and_limit(subject: Subject) -> str:
    """The power and its limit, such as `, at 300 W (its limit: 350 W)`."""
    watts, limit = subject.work.power_watts, subject.gpu.latest.power_limit_watts
    words = "" if watts is None else f", at {watts:.0f} W"
    if limit is None:
        return words
    rated = subject.gpu.latest.power_limit_default_watts
    of_rated = f", rated: {rated:.0f} W" if rated and limit < rated else ""
    return f"{words} (its limit: {limit:.0f} W{of_rated})"


# --- memory and processes -------------------------------------------------------------------------


def memory_growth(subject: Subject) -> str:
    memory = subject.gpu.memory
    return f"memory grew all the time, from {memory.first:.0f} % to {memory.peak:.0f} %"


def named(processes: Iterable[ProcessUse], between: str = ", ") -> str:
    return between.join(map(named_with_size, processes))


def holders(subject: Subject) -> str:
    """The processes that use much of the GPU's memory. A single one needs no name."""
    big = subject.gpu.big_holders
    return "" if len(big) < 2 else f": {named(big)}"


def held_memory(subject: Subject) -> str:
    """The GPU memory in use in an idle run, such as `, with 40.0 GiB of GPU memory in use`."""
    occupied = [gpu.latest for gpu in subject.run.gpus if gpu.was_occupied]
    held_bytes = sum(or_zero(sample.memory_used_bytes) for sample in occupied)
    return f", with {held_bytes / GIB:.1f} GiB of GPU memory in use" if held_bytes else ""


def idle_cpu(subject: Subject) -> str:
    """How much CPU the command used in the second half of an idle run (`judge.idle`)."""
    cpu = subject.work.cpu
    words = " while the command used {:.0f} % of a core (in the second half of the run)"
    return "" if cpu is None else words.format(cpu)


def others(subject: Subject) -> str:
    """The processes to end on the GPU, as far as they are known: those that are not part of the
    job or, if no command shows what is, all that hold much of its memory."""
    processes = subject.foreign_holders or subject.gpu.big_holders
    return named(processes, " and ") or "what is not part of the job"


# --- the command ----------------------------------------------------------------------------------


def for_loaders(subject: Subject) -> str:
    """The number of loader workers (a mean over the run) that the process waited for, and how much
    CPU each of them used; "" without any."""
    count = subject.work.workers
    if not count:
        return ""
    noun = "loader worker" if round(count) == 1 else "loader workers"
    return f" for {count:.0f} {noun} at {or_zero(subject.work.worker_cpu):.0f} % of a core each"


def config(subject: Subject) -> str | None:
    """The training config that the command line names, quoted for a shell, if there is one."""
    words = subject.run.command or ()
    for previous, word in zip(("", *words), words, strict=False):
        # DeepSpeed's settings are not a training config: `--deepspeed ds.json`, `deepspeed.json`.
        is_for_deepspeed = "deepspeed" in previous or "deepspeed" in word
        if word.endswith((".yaml", ".yml", ".json")) and not is_for_deepspeed:
            # In `--config=train.yaml`, the file follows the option.
            return own_word(word.rpartition("=")[2])
    return None


def script(subject: Subject) -> str | None:
    """The first Python script in the command line, quoted for a shell; None if there is none."""
    scripts = [word for word in subject.run.command or () if word.endswith(".py")]
    return own_word(scripts[0]) if scripts else None


def pid(subject: Subject) -> str | None:
    """The pid of a process that computes on this GPU or, if there is none, on another; None if the
    command has ended, or if no pid is known, as in a container."""
    if subject.run.exit is not None:
        return None
    gpus = (subject.gpu, *subject.run.gpus)
    # 0 stands for a pid that the list of processes does not tell.
    pids = [number for gpu in gpus for number in sorted(gpu.holders) if number != 0]
    return str(pids[0]) if pids else None


def where_it_waits(subject: Subject) -> str:
    """How to see where a process waits, or which rank the others wait for."""
    words = "See where the process waits: while it runs, `py-spy dump` prints what it is doing"
    if len(subject.run.gpus) <= 1:
        return words
    return (
        f"{words}. If there are several ranks, look at each: the rank that waits elsewhere is the "
        "cause. NCCL_DEBUG=INFO and TORCH_NCCL_TRACE_BUFFER_SIZE=2000 name the collective"
    )


# fmt: off
FUNCTIONS: tuple[Phrase, ...] = (
    worked, at_power, paused, rates,
    well_used, nothing_slows_it_down, sm_clock, slowed,
    watts_and_limit, memory_growth, holders, held_memory, idle_cpu,
    others, for_loaders, config, script, pid,
    where_it_waits,
)
# fmt: on
PHRASES: dict[str, Phrase] = {
    **{function.__name__: function for function in FUNCTIONS},
    "kernels_ran": lambda s: f"kernels ran {s.work.utilization:.0f} % of the time",
    "highest_use": lambda s: whole(max(or_zero(gpu.utilization) for gpu in s.run.gpus)),
    "cores": lambda s: f"{s.run.usable_cores:g}" if s.run.usable_cores else None,
    "blocked": lambda s: None if s.work.blocked is None else f"{s.work.blocked:.1f}",
    "read": lambda s: None if s.work.read_rate is None else f"{s.work.read_rate / 1e6:.0f} MB/s",
    "present_gpus": lambda s: str(len([gpu for gpu in s.run.gpus if not gpu.lost_since])),
    "in_each_process": lambda s: " in each process" if s.run.training_processes > 1 else "",
    "each_gpu": lambda s: f"GPU {labels(s.run.gpus)}: " if len(s.run.gpus) > 1 else "",
    "unused": lambda s: labels(s.run.unused_gpus),
}
"""What the sentences can name in braces."""
