"""At least 300 machines, composed from rows: every fault on hosts and GPUs in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count as count_from
from itertools import cycle, islice

from packaging.version import Version

from closing import facts, faults, troubles
from closing.compose import build_for, driver_for, jetson, machine, with_gpu
from closing.faults import Fault
from closing.rows import ARM, ARM_GPUS, DRIVERS, GPUS, HOSTS, INSTALLERS, JETSONS, Host
from closing.world import World, gpu_named
from gpusetup.catalog.file import load_catalog
from gpusetup.model.resolution import TorchBuild

LINUX = tuple(host for host in HOSTS if not host.windows_driver)
BARE = tuple(host for host in LINUX if host.container.kind == "none")
SIGNING = tuple(host for host in BARE if host.os.id != "pop")
"""Pop has no Secure Boot (its installer asks to switch it off)."""
MODERN = tuple(name for name in GPUS if "K80" not in name)
BLACKWELL = ("NVIDIA GeForce RTX 5090", "NVIDIA B200")
NEW = (*BLACKWELL * 4,)
WSL = tuple(host for host in HOSTS if host.os.wsl)
DOCKER = tuple(host for host in HOSTS if host.container.kind == "docker")
IN_WSL: tuple[Fault, ...] = (troubles.linux_driver_in_wsl, troubles.wsl_without_bridge)
IN_DOCKER: tuple[Fault, ...] = (
    troubles.without_compute, troubles.nvml_lost, troubles.container_without_gpu, troubles.lost,
    troubles.ecc, troubles.uvm_bad, troubles.uvm_unloaded, troubles.prohibited,
    troubles.fabric_down,
)  # fmt: skip
SERVERS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "Tesla V100-SXM2-16GB", "NVIDIA L40S")

OF_THE_ENVIRONMENT: tuple[Fault, ...] = (
    faults.cpu_build, faults.cpu_build_alone, faults.torchvision_left, faults.torchaudio_left,
    faults.companions_left, faults.torchvision_of_cpu, faults.torch_missing, faults.torch_cut,
    faults.torch_gone_companions_left, faults.installed_twice, faults.install_interrupted,
    faults.rocm_build, faults.xpu_build, troubles.hidden, troubles.hidden_by_minus_one,
)  # fmt: skip
ON_LINUX: tuple[Fault, ...] = (
    faults.conda_and_pip, faults.of_the_system, faults.not_writable, troubles.hidden_by_a_number,
)  # fmt: skip
WITHOUT_ROOM: tuple[Fault, ...] = (faults.without_room, faults.cut_without_room)
PINNED: tuple[Fault, ...] = (faults.cpu_build_beside_xformers, faults.torch_cut_beside_xformers)
BY_CONDA: tuple[Fault, ...] = (faults.conda_cpu_build, faults.conda_empty)
OF_THE_DRIVER: tuple[Fault, ...] = (
    troubles.no_driver, troubles.no_driver_and_no_names, troubles.no_driver_under_secure_boot,
    troubles.nouveau, troubles.module_not_loaded, troubles.key_rejected,
    troubles.updated_without_reboot,
)  # fmt: skip
OF_THE_NODES: tuple[Fault, ...] = (troubles.uvm_unloaded, troubles.uvm_bad, troubles.nodes_closed)
OF_THE_GPUS: tuple[Fault, ...] = (
    troubles.lost, troubles.ecc, troubles.ecc_on_two, troubles.prohibited, troubles.all_prohibited,
)  # fmt: skip
OF_THE_BOUNDARY: tuple[Fault, ...] = (
    troubles.container_without_gpu, troubles.podman_without_gpu, troubles.compat_in_front,
    troubles.stale_libcuda,
)  # fmt: skip
OF_OTHER_MAKERS: tuple[Fault, ...] = (troubles.amd, troubles.intel, troubles.no_gpu_at_all)
OF_PYTHON: tuple[Fault, ...] = (
    faults.python_of_32_bits, faults.python_too_old, faults.python_too_new,
)  # fmt: skip
TOGETHER: tuple[tuple[Fault, Fault], ...] = (
    (faults.cpu_build, troubles.hidden),
    (faults.companions_left, troubles.hidden),
    (faults.cpu_build, troubles.no_driver),
    (faults.torch_missing, troubles.no_driver),
    (faults.torch_cut, troubles.uvm_unloaded),
    (faults.torchvision_left, troubles.nodes_closed),
    (faults.cpu_build, troubles.updated_without_reboot),
    (faults.installed_twice, troubles.hidden),
)
"""Two independent causes, cured one after the other."""


def variants() -> Iterator[tuple[str, World]]:
    """Each with a name that says what was composed."""
    yield from _each(OF_THE_ENVIRONMENT, HOSTS, MODERN)
    yield from _each(ON_LINUX, LINUX, MODERN[:6])
    yield from _each(WITHOUT_ROOM, HOSTS, MODERN[:6])
    yield from _each((faults.tmp_without_room,), LINUX, MODERN[:6])
    yield from _each(PINNED, BARE[:4], MODERN[:4])
    yield from _each(BY_CONDA, BARE, MODERN[:5])
    yield from _each(OF_THE_DRIVER, SIGNING, GPUS)
    yield from _each(OF_THE_NODES, BARE, MODERN[:5])
    yield from _each(OF_THE_GPUS, BARE, SERVERS, count=4)
    yield from _each((troubles.mig_empty,), BARE, SERVERS[:2])
    yield from _each((troubles.fabric_down,), BARE[:4], SERVERS[:1], count=8)
    yield from _each(OF_THE_BOUNDARY, LINUX, MODERN[:4])
    yield from _each((troubles.driver_before_the_gpu,), BARE, NEW)
    yield from _each((troubles.closed_module,), BARE, (BLACKWELL[0],) * 6)
    yield from _each(IN_WSL, WSL, MODERN[:3])
    yield from _each(IN_DOCKER, DOCKER, MODERN[:3])
    yield from _each((troubles.stub_in_front,), LINUX, MODERN[:4])
    yield from _each(OF_OTHER_MAKERS, BARE, MODERN[:3])
    yield from _each(OF_PYTHON, HOSTS, MODERN[:3])
    yield from _builds_of_another_gpu()
    yield from _drivers_too_old()
    yield from _old_torch()
    yield from _on_arm()
    yield from _of_two_kinds()
    yield from _of_no_common_driver()
    yield from _two_at_once()


def _each(
    kinds: Sequence[Fault], hosts: Sequence[Host], gpus: Sequence[str], *, count: int = 1
) -> Iterator[tuple[str, World]]:
    """Every fault on every GPU, the hosts and installers in turn."""
    turn = zip(cycle(hosts), cycle(INSTALLERS), count_from(), strict=False)
    for fault in kinds:
        for gpu in gpus:
            host, installer, number = next(turn)
            found = healthy(host, gpu, installer, count, number)
            if found is not None:
                own = found.snapshot.torch.version
                name = f"{fault.__name__}: {own}, {gpu} on {host.name} by {installer}"
                yield name, fault(found)
        next(turn)  # so that the next fault meets other pairs


def healthy(host: Host, gpu: str, installer: str, count: int = 1, turn: int = 0) -> World | None:
    """The healthy machine of a host and a GPU; None where no build of the rows serves it.

    The driver and the build are the newest, or older ones, in turn.
    """
    driver = driver_for(gpu_named(gpu), (0, 0, 1, 0, 2)[turn % 5])
    build = build_for(host, gpu_named(gpu), driver, turn=turn)
    if build is None:
        return None
    return machine(host, gpu, build, installer=installer, driver=driver, count=count)


def _builds_of_another_gpu() -> Iterator[tuple[str, World]]:
    """torch without a kernel for this GPU: newer, or older, than what it was built for."""
    for (gpu, host), installer in zip(_pairs(GPUS, HOSTS, 3), cycle(INSTALLERS), strict=False):
        driver = driver_for(gpu_named(gpu))
        build = build_for(host, gpu_named(gpu), driver, serves_gpu=False)
        if build is not None:
            world = machine(host, gpu, build, installer=installer, driver=driver)
            yield f"{build.torch}+{build.backend} unserved: {gpu} on {host.name}", world


def _drivers_too_old() -> Iterator[tuple[str, World]]:
    """torch of the newest driver on one or two branches less."""
    for gpu, host in _pairs(MODERN, HOSTS, 3):
        newest = build_for(host, gpu_named(gpu), DRIVERS[0])
        for older in (1, 3, 5):
            driver = driver_for(gpu_named(gpu), older)
            if newest is not None and driver != DRIVERS[0] and _too_new(newest, driver):
                world = machine(host, gpu, newest, driver=driver)
                yield f"{newest.backend} on driver {driver}: {gpu} on {host.name}", world


def _too_new(build: TorchBuild, driver: str) -> bool:
    floor = facts.FLOOR_OF_MAJOR[(build.cuda or "0").partition(".")[0]]["linux"]
    return Version(driver).release < floor


def _on_arm() -> Iterator[tuple[str, World]]:
    """Servers and Jetsons on aarch64."""
    for fault in (faults.cpu_build, faults.torch_missing, faults.companions_left):
        for turn, gpu in enumerate(ARM_GPUS):
            found = healthy(ARM, gpu, INSTALLERS[turn], turn=turn)
            if found is not None:
                yield f"{fault.__name__}: {gpu} on {ARM.name}", fault(found)
    for row in JETSONS:
        yield f"jetson {row[0]}: a wheel of servers", jetson(row)
        yield f"jetson {row[0]}: torch missing", faults.torch_missing(jetson(row))


def _of_two_kinds() -> Iterator[tuple[str, World]]:
    """Two GPUs, of which torch serves one; hidden, and with the build of the CPU."""
    for old, new in (("NVIDIA GeForce GTX 1080 Ti", "NVIDIA GeForce RTX 3090"),
                     ("Tesla V100-SXM2-16GB", "NVIDIA GeForce RTX 4090"),
                     ("Tesla T4", "NVIDIA GeForce RTX 5090")):  # fmt: skip
        for host in BARE[:3]:
            build = build_for(host, gpu_named(new), DRIVERS[0], turn=0)
            world = with_gpu(machine(host, new, build), old)
            yield f"two kinds: {build and build.backend}, {old} and {new} on {host.name}", world
            cpu = faults.cpu_build(world)
            yield f"two kinds and a CPU build: {old} and {new} on {host.name}", cpu


def _of_no_common_driver() -> Iterator[tuple[str, World]]:
    """Two GPUs of which the one ends, in branch or flavour, before the other begins."""
    for old, new in (("NVIDIA GeForce GTX 1080 Ti", "NVIDIA GeForce RTX 5090"),
                     ("Tesla K80", "NVIDIA GeForce RTX 4090"),
                     ("Tesla V100-SXM2-16GB", "NVIDIA B200")):  # fmt: skip
        for host in BARE[:3]:
            world = with_gpu(machine(host, new, None), old)
            bare = troubles.no_driver_and_no_names(world)
            yield f"no common driver: {old} and {new} on {host.name}", bare


def _old_torch() -> Iterator[tuple[str, World]]:
    """An old torch beside what came after it."""
    for fault in (faults.numpy_2, faults.library_cut):
        for host in BARE[:6]:
            row = load_catalog().row_of("2.1.2", "cu118", "linux", "x86_64")
            world = machine(host, "NVIDIA GeForce RTX 3090", row)
            yield f"{fault.__name__}: 2.1.2+cu118 on {host.name}", fault(world)


def _two_at_once() -> Iterator[tuple[str, World]]:
    for first, second in TOGETHER:
        for gpu, host in _pairs(MODERN[:4], BARE, 1):
            found = healthy(host, gpu, "pip", turn=len(gpu))
            if found is not None:
                name = f"{first.__name__} and {second.__name__}: {gpu} on {host.name}"
                yield name, second(first(found))


def _pairs(gpus: Sequence[str], hosts: Sequence[Host], times: int) -> list[tuple[str, Host]]:
    """Every GPU so many times, the hosts in turn."""
    return list(zip([*gpus] * times, islice(cycle(hosts), len(gpus) * times), strict=True))
