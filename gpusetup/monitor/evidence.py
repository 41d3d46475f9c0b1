"""The sentences of the verdicts: what was seen, in the figures of one GPU in its run. Pure.

A figure that no source told is a question mark.
"""

from __future__ import annotations

from gpusetup.monitor.seen import Seen
from gpusetup.monitor.work import Work

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
    return UNKNOWN if rate is None else f"{rate / 1e6:.0f} MB/s"


def loaders(count: float) -> str:
    """
    >>> loaders(1.2), loaders(4)
    ('1 loader worker', '4 loader workers')
    """
    plural = "" if round(count) == 1 else "s"
    return f"{count:.0f} loader worker{plural}"


def loaders_and_their_cpu(work: Work) -> str:
    return f"{loaders(work.workers)} at {whole(work.worker_cpu)} % of a core each"


def worked(seen: Seen) -> str:
    return f"GPU {seen.gpu.label} worked {whole(seen.work.utilization)} % of the time"


def kernels_ran(seen: Seen) -> str:
    return f"kernels ran {whole(seen.work.utilization)} % of the time"


def over_the_links(seen: Seen) -> str:
    """What the links carried while kernels ran."""
    work = seen.work
    sentence = f"{kernels_ran(seen)} at {whole(work.power_share)} % of the power limit"
    rates = {"NVLink": work.link_rate, "PCIe": work.pcie_rate, "the network": work.network_rate}
    for link, rate in rates.items():
        if rate:
            sentence += f", {rate / 1e9:.1f} GB/s over {link}"
    return sentence


def in_collectives(seen: Seen) -> str:
    counts = f"GPUs of the job here: {seen.together}, machines: {seen.run.nodes}"
    return f"{over_the_links(seen)}: it waits in collectives ({counts})"


def hangs(seen: Seen) -> str:
    return (
        f"{seen.together} GPUs of one job show {whole(seen.work.utilization)} % utilisation, but "
        "use no memory bandwidth and move no data: they wait in a collective"
    )


def nothing_slows_it_down(seen: Seen) -> str:
    figures = f"utilisation {whole(seen.work.utilization)} %, memory {whole(seen.gpu.memory.p95)} %"
    return f"{figures}, {whole(seen.gpu.heat)} °C: nothing slows it down"


def throttled(seen: Seen, figures: str = "") -> str:
    if seen.throttle is None:
        return UNKNOWN
    return (
        f"{seen.throttle.words} ({seen.throttle.reason}) slowed the clocks down in "
        f"{whole(seen.throttle_share)} % of the work{figures}"
        f"; SM clock at {whole(seen.work.clock_share)} % of its maximum"
    )


def throttled_by_heat(seen: Seen) -> str:
    return throttled(seen, f", at {whole(seen.gpu.heat)} °C")


def throttled_by_a_lowered_limit(seen: Seen) -> str:
    limit, rated = whole(seen.power_limit_watts), whole(seen.gpu.power_default)
    return throttled(seen, f", at {limit} W of the rated {rated} W")


def throttled_with_power_left(seen: Seen) -> str:
    drawn, limit = whole(seen.work.power_watts), whole(seen.power_limit_watts)
    return throttled(seen, f", at {drawn} W (its limit: {limit} W)")


def low_clocks(seen: Seen) -> str:
    return (
        f"SM clock at {whole(seen.work.clock_share)} % of its maximum while {kernels_ran(seen)} at "
        f"{whole(seen.work.power_share)} % of the power limit; no reason was told"
    )


def with_others(seen: Seen) -> str:
    return f"{worked(seen)}, but other processes compute on it too"


def in_bursts(seen: Seen) -> str:
    work = seen.work
    return (
        f"{worked(seen)}, in bursts (p5 {whole(work.utilization_p5)} %, "
        f"p95 {whole(work.utilization_p95)} %, nothing in {whole(work.quiet_share)} % of the "
        "samples)"
    )


def paused(seen: Seen) -> str:
    parts = seen.gpu.parts
    return (
        f"GPU {seen.gpu.label} paused for {whole(parts.pause_share)} % of the time, "
        f"{whole(parts.longest_pause)} s at most"
    )


def paused_and_wrote(seen: Seen) -> str:
    pauses = seen.gpu.parts.paused
    rate = pauses.write_rate if pauses else None
    return f"{paused(seen)}, while {megabytes(rate)} were written"


def paused_and_computed(seen: Seen) -> str:
    pauses = seen.gpu.parts.paused
    cpu = pauses.busiest_cpu if pauses else None
    return f"{paused(seen)}, while the process used {whole(cpu)} % of a core"


def neighbours(seen: Seen) -> str:
    return (
        f"{worked(seen)} while others used {whole(seen.others_cpu)} % CPU of "
        f"{seen.run.host_cores} cores, and the command {whole(seen.work.cpu)} %"
    )


def quota(seen: Seen) -> str:
    return (
        f"{worked(seen)} while the command used {whole(seen.work.cpu)} % CPU, all of the "
        f"{seen.run.usable_cores or 0:g} cores that it may use"
    )


def busy_workers(seen: Seen) -> str:
    work = seen.work
    cpu = whole(work.worker_cpu)
    return f"{worked(seen)} while {loaders(work.workers)} computed at {cpu} % of a core each"


def swapping(seen: Seen) -> str:
    work = seen.work
    return (
        f"{worked(seen)} while the machine's memory was {whole(seen.run.host_memory)} % full and "
        f"{megabytes(work.disk_read_rate)} were read and {megabytes(work.disk_write_rate)} "
        "written: it swaps"
    )


def waited_for_the_network(seen: Seen) -> str:
    rate = megabytes(seen.work.network_rate)
    return f"{worked(seen)} while the process waited and {rate} came over the network"


def waited_for_a_disk(seen: Seen) -> str:
    work = seen.work
    return (
        f"{worked(seen)} while {one_digit(work.blocked)} processes waited for a disk "
        f"and {megabytes(work.read_rate)} were read"
    )


def waited_for_producers(seen: Seen) -> str:
    cpu = whole(seen.work.helpers_cpu)
    return (
        f"{worked(seen)} while other processes of the command computed at {cpu} % of a core "
        "together"
    )


def waited_for_workers(seen: Seen) -> str:
    cpu = whole(seen.work.busiest_cpu)
    return (
        f"{worked(seen)} while the process waited ({cpu} % of a core) for "
        f"{loaders_and_their_cpu(seen.work)}"
    )


def loaded_by_itself(seen: Seen) -> str:
    cpu = whole(seen.work.busiest_cpu)
    return (
        f"{worked(seen)} while the process computed on the CPU by itself "
        f"({cpu} % of a core, no loader workers)"
    )


def machine_busy(seen: Seen) -> str:
    return f"{worked(seen)} while the machine's CPU was {whole(seen.work.host_share)} % busy"


def one_core(seen: Seen) -> str:
    cpu = whole(seen.work.busiest_cpu)
    return f"{worked(seen)} while one process used {cpu} % of a core and no loader was behind"


def small_kernels(seen: Seen) -> str:
    power = whole(seen.work.power_share)
    return f"{kernels_ran(seen)} but drew only {power} % of the power limit: they are too small"


def memory_in_use(seen: Seen) -> str:
    memory = seen.gpu.memory
    return f"memory in use: {whole(memory.p95)} % (p95), {whole(memory.peak)} % at its peak"


def memory_grew(seen: Seen) -> str:
    return f"memory grew all the time, to {whole(seen.gpu.memory.peak)} %"


def memory_busy(seen: Seen) -> str:
    return (
        f"the GPU's memory was busy {whole(seen.work.memory_busy)} % of the time while "
        f"{kernels_ran(seen).removesuffix(' of the time')}"
    )


def waited_in_each_step(seen: Seen) -> str:
    cpu = whole(seen.work.busiest_cpu)
    return (
        f"{worked(seen)}, in short pieces, while the process waited ({cpu} % of a core), neither "
        "for a disk nor for the network"
    )


def evaluated_on_the_cpu(seen: Seen) -> str:
    quiet = seen.work.quiet_part
    cpu = whole(quiet.cpu if quiet else None)
    return (
        f"{worked(seen)}, at full load, and did nothing in {whole(seen.work.quiet_share)} % of the "
        f"samples, in which the command used {cpu} % CPU: it computes on the CPU in turn, as an "
        "evaluation does"
    )
