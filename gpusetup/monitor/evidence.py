"""The sentences that explain a verdict with the figures of one GPU in its run. Pure functions.

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


def loaders(count: float) -> str:
    """
    >>> loaders(1.2), loaders(4)
    ('1 loader worker', '4 loader workers')
    """
    # A mean over the run, which is shown rounded.
    is_one = round(count) == 1
    noun = "loader worker" if is_one else "loader workers"
    return f"{count:.0f} {noun}"


def loaders_and_their_cpu(work: Work) -> str:
    """The number of loader workers, and how much CPU each of them uses."""
    workers = loaders(work.workers)
    cpu = whole(work.worker_cpu)
    return f"{workers} at {cpu} % of a core each"


def worked(subject: Subject) -> str:
    """How much of the time the GPU worked; most sentences begin with it."""
    label = subject.gpu.label
    utilization = whole(subject.work.utilization)
    return f"GPU {label} worked {utilization} % of the time"


def kernels_ran(subject: Subject) -> str:
    """The same for a GPU that only looks busy: a kernel ran, but it may have waited."""
    utilization = whole(subject.work.utilization)
    return f"kernels ran {utilization} % of the time"


def over_the_links(subject: Subject) -> str:
    """How much the links transferred while kernels ran."""
    work = subject.work
    power = whole(work.power_share)
    sentence = f"{kernels_ran(subject)} at {power} % of the power limit"
    rates = {"NVLink": work.link_rate, "PCIe": work.pcie_rate, "the network": work.network_rate}
    for link, rate in rates.items():
        # A link that carries nothing, or of which nothing is told, is not named.
        if rate:
            gigabytes = f"{rate / 1e9:.1f} GB/s"
            sentence += f", {gigabytes} over {link}"
    return sentence


def computed_on_the_host(subject: Subject) -> str:
    """A part of each step runs on the CPU, for example an offloaded optimizer."""
    work = subject.work
    cpu = whole(work.busiest_cpu)
    gigabytes = f"{or_zero(work.pcie_rate) / 1e9:.1f} GB/s"
    return (
        f"{worked(subject)}, its process computed on the CPU ({cpu} % of a core) and read nothing, "
        f"and {gigabytes} went over PCIe: a part of each step runs on the host"
    )


def in_collectives(subject: Subject) -> str:
    """Ranks wait for each other."""
    gpus = subject.together
    machines = subject.run.nodes
    counts = f"GPUs of the job here: {gpus}, machines: {machines}"
    return f"{over_the_links(subject)}: it waits in collectives ({counts})"


def hangs(subject: Subject) -> str:
    use = whole(subject.work.utilization)
    return (
        f"{subject.together} GPUs of one job show {use} % utilisation, but use no memory "
        "bandwidth and move no data: they wait in a collective"
    )


def nothing_slows_it_down(subject: Subject) -> str:
    """The three figures for which the guide gives recommended values."""
    utilization = whole(subject.work.utilization)
    memory = whole(subject.gpu.memory.p95)
    heat = whole(subject.gpu.heat)
    figures = f"utilisation {utilization} %, memory {memory} %, {heat} °C"
    return f"{figures}: nothing slows it down"


def throttled(subject: Subject, figures: str = "") -> str:
    """What slowed down the clocks, how often and how much; `figures` come in between."""
    throttle = subject.throttle
    if throttle is None:
        return UNKNOWN
    share = whole(subject.throttle_share)
    clock = whole(subject.work.clock_share)
    return (
        f"{throttle.words} ({throttle.reason}) slowed the clocks down in {share} % of the work"
        f"{figures}; SM clock at {clock} % of its maximum"
    )


def throttled_by_heat(subject: Subject) -> str:
    """How hot the GPU was."""
    heat = whole(subject.gpu.heat)
    return throttled(subject, f", at {heat} °C")


def throttled_by_a_lowered_limit(subject: Subject) -> str:
    """The GPU's power limit, and the limit that its maker rated it at."""
    limit = whole(subject.power_limit_watts)
    rated = whole(subject.gpu.power_default)
    figures = f", at {limit} W of the rated {rated} W"
    return throttled(subject, figures)


def throttled_with_power_left(subject: Subject) -> str:
    """How much power the GPU drew, and how much its limit allows."""
    drawn = whole(subject.work.power_watts)
    limit = whole(subject.power_limit_watts)
    figures = f", at {drawn} W (its limit: {limit} W)"
    return throttled(subject, figures)


def low_clocks(subject: Subject) -> str:
    """Clocks are low without a known reason."""
    work = subject.work
    clock = whole(work.clock_share)
    power = whole(work.power_share)
    return (
        f"SM clock at {clock} % of its maximum while {kernels_ran(subject)} at {power} % of the "
        "power limit; no reason was told"
    )


def with_others(subject: Subject) -> str:
    """Processes of other people compute on the same GPU."""
    sentence = worked(subject)
    return f"{sentence}, but other processes compute on it too"


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
    """The GPU pauses while a checkpoint is written."""
    pauses = subject.gpu.parts.paused
    write_rate = pauses.write_rate if pauses else None
    written = megabytes(write_rate)
    return f"{paused(subject)}, while {written} were written"


def paused_and_computed(subject: Subject) -> str:
    """The GPU pauses while the process computes or sleeps."""
    pauses = subject.gpu.parts.paused
    busiest_cpu = pauses.busiest_cpu if pauses else None
    cpu = whole(busiest_cpu)
    return f"{paused(subject)}, while the process used {cpu} % of a core"


def neighbours(subject: Subject) -> str:
    """Other programs use the machine's CPU."""
    others_cpu = whole(subject.others_cpu)
    own_cpu = whole(subject.work.cpu)
    cores = subject.run.host_cores
    return (
        f"{worked(subject)} while others used {others_cpu} % CPU of "
        f"{cores} cores, and the command {own_cpu} %"
    )


def quota(subject: Subject) -> str:
    """The command uses up its CPU quota."""
    cpu = whole(subject.work.cpu)
    cores = subject.run.usable_cores or 0
    return (
        f"{worked(subject)} while the command used {cpu} % CPU, all of the {cores:g} cores that it "
        "may use"
    )


def busy_workers(subject: Subject) -> str:
    """Loader workers compute without pause."""
    work = subject.work
    workers = loaders(work.workers)
    cpu = whole(work.worker_cpu)
    return f"{worked(subject)} while {workers} computed at {cpu} % of a core each"


def swapping(subject: Subject) -> str:
    """The machine's memory is full, so its disks are busy with swapping."""
    work = subject.work
    memory = whole(subject.run.host_memory)
    read = megabytes(work.disk_read_rate)
    written = megabytes(work.disk_write_rate)
    return (
        f"{worked(subject)} while the machine's memory was {memory} % full and "
        f"{read} were read and {written} written: it swaps"
    )


def waited_for_the_network(subject: Subject) -> str:
    """The data come from another machine."""
    network_rate = subject.work.network_rate
    rate = megabytes(network_rate)
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
    """The CPU is full, but there is no command that would show which program uses it."""
    host_share = subject.work.host_share
    busy = whole(host_share)
    return f"{worked(subject)} while the machine's CPU was {busy} % busy"


def one_core(subject: Subject) -> str:
    """One process launches kernels as fast as it can."""
    busiest_cpu = subject.work.busiest_cpu
    cpu = whole(busiest_cpu)
    return f"{worked(subject)} while one process used {cpu} % of a core and no loader was behind"


def small_kernels(subject: Subject) -> str:
    """The kernels only fill a few multiprocessors."""
    power_share = subject.work.power_share
    power = whole(power_share)
    return f"{kernels_ran(subject)} but drew only {power} % of the power limit: they are too small"


def memory_in_use(subject: Subject) -> str:
    """How full the memory is, most of the time and at its peak."""
    memory = subject.gpu.memory
    usual = whole(memory.p95)
    peak = whole(memory.peak)
    return f"memory in use: {usual} % (p95), {peak} % at its peak"


def memory_grew(subject: Subject) -> str:
    """The memory grows in each quarter of the run."""
    memory = subject.gpu.memory
    peak = whole(memory.peak)
    return f"memory grew all the time, to {peak} %"


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
