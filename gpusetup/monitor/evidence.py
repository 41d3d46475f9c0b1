"""The sentences that explain a verdict with one GPU's figures. Pure functions.

A figure that no source reported is shown as a question mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpusetup.monitor.holders import named_with_size
from gpusetup.monitor.marks import QUIET, SPINNING_USE
from gpusetup.monitor.subject import Subject
from gpusetup.monitor.work import Work, below, or_zero

UNKNOWN = "?"


def whole(value: float | None) -> str:
    """
    >>> whole(41.7), whole(None)
    ('42', '?')
    """
    if value is None:
        return UNKNOWN
    return f"{value:.0f}"


def one_digit(value: float | None) -> str:
    """
    >>> one_digit(41.72), one_digit(None)
    ('41.7', '?')
    """
    if value is None:
        return UNKNOWN
    return f"{value:.1f}"


def megabytes(rate: float | None) -> str:
    """
    >>> megabytes(2.5e7), megabytes(None)
    ('25 MB/s', '?')
    """
    if rate is None:
        return UNKNOWN
    return f"{rate / 1e6:.0f} MB/s"


def transfer(rate: float) -> str:
    """
    >>> transfer(1.16e10), transfer(2.4e8)
    ('11.6 GB/s', '240 MB/s')
    """
    if rate < 1e9:
        return megabytes(rate)
    return f"{rate / 1e9:.1f} GB/s"


def duration(seconds: float) -> str:
    """
    >>> duration(119), duration(600)
    ('119 s', '10 min')
    """
    is_short = seconds < 120
    return f"{seconds:.0f} s" if is_short else f"{seconds / 60:.0f} min"


def loaders(count: float) -> str:
    """
    >>> loaders(1.2), loaders(4)
    ('1 loader worker', '4 loader workers')
    """
    # The count is a mean over the run, so it is rounded.
    is_one = round(count) == 1
    noun = "loader worker" if is_one else "loader workers"
    return f"{count:.0f} {noun}"


def loaders_and_their_cpu(work: Work) -> str:
    """Words for the number of loader workers and how much CPU each of them uses."""
    workers = loaders(work.workers)
    # `worker_cpu` is None if the workers used no CPU at all.
    cpu = whole(or_zero(work.worker_cpu))
    return f"{workers} at {cpu} % of a core each"


def worked(subject: Subject) -> str:
    """The beginning of most sentences, saying how much of the time the GPU worked."""
    label = subject.gpu.label
    utilization = whole(subject.work.utilization)
    sentence = f"GPU {label} worked {utilization} % of the time"
    parts = subject.gpu.parts
    # This figure may exclude pauses, while the table of figures includes them. In that case the
    # sentence has to say so.
    leaves_pauses_out = subject.work is parts.work and parts.pause_share >= 1
    return f"{sentence} between its pauses" if leaves_pauses_out else sentence


def kernels_ran(subject: Subject) -> str:
    """A phrase on how much of the time kernels ran. It does not say that the GPU worked, because
    the kernels may only have waited."""
    utilization = whole(subject.work.utilization)
    return f"kernels ran {utilization} % of the time"


def at_power(subject: Subject) -> str:
    """The end of a sentence, such as ` at 83 % of the power limit`; "" if the power or its limit is
    unknown."""
    power_share = subject.work.power_share
    if power_share is None:
        return ""
    return f" at {whole(power_share)} % of the power limit"


def over_the_links(subject: Subject) -> str:
    """A sentence on how much of the time kernels ran, with the known rates over NVLink, PCIe and
    the network."""
    work = subject.work
    sentence = f"{kernels_ran(subject)}{at_power(subject)}"
    rates = {"NVLink": work.link_rate, "PCIe": work.pcie_rate, "the network": work.network_rate}
    for link, rate in rates.items():
        # A link without traffic, or with an unknown rate, is left out.
        if rate:
            gigabytes = f"{rate / 1e9:.1f} GB/s"
            sentence += f", {gigabytes} over {link}"
    return sentence


def over_the_host_link(subject: Subject) -> str:
    """A sentence on how much data went over PCIe in each direction, and how much the link can
    carry."""
    work = subject.work
    to_card = or_zero(work.pcie_in)
    from_card = or_zero(work.pcie_out)
    rates = f"{transfer(to_card)} went to the GPU over PCIe and {transfer(from_card)} back"
    sentence = f"{kernels_ran(subject)}{at_power(subject)} while {rates}"
    limit = work.pcie_limit
    if limit is None:
        return f"{sentence}, about as much as a link can carry"
    return f"{sentence} (the link carries {transfer(limit)} each way)"


def lanes(subject: Subject) -> str:
    """How many of its lanes the PCIe link uses, and how much they can carry."""
    gpu = subject.gpu
    words = f"its PCIe link uses {gpu.lanes} of {gpu.latest.pcie_width_max} lanes"
    limit = gpu.link_limit
    if not limit:
        return words
    return f"{words} and carries {megabytes(limit)} in one direction"


def in_collectives(subject: Subject) -> str:
    """A sentence for GPUs that wait for each other in collective operations."""
    gpus = subject.together
    if not subject.run.launched:
        return (
            f"{over_the_links(subject)}, alike on all {gpus} GPUs: most likely they are ranks of "
            "one job that wait for each other in collectives"
        )
    machines = subject.run.nodes
    counts = f"GPUs of the job here: {gpus}, machines: {machines}"
    return f"{over_the_links(subject)}: it waits in collectives ({counts})"


def well_used(subject: Subject) -> str:
    """The utilisation, memory and temperature of a good run, as far as they are known."""
    figures = [f"utilisation {whole(subject.work.utilization)} %"]
    memory_share = subject.gpu.memory.p95
    if memory_share is not None:
        figures.append(f"memory {whole(memory_share)} %")
    heat = subject.gpu.heat
    if heat is not None:
        figures.append(f"{whole(heat)} °C")
    return ", ".join(figures)


def nothing_slows_it_down(subject: Subject) -> str:
    """The sentence of a good run. It explains the throttle reasons that the figures show, because
    they cost this run nothing."""
    sentence = well_used(subject)
    reasons = []
    for reason, share in subject.work.reasons.items():
        # An idle GPU always lowers its clocks, so this reason means nothing.
        if reason != "gpu_idle" and share:
            reasons.append(f"{reason} in {share:.0f} % of the work")
    if not reasons:
        return f"{sentence}: nothing slows it down"
    return f"{sentence}; {' and '.join(reasons)} costs little: a busy card reaches its limits"


def sm_clock(subject: Subject) -> str:
    """The SM clock in percent of its maximum or, if that is unknown, of the highest clock in this
    run."""
    work = subject.work
    clock = whole(work.clock_share)
    if work.clock_most:
        return f"SM clock at {clock} % of its maximum"
    return f"SM clock at {clock} % of the highest in this run"


def throttled(subject: Subject, figures: str = "") -> str:
    """A sentence for throttled clocks, saying why, how often and how much; `figures` is inserted
    into it."""
    throttle = subject.throttle
    if throttle is None:
        return UNKNOWN
    share = whole(subject.throttle_share)
    return (
        f"{throttle.words} ({throttle.reason}) slowed the clocks down in {share} % of the work"
        f"{figures}; {sm_clock(subject)}"
    )


def throttled_by_heat(subject: Subject) -> str:
    """A sentence for a GPU that is throttled by heat, with its temperature."""
    heat = whole(subject.gpu.heat)
    return throttled(subject, f", at {heat} °C")


def throttled_by_a_lowered_limit(subject: Subject) -> str:
    """A sentence for a GPU that is throttled by a lowered power limit, with the lowered limit and
    the rated one."""
    limit = whole(subject.power_limit_watts)
    rated = whole(subject.gpu.power_default)
    figures = f", at {limit} W of the rated {rated} W"
    return throttled(subject, figures)


def throttled_with_power_left(subject: Subject) -> str:
    """A sentence for a GPU that is throttled although it draws less than its power limit, with its
    power and the limit."""
    watts = subject.work.power_watts
    limit = subject.power_limit_watts
    figures = ""
    if watts is not None:
        figures = f", at {watts:.0f} W"
    if limit is not None:
        figures += f" (its limit: {limit:.0f} W)"
    return throttled(subject, figures)


def times(count: int) -> str:
    """
    >>> times(1), times(3)
    ('once', '3 times')
    """
    if count == 1:
        return "once"
    return f"{count} times"


def paused(subject: Subject) -> str:
    parts = subject.gpu.parts
    return (
        f"GPU {subject.gpu.label} paused for {whole(parts.pause_share)} % of the time, "
        f"{whole(parts.longest_pause)} s at most"
    )


def neighbours(subject: Subject) -> str:
    """A sentence for a command that competes with other programs for the machine's CPU."""
    others_cpu = whole(subject.others_cpu)
    own_cpu = whole(subject.work.cpu)
    cores = subject.run.host_cores
    sentence = (
        f"{worked(subject)} while others used {others_cpu} % CPU of "
        f"{cores} cores, and the command {own_cpu} %"
    )
    waited = subject.work.cpu_wait_share
    if waited is None:
        return sentence
    return f"{sentence}: its threads waited for a core {whole(waited)} % of their time"


def small_kernels(subject: Subject) -> str:
    """A sentence for kernels that are too small to fill the GPU, which its low power shows."""
    power_share = subject.work.power_share
    power = whole(power_share)
    sentence = f"{kernels_ran(subject)} but drew only {power} % of the power limit"
    memory_busy = subject.work.memory_busy
    # Busy kernels that use no GPU memory may be waiting for another rank, because such kernels poll
    # all the time.
    may_poll = subject.work.utilization >= SPINNING_USE and below(memory_busy, QUIET)
    if may_poll:
        return f"{sentence} and hardly used memory: they are too small, or one of them only waits"
    return f"{sentence}: they are too small"


def memory_in_use(subject: Subject) -> str:
    """A sentence on how full the GPU's memory was (95th percentile and peak), with the processes
    that use much of it."""
    memory = subject.gpu.memory
    usual = whole(memory.p95)
    peak = whole(memory.peak)
    sentence = f"memory in use: {usual} % (p95), {peak} % at its peak"
    holders = subject.gpu.big_holders
    # If a single process uses all of the memory, naming the process adds nothing.
    if len(holders) < 2:
        return sentence
    return f"{sentence}: {', '.join(map(named_with_size, holders))}"


def memory_will_be_full(subject: Subject) -> str:
    """A sentence for memory that grew during the whole run, with the time until it is full at this
    rate."""
    memory = subject.gpu.memory
    seconds = or_zero(memory.full_in)
    growth = f"from {whole(memory.first)} % to {whole(memory.peak)} %"
    return f"memory grew all the time, {growth}: at this rate it is full in {duration(seconds)}"


def memory_busy(subject: Subject) -> str:
    return (
        f"the GPU's memory was busy {whole(subject.work.memory_busy)} % of the time while "
        f"{kernels_ran(subject).removesuffix(' of the time')}"
    )


def waited_in_each_step(subject: Subject) -> str:
    cpu = whole(subject.work.busiest_cpu)
    return (
        f"{worked(subject)}, in short pieces, while the process waited ({cpu} % of a core), "
        "neither for a disk nor for the network"
    )


FIGURES: Mapping[str, Callable[[Subject], str]] = {
    "worked": worked,
    "kernels_ran": kernels_ran,
    "at_power": at_power,
    "paused": paused,
    "lanes": lanes,
    "sm_clock": sm_clock,
    "loaders": lambda subject: loaders(subject.work.workers),
    "loaders_and_cpu": lambda subject: loaders_and_their_cpu(subject.work),
    "gpus": lambda subject: str(subject.together),
    "use": lambda subject: whole(subject.work.utilization),
    "use_p5": lambda subject: whole(subject.work.utilization_p5),
    "use_p95": lambda subject: whole(subject.work.utilization_p95),
    "quiet": lambda subject: whole(subject.work.quiet_share),
    "pauses": lambda subject: times(subject.gpu.parts.times),
    "peak": lambda subject: whole(subject.gpu.memory.peak),
    "main_cpu": lambda subject: whole(subject.work.busiest_cpu),
    "command_cpu": lambda subject: whole(subject.work.cpu),
    "worker_cpu": lambda subject: whole(subject.work.worker_cpu),
    "helpers_cpu": lambda subject: whole(subject.work.helpers_cpu),
    "machine_cpu": lambda subject: whole(subject.work.host_share),
    "machine_memory": lambda subject: whole(subject.run.host_memory),
    "cores": lambda subject: f"{subject.run.usable_cores or 0:g}",
    "blocked": lambda subject: one_digit(subject.work.blocked),
    "read": lambda subject: megabytes(subject.work.read_rate),
    "machine_read": lambda subject: megabytes(subject.work.disk_read_rate),
    "machine_written": lambda subject: megabytes(subject.work.disk_write_rate),
    "received": lambda subject: megabytes(subject.work.network_rate),
    "pcie": lambda subject: transfer(or_zero(subject.work.pcie_rate)),
    "cpu_in_pauses": lambda subject: whole(in_pauses(subject, "busiest_cpu")),
    "written_in_pauses": lambda subject: megabytes(in_pauses(subject, "write_rate")),
}
"""The figures and phrases that the sentences of the verdict table name in braces."""


def in_pauses(subject: Subject, figure: str) -> float | None:
    """A figure of the command while the GPU pauses; None if it never paused."""
    paused_part = subject.gpu.parts.paused
    value: float | None = getattr(paused_part, figure) if paused_part else None
    return value


def said(sentence: str) -> Callable[[Subject], str]:
    """A function that fills in this sentence's figures."""
    names = re.findall(r"\{(\w+)\}", sentence)
    return lambda subject: sentence.format_map({name: FIGURES[name](subject) for name in names})
