"""The output of `nvidia-smi`: its table, its long form (`-q`) and its errors.

All functions here are pure: text in, values out. The text may be cut off or malformed; a value that
cannot be read is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gpusetup.child_scripts.nvml_fields import THROTTLE_REASONS, throttle_reasons
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.frozen import fields as field_list
from gpusetup.model.machine import Gpu, GpuProcess
from gpusetup.model.versions import Capability
from gpusetup.readings.sources import UNNAMED

T = TypeVar("T")


class Smi(Frozen):
    """One output of `nvidia-smi` as values. A value that it does not show is None."""

    smi_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    no_cuda: bool = False
    """Whether the output says `CUDA Version: ERR!`."""
    gpus: tuple[Gpu, ...] | None = None
    persistence: bool | None = None


# Part of the message (lower case) -> NVML code. Sources: nvmlErrorString, nvidia-smi 418 to 610,
# whose exit code is the NVML code too (9, 12, 15, 18 seen; 6 for no devices). The first part that
# the message contains counts.
ERRORS = {
    "couldn't communicate with the nvidia driver": 9,
    "driver/library version mismatch": 18,
    **dict.fromkeys(("couldn't find libnvidia-ml.so", "couldn't find nvml.dll"), 12),
    "nvml shared library not found": 12,
    "gpu access blocked by the operating system": 17,
    "insufficient permissions": 4,
    **dict.fromkeys(("driver not loaded", "driver is not loaded"), 9),
    "error_library_not_found": 12,
    "error_driver_not_loaded": 9,
    "error_lib_rm_version_mismatch": 18,
    "error_gpu_is_lost": 15,
    "error_reset_required": 16,
    "error_no_permission": 4,
    "gpu is lost": 15,
    "gpu requires reset": 16,
    "failed to initialize nvml: timeout": 10,
    "failed to initialize nvml: not found": 6,
    **dict.fromkeys(("failed to initialize nvml", "nvml: unknown error"), 999),
    "unable to determine the device handle": 999,
}
NO_DEVICES = "no devices were found"


def parse_error(line: str) -> int | None:
    """The NVML error code of the message in a line; None if there is none.

    >>> parse_error("Failed to initialize NVML: Driver/library version mismatch")
    18
    >>> parse_error("Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"), parse_error("GPU 0")
    (12, None)
    """
    lower_line = line.lower()
    return next((code for message, code in ERRORS.items() if message in lower_line), None)


BLANKS = ("", "n/a", "not supported", "not found", "unknown error", "err!", "none", "unknown")

REASONS_FOR_A_BLANK = ("gpu is lost", "gpu requires reset", "insufficient")
"""The beginnings of cells that say why there is no value."""


def cell(text: str | None) -> str | None:
    """The text of a cell; None if it says that there is no value.

    >>> cell(" 40960 MiB "), cell("[N/A]"), cell("[Unknown Error]"), cell("ERR!")
    ('40960 MiB', None, None, None)
    """
    plain = (text or "").strip()
    word = plain.strip("[]").lower()
    # A cell without a value may say "[Requested functionality has been deprecated]".
    is_blank = word in BLANKS or word.startswith(REASONS_FOR_A_BLANK) or "deprecated" in word
    return None if is_blank else plain


def says_lost(text: str | None) -> bool:
    """Whether a text says that the driver lost the GPU, or that the GPU needs a reset."""
    lower_text = (text or "").lower()
    return "gpu is lost" in lower_text or "gpu requires reset" in lower_text


def number(text: str | None) -> float | None:
    """The first number in a cell; None if it has no value, or more digits than a float holds.

    >>> number("72.00 W"), number("16x"), number("[N/A]")
    (72.0, 16.0, None)
    """
    digits = re.search(r"(?<!\d)-?\d{1,15}(?!\d)(?:\.\d+)?", cell(text) or "")
    return float(digits[0]) if digits else None


def integer(text: str | None) -> int | None:
    """The first number in a cell, without its decimals; None if it has no value."""
    value = number(text)
    return None if value is None else int(value)


UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def memory(text: str | None) -> int | None:
    """A memory size in bytes; None if the cell has no value. MB means MiB, and so does a number
    without a unit.

    >>> memory("40960 MiB") == memory("40960MiB") == memory("40960") == 40960 << 20
    True
    >>> memory("512 KB") == memory("512 KiB") == 512 << 10
    True
    """
    amount = re.match(r"(\d{1,15}(?!\d)(?:\.\d+)?)\s*([KMG]i?B|B)?", cell(text) or "", re.I)
    if not amount:
        return None
    count, unit = amount.groups(default="MiB")
    return int(float(count) * UNITS[unit[0].lower()])


def word_reader(values: Mapping[str, T]) -> Callable[[str | None], T | None]:
    """Returns a function that reads a cell with one of these words, ignoring a remark or star after
    the word. The function returns None for any other text.

    >>> [word_reader({"on": True, "off": False})(text) for text in ("On", "[Off]", "Off*", "N/A")]
    [True, False, False, None]
    """

    def value_of(text: str | None) -> T | None:
        before_remark, _, _ = (text or "").partition(" (")
        return values.get(before_remark.strip(" []*").lower())

    return value_of


flag = word_reader(
    {
        **dict.fromkeys(("enabled", "on", "yes", "active"), True),
        **dict.fromkeys(("disabled", "off", "no", "not active"), False),
    }
)
EXCLUSIVE = "Exclusive_Process"
compute_mode = word_reader(
    {
        "default": "Default",
        **dict.fromkeys(("exclusive_process", "e. process", "exclusive process"), EXCLUSIVE),
        **dict.fromkeys(("exclusive_thread", "e. thread"), "Exclusive_Thread"),
        "prohibited": "Prohibited",
    }
)
"""Reads the compute mode, which the table and `-q` spell differently, in one spelling."""
driver_model = word_reader({"wddm": "WDDM", "tcc": "TCC", "wdm": "TCC", "mcdm": "MCDM"})


def throttle_mask(text: str | None) -> tuple[str, ...] | None:
    """The reasons for throttling in NVML's bit mask; None if the cell has no value.

    >>> throttle_mask("0x0000000000000044")
    ('sw_power_cap', 'hw_thermal_slowdown')
    """
    mask = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{1,16})", cell(text) or "")
    return tuple(throttle_reasons(int(mask[1], 16))) if mask else None


def capability(text: str | None) -> Capability | None:
    """The compute capability in a cell; None if it has no value.

    >>> str(capability("8.9")), capability("[N/A]")
    ('8.9', None)
    """
    version = cell(text) or ""
    if re.fullmatch(r"\d{1,2}\.\d", version) is None:
        return None
    return Capability.parse(version)


def fault(text: str | None) -> bool | None:
    """Whether a cell contains `Yes` or a count above 0; None if it contains no value."""
    count = integer(text)
    return flag(text) if count is None else count > 0


def dotted(text: str | None) -> str | None:
    """A version with dots, or None if the cell holds anything else.

    >>> dotted("13.3"), dotted("ERR!"), dotted("580.95.05")
    ('13.3', None, '580.95.05')
    """
    version = re.fullmatch(r"\d+(?:\.\d+)+", cell(text) or "")
    return version.group() if version else None


# The cells of the table. `parse_table` and `gpu_rows` show the lines that these patterns read.
SMI_VERSION = re.compile(r"NVIDIA-SMI\s+(\d[\w.]*)")
DRIVER_VERSION = re.compile(r"(?:Driver|KMD) Version\s*:\s*([\w.!/]+)")
CUDA_VERSION = re.compile(r"CUDA (?:UMD )?Version\s*:\s*([\w.!/]+)")
FIRST_LINE = re.compile(
    r"^\s*(?P<nvml_index>\d+)\s+(?P<name>\S.*?)\s+"
    r"(?P<driver_model>On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*$"
)
BUS = re.compile(r"(?P<pci_bus_id>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
STATE = re.compile(
    r"(?:\d+%|N/A|ERR!)\s+(?P<temperature_celsius>\d+C?|N/A|ERR!)\s+(?:P\d+|N/A|Unknown|ERR!)\s+"
    r"(?P<power_watts>[\d.]+W|N/A|ERR!)\s*/\s*(?P<power_limit_watts>[\d.]+W|N/A|ERR!)?"
)
MEMORY = re.compile(r"(?P<memory_used_bytes>\d+\s*MiB)\s*/\s*(?P<memory_total_bytes>\d+\s*MiB)")
LOAD = re.compile(r"(?P<utilization_percent>\d+%|N/A|ERR!)\s+(?P<compute_mode>\S.*\S)")


def parse_banner(line: str) -> Smi:
    """The versions in the table's first line, or in the header of the long output.

    >>> line = "| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02   CUDA UMD Version: 13.3  |"
    >>> parse_banner(line).driver_version, parse_banner(line).cuda_version
    ('610.43.02', '13.3')
    """
    smi, driver, cuda = (p.search(line) for p in (SMI_VERSION, DRIVER_VERSION, CUDA_VERSION))
    return Smi(
        smi_version=smi and smi[1],
        driver_version=dotted(driver and driver[1]),
        cuda_version=dotted(cuda and cuda[1]),
        # nvidia-smi prints ERR! if the driver's CUDA library does not load.
        no_cuda=cuda is not None and cuda[1] == "ERR!",
    )


def parse_table(text: str) -> Smi:
    """The versions and GPUs in the table; of a table that is cut off, the GPUs that it still shows.

    >>> text = '''
    ... | NVIDIA-SMI 450.51.06    Driver Version: 450.51.06    CUDA Version: 11.0     |
    ... |   0  Tesla K20m          Off  | 00000000:03:00.0 Off |                    0 |
    ... | N/A   23C    P0    46W / 225W |      0MiB /  4743MiB |      0%      Default |'''
    >>> smi = parse_table(text)
    >>> smi.cuda_version, smi.gpus[0].name, smi.gpus[0].temperature_celsius
    ('11.0', 'Tesla K20m', 23)
    """
    rows = gpu_rows(text)
    by_gpu = processes_of(text)
    if by_gpu is not None:
        for row in rows:
            row["processes"] = by_gpu.get(row["nvml_index"], ())
    modes = [row["persistence"] for row in rows]
    # On Windows, the table shows no persistence mode (None).
    on_for_all_gpus = all(modes) if modes and None not in modes else None
    return replace(
        parse_banner(next(filter(SMI_VERSION.search, text.splitlines()), "")),
        gpus=tuple(map(gpu_with, rows)) or None,
        persistence=on_for_all_gpus,
    )


def cells_of(line: str) -> list[str]:
    """The cells of a line of the table, without its borders."""
    return line.strip(" \t*>").strip("|").split("|")


def row_of(line: str) -> re.Match[str] | None:
    """A match for the first line of a GPU in the table; None for any other line."""
    first, *others = cells_of(line)
    # Without a border between cells, it is no line of the table.
    return FIRST_LINE.match(first) if others else None


def gpu_rows(text: str) -> list[dict[str, Any]]:
    """The fields of each GPU in the table, from its first line and the lines that follow it."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        whole_cells = cells_of(line)
        # A line that is cut off has fewer than three cells.
        cells = (*whole_cells, "", "", "")
        if first := row_of(line):
            # `0 NVIDIA L40S On | 00000000:17:00.0 Off | 0`: the name and whether persistence mode
            # is on (on Windows, the driver model), the address, ECC errors.
            errors = cells[2].strip()
            row = {
                **fields_of(first, BUS.search(cells[1])),
                # `On` and `Off`; None for a driver model.
                "persistence": flag(first["driver_model"]),
                # With ECC on, the cell contains a number of errors; `N/A` is None.
                "ecc_enabled": False if errors == "Off" else (errors.isdecimal() or None),
                "ecc_uncorrected": int(errors) if errors.isdecimal() else None,
            }
            # If the table of MIG instances is empty, no GPU has one.
            if "No MIG devices found" in text:
                row["mig_count"] = 0
            rows.append(row)
        # The next table begins, whose rows look like those of the GPUs.
        elif rows and (PROCESSES in line or "MIG devices:" in line):
            break
        elif rows and (state := STATE.search(cells[0])):
            # `N/A 33C P0 72W / 400W | 0MiB / 40960MiB | 97% Default`.
            rows[-1].update(fields_of(state, MEMORY.search(cells[1]), LOAD.search(cells[2])))
            # One `ERR!` may be a missing sensor; a card that prints several does not answer.
            if line.count("ERR!") > 1 or any(map(says_lost, cells)):
                rows[-1]["lost"] = True
        # `|  |  | Disabled |`: the MIG mode in the last cell; the first one is empty.
        elif rows and len(whole_cells) == 3 and not cells[0].strip():
            mode = flag(cells[2])
            if mode is not None:
                rows[-1]["mig_enabled"] = mode
    return rows


def fields_of(*matches: re.Match[str] | None) -> dict[str, Any]:
    """The named groups of the matches as fields, each converted to its type."""
    fields: dict[str, Any] = {}
    for match in filter(None, matches):
        fields |= {name: READERS[name](text) for name, text in match.groupdict().items()}
    return fields


PROCESSES = "Processes:"
# Since driver 450 there are two columns for MIG (GI, CI) between the GPU and the process id.
PROCESS_ROW = re.compile(
    r"^\W{0,12}(?P<gpu>\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(?P<pid>\d{1,10})\s+"
    r"(?P<kind>C\+G|M\+C|[CGM])\s+(?P<name>\S.{0,120}?)\s+(?P<memory>\d{1,8}\s?MiB|N/A)?\s*\|?$"
)


def processes_of(text: str) -> dict[int, tuple[GpuProcess, ...]] | None:
    """The processes of each GPU, by GPU number; None if the table has no list of processes.

    An empty list proves nothing, because nvidia-smi in a container does not see the host's
    processes.

    >>> table = "| Processes: |\\n|    0   N/A  N/A   4711   C   .../bin/python   6144MiB |"
    >>> processes_of(table)[0][0].name, processes_of(table)[0][0].memory_bytes >> 20
    ('.../bin/python', 6144)
    """
    _table, heading, listed = text.partition(PROCESSES)
    if not heading:
        return None
    by_gpu: dict[int, tuple[GpuProcess, ...]] = {}
    for row in filter(None, map(PROCESS_ROW.match, listed.splitlines())):
        process = GpuProcess(
            pid=int(row["pid"]),
            name=row["name"],
            kind=row["kind"],
            memory_bytes=memory(row["memory"]),
        )
        by_gpu[int(row["gpu"])] = (*by_gpu.get(int(row["gpu"]), ()), process)
    return by_gpu


RECOVERY_ACTIONS = (
    ("none", "none"), ("drain and reset", "drain_and_reset"),
    ("drain p2p and reset", "drain_and_reset"), ("drain p2p", "drain_p2p"),
    ("imex", "recover_imex_domain"), ("bus reset", "bus_reset"),
    ("system reboot", "system_reboot"), ("reboot", "node_reboot"),
    ("reset", "gpu_reset"), ("flr", "gpu_reset"),
)  # fmt: skip
"""Words in the names that nvidia-smi and the kernel use -> NVML's name. The first words that the
text contains count."""


def recovery_action(text: str | None) -> str | None:
    """The recovery action that the driver recommends, by NVML's name: `none` if it recommends none,
    None if the text does not say.

    >>> recovery_action("Reset"), recovery_action("Node Reboot Required"), recovery_action("N/A")
    ('gpu_reset', 'node_reboot', None)
    """
    lower_text = (text or "").lower()
    return next((name for words, name in RECOVERY_ACTIONS if words in lower_text), None)


# `GPU 00000000:0B:00.0`: the heading of a GPU's page.
GPU_HEAD = re.compile(
    r"(?m)^\s*GPU ((?i:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]))[^\S\n]*$"
)
GPU_VALUES: tuple[tuple[str, str, str, Callable[[str], Any]], ...] = (
    ("nvml_index", "index", "", integer),
    ("name", "name gpu_name", "Product Name", cell),
    ("uuid", "uuid gpu_uuid", "GPU UUID", cell),
    ("pci_bus_id", "pci.bus_id gpu_bus_id", "", cell),
    ("compute_capability", "compute_cap", "", capability),
    ("memory_total_bytes", "memory.total", "FB Memory Usage/Total", memory),
    ("memory_used_bytes", "memory.used", "FB Memory Usage/Used", memory),
    ("utilization_percent", "utilization.gpu", "Utilization/GPU", integer),
    ("memory_busy_percent", "utilization.memory", "Utilization/Memory", number),
    ("temperature_celsius", "temperature.gpu", "GPU Current Temp", integer),
    ("power_watts", "power.draw power.draw.average power.draw.instant", "", number),
    ("power_watts", "", "(?:(?:Instantaneous|Average) )?Power Draw", number),
    ("power_limit_watts", "power.limit enforced.power.limit", "", number),
    ("power_limit_watts", "", "(?:(?:Current|Enforced) )?Power Limit", number),
    ("power_limit_default_watts", "power.default_limit", "Default Power Limit", number),
    ("clock_sm_mhz", "clocks.sm clocks.current.sm", "Clocks/SM", integer),
    ("clock_sm_mhz", "clocks.gr clocks.current.graphics", "", integer),
    ("clock_sm_max_mhz", "clocks.max.sm clocks.max.gr", "Max Clocks/SM", integer),
    ("pcie_generation", "pcie.link.gen.current", "PCIe Generation/Current", integer),
    ("pcie_generation", "pcie.link.gen.gpucurrent", "", integer),
    ("pcie_generation_max", "pcie.link.gen.max", "PCIe Generation/Max", integer),
    ("pcie_generation_max", "pcie.link.gen.gpumax", "", integer),
    ("pcie_width", "pcie.link.width.current", "Link Width/Current", integer),
    ("pcie_width_max", "pcie.link.width.max", "Link Width/Max", integer),
    ("mig_enabled", "mig.mode.current", "MIG Mode/Current", flag),
    ("mig_count", "", "MIG Device", word_reader({"none": 0})),
    ("compute_mode", "compute_mode", "Compute Mode", compute_mode),
    ("driver_model", "driver_model.current", "Driver Model/Current", driver_model),
    ("vbios_version", "vbios_version", "", cell),
    ("ecc_enabled", "ecc.mode.current", "", flag),
    ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total", "", integer),
    ("ecc_uncorrected", "", "Volatile/(?:[SD]RAM Uncorrectable.*|Double Bit/Total)", integer),
    ("retired_pages", "", "Retired Pages/(?:Single|Double) Bit ECC", integer),
    ("retired_pending", "remapped_rows.pending retired_pages.pending", "", fault),
    (
        "retired_pending",
        "",
        "Retired Pages/Pending.*|Remapped Rows/Pending|.* Repair Pending",
        fault,
    ),
    ("remap_failed", "remapped_rows.failure", "Remapping Failure Occurred", fault),
    ("sram_threshold_exceeded", "", "SRAM Threshold Exceeded", flag),
    ("recovery_action", "gpu_recovery_action", "GPU Recovery Action", recovery_action),
    ("recovery_action", "", "(?:GPU )?Reset Status/.*", word_reader({"yes": "gpu_reset"})),
    ("throttle_reasons", "clocks_throttle_reasons.active", "", throttle_mask),
    ("throttle_reasons", "clocks_event_reasons.active", "", throttle_mask),
)
"""A field of `Gpu` or of the monitor's samples, its columns in `--query-gpu`, its place in `-q`
(its label and, if that is not unique, the headings above), and the function that reads its text.

If a field has several columns or rows, the first one with a value counts. If a row has several
places in `-q`, error counts are added up, a yes wins over a no, and otherwise the first value
counts."""
READERS = {field: reader for field, _, _, reader in GPU_VALUES}


def parse_query(text: str) -> Smi:
    """The output of `nvidia-smi -q`: complete, cut off, or only a part of it (`-d PERFORMANCE`).

    >>> smi = parse_query('''Driver Version                            : 545.29.06
    ... GPU 00000000:0B:00.0
    ...     Clocks Event Reasons
    ...         SW Power Cap                      : Active''')
    >>> smi.driver_version, smi.gpus[0].throttle_reasons
    ('545.29.06', ('sw_power_cap',))
    """
    head, *parts = GPU_HEAD.split(text)
    # The pattern has one group, so `split` returns addresses and pages alternately.
    gpus = tuple(map(gpu_of, parts[1::2], parts[::2]))
    # Without a GPU's heading line, the text may be a part of one GPU's page.
    if not gpus and (only_gpu := gpu_of(head)) != Gpu(name=UNNAMED):
        gpus = (only_gpu,)
    return replace(parse_banner(head), gpus=gpus or None)


def labelled_values(page: str) -> Iterator[tuple[str, str]]:
    """Each value on a page, with the path of headings and label above it.

    >>> list(labelled_values("Link Info\\n    Width\\n        Max  : 16x\\n    Fan Speed : 30 %"))
    [('Link Info/Width/Max', '16x'), ('Link Info/Fan Speed', '30 %')]
    >>> list(labelled_values("Remapped Rows\\nPending : No"))
    [('Remapped Rows/Pending', 'No')]
    """
    headings: list[tuple[int, str]] = []
    for line in page.split("\n"):
        if not line.strip():
            continue
        label, colon, value = line.partition(": ")
        margin = len(line) - len(line.lstrip())
        # If the indentation was lost, headings are at 0, and values below them at 2 (`: `).
        depth = margin or len(colon)
        while headings and headings[-1][0] >= depth:
            headings.pop()
        headings.append((depth, label.strip()))
        if colon:
            yield "/".join(name for _, name in headings), value


def read_at(rows: Sequence[tuple[str, str]], label: str, reader: Callable[[str], Any]) -> list[Any]:
    """The values with this label that can be read, from rows of `labelled_values`; sections about
    MIG instances are left out."""
    full_label = re.compile(rf"(?!MIG Device/)(?:.*/)?(?:{label})", re.I)
    values = [reader(text) for name, text in rows if full_label.fullmatch(name)]
    return [value for value in values if value is not None]


def query_values(page: str) -> dict[str, Any]:
    """The values on one page of `nvidia-smi -q` by field, without those that it does not show."""
    rows = tuple(labelled_values(page))
    values: dict[str, Any] = {"lost": True} if says_lost(page) else {}
    for name, _, label, reader in GPU_VALUES:
        found = read_at(rows, label, reader) if label else []
        if not found or name in values:
            continue
        if name in ("ecc_uncorrected", "retired_pages"):
            values[name] = sum(found)
        else:
            # One yes is enough, for example if one of several memory banks has a pending repair.
            # `1x` is no yes, although Python's 1 equals True.
            values[name] = any(value is True for value in found) or found[0]
    # A line for each reason, such as `SW Power Cap : Active`.
    flags = {reason: read_at(rows, reason.replace("_", " "), flag) for reason in THROTTLE_REASONS}
    if any(flags.values()):
        values["throttle_reasons"] = tuple(reason for reason, of in flags.items() if True in of)
    return values


GPU_FIELDS = {field.name for field in field_list(Gpu)}


def gpu_of(page: str, bus: str | None = None) -> Gpu:
    """The GPU on one page of `nvidia-smi -q`; `bus` is the address in the page's heading."""
    return gpu_with({"pci_bus_id": bus, **query_values(page)})


def gpu_with(values: Mapping[str, Any]) -> Gpu:
    """The GPU with these values, without those that only the monitor's samples have."""
    fields = {name: value for name, value in values.items() if name in GPU_FIELDS}
    return Gpu(**{"name": UNNAMED, **fields})
