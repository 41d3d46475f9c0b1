"""Texts about installs and builds: facts that are read, and ways out that can be typed."""

from __future__ import annotations

import pytest
from each_row import each
from report_asked import judged

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
        ">>> sys.maxsize\n2147483647",
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


def test_a_refused_wheel_that_exists_names_the_kind_of_python_and_keeps_the_request() -> None:
    text = r"C:\Python\Python311\python.exe" + "\n" + refused("torch==2.6.0+cu124", "cu124")
    judgement = judged(text)
    assert judgement.cause == "python-no-wheel"
    assert judgement.resolution.build is not None
    assert judgement.resolution.build.backend == "cu124"
    fix = root(text).fix
    assert fix is not None and fix.python == "3.11"
    assert "64-bit CPython 3.11" in fix.text
    assert "uv venv --python 3.11 .venv-3.11" in fix.commands


def test_a_release_older_than_the_catalog_is_not_denied_its_own_python() -> None:
    text = "Python 3.8.5\nOS: Windows 10\n" + refused("torch==1.5.1+cpu", offered="0.1.2")
    assert "64-bit CPython 3.8" in (root(text).fix or pytest.fail("no fix")).text


def test_a_python_that_a_release_never_had_is_told_the_one_it_had() -> None:
    text = "Using Python 3.13.1 environment at: .venv\n" + refused("torch==2.3.1", "cu121")
    fix = root(text).fix
    assert fix is not None and fix.python == "3.12"


def test_a_solver_that_finds_nothing_for_a_pin_beyond_this_python_says_python_no_wheel() -> None:
    text = (
        "DEBUG Found `cpython-3.13.2-linux-x86_64-gnu` at `/srv/.venv/bin/python`\n"
        "Using Python 3.13.2 environment at: .venv\n"
        "$ uv pip install torch==2.2.2 --index-url https://download.pytorch.org/whl/cu121\n"
        "  × No solution found when resolving dependencies:\n"
    )
    assert judged(text).cause == "python-no-wheel"
    assert judged(text.replace("3.13.2", "3.11.2")).cause == "resolver-conflict"


def test_poetry_leaves_open_what_lacks_and_the_catalog_says_it() -> None:
    said = "Unable to find installation candidates for torch (1.13.1)\n"
    assert judged(f"Python 3.12.1\nOS: Windows 11\n{said}").cause == "python-no-wheel"
    open_ = root(said)
    assert open_.id == "no-wheel-for-platform" and "Python or system" in open_.title


def test_a_pin_that_lacks_the_python_and_the_system_wants_another_python_first() -> None:
    text = (
        "  × No solution found when resolving dependencies:\n"
        "  ╰─▶ Because torch>=2.1,<=2.4 has no wheels with a matching Python ABI tag and\n"
        "      torch==2.6.0 has no wheels with a matching platform tag, we can conclude\n"
    )
    finding = root(text)
    assert finding.id == "python-no-wheel"
    assert finding.title.startswith("torch>=2.1,<=2.4 has no wheel for this Python")


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


def test_xformers_for_cuda_beside_a_cpu_torch_wants_the_torch_that_it_was_built_for() -> None:
    text = (
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
        "    PyTorch 2.3.0+cu121 with CUDA 1201 (you have 2.3.0+cpu)\n"
    )
    judgement = judged(text)
    assert judgement.cause == "torch-cpu-build"
    assert judgement.resolution.build is not None
    assert judgement.resolution.build.backend == "cu121"
    assert judged(text.replace("2.3.0+cpu", "2.2.0+cu121")).cause == "extension-abi-mismatch"


@pytest.mark.parametrize(
    ("module", "distribution"),
    (
        ("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu", "flash-attn"),
        ("selective_scan_cuda.cpython-311-x86_64-linux-gnu", "mamba-ssm"),
        ("mmcv/_ext.cpython-311-x86_64-linux-gnu", "mmcv"),
        ("torch_scatter/_version_cuda", "torch-scatter"),
        ("detectron2/_C.cpython-311-x86_64-linux-gnu", "detectron2.git"),
    ),
)
def test_the_extension_to_build_anew_is_named_as_the_installer_knows_it(
    module: str, distribution: str
) -> None:
    text = (
        f"ImportError: /srv/env/lib/python3.11/site-packages/{module}.so: undefined symbol: "
        "_ZN3c105ErrorC2ENS_14SourceLocationESs"
    )
    assert root(text).id == "extension-abi-mismatch"
    last = commands(text).splitlines()[-1]
    assert last.endswith(distribution)


def test_a_module_without_a_name_of_its_own_gets_no_made_up_command() -> None:
    text = "ImportError: /srv/job/_C.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"
    assert "EXTENSION" not in commands(text) and " -C" not in commands(text)


def test_a_library_of_two_cuda_majors_in_one_folder_is_taken_out_and_put_back() -> None:
    text = (
        "PyTorch version: 2.12.0+cu130\nVersions of relevant libraries:\n"
        "[pip3] nvidia-nccl-cu12==2.27.5\n[pip3] nvidia-nccl-cu13==2.28.9\n[pip3] torch==2.12.0\n"
        "ImportError: /srv/env/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined "
        "symbol: ncclCommWindowRegister\n"
    )
    typed = commands(text)
    assert "uninstall -y nvidia-nccl-cu12 nvidia-nccl-cu13" in typed
    assert typed.endswith("install --no-deps nvidia-nccl-cu13==2.28.9")


def test_the_older_compiler_is_the_one_that_nvcc_names() -> None:
    said = "#error -- unsupported GNU version! gcc versions later than {} are not supported!"
    assert "g++-11" in commands(said.format(11)) and "gcc-11" in commands(said.format(11))


def test_an_architecture_that_nvcc_lacks_names_the_toolkit_that_knows_it() -> None:
    text = (
        "Cuda compilation tools, release 11.4, V11.4.48\ntorch: 2.1.0+cu118\n"
        "nvcc fatal   : Unsupported gpu architecture 'compute_89'\n"
    )
    assert "export CUDA_HOME=/usr/local/cuda-11.8" in commands(text)
    gone = "Cuda compilation tools, release 13.0, V13.0.88\nnvcc fatal   : Unsupported gpu architecture 'compute_70'"
    assert "older than 13.0" in (root(gone).fix or pytest.fail("no fix")).text


def test_triton_is_given_a_newer_ptxas_where_no_torch_has_a_newer_cuda() -> None:
    text = (
        "torch                  2.9.0+cu130\nptxas fatal   : Value 'sm_121a' is not defined for "
        "option 'gpu-name'\n/home/user/x/bin/ptxas --gpu-name=sm_121a /tmp/a.ptx\n"
    )
    judgement = judged(text)
    assert judgement.cause == "jit-arch-rejected"
    assert "TRITON_PTXAS_PATH" in commands(text) and "cu126" not in commands(text)
    gpus = judgement.snapshot.gpus or ()
    assert [str(gpu.compute_capability) for gpu in gpus] == ["12.1"]


def test_a_release_that_never_came_out_is_not_promised_for_another_python() -> None:
    finding = root(refused("torch==1.15.0", offered="1.13.0, 1.13.1"))
    assert finding.id == "wrong-index" and "1.15.0 does not exist" in finding.title


def test_versions_that_a_person_typed_without_the_colon_are_read() -> None:
    text = (
        "could not find a version that satisfies the requirement torch==1.10.1+cu111(from versions "
        "0.1.2, 0.1.2.post1\nERROR: No matching distribution found for torch==1.10.1+cu111\n"
        "my python 3.11 is new\n"
    )
    assert judged(text).cause == "python-no-wheel"
    assert read_report(text).python.version == "3.11"


def test_a_build_beside_an_installed_torch_is_not_told_to_install_it() -> None:
    text = (
        "PyTorch version: 2.9.0+cu128\n$ pip install fast-kernels\nCollecting fast-kernels\n"
        "  Installing build dependencies ... done\n  Getting requirements to build wheel ... error\n"
        "  File \"<string>\", line 9, in <module>\nModuleNotFoundError: No module named 'torch'\n"
    )
    finding = root(text)
    assert finding.id == "build-isolation-no-torch" and finding.title.startswith("fast-kernels")
    assert commands(text).endswith("install --no-build-isolation fast-kernels")
    assert "gpusetup install" not in commands(text)
    assert [f.id for f in judged(text).findings if f.id == "torch-missing"] == []


def test_what_pip_says_of_the_torch_family_is_no_other_packages_trouble() -> None:
    text = (
        "torchvision 0.19.0 requires torch==2.4.0, but you have torch 2.5.0 which is incompatible."
    )
    assert [f.id for f in judged(text).findings] == ["torchvision-mismatch"]


@pytest.mark.parametrize(
    ("shown", "machine", "way"),
    (
        ("PS C:\\> python -c 'platform.machine()'\n>>> platform.machine()\n'ARM64'\n", "aarch64", "x86"),
        ("Linux pi 5.10.103-v7l+ #1529 SMP Tue Mar 8 12:24:00 GMT 2022 armv7l GNU/Linux\n", "armv7l", "64-bit system"),
    ),
)  # fmt: skip
def test_a_machine_without_any_wheel_is_told_what_has_them(
    shown: str, machine: str, way: str
) -> None:
    text = shown + refused("torch==2.5.1")
    assert read_report(text).os.machine == machine
    finding = root(text)
    assert finding.id == "no-wheel-for-platform"
    assert finding.fix is not None and way in finding.fix.text


def test_a_compiled_module_that_is_called_is_the_one_without_kernels() -> None:
    text = (
        "    out = selective_scan_cuda.fwd(u, delta, A)\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    finding = root(text)
    assert finding.id == "extension-arch-mismatch" and "supports" not in finding.title
    assert commands(text).endswith("--no-cache-dir mamba-ssm")


def test_geometrics_wheels_come_from_the_page_of_the_torch_that_is_there() -> None:
    text = (
        "torch                  2.4.1+cu124\nOSError: /srv/env/lib/python3.11/site-packages/"
        "torch_cluster/_knn_cuda.so: undefined symbol: _ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
    )
    assert commands(text).endswith("-f https://data.pyg.org/whl/torch-2.4.1+cu124.html")


def test_a_conflict_without_its_first_line_is_still_one() -> None:
    text = (
        "The conflict is caused by:\n    The user requested nvidia-cublas-cu12==12.4.2.65\n"
        "    torch 2.4.1 depends on nvidia-cublas-cu12==12.1.3.1\n"
    )
    assert judged(text).cause == "resolver-conflict"


def test_a_torchvision_that_fails_on_a_login_node_is_no_driver_that_is_missing() -> None:
    text = (
        "RuntimeError: operator torchvision::nms does not exist\nPyTorch version: 1.9.0+cu102\n"
        "CUDA used to build PyTorch: 10.2\nOS: Ubuntu 20.04 (x86_64)\nIs CUDA available: False\n"
        "GPU models and configuration: No CUDA\nNvidia driver version: No CUDA\n"
        "[pip3] torch==1.9.0\n[pip3] torchvision==0.8.0\n"
    )
    assert judged(text).cause == "torchvision-mismatch"


def test_what_bitsandbytes_did_find_is_not_missing() -> None:
    text = "DEBUG: Possible options found for libcudart.so: {PosixPath('/usr/lib/libcudart.so')}"
    assert read_report(text).events == ()


def test_pips_remark_on_other_packages_is_no_python_version() -> None:
    text = (
        "ERROR: Ignored the following versions that require a different python version: 1.26.0 "
        "Requires-Python <3.13,>=3.9; 2.1.0 Requires-Python >=3.10\n"
    )
    assert read_report(text).python.version is None


def test_a_nightly_that_was_deleted_is_not_promised_for_another_python() -> None:
    finding = root(refused("torch==2.7.0.dev20250101", offered="2.12.0.dev20260301+cu130"))
    assert finding.id == "wrong-index"


def test_a_cpu_build_that_was_asked_for_beside_a_gpu_is_replaced_by_one_with_cuda() -> None:
    text = (
        "$ uv pip install torch --index-url https://download.pytorch.org/whl/cpu\n"
        " + torch==2.9.1+cpu\n>>> torch.cuda.is_available()\nFalse\n"
        "NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0\n"
    )
    judgement = judged(text)
    assert judgement.cause == "torch-cpu-build"
    assert judgement.resolution.build is not None
    assert judgement.resolution.build.backend == "cu130"


def test_rocms_torch_beside_nvidias_driver_is_the_wrong_wheel() -> None:
    text = "PyTorch version: 2.5.1+rocm6.2\nGPU 0: NVIDIA GeForce RTX 3080\nDriver Version: 550.54.15\n"
    assert judged(text).cause == "rocm-wheel-on-nvidia"


def test_an_arch_that_torchs_builder_does_not_know_asks_for_a_torch_that_does() -> None:
    text = "ValueError: Unknown CUDA arch (12.0) or GPU not supported"
    judgement = judged(text)
    assert judgement.cause == "arch-too-new-for-wheel"
    build = judgement.resolution.build
    assert build is not None and build.cuda is not None and float(build.cuda) >= 12.8


def test_cudas_headers_that_an_extension_lacks_are_the_toolkits() -> None:
    text = "CUDAContextLight.h:9:10: fatal error: cusolverDn.h: No such file or directory"
    assert judged(text).cause == "cuda-toolkit-missing"


@pytest.mark.parametrize("arch", ("sm_", "sm_1", "sm_a", "sm_12x"))
def test_an_architecture_that_was_cut_off_is_no_gpu(arch: str) -> None:
    text = f"ptxas fatal   : Value '{arch}' is not defined for option 'gpu-name'"
    assert not read_report(text).gpus


def test_advice_about_32_bits_beside_a_torch_that_runs_is_no_32_bit_python() -> None:
    text = (
        "PyTorch version: 2.8.0+cu128\nIs CUDA available: True\n"
        "GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4070\n"
        "The 32-bit Python 3.8 is not supported by this program.\n"
    )
    assert judged(text).cause == "ok"


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
