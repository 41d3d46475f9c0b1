"""The GPU side of a machine, from every source at once.

The cheap sources (files) come first; they tell whether there is anything to ask. Then NVML and
libcuda are asked in two children at the same time, and `nvidia-smi` where NVML is missing, where
sources disagree, or under `deep`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from gpusetup.model import CudaApi, Driver, Gpu, PciDevice, Reading
from gpusetup.probe.cuda import read_cuda
from gpusetup.probe.driver_files import read_libraries
from gpusetup.probe.nodes import read_nodes
from gpusetup.probe.nvidia_proc import (
    read_modinfo,
    read_module_version,
    read_modules,
    read_proc_gpus,
    read_proc_version,
)
from gpusetup.probe.nvml import read_nvml
from gpusetup.probe.pci import read_pci, read_wmi
from gpusetup.probe.side import (
    GpuSide,
    Notify,
    bus_key,
    enriched,
    first_known,
    missing,
    same_gpu,
)
from gpusetup.probe.system import System
from gpusetup.value import replace

T = TypeVar("T")
LIMIT_SECONDS = 30.0
"""For each of NVML, libcuda and nvidia-smi: a big node without persistence mode may need it."""
NOTICE_SECONDS = 3.0
NOTICE = "waiting for {source}; without persistence mode this takes up to 30 s"

FILES: dict[str, tuple[Callable[[System], GpuSide], ...]] = {
    "linux": (
        read_proc_version,
        read_module_version,
        read_modules,
        read_libraries,
        read_pci,
        read_nodes,
        read_proc_gpus,
    ),
    "windows": (read_libraries,),
    "macos": (),
}
"""The readers that start no child, by family, in order of precedence."""


def read_gpu_side(
    system: System,
    *,
    deep: bool = False,
    notify: Notify | None = None,
    limit: float = LIMIT_SECONDS,
) -> GpuSide:
    """Everything about driver, CUDA and GPUs. `notify` hears of a wait; `limit` is in seconds."""
    files = tuple(read(system) for read in FILES[system.family])
    if not worth_asking(files):
        silent = missing("gpus", "nvml, libcuda", "not asked: no driver library, node or module")
        asked = (_smi(system, limit),) if deep and system.family != "macos" else ()
        return assembled(system, asked, (*files, *_after_nothing(system, deep), silent))
    nvml, cuda = together(
        noticed("NVML", notify, lambda: read_nvml(system, limit)),
        noticed("libcuda", notify, lambda: read_cuda(system, limit)),
    )
    smi: tuple[GpuSide, ...] = ()
    if deep or needs_smi(nvml, cuda, files):
        smi = (noticed("nvidia-smi", notify, lambda: _smi(system, limit))(),)
    more = (read_modinfo(system),) if not _loaded(files) and system.family == "linux" else ()
    return assembled(system, (nvml, cuda, *smi), (*files, *more, *_log(system, deep)))


def _smi(system: System, limit: float) -> GpuSide:
    from gpusetup.probe.smi import read_smi

    return read_smi(system, limit)


def _log(system: System, deep: bool) -> tuple[GpuSide, ...]:
    if not deep or system.family != "linux":
        return ()
    from gpusetup.probe.dmesg import read_dmesg

    return (read_dmesg(system),)


def _after_nothing(system: System, deep: bool) -> tuple[GpuSide, ...]:
    """Without a driver: what hardware Windows knows of, what the kernel log says."""
    return (read_wmi(system),) if system.family == "windows" else _log(system, deep)


def worth_asking(files: Iterable[GpuSide]) -> bool:
    """Whether any file hints at an NVIDIA driver."""
    return any(
        side.driver.library_found or side.driver.module_loaded or side.devices or side.gpus
        for side in files
    )


def _loaded(files: Iterable[GpuSide]) -> bool:
    return any(side.driver.module_loaded for side in files)


def needs_smi(nvml: GpuSide, cuda: GpuSide, files: Sequence[GpuSide]) -> bool:
    """NVML has no answer, or sources differ about the driver or the number of GPUs."""
    if nvml.driver.nvml_code != 0:
        return True
    versions = {side.driver.version for side in (nvml, *files)} - {None}
    counted = nvml.gpus is not None and cuda.gpus is not None
    return len(versions) > 1 or (counted and len(cuda.gpus or ()) > len(nvml.gpus or ()))


def noticed(
    source: str, notify: Notify | None, ask: Callable[[], GpuSide]
) -> Callable[[], GpuSide]:
    """The same question, with a word to the user when the answer takes long."""
    if notify is None:
        return ask

    def asked() -> GpuSide:
        timer = threading.Timer(NOTICE_SECONDS, notify, (NOTICE.format(source=source),))
        timer.daemon = True
        timer.start()
        try:
            return ask()
        finally:
            timer.cancel()

    return asked


def together(*questions: Callable[[], GpuSide]) -> tuple[GpuSide, ...]:
    """Ask at the same time; the answers in the order of the questions."""
    answers: dict[int, GpuSide | BaseException] = {}

    def ask(place: int) -> None:
        try:
            answers[place] = questions[place]()
        except BaseException as problem:  # handed on to the caller's thread below
            answers[place] = problem

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(_answer(answers[place]) for place in range(len(questions)))


def _answer(answer: GpuSide | BaseException) -> GpuSide:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def assembled(system: System, asked: Sequence[GpuSide], files: Sequence[GpuSide]) -> GpuSide:
    """One `GpuSide` out of all sources; `asked` are those that the driver answered."""
    sides = (*asked, *files)
    gpus, why = members(asked, files, system.family)
    seen = with_visibility(gpus, asked, system.environ())
    return GpuSide(
        driver=merged_driver(asked, files),
        cuda_api=first_known((CudaApi(), *(side.cuda_api for side in sides))),
        gpus=seen,
        pci_devices=named(_first(side.pci_devices for side in sides), seen or ()),
        devices=_first(side.devices for side in sides),
        events=tuple(event for side in sides for event in side.events),
        readings=(*(reading for side in sides for reading in side.readings), *why),
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def merged_driver(asked: Sequence[GpuSide], files: Sequence[GpuSide]) -> Driver:
    """The kernel's files know its version best, a library that answered knows its own."""
    known = first_known(
        (Driver(), *(side.driver for side in files), *(side.driver for side in asked))
    )
    mapped = next((path for side in asked if (path := side.driver.libcuda_path)), None)
    library = _first(side.driver.library_version for side in asked)
    taken = [side.driver.seconds for side in asked if side.driver.seconds is not None]
    return replace(
        known,
        library_version=library or known.library_version,
        libcuda_path=mapped or known.libcuda_path,
        library_found=True if mapped else known.library_found,
        seconds=max(taken, default=None),
    )


Members = tuple[tuple[Gpu, ...] | None, tuple[Reading, ...]]


def members(asked: Sequence[GpuSide], files: Sequence[GpuSide], family: str) -> Members:
    """The GPUs: those of the first source that has some, with what the others add to each."""
    answers = [side.gpus for side in asked if side.gpus is not None]
    base = next((gpus for gpus in answers if gpus), () if answers else None)
    if base is None:
        base = next((side.gpus for side in files if side.gpus), None)
    if base is None:
        return none_at_all(files, family)
    others = [gpu for side in (*asked, *files) for gpu in side.gpus or ()]
    return tuple(enriched(gpu, others) for gpu in base), ()


def none_at_all(files: Sequence[GpuSide], family: str) -> Members:
    """No driver answered: () only where a list of the hardware was read and shows none."""
    listed = _first(side.pci_devices for side in files)
    if family == "macos":
        return (), (_said("macOS has no NVIDIA driver"),)
    if listed is None or any(side.devices for side in files):
        return None, (_said(None, "no driver answered and nothing lists the hardware"),)
    nvidia = [device for device in listed if device.vendor == "nvidia"]
    if nvidia:
        return None, (_said(None, f"{len(nvidia)} on the PCI bus, but no driver answered"),)
    return (), (_said("none: no NVIDIA device on the PCI bus"),)


def _said(value: str | None, problem: str | None = None) -> Reading:
    return Reading(subject="gpus", source="all sources", value=value, problem=problem)


def with_visibility(
    gpus: tuple[Gpu, ...] | None, asked: Sequence[GpuSide], environ: Mapping[str, str]
) -> tuple[Gpu, ...] | None:
    """`visible`, from CUDA's own list where it answered, else from CUDA_VISIBLE_DEVICES."""
    from gpusetup.probe.visible import visible_by_variable

    if gpus is None:
        return None
    listed = _first(side.gpus for side in asked if side.cuda_api.init_code == 0)
    if listed is not None:
        states: Sequence[bool | None] = [_is_listed(gpu, listed) for gpu in gpus]
    elif (variable := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        states = visible_by_variable(variable, gpus, pci_order=order)
    else:
        return gpus
    pairs = zip(gpus, states, strict=True)
    return tuple(replace(gpu, visible=state) for gpu, state in pairs)


def _is_listed(gpu: Gpu, listed: Sequence[Gpu]) -> bool | None:
    """None where the GPU has no name to be recognised by (a Jetson's, to NVML)."""
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return any(same_gpu(gpu, one) for one in listed)


def named(
    devices: tuple[PciDevice, ...] | None, gpus: Iterable[Gpu]
) -> tuple[PciDevice, ...] | None:
    """PCI devices with the names that the driver has for them."""
    if devices is None:
        return None
    names = {bus_key(gpu.pci_bus_id): gpu.name for gpu in gpus if gpu.pci_bus_id}
    return tuple(
        replace(device, name=device.name or names.get(bus_key(device.bus_id))) for device in devices
    )
