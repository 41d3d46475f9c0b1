"""Fixes for torch's ROCm builds: a GPU that ROCm's own tools list and torch does not, and libraries
of different releases or builds.

Sources: AMD's pages "GPU isolation techniques" (HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES,
CUDA_VISIBLE_DEVICES) and "Install PyTorch for ROCm" of WSL (the wheel's own libhsa-runtime64).
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import (
    BUILT_FOR,
    INDEX_OF_AMD,
    SERVED_CARDS,
    device_extras,
    gfx_of,
    has_kernels,
)
from gpusetup.accelerators.makers import AMD, INTEL
from gpusetup.catalog.builds import index_url
from gpusetup.evidence.context import RuleContext, events, in_container, on
from gpusetup.evidence.maker_facts import rocm_lists_the_gpu, rocm_of_wheel
from gpusetup.fixes import maker_stacks, paste, system_packages
from gpusetup.fixes.extension_packages import distribution_of
from gpusetup.model.finding import Alternative, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Lines, lines, shell_line

WHAT_TORCH_READS = lines(
    "env | grep -E 'VISIBLE_DEVICES|HSA_'",
    'python -c "import sys, torch; print(sys.executable, torch.__version__, torch.version.hip)"',
    "rocminfo | grep -i gfx",
)


def targets_of_wheel(context: RuleContext) -> str:
    """The targets for which the installed wheel has kernels, with the wheel's ROCm release; for an
    unknown release, the cards of the newest wheels."""
    rocm = rocm_of_wheel(context)
    if not rocm:
        return f"{SERVED_CARDS} (older wheels have kernels for fewer)"
    version = context.torch.version or ""
    targets = [target for target in BUILT_FOR if has_kernels(target, rocm, version) is not False]
    return f"{', '.join(targets)} (at most, in wheels for ROCm {rocm})"


def hidden_from_torch(context: RuleContext, target: str | None) -> Fix:
    """What keeps torch's ROCm build from a GPU that ROCm's own tools list: a variable, another
    Python or torch, or a target without kernels."""
    shown = rocm_lists_the_gpu(context)
    if shown.startswith("rocminfo"):
        works = f"{shown}, so the kernel driver, its device nodes and your permissions work"
    else:
        works = (
            f"{shown}, so the kernel driver works. Only /dev/kfd may still be closed to your user: "
            "run `rocminfo`, which opens it (if that fails, join the groups render and video)"
        )
    if in_container(context):
        works += ". In a container, this must be true inside it"
    if context.os.wsl:
        return Fix(text=f"{works}. {OWN_LIBRARY_IN_WSL}", commands=WITHOUT_OWN_LIBRARY)
    rocm = rocm_of_wheel(context)
    version = context.torch.version or ""
    if target and rocm and has_kernels(target, rocm, version) is False:
        fix = maker_stacks.kernels_for_target(context, target, rocm)
        return replace(fix, text=f"{works}. {fix.text}")
    set_masks = [name for name in AMD.masks if name in context.snapshot.environment]
    masks = set_masks or list(AMD.masks)
    kernels = (
        f"{'This wheel has' if rocm else 'Current wheels of torch have'} kernels for {target}"
        if target in BUILT_FOR
        else "The wheel may also lack kernels for the GPU: it has them for "
        f"{targets_of_wheel(context)}"
    )
    commands = [line for name in masks for line in paste.unset(context, name)]
    return Fix(
        text=f"{works}. First remove the variables that can hide the GPU ({', '.join(masks)}: an "
        "empty value, -1 or a wrong number hides every GPU). Then make sure that the program runs "
        f"the Python and the torch that you expect. {kernels}",
        commands=tuple(commands),
        looks=paste.look("see what torch reads, and the GPU's target", *WHAT_TORCH_READS),
    )


OWN_LIBRARY_IN_WSL = (
    "In WSL, torch must load ROCm's library for WSL. The wheel brings its own in torch/lib, which "
    "does not know WSL, so rename it (libhsa-runtime64.so*). Do so again each time pip has "
    "installed torch. Or install AMD's wheels for WSL "
    "(https://rocm.docs.amd.com)"
)
WITHOUT_OWN_LIBRARY = lines(
    'python -c "import glob, os, torch; '
    "own = os.path.join(os.path.dirname(torch.__file__), 'lib', 'libhsa-runtime64.so*'); "
    "[os.rename(name, name + '.aside') for name in glob.glob(own) if not name.endswith('.aside')]\""
)
"""Renames the library in the folder of the torch that this Python imports. Python finds the folder
and renames, so that nothing is touched if torch cannot be imported."""


def library_of_wsl() -> Fix:
    """ROCm for WSL, and its library in place of the wheel's, if a ROCm build finds no GPU in
    WSL."""
    return Fix(
        text="First `rocminfo` must list the GPU in WSL: if it does not, install AMD's current "
        "Adrenalin driver on Windows, and ROCm for WSL (`amdgpu-install --usecase=wsl,rocm "
        f"--no-dkms`). {OWN_LIBRARY_IN_WSL}",
        commands=WITHOUT_OWN_LIBRARY,
    )


INSIDE_A_WHEEL = r"-packages/(?:torch/lib|_rocm_sdk\w*)/"
"""The folders of ROCm's libraries in the wheels of PyTorch and of AMD."""
WHERE_LOADED = ("echo $LD_LIBRARY_PATH $LD_PRELOAD", "ls -d /opt/rocm*")
UPDATE_ALL = {
    "arch": lines("sudo pacman -Syu"),
    "ubuntu": lines("sudo apt update", "sudo apt full-upgrade"),
    "debian": lines("sudo apt update", "sudo apt full-upgrade"),
    "fedora": lines("sudo dnf upgrade --refresh"),
    "rhel": lines("sudo dnf upgrade --refresh"),
    "suse": lines("sudo zypper refresh", "sudo zypper update"),
}
"""A family of distributions -> the commands that update all packages together."""
OF_ROCM = "grep -iE 'roc|hip|miopen|rccl|hsa'"
INSTALLED_ROCM = {
    "arch": f"pacman -Q | {OF_ROCM}",
    "ubuntu": f"dpkg -l | {OF_ROCM}",
    "debian": f"dpkg -l | {OF_ROCM}",
    "fedora": f"rpm -qa | {OF_ROCM}",
    "rhel": f"rpm -qa | {OF_ROCM}",
    "suse": f"rpm -qa | {OF_ROCM}",
}
"""A family of distributions -> the command that lists ROCm's packages with their releases."""
ANY_SYSTEM = f"(pacman -Q || dpkg -l || rpm -qa) 2>/dev/null | {OF_ROCM}"


def one_release(context: RuleContext, _text: str) -> Fix:
    """Bring all of ROCm's packages to one release, or use the ROCm inside PyTorch's wheel."""
    messages = [event.text or "" for event in events(context, "rocm-libraries-mixed")]
    if any(re.search(INSIDE_A_WHEEL, message) for message in messages):
        return Fix(
            text="This library is part of the wheel, which fits only the wheel's own ROCm "
            "libraries: another ROCm is loaded before them. Remove its folders from "
            "LD_LIBRARY_PATH (and /opt/rocm from LD_PRELOAD). If none is set, install the wheel "
            "again in a new environment",
            commands=paste.without_folders(context, "rocm"),
            looks=paste.look("see where ROCm's libraries come from", *lines(*WHERE_LOADED)),
        )
    family = system_packages.linux_family(context) or ""
    wheel = paste.other(
        "with PyTorch's wheel in a new environment, which includes its own ROCm libraries",
        *_in_new_environment(context),
    )
    packages = INSTALLED_ROCM.get(family, ANY_SYSTEM)
    listing = paste.look(
        "list ROCm's packages, which must all be of one release",
        *lines(packages, "ls -d /opt/rocm*", "echo $LD_LIBRARY_PATH"),
    )
    image = ""
    if in_container(context):
        image = "use another tag of the image, because its maker combined its packages. Otherwise "
    how = (
        "update all of ROCm's packages together with your system's package manager, and the "
        "distribution's torch with them (Arch: pacman -Syu, Debian and Ubuntu: apt, Fedora: dnf). "
        "Also remove folders of another ROCm from LD_LIBRARY_PATH. Reinstalling torch alone does "
        "not help as long as it uses the system's ROCm"
    )
    text = f"{image}{how}"
    return Fix(
        text=f"{text[0].upper()}{text[1:]}",
        commands=() if in_container(context) else UPDATE_ALL.get(family, ()),
        alternatives=wheel,
        looks=listing,
        needs_root=family in UPDATE_ALL,
    )


def one_build(context: RuleContext, _text: str) -> Fix:
    """Use a single prebuilt torch, in an environment without parts of another one."""
    is_xpu = any("xpu" in event.values["library"] for event in events(context, MIXED_BUILDS))
    compiler = "" if is_xpu else f". {SAME_ABI}"
    return Fix(
        text="Make a new environment with one prebuilt torch, and make sure that LD_LIBRARY_PATH "
        "and PYTHONPATH name no folder of another torch. If you compile torch yourself, delete "
        "its build folder and every older copy (libtorch*.so in /usr/local), and compile all of "
        f"it with the same compilers and flags{compiler}",
        commands=_in_new_environment(context, str(INTEL.index) if is_xpu else None),
        looks=paste.look("find every copy of torch's libraries", *COPIES),
    )


MIXED_BUILDS = "torch-builds-mixed"
MIXED_EXTENSION = "extension-abi-mismatch"
SAME_ABI = (
    "HIP's compiler (clang 18 or newer) and gcc name some functions differently, so PyTorch's "
    "build passes -fclang-abi-compat=17 to HIP. If clang compiles the rest too, it needs the same "
    "flag"
)
COPIES = lines(
    "find / -name 'libtorch_cpu.so' -not -path '/proc/*' 2>/dev/null",
    "env | grep -E 'LD_LIBRARY_PATH|PYTHONPATH'",
)


def _in_new_environment(context: RuleContext, index: str | None = None) -> Lines:
    """The commands that install a prebuilt torch in a new environment: from this index, or from the
    one that has kernels for the AMD GPU in the text."""
    if on(context, "windows"):
        return ()
    targets = [gfx_of(gpu.values.get("name", "")) for gpu in events(context, "foreign-gpu")]
    target = next((name for name in targets if name), None)
    packages: tuple[str, ...] = ("torch", "torchvision")
    if index is None:
        index = maker_stacks.pytorchs_index(target)
        extras = device_extras([target])
        # PyTorch's wheels have no kernels for this target, but AMD's have.
        if target not in (None, *BUILT_FOR) and extras:
            index = INDEX_OF_AMD
            packages = tuple(f"{package}[{extras[0]}]" for package in packages)
    return (
        *lines(f"python3 -m venv {NEW_FOLDER}"),
        shell_line(
            (f"{NEW_FOLDER}/bin/python", "-m", "pip", "install", *packages, "--index-url", index),
            context.os.family,
        ),
    )


NEW_FOLDER = ".venv-torch"


def extension_for_rocm(context: RuleContext, _text: str) -> Fix:
    """Another build of a compiled extension, for the installed ROCm build of torch."""
    modules = [event.values.get("module", "") for event in events(context, MIXED_EXTENSION)]
    # The first message names the package's folder or its module, as the title does.
    module = next((name for name in modules if name), "the package")
    package = distribution_of(module) or module
    keep = "Keep torch, ROCm and the driver"
    other_release = (
        f"{keep}, and install another release of {package}, built for this torch and ROCm: the "
        "newest, or the one before if the newest is what fails (a preview may be incomplete)"
    )
    if package == "flash-attn":
        return Fix(
            text=f"{keep}. The easiest way is torch's own attention, which needs no package "
            '(attn_implementation="sdpa" in transformers). Or build flash-attn from source for '
            "this torch: with ROCm's compiler, or set FLASH_ATTENTION_TRITON_AMD_ENABLE=TRUE to "
            "use its Triton kernels, which need no compiler",
        )
    renewed = ("install", "--upgrade", "--force-reinstall", "--no-deps", "--no-cache-dir", package)
    if package == "bitsandbytes":
        return Fix(
            text=f"{other_release}. Its wheels contain libraries for some ROCm releases; for "
            "others build it from source (`cmake -DCOMPUTE_BACKEND=hip -S . && make && pip install "
            ".`)",
            commands=(paste.pip(context, *renewed),),
            looks=paste.look("check it", *lines("python -m bitsandbytes")),
        )
    if package == "xformers":
        release = rocm_of_wheel(context)
        index = index_url(f"rocm{release}") if release else str(AMD.index)
        return Fix(
            text=f"{other_release}. PyTorch's index has its builds for ROCm; those on PyPI are "
            "for CUDA. Programs also run without it (ComfyUI: `--use-pytorch-cross-attention`)",
            commands=(paste.pip(context, *renewed, "--index-url", index),),
        )
    return Fix(
        text=f"{other_release}. The builds on PyPI are usually for CUDA. If its project has none, "
        "build it from source (with PYTORCH_ROCM_ARCH set to the GPU's target), or run without it",
        looks=paste.look("see torch's version and its ROCm", *TORCH_AND_ROCM),
    )


TORCH_AND_ROCM = lines('python -c "import torch; print(torch.__version__, torch.version.hip)"')


NEWEST_GCC = (
    'sudo apt install -y "libstdc++-$(ls /usr/lib/gcc/x86_64-linux-gnu | sort -n | tail -n 1)-dev"'
)
"""ROCm's clang takes the headers of the newest GCC whose folder exists, although these headers may
belong to an older one."""
CPP_HEADERS = {
    "ubuntu": lines(NEWEST_GCC),
    "debian": lines(NEWEST_GCC),
    "fedora": lines("sudo dnf install -y gcc-c++"),
    "rhel": lines("sudo dnf install -y gcc-c++"),
    "suse": lines("sudo zypper install -y gcc-c++"),
    "arch": lines("sudo pacman -S --noconfirm gcc"),
}
"""A family of distributions -> the command that installs the headers of the C++ library."""


def headers_of_cpp(context: RuleContext, _text: str) -> Fix:
    """Install the headers of the C++ library, with which ROCm compiles kernels at run time."""
    family = system_packages.linux_family(context) or ""
    others: tuple[Alternative, ...] = ()
    if family not in CPP_HEADERS and not on(context, "windows"):
        others = (
            *paste.other("on Debian and Ubuntu", *CPP_HEADERS["debian"]),
            *paste.other("on Fedora", *CPP_HEADERS["fedora"]),
        )
    where = "in the image" if in_container(context) else "on this system"
    return Fix(
        text=f"Install the headers of the C++ library {where}: libstdc++-NN-dev on Debian and "
        "Ubuntu (NN: the newest GCC in /usr/lib/gcc/x86_64-linux-gnu, because ROCm's compiler "
        "takes that one), gcc-c++ on Fedora and openSUSE, gcc on Arch. You do not need another "
        "torch or ROCm",
        commands=CPP_HEADERS.get(family, ()),
        alternatives=others,
        looks=()
        if on(context, "windows")
        else paste.look("see which versions of GCC and of the headers are there", *GCC_VERSIONS),
        needs_root=True,
    )


GCC_VERSIONS = lines("ls -d /usr/lib/gcc/*/* /usr/include/c++/*")


BUILD_TOOLS = lines(
    "winget install Microsoft.VisualStudio.2022.BuildTools --override "
    '"--wait --passive --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
)


def openmp_on_windows(context: RuleContext, _text: str) -> Fix:
    """Newer wheels of AMD's, which contain the OpenMP DLL, or the build tools that bring it."""
    target = next(filter(None, map(gfx_of, _names_of_gpus(context))), None)
    newer = maker_stacks.from_amds_index(context, target) if target else None
    return Fix(
        text="Install AMD's newest wheels, which contain the DLL, or Visual Studio's build tools "
        "for C++ (x64). Do not download the DLL from a website",
        commands=newer.commands if newer and newer.commands else BUILD_TOOLS,
        alternatives=paste.other("Visual Studio's build tools", *BUILD_TOOLS)
        if newer and newer.commands
        else (),
        needs_root=True,
    )


def _names_of_gpus(context: RuleContext) -> list[str]:
    """The names of AMD's GPUs in a text."""
    return [gpu.values.get("name", "") for gpu in events(context, "foreign-gpu")]


DEVELOPMENT_FILES = {
    "ubuntu": "rocm-hip-sdk",
    "debian": "rocm-hip-sdk",
    "rhel": "rocm-hip-sdk",
    "suse": "rocm-hip-sdk",
    "fedora": "rocm-hip-devel",
    "arch": "rocm-hip-sdk",
}
"""A family of distributions -> the package with ROCm's headers. Fedora's is its own, the others'
are AMD's and Arch's."""
HEADERS_THERE = lines("ls -d /opt/rocm*", "ls /opt/rocm/include")


def development_files(context: RuleContext, _text: str) -> Fix:
    """Install ROCm's headers, with which extensions and programs are compiled."""
    family = system_packages.linux_family(context) or ""
    package = DEVELOPMENT_FILES.get(family, "")
    return Fix(
        text="Install ROCm's development packages (AMD's rocm-hip-sdk) in the release that the "
        "compiler uses. If they are installed, that release lacks this header: compile with a "
        "newer ROCm, for example in AMD's image rocm/pytorch or by another module of your "
        "cluster. Do not copy a header from another release",
        commands=system_packages.package_of(family, package) if package else (),
        looks=paste.look("see which ROCm releases and headers are there", *HEADERS_THERE),
        needs_root=True,
    )
