"""Drivers and the kernel: what each distribution's package tool, a reboot or modprobe leaves."""

from __future__ import annotations

import re
from collections.abc import Sequence

from closing import facts
from closing.seen import answering, loaded, nodes, rejected, serves
from closing.shells import Refused
from closing.world import DriverPackage, World, healthy
from gpusetup.value import replace

TOOLS = {
    "apt": ("ubuntu", "debian", "pop", "linuxmint", "kali", "zorin", "elementary", "neon"),
    "apt-get": ("ubuntu", "debian", "pop", "linuxmint"),
    "ubuntu-drivers": ("ubuntu", "linuxmint", "zorin", "elementary", "neon"),
    "dnf": ("fedora", "nobara", "rhel", "rocky", "almalinux", "centos", "ol", "amzn"),
    "zypper": ("opensuse", "opensuse-leap", "opensuse-tumbleweed", "sles"),
    "pacman": ("arch", "manjaro", "endeavouros", "cachyos"),
    "apk": ("alpine",),
}
"""Package tool -> the distributions (os-release ID) that have it."""

VERBS = {"apt": ("install", "purge", "remove", "update", "full-upgrade"), "pacman": ("-S", "-Rs",
         "-Syu", "-Sy"), "zypper": ("install", "refresh", "addrepo", "remove", "ar", "in"),
         "dnf": ("install", "remove", "config-manager", "module", "update", "upgrade", "swap",
                 "clean", "makecache"),
         "apk": ("add",), "ubuntu-drivers": ("install", "list", "devices")}  # fmt: skip


def package_tool(world: World, tool: str, words: Sequence[str]) -> World:
    """One call of a package tool; Refused where this distribution has another one."""
    name = (world.os.id or "").lower()
    if name not in TOOLS[tool]:
        raise Refused(f"{tool}: command not found on {name or 'this system'}")
    plain = [w for w in words if w not in ("-y", "--yes", "--noconfirm", "--needed", "-n")]
    verb = plain[0] if plain else ""
    if verb not in VERBS.get(tool, VERBS["apt"]):
        raise Refused(f"{tool} knows no {verb}")
    names = [w for w in plain[1:] if not w.startswith("-")]
    if verb in ("purge", "remove", "-Rs"):
        return _removed(world, names)
    if tool == "ubuntu-drivers" and verb == "install":
        return staged(world, recommended(world))
    if verb not in ("install", "-S", "-Syu", "add", "in"):
        return world
    return _fabric(_driver(world, tool, names), names)


def _removed(world: World, names: Sequence[str]) -> World:
    if not any("nvidia" in name for name in names):
        return world
    if world.os.wsl:
        path = "/usr/lib/wsl/lib/libcuda.so.1"
        driver = replace(world.snapshot.driver, libcuda_path=path)
        return answering(world.having(stale_libcuda=None).showing(driver=driver))
    return world.having(on_disk=None)


def recommended(world: World) -> DriverPackage:
    """What `ubuntu-drivers install` takes: the newest branch that serves, signed by Canonical."""
    for branch in ("580", "570", "535", "470"):
        for opened in (True, False):
            package = DriverPackage(facts.NEWEST_OF_BRANCH[branch], opened, signed=True)
            if all(serves(package, gpu) for gpu in world.hardware):
                return package
    raise Refused("ubuntu-drivers: no driver for this GPU")


NAMES = (
    (r"nvidia-driver-(\d{3})(-server)?(-open)?", "ubuntu"),
    (r"nvidia-(?:headless|utils|dkms)-(\d{3})()(-open)?", "ubuntu"),
    (r"system76-driver-nvidia()()()", "pop"),
    (r"nvidia-driver()()()", "debian"),
    (r"(?:nvidia-open-kernel-dkms|nvidia-open)()()()", "debian"),
    (r"akmod-nvidia(?:-(\d{3})xx)?()(-open)?", "fedora"),
    (r"kmod-nvidia()()(-open)-dkms", "rhel"),
    (r"kmod-nvidia-latest-dkms()()()", "rhel"),
    (r"nvidia-open(?:-(\d{3}))?()()", "rhel"),
    (r"cuda-drivers(?:-(\d{3}))?()()", "rhel"),
    (r"nvidia-open-dkms()()()", "arch"),
    (r"nvidia-(\d{3})xx-dkms()()", "arch"),
    (r"nvidia-open-driver-G06-signed[\w-]*()()()", "suse"),
    (r"nvidia-driver-G06-kmp[\w-]*()()()", "suse"),
    (r"nvidia-open-driver-G07-signed[\w-]*()()()", "suse"),
)
"""What a package's name says of its driver: branch, server, open."""

ALWAYS_OPEN = ("nvidia-open", "system76-driver-nvidia")

BRANCHES_PACKAGED = {"ubuntu": ("470", "535", "550", "570", "580", "590"), "arch": ("470", "580"),
                     "fedora": ("470", "580"), "rhel": ("570", "575", "580", "590")}  # fmt: skip


def _driver(world: World, tool: str, names: Sequence[str]) -> World:
    for name in names:
        bare = name.partition("=")[0].rstrip("*")
        for pattern, distribution in NAMES:
            found = re.fullmatch(pattern, bare)
            if found and _sold_by(world, distribution):
                branch = found.group(1) or facts.NEWEST_PACKAGE[distribution]
                if found.group(1) and branch not in BRANCHES_PACKAGED.get(distribution, (branch,)):
                    raise Refused(f"E: Unable to locate package {name}")
                opened = bool(found.group(3)) or bare.startswith(ALWAYS_OPEN)
                opened = opened or (distribution == "suse" and "open" in bare)
                exact = re.search(r"=(\d+\.\d+(?:\.\d+)?)", name)
                version = exact.group(1) if exact else facts.NEWEST_OF_BRANCH[branch]
                signed = "signed" in bare
                return staged(world, DriverPackage(version, opened, signed))
    return world


FAMILIES = {"rocky": "rhel", "almalinux": "rhel", "centos": "rhel", "ol": "rhel", "amzn": "rhel",
            "linuxmint": "ubuntu", "zorin": "ubuntu", "manjaro": "arch", "endeavouros": "arch",
            "cachyos": "arch", "opensuse-leap": "suse", "opensuse-tumbleweed": "suse",
            "sles": "suse", "opensuse": "suse", "nobara": "fedora", "kali": "debian"}  # fmt: skip


def family(world: World) -> str:
    name = (world.os.id or "").lower()
    return FAMILIES.get(name, name)


def _sold_by(world: World, distribution: str) -> bool:
    own = family(world)
    return own == distribution or (own in ("rhel", "fedora") and distribution == "rhel")


def _fabric(world: World, names: Sequence[str]) -> World:
    """A Fabric Manager of another version than the driver does not start the fabric."""
    for name in names:
        found = re.fullmatch(r"nvidia-fabric-?manager-(\d+)(?:=([\d.]+)\*?|[\d.]*)?", name)
        if found:
            exact = (name.rpartition("=")[2] if "=" in name else name.rpartition("-")[2]).rstrip(
                "*"
            )
            if exact != world.snapshot.driver.version:
                raise Refused(f"{name} is not of driver {world.snapshot.driver.version}")
    return world


def staged(world: World, package: DriverPackage) -> World:
    """On disk: the libraries are the new ones, the kernel runs what it ran until it loads anew."""
    world = world.having(on_disk=package)
    driver = world.snapshot.driver
    if driver.module_loaded and driver.version:
        code = 18 if driver.version != package.version else driver.nvml_code
        changed = replace(driver, library_version=package.version, nvml_code=code)
        return answering(world.showing(driver=changed))
    changed = replace(
        driver,
        library_found=True,
        library_version=package.version,
        module_version=package.version,
        module_loaded=False,
    )
    return world.showing(driver=changed)


# --- the kernel ---------------------------------------------------------------------------------


def reboot(world: World) -> World:
    """All that lives in memory is gone; what is on disk is loaded."""
    if world.snapshot.container.kind not in (None, "none"):
        raise Refused("reboot: a container does not reboot its host")
    lasting = {"VIRTUAL_ENV", "PATH", "CONDA_PREFIX", "HOME"}
    world = world.showing(environment={
        name: value
        for name, value in world.snapshot.environment.items()
        if name in lasting or name not in world.shells
    })  # fmt: skip
    held = any(d.driver == "nouveau" for d in world.snapshot.pci_devices or ())
    if held and world.on_disk is None:
        return world
    hardware = tuple(healthy(gpu) for gpu in world.hardware)
    fabric = world.fabric_down and "nvidia-fabricmanager" not in world.shells
    return loaded(world.having(hardware=hardware, fabric_down=fabric))


def modprobe(world: World, words: Sequence[str]) -> World:
    name = words[-1].replace("-", "_")
    driver = world.snapshot.driver
    if name == "nvidia_uvm":
        if "-r" in words:
            return world.showing(driver=replace(driver, uvm_loaded=False))
        changed = replace(driver, uvm_loaded=True)
        return answering(with_uvm_node(world.having(uvm_is_bad=False).showing(driver=changed)))
    if name != "nvidia":
        return world
    held = any(d.driver == "nouveau" for d in world.snapshot.pci_devices or ())
    if world.on_disk is None or held:
        raise Refused("modprobe: FATAL: Module nvidia not found, or another driver holds the GPU")
    if rejected(world, world.on_disk):
        raise Refused("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service")
    return world if driver.module_loaded else loaded(world)


def with_uvm_node(world: World) -> World:
    if world.snapshot.devices is None:
        return world
    have = {node.path for node in world.snapshot.devices}
    new = tuple(n for n in nodes(1) if "uvm" in n.path and n.path not in have)
    return world.showing(devices=(*world.snapshot.devices, *new))


def may_open(world: World) -> World:
    """After joining the groups and logging in again."""
    if world.snapshot.devices is None:
        return world
    opened = tuple(replace(n, readable=True, writable=True) for n in world.snapshot.devices)
    gpus = world.snapshot.gpus or world.hardware
    return answering(world.showing(devices=opened, gpus=gpus))


def reset(world: World, words: Sequence[str]) -> World:
    """`nvidia-smi --gpu-reset -i LIST`, by index, bus id or UUID; all GPUs where none is named."""
    chosen = _after(words, "-i", "--id")
    names = set(chosen.split(",")) if chosen else None
    gpus = world.snapshot.gpus or ()
    after = tuple(
        healthy(gpu) if names is None or names & {str(n), gpu.pci_bus_id, gpu.uuid} else gpu
        for n, gpu in enumerate(gpus)
    )
    kinds = ("xid", "ecc-error", "gpu-requires-reset", "hardware-error")
    cleared = world if any(gpu.ecc_uncorrected for gpu in after) else world.without_events(*kinds)
    return answering(cleared.showing(gpus=after))


def _after(words: Sequence[str], *names: str) -> str | None:
    for place, word in enumerate(words):
        if word in names and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(tuple(f"{name}=" for name in names)):
            return word.partition("=")[2]
    return None


def compute_mode(world: World, words: Sequence[str]) -> World:
    chosen = _after(words, "-i")
    mode = (_after(words, "-c", "--compute-mode") or "").upper()
    if mode not in ("0", "DEFAULT"):
        raise Refused(f"nvidia-smi: compute mode {mode}")
    gpus = tuple(
        replace(gpu, compute_mode="Default")
        if chosen is None or {str(n), gpu.pci_bus_id or ""} & set(chosen.split(","))
        else gpu
        for n, gpu in enumerate(world.snapshot.gpus or ())
    )
    return answering(world.showing(gpus=gpus))


def mig(world: World, words: Sequence[str]) -> World:
    """Instances created (`mig -cgi`), or the mode switched off (`-mig 0`)."""
    create = "mig" in words
    chosen = set((_after(words, "-i") or "").split(",")) - {""}
    gpus = []
    for n, gpu in enumerate(world.snapshot.gpus or ()):
        if chosen and not chosen & {str(n), gpu.pci_bus_id or ""}:
            gpus.append(gpu)
        elif create:
            gpus.append(replace(gpu, mig_instances=gpu.mig_instances or (f"MIG-{n + 1:04d}",)))
        else:
            gpus.append(replace(gpu, mig_enabled=False, mig_instances=()))
    return answering(world.showing(gpus=tuple(gpus)))
