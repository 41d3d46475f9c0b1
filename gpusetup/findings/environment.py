"""torch in its environment: whether it is complete, installed once, and built for this machine;
also its companions, its libraries, its Python and the host."""

from __future__ import annotations

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.catalog.builds import Name
from gpusetup.catalog.companion_table import companion_table
from gpusetup.causes.host import short_disks
from gpusetup.causes.record import RECORDS
from gpusetup.causes.torch import conda_and_pip
from gpusetup.choose.compatibility import why_release_differs, works_with_numpy
from gpusetup.choose.host import python_tag
from gpusetup.evidence.context import (
    RuleContext,
    cuda_was_refused,
    events,
    gib,
    gpus,
    has_nvidia,
    in_container,
    is_report,
    package,
    packages,
    shows_no_other_failure,
    source_of,
)
from gpusetup.evidence.facts import companion_fits
from gpusetup.evidence.places import uses_no_torch
from gpusetup.findings.message_rules import finding, seen, shown
from gpusetup.fixes import gpu_naming, needs, paste
from gpusetup.fixes.owners import lender_of
from gpusetup.model.finding import Evidence, Findings, Fix, Severity
from gpusetup.model.units import GIB
from gpusetup.model.versions import parsed
from gpusetup.readings.packages import normalised


def torch_missing(context: RuleContext) -> Findings:
    """torch is not installed for the target interpreter."""
    python, torch = context.snapshot.python, context.torch
    messages = events(context, "torch-missing")
    # If torch is installed, the message came from pip's isolated build environment, which has no
    # torch, and not from the target.
    if torch.version and events(context, "build-isolation-no-torch"):
        messages = ()
    if torch.installed is False:
        folder = python.site_packages or paste.python(context)
        messages += (shown(context, "torch.installed", f"no torch in {folder}"),)
    if messages:
        name = python.executable or python.prefix or "this Python"
        yield finding(context, "torch-missing", messages, python=name)


def torch_itself(context: RuleContext) -> Findings:
    """The installed torch is incomplete, cannot be imported, does not fit the installed numpy, or
    would load the toolkit's stub of libcuda instead of the driver's: a finding for each."""
    torch, numpy = context.torch, package(context, "numpy")
    if any(copy.intact is False for copy in packages(context, "torch")):
        yield seen(context, "torch-half-installed", "torch.version", "files of torch are missing")
    if torch.import_error:
        yield seen(context, "torch-import-failed", "torch.import_error", torch.import_error)
    if torch.version and numpy and not works_with_numpy(torch.version, numpy.version):
        versions = f"torch {torch.version}, numpy {numpy.version}"
        # Only a warning (`weak`) if torch sees the GPU: then it computes, and only conversions to
        # and from numpy fail.
        yield seen(context, "numpy-abi-mismatch", "packages", versions, weak=torch.cuda_available)
    # CUDA toolkits have an empty libcuda in a folder `stubs`, only for linking.
    libcuda = context.driver.libcuda_path or ""
    if "stub" in libcuda:
        yield seen(context, "libcuda-stub", "driver.libcuda_path", libcuda)


def mixed_torch_installs(context: RuleContext) -> Findings:
    """Two torch distributions are installed over each other, or one hides the other."""
    conda, pip = conda_and_pip(context)
    copies = packages(context, "torch")
    versions = tuple(dict.fromkeys(copy.version for copy in copies))
    if conda and pip:
        # The same release is one installation: conda's package has metadata for pip, too.
        if parsed(conda).release != parsed(pip).release:
            text = f"conda has torch {conda}, pip {pip}"
            yield seen(context, "mixed-conda-pip", "packages", text)
    elif len(versions) > 1:
        texts = [f"torch {copy.version} in {copy.location}" for copy in copies]
        evidence = [shown(context, "packages", text) for text in texts]
        # In one folder their files are mixed, which is an error. In two folders the first copy
        # hides the other, which is only worth a warning.
        is_weak = len({copy.location for copy in copies}) > 1
        yield finding(
            context,
            "mixed-conda-pip",
            evidence,
            weak=is_weak,
            times=str(len(versions)),
            versions=", ".join(versions),
        )


def torch_outside_target(context: RuleContext) -> Findings:
    """The torch that Python would import lies outside the environment (user site-packages,
    PYTHONPATH).

    It hides a torch that is installed in the environment. That matters if it has to be replaced.
    """
    python, location = context.snapshot.python, context.torch.location or ""
    if not location or not python.prefix:
        return
    folders_of_environment = tuple(filter(None, (python.prefix, python.site_packages)))
    if location.startswith(folders_of_environment):
        return
    # If nothing can be installed in the environment, somebody chose the torch outside on purpose.
    has_to_change = context.choice.action != "kept" and not paste.target_refuses(context)
    cause = "other-torch-imported"
    yield seen(context, cause, "torch.location", location, weak=not has_to_change, place=location)


def torch_cpu_build(context: RuleContext) -> Findings:
    """The machine has an NVIDIA GPU and the installed torch has no CUDA."""
    torch = context.torch
    messages = events(context, "torch-not-compiled-with-cuda")
    # torch's current builds support neither GPUs this old nor Jetsons, which have their own wheels.
    if context.os.jetson or context.catalog.never_serves(context.snapshot.gpus or ()):
        return
    has_gpu = has_nvidia(context)
    if has_gpu is None:
        # If no source shows whether there is a GPU, only a text makes one likely, if it is
        # about CUDA or about nothing else that failed.
        shows_cuda_failure = messages or cuda_was_refused(context)
        is_likely = shows_cuda_failure or shows_no_other_failure(context)
        has_gpu = is_report(context) and bool(is_likely)
    # A torch that sees a GPU is no CPU build, whatever its label says.
    is_cpu_build = torch.backend == "cpu" and not torch.cuda_available
    if not has_gpu or not (messages or is_cpu_build):
        return
    # If the listed build has CUDA, a different torch printed the message.
    name = torch_in_words(context) if torch.backend in (None, "cpu") else "The torch that the "
    "program runs"
    gpu, backend = gpu_naming.gpu_names(context), torch.backend or "cpu"
    evidence = [*messages, shown(context, "torch.version", f"{name}, backend {backend}")]
    if gpus(context):
        evidence.append(shown(context, "gpus", gpu))
    yield finding(context, "torch-cpu-build", evidence, who=name, gpu=gpu)


def torch_in_words(context: RuleContext) -> str:
    """torch with its version if that is known: `torch 2.5.1`, otherwise `torch`."""
    return f"torch {context.torch.version or ''}".strip()


def foreign_wheel(context: RuleContext) -> Findings:
    """The installed torch is a build for another maker's GPUs."""
    backend = context.torch.backend or ""
    maker = maker_of(backend)
    # If there is also a GPU of another maker, the build may be meant for that one.
    has_nvidias = bool(gpus(context) or context.driver.version)
    if maker in ("amd", "intel") and has_nvidias and not events(context, "foreign-gpu"):
        who, name = torch_in_words(context), BY_ID[maker].name
        text = f"backend {backend}"
        yield seen(context, "rocm-wheel-on-nvidia", "torch.version", text, who=who, maker=name)


def torch_sees_no_gpu(context: RuleContext) -> Findings:
    """torch, or a program that uses it, reports that CUDA is not available."""
    torch = context.torch
    messages = events(context, "cuda-unavailable")
    # The message of a program that is not built on torch is not about torch.
    if torch.cuda_available is None and not torch.version and uses_no_torch(context):
        return
    # A build for Intel's GPUs has no CUDA that could be available.
    if torch.cuda_available is False and torch.backend != "xpu" and not messages:
        messages = (shown(context, "torch.cuda_available", "torch.cuda.is_available(): False"),)
    if messages and has_nvidia(context) is not False:
        yield finding(context, "torch-sees-no-gpu", messages)


def python_32bit(context: RuleContext) -> Findings:
    """The Python is a 32-bit build, for which torch has no wheels."""
    if context.snapshot.python.bits != 32:
        return
    # A torch that ran, or that an installer lists, is 64-bit, and so is its Python.
    torch_is_there = context.torch.cuda_available is not None or package(context, "torch")
    if not is_report(context) or not torch_is_there:
        yield seen(context, "python-32bit", "python.bits", f"{paste.python(context)}: 32 bits")


def no_wheel_for_machine(context: RuleContext) -> Findings:
    """No torch can be installed for this Python, on this system, or with this libc."""
    os, python = context.os, context.snapshot.python
    # This has its own finding.
    if python.bits == 32:
        return
    musl = events(context, "musl-libc")
    # If torch is installed, or the text is about something else, an old Python is not the problem.
    is_about_more = context.torch.version or context.snapshot.events
    if is_report(context) and is_about_more and not musl:
        return
    here = (os.family, os.machine)
    builds = [build for build in context.catalog.builds if (build.os, build.machine) == here]
    libc, tag = os.libc or "", python_tag(context.snapshot)
    # torch's wheels are built against glibc.
    if musl or libc.startswith("musl"):
        evidence = musl or (shown(context, "os.libc", libc),)
        system = "this system: a musl libc"
        yield finding(context, "no-wheel-for-platform", evidence, what=system, asked="torch")
    elif os.family and os.machine and not builds:
        system = f"{os.family} on {os.machine}"
        yield seen(context, "no-wheel-for-platform", "os.libc", system, what=system, asked="torch")
    elif builds and tag and not any(tag in build.pythons for build in builds):
        yield seen(context, "python-no-wheel", "python.version", f"Python {tag}", asked="torch")
    # The builds for Windows and macOS have no glibc.
    oldest = min(filter(None, (build.glibc for build in builds)), key=parsed, default="0")
    if libc.startswith("glibc ") and parsed(libc.removeprefix("glibc ")) < parsed(oldest):
        yield seen(context, "glibc-too-old", "os.libc", libc, needed=oldest)


def environment(context: RuleContext) -> Findings:
    """Something keeps an installer from changing the target environment, or there is no target."""
    python = context.snapshot.python
    problems = [
        reading.problem
        for reading in context.snapshot.readings
        if reading.subject == "python" and reading.problem
    ]
    if python.version is None and python.executable is None and problems:
        yield seen(context, "no-target", "python", problems[0])
    # uv installs without pip.
    if python.has_pip is False:
        yield seen(context, "pip-missing", "python.has_pip", "no pip", severity=Severity.NOTE)
    # Only warnings, because what is installed there may work.
    if python.externally_managed:
        subject = "python.externally_managed"
        yield seen(context, "externally-managed", subject, "EXTERNALLY-MANAGED", weak=True)
    elif python.site_writable is False:
        subject = "python.site_writable"
        yield seen(context, "externally-managed", subject, "not writable", weak=True)


SMALL_SHM_BYTES = GIB
"""A /dev/shm of this size or less is worth a warning: docker's default is 64 MiB, and the workers
of a DataLoader often share more."""


def host(context: RuleContext) -> Findings:
    """The host lacks space for an install or for the workers of a DataLoader."""
    machine = context.snapshot
    messages = events(context, "pip-cache-disk-full")
    disks = [
        shown(context, "disks", f"{disk.path}: {gib(disk.free_bytes or 0)} free")
        for disk in short_disks(context)
    ]
    if messages or disks:
        # Without an error message, a nearly full disk is only a warning.
        yield finding(context, "pip-cache-disk-full", (*messages, *disks), weak=not messages)
    shm = machine.memory.shm_total_bytes
    # Outside of containers, the system gives /dev/shm half of its memory.
    if shm is not None and shm <= SMALL_SHM_BYTES and in_container(context):
        text = f"/dev/shm is {gib(shm)}"
        yield seen(context, "shm-too-small", "memory.shm_total_bytes", text, weak=True)


def settings(context: RuleContext) -> Findings:
    """A variable that lets every product of float32 numbers be computed in TF32."""
    if context.snapshot.environment.get("NVIDIA_TF32_OVERRIDE") == "1":
        yield seen(context, "tf32-precision", "environment", "NVIDIA_TF32_OVERRIDE=1")


IMAGE_WARNING = "torchvision-image-mismatch"
"""The event of a torchvision that only fails to read images: no cause if something else failed."""


def companions(context: RuleContext) -> Findings:
    """torchvision or torchaudio belongs to another torch, as a message or the versions show."""
    names: tuple[Name, ...] = ("torchvision", "torchaudio")
    for name in names:
        cause, torch, listed = f"{name}-mismatch", context.torch, package(context, name)
        failures = events(context, cause)
        warnings = events(context, IMAGE_WARNING) if name == "torchvision" else ()
        differs = companion_fits(context, name) is False
        if not (failures or warnings or differs):
            continue
        if failures:
            is_weak = False
        elif warnings:
            is_weak = not shows_no_other_failure(context, IMAGE_WARNING)
        else:
            # torch computes although versions differ: the companion fails when it is used.
            is_weak = bool(torch.cuda_available)
        pair = f"{name} does not match the installed torch"
        if differs and listed:
            pair = f"{name} {listed.version} does not match torch {torch.version or torch.backend}"
        fix = _companion_fix(context, name)
        evidence = (*(failures or warnings), shown(context, "packages", pair))
        yield finding(context, cause, evidence, fix=fix, weak=is_weak, pair=pair)


def _companion_fix(context: RuleContext, name: Name) -> Fix:
    """Install torch and its companion together, or only the companion of a vendor's torch."""
    torch = context.torch
    # A torch below /usr whose version is unknown came with the image of a board or a container. A
    # notebook service also keeps it there, but its users may replace it.
    lies_in_system = "/usr/" in (torch.location or "")
    if context.os.jetson or (lies_in_system and not torch.version and not lender_of(context)):
        return Fix(
            text=f"Keep this torch, which the vendor of the board or image provides. Get {name} "
            "from the same vendor, or build it for the torch release that the command prints",
            commands=(paste.pip(context, "uninstall", "-y", name), paste.ask_torch(context)),
        )
    if unread := needs.unread(context, needs.TORCH):
        text = f"Keep the installed torch. `gpusetup resolve {name}` prints the matching {name}"
        return Fix(text=text, needs=unread)
    return paste.install_torch(context, f"Install torch and {name} together. ")


def pairs(context: RuleContext) -> Findings:
    """Packages whose release does not work with the installed torch, as `resolve` judges them."""
    torch, os, catalog = context.torch, context.os, context.catalog
    build = catalog.row_of(
        torch.version or "", torch.backend or "", os.family or "", os.machine or ""
    )
    if build is None:
        return
    for installed in context.snapshot.packages or ():
        project = companion_table().project(normalised(installed.name))
        # Other functions judge the packages of torch's own index by their release, and conda checks
        # its own packages.
        if project is None or project.wheels == "torch index" or installed.installer == "conda":
            continue
        # The CUDA of a labelled wheel, or of one from a folder, is not the table's.
        if "+" in installed.version or installed.direct:
            continue
        reason = why_release_differs(project.name, installed.version, build, catalog)
        if reason is None:
            continue
        install = paste.gpusetup(context, project.name)
        fix = Fix(text="Install the release that works with this torch", commands=(install,))
        # Without the table's source, which stands in brackets at the end.
        pair = reason.partition(" (")[0]
        evidence = (Evidence(source=source_of(context, "packages"), text=pair),)
        yield RECORDS["companion-torch-mismatch"].found(pair, evidence=evidence, fix=fix)


RULES = (
    torch_missing,
    torch_itself,
    mixed_torch_installs,
    torch_outside_target,
    torch_cpu_build,
    foreign_wheel,
    torch_sees_no_gpu,
    python_32bit,
    no_wheel_for_machine,
    environment,
    host,
    settings,
    companions,
    pairs,
)
