"""The boundary around the process: containers, WSL, and what the process itself is told to hide."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Evidence, Finding, Fix, Gpu
from gpusetup.rules import packages, ways
from gpusetup.rules.case import (
    Case,
    answering,
    asked_for_cuda,
    cuda_errors,
    driver_answers,
    error,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_cuda_build,
    is_report,
    note,
    problems,
    shown,
    told,
    warning,
    whole_number,
)
from gpusetup.rules.container_start import NOTHING, container_facts, container_no_gpu
from gpusetup.rules.driver import nvml_said
from gpusetup.rules.driver_state import NVML_UNKNOWN
from gpusetup.shell import Line, lines

HIDE = "CUDA_VISIBLE_DEVICES"


def cuda_visible_devices_hidden(case: Case) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES leaves no GPU to the process."""
    value = case.snapshot.environment.get(HIDE)
    if value is None or case.other_host or has_nvidia(case) is False:
        return
    if _none_is_left(case, value):
        yield error(
            "cuda-visible-devices-hidden",
            f'{HIDE}="{value}" hides every GPU from this process',
            detail=_what_it_may_name(case),
            evidence=(Evidence(source="environment", text=f"{HIDE}={value}"),),
            fix=Fix(
                text=f"Unset {HIDE} (a shell profile, a service or a job script sets it)",
                commands=ways.unset(case, HIDE),
            ),
        )


def _none_is_left(case: Case, value: str) -> bool:
    """Whether the variable leaves no GPU: as the driver says, or by its first entry."""
    listed = gpus(case)
    if listed and all(gpu.visible is False for gpu in listed):
        return True
    first = value.split(",")[0].strip()
    if first in NOTHING:
        return bool(listed or has_nvidia(case) or asked_for_cuda(case))
    # CUDA stops at the first entry that names no GPU; nvidia-smi lists all of them all the same.
    index = whole_number(first)
    beyond = index is not None and index >= len(listed)
    nameless = first.startswith(("GPU-", "MIG-")) and not _is_named(listed, first)
    failed = asked_for_cuda(case) or bool(cuda_errors(case, 38, 100))
    none = case.snapshot.cuda_api.init_code == NO_DEVICE or not any(g.visible for g in listed)
    return bool(listed) and (beyond or nameless) and failed and none


NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


def _is_named(listed: tuple[Gpu, ...], entry: str) -> bool:
    """Whether an entry is the beginning of a GPU's UUID, or of one of its instances'."""
    known = (name for gpu in listed for name in (gpu.uuid or "", *gpu.mig_instances))
    counted = any(gpu.mig_count and not gpu.mig_instances for gpu in listed)
    return any(name.startswith(entry) for name in known) or (counted and entry.startswith("MIG-"))


def _what_it_may_name(case: Case) -> str:
    count = len(gpus(case))
    if not count:
        return ""
    if count == 1:
        return "This machine has one GPU: it may name 0, or that GPU's UUID."
    return f"This machine has {count} GPUs: it may name 0 to {count - 1}, or their UUIDs."


def some_gpus_hidden(case: Case) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES leaves some GPUs and hides others."""
    hidden = [gpu for gpu in gpus(case) if gpu.visible is False]
    value = case.snapshot.environment.get(HIDE)
    if value is not None and hidden and len(hidden) < len(gpus(case)):
        yield note(
            "gpus-partly-hidden",
            f"{HIDE}={value} hides {len(hidden)} of {len(gpus(case))} GPUs",
            evidence=(Evidence(source="environment", text=f"{HIDE}={value}"),),
        )


RESTARTS = {
    "docker": " (`docker restart` and its name)",
    "podman": " (`podman restart` and its name)",
    "kubernetes": " (`kubectl delete pod` and its name: its controller makes another)",
}
"""How a container is started anew."""


def container_nvml_lost(case: Case) -> Iterator[Finding]:
    """A running container whose GPU access was taken away (a systemd reload on the host)."""
    driver = case.snapshot.driver
    works = case.snapshot.cuda_api.init_code == 0
    lost = driver.nvml_code == NVML_UNKNOWN and in_container(case) and not works
    if not (lost or events(case, "container-nvml-lost")):
        return
    again = RESTARTS.get(case.snapshot.container.kind or "docker", "")
    yield error(
        "container-nvml-lost",
        "This container has lost its GPU: NVML answers Unknown Error",
        detail="A `systemctl daemon-reload` on the host rewrites the device rules of "
        "containers whose "
        "GPUs were added behind systemd's back.",
        evidence=(
            *told(events(case, "container-nvml-lost")),
            *nvml_said(case),
            *container_facts(case),
        ),
        fix=Fix(
            text=f"Start the container again{again}. For good: on the host let docker use the "
            'cgroupfs driver ("exec-opts": ["native.cgroupdriver=cgroupfs"] in '
            "/etc/docker/daemon.json), or give the devices by name or by CDI",
            alternatives=ways.other(
                "keep it from coming back: on the host make the links that keep the devices known, "
                "then start the container again",
                *lines("sudo nvidia-ctk system create-dev-char-symlinks --create-all"),
            ),
            needs_root=True,
        ),
    )


def container_driver_capability_missing(case: Case) -> Iterator[Finding]:
    """NVML works in the container, libcuda was not given to it."""
    machine = case.snapshot
    named = machine.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    words = {word.strip() for word in (named or "").split(",")}
    lacks_compute = named is not None and not words & {"compute", "all"}
    proven = in_container(case) and not machine.driver.library_found and lacks_compute
    blind = events(case, "cuda-version-err") if in_container(case) else ()
    said = (*events(case, "container-capability-missing"), *blind)
    if said or (proven and driver_answers(case)):
        yield error(
            "container-driver-capability-missing",
            "The container was not given the driver's compute libraries: nvidia-smi works, "
            "libcuda is missing",
            evidence=told(said)
            or (
                Evidence(source="environment", text=f"NVIDIA_DRIVER_CAPABILITIES={named}"),
                shown(case, "driver.library_found", "libcuda.so.1 is not in the container"),
            ),
            fix=Fix(
                text="Start it again with compute among the capabilities (`-e "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility`), as the command does with a plain "
                "image",
                commands=lines(
                    'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" '
                    "ubuntu nvidia-smi"
                ),
            ),
        )


def cuda_compat_in_front(case: Case) -> Iterator[Finding]:
    """A cuda-compat library is found before the driver's own, and works so far."""
    path = case.snapshot.container.cuda_compat_path
    if path and not case.snapshot.cuda_api.init_code:
        yield note(
            "cuda-compat-in-front",
            f"A forward compatibility library is found before the driver's: {path}",
            detail="It serves data centre GPUs only, and only drivers older than itself.",
            evidence=(shown(case, "container.cuda_compat_path", path),),
        )


WSL_LIBRARIES = "/usr/lib/wsl/lib"


def wsl_driver(case: Case) -> Iterator[Finding]:
    """WSL without a way to the Windows driver, or with a Linux driver in front of it."""
    machine = case.snapshot
    if case.other_host or not (machine.os.wsl or events(case, "wsl-driver")):
        return
    if _is_wsl_1(case):
        yield _wsl_1(case)
        return
    nodes = machine.devices
    no_bridge = nodes is not None and not any(node.path == "/dev/dxg" for node in nodes)
    silent = not answering(case) and (
        machine.driver.library_found is False or bool(machine.driver.nvml_code)
    )
    if (
        events(case, "wsl-driver")
        or (silent and not driver_answers(case))
        or (no_bridge and not answering(case))
        or _wsl_text_without_driver(case)
    ):
        yield error(
            "wsl-driver",
            "WSL does not reach the Windows driver",
            detail="/dev/dxg is missing: this is WSL 1, or the GPU is not shared with WSL."
            if no_bridge
            else "",
            evidence=(
                *told(events(case, "wsl-driver", *NO_DRIVER_IN_WSL)),
                *_wsl_facts(case, no_bridge),
                *problems(case, "driver", "driver.version", "driver.library_found"),
            ),
            fix=Fix(
                text="Install or update the NVIDIA driver in Windows, update WSL, and start it "
                "again (open programs in it end); install no Linux driver inside WSL",
                commands=lines("wsl.exe --update", "wsl.exe --shutdown"),
                needs_root=True,
                min_driver=case.catalog.driver_floor("12", "windows"),
            ),
        )


def _is_wsl_1(case: Case) -> bool:
    """WSL 1 names a kernel 4.4.0 with the build of Windows: no Linux of WSL 2 is so old."""
    kernel = case.snapshot.os.kernel or ""
    return kernel.startswith("4.4.0-") and kernel.lower().rstrip("+").endswith("-microsoft")


def _wsl_1(case: Case) -> Finding:
    return error(
        "wsl-driver",
        "This is WSL 1, which has no GPU",
        evidence=(shown(case, "os.kernel", f"kernel {case.snapshot.os.kernel}"),),
        fix=Fix(
            text="In PowerShell turn the distribution into WSL 2: `wsl --set-version` with its "
            "name and 2 (the command lists the names)",
            commands=lines("wsl.exe --list --verbose"),
        ),
    )


NO_DRIVER_IN_WSL = ("no-nvidia-driver", "driver-not-loaded", "smi-not-found", "cuda-unavailable")


def _wsl_text_without_driver(case: Case) -> bool:
    """A text from WSL in which a CUDA build of torch finds nothing, and no driver shows."""
    machine = case.snapshot
    blind = (
        bool(machine.os.wsl)
        and is_report(case)
        and not answering(case)
        and not driver_answers(case)
    )
    said = events(case, *NO_DRIVER_IN_WSL[:2])
    return blind and bool(said or (is_cuda_build(machine.torch) and asked_for_cuda(case)))


def _wsl_facts(case: Case, no_bridge: bool) -> tuple[Evidence, ...]:
    machine = case.snapshot
    if not machine.os.wsl:
        return ()
    lines = [shown(case, "devices", "/dev/dxg is missing")] if no_bridge else []
    if machine.driver.library_found is False:
        lines.append(shown(case, "driver.library_found", f"no libcuda.so.1 in {WSL_LIBRARIES}"))
    return (*lines, shown(case, "os.wsl", f"WSL, kernel {machine.os.kernel or 'unknown'}"))


def wsl_linux_driver(case: Case) -> Iterator[Finding]:
    """A Linux driver library inside WSL stands before Windows' own."""
    path = case.snapshot.driver.libcuda_path
    if case.snapshot.os.wsl and path and path.startswith("/") and WSL_LIBRARIES not in path:
        make = error if case.snapshot.cuda_api.init_code else warning
        yield make(
            "wsl-linux-driver",
            f"A Linux driver library is installed inside WSL: {path}",
            detail=f"WSL's own is in {WSL_LIBRARIES}; another one cannot talk to Windows.",
            evidence=(shown(case, "driver.libcuda_path", path),),
            fix=Fix(
                text="Remove the Linux driver's packages from WSL, then start WSL again",
                commands=_remove_linux_driver(case),
                needs_root=True,
            ),
        )


REMOVAL = {
    "ubuntu": lines("sudo apt purge -y '^(lib)?nvidia-.*-[0-9]{3}(-server)?(-open)?$'"),
    "debian": lines(
        "sudo apt purge -y '^(nvidia-(driver|kernel|smi|alternative|egl|vulkan|persistenced).*"
        "|libcuda1|libnvidia-(ml1|cfg1|glcore|eglcore|rtcore|ptxjitcompiler1))$'"
    ),
    "fedora": lines("sudo dnf remove -y 'akmod-nvidia*' 'kmod-nvidia*' 'xorg-x11-drv-nvidia*'"),
    "arch": lines("sudo pacman -Rs --noconfirm nvidia-utils"),
}
"""Distribution -> what removes the driver's packages, and neither CUDA nor the container tools."""


def _remove_linux_driver(case: Case) -> tuple[Line, ...]:
    found = REMOVAL.get(packages.distribution(case) or "", ())
    return (*found, *lines("wsl.exe --shutdown"))


RULES = (
    cuda_visible_devices_hidden,
    some_gpus_hidden,
    container_no_gpu,
    container_nvml_lost,
    container_driver_capability_missing,
    cuda_compat_in_front,
    wsl_driver,
    wsl_linux_driver,
)
