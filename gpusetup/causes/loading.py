"""Libraries that are loaded wrongly: another libcuda, a folder off the search path, a DLL too
early."""

from __future__ import annotations

import re

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import proofs
from gpusetup.evidence.command_values import is_a_path
from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.facts import a_copied_runtime_is_loaded, listed_files
from gpusetup.fixes import paste
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix


def _folder_on_the_path(context: RuleContext, text: str) -> Fix:
    """Put the folder of the listed library first in the loader's search path."""
    variable = "PATH" if context.os.family == "windows" else "LD_LIBRARY_PATH"
    for path in listed_files(context):
        folder = re.sub(r"[/\\][^/\\]+$", "", path)
        if is_a_path(folder):
            put_first = paste.prepending(context, variable, folder)
            sentence = text.format(variable=variable, folder=f" ({folder})")
            return Fix(text=sentence, commands=(put_first,))
    return Fix(text=text.format(variable=variable, folder=""))


CAUSES = (
    Cause(
        "wrong-libcuda-loaded",
        check=CheckCommand(
            command="ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH",
            prints=(
                "        libcuda.so.1 (libc6,x86-64) => "
                "/usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
                "/usr/local/cuda/lib64/stubs"
            ),
        ),
        no_command=(
            "the folder to remove is different on each machine, and it may be set "
            "by an image or a module system."
        ),
        title="The program loads another libcuda than the driver's: {fact}",
        plain="The program loads another libcuda than the driver's own",
        means="libcuda itself says which CUDA it supports. A stub of the toolkit or a library of "
        "cuda-compat says less than the driver's own, if the loader finds it first.",
        text="Keep the driver and torch. Look which libcuda is loaded, and take folders called "
        "`stubs` or `compat` out of LD_LIBRARY_PATH (in a container: out of the image). If the "
        "driver was updated and the machine was not restarted since, restart it. If another "
        "library was built for a newer CUDA, the traceback names it",
        proven_by="A message calls the driver too old, and its version is new enough",
        not_when="If the driver is older than the program's CUDA needs, the cause is driver-too-old",
        # Source: CUDA Compatibility guide; ld.so(8).
        by_check=True,
        look=(alike.WHICH_LIBCUDA,),
    ),
    Cause(
        "library-not-on-path",
        no_command=(
            "the folder to add is different on each machine; `python -m pip show -f"
            " PACKAGE` lists the files of a package."
        ),
        title="The loader does not search the folder of {library}",
        plain="A library is there, but the loader does not search its folder",
        means="A wheel's libraries lie in folders of site-packages that only torch looks into. A "
        "program that loads one itself needs the folder on its path.",
        text="Install nothing. Add the library's folder{folder} to {variable} before the program "
        "starts. Or let the program import torch first, which loads its own CUDA libraries",
        proven_by="A program does not find a library, and a listing shows the file",
        not_when="If the file is not there, the cause is cuda-lib-missing",
        # Source: ld.so(8); torch/__init__.py, _preload_cuda_deps.
        stage="import",
        by_check=True,
        way=_folder_on_the_path,
    ),
    Cause(
        "dll-load-order",
        no_command=(
            "the change is one line of your program: `import torch` before every other import."
        ),
        title="Older DLLs are loaded before torch: {fact}",
        plain="Another package loads older DLLs before torch",
        means="A process has one copy of each DLL. Qt, OpenCV and others bring their own C++ "
        "runtime; if it is older than torch's and loads first, torch's DLLs do not start.",
        text="Keep the torch that is there. Import torch first: make `import torch` the first "
        "line of the program, before the package that brings older DLLs. Or update that package",
        proven_by="torch's DLLs do not start (error 1114), and they do if nothing else is loaded",
        not_when="If `import torch` alone fails, the cause is windows-dll-missing",
        # Source: Microsoft, Dynamic-link library search order; threads of PySide6 and torch 2.9.
        stage="import",
        by_check=True,
        cases=(
            Message(
                where=(lambda context: bool(a_copied_runtime_is_loaded(context)),),
                title="A copy of the C++ runtime is loaded instead of Windows' own: {fact}",
                means="Programs take DLLs from the folder of python.exe before those of Windows. A "
                "copy stays as old as it was, and DLLs built with a newer compiler do not start.",
                # Python's own installer puts vcruntime140.dll there, and no msvcp140.dll.
                text="Keep torch, CUDA and Python's own vcruntime140.dll. Rename the msvcp140*.dll "
                "that were copied into the folder named above, so that Windows' own are loaded, "
                "and install the current Visual C++ runtime (x64) from Microsoft. In a conda "
                "environment run `conda update vc14_runtime` instead",
            ),
        ),
    ),
    Cause(
        "extension-needs-libcuda",
        certain_if=proofs.message_states_it,
        no_command="the project that builds the package must link it again.",
        title="{library} uses {symbol} of the driver's libcuda, and is not linked to it",
        plain="A library uses the driver's libcuda, and is not linked to it",
        means="Functions whose names begin with `cu` belong to libcuda.so.1, which comes with the "
        "driver. The library does not ask the loader for it, or the loader does not find it.",
        text="Keep driver and CUDA: the package must be linked to libcuda (report it to its "
        "builder). Until then preload the driver's own: set LD_PRELOAD to its libcuda.so.1 "
        "(NixOS: /run/opengl-driver/lib/libcuda.so.1)",
        proven_by="A symbol of the driver's API is undefined",
        not_when="If the symbol is one of torch's, the cause is extension-abi-mismatch",
        # Source: cuda.h (the driver API); ld.so(8).
        stage="import",
        look=("ldd {path}",),
        says=(
            says(
                r"(?P<path>(?:/[\w.+~@-]+)*/(?P<library>[\w.+-]+\.so[.\d]*)): undefined symbol: (?P<symbol>cu(?:Mem|Init|Device|Ctx|Module|Launch|Stream|Event|Func|Link|Graph|Array|Tex|Get|Driver|Pointer|Occupancy|Multicast)\w{2,40})\b",
                unless=r"lib(?:torch|c10)\w*\.so: undefined|\btriton\b",
            ),
        ),
        examples=("OSError: /srv/x/libggml-cuda.so: undefined symbol: cuMemCreate",),
        not_examples=("ImportError: /x/flash_attn.so: undefined symbol: cudaLaunch",),
    ),
    Cause(
        "source-checkout-imported",
        certain_if=proofs.folder_of_the_sources_is_read,
        check=CheckCommand(
            command=(
                'python -c "import vllm; print(vllm.__file__)"  # the package in your traceback'
            ),
            prints="/home/me/vllm/vllm/__init__.py",
        ),
        no_command=(
            "you only have to start your program from another folder, for example after `cd ~`."
        ),
        title="{fact}",
        plain="Python imports a package from its source folder, not the installed one",
        means="Python looks in the working folder first. A project's sources lack the compiled "
        "files that its wheel has.",
        text="Start the program from another folder; the installed package is then imported. Or "
        "build the checkout (`pip install -e .`). Another installation does not help",
        proven_by="The file that failed lies in a source folder, and not in site-packages",
        not_when="If the file lies in site-packages, the cause is extension-not-built",
        # Source: Python documentation, sys.path.
        kind_of="module-shadowed",
        stage="import",
        by_check=True,
        look=('python -c "import sys; print(sys.path[0])"',),
    ),
    Cause(
        "other-torch-imported",
        check=CheckCommand(
            command=(
                'python -c "import sys, torch; print(sys.executable, '
                'torch.__version__, torch.__file__)"'
            ),
            prints=(
                "/usr/bin/python3 2.4.1+cu121 "
                "/home/me/.local/lib/python3.10/site-packages/torch/__init__.py"
            ),
        ),
        no_command="the Python to start the program with is different on each machine.",
        title="The program imports another torch than the listed one: {fact}",
        plain="The program imports another torch than the one that is listed",
        means="A second environment, ~/.local or a program's own Python has its own torch.",
        text="Change nothing in this environment. Ask the Python that runs the program which torch "
        "it imports and from where, and start the program with the right Python",
        proven_by="The versions that are listed fit each other, and the program says that they do not",
        # Source: Python documentation, site and sys.path.
        stage="import",
        by_check=True,
        look=(alike.WHICH_TORCH,),
    ),
    Cause(
        "other-gpu-used",
        check=CheckCommand(
            command=(
                'python -c "import torch; print([torch.cuda.get_device_name(i) for '
                'i in range(torch.cuda.device_count())])"'
            ),
            prints="['NVIDIA GeForce GTX 1080 Ti', 'NVIDIA GeForce RTX 3090']",
        ),
        no_command="which number your GPU has depends on the other GPUs in the machine.",
        title="The program runs on another GPU than the one that is named: {fact}",
        plain="The program runs on another GPU than the one that is named",
        means="A machine may have a second, older GPU, and CUDA may number it first.",
        text="Ask torch which GPU it takes. Choose the right one with CUDA_VISIBLE_DEVICES, and "
        "set CUDA_DEVICE_ORDER=PCI_BUS_ID so that the numbers are those of nvidia-smi",
        proven_by="A message calls the GPU too old, and the named GPU is new enough",
        # Source: CUDA C++ Programming Guide, environment variables.
        stage="first-kernel",
        by_check=True,
    ),
)
