"""Messages of AMD's, Intel's and Apple's software that show a reached GPU: the answer names what
the message is about, and does not begin with the driver."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines


def everything_to_do(answer: DoctorAnswer) -> str:
    """The main finding's fix: its sentence and all of its commands."""
    fix = answer.findings[0].fix
    assert fix is not None
    return "\n".join((fix.text, *command_lines(fix)))


FLOAT64 = (
    # the text, the cause, words of the fix, words that never stand in it
    (
        "Arc A380, torch 2.4.0+xpu in a venv\n>>> loss = criterion(output, target)\nRuntimeError: "
        "Required aspect fp64 is not supported on the device",
        "intel-gpu", "whl/xpu", "render",
    ),
    (
        'Arc A750, torch 2.7.1+xpu\n>>> torch.xpu.is_available()\nTrue\n>>> x.double().to("xpu")'
        ".sum()\nRuntimeError: Required aspect fp64 is not supported on the device",
        "intel-gpu", "OverrideDefaultFP64Settings=1", "pip install",
    ),
    (
        "Windows 11, Iris Xe, torch 2.6.0+xpu\nRuntimeError: The device does not support double "
        "precision",
        "intel-gpu", "$env:IGC_EnableDPEmulation", "driver is",
    ),
    (
        "import intel_extension_for_pytorch as ipex\nArc A770, torch 2.1.0a0+cxx11.abi\nerror: "
        "Double type is not supported on this platform.",
        "intel-gpu", "uninstall -y intel-extension-for-pytorch", "whl/cu",
    ),
    (
        "MacBook M1\nTypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework "
        "doesn't support float64. Please use float32 instead.",
        "apple-silicon", "float32", "IGC_EnableDPEmulation",
    ),
    (
        "Arc A770, torch 2.8.0+xpu\nRuntimeError: No XPU devices are available.",
        "intel-gpu", "Level Zero", "float32",
    ),
)  # fmt: skip


@each("text, cause, words, never", FLOAT64)
def test_a_gpu_without_float64_is_no_missing_device(
    text: str, cause: str, words: str, never: str
) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    to_do = everything_to_do(answer)
    assert words in to_do
    assert never not in to_do


FALLBACK = "export PYTORCH_ENABLE_MPS_FALLBACK"
ON_MPS = (
    # the text, words of the fix, words that never stand in it
    (
        "MacBook M1, Python in /Users/u/p/.venv/lib/python3.11/site-packages\nRuntimeError: Conv3D "
        "is not supported on MPS",
        "install --upgrade torch torchvision", FALLBACK,
    ),
    ("Mac M2\nTypeError: unsupported dtype complex64 for the MPS device", "update torch", FALLBACK),
    (
        "Mac M2\n/x/MPSGraph.mm:99: failed assertion `Error: MLIR pass manager failed'",
        "install --upgrade torch torchvision", FALLBACK,
    ),
    (
        "Mac M1: NotImplementedError: The operator 'aten::_linalg_svd.U' is not currently "
        "implemented for the MPS device.",
        FALLBACK, "does not help",
    ),
    (
        "Mac M1, I have already set PYTORCH_ENABLE_MPS_FALLBACK=1\nRuntimeError: ConvTranspose3D "
        "is not supported on MPS",
        "update torch", FALLBACK,
    ),
    (
        'Mac M1\nos.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"\nNotImplementedError: The '
        "operator 'aten::x' is not currently implemented for the MPS device.",
        "update torch", FALLBACK,
    ),
)  # fmt: skip


@each("text, words, never", ON_MPS)
def test_torchs_fallback_is_for_missing_operators_alone(text: str, words: str, never: str) -> None:
    answer = read_report(text)
    assert answer.cause == "apple-silicon"
    to_do = everything_to_do(answer)
    assert words in to_do
    assert never not in to_do


NO_HIP = "RuntimeError: No HIP GPUs are available"
LISTED_BY_ROCM = (
    # the text, words of the fix, words that never stand in it
    (
        f"Fedora, torch 2.4.1+rocm6.1\n{NO_HIP}\n$ rocminfo\n  Name:                 gfx1201\n"
        "  Device Type:          GPU",
        "the installed one is for ROCm 6.1", "modprobe",
    ),
    (
        f"torch 2.6.0+rocm6.2.4\n{NO_HIP}\n$ rocminfo\n  Chip ID:          26591(0x67df)",
        "no longer support", "unset",
    ),
    (
        f"WSL2, RX 7900 XT, torch 2.6.0+rocm6.2.4\n{NO_HIP}\nrocminfo shows gfx1100",
        "libhsa-runtime64.so", "unset",
    ),
)  # fmt: skip


@each("text, words, never", LISTED_BY_ROCM)
def test_a_gpu_that_rocm_lists_needs_no_driver(text: str, words: str, never: str) -> None:
    answer = read_report(text)
    assert answer.cause == "amd-gpu"
    assert answer.certainty == "likely"
    to_do = everything_to_do(answer)
    assert words in to_do
    assert never not in to_do


VENV = "/home/u/.venv/lib/python3.12/site-packages"
UNDEFINED_SYMBOLS = (
    # the text, the cause, words of the fix, words that never stand in it
    (
        "Ubuntu 24.04, MI210\n/opt/rocm/lib/libamdhip64.so.6: version `hip_6.3' not found "
        "(required by /opt/rocm/lib/librccl.so.1)",
        "maker-libraries-mixed", ".venv-torch/bin/python -m pip install torch", "modprobe",
    ),
    (
        f"RX 7900 XTX, torch 2.7.1+rocm6.3\nImportError: {VENV}/torch/lib/librocsolver.so: "
        "undefined symbol: rocblas_internal_foo",
        "maker-libraries-mixed", "LD_LIBRARY_PATH=", "pacman",
    ),
    (
        "Fedora 42, 5700 XT, I built torch\nImportError: /usr/local/lib64/python3.13/site-packages/"
        "torch/lib/libtorch_hip.so: undefined symbol: _ZNK2at10TensorBase14const_dataIN3c104",
        "maker-libraries-mixed", "device-gfx1010", "HSA_OVERRIDE",
    ),
    (
        f"RTX 4090, torch 2.4.0+cu124\nOSError: {VENV}/bitsandbytes/libbitsandbytes_cuda124.so: "
        "undefined symbol: cgemm_4bit_inference_naive_fp16",
        "extension-abi-mismatch", "bitsandbytes", "ROCm",
    ),
)  # fmt: skip


@each("text, cause, words, never", UNDEFINED_SYMBOLS)
def test_an_undefined_symbol_is_judged_by_the_place_of_the_library(
    text: str, cause: str, words: str, never: str
) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    to_do = everything_to_do(answer)
    assert words in to_do
    assert never not in to_do


def test_a_foreign_symbol_of_any_package_is_no_fault_of_torch() -> None:
    text = f"RX 7900 XTX\nImportError: {VENV}/mypkg/_ext.so: undefined symbol: my_function"
    assert read_report(text).cause == "unknown"


PICKLE = (
    "PicklingError: Can't pickle <function <lambda> at 0x13f>: attribute lookup <lambda> failed"
)
UNPICKLABLE = (
    # the text, the cause, words of the fix
    (f"MacBook M1, next(iter(test_loader))\n{PICKLE}", "worker-cannot-pickle", "num_workers=0"),
    (f"MacBook M1, training\n{PICKLE}", "worker-cannot-pickle", "named function"),
    (
        "Windows 11, RTX 3060\nmultiprocessing\\popen_spawn_win32.py\nAttributeError: Can't "
        "pickle local object 'f.<locals>.<lambda>'",
        "worker-cannot-pickle", "__main__",
    ),
    (
        "Mac M2: torch.save(model): AttributeError: Can't pickle local object 'f.<locals>.g'",
        "program-failed", "",
    ),
)  # fmt: skip


@each("text, cause, words", UNPICKLABLE)
def test_a_lambda_that_a_worker_cannot_receive_is_no_question_of_cuda(
    text: str, cause: str, words: str
) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    assert words in everything_to_do(answer)


LOOKS_UP_XPU = "AttributeError: module 'torch' has no attribute 'xpu'"
TOO_OLD = (
    # the machine, the error, what helps, what must not be advised
    (f"RTX 3090, Ubuntu, torch 2.0.1+cu118\n{LOOKS_UP_XPU}", "package in the traceback", "whl/xpu"),
    (f"Arc A770, Ubuntu, torch 2.0.1\n{LOOKS_UP_XPU}", "whl/xpu", "package in the traceback"),
    (
        "RTX 3090, Ubuntu, torch 1.13.1+cu117\n"
        "AttributeError: module 'torch' has no attribute 'mps'",
        "package in the traceback",
        "Apple silicon",
    ),
    ("MacBook Pro M1\nAttributeError: module 'torch' has no attribute 'mps'", "arm64", "whl/xpu"),
)


@each("text, helps, never", TOO_OLD)
def test_a_device_that_torch_does_not_know_is_no_reason_for_another_makers_build(
    text: str, helps: str, never: str
) -> None:
    answer = read_report(text)
    to_do = everything_to_do(answer)
    assert answer.cause == "torch-lacks-device"
    assert helps in to_do and never not in to_do
