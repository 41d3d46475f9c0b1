"""One frame of the live screen: what is known becomes lines of text with their roles. Pure.

A frame has exactly the terminal's lines and never more than its columns. What does not fit goes in
this order: the second line of a GPU, processes, the footer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.monitor.marks import HOT, MEMORY_HIGH
from gpusetup.monitor.values import GpuSample, HostSample, Sample, Summary
from gpusetup.render.language import plain
from gpusetup.render.live import ASCII_BARS, BARS, KEPT, sparkline
from gpusetup.render.monitor import brakes, duration

Part = tuple[str, str]
Line = list[Part]

GOOD, WARN, BAD, DIM, STRONG = "green", "yellow", "red", "dim", "bold"
EIGHTHS = " ▏▎▍▌▋▊▉█"
SORTS = ("memory", "sm", "cpu", "gpu", "pid")
"""What processes are sorted by; the key `s` goes from one to the next."""
HELP = (
    ("q, Ctrl-C", "quit, with the summary and the verdict"),
    ("p, space", "pause the screen; the watching goes on"),
    ("s", "sort processes by the next column"),
    ("/", "filter processes by user or command; Enter keeps it, Esc clears it"),
    ("+ -", "sample more often, less often"),
    ("?, h", "this help"),
)


class Process(Frozen):
    """A process on a GPU, with what the system tells of it."""

    gpu: str
    pid: int
    user: str = ""
    memory_bytes: int | None = None
    sm_percent: float | None = None
    cpu_percent: float | None = None
    command: str = ""


class View(Frozen):
    """All that a frame shows."""

    sample: Sample | None = None
    past: Mapping[str, Sequence[float | None]] = {}
    processes: tuple[Process, ...] = ()
    so_far: Summary | None = None
    sort: str = SORTS[0]
    filter: str = ""
    typing: bool = False
    paused: bool = False
    help: bool = False
    interval: float = 1.0
    unicode: bool = True


class Past:
    """The utilisation of each GPU before, as far back as the widest sparkline reaches."""

    def __init__(self) -> None:
        self.values: dict[str, deque[float | None]] = {}

    def add(self, sample: Sample) -> None:
        for gpu in sample.gpus:
            kept = self.values.setdefault(gpu.label, deque(maxlen=KEPT))
            kept.append(gpu.utilization_percent)


def frame(view: View, width: int, height: int) -> list[Line]:
    """Lines of at most `width` columns, exactly `height` of them."""
    if view.sample is None:
        lines = [[("waiting for the first sample", DIM)]]
    elif view.help:
        lines = [_head(view), [], *([(f"  {keys:<12}", STRONG), (text, "")] for keys, text in HELP)]
    else:
        lines = _body(view, view.sample, width, height)
    fitted = [cut(line, width) for line in lines[:height]]
    return [*fitted, *([] for _ in range(height - len(fitted)))]


def _body(view: View, sample: Sample, width: int, height: int) -> list[Line]:
    top, host = _head(view), _host(view, sample, width)
    used = 2 * len(sample.gpus) + len(host) + len(view.processes)
    said = _verdict(view, width, 3 if height >= 30 or height - used >= 12 else 1)
    foot = _foot(view)
    room = height - 1 - len(host) - len(said) - 1
    two = 2 * len(sample.gpus) + min(2, len(view.processes) + 1) <= room
    gpus = [line for gpu in sample.gpus for line in _gpu(gpu, view, width, two=two)]
    left = room - len(gpus)
    if left < 0:
        more = f"… and {-left + 1} more GPUs; a higher terminal shows them"
        gpus = [*gpus[: room - 1], [(more, DIM)]]
    return [top, *gpus, *host, *said, *_fill(_processes(view, left), left), foot]


def _fill(lines: list[Line], count: int) -> list[Line]:
    return [*lines, *([] for _ in range(count - len(lines)))]


def _head(view: View) -> Line:
    told = view.sample
    when = f"{told.at[11:19]}  {duration(told.seconds)}" if told else ""
    pause: Line = [("  paused", WARN)] if view.paused else []
    return [("gpusetup monitor", STRONG), (f"  {when}  every {view.interval:g} s", DIM), *pause]


def _foot(view: View) -> Line:
    if view.typing:
        return [("filter: ", STRONG), (plain(view.filter), ""), ("_", DIM)]
    kept = f"  filter: {plain(view.filter)}" if view.filter else ""
    told = f"q quit  p pause  s sort: {view.sort}  / filter  + - rate  ? help{kept}"
    return [(told, DIM)]


# --- GPUs -----------------------------------------------------------------------------------------


def _gpu(gpu: GpuSample, view: View, width: int, *, two: bool) -> list[Line]:
    name = 22 if width >= 110 else 12
    label = f"{gpu.label:>3} "
    if gpu.lost:
        return [[(label, STRONG), (f"{plain(gpu.name or ''):<{name}.{name}}", ""), (" lost", BAD)]]
    size = max(5, min(24, (width - name - 52) // 2))
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    share = used / total * 100 if used is not None and total else None
    first: Line = [
        (label, STRONG),
        (f"{plain(gpu.name or '-').removeprefix('NVIDIA '):<{name}.{name}}", ""),
        *bar(
            "util",
            gpu.utilization_percent,
            100,
            size,
            view,
            text=figure(gpu.utilization_percent, "%"),
        ),
        *bar("mem", share, 100, size, view, text=_memory(used, total), warn=MEMORY_HIGH.value),
    ]
    room = width - sum(len(text) for text, _ in first) - 1
    marks = BARS if view.unicode else ASCII_BARS
    first.append((" " + sparkline(view.past.get(gpu.label, ()), room, bars=marks), "cyan"))
    return [first, _second(gpu, view, size)] if two else [first]


def _second(gpu: GpuSample, view: View, size: int) -> Line:
    """Power against its cap, heat against its slowdown point, clocks, links, what holds it down."""
    limit, point = gpu.power_limit_watts, gpu.temperature_slowdown_celsius
    degree = "°C" if view.unicode else "C"
    watts = figure(gpu.power_watts, "", limit, "W")
    heat = figure(gpu.temperature_celsius, "", point, degree)
    hot = (point - 3) / point * 100 if point else HOT.value
    clocks = f" SM {gpu.clock_sm_mhz if gpu.clock_sm_mhz is not None else '-'}"
    if gpu.clock_memory_mhz is not None:
        clocks += f" mem {gpu.clock_memory_mhz}"
    held = brakes(gpu)
    return [
        ("    ", ""),
        *bar("pwr", gpu.power_watts, limit or 0, size // 2 + 1, view, text=watts),
        *bar(
            "temp", gpu.temperature_celsius, point or 100, size // 2 + 1, view, text=heat, bad=hot
        ),
        *([(f" {held}", WARN)] if held else []),
        (f"{clocks} MHz", ""),
        *_links(gpu),
    ]


def _links(gpu: GpuSample) -> Line:
    """Received and sent."""
    told = (
        ("PCIe", gpu.pcie_rx_bytes_per_second, gpu.pcie_tx_bytes_per_second),
        ("NVLink", gpu.nvlink_rx_bytes_per_second, gpu.nvlink_tx_bytes_per_second),
    )
    return [
        (f" {name} {rate(received)}/{rate(sent)}", "")
        for name, received, sent in told
        if received is not None or sent is not None
    ]


def bar(
    name: str, value: float | None, of: float, size: int, view: View, *, text: str,
    warn: float = 101.0, bad: float = 101.0,
) -> Line:  # fmt: skip
    """A name, a bar and its figure; `warn` and `bad` are percentages of the whole."""
    share = min(100.0, max(0.0, value / of * 100)) if value is not None and of else 0.0
    role = BAD if share >= bad else WARN if share >= warn else GOOD
    drawn, rest = filled(share, size, unicode=view.unicode)
    edges = ("▕", "▏") if view.unicode else ("[", "]")
    return [
        (f" {name} {edges[0]}", DIM),
        (drawn, role),
        (rest + edges[1], DIM),
        (f" {text.strip():>5}", ""),
    ]


def filled(share: float, size: int, *, unicode: bool) -> tuple[str, str]:
    """The full part of a bar and the empty one.

    >>> filled(50, 4, unicode=True), filled(30, 10, unicode=False)
    (('██', '  '), ('###', '.......'))
    """
    if not unicode:
        full = round(share / 100 * size)
        return "#" * full, "." * (size - full)
    steps = round(share / 100 * size * 8)
    whole, part = divmod(steps, 8)
    drawn = "█" * whole + (EIGHTHS[part] if part else "")
    return drawn, " " * (size - len(drawn))


def figure(value: float | None, unit: str, of: float | None = None, of_unit: str = "") -> str:
    """
    >>> figure(97, "%"), figure(342.4, "", 700, "W"), figure(None, "%")
    (' 97 %', '342/700 W', '  - %')
    """
    told = "-" if value is None else f"{value:.0f}"
    if of is None:
        return f"{told:>3} {unit or of_unit}"
    return f"{told}/{of:.0f} {of_unit}"


def rate(count: float | None) -> str:
    """Bytes a second in few letters.

    >>> rate(1.25e9), rate(3.2e6), rate(100), rate(None)
    ('1.2G', '3M', '0', '-')
    """
    if count is None:
        return "-"
    if count >= 1e9:
        return f"{count / 1e9:.1f}G"
    return f"{count / 1e6:.0f}M" if count >= 5e5 else "0"


def _memory(used: float | None, total: float | None) -> str:
    if used is None:
        return "-"
    return f"{used / GIB:.1f}/{total / GIB:.0f}G" if total else f"{used / GIB:.1f}G"


# --- beside the GPUs ------------------------------------------------------------------------------


def _host(view: View, sample: Sample, width: int) -> list[Line]:
    lines: list[Line] = []
    if sample.host is not None:
        lines.append(_host_line(sample.host, view, max(5, min(24, (width - 70) // 2))))
    tree = sample.tree
    if tree is not None:
        told = (
            f"    command  CPU {tree.cpu_percent:.0f} %, busiest {tree.busiest_cpu_percent:.0f} %"
        )
        told += f", {tree.memory_bytes / GIB:.1f} GiB, {tree.loader_workers} loader workers"
        lines.append([(told, "")])
    return lines


def _host_line(host: HostSample, view: View, size: int) -> Line:
    cores = (host.cores or 1) * 100
    used, total = host.memory_used_bytes, host.memory_total_bytes
    disk = f"{rate(host.disk_read_bytes_per_second)}/{rate(host.disk_write_bytes_per_second)}"
    net = (
        f"{rate(host.network_receive_bytes_per_second)}/{rate(host.network_send_bytes_per_second)}"
    )
    share = None if host.cpu_percent is None else host.cpu_percent / cores * 100
    return [
        ("host", STRONG),
        *bar("CPU", share, 100, size, view, text=f"{figure(share, '%')} of {host.cores}"),
        *bar("RAM", used, total or 0, size, view, text=_memory(used, total), warn=90),
        (f" disk {disk} net {net}", ""),
    ]


def _verdict(view: View, width: int, most: int) -> list[Line]:
    """What the run looks like until now, and on what that rests, in at most so many lines."""
    told = view.so_far
    if told is None:
        return [[("so far: too few samples", DIM)], []]
    name = "/".join(filter(None, (told.verdict or "none", told.cause)))
    role = f"{STRONG} {GOOD if told.verdict == 'good' else WARN}"
    step = f"  next: {plain(told.next.text)}" if told.next else ""
    steps = wrap(step, max(30, width), subsequent_indent="        ") if most > 1 else [step]
    lead = len("so far: ") + len(name) + 2
    rows = wrap(" " * lead + plain(told.evidence), max(30, width), subsequent_indent="        ")
    first, *rest = rows[:most] if len(rows) <= most or most > 1 else [" ".join(rows)]
    return [
        [("so far: ", DIM), (name, role), ("  " + first.strip(), "")],
        *([(row, "")] for row in rest),
        *([(row, DIM)] for row in steps[:most] or [""]),
    ]


def _processes(view: View, room: int) -> list[Line]:
    if room < 2:
        return []
    rows = shown_processes(view)
    head = f"{'GPU':>4} {'PID':>8} {'user':<10} {'memory':>8} {'SM %':>5} {'CPU %':>6}  command"
    lines: list[Line] = [[(head, DIM)]]
    for one in rows[: room - 1]:
        use = "-" if one.sm_percent is None else f"{one.sm_percent:.0f}"
        cpu = "-" if one.cpu_percent is None else f"{one.cpu_percent:.0f}"
        held = _memory(one.memory_bytes, None)
        text = f"{one.gpu:>4} {one.pid:>8} {plain(one.user):<10.10} {held:>8}"
        lines.append([(f"{text} {use:>5} {cpu:>6}  {plain(one.command) or '(hidden)'}", "")])
    if len(rows) > room - 1:
        lines[-1] = [(f"     and {len(rows) - room + 2} more processes", DIM)]
    return lines


def shown_processes(view: View) -> list[Process]:
    wanted = view.filter.lower()
    rows = [one for one in view.processes if wanted in f"{one.user} {one.command}".lower()]
    keys: dict[str, Callable[[Process], Any]] = {
        "memory": lambda one: -(one.memory_bytes or 0),
        "sm": lambda one: -(one.sm_percent or 0.0),
        "cpu": lambda one: -(one.cpu_percent or 0.0),
        "gpu": lambda one: one.gpu.rjust(6),
        "pid": lambda one: one.pid,
    }
    return sorted(rows, key=lambda one: (keys[view.sort](one), one.gpu, one.pid))


def cut(line: Line, width: int) -> Line:
    """The line as far as it fits."""
    left, kept = width, []
    for text, role in line:
        if left <= 0:
            break
        kept.append((text[:left], role))
        left -= len(text)
    return kept
