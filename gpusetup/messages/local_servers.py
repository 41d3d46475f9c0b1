"""Messages of small servers and of what ends with a code of Windows: whisper.cpp, Tabby, GPUStack, Xinference, ExLlama.

Sources, as of November 2026: whisper.cpp's src/whisper.cpp, GPUStack's detectors and worker, Xinference's
core/worker.py, ExLlamaV2's ext.py, numba's cudadrv/nvvm.py, Tabby's crates/llama-cpp-server, ctypes, and
Microsoft's "NTSTATUS Values".
"""

from __future__ import annotations

from gpusetup.messages.own import own
from gpusetup.messages.row import row

STARTED = r"(?:exit(?:ed)?(?: with)?(?: status)?(?: code)?|status code|return(?:ed)?(?: code)?|terminated:? exit status|ExitCode|Exit code|process finished with exit code)"
"""How a program is said to have ended."""

SERVERS = (
    row(
        "program-sees-no-gpu",
        "whisper_backend_init_gpu: no gpu found",
        program="whisper.cpp",
    ),
    row(
        "program-sees-no-gpu",
        "no gpu detectors available",
        r"No GPU detectors available for (?:cuda|rocm|musa|npu)",
        program="GPUStack",
    ),
    own(
        "GPUStack",
        "detector fastfetch is not available",
        says="cannot start fastfetch, by which it sees the machine",
        way="Start the file that the log names by hand to see why, then `gpustack download-tools`; "
        "its container brings all of it",
    ),
    own(
        "Xinference",
        "no available slot found for the model",
        says="has no free GPU for another model",
        way="End a model that runs (`xinference terminate`), or name a GPU for several models "
        "(`--gpu-idx`, XINFERENCE_ALLOW_MULTI_REPLICA_PER_GPU=1)",
    ),
    row(
        "extension-not-built",
        "is not defined",
        r"NameError: name 'exllama(?:v[23])?_ext(?:_c)?' is not defined",
        module="exllamav2",
    ),
    own(
        "CuPy",
        "multiple cupy packages are installed",
        says="is installed more than once, in packages for different CUDA versions",
        way="Remove all of them (`pip uninstall cupy cupy-cuda11x cupy-cuda12x cupy-cuda13x`), then "
        "install the one for the CUDA that this driver serves",
    ),
    own(
        "numba",
        "no supported gpu compute capabilities found",
        says="finds no GPU generation that it and its CUDA toolkit both know: the toolkit is older "
        "than this numba takes",
        way="Install `numba-cuda[cu12]` (or `[cu13]`), which brings a toolkit that fits, and let "
        "CUDA_HOME name no older one",
    ),
    own(
        "numba",
        "is unsupported by numba",
        r"CUDA Toolkit \d{1,2}\.\d is unsupported by Numba",
        says="takes no toolkit as old as this one",
        way="Install `numba-cuda[cu12]` (or `[cu13]`), and let CUDA_HOME name no older toolkit",
    ),
)

ENDINGS = (
    row(
        "windows-dll-missing",
        "1073741515",
        rf"{STARTED}\W{{0,4}}-1073741515\b",
    ),
    row(
        "windows-dll-missing",
        "0xc0000135",
        r"\b0xc0000135\b",
        unless=r"\b(?:codes? (?:like|such as)|e\.g\.)",
    ),
    row("windows-dll-missing", "3221225781", rf"{STARTED}\W{{0,4}}3221225781\b"),
    row(
        "windows-dll-missing",
        "(or one of its dependencies)",
        r"Could not find module '[^'\n]{1,200}?[\\/](?P<dll>(?!nvcuda|nvml|cud|cub|cuf|cur|cus|nvrtc|nvJit|nvvm|zlib|libbitsandbytes|libtorchcodec|llama\.|ggml-|amd|rocm|c10|torch|libtorch)[\w.+-]{2,60}\.(?:dll|pyd))' \(or one of its dependencies\)",
    ),
)

ROWS = (*SERVERS, *ENDINGS)
