"""What the CUDA driver API itself answers: each code of `cuInit` has its cause."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.catalog.facts import on_switched_board, switched
from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    event_evidence,
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
    value_evidence,
    whole_number,
)
from gpusetup.evidence.plausible import is_a_path, is_a_version
from gpusetup.findings.driver.cuda_codes import (
    ALIASES,
    CODES,
    CUDA_UNKNOWN_ERROR,
    FABRIC,
    FORWARD_COMPAT_UNSUPPORTED,
    LIBCUDA_DRIVER_MISMATCH,
    OTHER_CODE,
    RUNS_ALREADY,
    SAID,
    UNKNOWN_ERROR,
    UNKNOWN_LATER,
    Code,
)
from gpusetup.findings.libraries.loading import LIBCUDA_STUB
from gpusetup.fixes import packages, paste, which
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.machine import Event, Gpu
from gpusetup.model.shell import Line, filled, lines


def cuda_said(context: RuleContext) -> Iterator[Finding]:
    """A program's message of an error that CUDA starts, or fails to start, with."""
    if context.other_host or not events(context, "cuda-error", *SAID):
        return
    by_code: dict[int, tuple[Event, ...]] = {}
    for kind, code in SAID.items():
        by_code[code] = () if code == 802 and _has_no_fabric(context) else events(context, kind)
    for event in events(context, "cuda-error"):
        code = _code_of(event)
        if code in CODES and code not in RUNS_ALREADY:
            by_code[code] = (*by_code.get(code, ()), event)
    for code, messages in by_code.items():
        answered = code == context.snapshot.cuda_api.init_code
        if messages and not answered and (code != 100 or has_nvidia(context) is not False):
            row = CODES[code]
            yield row.cause.found(
                row.title.format(code=f"error {code}"),
                evidence=(*event_evidence(messages), *_around_init(context)),
                fix=_code_fix(context, row),
            )


def after_suspend(context: RuleContext) -> Iterator[Finding]:
    """Somebody says that CUDA fails after the machine slept, and what brings it back."""
    messages = events(context, "cuda-lost-after-suspend")
    if messages and not _asleep_is_coded(context):
        yield CUDA_UNKNOWN_ERROR.found(
            "CUDA works no more after the machine slept",
            evidence=event_evidence(messages),
            fix=_code_fix(context, UNKNOWN_ERROR),
        )


def _asleep_is_coded(context: RuleContext) -> bool:
    """Whether CUDA's own code for it is shown: then that is quoted."""
    said = (_code_of(event) for event in events(context, "cuda-error"))
    return context.snapshot.cuda_api.init_code == 999 or 999 in said


def _has_no_fabric(context: RuleContext) -> bool:
    """A Fabric Manager that does not start where there is no NVSwitch: nothing needs it."""
    idle = bool(events(context, "no-nvswitch"))
    listed = gpus(context)
    return idle or bool(listed and not any(switched(g.name) for g in listed))


def _code_of(event: Event) -> int:
    code = whole_number(event.values.get("code")) or 0
    return ALIASES.get(code, code)


def cuda_init_answer(context: RuleContext) -> Iterator[Finding]:
    """cuInit failed: each code has its cause."""
    api = context.snapshot.cuda_api
    if not api.init_code or context.other_host or not _code_says_something(context):
        return
    row = CODES.get(api.init_code, OTHER_CODE)
    if row is UNKNOWN_ERROR and context.snapshot.torch.cuda_available:
        row = UNKNOWN_LATER
    quotes = event_evidence(
        tuple(e for e in events(context, "cuda-error") if _code_of(e) == api.init_code)
    )
    answer = value_evidence(
        context, "cuda_api.init_code", f"cuInit: {api.init_code} {api.init_name or ''}".rstrip()
    )
    # No order: a text gives the code in the line that is quoted already.
    quoted = is_report(context) and answer.source in {line.source for line in quotes}
    known = api.init_name if api.init_name != f"error {api.init_code}" else None
    name = known or f"error {api.init_code}"
    yield row.cause.found(
        row.title.format(code=f"{name}, {api.init_code}" if known else name),
        evidence=(*(() if quoted else (answer,)), *quotes, *_around_init(context)),
        fix=_code_fix(context, row),
    )


def _code_says_something(context: RuleContext) -> bool:
    """100 without any NVIDIA GPU is only the truth."""
    there = gpus(context) or nvidia_on_pci(context)
    # No order: a text seldom lists the GPU that its program looked for.
    suspected = is_report(context) and has_nvidia(context) is not False
    if events(context, "program-release-too-old"):
        return False  # the program asks for a function that this driver has under another version
    return context.snapshot.cuda_api.init_code != 100 or bool(there or suspected)


def _around_init(context: RuleContext) -> tuple[Evidence, ...]:
    machine = context.snapshot
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
    return tuple(value_evidence(context, subject, text) for known, subject, text in lines if known)


def _linux_lines(context: RuleContext, row: Code) -> tuple[Line, ...]:
    """A row's commands; after suspend also where a text names no system: its words say Linux."""
    unnamed = row.cause is CUDA_UNKNOWN_ERROR and context.snapshot.os.family is None
    if not (on(context, "linux") or unnamed):
        return ()
    again = row.cause is CUDA_UNKNOWN_ERROR and context.snapshot.failing.program == "ollama"
    return lines(*row.linux, *(("sudo systemctl restart ollama",) if again else ()))


def _code_fix(context: RuleContext, row: Code) -> Fix:
    if row is FABRIC:
        return _fabric_fix(context)
    compat = context.snapshot.container.cuda_compat_path
    commands = _linux_lines(context, row)
    if row.cause in (FORWARD_COMPAT_UNSUPPORTED, LIBCUDA_DRIVER_MISMATCH) and compat:
        commands = _without_folder(context, compat)
    elif row.cause is LIBCUDA_DRIVER_MISMATCH:
        commands = _without_the_stale(context)
    if row.cause is LIBCUDA_STUB:
        commands = _without_folder(context, "/stubs")
    inside = in_container(context)
    return Fix(
        text=row.text,
        commands=tuple(c for c in commands if not (inside and c == "sudo reboot")),
        looks=paste.look("see first what there is", *paste.posix(context, *row.look)),
        needs_root=row.needs_root,
        needs_reboot=row.needs_reboot and not (inside and bool(compat)),
    )


LOADER_LOOKS_IN = ("/usr/local/lib", "/usr/lib", "/lib", "/usr/lib64", "/lib64")
"""Folders that the loader looks in by itself, whatever a variable names (Debian's ld.so.conf)."""


def _without_the_stale(context: RuleContext) -> tuple[Line, ...]:
    """The loaded libcuda out of the way, where its name shows another driver's version."""
    driver = context.snapshot.driver
    path, version = driver.libcuda_path or "", driver.version or ""
    stale = path.startswith("/") and is_a_path(path) and version and not path.endswith(version)
    if not stale or not re.search(r"\.so\.\d+\.\d", path):
        return ()
    folder = path.rpartition("/")[0]
    named = (context.snapshot.environment.get("LD_LIBRARY_PATH") or "").split(":")
    if folder in named and folder not in LOADER_LOOKS_IN:
        return _without_folder(context, folder)
    return (
        filled("sudo mv {path} {aside}", path=path, aside=f"{path}.stale"),
        *lines("sudo ldconfig"),
    )


def _without_folder(context: RuleContext, part: str) -> tuple[Line, ...]:
    """LD_LIBRARY_PATH without the folders that contain `part`, else the loader's own list."""
    named = context.snapshot.environment.get("LD_LIBRARY_PATH")
    if not named or part not in named:
        return _out_of_the_loaders_list(part) if part.startswith("/") and is_a_path(part) else ()
    return paste.without_folders(context, paste.literally(part))


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


def fabric_not_completed(context: RuleContext) -> Iterator[Finding]:
    """The driver itself says that the NVSwitch fabric is not set up."""
    waiting = [gpu for gpu in gpus(context) if gpu.fabric_state in ("in_progress", "not_started")]
    if waiting and not _has_no_fabric(context):
        yield FABRIC.cause.found(
            f"The NVSwitch fabric is not ready{_where(context, waiting)}: Fabric Manager does not "
            "run, or does not match the driver",
            evidence=tuple(
                value_evidence(context, "gpus", f"{numbered(gpu)}: fabric state {gpu.fabric_state}")
                for gpu in waiting[: 2 if len(waiting) == len(gpus(context)) else 8]
            ),
            fix=_fabric_fix(context),
        )


def _where(context: RuleContext, waiting: list[Gpu]) -> str:
    """The GPUs that wait, where others do not."""
    return "" if len(waiting) == len(gpus(context)) else f" at {which.titled(context, waiting)}"


NVSWITCH_GPUS = 4
"""Boards with NVSwitch have at least so many GPUs (HGX: 4 without, 8 with; DGX 16)."""


def fabric_suspected(context: RuleContext) -> Iterator[Finding]:
    """Eight SXM GPUs that a healthy driver lists and CUDA does not start on, and nothing else."""
    boards = [gpu for gpu in gpus(context) if on_switched_board(gpu.name)]
    # No order: this is a guess from values, and any message is better evidence.
    told_why = context.snapshot.cuda_api.init_code or not says_nothing_else(context)
    blind = is_report(context) and is_cuda_build(context.snapshot.torch) and asked_for_cuda(context)
    if blind and not told_why and len(boards) > NVSWITCH_GPUS:
        yield FABRIC.cause.found(
            f"{len(boards)} GPUs on NVSwitch, and CUDA does not start: mostly Fabric Manager does "
            "not run, or does not match the driver",
            evidence=(
                value_evidence(context, "gpus", f"{len(boards)} x {boards[0].name}"),
                value_evidence(context, "torch.cuda_available", "torch.cuda.is_available(): False"),
            ),
            fix=_fabric_fix(context),
        )


def _fabric_fix(context: RuleContext) -> Fix:
    version = context.snapshot.driver.version
    look = paste.look("see what the fabric says", *lines(*FABRIC.look))
    if not version or not is_a_version(version):
        return Fix(text=FABRIC.text, commands=lines(*FABRIC.linux), looks=look, needs_root=True)
    here = None if in_container(context) else packages.distribution(context)
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
    after_suspend,
    cuda_init_answer,
    cuda_said,
    fabric_not_completed,
    fabric_suspected,
)
