"""The driver: whether it is there, loaded, of one version and new enough, and starts the GPU."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.catalog.jetpack import board_of
from gpusetup.causes.driver import NOT_SUPPORTED
from gpusetup.choose.host import driver_family, gpus_to_serve
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    driver_answers,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_report,
    kernel_driver_spoke,
    listed_gpus,
    nvidia_on_pci,
    on,
    serving,
    shows_no_other_failure,
    whole_number,
)
from gpusetup.evidence.facts import (
    driver_required_by,
    driver_serves,
    old_driver_messages,
)
from gpusetup.evidence.places import in_an_image_build, job_without_gpu
from gpusetup.findings.cuda import NVML_LIBRARY_MISMATCH, named_gpu
from gpusetup.findings.message_rules import finding, shown
from gpusetup.fixes import drivers, gpu_naming, paste
from gpusetup.fixes.owners import has_a_scheduler
from gpusetup.model.finding import Finding, Findings, Fix
from gpusetup.model.machine import Event, Events, Torch
from gpusetup.model.versions import cuda_of, parsed

NVML_DRIVER_NOT_LOADED = 9
"""NVML_ERROR_DRIVER_NOT_LOADED."""


def driver_belongs_here(context: RuleContext) -> bool:
    """Whether the machine itself must have the NVIDIA driver, so that its absence is a fault.

    False if the driver belongs to another machine, or on macOS, which has none.
    """
    if context.other_host or on(context, "macos"):
        return False
    # Containers, image builds and WSL use the driver of their host.
    return not (in_container(context) or in_an_image_build(context) or context.os.wsl)


PACKAGES_ARE_THERE = ("driver-not-loaded", "secure-boot-rejected", "nouveau-in-the-way")
"""Events that show an installed driver: torch's "no NVIDIA driver" then means "not loaded"."""


def driver_missing(context: RuleContext) -> Findings:
    """There is an NVIDIA GPU, or a program that needs one, but no NVIDIA driver at all."""
    driver, has_gpu = context.driver, has_nvidia(context)
    # nouveau drives every GPU for which NVIDIA's driver was never installed.
    messages = events(context, "no-nvidia-driver", "nouveau-in-use", "smi-not-found")
    # A program that needed CUDA did not find the driver's library.
    messages += tuple(
        event
        for event in events(context, "library-missing", "cuda-lib-missing")
        if event.values.get("library", "").startswith(DRIVER_LIBRARIES)
    )
    driver_runs = driver_answers(context) or kernel_driver_spoke(context) or driver.module_loaded
    belongs_here = driver_belongs_here(context) or are_from_the_host(messages)
    if driver_runs or has_gpu is False or not belongs_here:
        return
    lacks_library = driver.library_found is False
    # For a known GPU, a kernel module on the disk means an installed driver. Without one, torch's
    # build must need CUDA.
    needs_driver = not driver.module_version if has_gpu else bool(cuda_needed(context.torch))
    is_reported = messages and not events(context, *PACKAGES_ARE_THERE)
    if not is_reported and not (lacks_library and needs_driver):
        return
    evidence = [*messages, *devices_on_bus(context)]
    if lacks_library:
        evidence.append(shown(context, "driver.library_found", "no driver library was found"))
    fix = drivers.driver_fix(context, "Install the NVIDIA driver")
    # A cluster job may run on a node with a different GPU from the one in the text.
    names_gpu = has_gpu and not has_a_scheduler(context)
    subject = gpu_naming.gpu_names(context) if names_gpu else ""
    yield finding(context, "driver-missing", evidence, fix=fix, who=subject)


def are_from_the_host(messages: Iterable[Event]) -> bool:
    """Whether one of the messages comes from a container toolkit, which uses the host's driver."""
    return any(event.values.get("place") == "host" for event in messages)


DRIVER_LIBRARIES = ("libcuda.so", "nvcuda.dll", "libnvidia-ml.so", "nvml.dll")
"""The beginnings of the names of the driver's libraries for CUDA and for NVML."""


DEVICES_QUOTED = 2
"""How many devices the evidence quotes: the others of a machine mostly have the same driver."""


def devices_on_bus(context: RuleContext) -> Events:
    """Evidence from the PCI bus: the first NVIDIA devices with their drivers."""
    texts = [
        f"{device.name or 'NVIDIA device'}, driver: {device.driver or 'none'}"
        for device in nvidia_on_pci(context)
    ]
    return tuple(shown(context, "pci_devices", text) for text in texts[:DEVICES_QUOTED])


def nvml_error(context: RuleContext) -> Events:
    """NVML's error as evidence; empty if it reported none."""
    driver = context.driver
    if not driver.nvml_code:
        return ()
    return (shown(context, "driver.nvml_code", driver.nvml_message or f"error {driver.nvml_code}"),)


def driver_not_loaded(context: RuleContext) -> Findings:
    """The driver's packages are installed, but its kernel module does not respond."""
    driver = context.driver
    # The unified memory module has its own finding.
    messages = [
        event
        for event in events(context, "driver-not-loaded", "nouveau-in-the-way", "module-not-found")
        if "uvm" not in event.values.get("module", "")
    ]
    is_installed = driver.library_found or driver.module_version or driver.library_version
    # If NVIDIA's driver was never installed, nouveau belongs to the finding `driver-missing`.
    if messages or is_installed or driver.version:
        messages += events(context, "nouveau-in-use")
    if is_installed and driver.module_loaded is False and not kernel_driver_spoke(context):
        on_disk = f"module nvidia is not loaded; on disk: {driver.module_version or 'unknown'}"
        messages.append(shown(context, "driver.module_loaded", on_disk))
    if not messages and driver.nvml_code != NVML_DRIVER_NOT_LOADED:
        return
    # The driver version in a text may be that of a package, so it does not prove that the driver
    # runs.
    answers = listed_gpus(context) if is_report(context) else driver_answers(context)
    belongs_here = driver_belongs_here(context) or are_from_the_host(messages)
    if belongs_here and not answers and has_nvidia(context) is not False:
        evidence = (*messages, *nvml_error(context), *devices_on_bus(context))
        yield finding(context, "driver-not-loaded", evidence)


def driver_too_old(context: RuleContext) -> Findings:
    """The driver is older than a program's message requires, or than torch's build needs."""
    catalog, version = context.catalog, context.driver.version
    # No driver helps if no current build of torch supports the GPU.
    if catalog.never_serves(gpus(context)):
        return
    complaints = old_driver_messages(context)
    unmet, floors = [], []
    for complaint in complaints:
        required = driver_required_by(context, complaint)
        # If a new driver is called old with a version ("found"), another libcuda is loaded.
        is_met = version and required and not _is_older(version, required)
        if is_met and "found" not in complaint.values:
            continue
        unmet.append(complaint)
        if required:
            floors.append(required)
    # The finding names one version, that of the first message.
    floor = floors[0] if floors else _floor_of_torch(context, complaints)
    # Where torch computes, and on a Jetson, whose JetPack decides, the version proves nothing.
    may_compare = not context.torch.cuda_available and board_of(context.snapshot) is None
    is_too_old = may_compare and _is_older(version, floor)
    if unmet or is_too_old:
        # If a program refuses a driver that is as new as `floor`, it needs a newer one than that,
        # and no source says which.
        known_floor = floor if is_too_old or not version else None
        yield _too_old(context, TORCH_OR_PROGRAM, known_floor, tuple(unmet))


OLDEST_CUDA_MAJOR = 11
"""CUDA 11: the oldest of the catalog's builds."""


def _floor_of_torch(context: RuleContext, complaints: Events) -> str | None:
    """The driver version that torch's CUDA needs; None if that CUDA is unknown, or if the driver
    itself reports that it runs it, as in WSL and with cuda-compat."""
    cuda = cuda_needed(context.torch)
    if cuda is None:
        # torch's message names the CUDA that the driver supports, as 1000 * major + 10 * minor
        # (`12090`). So torch needs at least the next major version.
        supported = [whole_number(event.values.get("found")) or 0 for event in complaints]
        major = max(supported, default=0) // 1000
        cuda = f"{major + 1}.0" if major >= OLDEST_CUDA_MAJOR else None
    driver_cuda = context.driver.cuda
    if cuda is None or (driver_cuda and parsed(driver_cuda) >= parsed(cuda)):
        return None
    return context.catalog.driver_floor(cuda, driver_family(context.snapshot))


TORCH_OR_PROGRAM = "torch or the program"
"""What needs the newer driver, for the title: a message rarely says which of the two it is."""


def driver_for_what_is_wanted(context: RuleContext) -> Findings:
    """The driver is too old for the build that is to be installed."""
    # A text with an installed torch, or about a failure, does not ask what to install.
    if context.torch.version or not shows_no_other_failure(context):
        return
    wanted = context.snapshot.wanted
    cuda = wanted.cuda or cuda_of(wanted.backend or "")
    if cuda and driver_serves(context, cuda) is False:
        floor = context.catalog.driver_floor(cuda, driver_family(context.snapshot))
        yield _too_old(context, f"A build for CUDA {cuda}", floor, ())


def _is_older(version: str | None, floor: str | None) -> bool:
    """Whether both versions are known and the first is older."""
    return version is not None and floor is not None and parsed(version) < parsed(floor)


def _too_old(context: RuleContext, who: str, floor: str | None, complaints: Events) -> Finding:
    """The finding that `who` needs a newer driver, from version `floor` on if that is known."""
    messages = list(complaints)
    if version := context.driver.version:
        messages.append(shown(context, "driver.version", f"driver {version}"))
    fix = _newer_or_another(context, complaints, floor)
    needs = f"driver {floor}" if floor else "a newer driver"
    return finding(context, "driver-too-old", messages, fix=fix, who=who, needs=needs)


def _newer_or_another(context: RuleContext, complaints: Events, floor: str | None) -> Fix:
    """Update the driver, or install a torch that works with the present one."""
    which_driver = f"{floor} or newer" if floor else "the newest version that supports your GPU"
    newer = drivers.driver_fix(context, f"Update the driver to {which_driver}", floor)
    build, driver = context.choice.build, context.driver
    torch_stays = context.choice.action == "kept"
    driver_is_known = driver.version or driver.cuda
    # Without another build that is known to work with this driver, only a newer driver is left.
    if build is None or build.backend == "cpu" or torch_stays or not driver_is_known:
        return newer
    # If torch has no kernel for the GPU, a newer driver is not enough.
    lacks_kernels = context.torch.kernels is not None and not all(
        serving(context, gpu) for gpu in gpus(context)
    )
    or_newer = newer.text[:1].lower() + newer.text[1:]
    update = () if lacks_kernels else paste.titled(or_newer, *newer.commands)
    # torch's own message contains the CUDA version that torch found.
    is_from_torch = any("found" in event.values for event in complaints)
    # A text without any sign of torch: the message is from another program.
    if context.torch == Torch() and is_report(context) and not is_from_torch:
        text = f"Use the program's build for an older CUDA. Or: {newer.text}"
        return Fix(text=text, alternatives=update, min_driver=newer.min_driver)
    text = (
        f"Install torch {build.torch} from {build.backend}: it works with your driver, so you need "
        "no driver update"
    )
    return Fix(
        text=". ".join((text, *paste.needs_of_build(context, build))),
        commands=paste.install_commands(context),
        alternatives=(*paste.by_hand(context), *update),
        min_driver=floor,
    )


def nvml_mismatch(context: RuleContext) -> Findings:
    """The loaded kernel module and the driver's libraries on disk have different versions."""
    machine, driver = context.snapshot, context.driver
    # In WSL, the libraries come from the Windows driver, and there is no kernel module to match.
    if machine.os.wsl:
        return
    kernel, library = driver.version or driver.module_version, driver.library_version
    messages = events(context, "nvml-mismatch")
    is_reported = bool(messages)
    nvml_works = driver.nvml_code == 0
    if kernel and library and parsed(kernel) != parsed(library):
        # The versions in a text may have been read on different days.
        is_read_here = not (is_report(context) or context.other_host)
        # NVML responds only if the library that it loaded matches the module. Another version on
        # the disk is then a warning, and only if both were read on this Linux machine.
        if not nvml_works or (on(context, "linux") and is_read_here):
            messages += (shown(context, "driver.library_version", f"library {library}"),)
    if driver.nvml_code == NVML_LIBRARY_MISMATCH:
        messages += nvml_error(context)
    if not messages:
        return
    if kernel:
        messages += (shown(context, "driver.version", f"kernel module {kernel}"),)
    # On a host, NVML's result decides and CUDA's error is a consequence. An image may contain old
    # libraries, and then CUDA's own code shows which library it is.
    is_of_an_image = in_container(context) and cuda_errors(context, *WRONG_LIBCUDA)
    # A driver that NVML still reaches works until the next reboot, so that nothing has failed yet.
    is_weak = is_of_an_image or (nvml_works and not is_reported)
    yield finding(context, "nvml-mismatch", messages, weak=is_weak)


WRONG_LIBCUDA = (803, 804)
"""cudaErrorSystemDriverMismatch and cudaErrorCompatNotSupportedOnDevice."""


def gpu_init_failed(context: RuleContext) -> Findings:
    """The kernel module is loaded and bound to the GPU, but the driver does not list this GPU."""
    machine = context.snapshot
    # Options that describe another host do not show whether its GPUs start.
    if context.other_host:
        return
    left_out = events(context, "gpu-not-listed")
    messages: Events = ()
    lists_nothing = False
    # A job without a GPU has no GPU to start, and a list of GPUs shows that they have started.
    if not job_without_gpu(context) and not listed_gpus(context):
        messages = events(context, "gpu-init-failed", "no-devices-found")
        is_bound = "nvidia" in [device.driver for device in nvidia_on_pci(context)]
        nvml_answers = machine.driver.module_loaded and not machine.driver.nvml_code
        # An empty tuple is an empty list; None would mean that nobody listed the GPUs.
        lists_nothing = is_bound and bool(nvml_answers) and machine.gpus == ()
    if messages or left_out or (lists_nothing and driver_belongs_here(context)):
        evidence = (*messages, *left_out, *devices_on_bus(context))
        who = ", ".join(map(named_gpu, left_out)) or gpu_naming.gpu_names(context)
        yield finding(context, "gpu-init-failed", evidence, who=who)


def gpu_not_supported_by_driver(context: RuleContext) -> Findings:
    """The loaded driver does not support the GPU, as its own message says or as its version shows:
    newer drivers have dropped the GPU."""
    catalog = context.catalog
    messages = events(context, "gpu-not-supported-by-driver")
    # A sentence for each GPU that this driver has dropped.
    drops = catalog.too_new(context.driver.version, gpus_to_serve(context.snapshot, catalog))
    # If torch computes, the driver supports the GPU, whatever its version.
    is_dropped = drops and not context.torch.cuda_available
    # The driver lists only GPUs that it has started.
    if is_dropped or (messages and not listed_gpus(context)):
        messages += tuple(shown(context, "driver.version", sentence) for sentence in drops)
        names = gpu_naming.gpu_names(context)
        yield finding(context, "gpu-init-failed", messages, message=NOT_SUPPORTED, gpus=names)


RULES = (
    driver_missing,
    driver_not_loaded,
    driver_too_old,
    driver_for_what_is_wanted,
    nvml_mismatch,
    gpu_not_supported_by_driver,
    gpu_init_failed,
)
