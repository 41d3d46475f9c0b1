"""What to do for GPUs of AMD, Intel and Apple: the driver, the device nodes, the build of torch.

Each function looks at one thing that can be wrong and never leads to another maker's build.

Sources: AMD's "Configuring permissions for GPU access", "Running ROCm Docker containers" and
"Install PyTorch for ROCm" of WSL and of Windows (rocm.docs.amd.com), Intel's "PyTorch prerequisites
for Intel GPU", PyTorch's "Getting Started on Intel GPU" and its page on the MPS backend; read in
November 2026.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import (
    BUILT_FOR,
    BUILT_FOR_ROCM,
    DROPPED,
    FIRST_ROCM,
    INDEX_OF_AMD,
    LAST_ROCM,
    RADEON,
    RELATIVES,
    SERVED_CARDS,
    WSL_TARGETS,
    amd_name,
    device_extras,
    gfx_of,
    has_kernels,
)
from gpusetup.accelerators.apple import OLDEST_TORCH_WITH_MPS, oldest_macos
from gpusetup.accelerators.intel import name_with_xpu
from gpusetup.accelerators.makers import AMD, INTEL, Maker, maker_of
from gpusetup.accelerators.other_gpus import has_xpu, maker_named
from gpusetup.catalog.builds import index_url
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import (
    RuleContext,
    events,
    has_nvidia,
    in_container,
    macos_version,
    on,
)
from gpusetup.evidence.maker_facts import (
    intels_extension_fails,
    rocm_lists_the_gpu,
    rocm_of_wheel,
    whys,
)
from gpusetup.fixes import paste
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line, lines
from gpusetup.model.versions import parsed

# --- the kernel driver and its nodes --------------------------------------------------------------

NODE_OPTIONS = {AMD.id: "--device /dev/kfd --device /dev/dri", INTEL.id: "--device /dev/dri"}
"""A maker -> the options with which a container gets the device nodes of its GPUs."""


def load_driver(maker: Maker) -> Fix:
    """Load the maker's kernel driver, which creates the device nodes."""
    driver = "amdgpu" if maker is AMD else "xe"
    kfd = " A kernel without CONFIG_HSA_AMD creates no /dev/kfd." if maker is AMD else ""
    return Fix(
        text=f"Load {driver}{'' if maker is AMD else ' (older GPUs: i915)'}. If it does not load, "
        "`sudo dmesg` shows why: the kernel is older than the GPU, firmware files are missing, "
        f"Secure Boot rejects the module, or a file in /etc/modprobe.d blocks it.{kfd}",
        commands=lines("sudo modprobe amdgpu" if maker is AMD else "sudo modprobe xe"),
        needs_root=True,
    )


def join_groups(context: RuleContext, maker: Maker) -> Fix:
    """Add the user to the groups that own the device nodes; in a container, the host's groups."""
    if in_container(context):
        return into_container(context, maker)
    return Fix(
        text="Join the render and video groups, then log out and in again (a running tmux or "
        "Jupyter keeps the old groups, and a service such as ollama runs as a separate user). "
        "You do not need to reinstall anything",
        commands=lines('sudo usermod -aG render,video "$USER"'),
        needs_root=True,
    )


def into_container(context: RuleContext, maker: Maker) -> Fix:
    """Start the container with the maker's GPU; the command is for the host."""
    options, kind = NODE_OPTIONS[maker.id], context.snapshot.container.kind or "docker"
    # The groups of the nodes are those of the host, by number.
    groups = '--group-add video --group-add "$(stat -c %g /dev/dri/renderD128)"'
    start = f"docker run --rm {options} {groups} ubuntu ls -l /dev/dri"
    return Fix(
        text=f"On the host, add `{options}` and the groups of the nodes to your own `{kind} run` "
        f"(LXC in Proxmox: Device Passthrough; Kubernetes: {maker.name}'s device plugin). Docker "
        "Desktop's virtual machine on Windows has none of these nodes",
        commands=lines(start) if kind == "docker" else (),
    )


def rocm_in_wsl(context: RuleContext) -> Fix:
    """What ROCm needs in WSL, where it reaches the GPU through a library and not through
    /dev/kfd."""
    name, target = board_of(context)
    if target not in (None, *WSL_TARGETS):
        return Fix(
            text=f"ROCm for WSL does not support {name} ({target}), whatever "
            "HSA_OVERRIDE_GFX_VERSION says. Use the GPU on Windows or Linux itself"
        )
    return Fix(
        text="Install AMD's Adrenalin driver on Windows (26.2.2 or newer), then ROCm and "
        "librocdxg inside WSL, as described on AMD's page for WSL "
        "(https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/install/installrad/wsl/howto_wsl.html)."
        " Do not install the driver amdgpu in WSL"
    )


# --- builds of torch ------------------------------------------------------------------------------

SHOW_A_TORCH = (
    *("torch-not-compiled-with-cuda", "hip-kernel-missing", "no-hip-gpus", "no-nvidia-driver"),
    "ipex",
)
"""Events that only an installed torch can cause."""
USE_XPU = (
    'In your own code, replace "cuda" with "xpu"; in a program, choose XPU (or Intel) in its '
    "options or settings"
)


def pip_from(
    context: RuleContext, index: str, packages: tuple[str, ...] = ("torch", "torchvision")
) -> Line:
    """Install torch and the packages that go with it from an index, replacing the installed
    ones."""
    shows_a_torch = events(context, *SHOW_A_TORCH) or "build" in whys(context, "no-xpu")
    # Without --force-reinstall, pip keeps another maker's build of the same version.
    replacing = ("--force-reinstall",) if context.torch.version or shows_a_torch else ()
    return paste.pip(context, "install", *replacing, *packages, "--index-url", index)


def pytorchs_index(target: str | None) -> str:
    """The index of PyTorch's ROCm wheels that run on a target: the newest, or the last one whose
    rocBLAS has files for it."""
    last = LAST_ROCM.get(target or "")
    return index_url(f"rocm{last}") if last else str(AMD.index)


def from_amds_index(context: RuleContext, target: str | None) -> Fix:
    """Install AMD's own wheels for a target; without commands if AMD's index lacks its kernels."""
    extras = device_extras([target])
    if not extras or (on(context, "windows") and target not in RADEON):
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
    return Fix(text=text, commands=(pip_from(context, INDEX_OF_AMD, packages),))


def build_for(context: RuleContext, maker: Maker, target: str | None = None) -> Fix:
    """Install torch's build for a maker's GPU."""
    build = context.choice.build
    if build is not None and build.backend.startswith(maker.label or "-"):
        return paste.install_torch(context)
    if maker is INTEL:
        text = f'Install torch\'s XPU build, which uses this GPU as the device "xpu". {USE_XPU}'
        return Fix(text=text, commands=(pip_from(context, str(INTEL.index)),))
    if on(context, "windows"):
        return from_amds_index(context, target)
    install = pip_from(context, pytorchs_index(target))
    if target is None:
        ways = () if context.os.wsl else paste.other("if the GPU is one of these", install)
        return Fix(
            text=f"Install torch's ROCm build, if it has kernels for this GPU: {SERVED_CARDS} "
            "(`rocminfo | grep gfx` prints the target). Otherwise the CPU build works",
            alternatives=ways,
        )
    text = f"Install torch's ROCm build, which has kernels for {target}"
    return Fix(text=text, commands=(install,))


def kernels_for_target(context: RuleContext, target: str, rocm: str) -> Fix:
    """What to do where a ROCm build has no kernels for a target. `rocm`: the build's ROCm release;
    "" if it is not known."""
    if target in DROPPED:
        return Fix(
            text=f"{target} is {DROPPED[target]}, which ROCm and torch no longer support (ROCm 4.5 "
            "was the last), and no override helps. Use torch's CPU build, or another GPU"
        )
    if on(context, "windows"):
        return from_amds_index(context, target)
    if target in BUILT_FOR:
        last = LAST_ROCM.get(target)
        since = FIRST_ROCM.get(target)
        why = f" since ROCm {since}" if since else ""
        if last:
            why = f" up to ROCm {last}, the last whose rocBLAS has files for it"
        installed = f" The installed one is for ROCm {rocm}." if rocm else ""
        return Fix(
            text=f"PyTorch's ROCm wheels have kernels for {target}{why}.{installed} Install a "
            f"wheel for ROCm {last or BUILT_FOR_ROCM}, and unset HSA_OVERRIDE_GFX_VERSION, which "
            "selects another target",
            commands=(pip_from(context, pytorchs_index(target)),),
        )
    amds = from_amds_index(context, target)
    if target in RELATIVES and on(context, "linux") and not context.os.wsl:
        relative, override = RELATIVES[target]
        variable = paste.setting(context, "HSA_OVERRIDE_GFX_VERSION", override)
        # A build for CUDA or for the CPU ignores ROCm's variables.
        backend = context.torch.backend
        is_rocm = backend != "cpu" and maker_of(backend) in (None, AMD.id)
        return Fix(
            text=f"None of PyTorch's wheels has kernels for {target}, but the GPU can run those of "
            f"the related {relative} if you set HSA_OVERRIDE_GFX_VERSION. AMD does not support "
            "this, so test the results with `gpusetup verify`",
            commands=(variable,) if is_rocm else (pip_from(context, str(AMD.index)), variable),
            alternatives=paste.other(f"AMD's own wheels for {target}", *amds.commands),
        )
    return replace(amds, text=f"PyTorch's wheels have no kernels for {target}. {amds.text}")


def one_release(context: RuleContext, _text: str) -> Fix:
    """Use a prebuilt torch with the libraries that it brings, and no others."""
    return Fix(
        text="PyTorch's wheels bring their own libraries, so LD_LIBRARY_PATH and LD_PRELOAD may "
        "name no folder of ROCm, of oneAPI (setvars.sh) or of another torch. If it still fails, "
        "install torch in a new environment (`gpusetup install --venv .venv-torch`)",
        commands=paste.without_folders(context, "rocm|oneapi"),
    )


# --- which GPU it is ------------------------------------------------------------------------------


def board_of(context: RuleContext) -> tuple[str, str | None]:
    """The name and the target (`gfx1100`) of the first AMD GPU whose target is known: in a message,
    in the list of GPUs, or by the chip's number that rocm-smi prints."""
    machine = context.snapshot
    shown = events(context, "hip-kernel-missing", "foreign-gpu")
    listed = (*(machine.gpus or ()), *(machine.makers.gpus if machine.makers else ()))
    for name in (
        *(event.values.get("gfx") or event.values.get("name", "") for event in shown),
        *(gpu.target or gpu.name for gpu in listed),
    ):
        if target := gfx_of(name):
            return name, target
    for event in events(context, "rocm-lists-gpu"):
        if name := amd_name(event.values.get("chip")) or "":
            return name, gfx_of(name)
    return "This GPU", None


def names_gpu_with_xpu(context: RuleContext) -> bool:
    """Whether a text names an Intel GPU that torch's XPU builds support, in contrast to the older
    graphics of Intel's processors."""
    names = [gpu.values.get("name", "") for gpu in events(context, "foreign-gpu")]
    if any(maker_named(name) is INTEL and has_xpu(name) for name in names):
        return True
    return any(
        device.vendor == INTEL.id and name_with_xpu(device.device_id, device.name)
        for device in context.snapshot.pci_devices or ()
    )


# `Iris Xe`, `UHD Graphics 770`, `HD Graphics 630`.
OLDER_GRAPHICS = re.compile(
    r"(?i)\b(?:Iris(?:\(R\))?(?: Xe| Plus| Pro)?|U?HD Graphics(?: \d{3,4})?)\b"
)


def graphics_without_xpu(context: RuleContext) -> str:
    """The name of older Intel graphics in a text that names no newer Intel GPU; "" if there is
    none."""
    named = (OLDER_GRAPHICS.search(gpu.text or "") for gpu in events(context, "foreign-gpu"))
    return next((match[0] for match in named if match), "")


# --- a text about a GPU of AMD or Intel -----------------------------------------------------------


def first_install(context: RuleContext) -> Fix | None:
    """Install torch for the only GPU in the text, if it is AMD's or Intel's; None for others."""
    makers = vendors_of(context.snapshot) & {AMD.id, INTEL.id}
    if len(makers) != 1 or has_nvidia(context) or on(context, "macos"):
        return None
    if INTEL.id in makers:
        return build_for(context, INTEL) if names_gpu_with_xpu(context) else None
    target = board_of(context)[1]
    is_served = on(context, "windows") or target in BUILT_FOR
    return build_for(context, AMD, target) if is_served else None


def for_amd(context: RuleContext) -> Fix:
    """The fix for an AMD GPU in a text: a build with kernels if those are lacking, the way to the
    GPU if a ROCm build does not reach it, otherwise a ROCm build."""
    target, rocm = board_of(context)[1], rocm_of_wheel(context)
    may_fit = target is None or not rocm or has_kernels(target, rocm) is not False
    # HIP's own words about memory show a ROCm build whose version the text does not have.
    hip_ran = any("HIP " in (event.text or "") for event in events(context, "out-of-memory"))
    finds_none = bool(events(context, "no-hip-gpus"))
    is_rocm = maker_of(context.torch.backend) == AMD.id or finds_none or hip_ran
    finds_none = finds_none or (is_rocm and context.torch.cuda_available is False)
    lacking = bool(
        events(context, "hip-kernel-missing") or (rocm_lists_the_gpu(context) and not may_fit)
    )
    # In WSL, a GPU that AMD does not support there is out of reach, whatever failed.
    not_in_wsl = target not in (None, *WSL_TARGETS, *DROPPED)
    if context.os.wsl and (not_in_wsl or (finds_none and not lacking and target not in DROPPED)):
        return rocm_in_wsl(context)
    has_no_kernels = target not in BUILT_FOR or not may_fit
    # torch counts a GPU without kernels, so a torch that finds none does not reach it.
    is_reached = lacking or target in DROPPED or not finds_none
    if target and (has_no_kernels or (lacking and not rocm)) and is_reached:
        return kernels_for_target(context, target, rocm if is_rocm else "")
    if lacking:
        return Fix(
            text="Install a build of torch with kernels for the GPU. PyTorch's ROCm wheels have "
            f"them for {', '.join(BUILT_FOR)}; AMD's own wheels for more targets",
            looks=paste.look("see the GPU's target", *lines("rocminfo | grep -i gfx")),
        )
    if is_rocm and (finds_none or hip_ran):
        return _reach_the_gpu(context, target)
    if is_rocm:
        return Fix(
            text="Keep the installed torch, which is a ROCm build, and do not install a CUDA "
            "toolkit: a package asks for CUDA's own libraries. Install its build for ROCm, or turn "
            "off the option that needs it (flash-attn: `FLASH_ATTENTION_TRITON_AMD_ENABLE=TRUE`, "
            'or attn_implementation="sdpa")'
        )
    return build_for(context, AMD, target)


def _reach_the_gpu(context: RuleContext, target: str | None) -> Fix:
    """What keeps a ROCm build from the GPU: the rights, the driver, a variable."""
    if on(context, "windows"):
        return from_amds_index(context, target)
    masks = [name for name in AMD.masks if name in context.snapshot.environment] or [*AMD.masks]
    hidden = f"Remove the variables that can hide the GPU ({', '.join(masks)})"
    if rocm_lists_the_gpu(context):
        return Fix(
            text="rocminfo lists the GPU, so the driver and your permissions work. "
            f"{hidden}, and make sure that the program runs the torch that you expect",
            commands=tuple(line for name in masks for line in paste.unset(context, name)),
        )
    return replace(
        join_groups(context, AMD),
        text="The build is right, so see whether your user may use the GPU: `rocminfo` must list "
        "it. If not, join the groups render and video. If /dev/kfd is missing, the kernel has no "
        f"amdgpu driver for this GPU (in a container: `{NODE_OPTIONS[AMD.id]}`). {hidden}",
    )


def for_intel(context: RuleContext) -> Fix:
    """The fix for an Intel GPU in a text: its driver if torch does not reach the GPU, the XPU build
    if it is missing, otherwise how to select the device."""
    why = whys(context, "no-xpu")
    xpu_build = pip_from(context, str(INTEL.index))
    if intels_extension_fails(context):
        return Fix(
            text="Remove Intel's extension, which Intel ended in March 2026, and install torch's "
            'own XPU build. In your code delete "import intel_extension_for_pytorch" and keep the '
            'device "xpu"',
            commands=(
                paste.pip(context, "uninstall", "-y", "intel-extension-for-pytorch", "ipex-llm"),
                xpu_build,
            ),
        )
    if "float64" in why:
        return Fix(
            text='Use float32: `.float()` before `.to("xpu")`, also for arrays from NumPy, which '
            'are float64. Or move this operation to the CPU (`.to("cpu")`). torch before 2.5 needs '
            "float64 even for ordinary operations there: update it"
        )
    if older := graphics_without_xpu(context):
        return Fix(
            text=f"PyTorch's list of Intel GPUs (Arc, Core Ultra, Data Center GPU Max) does not "
            f"have {older}: use torch's CPU build, or OpenVINO, which supports this GPU"
        )
    if why - {"build", None}:
        if in_container(context):
            return into_container(context, INTEL)
        return Fix(
            text="Install Intel's driver for this GPU (on Linux, the compute runtime with Level "
            "Zero: libze1, libze-intel-gpu1; in WSL, also the driver on Windows), as described on "
            "https://docs.pytorch.org/docs/main/notes/get_start_xpu.html, and join the group "
            "`render`. `sycl-ls` must print level_zero:gpu. If it does and torch finds none, "
            "ZE_AFFINITY_MASK or ONEAPI_DEVICE_SELECTOR hides the GPU, or oneAPI's setvars.sh put "
            "other libraries first",
            needs_root=True,
        )
    runs_on_xpu = events(context, "backend-runs") and not events(context, *SHOW_A_TORCH)
    if maker_of(context.torch.backend) == INTEL.id or runs_on_xpu:
        return Fix(text=f'torch\'s XPU build calls this GPU "xpu". {USE_XPU}')
    return build_for(context, INTEL)


# --- a text about a Mac ---------------------------------------------------------------------------

FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
"""The variable that lets torch compute operators on the CPU that mps lacks. It catches an operator
without any code for mps (torch's MPSFallback.mm), and not an error inside the operator's code."""

MPS_WAYS = {
    "tensors": "MPS works, but one tensor of this call is still on the CPU: move the model and "
    'every input to "mps" and keep the result (`x = x.to("mps")`), because `.to()` returns '
    "a copy. `print(x.device)` before the line of your traceback shows which one",
    "types": 'The model and its input differ in type or device: move both to "mps" '
    '(`.to("mps")`), and convert the input with `.to(model.dtype)`. A program often has an '
    "option for float32 (`--no-half`, `--fp32`)",
    "dtype": '"mps" does not support this type: use float32 in place of float64, float16 in '
    "place of float8, and bfloat16 only from macOS 14 with a current torch; or keep these "
    'tensors on "cpu"',
}
"""A reason in torch's message -> what to do."""


def for_mac(context: RuleContext) -> Fix:
    """The fix on a Mac in a text: for what mps lacks if the program already uses it, otherwise how
    to select the device."""
    if events(context, "built-for-another-processor"):
        return native_python(context)
    lacks, why = events(context, "mps-lacks"), whys(context, "mps-lacks")
    if why & {"metal", "macos"}:
        return _reach_metal(context)
    for reason, text in MPS_WAYS.items():
        if reason in why:
            return Fix(text=text)
    if lacks:
        can_fall_back = any("caught" in event.values for event in lacks)
        return Fix(
            text='The program already uses "mps", which lacks this operation: let torch compute '
            f"operators that mps lacks on the CPU ({FALLBACK}=1, set before the program imports "
            "torch), or update torch and macOS. If the error remains, run this part on the CPU "
            '(`.to("cpu")`; sparse tensors: `.to_dense()`)',
            commands=(paste.setting(context, FALLBACK, "1"),) if can_fall_back else (),
        )
    # A text about torch usually comes from an installed torch.
    missing = events(context, "torch-missing") or context.torch.installed is False
    return Fix(
        text='Since torch 1.12, the ordinary wheel uses an Apple GPU as the device "mps". '
        'Replace "cuda" in your code with "mps" or "cpu"',
        commands=(paste.pip(context, "install", "torch", "torchvision"),) if missing else (),
    )


def native_python(context: RuleContext) -> Fix:
    """Replace a translated Python with one for Apple's processors."""
    version = ".".join((context.snapshot.python.version or "3.12").split(".")[:2])
    folder = paste.new_environment_folder(context, version)
    python = f"cpython-{version}-macos-aarch64"
    return Fix(
        text="Create an environment with a Python for Apple silicon (arm64) and install torch "
        "there. torch 2.2.2 is the last release for Intel Macs",
        commands=(
            paste.command(context, "uv", "venv", "--python", python, folder),
            paste.command(context, "gpusetup", "install", "--venv", folder),
        ),
    )


def _reach_metal(context: RuleContext) -> Fix:
    """What to do if torch was built with MPS, but MPS is not available."""
    if context.os.machine == "x86_64":
        return native_python(context)
    macos = macos_version(context)
    oldest = oldest_macos(context.torch.version or OLDEST_TORCH_WITH_MPS)
    if macos and parsed(macos) < parsed(oldest):
        return newer_macos(oldest)
    condition = "This macOS is new enough, so" if macos else f"If macOS is {oldest} or newer,"
    return Fix(
        text=f"{condition} the process does not reach Metal, which a sandbox, an ssh session, a "
        "virtual machine and a container lack: run the program in a terminal of the user who is "
        "logged in at the screen. You do not need another torch"
    )


def newer_macos(macos: str) -> Fix:
    """Update macOS to a version on which torch has MPS."""
    return Fix(
        text=f"Update macOS to {macos} or newer (`sw_vers` prints yours), or install an older "
        'torch that supports MPS on this macOS. As a workaround, use the device "cpu"'
    )


# --- programs, and an index without the build -----------------------------------------------------


def without_torch(context: RuleContext, program: str) -> Fix:
    """The fix for a program without torch on a GPU of AMD or Intel."""
    vulkan = " (set OLLAMA_VULKAN=1 for its server)" if program == "ollama" else ""
    fix = Fix(
        text=f"Use the build of {program} for this GPU (ROCm, Vulkan or "
        f"SYCL, as its project offers). The Vulkan build of {program}{vulkan} does not depend on "
        "ROCm's list of GPUs. Or use its build for the CPU"
    )
    if not events(context, "no-hip-gpus"):
        return fix
    groups = join_groups(context, AMD)
    return replace(
        groups, text=f"ROCm shows {program} no GPU. {groups.text}. Its Vulkan build needs no ROCm"
    )


def engine_for_gpu(context: RuleContext, engine: str) -> Fix:
    """The fix for a program that pins its torch (vLLM, SGLang) on a GPU of AMD or Intel: a build of
    the program, because torch alone cannot be replaced."""
    is_intels = maker_of(context.torch.backend) == INTEL.id or events(context, "no-xpu")
    stack, target = "XPU" if is_intels else "ROCm", board_of(context)[1]
    this_gpu = f"this GPU, a {target}" if target else "this GPU"
    return Fix(
        text=f"{engine} needs the torch that it was built with, so do not reinstall torch alone. "
        f"Use a release or an image of {engine} for {stack} whose torch has kernels for {this_gpu}"
    )


def newest_build(context: RuleContext, maker: Maker) -> Fix:
    """The fix for an installer that found no build of a maker: the maker's newest build for this
    system, never another maker's."""
    if on(context, "macos"):
        return for_mac(context)
    return build_for(context, maker, board_of(context)[1])
