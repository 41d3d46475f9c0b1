"""What the CUDA driver API itself answers: each code of `cuInit` has its cause."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model import Event, Evidence, Finding, Fix, Gpu
from gpusetup.rules import packages, ways, which
from gpusetup.rules.case import (
    Case,
    asked_for_cuda,
    error,
    events,
    gib,
    gpus,
    has_nvidia,
    in_container,
    is_cuda_build,
    is_report,
    numbered,
    nvidia_on_pci,
    on,
    says_nothing_else,
    shown,
    told,
    whole_number,
)
from gpusetup.rules.plausible import is_a_path, is_a_version
from gpusetup.shell import Line, filled, lines
from gpusetup.value import Value


class Code(Value):
    """One answer of `cuInit` (cuda.h, enum CUresult) and what it means for a machine."""

    id: str
    title: str
    text: str
    linux: tuple[str, ...] = ()
    """The way on Linux."""
    look: tuple[str, ...] = ()
    """What shows more there, and changes nothing."""
    needs_root: bool = False
    needs_reboot: bool = False


UNKNOWN_ERROR = Code(
    id="cuda-unknown-error",
    title="CUDA does not start: unknown error ({code})",
    text="Load the unified memory module anew (after suspend it is often in a bad state), "
    "or reboot",
    linux=("sudo modprobe -r nvidia_uvm", "sudo modprobe nvidia_uvm"),
    needs_root=True,
    needs_reboot=True,
)
MPS = Code(
    id="mps-server",
    title="The CUDA MPS daemon refuses this process ({code})",
    text="Stop the daemon, or use the GPU as the user that started it",
    linux=("echo quit | nvidia-cuda-mps-control",),
)
FABRIC = Code(
    id="system-not-ready-fabric-manager",
    title="The NVSwitch fabric is not ready (error 802): Fabric Manager does not run, or does "
    "not match",
    text="Install the Fabric Manager of exactly the driver's version, and start it",
    linux=(
        "sudo systemctl enable nvidia-fabricmanager",
        "sudo systemctl restart nvidia-fabricmanager",
    ),
    look=("nvidia-smi -q | grep -A 3 Fabric",),
    needs_root=True,
)

CODES: dict[int, Code] = {
    2: Code(
        id="cuda-init-out-of-memory",
        title="CUDA cannot start: out of memory while it starts (error 2)",
        text="Lift the limit on the address space (ulimit -v, the batch system), or give the "
        "virtual "
        "machine more memory",
        linux=("ulimit -v unlimited",),
    ),
    34: Code(
        id="libcuda-stub",
        title="The toolkit's stub libcuda is loaded instead of the driver's (error 34)",
        text="Take the toolkit's stubs folder out of LD_LIBRARY_PATH",
    ),
    36: Code(
        id="driver-call-unsupported",
        title="The CUDA library asks more of the kernel driver than it can do (error {code})",
        text="Install kernel driver and libraries of one version, then reboot",
        needs_root=True,
        needs_reboot=True,
    ),
    46: Code(
        id="compute-mode-exclusive",
        title="The GPU is busy, or in exclusive mode and taken by another process (error 46)",
        text="End the other process, or set the compute mode to default; where no process holds "
        "the GPU, reboot",
        linux=("sudo nvidia-smi -c DEFAULT",),
        look=("nvidia-smi",),
        needs_root=True,
    ),
    100: Code(
        id="cuda-sees-no-device",
        title="CUDA sees no device (error 100)",
        text="Look at CUDA_VISIBLE_DEVICES, the compute mode and MIG, and at what else is found",
        look=(
            "nvidia-smi -L",
            'nvidia-smi "--query-gpu=compute_mode,mig.mode.current" --format=csv',
        ),
    ),
    101: Code(
        id="invalid-device-ordinal",
        title="CUDA_VISIBLE_DEVICES or a rank names a GPU that does not exist (error 101)",
        text="Name only GPUs that `nvidia-smi -L` lists, and start no more processes than there "
        "are GPUs",
        look=("nvidia-smi -L",),
    ),
    102: Code(
        id="vgpu-no-compute",
        title="The vGPU has no licence for CUDA (error 102)",
        text="Give the virtual machine a licence (NVIDIA License System) for a profile "
        "with compute",
    ),
    214: Code(
        id="ecc-error",
        title="The GPU's memory has an error that ECC cannot correct (error 214)",
        text="Reset the GPU, or reboot; if it comes back, have the GPU replaced",
        linux=("sudo nvidia-smi --gpu-reset",),
        look=('nvidia-smi -q -d "ECC,ROW_REMAPPER"',),
        needs_root=True,
        needs_reboot=True,
    ),
    304: Code(
        id="os-call-failed",
        title="A system call of the CUDA driver failed (error 304)",
        text="Usually device nodes are missing or forbidden, or a sandbox (cgroup, seccomp, "
        "limits) forbids "
        "the call",
        linux=("sudo nvidia-modprobe -u -c=0",),
        look=("ls -l /dev/nvidia*",),
        needs_root=True,
    ),
    800: Code(
        id="os-call-failed",
        title="The CUDA driver may not do what a program asks (error 800)",
        text="Start the container again: its rights to the device nodes are gone or were never "
        "given (cgroup rules, seccomp); outside of containers look at the nodes' owner and group",
        look=("ls -l /dev/nvidia*",),
    ),
    801: Code(
        id="vgpu-no-compute",
        title="This vGPU profile allows no CUDA (error 801)",
        text="Give the virtual machine a profile with compute (Q or C), or switch compute on in "
        "the host",
    ),
    802: FABRIC,
    803: Code(
        id="libcuda-driver-mismatch",
        title="The loaded libcuda does not belong to the loaded kernel driver (error 803)",
        text="Remove stale copies of libcuda (a cuda-compat folder, a mounted or copied "
        "library); where the driver was updated and not loaded anew, reboot",
        look=("ldconfig -p | grep libcuda",),
        needs_root=True,
    ),
    804: Code(
        id="forward-compat-unsupported",
        title="A forward compatibility library (cuda-compat) stands in front of the driver, on "
        "a GPU or "
        "driver that does not allow it (error 804)",
        text="Take the cuda-compat folder out of the loader's path, or update the driver of "
        "the host; "
        "forward compatibility is for data centre GPUs only",
    ),
    805: MPS,
    806: MPS,
    807: MPS,
    808: MPS,
    809: MPS,
    999: UNKNOWN_ERROR,
}
"""cuInit's answer -> what it means. 30 is the runtime's older number for 999."""

UNKNOWN_LATER = Code(
    id=UNKNOWN_ERROR.id,
    title="A CUDA call failed after CUDA had started: unknown error ({code})",
    text="Look for an Xid of that time in the kernel's log; without one run it again with "
    "CUDA_LAUNCH_BLOCKING=1, so that the failing call is the one that is named",
    linux=("export CUDA_LAUNCH_BLOCKING=1",),
    look=("sudo dmesg -T | grep -i xid",),
)
"""999 of a program that saw its GPU: nothing keeps CUDA from starting."""

OTHER_CODE = Code(
    id="cuda-init-failed",
    title="CUDA does not start: cuInit answers {code}",
    text="Reboot; if it stays, install the driver anew",
    needs_root=True,
    needs_reboot=True,
)


SAID: dict[str, int] = {
    "out-of-memory-at-init": 2,
    "compute-mode-exclusive": 46,
    "invalid-device-ordinal": 101,
    "vgpu-no-compute": 801,
    "fabric-manager-failed": 802,
    "mps-server": 805,
}
"""Kind of event -> the code of the same cause."""

ALIASES = {30: 999, 38: 100, 10: 101, 71: 801}
"""Numbers of the older runtime -> today's."""

RUNS_ALREADY = (2, 36)
"""Codes that mean another thing once CUDA runs: then they are no answer of cuInit."""


def cuda_said(case: Case) -> Iterator[Finding]:
    """A program's message of an error that CUDA starts, or fails to start, with."""
    if case.other_host:
        return
    heard: dict[int, tuple[Event, ...]] = {}
    for kind, code in SAID.items():
        heard[code] = () if code == 802 and _has_no_fabric(case) else events(case, kind)
    for event in events(case, "cuda-error"):
        code = _code_of(event)
        if code in CODES and code not in RUNS_ALREADY:
            heard[code] = (*heard.get(code, ()), event)
    for code, said in heard.items():
        answered = code == case.snapshot.cuda_api.init_code
        if said and not answered and (code != 100 or has_nvidia(case) is not False):
            row = CODES[code]
            yield error(
                row.id,
                row.title.format(code=f"error {code}"),
                evidence=(*told(said), *_around_init(case)),
                fix=_code_fix(case, row),
            )


NVSWITCHED = ("SXM", "HBM3", "A100", "A800", "H100", "H200", "H800", "H20", "B200", "B300", "V100")
"""Parts of the names of GPUs that there are boards with NVSwitch of."""


def _has_no_fabric(case: Case) -> bool:
    """A Fabric Manager that does not start where there is no NVSwitch: nothing needs it."""
    idle = bool(events(case, "no-nvswitch"))
    listed = gpus(case)
    return idle or bool(listed and not any(p in g.name for g in listed for p in NVSWITCHED))


def _code_of(event: Event) -> int:
    code = whole_number(event.values.get("code")) or 0
    return ALIASES.get(code, code)


def cuda_init_answer(case: Case) -> Iterator[Finding]:
    """cuInit failed: each code has its cause."""
    api = case.snapshot.cuda_api
    if not api.init_code or case.other_host or not _code_says_something(case):
        return
    row = CODES.get(api.init_code, OTHER_CODE)
    if row is UNKNOWN_ERROR and case.snapshot.torch.cuda_available:
        row = UNKNOWN_LATER
    said = told(tuple(e for e in events(case, "cuda-error") if _code_of(e) == api.init_code))
    answer = shown(
        case, "cuda_api.init_code", f"cuInit: {api.init_code} {api.init_name or ''}".rstrip()
    )
    quoted = is_report(case) and answer.source in {line.source for line in said}
    known = api.init_name if api.init_name != f"error {api.init_code}" else None
    name = known or f"error {api.init_code}"
    yield error(
        row.id,
        row.title.format(code=f"{name}, {api.init_code}" if known else name),
        evidence=(*(() if quoted else (answer,)), *said, *_around_init(case)),
        fix=_code_fix(case, row),
    )


def _code_says_something(case: Case) -> bool:
    """100 without any NVIDIA GPU is only the truth."""
    there = gpus(case) or nvidia_on_pci(case)
    suspected = is_report(case) and has_nvidia(case) is not False
    return case.snapshot.cuda_api.init_code != 100 or bool(there or suspected)


def _around_init(case: Case) -> tuple[Evidence, ...]:
    machine = case.snapshot
    lines = (
        (
            machine.driver.libcuda_path,
            "driver.libcuda_path",
            f"libcuda: {machine.driver.libcuda_path}",
        ),
        (
            machine.container.cuda_compat_path,
            "container.cuda_compat_path",
            f"cuda-compat in front: {machine.container.cuda_compat_path}",
        ),
        (
            machine.memory.address_space_bytes,
            "memory.address_space_bytes",
            f"address space limited to {gib(machine.memory.address_space_bytes or 0)}",
        ),
    )
    return tuple(shown(case, subject, text) for known, subject, text in lines if known)


def _code_fix(case: Case, row: Code) -> Fix:
    if row is FABRIC:
        return _fabric_fix(case)
    compat = case.snapshot.container.cuda_compat_path
    commands = lines(*row.linux) if on(case, "linux") else ()
    if row.id in ("forward-compat-unsupported", "libcuda-driver-mismatch") and compat:
        commands = _without_folder(case, compat)
    elif row.id == "libcuda-driver-mismatch":
        commands = _without_the_stale(case)
    if row.id == "libcuda-stub":
        commands = _without_folder(case, "/stubs")
    inside = in_container(case)
    return Fix(
        text=row.text,
        commands=tuple(c for c in commands if not (inside and c == "sudo reboot")),
        looks=ways.look("see first what there is", *ways.posix(case, *row.look)),
        needs_root=row.needs_root,
        needs_reboot=row.needs_reboot and not (inside and bool(compat)),
    )


LOADER_LOOKS_IN = ("/usr/local/lib", "/usr/lib", "/lib", "/usr/lib64", "/lib64")
"""Folders that the loader looks in by itself, whatever a variable names (Debian's ld.so.conf)."""


def _without_the_stale(case: Case) -> tuple[Line, ...]:
    """The loaded libcuda out of the way, where its name shows another driver's version."""
    driver = case.snapshot.driver
    path, version = driver.libcuda_path or "", driver.version or ""
    stale = path.startswith("/") and is_a_path(path) and version and not path.endswith(version)
    if not stale or not re.search(r"\.so\.\d+\.\d", path):
        return ()
    folder = path.rpartition("/")[0]
    named = (case.snapshot.environment.get("LD_LIBRARY_PATH") or "").split(":")
    if folder in named and folder not in LOADER_LOOKS_IN:
        return _without_folder(case, folder)
    return (
        filled("sudo mv {path} {aside}", path=path, aside=f"{path}.stale"),
        *lines("sudo ldconfig"),
    )


def _without_folder(case: Case, part: str) -> tuple[Line, ...]:
    """LD_LIBRARY_PATH without the folders that contain `part`, else the loader's own list."""
    named = case.snapshot.environment.get("LD_LIBRARY_PATH")
    if not named or part not in named:
        return _out_of_the_loaders_list(part) if part.startswith("/") and is_a_path(part) else ()
    kept = [folder for folder in named.split(":") if folder and part not in folder]
    if not kept:
        return ways.unset(case, "LD_LIBRARY_PATH")
    return (ways.setting(case, "LD_LIBRARY_PATH", ":".join(kept)),)


def _out_of_the_loaders_list(folder: str) -> tuple[Line, ...]:
    """The line of the folder out of the loader's configuration.

    >>> _out_of_the_loaders_list("/usr/local/cuda/compat")[0]
    "sudo sed -i '\\\\#^/usr/local/cuda/compat/*$#d' /etc/ld.so.conf.d/*.conf"
    """
    exactly = re.sub(r"([\\.*^$\[\]#])", r"\\\1", folder.rstrip("/"))
    start = "" if folder == "/stubs" else "^"
    return (
        filled("sudo sed -i {line} /etc/ld.so.conf.d/*.conf", line=rf"\#{start}{exactly}/*$#d"),
        *lines("sudo ldconfig"),
    )


def fabric_not_completed(case: Case) -> Iterator[Finding]:
    """The driver itself says that the NVSwitch fabric is not set up."""
    waiting = [gpu for gpu in gpus(case) if gpu.fabric_state in ("in_progress", "not_started")]
    if waiting and not _has_no_fabric(case):
        yield error(
            FABRIC.id,
            f"The NVSwitch fabric is not ready{_where(case, waiting)}: Fabric Manager does not "
            "run, or does not match the driver",
            evidence=tuple(
                shown(case, "gpus", f"{numbered(gpu)}: fabric state {gpu.fabric_state}")
                for gpu in waiting[: 2 if len(waiting) == len(gpus(case)) else 8]
            ),
            fix=_fabric_fix(case),
        )


def _where(case: Case, waiting: list[Gpu]) -> str:
    """The GPUs that wait, where others do not."""
    return "" if len(waiting) == len(gpus(case)) else f" at {which.titled(case, waiting)}"


NVSWITCH_GPUS = 4
"""Boards with NVSwitch have at least so many GPUs (HGX: 4 without, 8 with; DGX 16)."""


def fabric_suspected(case: Case) -> Iterator[Finding]:
    """Eight SXM GPUs that a healthy driver lists and CUDA does not start on, and nothing else."""
    boards = [gpu for gpu in gpus(case) if "SXM" in gpu.name or "HBM3" in gpu.name]
    told_why = case.snapshot.cuda_api.init_code or not says_nothing_else(case)
    blind = is_report(case) and is_cuda_build(case.snapshot.torch) and asked_for_cuda(case)
    if blind and not told_why and len(boards) > NVSWITCH_GPUS:
        yield error(
            FABRIC.id,
            f"{len(boards)} GPUs on NVSwitch, and CUDA does not start: mostly Fabric Manager does "
            "not run, or does not match the driver",
            evidence=(
                shown(case, "gpus", f"{len(boards)} x {boards[0].name}"),
                shown(case, "torch.cuda_available", "torch.cuda.is_available(): False"),
            ),
            fix=_fabric_fix(case),
        )


def _fabric_fix(case: Case) -> Fix:
    version = case.snapshot.driver.version
    look = ways.look("see what the fabric says", *lines(*FABRIC.look))
    if not version or not is_a_version(version):
        return Fix(text=FABRIC.text, commands=lines(*FABRIC.linux), looks=look, needs_root=True)
    here = None if in_container(case) else packages.distribution(case)
    row = FABRIC_PACKAGE.get(here or "")
    package = row[1].format(branch=version.partition(".")[0], version=version) if row else ""
    install = (filled(row[0], package=package),) if row else ()
    return Fix(
        text=f"Install nvidia-fabricmanager of exactly version {version}, and start it",
        commands=(*install, *lines(*FABRIC.linux)),
        looks=look,
        needs_root=True,
    )


BY_APT = ("sudo apt install -y {package}", "nvidia-fabricmanager-{branch}={version}*")
FABRIC_PACKAGE = {
    "ubuntu": BY_APT,
    "debian": BY_APT,
    "rhel": ("sudo dnf install -y {package}", "nvidia-fabric-manager-{version}"),
}
"""Distribution -> the command, and the package of the Fabric Manager of one driver version."""


RULES = (
    cuda_init_answer,
    cuda_said,
    fabric_not_completed,
    fabric_suspected,
)
