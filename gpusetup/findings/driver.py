"""The driver: loaded, of one version, new enough, able to start the GPU."""

from __future__ import annotations

from gpusetup.catalog.jetpack import board_of
from gpusetup.choose.host import driver_family, first_drivers, gpus_to_serve
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
    whole_number,
)
from gpusetup.evidence.facts import (
    complaints_of_the_driver,
    driver_asked_by,
    driver_serves,
    wanted_cuda,
)
from gpusetup.evidence.places import job_without_gpu
from gpusetup.findings.message_rules import finding, shown
from gpusetup.findings.presence import (
    NOT_LOADED,
    NVML_DRIVER_NOT_LOADED,
    absent_here,
    nvml_said,
    on_the_bus,
    said_on_the_host,
)
from gpusetup.fixes import drivers, gpu_naming, paste
from gpusetup.model.finding import Finding, Findings, Fix
from gpusetup.model.machine import Events, Torch
from gpusetup.model.versions import parsed


def driver_not_loaded(context: RuleContext) -> Findings:
    """The driver's packages are here, its kernel module does not answer."""
    driver = context.driver
    kinds = (*NOT_LOADED, "module-not-found")
    said = [e for e in events(context, *kinds) if "uvm" not in e.values.get("module", "")]
    installed = driver.library_found or driver.module_version or driver.library_version
    if said or installed or driver.version:
        said += events(context, "nouveau-in-use")
    if installed and driver.module_loaded is False and not kernel_driver_spoke(context):
        on_disk = f"module nvidia is not loaded; on disk: {driver.module_version or 'unknown'}"
        said.append(shown(context, "driver.module_loaded", on_disk))
    # No order: the driver version in a text may be of a package, and no proof that it runs.
    answers = listed_gpus(context) if is_report(context) else driver_answers(context)
    proven = said or driver.nvml_code == NVML_DRIVER_NOT_LOADED
    here = absent_here(context) or said_on_the_host(said)
    if proven and here and not answers and has_nvidia(context) is not False:
        evidence = (*said, *nvml_said(context), *on_the_bus(context))
        yield finding(context, "driver-not-loaded", evidence)


def driver_too_old(context: RuleContext) -> Findings:
    """The driver serves less CUDA than the installed torch, or any torch, needs."""
    driver, torch = context.driver, context.torch
    said = complaints_of_the_driver(context)
    if context.catalog.never_serves(gpus(context)):
        return
    asked = [(event, driver_asked_by(context, event)) for event in said]
    unmet = [one for one in asked if not one[1] or _is_older(driver.version or "0", one[1])]
    if said and not unmet:
        # What was read refutes it (`refuted_by`): the message is about another library.
        yield _too_old(context, "torch or the program", asked[0][1], said)
    told = next((floor for _, floor in unmet if floor), None)
    cuda = cuda_needed(torch) or _above(said)
    floor = told or (
        context.catalog.driver_floor(cuda, driver_family(context.snapshot)) if cuda else None
    )
    # A Jetson's driver is numbered apart: its JetPack decides; in WSL and with cuda-compat the
    # driver says itself that it serves this CUDA.
    says_so = not told and cuda and driver.cuda and not _is_older(driver.cuda, cuda)
    serves = torch.cuda_available or board_of(context.snapshot) or says_so
    short = not serves and _is_older(driver.version, floor)
    # Of the GPUs that no driver listed the one that needs the newest.
    firsts = first_drivers(context.snapshot, context.catalog)
    gpu, first = max(firsts, key=lambda row: parsed(row[1]), default=("", "0"))
    if _is_older(driver.version, first):
        floor = max(first, floor if short and floor else first, key=parsed)
        yield _too_old(context, gpu, floor, ())
    elif unmet or short:
        # They may ask for more than torch does, and not for what.
        least = floor if short or not driver.version else None
        yield _too_old(context, "torch or the program", least, tuple(event for event, _ in unmet))


def _above(said: Events) -> str | None:
    """The CUDA after the one that a driver says it serves: `12090` is all of 12."""
    found = (whole_number(event.values.get("found")) or 0 for event in said)
    major = max(found, default=0) // 1000
    return f"{major + 1}.0" if major > 10 else None


def driver_for_what_is_wanted(context: RuleContext) -> Findings:
    """A plain question whether a driver serves a CUDA, where it does not."""
    wanted = wanted_cuda(context)
    if wanted and driver_serves(context, wanted) is False:
        floor = context.catalog.driver_floor(wanted, driver_family(context.snapshot))
        yield _too_old(
            context, f"A build for CUDA {wanted}", floor, events(context, "question-asked")
        )


def _is_older(version: str | None, floor: str | None) -> bool:
    return bool(version and floor and parsed(version) < parsed(floor))


def _too_old(context: RuleContext, who: str, floor: str | None, said: Events) -> Finding:
    has = context.driver.version
    read = (shown(context, "driver.version", f"driver {has}"),) if has else ()
    fix = _newer_or_another(context, said, floor)
    needs = f"driver {floor}" if floor else "a newer driver"
    evidence = (*said, *read)
    return finding(context, "driver-too-old", evidence, fix=fix, who=who, needs=needs)


def _newer_or_another(context: RuleContext, said: Events, floor: str | None) -> Fix:
    """A newer driver, or a torch that this one serves."""
    wanted = f"{floor} or newer" if floor else "the newest that supports your GPU"
    newer = drivers.driver_fix(context, f"Update the driver to {wanted}", floor)
    build, driver = context.choice.build, context.driver
    stays = context.choice.action == "kept"
    if build is None or build.backend == "cpu" or stays or not (driver.version or driver.cuda):
        return newer
    torch = f"torch {build.torch} from {build.backend}"
    # Where torch has no kernel for the GPU, a newer driver is not enough.
    kernels = context.torch.kernels
    serves = kernels is None or all(serving(context, gpu) for gpu in gpus(context))
    or_newer = newer.text[:1].lower() + newer.text[1:]
    update = paste.other(or_newer, *newer.commands) if serves else ()
    torchs = any("found" in event.values for event in said)
    if context.torch == Torch() and is_report(context) and not torchs:
        text = f"Use the program's build for an older CUDA. Or: {newer.text}"
        return Fix(text=text, alternatives=update, min_driver=newer.min_driver)
    return Fix(
        text=f"Install {torch}: it works with your driver, so you need no driver update",
        commands=paste.install_commands(context),
        alternatives=(*paste.by_hand(context), *update),
        min_driver=floor,
    )


NVML_LIBRARY_MISMATCH = 18


def nvml_mismatch(context: RuleContext) -> Findings:
    """The kernel module in memory and the driver's libraries on disk are of two versions."""
    machine, driver = context.snapshot, context.driver
    kernel, library = driver.version or driver.module_version, driver.library_version
    said = events(context, "nvml-mismatch")
    works = driver.nvml_code == 0
    if kernel and library and parsed(kernel) != parsed(library):
        # No order: the versions in a text may be of different days.
        elsewhere = is_report(context) or context.other_host or machine.os.jetson
        # NVML that answers proves that its library fits, though of another release.
        if not works or (on(context, "linux") and not elsewhere):
            said += (shown(context, "driver.library_version", f"library {library}"),)
    if driver.nvml_code == NVML_LIBRARY_MISMATCH:
        said += nvml_said(context)
    if said and kernel:
        said += (shown(context, "driver.version", f"kernel module {kernel}"),)
    if said and not machine.os.wsl:
        # CUDA's own code says which library it is.
        works = works and not events(context, "nvml-mismatch")
        # On a host NVML's word decides and CUDA's error follows; an image may bring old libraries.
        is_of_an_image = in_container(context) and cuda_errors(context, 803, 804)
        yield finding(context, "nvml-mismatch", said, weak=works or is_of_an_image)


def gpu_init_failed(context: RuleContext) -> Findings:
    """The module runs, the GPU is bound to it, and yet the driver lists no device, or not it."""
    machine = context.snapshot
    left_out = events(context, "gpu-not-listed")
    said = events(context, "gpu-init-failed", "no-devices-found")
    bound = any(d.driver == "nvidia" for d in nvidia_on_pci(context)) and absent_here(context)
    empty = machine.gpus == () and machine.driver.module_loaded and not machine.driver.nvml_code
    if job_without_gpu(context) or listed_gpus(context):
        said, empty = (), False
    if (said or left_out or (bound and empty)) and not context.other_host:
        places = [f"GPU {e.values.get('place')} ({e.values.get('bus')})" for e in left_out]
        who = ", ".join(places) or gpu_naming.gpu_names(context)
        yield finding(context, "gpu-init-failed", (*said, *left_out, *on_the_bus(context)), who=who)


def gpu_not_supported_by_driver(context: RuleContext) -> Findings:
    """The loaded driver does not support the GPU: legacy, too new, or of the wrong flavour."""
    said, driver = events(context, "gpu-not-supported-by-driver"), context.driver
    catalog = context.catalog
    ends = catalog.too_new(driver.version, gpus_to_serve(context.snapshot, catalog))
    opened, want = driver.open_module, drivers.driver_request(context)
    wrong = (want.needs_open and opened is False) or (opened and not want.takes_open)
    # No order: that no GPU is listed is proven live only; a text may leave the list out.
    live = driver.module_loaded and absent_here(context) and not is_report(context)
    if not said and wrong and live:
        loaded = "open" if opened else "closed"
        said = (shown(context, "driver.open_module", f"{loaded} kernel modules", driver=loaded),)
    if (ends and not context.torch.cuda_available) or (said and not listed_gpus(context)):
        said += tuple(shown(context, "driver.version", text) for text in ends)
        yield finding(
            context, "gpu-not-supported-by-driver", said, gpus=gpu_naming.gpu_names(context)
        )


RULES = (
    driver_not_loaded,
    driver_too_old,
    driver_for_what_is_wanted,
    nvml_mismatch,
    gpu_init_failed,
    gpu_not_supported_by_driver,
)
