"""The sentences of the verdicts: what was seen, in the figures of one GPU in its run. Pure.

A figure that no source told is a question mark.
"""

from __future__ import annotations

from gpusetup.monitor.subject import Subject
from gpusetup.monitor.work import Work, or_zero

UNKNOWN = "?"


def whole(value: float | None) -> str:
    """
    >>> whole(41.7), whole(None)
    ('42', '?')
    """
    return UNKNOWN if value is None else f"{value:.0f}"


def one_digit(value: float | None) -> str:
    """
    >>> one_digit(41.72), one_digit(None)
    ('41.7', '?')
    """
    return UNKNOWN if value is None else f"{value:.1f}"


def megabytes(rate: float | None) -> str:
    """
    >>> megabytes(2.5e7), megabytes(None)
    ('25 MB/s', '?')
    """
    if rate is None:
        return UNKNOWN
    return f"{rate / 1e6:.0f} MB/s"


def loaders(count: float) -> str:
    """
    >>> loaders(1.2), loaders(4)
    ('1 loader worker', '4 loader workers')
    """
    plural = "" if round(count) == 1 else "s"
    return f"{count:.0f} loader worker{plural}"


def loaders_and_their_cpu(work: Work) -> str:
    return f"{loaders(work.workers)} at {whole(work.worker_cpu)} % of a core each"


def worked(subject: Subject) -> str:
    utilization = whole(subject.work.utilization)
    return f"GPU {subject.gpu.label} worked {utilization} % of the time"


def kernels_ran(subject: Subject) -> str:
    return f"kernels ran {whole(subject.work.utilization)} % of the time"


def over_the_links(subject: Subject) -> str:
    """What the links carried while kernels ran."""
    work = subject.work
    sentence = f"{kernels_ran(subject)} at {whole(work.power_share)} % of the power limit"
    rates = {"NVLink": work.link_rate, "PCIe": work.pcie_rate, "the network": work.network_rate}
    for link, rate in rates.items():
        if rate:
            sentence += f", {rate / 1e9:.1f} GB/s over {link}"
    return sentence


def computed_on_the_host(subject: Subject) -> str:
    """A part of each step runs on the CPU, as with an optimizer that is offloaded."""
    work = subject.work
    return (
        f"{worked(subject)}, its process computed on the CPU ({whole(work.busiest_cpu)} % of a "
        f"core) and read nothing, and {or_zero(work.pcie_rate) / 1e9:.1f} GB/s went over PCIe: a "
        "part of each step runs on the host"
    )


def in_collectives(subject: Subject) -> str:
    counts = f"GPUs of the job here: {subject.together}, machines: {subject.run.nodes}"
    return f"{over_the_links(subject)}: it waits in collectives ({counts})"


def hangs(subject: Subject) -> str:
    use = whole(subject.work.utilization)
    return (
        f"{subject.together} GPUs of one job show {use} % utilisation, but use no memory "
        "bandwidth and move no data: they wait in a collective"
    )


def nothing_slows_it_down(subject: Subject) -> str:
    figures = (
        f"utilisation {whole(subject.work.utilization)} %, memory {whole(subject.gpu.memory.p95)} %"
    )
    return f"{figures}, {whole(subject.gpu.heat)} °C: nothing slows it down"


def throttled(subject: Subject, figures: str = "") -> str:
    if subject.throttle is None:
        return UNKNOWN
    return (
        f"{subject.throttle.words} ({subject.throttle.reason}) slowed the clocks down in "
        f"{whole(subject.throttle_share)} % of the work{figures}"
        f"; SM clock at {whole(subject.work.clock_share)} % of its maximum"
    )


def throttled_by_heat(subject: Subject) -> str:
    return throttled(subject, f", at {whole(subject.gpu.heat)} °C")


def throttled_by_a_lowered_limit(subject: Subject) -> str:
    limit = whole(subject.power_limit_watts)
    rated = whole(subject.gpu.power_default)
    return throttled(subject, f", at {limit} W of the rated {rated} W")


def throttled_with_power_left(subject: Subject) -> str:
    drawn = whole(subject.work.power_watts)
    limit = whole(subject.power_limit_watts)
    return throttled(subject, f", at {drawn} W (its limit: {limit} W)")


def low_clocks(subject: Subject) -> str:
    clock, power = whole(subject.work.clock_share), whole(subject.work.power_share)
    return (
        f"SM clock at {clock} % of its maximum while {kernels_ran(subject)} at {power} % of the "
        "power limit; no reason was told"
    )


def with_others(subject: Subject) -> str:
    return f"{worked(subject)}, but other processes compute on it too"


def in_bursts(subject: Subject) -> str:
    work = subject.work
    return (
        f"{worked(subject)}, in bursts (p5 {whole(work.utilization_p5)} %, "
        f"p95 {whole(work.utilization_p95)} %, nothing in {whole(work.quiet_share)} % of the "
        "samples)"
    )


def in_short_pieces(subject: Subject) -> str:
    work = subject.work
    return (
        f"{worked(subject)}, in pieces shorter than a sample (p5 {whole(work.utilization_p5)} %, "
        f"p95 {whole(work.utilization_p95)} %)"
    )


def paused(subject: Subject) -> str:
    parts = subject.gpu.parts
    return (
        f"GPU {subject.gpu.label} paused for {whole(parts.pause_share)} % of the time, "
        f"{whole(parts.longest_pause)} s at most"
    )


def paused_and_wrote(subject: Subject) -> str:
    pauses = subject.gpu.parts.paused
    rate = pauses.write_rate if pauses else None
    return f"{paused(subject)}, while {megabytes(rate)} were written"


def paused_and_computed(subject: Subject) -> str:
    pauses = subject.gpu.parts.paused
    cpu = pauses.busiest_cpu if pauses else None
    return f"{paused(subject)}, while the process used {whole(cpu)} % of a core"


def neighbours(subject: Subject) -> str:
    return (
        f"{worked(subject)} while others used {whole(subject.others_cpu)} % CPU of "
        f"{subject.run.host_cores} cores, and the command {whole(subject.work.cpu)} %"
    )


def quota(subject: Subject) -> str:
    return (
        f"{worked(subject)} while the command used {whole(subject.work.cpu)} % CPU, all of the "
        f"{subject.run.usable_cores or 0:g} cores that it may use"
    )


def busy_workers(subject: Subject) -> str:
    work = subject.work
    cpu = whole(work.worker_cpu)
    return f"{worked(subject)} while {loaders(work.workers)} computed at {cpu} % of a core each"


def swapping(subject: Subject) -> str:
    work, memory = subject.work, whole(subject.run.host_memory)
    return (
        f"{worked(subject)} while the machine's memory was {memory} % full and "
        f"{megabytes(work.disk_read_rate)} were read and {megabytes(work.disk_write_rate)} "
        "written: it swaps"
    )


def waited_for_the_network(subject: Subject) -> str:
    rate = megabytes(subject.work.network_rate)
    return f"{worked(subject)} while the process waited and {rate} came over the network"


def waited_for_a_disk(subject: Subject) -> str:
    work = subject.work
    return (
        f"{worked(subject)} while {one_digit(work.blocked)} processes waited for a disk "
        f"and {megabytes(work.read_rate)} were read"
    )


def waited_for_producers(subject: Subject) -> str:
    cpu = whole(subject.work.helpers_cpu)
    return (
        f"{worked(subject)} while other processes of the command computed at {cpu} % of a core "
        "together"
    )


def waited_for_workers(subject: Subject) -> str:
    cpu = whole(subject.work.busiest_cpu)
    return (
        f"{worked(subject)} while the process waited ({cpu} % of a core) for "
        f"{loaders_and_their_cpu(subject.work)}"
    )


def loaded_by_itself(subject: Subject) -> str:
    cpu = whole(subject.work.busiest_cpu)
    return (
        f"{worked(subject)} while the process computed on the CPU by itself "
        f"({cpu} % of a core, no loader workers)"
    )


def machine_busy(subject: Subject) -> str:
    busy = whole(subject.work.host_share)
    return f"{worked(subject)} while the machine's CPU was {busy} % busy"


def one_core(subject: Subject) -> str:
    cpu = whole(subject.work.busiest_cpu)
    return f"{worked(subject)} while one process used {cpu} % of a core and no loader was behind"


def small_kernels(subject: Subject) -> str:
    power = whole(subject.work.power_share)
    return f"{kernels_ran(subject)} but drew only {power} % of the power limit: they are too small"


def memory_in_use(subject: Subject) -> str:
    memory = subject.gpu.memory
    return f"memory in use: {whole(memory.p95)} % (p95), {whole(memory.peak)} % at its peak"


def memory_grew(subject: Subject) -> str:
    return f"memory grew all the time, to {whole(subject.gpu.memory.peak)} %"


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


def evaluated_on_the_cpu(subject: Subject) -> str:
    quiet = subject.work.quiet_part
    cpu = whole(quiet.cpu if quiet else None)
    share = whole(subject.work.quiet_share)
    return (
        f"{worked(subject)}, at full load, and did nothing in {share} % of the "
        f"samples, in which the command used {cpu} % CPU: it computes on the CPU in turn, as an "
        "evaluation does"
    )
