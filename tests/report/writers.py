"""Writers of the texts that people paste: a machine, or a message, as programs print them.

Formats are the programs' own (torch's collect_env, nvidia-smi 384 to 610, pip, uv, conda, the
kernel); the machines are the package's examples. Nothing here is anybody's report.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import lru_cache

from machines_named import example_machines, machine_named

from gpusetup.model.machine import Gpu, Snapshot

MIB = 1 << 20


@lru_cache
def machines() -> tuple[Snapshot, ...]:
    """The example machines, each completed by what a text of it would show."""
    return tuple(machine_named(name) for name in example_machines())


# --- torch.utils.collect_env ----------------------------------------------------------------------


def collect_env(machine: Snapshot) -> str:
    """The output of torch 2.x."""
    lines = ("Collecting environment information...", *_new_env(machine), "")
    return "\n".join((*lines, "Versions of relevant libraries:", *_pip_lines(machine)))


def _built(machine: Snapshot) -> str:
    torch = machine.torch
    return "N/A" if not torch.installed or torch.hip else torch.cuda or _cuda(torch.backend)


def _cuda(backend: str | None) -> str:
    digits = (backend or "")[2:]
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() else "None"


def _new_env(machine: Snapshot) -> Iterator[str]:
    torch, os = machine.torch, machine.os
    yield f"PyTorch version: {torch.version if torch.installed else 'N/A'}"
    yield "Is debug build: False"
    yield f"CUDA used to build PyTorch: {_built(machine)}"
    yield f"ROCM used to build PyTorch: {torch.hip or 'N/A'}"
    yield ""
    yield f"OS: {os.name or 'Linux'} ({'arm64' if os.family == 'macos' else os.machine or 'x86_64'})"
    yield "GCC version: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0"
    yield "Clang version: Could not collect"
    yield "CMake version: version 3.22.1"
    yield f"Libc version: {(os.libc or 'N/A').replace(' ', '-')}"
    yield ""
    python = machine.python.version or "3.11.9"
    yield f"Python version: {python} (main, Apr  2 2024, 08:25:04) [GCC 11.4.0] (64-bit runtime)"
    yield f"Python platform: {_platform(machine)}"
    yield f"Is CUDA available: {_yes(torch.cuda_available, 'True', 'False')}"
    yield "CUDA runtime version: Could not collect"
    yield "CUDA_MODULE_LOADING set to: LAZY"
    yield _gpu_lines(machine)
    yield f"Nvidia driver version: {machine.driver.version or 'Could not collect'}"
    yield "cuDNN version: Could not collect"
    yield "HIP runtime version: N/A"
    yield "MIOpen runtime version: N/A"
    yield "Is XNNPACK available: True"


def _yes(flag: bool | None, yes: str, no: str) -> str:
    return yes if flag else no


def _platform(machine: Snapshot) -> str:
    os = machine.os
    if os.family == "windows":
        return "Windows-10-10.0.22631-SP0"
    if os.family == "macos":
        return "macOS-14.5-arm64-arm-64bit"
    kernel = os.kernel or "5.15.0-113-generic"
    return (
        f"Linux-{kernel}-{os.machine or 'x86_64'}-with-{(os.libc or 'glibc 2.35').replace(' ', '')}"
    )


def _gpu_lines(machine: Snapshot) -> str:
    label = "GPU models and configuration:"
    names = [f"GPU {n}: {gpu.name}" for n, gpu in enumerate(machine.gpus or ())]
    if not names:
        return f"{label} Could not collect"
    return f"{label} {names[0]}" if len(names) == 1 else "\n".join((label, *names, ""))


def _pip_lines(machine: Snapshot) -> Iterator[str]:
    yield "[pip3] numpy==1.26.4"
    for package in machine.packages or ():
        if package.name.startswith("torch") and package.installer != "conda":
            yield f"[pip3] {package.name}=={package.version}"
    for package in machine.packages or ():
        if package.installer == "conda":
            build = package.build or "py311_0"
            yield f"[conda] {package.name:<25} {package.version:<20} {build:<15} defaults"


# --- nvidia-smi -----------------------------------------------------------------------------------


def smi_table(machine: Snapshot, *, form: str = "new") -> str:
    """`old`: 79 wide (384 to 525), `new`: 91 wide (530 to 595)."""
    width = 77 if form == "old" else 89
    driver = machine.driver
    rows = [row for gpu in machine.gpus or () for row in _gpu_rows(gpu, form)]
    frame = "+" + "-" * width + "+"
    foot = [frame, f"| {'Processes:':<{width - 2}} |", frame]
    banner = _banner(driver.version or "", driver.cuda, form)
    return "\n".join((frame, f"| {banner:<{width - 2}} |", *_head(form), *rows, "", *foot))


def _banner(version: str, cuda: str | None, form: str) -> str:
    own = f"CUDA Version: {cuda}" if cuda else ""
    gap = 12 if form == "old" else 22
    return f"NVIDIA-SMI {version:<{gap}} Driver Version: {version:<{gap}} {own}"


def _head(form: str) -> tuple[str, ...]:
    if form == "old":
        return (
            "|-------------------------------+----------------------+----------------------+",
            "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |",
            "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |",
            "|===============================+======================+======================|",
        )
    return (
        "|-----------------------------------------+------------------------+----------------------+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|=========================================+========================+======================|",
    )


def _gpu_rows(gpu: Gpu, form: str) -> Iterator[str]:
    total, used = (gpu.memory_total_bytes or 0) // MIB, (gpu.memory_used_bytes or 0) // MIB
    state = gpu.driver_model or "Off"
    ecc = "N/A" if gpu.ecc_uncorrected is None else str(gpu.ecc_uncorrected)
    bus = gpu.pci_bus_id or "00000000:01:00.0"
    mode = {"Exclusive_Process": "E. Process"}.get(
        gpu.compute_mode or "", gpu.compute_mode or "Default"
    )
    temp = f"{gpu.temperature_celsius or 40}C"
    draw = f"{gpu.power_watts or 20:.0f}W / {gpu.power_limit_watts or 250:.0f}W"
    left, middle = (18, 20) if form == "old" else (27, 22)
    name = gpu.name if len(gpu.name) <= left else gpu.name[: left - 3] + "..."
    index = gpu.nvml_index or 0
    yield f"| {index:>3}  {name:<{left}} {state:>5} | {bus + ' Off':>{middle}} | {ecc:>20} |"
    yield f"| {'N/A':<4} {temp:>4} {'P0':>5} {draw:>{left - 3}} | {f'{used}MiB / {total}MiB':>{middle}} | {'0%':>8} {mode:>11} |"
    frame = "+" + "-" * (left + 13) + "+" + "-" * (middle + 2) + "+" + "-" * 22 + "+"
    if gpu.mig_enabled is not None:
        flag = "Enabled" if gpu.mig_enabled else "Disabled"
        yield f"| {'':<{left + 11}} | {'':<{middle}} | {flag:>20} |"
    yield frame


def pip_refusal(requirement: str, versions: str, *, index: str | None = None) -> str:
    command = f"pip install {requirement}" + (f" --index-url {index}" if index else "")
    looking = (f"Looking in indexes: {index}",) if index else ()
    return "\n".join(
        (
            command,
            *looking,
            f"ERROR: Could not find a version that satisfies the requirement {requirement} (from versions: {versions})",
            f"ERROR: No matching distribution found for {requirement}",
        )
    )


# --- mixtures -------------------------------------------------------------------------------------

Writer = Callable[[Snapshot], str]
BLOCKS: tuple[Writer, ...] = (
    collect_env,
    smi_table,
    lambda machine: smi_table(machine, form="old"),
)


def mixture(seed: int, messages: tuple[str, ...]) -> str:
    """A report of one machine: one to three blocks, often a message, in any order."""
    draw = random.Random(seed)
    machine = draw.choice(machines())
    blocks = [write(machine) for write in draw.sample(BLOCKS, draw.randint(1, 3))]
    if draw.random() < 0.8:
        message = draw.choice(messages)
        blocks.insert(
            draw.randint(0, len(blocks)),
            message,
        )
    return "\n\n".join(block for block in blocks if block.strip()) + "\n"
