"""What a verdict rests on, in words with the figures of the run. Pure."""

from __future__ import annotations

from gpusetup.monitor.brakes import active_brake
from gpusetup.monitor.facts import Work
from gpusetup.monitor.marks import NETWORK_FULL
from gpusetup.monitor.programs import nodes_of
from gpusetup.monitor.signs import Seen, twins


def worked(seen: Seen) -> str:
    return f"GPU {seen.gpu.label} worked {seen.work.utilization:.0f} % of the time"


def braked(seen: Seen) -> str:
    brake = active_brake(seen.work, seen.gpu)
    assert brake is not None
    share = seen.work.reasons.get(brake.reason)
    told = f"{brake.words} held the clocks down"
    if share is not None:
        told += f" in {share:.0f} % of the working samples"
    if seen.gpu.temperature_p95 is not None and brake.cause == "heat":
        told += f", at {seen.gpu.temperature_p95:.0f} °C"
    if brake.cause == "withheld" and seen.work.power_watts is not None:
        of = f" of the {seen.gpu.power_limit:.0f} W that it may" if seen.gpu.power_limit else ""
        told += f", at {seen.work.power_watts:.0f} W{of}"
    if brake.cause == "lowered":
        told += f": {seen.gpu.power_limit:.0f} W of the rated {seen.gpu.power_default:.0f} W"
    if seen.work.clock_share is not None:
        told += f"; SM clock at {seen.work.clock_share:.0f} % of its maximum"
    return f"{told} ({brake.reason})" if brake.reason else told


def workers_full(seen: Seen) -> str:
    told = f"{worked(seen)} while {workers_in_words(seen.work.workers)} computed"
    return f"{told} at {seen.work.worker_cpu:.0f} % of a core each"


def cores_used_up(seen: Seen) -> str:
    cores = f"{seen.cores:g} cores" if seen.cores else "its cores"
    told = f"{worked(seen)} while the command used {seen.work.cpu or 0:.0f} % CPU of {cores}"
    if seen.work.held_back:
        told += f", held back by its quota {seen.work.held_back:.0f} % of the time"
    return told


def others_full(seen: Seen) -> str:
    others = (seen.work.host_cpu or 0) - (seen.work.cpu or 0)
    told = f"{worked(seen)} while others used {others:.0f} % CPU of"
    return f"{told} {seen.run.host_cores} cores, and the command {seen.work.cpu or 0:.0f} %"


def storage(seen: Seen) -> str:
    told = f"{worked(seen)} while"
    if seen.work.blocked:
        told += f" {seen.work.blocked:.1f} processes waited for a disk and"
    return f"{told} {(seen.work.read_rate or 0) / 1e6:.0f} MB/s were read"


def network(seen: Seen) -> str:
    rate = (seen.work.network_rate or 0) / 1e6
    return f"{worked(seen)} while the process waited and {rate:.0f} MB/s came over the network"


def helpers(seen: Seen) -> str:
    told = f"{worked(seen)} while other processes of the command computed"
    return f"{told} at {seen.work.helpers_cpu:.0f} % of a core together"


def by_itself(seen: Seen) -> str:
    told = f"{worked(seen)} while the process computed on the CPU by itself"
    return f"{told} ({seen.work.busiest_cpu:.0f} % of a core, no loader workers)"


def slow_items(seen: Seen) -> str:
    told = f"{worked(seen)} while the process waited ({seen.work.busiest_cpu:.0f} % of a core)"
    each = f"{seen.work.worker_cpu:.0f} %" if seen.work.worker_cpu is not None else "unknown"
    return f"{told} for {workers_in_words(seen.work.workers)} at {each} of a core each"


def waits(seen: Seen) -> str:
    told = f"{worked(seen)} while the process waited ({seen.work.busiest_cpu:.0f} % of a core)"
    return f"{told}; for what, nothing shows"


def small_kernels(seen: Seen) -> str:
    told = f"kernels ran {seen.work.utilization:.0f} % of the time but drew only"
    return f"{told} {seen.work.power_share or 0:.0f} % of the power limit: they are too small"


def core_full(seen: Seen) -> str:
    cpu = seen.work.busiest_cpu or 0.0
    filled = f"a core ({cpu:.0f} %)" if cpu < 150 else f"{cpu / 100:.1f} cores"
    told = f"{worked(seen)} while one process filled {filled}"
    return f"{told} and no loader was behind"


def bursts(seen: Seen) -> str:
    work = seen.work
    if not work.quiet_share and work.utilization_p95 - work.utilization_p5 < 50:
        return f"{worked(seen)}, in pieces too short to be seen one by one"
    told = f"{worked(seen)}, in bursts (p5 {work.utilization_p5:.0f} %, p95"
    return (
        f"{told} {work.utilization_p95:.0f} %, nothing in {work.quiet_share:.0f} % of the samples)"
    )


def pauses(seen: Seen) -> str:
    share, longest = seen.gpu.pause_share, seen.gpu.longest_pause_seconds
    told = f"GPU {seen.gpu.label} paused for {share:.0f} % of its time, {longest:.0f} s at most"
    during = _during(seen.in_pauses)
    return f"{told}, {during}" if during else told


def _during(work: Work | None) -> str:
    if work is None or work.busiest_cpu is None:
        return ""
    if (work.write_rate or 0) > 1e6:
        return f"while {(work.write_rate or 0) / 1e6:.0f} MB/s were written"
    return f"while the process used {work.busiest_cpu:.0f} % of a core"


def links(seen: Seen) -> str:
    told = f"kernels ran {seen.work.utilization:.0f} % of the time"
    if seen.work.power_share is not None:
        told += f" at {seen.work.power_share:.0f} % of the power limit"
    rates = (
        (seen.work.link_rate, "NVLink"),
        (seen.work.pcie_rate, "PCIe"),
        (_if_full(seen.work.network_rate), "the network"),
    )
    for rate, name in rates:
        if rate:
            told += f", {rate / 1e9:.1f} GB/s over {name}"
    return told


def _if_full(rate: float | None) -> float | None:
    return rate if rate and rate >= NETWORK_FULL.value else None


def collectives(seen: Seen) -> str:
    nodes = nodes_of(seen.run.command)
    where = f"on {nodes} machines" if nodes > 1 else f"on {seen.together} GPUs"
    return f"{links(seen)}, {where} of one job: they wait in collectives"


def swaps(seen: Seen) -> str:
    told = f"{worked(seen)} while the machine's memory was {seen.run.host_memory_share:.0f} % full"
    rates = ((seen.work.disk_read_rate or 0) / 1e6, (seen.work.disk_write_rate or 0) / 1e6)
    return f"{told} and {rates[0]:.0f} MB/s were read and {rates[1]:.0f} MB/s written: it swaps"


def few_multiprocessors(seen: Seen) -> str:
    told = f"kernels ran {seen.work.utilization:.0f} % of the time, but only"
    return f"{told} {seen.work.sm_active or 0:.0f} % of the multiprocessors had work"


def hangs(seen: Seen) -> str:
    told = f"{seen.together} GPUs of one job show {seen.work.utilization:.0f} % utilisation but"
    return f"{told} touch no memory and move nothing: they wait in a collective"


def memory(seen: Seen) -> str:
    gpu = seen.gpu
    peak = f"{gpu.memory_peak_share:.0f} % at its peak"
    return f"memory in use: {gpu.memory_p95_share:.0f} % (p95), {peak}"


def memory_grew(seen: Seen) -> str:
    return f"memory grew all the time, to {seen.gpu.memory_peak_share:.0f} %"


def memory_bus(seen: Seen) -> str:
    told = f"the GPU's memory was busy {seen.work.memory_busy:.0f} % of the time"
    return f"{told} while kernels ran {seen.work.utilization:.0f} %"


def slower(seen: Seen) -> str:
    told = f"GPU {seen.gpu.label} ran at {seen.work.clock_mhz or 0:.0f} MHz"
    rates = [one.work.clock_mhz or 0 for one in twins(seen.gpu, seen.run) if one.work]
    return f"{told}, its twins at {max(rates):.0f} MHz; no reason was told"


def far_down(seen: Seen) -> str:
    told = f"SM clock at {seen.work.clock_share or 0:.0f} % of its maximum while kernels ran"
    told += f" {seen.work.utilization:.0f} % of the time at {seen.work.power_share or 0:.0f} % of"
    return f"{told} the power limit; no reason was told"


def machine_full(seen: Seen) -> str:
    return f"{worked(seen)} while the machine's CPU was {seen.work.host_share or 0:.0f} % busy"


def good_between_pauses(seen: Seen) -> str:
    share, longest = seen.gpu.pause_share, seen.gpu.longest_pause_seconds
    told = f"utilisation {seen.work.utilization:.0f} % between pauses that take {share:.0f} % of"
    return f"{told} its time ({longest:.0f} s at most): nothing else holds it back"


def good(seen: Seen) -> str:
    told = f"utilisation {seen.work.utilization:.0f} %"
    if seen.gpu.memory_p95_share is not None:
        told += f", memory {seen.gpu.memory_p95_share:.0f} %"
    if seen.gpu.temperature_p95 is not None:
        told += f", {seen.gpu.temperature_p95:.0f} °C"
    return f"{told}: nothing holds it back"


def workers_in_words(count: float) -> str:
    """
    >>> workers_in_words(1.2), workers_in_words(4)
    ('1 loader worker', '4 loader workers')
    """
    return f"{count:.0f} loader worker{'' if round(count) == 1 else 's'}"
