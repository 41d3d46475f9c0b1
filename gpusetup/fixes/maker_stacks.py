"""Fixes for AMD, Intel and Apple GPUs: drivers, device nodes, containers, builds of torch.

Sources: AMD's "Configuring permissions for GPU access" and "Running ROCm Docker containers"
(rocm.docs.amd.com/projects/install-on-linux), AMD's "Install PyTorch for ROCm" of WSL and of
Windows, Intel's "PyTorch prerequisites for Intel GPU", PyTorch's page on the MPS backend; read in
November 2026.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.accelerators.amd import (
    BUILT_FOR_ROCM,
    DROPPED,
    FIRST_ROCM,
    FIRST_TORCH,
    INDEX_OF_AMD,
    LAST_ROCM,
    RELATIVES,
    WINDOWS_TARGETS,
    device_extras,
)
from gpusetup.accelerators.makers import AMD, BY_ID, INTEL, Maker
from gpusetup.catalog.builds import index_url
from gpusetup.evidence.context import RuleContext, events, in_container, on
from gpusetup.fixes import paste
from gpusetup.model.finding import Alternative, Fix
from gpusetup.model.machine import MakerStack
from gpusetup.model.shell import Line, Lines, filled, lines, shell_line
from gpusetup.model.versions import parsed

LOAD = {AMD.id: lines("sudo modprobe amdgpu"), INTEL.id: lines("sudo modprobe xe")}
DRIVER_OF = {AMD.id: "amdgpu", INTEL.id: "i915 or xe"}
"""A maker -> its kernel driver, in words."""


# --- the kernel driver and its nodes --------------------------------------------------------------


def load_driver(context: RuleContext, stack: MakerStack) -> Fix:
    """Load the maker's kernel driver, or bind the card to it again."""
    driver = DRIVER_OF.get(stack.maker, "")
    if stack.kernel_driver:
        text = (
            f"The GPU is bound to {stack.kernel_driver}, which passes it to a virtual machine. "
            f"Use the GPU there, or remove its binding to {stack.kernel_driver} and restart, so "
            f"that {driver} can bind to it"
        )
        return Fix(text=text, looks=kernel_messages(stack), needs_reboot=True)
    return Fix(
        text=f"Load {driver}. If the driver does not load or creates no device node, the kernel is "
        "older than the GPU, firmware files are missing, Secure Boot rejects an unsigned module, "
        "or a file in /etc/modprobe.d blocks it",
        commands=LOAD[stack.maker],
        looks=kernel_messages(stack),
        needs_root=True,
    )


DRIVERS_OF_CARDS = lines(
    "lspci -k | grep -EA3 'VGA|3D|Display'",
    "grep -rsE 'blacklist +(amdgpu|i915|xe)' /etc/modprobe.d",
)


def kernel_messages(stack: MakerStack) -> tuple[Alternative, ...]:
    """Commands that show each card's driver and the kernel's messages about it."""
    pattern = "amdgpu|kfd" if stack.maker == AMD.id else "i915|xe "
    messages = filled("sudo dmesg | grep -iE {names} | tail -n 20", names=pattern)
    commands = (*DRIVERS_OF_CARDS, messages)
    return paste.look("list the drivers and the kernel's messages", *commands)


def compute_driver_missing() -> Fix:
    """What to do if amdgpu is loaded but /dev/kfd does not exist."""
    return Fix(
        text="Use a kernel whose amdgpu has compute support (CONFIG_HSA_AMD, which the kernels "
        "of the large distributions have), or install AMD's own driver package (amdgpu-dkms). If "
        "KFD does not support the GPU, the kernel's messages show it",
        looks=paste.look(
            "see what KFD says of the GPU",
            *lines(
                "sudo dmesg | grep -i kfd | tail -n 20",
                "grep CONFIG_HSA_AMD= /boot/config-$(uname -r)",
            ),
        ),
    )


AMDS_NODES = lines("ls -ln /dev/kfd /dev/dri/renderD*")
RENDER_NODES = lines("ls -ln /dev/dri/renderD*")


def join_groups(context: RuleContext, stack: MakerStack | None, *, on_host: bool = False) -> Fix:
    """Add the user to the groups that own the device nodes; in a container, the host's groups by
    number. `on_host`: the program fails on the host, although the text is about a container too."""
    nodes = AMDS_NODES if is_amds(stack) else RENDER_NODES
    if context.snapshot.container.kind == "kubernetes":
        return Fix(
            text="Update AMD's device plugin (k8s-device-plugin) and start the pod again: the "
            "plugin sets the permissions of the pod's devices, and an older one grants too few. "
            "The node's mode and groups on the host change nothing while access() returns EPERM",
            looks=paste.look("see the pod's nodes and the plugin's version", *OF_THE_POD),
        )
    if events(context, "rootless-container") and not on_host:
        return Fix(
            text="A rootless container drops your groups, and `--group-add video` adds a group of "
            "the container instead. Start it with `--group-add keep-groups` (podman with crun; "
            "distrobox: in --additional-flags), or as root (`sudo podman run`, `distrobox create "
            "--root`). On the host your user must be in the groups that own the nodes (`id -nG`)",
            commands=START[AMD.id if is_amds(stack) else INTEL.id, "podman"],
            looks=paste.look("see the nodes and their groups on the host", *nodes),
        )
    if in_container(context) and not on_host:
        return Fix(
            text="Start the container again with the group that owns the nodes on the host (groups "
            "are compared by number, so the name may not exist inside)",
            commands=lines(
                'docker run --rm --device /dev/kfd --device /dev/dri --group-add "$(stat -c %g '
                '/dev/dri/renderD128)" --group-add video ubuntu ls -l /dev/kfd /dev/dri'
            ),
            looks=paste.look("see the numbers of the groups", *nodes),
        )
    service = context.snapshot.failing.program
    # The installer of ollama creates a user of this name, and systemd starts the server as it.
    for_service: tuple[Alternative, ...] = ()
    if service == "ollama":
        for_service = paste.other("if ollama runs as a service, which has its own user", *OLLAMA)
    return Fix(
        text="Join the groups render and video, then log out and in again (over ssh too; a "
        "running tmux or Jupyter keeps the old groups). You do not need to reinstall anything",
        commands=lines('sudo usermod -aG render,video "$USER"'),
        alternatives=for_service,
        looks=paste.look(
            "see which group owns the nodes, and which groups you are in", *nodes, *lines("id -nG")
        ),
        needs_root=True,
    )


OF_THE_POD = lines(
    "kubectl exec NAME -- ls -ln /dev/kfd /dev/dri  # NAME: the pod's",
    "kubectl -n kube-system get daemonset -o wide | grep -i amd",
)
"""Shows the nodes in the pod, and the version of AMD's device plugin."""
OLLAMA = lines("sudo usermod -aG render,video ollama", "sudo systemctl restart ollama")
"""The groups for the user that ollama's own installer creates (its install.sh)."""


def container_on_windows(context: RuleContext) -> Fix:
    """What to do for an AMD GPU in a container of Docker Desktop on Windows."""
    return Fix(
        text="Docker Desktop runs containers in a virtual machine of WSL, which has no /dev/kfd, "
        "so ROCm images do not run there. Run the program on Windows itself with AMD's wheels "
        "(https://rocm.docs.amd.com), in WSL with ROCm for WSL (librocdxg and /dev/dxg), or in a "
        "container on a Linux machine"
    )


def devices_for_rocm(context: RuleContext, program: str) -> Fix:
    """What a program's own ROCm build needs to find the GPU, or the way without ROCm."""
    needs = (
        f"The ROCm build of {program} is installed, but ROCm shows it no GPU. The user that runs "
        "it must be able to open /dev/kfd and /dev/dri/renderD* (groups render and video), "
        "HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES must not hide the GPU, and ROCm must "
        "support its target. "
    )
    return Fix(
        text=f"{needs}The Vulkan build of {program}, if its project has one, works without ROCm",
        looks=paste.look("see the nodes and ROCm's list of GPUs", *AMDS_NODES, *ROCMS_GPUS),
    )


ROCMS_GPUS = lines("rocminfo | grep -i gfx")


def is_amds(stack: MakerStack | None) -> bool:
    """Whether the stack is AMD's; an unknown stack counts as AMD's."""
    return stack is None or stack.maker == AMD.id


START = {
    (AMD.id, "docker"): lines(
        "docker run --rm --device /dev/kfd --device /dev/dri --group-add video "
        '--group-add "$(stat -c %g /dev/dri/renderD128)" --security-opt seccomp=unconfined '
        "ubuntu ls -l /dev/kfd /dev/dri"
    ),
    (AMD.id, "podman"): lines(
        "podman run --rm --device /dev/kfd --device /dev/dri --group-add keep-groups "
        "--security-opt seccomp=unconfined ubuntu ls -l /dev/kfd /dev/dri"
    ),
    (INTEL.id, "docker"): lines(
        "docker run --rm --device /dev/dri --group-add video "
        '--group-add "$(stat -c %g /dev/dri/renderD128)" ubuntu ls -l /dev/dri'
    ),
    (INTEL.id, "podman"): lines(
        "podman run --rm --device /dev/dri --group-add keep-groups ubuntu ls -l /dev/dri"
    ),
}
"""A maker and a container program -> the command that starts a container with the GPU's device
nodes. Podman keeps the groups of its user; docker needs the number of the host's group."""


def into_container(context: RuleContext, maker: Maker) -> Fix:
    """Start the container with the maker's GPU; the command is for the host."""
    kind = context.snapshot.container.kind or "docker"
    resource = "amd.com/gpu" if maker is AMD else "gpu.intel.com/xe"
    if kind == "kubernetes":
        return Fix(
            text=f"Request the GPU in the pod's specification (resources.limits `{resource}: 1`); "
            f"the node needs {maker.name}'s device plugin"
        )
    if kind == "lxc":
        devices = "/dev/kfd and /dev/dri/renderD128" if maker is AMD else "/dev/dri/renderD128"
        return Fix(
            text=f"Pass {devices} to the container in its configuration on the host, with the "
            "number of the container's group render (in Proxmox: Resources, Add, Device "
            "Passthrough), and restart the container"
        )
    if kind == "singularity":
        option = "--rocm" if maker is AMD else "--bind /dev/dri"
        return Fix(
            text=f"Start the container with `{option}` (`singularity exec {option} IMAGE …`, "
            "`apptainer` likewise)"
        )
    program = "podman" if kind == "podman" else "docker"
    nodes = "--device /dev/kfd --device /dev/dri" if maker is AMD else "--device /dev/dri"
    return Fix(
        text=f"On the host, add `{nodes}` and the groups of the nodes to your own `{program} run` "
        "(this command tests it with a plain image)",
        commands=START[maker.id, program],
    )


# --- builds ---------------------------------------------------------------------------------------


def build_for_maker(context: RuleContext, stack: MakerStack) -> Fix:
    """Install the build of torch for this maker's GPU."""
    build = paste.chosen_build(context)
    if build is not None and build.backend.startswith(BY_ID[stack.maker].label or "-"):
        return paste.install_torch(context)
    target = first_target(stack)
    # PyTorch's own index has ROCm builds for Linux only; AMD's has them for Windows too.
    if stack.maker == AMD.id and on(context, "windows"):
        return from_amds_index(context, target)
    index = str(BY_ID[stack.maker].index)
    return Fix(
        text=f"Install torch's build for {BY_ID[stack.maker].name}",
        commands=(pip_from(context, index),),
    )


SHOW_A_TORCH = (
    *("torch-not-compiled-with-cuda", "hip-kernel-missing", "no-hip-gpus", "no-nvidia-driver"),
    "ipex",
)
"""Events that only an installed torch can cause."""


def pip_from(
    context: RuleContext, index: str, packages: Sequence[str] = ("torch", "torchvision")
) -> Line:
    """Install torch and the packages that go with it from an index, replacing the installed
    ones."""
    shows_a_torch = events(context, *SHOW_A_TORCH) or any(
        event.values.get("why") == "build" for event in events(context, "no-xpu")
    )
    # Without --force-reinstall, pip keeps another maker's build of the same version.
    replacing = ("--force-reinstall",) if context.torch.version or shows_a_torch else ()
    return paste.pip(context, "install", *replacing, *packages, "--index-url", index)


def without_ipex(context: RuleContext) -> Fix:
    """Replace Intel's extension for PyTorch, which Intel ended in March 2026, by torch's XPU
    build."""
    return Fix(
        text="Remove Intel's extension (intel-extension-for-pytorch, ipex-llm), and install "
        "torch's own XPU build, which replaces it: Intel ended it in March 2026, and it loads "
        'only with the one torch that it was built for. In your code delete "import '
        'intel_extension_for_pytorch" and keep the device "xpu". If torch.xpu then finds no GPU, '
        "update Intel's GPU driver (on Linux with Level Zero and the compute runtime, and join the "
        "group render)",
        commands=(
            paste.pip(context, "uninstall", "-y", "intel-extension-for-pytorch", "ipex-llm"),
            pip_from(context, str(INTEL.index)),
        ),
    )


def pytorchs_index(target: str | None) -> str:
    """The index of PyTorch's ROCm wheels that run on a target: the newest, or the last one whose
    rocBLAS has files for it."""
    last = LAST_ROCM.get(target or "")
    return index_url(f"rocm{last}") if last else str(AMD.index)


def from_amds_index(context: RuleContext, target: str | None) -> Fix:
    """Install AMD's own wheels for a target, if AMD's index has kernels for it."""
    extras = device_extras([target])
    is_linux_only = on(context, "windows") and target not in WINDOWS_TARGETS
    if not extras or is_linux_only:
        this_gpu = f"this GPU ({target})" if target else "this GPU"
        return Fix(
            text=f"AMD's list of PyTorch wheels has none for {this_gpu}. torch's CPU build "
            "works, and there may be a build for WSL or Linux: "
            "https://rocm.docs.amd.com/en/latest/compatibility/compatibility-matrix.html"
        )
    device = ",".join(extras)
    packages = (f"torch[{device}]", f"torchvision[{device}]", "torchaudio")
    text = (
        f"Install AMD's own wheels, which include ROCm and the kernels for {target}. They need "
        "Python 3.11 to 3.14, and on Windows AMD's current Adrenalin driver. (PyTorch's own index "
        "has ROCm builds for Linux only.)"
    )
    python = context.snapshot.python.version
    if python and parsed(python) < parsed(FIRST_PYTHON_OF_AMDS_WHEELS):
        return Fix(
            text=f"{text} Yours is {python}, so create an environment with a newer one",
            commands=with_newer_python(context, INDEX_OF_AMD, packages),
        )
    return Fix(text=text, commands=(pip_from(context, INDEX_OF_AMD, packages),))


FIRST_PYTHON_OF_AMDS_WHEELS = "3.11"
NEW_FOLDER = ".venv-3.12"


def with_newer_python(context: RuleContext, index: str, packages: Sequence[str]) -> Lines:
    """The commands that create an environment with Python 3.12 and install packages there from an
    index."""
    return (
        *lines(f"uv venv --python 3.12 {NEW_FOLDER}"),
        shell_line(
            ("uv", "pip", "install", "--python", NEW_FOLDER, *packages, "--index-url", index),
            context.os.family,
        ),
    )


def first_target(stack: MakerStack) -> str | None:
    """The target of the first GPU that has one."""
    for gpu in stack.gpus:
        if gpu.target:
            return gpu.target
    return None


def kernels_for_target(context: RuleContext, target: str, rocm: str) -> Fix:
    """What to do where the installed ROCm build has no kernels for a target."""
    last = LAST_ROCM.get(target)
    if last and parsed(rocm) > parsed(last):
        return last_rocm_of(context, target)
    first = FIRST_ROCM.get(target)
    version = (context.torch.version or "").partition("+")[0]
    first_torch = FIRST_TORCH.get(target)
    is_older_torch = bool(first_torch and version and parsed(version) < parsed(first_torch))
    if first and (is_older_torch or parsed(rocm) < parsed(first)):
        since = f"torch {first_torch}" if first_torch else f"ROCm {first}"
        fix = paste.install_torch(context) if is_newer_build(context, rocm) else None
        text = (
            f"torch's wheels have kernels for {target} since {since}, but the installed one "
            f"is for ROCm {rocm}. Install a wheel for ROCm {BUILT_FOR_ROCM}. You do not need to "
            "override the target"
        )
        commands = fix.commands if fix else (pip_from(context, str(AMD.index)),)
        return Fix(text=text, commands=commands)
    relative, version = RELATIVES.get(target, ("", ""))
    amds = from_amds_index(context, target)
    ways: list[Alternative] = []
    if amds.commands:
        ways += paste.other(f"AMD's own wheels for {target}", *amds.commands)
    if relative and on(context, "linux"):
        return Fix(
            text=f"None of PyTorch's wheels has kernels for {target}. However, the GPU can run "
            f"those of the related {relative} if you set HSA_OVERRIDE_GFX_VERSION. Many people "
            "use this, but AMD does not support it, so test the results with `gpusetup verify`",
            commands=(paste.setting(context, "HSA_OVERRIDE_GFX_VERSION", version),),
            alternatives=tuple(ways),
        )
    if amds.commands:
        return amds
    return Fix(
        text=f"None of PyTorch's or AMD's wheels has kernels for {target}, and no other target's "
        "kernels run on it. Use the CPU build, another GPU, or a build from your distribution or "
        "the community",
    )


def last_rocm_of(context: RuleContext, target: str) -> Fix:
    """Go back to the last wheels whose rocBLAS has files for a target."""
    last = LAST_ROCM[target]
    return Fix(
        text=f"After ROCm {last}, rocBLAS comes without files for {target}, so that every matrix "
        f"product fails there. Install torch's wheels for ROCm {last}, the last that have them",
        commands=(pip_from(context, pytorchs_index(target)),),
    )


def is_newer_build(context: RuleContext, rocm: str) -> bool:
    """Whether the chosen build is for a newer ROCm than the installed one."""
    build = paste.chosen_build(context)
    if build is None or not build.backend.startswith("rocm"):
        return False
    return parsed(build.backend.removeprefix("rocm")) > parsed(rocm)


def dropped_target(target: str, name: str) -> Fix:
    """What to do with a GPU that ROCm no longer supports."""
    return Fix(
        text=f"{name} is {DROPPED[target]} ({target}): ROCm 4.5 was the last that supported it, "
        "and no override helps, because no current build runs on it. Use torch's CPU build, "
        "another GPU, or a community build for it"
    )


def update_rocm(context: RuleContext, wanted: str, installed: str) -> Fix:
    """Install a torch that works with the machine's ROCm, or update that ROCm."""
    return Fix(
        text=f"Update ROCm on the machine to {wanted} or newer, or install PyTorch's own wheels, "
        f"which include their own ROCm and do not use the installed {installed}",
        commands=(pip_from(context, str(AMD.index)),),
        looks=paste.look(
            "check which ROCm version is installed on the machine",
            *lines("cat /opt/rocm/.info/version"),
        ),
    )


# --- WSL and Apple --------------------------------------------------------------------------------


def rocm_in_wsl(context: RuleContext) -> Fix:
    """What ROCm needs in WSL, where it reaches the GPU through a library and not through
    /dev/kfd."""
    return Fix(
        text="Install AMD's Adrenalin driver on Windows (26.2.2 or newer), then ROCm and "
        "librocdxg inside WSL, as described on AMD's page for WSL "
        "(https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/install/installrad/wsl/howto_wsl.html)."
        " WSL has no /dev/kfd, so do not install amdgpu there. AMD supports Radeon RX 7000 and "
        "9000 and Ryzen AI Max in WSL, not every GPU that Linux supports",
        looks=paste.look(
            "check whether ROCm for WSL is installed",
            *lines("ls /opt/rocm/lib/librocdxg.so* /dev/dxg", "rocminfo | grep -i gfx"),
        ),
    )
