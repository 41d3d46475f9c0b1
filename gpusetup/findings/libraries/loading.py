"""The libraries under torch: CUDA's own, the driver's stub, numpy, MKL."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    cuda_needed,
    event_evidence,
    events,
    is_report,
    on,
    value_evidence,
)
from gpusetup.evidence.plausible import exactly
from gpusetup.findings.driver.presence import DRIVER_LIBRARIES
from gpusetup.findings.layers import BROKEN_TORCH, NO_DRIVER, NO_INIT, Layer
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Package

LD_LIBRARY_PATH_CONFLICT = Cause(
    id="ld-library-path-conflict",
    place=(Layer.LIBRARIES, 20),
    title="LD_LIBRARY_PATH puts foreign libraries first",
    means="torch's wheel needs exactly its own cuDNN, cuBLAS, nvJitLink.",
    proven_by="Such a folder, and a failed load (error) or none yet (warning)",
    not_when="cuda-lib-missing: no such library at all",
    way_out="Take that folder out of it",
    source="ld.so's manual page",
    explains=(
        "torch-import-failed",
        "gpu-check-failed",
        "library-missing",
        "cuda-library-error",
    ),
)


def foreign_libraries(context: RuleContext) -> Iterator[Finding]:
    """LD_LIBRARY_PATH puts other CUDA libraries in front of torch's own."""
    messages = events(context, "foreign-library")
    clash = events(context, "ld-library-path-conflict")
    if any(e.values.get("by_program") for e in clash):
        yield _older_library(context, clash)
        return
    broken = clash or (messages and context.snapshot.torch.import_error)
    if not (messages or broken) or (not context.snapshot.torch.installed and not broken):
        return
    make = LD_LIBRARY_PATH_CONFLICT.found if broken else LD_LIBRARY_PATH_CONFLICT.as_warning
    from gpusetup.findings.libraries.asked import foreign_folders

    folder = next(iter(foreign_folders(context)), None)
    by = "LD_LIBRARY_PATH puts" if folder else "The loader finds"
    yield make(
        f"{by} libraries from {folder or 'another place'} in front of those that torch brings"
        + _which(clash),
        detail="torch's wheel needs exactly its own cuDNN, cuBLAS and nvJitLink; an older one "
        "in front fails to load or lacks symbols.",
        evidence=(*event_evidence(clash), *event_evidence(messages), *_library_path(context)),
        fix=_own_libraries_first(context, clash),
    )


def _older_library(context: RuleContext, clash: tuple[Event, ...]) -> Finding:
    """XLA (JAX, TensorFlow) finds a library that is older than the one it was built with."""
    from gpusetup.findings.libraries.asked import newer_for_xla

    library = clash[0].values.get("library", "cuDNN")
    pinned = ": torch pins one release of cuDNN, and may have put an older one there"
    return LD_LIBRARY_PATH_CONFLICT.found(
        f"The {library} that is found first is older than JAX or TensorFlow needs{_which(clash)}",
        detail="It comes from LD_LIBRARY_PATH, or from the environment"
        f"{pinned if library == 'cuDNN' else ''}.",
        evidence=(*event_evidence(clash), *_library_path(context)),
        fix=newer_for_xla(context, library),
    )


def _which(clash: tuple[Event, ...]) -> str:
    """The library of which two versions meet, as far as the message says."""
    for event in clash:
        values = event.values
        if values.get("compiled") and values.get("loaded"):
            loaded, needed = (values[name].replace(", ", ".") for name in ("loaded", "compiled"))
            return f" ({values.get('library', 'cuDNN')} {loaded} is loaded, {needed} is needed)"
        if values.get("library"):
            return f" ({values['library']})"
    return ""


def _library_path(context: RuleContext) -> tuple[Evidence, ...]:
    value = context.snapshot.environment.get("LD_LIBRARY_PATH")
    return (Evidence(source="environment", text=f"LD_LIBRARY_PATH={value}"),) if value else ()


CONDAS_FIRST = 'export LD_LIBRARY_PATH="$CONDA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'


def _own_libraries_first(context: RuleContext, clash: tuple[Event, ...]) -> Fix:
    if any("stdc++" in e.values.get("library", "") for e in clash):
        return Fix(
            text="Let the environment's own libstdc++ be found first (in conda install it; it is "
            "newer than the system's)",
            commands=(
                paste.command(
                    context, "conda", "install", "-y", "-c", "conda-forge", "libstdcxx-ng"
                ),
                *paste.posix(context, CONDAS_FIRST),
            ),
        )
    if shared := _in_one_folder(context):
        return _one_of_two(context, *shared)
    if on(context, "windows"):
        return Fix(
            text="Take the folders of other CUDA and cuDNN versions out of PATH for torch, and "
            "remove their DLLs from Windows\\System32"
        )
    from gpusetup.findings.libraries.asked import foreign_folders, own_first

    again = paste.install_torch(context).commands if not foreign_folders(context) else ()
    shown = foreign_folders(context) or _library_path(context) or not is_report(context)
    return own_first(context, again, is_set=bool(shown))


ONE_FOLDER = ("nvidia-cudnn", "nvidia-nccl", "nvidia-cusparselt", "nvidia-nvshmem")
"""Their wheels for CUDA 12 and for CUDA 13 unpack into one folder: the last one installed wins."""


def _in_one_folder(context: RuleContext) -> tuple[Package, Package] | None:
    """A library of two CUDA majors in one folder: the one of torch's major, and the other."""
    listed = context.snapshot.packages or ()
    torch = context.snapshot.torch
    needed = cuda_needed(torch) or (
        context.resolution.build.cuda if context.resolution.build else None
    )
    major = (needed or "").partition(".")[0]
    for name in ONE_FOLDER:
        both = {_cuda_major(p.name): p for p in listed if p.name.startswith(f"{name}-cu")}
        if major in both and len(both) > 1:
            return both[major], next(p for m, p in both.items() if m != major)
    return None


def _one_of_two(context: RuleContext, own: Package, other: Package) -> Fix:
    (exact,) = exactly(((own.name, own.version),)) or (own.name,)
    return Fix(
        text=f"{other.name} and {own.name} lie in one folder: remove both, and install {own.name} "
        "anew",
        commands=(
            paste.pip(context, "uninstall", "-y", other.name, own.name),
            paste.pip(context, "install", "--no-deps", exact),
        ),
    )


LIBCUDA_STUB = Cause(
    id="libcuda-stub",
    place=(Layer.PROCESS, 20),
    title="the toolkit's stub libcuda is loaded",
    means="The stub serves to link programs where there is no driver; it cannot run them.",
    proven_by="Code 34, or a loaded libcuda in a folder `stubs`; as a warning, such a folder "
    "in LD_LIBRARY_PATH",
    way_out="Take the folder out of LD_LIBRARY_PATH",
    source="CUDA Driver API reference, CUresult (STUB_LIBRARY)",
    explains=(*NO_INIT, *NO_DRIVER, "driver-missing"),
)


def libcuda_stub(context: RuleContext) -> Iterator[Finding]:
    """A stub libcuda that serves only to link programs is what is loaded."""
    path = context.snapshot.driver.libcuda_path or ""
    problem = [
        r for r in context.snapshot.readings if r.subject == "driver.libcuda_path" and r.problem
    ]
    loaded = "/stubs" in path or any("stub" in (r.problem or "") for r in problem)
    messages = events(context, "libcuda-stub")
    if not loaded and not messages:
        return
    # A text quotes what failed; on a live machine a folder on the path may do no harm yet.
    said = any(e.values.get("loaded") or not e.values.get("folder") for e in messages)
    loaded = loaded or (is_report(context) and said)
    make = LIBCUDA_STUB.found if loaded else LIBCUDA_STUB.as_warning
    yield make(
        "The toolkit's stub libcuda is loaded instead of the driver's"
        if loaded
        else "The toolkit's stub libcuda is on LD_LIBRARY_PATH: it may be loaded instead of the "
        "driver's",
        evidence=(
            *((value_evidence(context, "driver.libcuda_path", path),) if path else ()),
            *event_evidence(messages),
        ),
        fix=Fix(
            text="Take the stubs folder out of LD_LIBRARY_PATH",
            commands=paste.without_folders(context, "/stubs"),
        ),
    )


CUDA_LIB_MISSING = Cause(
    id="cuda-lib-missing",
    place=(Layer.LIBRARIES, 60),
    title="a CUDA library is missing",
    means="torch's wheel takes its libraries from nvidia-* packages.",
    proven_by="A package of nvidia-* that is not whole",
    way_out="Install it anew",
    source="RECORD of the distribution",
    explains=("torch-import-failed", "gpu-check-failed"),
)


def cuda_lib_missing(context: RuleContext) -> Iterator[Finding]:
    """A CUDA library that torch links against is not installed, or only in part."""
    cut = [
        p
        for p in context.snapshot.packages or ()
        if p.name.startswith("nvidia-") and p.intact is False
    ]
    messages = tuple(
        e
        for e in events(context, "cuda-lib-missing")
        if not e.values.get("library", "").startswith(DRIVER_LIBRARIES)
        and not _is_of_an_extension(context, e)
    )
    if not cut and not messages:
        return
    from gpusetup.findings.libraries.asked import what_cannot_load, what_its_number_is

    name = cut[0].name if cut else messages[0].values.get("library", "a CUDA library")
    yield CUDA_LIB_MISSING.found(
        what_cannot_load(name, messages),
        detail=what_its_number_is(name),
        evidence=(
            *event_evidence(messages),
            *(
                value_evidence(context, "packages", f"{p.name} {p.version}: files are missing")
                for p in cut[:3]
            ),
        ),
        fix=_reinstall(context, cut) if cut else _brought(context, name, messages),
    )


def _is_of_an_extension(context: RuleContext, event: Event) -> bool:
    """Said by a package whose own compiled part is not there: no library of CUDA's is lacking."""
    module = event.values.get("module")
    own = event.values.get("library", "libbitsandbytes_").startswith("libbitsandbytes_")
    lacking = events(context, "extension-not-built") if module and own else ()
    return any(one.values.get("module") == module for one in lacking)


def _brought(context: RuleContext, library: str, messages: tuple[Event, ...]) -> Fix:
    """What brings a library that a program looked for."""
    from gpusetup.findings.jetson.jetpack import undeclared_fix
    from gpusetup.findings.libraries.asked import (
        asked_by,
        beside_torch,
        for_whoever_asks,
        is_with_torch,
    )

    if is_with_torch(context, library):
        return beside_torch(context)
    who = asked_by(messages)
    return undeclared_fix(context, library) or for_whoever_asks(context, library, who)


def _reinstall(context: RuleContext, cut: list[Package]) -> Fix:
    exact = exactly((p.name, p.version) for p in cut)
    again = (
        (paste.pip(context, "install", paste.anew(context), "--no-deps", *exact),) if exact else ()
    )
    return Fix(text="Install these packages anew", commands=again)


CUDA_LIBRARIES_MIXED = Cause(
    id="cuda-libraries-mixed",
    severity=Severity.NOTE,
    title="CUDA libraries of another major are installed",
    means="Leftovers of a former torch.",
    proven_by="nvidia-*-cuNN of another major than torch's",
    way_out="Nothing to do",
    source="names of the distributions",
)


def cuda_libraries_mixed(context: RuleContext) -> Iterator[Finding]:
    """nvidia-* packages of two CUDA majors, where torch uses one."""
    needed = cuda_needed(context.snapshot.torch)
    if not needed:
        return
    major = needed.partition(".")[0]
    other = [p for p in context.snapshot.packages or () if _cuda_major(p.name) not in (None, major)]
    if other:
        names = ", ".join(p.name for p in other[:4])
        yield CUDA_LIBRARIES_MIXED.found(
            f"CUDA libraries of another major than torch's ({needed}) are installed: {names}",
            detail="They take room and are not used by this torch; leftovers of a former one, or "
            "of another package.",
            evidence=tuple(
                value_evidence(context, "packages", f"{p.name} {p.version}") for p in other[:4]
            ),
        )


def _cuda_major(name: str) -> str | None:
    """
    >>> _cuda_major("nvidia-cublas-cu12"), _cuda_major("nvidia-ml-py")
    ('12', None)
    """
    if not name.startswith("nvidia-"):
        return None
    _, found, digits = name.rpartition("-cu")
    return digits if found and digits.isdigit() else None


DLLS = (
    Cause(
        id="windows-dll-missing",
        place=(Layer.WHEEL, 30),
        title="Windows cannot load torch's DLLs",
        means="The Visual C++ runtime or a DLL beside it is missing or old.",
        proven_by="WinError 126, 127, 182, 193, 1114",
        not_when="windows-pagefile-too-small (1455), extension-abi-mismatch",
        way_out="The current Visual C++ runtime",
        source="Microsoft, System Error Codes; torch/__init__.py",
        explains=("torch-import-failed", "cuda-lib-missing"),
        message=Message(
            title="Windows cannot load {dll}: a DLL that it needs is missing or of another version",
            plain="Windows cannot load torch's DLLs: one that they need is missing",
            detail="Mostly the runtime of Visual C++ (msvcp140, vcruntime140_1), for torch 2.4.0 "
            "also libomp140.x86_64.dll; error 1114 comes from an outdated runtime too.",
            text="Install the current Visual C++ runtime (x64), then torch anew (2.4.1 or newer)",
            windows=("winget install Microsoft.VCRedist.2015+.x64",),
            then=("gpusetup install",),
            needs_root=True,
        ),
    ),
    Cause(
        id="windows-pagefile-too-small",
        place=(Layer.WHEEL, 20),
        title="the Windows page file is too small",
        means="Every process reserves room for the CUDA DLLs.",
        proven_by="WinError 1455",
        not_when="windows-dll-missing",
        way_out="A larger page file, fewer workers",
        source="Microsoft, System Error Codes",
        explains=(
            *BROKEN_TORCH,
            "windows-dll-missing",
            "dataloader-worker-killed",
        ),
        message=Message(
            title="The Windows page file is too small to load torch's DLLs (error 1455)",
            detail="Windows reserves room for the CUDA DLLs in every process; each DataLoader "
            "worker is a process.",
            text="Let Windows manage the page file, or enlarge it on a disk with room (System, "
            "Advanced, Performance, Virtual memory), and start again; use fewer workers",
            windows=("SystemPropertiesPerformance.exe",),
            needs_root=True,
        ),
    ),
)


def windows_dlls(context: RuleContext) -> Iterator[Finding]:
    """Of torch and what it loads; an extension that belongs to another torch is that finding."""
    if not events(context, *(kind for cause in DLLS for kind in cause.kinds)):
        return
    from gpusetup.findings.message_rules import from_messages

    others = {e.values.get("module") for e in events(context, "extension-abi-mismatch")} - {None}
    beside = {e.values.get("dll") for e in events(context, "torchaudio-mismatch")} - {None}
    kept = tuple(
        e
        for e in context.snapshot.events
        if e.kind != "windows-dll-missing"
        or (e.values.get("module") not in others and e.values.get("dll") not in beside)
    )
    yield from from_messages(
        replace(context, snapshot=replace(context.snapshot, events=kept)), DLLS
    )


RULES = (
    windows_dlls,
    foreign_libraries,
    libcuda_stub,
    cuda_lib_missing,
    cuda_libraries_mixed,
)
