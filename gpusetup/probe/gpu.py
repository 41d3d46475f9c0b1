"""The GPU side of a machine, from every source at once.

The cheap sources (files) come first; they tell whether there is anything to ask. Then NVML and
libcuda are asked in two children at the same time, and `nvidia-smi` where NVML is missing, where
sources disagree, or under `deep`. All of them share one deadline. CUDA is started only where a GPU
or a device node is there: it would load modules and make nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TypeVar

from gpusetup.accelerators import nvidia
from gpusetup.accelerators.makers import MAKERS, identified, judged_on, of_maker
from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, Driver, Gpu, PciDevice, Reading
from gpusetup.probe.driver_files import read_libraries
from gpusetup.probe.nodes import read_nodes
from gpusetup.probe.nvidia_proc import (
    read_modinfo,
    read_module_version,
    read_modules,
    read_proc_gpus,
    read_proc_version,
)
from gpusetup.probe.patience import LIMIT_SECONDS, Notify, Patience
from gpusetup.probe.pci import read_pci, read_wmi
from gpusetup.probe.unlisted import is_listed, missed_by_cuda, unlisted
from gpusetup.readings.side import (
    GpuSide,
    bus_key,
    enriched,
    first_known,
    missing,
)
from gpusetup.system.system import System, exists

T = TypeVar("T")
Ask = Callable[[System, float], GpuSide]

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
    questions = Questions(system, Patience(limit, notify))
    if not worth_asking(files):
        silent = missing("gpus", "nvml, libcuda", "not asked: no driver library, node or module")
        asked = questions.ask("nvidia-smi") if deep and system.family != "macos" else ()
        asked = (*asked, *_of_others(questions, files))
        return assembled(system, asked, (*files, *_after_nothing(system, deep), silent))
    asked = (*_asked(questions, files, deep), *_of_others(questions, files))
    more = (read_modinfo(system),) if not _loaded(files) and system.family == "linux" else ()
    return assembled(system, asked, (*files, *more, *_log(system, deep)))


def _asked(questions: Questions, files: Sequence[GpuSide], deep: bool) -> tuple[GpuSide, ...]:
    """NVML, libcuda and at times nvidia-smi, as far as they may be asked and there is time."""
    cuda_too = may_start_cuda(files, questions.system)
    cuda: Sequence[Callable[[], GpuSide]] = (questions.asking("libcuda"),)
    nvml_call = questions.asking("NVML")
    if not cuda_too:
        nvml_call, *cuda = questions.first_alone(nvml_call, cuda[0])
    smi = (questions.asking("nvidia-smi"),) if deep else ()
    nvml, *others = together(nvml_call, *cuda, *smi)
    if not deep and needs_smi(nvml, others[0], files):
        others += questions.ask("nvidia-smi")
    return (nvml, *others)


def _of_others(questions: Questions, files: Sequence[GpuSide]) -> tuple[GpuSide, ...]:
    """What the readers of the other makers say whose GPUs the bus shows."""
    there = {device.vendor for side in files for device in side.pci_devices or ()}
    others = (maker for maker in MAKERS if maker.id in there and maker is not nvidia.MAKER)
    names = [name for maker in others for name in maker.readers]
    return questions.ask(*names) if names else ()


NO_CUDA_WITHOUT_GPU = (
    "not asked: no GPU and no device node is there, and starting CUDA could load modules and "
    "make nodes"
)
NO_SECONDS_LEFT = 0.2
HEAD_START_SECONDS, HEAD_START = 3.0, 0.25
"""How long NVML is asked alone: some seconds, and no more than a part of the limit."""


class Questions:
    """The driver's libraries and programs, asked of one machine under one deadline."""

    def __init__(self, system: System, patience: Patience) -> None:
        self.system = system
        self._patience = patience

    def ask(self, *sources: str) -> tuple[GpuSide, ...]:
        """Ask at the same time; the answers in the order of the questions."""
        return together(*map(self.asking, sources))

    def asking(self, source: str) -> Callable[[], GpuSide]:
        return partial(self._one, source)

    def first_alone(
        self, nvml: Callable[[], GpuSide], cuda: Callable[[], GpuSide]
    ) -> tuple[Callable[[], GpuSide], Callable[[], GpuSide]]:
        """The same questions where no GPU is seen: CUDA is asked where NVML lists one, or takes
        its time. Without a driver NVML answers at once; then there is no driver to start.
        """
        answered = threading.Event()
        known: list[GpuSide] = []

        def ask_nvml() -> GpuSide:
            try:
                known.append(nvml())
            finally:
                answered.set()
            return known[0]

        def ask_cuda() -> GpuSide:
            answered.wait(min(HEAD_START_SECONDS, self._patience.limit * HEAD_START))
            if known and not known[0].gpus:
                return missing("cuda_api", "libcuda", NO_CUDA_WITHOUT_GPU)
            return cuda()

        return ask_nvml, ask_cuda

    def _one(self, source: str) -> GpuSide:
        left = self._patience.left()
        if left < NO_SECONDS_LEFT:
            spent = f"not asked: the {self._patience.limit:g} s were over"
            return missing("driver", source.lower(), spent)
        with self._patience.waiting_for(source):
            return ASK[source](self.system, left)


def _reader(place: str, system: System, limit: float) -> GpuSide:
    """A maker's reader, loaded when it is asked."""
    module, _, name = place.partition(":")
    side: GpuSide = getattr(import_module(module), name)(system, limit)
    return side


ASK: dict[str, Ask] = {
    name: partial(_reader, place) for maker in MAKERS for name, place in maker.readers.items()
}


TEGRA_NODES = ("/dev/nvhost-ctrl", "/dev/nvmap", "/dev/nvgpu")


def may_start_cuda(files: Iterable[GpuSide], system: System) -> bool:
    """Whether a GPU or a node is there, so that cuInit has nothing to load and to make.

    Windows' CUDA makes nothing; WSL has /dev/dxg, a Jetson nodes of its own.
    """
    if system.family == "windows":
        return True
    there = any(side.devices or side.gpus or judged_on(side.pci_devices) for side in files)
    return there or any(exists(system, path) for path in TEGRA_NODES)


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
        side.libraries or side.driver.module_loaded or side.devices or side.gpus for side in files
    )


def _loaded(files: Iterable[GpuSide]) -> bool:
    return any(side.driver.module_loaded for side in files)


def needs_smi(nvml: GpuSide, cuda: GpuSide, files: Sequence[GpuSide]) -> bool:
    """NVML has no answer, or sources differ about the driver or the number of GPUs.

    Where NVML hangs, nvidia-smi, which asks the same library, would hang with it.
    """
    if hung(nvml):
        return False
    if nvml.driver.nvml_code != 0 or nvml.gpus is None:
        return True
    versions = {side.driver.version for side in (nvml, *files)} - {None}
    counted = nvml.gpus is not None and cuda.gpus is not None
    return len(versions) > 1 or (counted and len(cuda.gpus or ()) > len(nvml.gpus or ()))


def hung(side: GpuSide) -> bool:
    return any(e.kind == "child-failed" and e.values.get("how") == "hung" for e in side.events)


def together(*questions: Callable[[], GpuSide]) -> tuple[GpuSide, ...]:
    """Ask at the same time; the answers in the order of the questions."""
    if len(questions) == 1:
        return (questions[0](),)
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
    asked = located(asked, files)
    gpus, why = members(asked, files, system.family)
    seen = with_visibility(gpus, asked, system.environ())
    return GpuSide(
        driver=merged_driver(asked, files),
        cuda_api=first_known((CudaApi(), *(side.cuda_api for side in sides))),
        gpus=None if seen is None else tuple(map(identified, seen)),
        pci_devices=named(_first(side.pci_devices for side in sides), seen or ()),
        devices=_first(side.devices for side in sides),
        events=(
            *(event for side in sides for event in side.events),
            *missed_by_cuda(gpus or (), asked, system.environ()),
            *unlisted(asked, files, system.environ()),
        ),
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


def located(asked: Sequence[GpuSide], files: Sequence[GpuSide]) -> tuple[GpuSide, ...]:
    """The same answers; a GPU that could not say where it is gets the address that is left over."""
    if all(gpu.pci_bus_id for side in asked for gpu in side.gpus or ()):
        return tuple(asked)
    from gpusetup.readings.located import with_addresses

    known = [d.bus_id for side in files for d in judged_on(side.pci_devices)]
    return with_addresses(asked, known)


Members = tuple[tuple[Gpu, ...] | None, tuple[Reading, ...]]


def members(asked: Sequence[GpuSide], files: Sequence[GpuSide], family: str) -> Members:
    """The GPUs: of each maker those of the first source that lists some, with what the others add
    to each."""
    answers = [side.gpus for side in asked if side.gpus is not None]
    base: tuple[Gpu, ...] | None = () if answers else None
    for maker in MAKERS if any(answers) else ():
        mine = (of_maker(maker.id, gpus) for gpus in answers)
        base = (*(base or ()), *next(filter(None, mine), ()))
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
    nvidia = judged_on(listed)
    if nvidia:
        return None, (_said(None, f"{len(nvidia)} on the PCI bus, but no driver answered"),)
    return (), (_said("none: no NVIDIA device on the PCI bus"),)


def _said(value: str | None, problem: str | None = None) -> Reading:
    return Reading(subject="gpus", source="all sources", value=value, problem=problem)


def with_visibility(
    gpus: tuple[Gpu, ...] | None, asked: Sequence[GpuSide], environ: Mapping[str, str]
) -> tuple[Gpu, ...] | None:
    """`visible`, from CUDA's own list where it answered, else from CUDA_VISIBLE_DEVICES."""
    from gpusetup.readings.visible import visible_by_variable

    if gpus is None:
        return None
    listed = _first(side.gpus for side in asked if side.cuda_api.init_code == 0)
    if listed is not None:
        states: Sequence[bool | None] = [is_listed(gpu, listed) for gpu in gpus]
    elif (variable := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        states = visible_by_variable(variable, gpus, pci_order=order)
    else:
        return gpus
    pairs = zip(gpus, states, strict=True)
    return tuple(replace(gpu, visible=state) for gpu, state in pairs)


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
