"""Libraries that are loaded wrongly: the wrong libcuda, a folder that is not on the search path, or
a DLL that loads too early."""

from __future__ import annotations

import re

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand
from gpusetup.evidence import proofs
from gpusetup.evidence.command_values import is_a_path
from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.facts import listed_files
from gpusetup.fixes import paste
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix


def _folder_on_the_path(context: RuleContext, text: str) -> Fix:
    """The commands that put the library's folder first in the loader's search path, if a listing
    shows the folder."""
    variable = "PATH" if context.os.family == "windows" else "LD_LIBRARY_PATH"
    for path in listed_files(context):
        folder = re.sub(r"[/\\][^/\\]+$", "", path)
        if is_a_path(folder):
            return Fix(text=text, commands=(paste.prepending(context, variable, folder),))
    return Fix(text=text)


CAUSES = (
    Cause(
        "wrong-libcuda-loaded",
        check=CheckCommand("ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH", "        libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n/usr/local/cuda/lib64/stubs"),
        title="The program does not load the driver's own libcuda: {fact}",
        means="libcuda itself tells the program which CUDA version it supports. If the loader "
        "finds a toolkit's stub or a cuda-compat library first, that library reports a lower "
        "version than the driver's own.",
        text="Keep the driver and torch. Check which libcuda is loaded, and remove folders "
        "called `stubs` or `compat` from LD_LIBRARY_PATH (in a container: from the image). If "
        "the machine has not been restarted since a driver update, restart it. If another "
        "library was built for a newer CUDA version, the traceback names that library",
        # Source: CUDA Compatibility guide; ld.so(8).
        look=(alike.WHICH_LIBCUDA,),
    ),
    Cause(
        "library-not-on-path",
        title="The loader does not search the folder of {library}",
        means="A wheel's libraries are in folders of site-packages that only torch searches. A "
        "program that loads one of these libraries itself needs the library's folder on its path.",
        text="Install nothing. Add the library's folder to LD_LIBRARY_PATH before the program "
        "starts. As an alternative, import torch first in the program, because torch loads its "
        "own CUDA libraries",
        # Source: ld.so(8); torch/__init__.py, _preload_cuda_deps.
        way=_folder_on_the_path,
    ),
    Cause(
        "dll-load-order",
        title="Older DLLs are loaded before torch: {fact}",
        means="A process loads only one copy of each DLL. Qt, OpenCV and other packages include "
        "their own C++ runtime. If that runtime is older than torch's and loads first, torch's "
        "DLLs do not start.",
        text="Keep the installed torch. Import torch first: make `import torch` the first line "
        "of the program, before the package with the older DLLs. As an alternative, update that "
        "package",
        # Source: Microsoft, Dynamic-link library search order; threads of PySide6 and torch 2.9.
    ),
    Cause(
        "extension-needs-libcuda",
        certain_if=proofs.message_states_it,
        title="{library} uses {symbol} from the driver's libcuda but is not linked to libcuda",
        means="Functions whose names begin with `cu` belong to libcuda.so.1, which comes with "
        "the driver. This library is not linked to libcuda, or the loader cannot find libcuda.",
        text="Keep the driver and CUDA: the package must be linked to libcuda (report it to the "
        "package's project). As a workaround, preload the driver's libcuda: set LD_PRELOAD to its "
        "libcuda.so.1 (NixOS: /run/opengl-driver/lib/libcuda.so.1)",
        # Source: cuda.h (the driver API); ld.so(8).
        look=("ldd {path}",),
        says=(says(r"(?P<path>(?:/[\w.+~@-]+)*/(?P<library>[\w.+-]+\.so[.\d]*)): undefined symbol: (?P<symbol>cu(?:Mem|Init|Device|Ctx|Module|Launch|Stream|Event|Func|Link|Graph|Array|Tex|Get|Driver|Pointer|Occupancy|Multicast)\w{2,40})\b", unless=r"lib(?:torch|c10)\w*\.so: undefined|\btriton\b", example="OSError: /srv/x/libggml-cuda.so: undefined symbol: cuMemCreate"),),
        not_examples=("ImportError: /x/flash_attn.so: undefined symbol: cudaLaunch",),
    ),
    Cause(
        "source-checkout-imported",
        certain_if=proofs.folder_of_the_sources_is_read,
        check=CheckCommand('python -c "import vllm; print(vllm.__file__)"  # the package in your traceback', "/home/me/vllm/vllm/__init__.py"),
        title="{fact}",
        plain="Python imports a package from its source folder, not the installed one",
        means="Python looks in the working folder first. A project's source folder lacks the "
        "compiled files that are in its wheel.",
        text="Start the program from another folder, so that Python imports the installed package. "
        "As an alternative, build the checkout (`pip install -e .`). Reinstalling does not help",
        # Source: Python documentation, sys.path.
        kind_of="module-shadowed",
        look=('python -c "import sys; print(sys.path[0])"',),
    ),
    Cause(
        "other-torch-imported",
        check=CheckCommand('python -c "import sys, torch; print(sys.executable, torch.__version__, torch.__file__)"', "/usr/bin/python3 2.4.1+cu121 /home/me/.local/lib/python3.10/site-packages/torch/__init__.py"),
        title="The program does not import the torch that is listed: {fact}",
        means="A second environment, ~/.local or a program's own Python has its own torch.",
        text="Change nothing in this environment. Run the command with the Python that runs the "
        "program to see which torch it imports and from where, then start the program with the "
        "right Python",
        # Source: Python documentation, site and sys.path.
        look=(alike.WHICH_TORCH,),
    ),
    Cause(
        "other-gpu-used",
        check=CheckCommand('python -c "import torch; print([torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())])"', "['NVIDIA GeForce GTX 1080 Ti', 'NVIDIA GeForce RTX 3090']"),
        title="The program does not run on the GPU that is named: {fact}",
        means="A machine may have a second, older GPU, and CUDA may number it first.",
        text="See which GPUs torch lists, and in which order (`torch.cuda.get_device_name(0)` is "
        "the first). Choose the right GPU with CUDA_VISIBLE_DEVICES, and set "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID so that the numbers match those of nvidia-smi",
        # Source: CUDA C++ Programming Guide, environment variables.
    ),
)  # fmt: skip
