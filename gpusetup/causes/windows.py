"""Causes on Windows (DLLs, the page file, long paths) and in WSL, whose driver is Windows' own.

Sources, where a record names no other: NVIDIA, "CUDA on WSL User Guide".
"""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import facts, proofs
from gpusetup.evidence.context import RuleContext, events
from gpusetup.fixes import paste
from gpusetup.fixes.drivers import DRIVER_SITE
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.shell import lines

STARTED = r"(?:exit(?:ed)?(?: with)?(?: status)?(?: code)?|status code|return(?:ed)?(?: code)?|terminated:? exit status|ExitCode|Exit code|process finished with exit code)"
"""Words before a program's exit status."""

WSL_LIBRARIES = "/usr/lib/wsl/lib"
"""The folder in which WSL puts the libraries of the driver on Windows."""

(REMOVAL,) = lines(
    "sudo apt purge -y '^(cuda-drivers|libcuda1|nvidia-(driver|open)|(lib)?nvidia-.*-[0-9]{3})'"
)
"""The command that removes the driver's packages from Ubuntu, but keeps CUDA and the container
tools."""


def driver_of_windows(context: RuleContext, floor: str | None) -> Fix:
    """The fix in WSL: update the driver in Windows. It replaces Linux's steps (driver modules,
    device nodes, restart)."""
    return Fix(
        text=f"Install or update the NVIDIA driver in Windows (from {DRIVER_SITE}). Then "
        "update WSL and start it again (this closes open programs in WSL). Do not install a "
        f"Linux driver inside WSL. If one is installed there, remove it (`{REMOVAL}`; if it came "
        "from a .run file: `sudo nvidia-uninstall`)",
        commands=lines("wsl.exe --update", "wsl.exe --shutdown"),
        needs_root=True,
        min_driver=floor,
    )


(VISUAL_CPP_RUNTIME,) = lines("winget install Microsoft.VCRedist.2015+.x64")

LINUX_DRIVER_IN_WSL = Message(
    title="A Linux driver library is installed inside WSL: {path}",
    means=f"WSL's own libcuda is in {WSL_LIBRARIES}. Only that libcuda can reach the driver on Windows.",
    text="Remove the Linux driver's packages from WSL, then start WSL again",
    commands=lambda _: (REMOVAL, *lines("wsl.exe --shutdown")),
    needs_root=True,
)

CAUSES = (
    Cause(
        "windows-dll-missing",
        refuted_by=(Refutation(facts.torchs_dll_fails_only_in_the_program, "dll-load-order"),),
        title="Windows cannot load {dll}: a DLL that it needs is missing or has the wrong version",
        plain="Windows cannot load torch's DLLs: a DLL that they need is missing",
        means="Usually the Visual C++ runtime (msvcp140, vcruntime140_1) is missing or old.",
        text="Install the current Visual C++ runtime (x64) and start the program again. You can "
        "keep the installed torch. If that does not help, reinstall the same release of torch "
        "(instead of 2.4.0, whose wheel lacks libomp140.x86_64.dll, install 2.4.1)",
        # Source: Microsoft, System Error Codes; torch/__init__.py.
        # An extension for another torch also fails with a missing DLL.
        where=(
            lambda context: not events(context, "extension-abi-mismatch", "torchaudio-mismatch"),
        ),
        commands=lambda _: (VISUAL_CPP_RUNTIME,),
        needs_root=True,
        cases=(
            # On a probed machine, torch's files were read without importing torch.
            Message(
                having={"searched": ""},
                only=Severity.WARNING,
                title="The Visual C++ runtime is not installed: {dll} is not in {searched}",
                text="Install the Visual C++ runtime (x64) that torch's DLLs need, then test torch",
                commands=lambda context: (
                    VISUAL_CPP_RUNTIME, paste.command(context, "gpusetup", "verify"),
                ),
                needs_root=True,
            ),
        ),
        asks=('python -c "import torch"',),
        says=(
            says(r"\b[Ff]ailed to load (?P<dll>(?!amdhip|rocm|nvcuda)[\w.+-]{3,60}\.dll)\W{1,3}(?:with )?error(?: code)?:? (?P<code>126|127|1114)\b", example="[10540] Failed to load onnxruntime_providers_cuda.dll, error code: 1114"),
            says(r"\(os error (?P<code>126|127|1114)\)", example="tokenizers: failed to load (os error 126)"),
            says(rf"{STARTED}\W{{0,4}}(?:-1073741515|3221225781)\b", "1073741515", "3221225781", example="Process finished with exit code -1073741515 (0xC0000135)"),
            says(r"Could not find module '[^'\n]{1,200}?[\\/](?P<dll>(?!nvcuda|nvml|cud|cub|cuf|cur|cus|nvrtc|nvJit|nvvm|zlib|libbitsandbytes|libtorchcodec|llama\.|ggml-|amd|rocm|c10|torch|libtorch)[\w.+-]{2,60}\.(?:dll|pyd))' \(or one of its dependencies\)", example="FileNotFoundError: Could not find module 'E:\\x\\lib\\site-packages\\pywhispercpp\\lib\\ggml.dll' (or one of its dependencies). Try using the full path with constructor syntax."),
            says(r"\[WinError (?P<code>126|127|182|193|1114)\](?:.{0,300}?[\\/\"' ](?P<dll>[\w.+-]+\.(?:dll|pyd)))?", unless="libbitsandbytes_|amdhip64|rocm_sdk|intel-ext-pt"),
            says(r"\bErro\w? loading ['\"\u201c][^'\"\u201d\n]{0,200}?[\\/]torch[\\/]lib[\\/](?P<dll>(?!amdhip|rocm)[\w.+-]{3,60}\.dll)['\"\u201d] or one of its dependencies", unless=r"WinError|1455", example='Error loading "C:\\x\\Lib\\site-packages\\torch\\lib\\fbgemm.dll" or one of its dependencies.'),
            says(r"DLL load failed(?:(?: while importing (?P<module>[\w.]+))?:| while importing (?P<module2>[a-z]\w*_\w+)(?=[\s`'\"*.]|$))", unless=r"while importing \w{2,40}_plugin"),
            says(r"Visual C\+\+ Redistributable is not installed", dll="vcruntime140_1.dll"),
            says(r"\b0xc0000135\b", unless=r"\b(?:codes? (?:like|such as)|e\.g\.)"),
        ),
    ),
    Cause(
        "windows-pagefile-too-small",
        certain_if=proofs.message_states_it,
        title="The Windows page file is too small to load torch's DLLs (error 1455)",
        means="Windows reserves memory for CUDA DLLs in every process and DataLoader worker.",
        text="Enlarge the page file (System, Advanced, Performance, Virtual memory) and restart "
        "Windows, or use fewer workers",
        # Source: Microsoft, System Error Codes.
        commands=lambda _: lines("SystemPropertiesPerformance.exe"),
        needs_root=True,
        says=(
            r"\[?(?:WinError|os error) 1455\]?(?:.{0,200}?[\\/\"' ](?P<dll>[\w.+-]+\.dll))?",
            "paging file is too small",
        ),
    ),
    Cause(
        "windows-path-too-long",
        certain_if=proofs.message_states_it,
        title="A path is longer than the 260 characters that Windows allows",
        text="Allow long paths in Windows (as administrator, then restart the program), or move "
        "the environment and the caches of torch.compile and Triton to a folder with a short path",
        # Source: Microsoft, Maximum Path Length Limitation.
        commands=lambda _: lines(
            "Set-ItemProperty HKLM:\\SYSTEM\\CurrentControlSet\\Control\\FileSystem "
            "-Name LongPathsEnabled -Value 1",
            "$env:TORCHINDUCTOR_CACHE_DIR = 'C:\\ti'",
            "$env:TRITON_CACHE_DIR = 'C:\\tr'",
        ),
        needs_root=True,
        says=(
            r"\w+ longer than 260 characters|\[winerror 206\]|windows long path support",
        ),
    ),
    Cause(
        "wsl-driver",
        by_check=True,
        check=CheckCommand("ls -l /dev/dxg /usr/lib/wsl/lib/libcuda.so.1  # in WSL", "ls: cannot access '/dev/dxg': No such file or directory\nls: cannot access '/usr/lib/wsl/lib/libcuda.so.1': No such file or directory"),
        title="WSL cannot use the Windows driver",
        means="Windows has no NVIDIA driver, this is WSL 1, or the GPU is not shared with WSL.",
        text="Install the driver in Windows, update WSL (`wsl --update`), and start WSL again",
        fix_for=lambda context, _: driver_of_windows(
            context, context.catalog.driver_floor("12", "windows")
        ),
        formerly=("wsl-linux-driver",),
        says=(
            says("gpu access blocked", why="blocked"),
            says("wsl environment detected but no adapters", why="adapters"),
            says(r"/usr/lib/wsl/lib/nvidia-smi.{0,40}?Segmentation fault|Segmentation fault.{0,40}?/usr/lib/wsl/lib/nvidia-smi", why="crash", example="/usr/lib/wsl/lib/nvidia-smi\nSegmentation fault (core dumped)"),
            says(r"Driver Version: 0(?![\d.])", why="version-zero", example="Driver Version: 0   CUDA Version: N/A"),
        ),
    ),
)  # fmt: skip
