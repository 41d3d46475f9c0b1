"""Texts about installs and builds: facts that are read, and ways out that can be typed."""

from __future__ import annotations

import pytest
from each_row import each
from report_asked import judged, misses

from gpusetup.model.finding import Finding
from gpusetup.report.read import read_report


def root(text: str) -> Finding:
    return next(f for f in judged(text).findings if f.root)


def commands(text: str) -> str:
    fix = root(text).fix
    assert fix is not None
    return "\n".join(fix.commands)


def refused(requirement: str, index: str = "", offered: str = "none") -> str:
    looked = f"Looking in indexes: https://download.pytorch.org/whl/{index}\n" if index else ""
    return (
        f"{looked}ERROR: Could not find a version that satisfies the requirement {requirement} "
        f"(from versions: {offered})\nERROR: No matching distribution found for {requirement}\n"
    )


@each(
    "line",
    (
        "Python 3.9.1 (tags/v3.9.1:1e5d33e, Dec  7 2020) [MSC v.1927 32 bit (Intel)] on win32",
        r"C:\Users\user\AppData\Local\Programs\Python\Python39-32\python.exe -m pip install torch",
        "  cp39-abi3-win32",
        "  cp39-cp39-manylinux2014_i686",
        "creating build\\temp.win32-cpython-39",
        "creating build/temp.linux-i686-3.9",
        "hint: You're on Windows (`win32`), but `torch` has no wheels for it",
        "DEBUG Found `cpython-3.9.19-windows-x86-none` at `C:\\env\\Scripts\\python.exe`",
        '>>> struct.calcsize("P") * 8\n32',
        "('32bit', 'ELF')",
        "Python platform: Linux-5.10.0-8-686-pae-i686-with-glibc2.31",
        "Python version: 3.9 (32-bit runtime)",
    ),
)
def test_a_32_bit_python_is_known_by_whatever_shows_it(line: str) -> None:
    assert read_report(line).python.bits == 32
    assert judged(line + "\n" + refused("torch")).cause == "python-32bit"


@pytest.mark.parametrize(
    "line",
    (
        "Python 3.9.1 (tags/v3.9.1:1e5d33e, Dec  7 2020) [MSC v.1927 64 bit (AMD64)] on win32",
        "Skipping link: none of the wheel's tags match: cp37-cp37m-win32: a/b-cp37-cp37m-win32.whl",
        r"C:\Python39\python.exe -m pip install torch",
        ">>> sys.platform\n'win32'",
        "CPU op-mode(s):                     32-bit, 64-bit",
    ),
)
def test_what_only_looks_like_32_bits_is_not_taken_for_it(line: str) -> None:
    assert read_report(line).python.bits != 32


def test_a_64_bit_banner_outweighs_a_folder_name() -> None:
    banner = "Python 3.9.1 (tags/v3.9.1) [MSC v.1927 64 bit (AMD64)] on win32"
    assert read_report(r"D:\old\Python37-32\x.py" + f"\n{banner}").python.bits == 64


def test_uvs_hint_names_the_system_and_the_locked_index_is_the_request() -> None:
    text = (
        "error: Distribution `torch==2.6.0 @ registry+https://download.pytorch.org/whl/cu126` can't "
        "be installed because it doesn't have a source distribution or wheel for the current "
        "platform\nhint: You're on Windows (`win_amd64`), but `torch` (v2.6.0) only has wheels for "
        "the following platform: `manylinux_2_28_aarch64`\n"
    )
    snapshot = read_report(text)
    assert (snapshot.os.family, snapshot.os.machine) == ("windows", "x86_64")
    build = judged(text).resolution.build
    assert build is not None and (build.torch, build.backend) == ("2.6.0", "cu126")


def test_what_pip_says_of_the_torch_family_is_no_other_packages_trouble() -> None:
    text = (
        "torchvision 0.19.0 requires torch==2.4.0, but you have torch 2.5.0 which is incompatible."
    )
    assert [f.id for f in judged(text).findings] == ["torchvision-mismatch"]


def test_what_bitsandbytes_did_find_is_not_missing() -> None:
    text = "DEBUG: Possible options found for libcudart.so: {PosixPath('/usr/lib/libcudart.so')}"
    assert read_report(text).events == ()


def test_pips_remark_on_other_packages_is_no_python_version() -> None:
    text = (
        "ERROR: Ignored the following versions that require a different python version: 1.26.0 "
        "Requires-Python <3.13,>=3.9; 2.1.0 Requires-Python >=3.10\n"
    )
    assert read_report(text).python.version is None


def test_an_arch_that_torchs_builder_does_not_know_asks_for_a_torch_that_does() -> None:
    text = "ValueError: Unknown CUDA arch (12.0) or GPU not supported"
    judgement = judged(text)
    assert judgement.cause == "arch-too-new-for-wheel"
    build = judgement.resolution.build
    assert build is not None and build.cuda is not None and float(build.cuda) >= 12.8


@pytest.mark.parametrize("arch", ("sm_", "sm_1", "sm_a", "sm_12x"))
def test_an_architecture_that_was_cut_off_is_no_gpu(arch: str) -> None:
    text = f"ptxas fatal   : Value '{arch}' is not defined for option 'gpu-name'"
    assert not read_report(text).gpus


@pytest.mark.parametrize(
    "line",
    (
        "ImportError: cannot import name 'Self' from 'typing' (/usr/lib/python3.10/typing.py)",
        r"ImportError: cannot import name 'Self' from 'typing' (C:\Python310\lib\typing.py)",
        "ImportError: cannot import name 'AutoModel' from partially initialized module "
        "'transformers' (most likely due to a circular import) (/srv/env/lib/x/__init__.py)",
        "AttributeError: module 'asyncio' has no attribute 'coroutine'",
    ),
)
def test_the_librarys_own_modules_and_other_packages_shadow_nothing(line: str) -> None:
    assert judged(line).cause in ("unknown", "program-failed")


SOLVER = (
    "DEBUG Found `cpython-{0}-linux-x86_64-gnu` at `/srv/.venv/bin/python`\n"
    "Using Python {0} environment at: .venv\n"
    "$ uv pip install torch==2.2.2 --index-url https://download.pytorch.org/whl/cu121\n"
    "  × No solution found when resolving dependencies:\n"
)
POETRY = "Unable to find installation candidates for torch (1.13.1)\n"
XFORMERS = (
    "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
    "    PyTorch 2.3.0+cu121 with CUDA 1201 (you have {})\n"
)
SYMBOL = "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"
ANEW = "ImportError: /srv/env/lib/python3.11/site-packages/{}.so: " + SYMBOL
GNU = "#error -- unsupported GNU version! gcc versions later than {} are not supported!"
ARCH = "nvcc fatal   : Unsupported gpu architecture 'compute_{}'"
PTXAS = (
    "torch                  2.9.0+cu130\nptxas fatal   : Value 'sm_121a' is not defined for "
    "option 'gpu-name'\n/home/user/x/bin/ptxas --gpu-name=sm_121a /tmp/a.ptx\n"
)
BESIDE = (
    "PyTorch version: 2.9.0+cu128\n$ pip install fast-kernels\nCollecting fast-kernels\n"
    "  Installing build dependencies ... done\n  Getting requirements to build wheel ... error\n"
    "  File \"<string>\", line 9, in <module>\nModuleNotFoundError: No module named 'torch'\n"
)
NCCL = (
    "PyTorch version: 2.12.0+cu130\nVersions of relevant libraries:\n"
    "[pip3] nvidia-nccl-cu12==2.27.5\n[pip3] nvidia-nccl-cu13==2.28.9\n[pip3] torch==2.12.0\n"
    "ImportError: /srv/env/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined "
    "symbol: ncclCommWindowRegister\n"
)
LOGIN_NODE = (
    "RuntimeError: operator torchvision::nms does not exist\nPyTorch version: 1.9.0+cu102\n"
    "CUDA used to build PyTorch: 10.2\nOS: Ubuntu 20.04 (x86_64)\nIs CUDA available: False\n"
    "GPU models and configuration: No CUDA\nNvidia driver version: No CUDA\n"
    "[pip3] torch==1.9.0\n[pip3] torchvision==0.8.0\n"
)


@each(
    "text, has, never",
    [
        (r"C:\Python\Python311\python.exe" + "\n" + refused("torch==2.6.0+cu124", "cu124"),
         "python-no-wheel|64-bit CPython 3.11|\nuv venv --python 3.11 .venv-3.11\n", ""),
        ("Python 3.8.5\nOS: Windows 10\n" + refused("torch==1.5.1+cpu", offered="0.1.2"),
         "64-bit CPython 3.8", ""),
        ("Using Python 3.13.1 environment at: .venv\n" + refused("torch==2.3.1", "cu121"),
         "--python 3.12", ""),
        (SOLVER.format("3.13.2"), "python-no-wheel", ""),
        (SOLVER.format("3.11.2"), "resolver-conflict", ""),
        (f"Python 3.12.1\nOS: Windows 11\n{POETRY}", "python-no-wheel", ""),
        (POETRY, "no-wheel-for-platform|system", ""),
        ("  × No solution found when resolving dependencies:\n"
         "  ╰─▶ Because torch>=2.1,<=2.4 has no wheels with a matching Python ABI tag and\n"
         "      torch==2.6.0 has no wheels with a matching platform tag, we can conclude\n",
         "python-no-wheel|finds no wheel of torch>=2.1,<=2.4 for this Python", ""),
        (refused("torch==1.15.0", offered="1.13.0, 1.13.1"),
         "wrong-index|1.15.0 does not exist", ""),
        (refused("torch==2.7.0.dev20250101", offered="2.12.0.dev20260301+cu130"),
         "wrong-index", ""),
        ("could not find a version that satisfies the requirement torch==1.10.1+cu111(from "
         "versions 0.1.2, 0.1.2.post1\nERROR: No matching distribution found for "
         "torch==1.10.1+cu111\nmy python 3.11 is new\n", "python-no-wheel", ""),
        ("PS C:\\> python -c 'platform.machine()'\n>>> platform.machine()\n'ARM64'\n"
         + refused("torch==2.5.1"), "no-wheel-for-platform|x86", ""),
        ("Linux pi 5.10.103-v7l+ #1529 SMP Tue Mar 8 12:24:00 GMT 2022 armv7l GNU/Linux\n"
         + refused("torch==2.5.1"), "no-wheel-for-platform|64-bit system", ""),
        ("The conflict is caused by:\n    The user requested nvidia-cublas-cu12==12.4.2.65\n"
         "    torch 2.4.1 depends on nvidia-cublas-cu12==12.1.3.1\n", "resolver-conflict", ""),
        (XFORMERS.format("2.3.0+cpu"), "torch-cpu-build|cu121", ""),
        (XFORMERS.format("2.2.0+cu121"), "extension-abi-mismatch", ""),
        # --- what is built ---
        *((ANEW.format(module), f"extension-abi-mismatch|{distribution}\n", "")
          for module, distribution in (
              ("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu", " flash-attn"),
              ("selective_scan_cuda.cpython-311-x86_64-linux-gnu", " mamba-ssm"),
              ("mmcv/_ext.cpython-311-x86_64-linux-gnu", " mmcv"),
              ("torch_scatter/_version_cuda", " torch-scatter"),
              ("detectron2/_C.cpython-311-x86_64-linux-gnu", "detectron2.git"))),
        (f"ImportError: /srv/job/_C.so: {SYMBOL}", "extension-abi-mismatch", "EXTENSION| -C\n"),
        ("torch                  2.4.1+cu124\nOSError: /srv/env/lib/python3.11/site-packages/"
         "torch_cluster/_knn_cuda.so: undefined symbol: _ZN3c106detail14torchCheckFailEPKcS2_jRKSs",
         "-f https://data.pyg.org/whl/torch-2.4.1+cu124.html\n", ""),
        ("    out = selective_scan_cuda.fwd(u, delta, A)\nRuntimeError: CUDA error: no kernel image "
         "is available for execution on the device\n",
         "extension-arch-mismatch|--no-cache-dir mamba-ssm\n", ""),
        (NCCL, "lie in one folder: remove both, and install the one of torch's CUDA anew",
         "export LD_LIBRARY_PATH"),
        (GNU.format(11), "g++-11|gcc-11", ""),
        ("Cuda compilation tools, release 11.4, V11.4.48\ntorch: 2.1.0+cu118\n" + ARCH.format(89),
         "export CUDA_HOME=/usr/local/cuda-11.8", ""),
        ("Cuda compilation tools, release 13.0, V13.0.88\n" + ARCH.format(70),
         "older than 13.0", ""),
        (PTXAS, "jit-arch-rejected|TRITON_PTXAS_PATH", "cu126"),
        (BESIDE, "build-isolation-no-torch|\nfast-kernels|"
         "install --no-build-isolation fast-kernels\n", "gpusetup install"),
        ("CUDAContextLight.h:9:10: fatal error: cusolverDn.h: No such file or directory",
         "cuda-toolkit-missing", ""),
        # --- another torch than is needed ---
        (LOGIN_NODE, "torchvision-mismatch", ""),
        ("$ uv pip install torch --index-url https://download.pytorch.org/whl/cpu\n"
         " + torch==2.9.1+cpu\n>>> torch.cuda.is_available()\nFalse\n"
         "NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0\n",
         "torch-cpu-build|cu130", ""),
        ("PyTorch version: 2.5.1+rocm6.2\nGPU 0: NVIDIA GeForce RTX 3080\n"
         "Driver Version: 550.54.15\n", "rocm-wheel-on-nvidia", ""),
        ("PyTorch version: 2.8.0+cu128\nIs CUDA available: True\n"
         "GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4070\n"
         "The 32-bit Python 3.8 is not supported by this program.\n", "\nok\n", ""),
    ],
)  # fmt: skip
def test_what_is_told_of_an_install(text: str, has: str, never: str) -> None:
    assert misses(text, has, never) == []
