"""What projects on top of torch print of themselves and of their compiled parts."""

from __future__ import annotations

import pytest

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.finding import Finding, typed
from gpusetup.report.read import read_report

SILENT = (
    "WARNING: Attempted to use ninja as the BuildExtension backend but we could not find ninja.. "
    "Falling back to using the slow distutils backend.",
    "cannot import name '_C' from 'torch' was what I feared, and it did not come",
    "sparse_attn requires a torch version >= 1.5 and < 2.0",
    "c++ (Ubuntu 9.4.0-1ubuntu1~20.04.1) 9.4.0",
    "the wheel needs an nvidia driver version 555.42.02+",
)


@pytest.mark.parametrize("said", SILENT, ids=lambda said: said[:30])
def test_a_remark_shows_no_cause_and_no_version(said: str) -> None:
    machine = read_report(said)
    assert diagnose(machine, load_catalog()).cause == "unknown"
    assert (machine.torch.version, machine.driver.version) == (None, None)
    assert machine.os.name in (None, "Ubuntu")


def test_torch_and_gpu_are_read_from_what_mmdeploy_prints() -> None:
    machine = read_report(
        "2026-01-02 03:04:05,678 - mmdeploy - INFO - GPU 0,1: Tesla V100-SXM2-32GB\n"
        "2026-01-02 03:04:05,678 - mmdeploy - INFO - PyTorch: 2.5.1"
    )
    assert machine.torch.version == "2.5.1"
    assert [gpu.name for gpu in machine.gpus or ()] == ["Tesla V100-SXM2-32GB"] * 2


def test_a_failure_after_the_start_is_no_failure_to_start() -> None:
    said = "RuntimeError: CUDA error: unknown error"
    later, start = root_of(f"GPU available: True\n{said}"), root_of(said)
    assert (later.id, start.id) == ("cuda-unknown-error", "cuda-unknown-error")
    assert "after CUDA had started" in later.title
    assert "does not start" in start.title


def test_an_unknown_platform_has_the_kernels_that_any_platform_has() -> None:
    said = "Using GPU NVIDIA GeForce RTX 5090\ntorch version: 2.5.1+cu124"
    assert diagnose(read_report(said), load_catalog()).cause == "arch-too-new-for-wheel"


def root_of(text: str) -> Finding:
    return next(f for f in diagnose(read_report(text), load_catalog()).findings if f.root)


def commands_for(text: str) -> str:
    fix = root_of(text).fix
    return "\n".join(typed(fix)) if fix else ""


CUDNN = "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file: No such file or directory"


def test_cudnn_8_is_prescribed_for_whoever_asks_for_it() -> None:
    assert "ctranslate2" in commands_for(f"INFO:faster_whisper: go\n{CUDNN}")
    assert "gpusetup install" not in commands_for(CUDNN)
    assert "torch==2.1.2" in commands_for(f"torch version: 2.1.2+cu121\n{CUDNN}")


def test_a_runtime_of_another_cuda_than_torchs_is_asked_for_by_something_else() -> None:
    lacks = "OSError: libcudart.so.10.2: cannot open shared object file: No such file or directory"
    fix = root_of(f"torch version: 1.11.0+cu113\n{lacks}").fix
    assert fix is not None
    assert "install its build for CUDA 11.3" in fix.text
    assert "gpusetup install" in commands_for(f"torch version: 1.11.0+cu102\n{lacks}")


def test_what_torch_built_by_itself_is_deleted_not_installed() -> None:
    said = "ImportError: /home/me/.cache/torch_extensions/py310_cu121/ops/ops.so: undefined symbol: _Z1aN2at6TensorE"
    assert commands_for(said) == "rm -rf /home/me/.cache/torch_extensions/py310_cu121/ops"


def test_an_extension_in_a_working_copy_has_the_name_of_its_package() -> None:
    said = "ImportError: /srv/detectron2/_C.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC1E"
    assert root_of(said).title.startswith("detectron2 was built for another torch")


def test_libc10_cuda_is_missing_where_torch_is_a_cpu_build() -> None:
    said = "ImportError: libc10_cuda.so: cannot open shared object file: No such file or directory"
    assert "the installed torch is a CPU build" in root_of(said).title
    other = "ImportError: libtorch_cuda_cpp.so: cannot open shared object file: No such file"
    assert "was built for another torch" in root_of(other).title


def test_architectures_to_build_are_those_of_the_gpu_that_is_known() -> None:
    said = "in _get_cuda_arch_flags\nIndexError: list index out of range\n"
    assert "get_device_capability" in commands_for(said)
    assert "TORCH_CUDA_ARCH_LIST=8.6" in commands_for(f"{said}GPU 0: NVIDIA A40 (UUID: GPU-1)")


def test_flash_attention_names_the_gpu_that_is_too_old() -> None:
    said = "RuntimeError: FlashAttention only supports Ampere GPUs or newer."
    assert root_of(f"{said}\nGPU 0: Tesla T4 (UUID: GPU-1)").title.endswith("Tesla T4 is older")
    assert "flash-attn<2" in commands_for(f"{said}\nGPU 0: Tesla T4 (UUID: GPU-1)")
    assert "none of those named here" in root_of(f"{said}\nGPU 0: NVIDIA A40 (UUID: GPU-1)").title


SMI_PROCESSES = """
| NVIDIA-SMI 551.23                 Driver Version: 551.23         CUDA Version: 12.4     |
|   0  NVIDIA GeForce RTX 3060      WDDM  | 00000000:01:00.0  On |                  N/A |
|    0   N/A  N/A      1752    C+G   Insufficient Permissions        N/A      |
|    0                 2424      C   Insufficient Permissions                  |
"""


def test_a_process_that_windows_does_not_name_is_no_missing_right() -> None:
    machine = read_report(SMI_PROCESSES)
    assert not [event for event in machine.events if event.kind == "device-permission"]
    assert diagnose(machine, load_catalog()).cause != "device-permission"
    said = "Failed to initialize NVML: Insufficient Permissions"
    assert root_of(said).id == "device-permission"


def test_a_python_is_no_torch() -> None:
    assert read_report("the PyTorch 3.12 builds fail").torch.version is None


def test_the_kernels_driver_counts_not_the_one_of_a_compatibility_package() -> None:
    said = "Using CUDA 12.9 driver version 575.51.03 with kernel driver version 570.133.20.\n"
    assert read_report(said).driver.version == "570.133.20"


def test_a_driver_in_bold_is_read() -> None:
    assert read_report("**Nvidia driver** version **465.21**").driver.version == "465.21"


@pytest.mark.parametrize(
    ("found", "floor"), [("10010", "440.33"), ("9020", "410.48"), ("11040", "525.60.13")]
)
def test_a_refused_driver_needs_the_next_release_or_from_11_on_the_next_major(
    found: str, floor: str
) -> None:
    said = f"AssertionError: The NVIDIA driver on your system is too old (found version {found})."
    fix = root_of(said).fix
    assert fix is not None
    assert fix.min_driver == floor


def test_an_image_that_names_its_driver_is_not_said_to_need_a_cuda() -> None:
    said = (
        "ERROR: This container was built for NVIDIA Driver Release 575.51 or later, but\n"
        "       version 570.133.20 was detected and compatibility mode is UNAVAILABLE."
    )
    assert "driver 575.51, found driver 570.133.20" in root_of(said).title


NO_SMI = 'error: exec: "nvidia-smi": executable file not found in $PATH: unknown.'


def test_a_container_that_was_given_nothing_is_told_apart_from_one_that_asked_for_nothing() -> None:
    asked = root_of(f"$ docker run --runtime=nvidia --rm my/image nvidia-smi\n{NO_SMI}")
    plain = root_of(f"$ docker run --rm my/image nvidia-smi\n{NO_SMI}")
    assert asked.id == plain.id == "container-no-gpu"
    assert "its command asks for the GPU" in asked.title
    assert "NVIDIA_VISIBLE_DEVICES=all" in commands_for(
        f"$ docker run --runtime=nvidia --rm my/image nvidia-smi\n{NO_SMI}"
    )
    assert "started without a GPU" in plain.title


HOST_LISTS = """
user@host:~$ nvidia-smi -L
GPU 0: NVIDIA A10 (UUID: GPU-11111111-2222-3333-4444-555555555555)
user@host:~$ docker run --rm --gpus all my/image nvidia-smi
No devices were found
"""


def test_a_container_without_its_hosts_gpu_is_not_healthy() -> None:
    assert root_of(HOST_LISTS).title.endswith("its host lists NVIDIA A10")
    outside = HOST_LISTS.replace("docker run --rm --gpus all my/image ", "")
    assert not [
        f
        for f in diagnose(read_report(outside), load_catalog()).findings
        if f.id == "container-no-gpu"
    ]


CL_WARNS = "UserWarning: Error checking compiler version for cl: [WinError 2] not found\n"


def test_a_compiler_that_is_not_found_matters_where_the_build_fails() -> None:
    assert root_of(f"{CL_WARNS}error: command 'cl' failed: None").id == "compiler-missing"
    assert diagnose(read_report(CL_WARNS), load_catalog()).cause == "unknown"


STARTS = (
    (
        "==((====))==  Unsloth 2025.3.9\n   \\\\   /|    NVIDIA GeForce GTX 1080. Num GPUs = 1. Max memory: "
        "8.0 GB. Platform: Linux.\nO^O/ \\_/ \\    Torch: 2.5.1+cu124. CUDA: 6.1. CUDA Toolkit: 12.4.",
        "GTX 1080",
        "2.5.1+cu124",
    ),
    (
        "- **PyTorch Version:** 2.6.0+cu126\n- **Name:** cuda:0 NVIDIA GeForce RTX 3090 : "
        "cudaMallocAsync\n  - **Type:** cuda",
        "RTX 3090",
        "2.6.0+cu126",
    ),
    (
        "2026-01-02 03:04:05,678 | sd | INFO | installer | Torch 2.0.1+cu118\n"
        "2026-01-02 03:04:05,679 | sd | INFO | installer | Torch detected GPU: NVIDIA GeForce RTX "
        "3060 VRAM 12288 Arch (8, 6) Cores 28",
        "RTX 3060",
        "2.0.1+cu118",
    ),
    (
        "torch         : 1.0.0\nnvidia driver : 410.104\ntorch cuda    : 9.0.176 / is available\n"
        "=== Hardware ===\ntorch devices : 1\n  - gpu0      : 11177MB | GeForce GTX 1080 Ti\n\n"
        "=== Environment ===",
        "GTX 1080 Ti",
        "1.0.0",
    ),
)


@pytest.mark.parametrize(("said", "gpu", "torch"), STARTS, ids=lambda value: value[:20])
def test_a_program_that_names_its_gpu_as_it_starts_sees_it(said: str, gpu: str, torch: str) -> None:
    machine = read_report(said)
    assert gpu in (machine.gpus or ())[0].name
    assert (machine.torch.version, machine.torch.cuda_available) == (torch, True)
    assert diagnose(machine, load_catalog()).cause == "ok"


def test_a_program_without_a_gpu_asks_and_does_not_know() -> None:
    asks = "Unsloth: No NVIDIA GPU found? Unsloth currently only supports GPUs!"
    assert root_of(asks).id == "torch-sees-no-gpu"
    assert root_of("No NVIDIA GPU found on this system").id == "no-nvidia-gpu"


def test_a_maker_that_is_only_spoken_of_is_not_in_the_machine() -> None:
    assert read_report("most of these uses AMD GPU, CUDA is not available").gpus is None
    spoken = diagnose(
        read_report("torch.cuda.is_available() False; it uses AMD GPU"), load_catalog()
    )
    assert spoken.cause != "amd-gpu"
    mine = diagnose(
        read_report("torch.cuda.is_available() False; I have an AMD GPU"), load_catalog()
    )
    assert mine.cause == "amd-gpu"


def test_a_call_that_is_not_supported_is_neither_health_nor_a_profile() -> None:
    table = (
        "| NVIDIA-SMI 525.60.13    Driver Version: 525.60.13    CUDA Version: 12.0     |\n"
        "|   0  GRID A100-40C       On   | 00000000:02:01.0 Off |                    0 |\n"
    )
    assert diagnose(read_report(table), load_catalog()).cause == "ok"
    said = f"RuntimeError: CUDA error: operation not supported\n{table}"
    diagnosis = diagnose(read_report(said), load_catalog())
    assert diagnosis.cause == "unknown"
    assert [finding.id for finding in diagnosis.findings] == ["cuda-call-not-supported"]


def test_wsl_1_is_known_by_its_kernel() -> None:
    said = (
        "- Platform: Linux-{}-x86_64-with-glibc2.31\n- PyTorch version (GPU?): 1.12.1+cu116 (False)"
    )
    assert root_of(said.format("4.4.0-19041-Microsoft")).title == "This is WSL 1, which has no GPU"
    later = diagnose(read_report(said.format("5.15.90.1-microsoft-standard-WSL2")), load_catalog())
    assert all("WSL 1" not in finding.title for finding in later.findings)


def test_an_old_release_may_lack_the_kernel_itself_where_its_cuda_is_unknown() -> None:
    said = "PyTorch version: {}\nGPU: NVIDIA RTX A6000\nRuntimeError: CUDA error: no kernel image is available"
    assert root_of(said.format("1.12.1")).id == "no-kernel-image"
    assert root_of(said.format("1.12.1+cu116")).id == "extension-arch-mismatch"
    assert root_of(said.format("2.5.1")).id == "extension-arch-mismatch"


def test_what_was_built_in_a_working_copy_is_built_there_again() -> None:
    said = "ImportError: {}_cuda.cpython-36m-x86_64-linux-gnu.so: undefined symbol: _ZN6caffe28TypeMetaE"
    assert "--no-cache-dir -e ." in commands_for(said.format("/srv/pcdet/ops/nms"))
    packages = "/srv/lib/python3.6/site-packages"
    assert "--no-binary causal-conv1d" in commands_for(said.format(f"{packages}/causal_conv1d"))
    assert "pip install" not in commands_for(said.format(f"{packages}/nms"))


def test_spconv_is_named_for_the_cuda_of_torch() -> None:
    said = "ModuleNotFoundError: No module named 'spconv.core_cc'\n"
    assert "pip install spconv-cu118" in commands_for(f"{said}torch version: 2.1.2+cu118")
    assert "pip install spconv-cu121" in commands_for(f"{said}torch version: 2.1.2+cu121")
    assert "torch.version.cuda" in commands_for(said)


ONLY_WHEELS = "can't be installed because it doesn't have a source distribution or wheel for the current platform"
UV = "error: Distribution `{} @ registry+https://download.pytorch.org/whl/cu126` " + ONLY_WHEELS


def test_uv_names_the_package_that_has_no_wheel() -> None:
    assert root_of(UV.format("torchaudio==2.6.0+cpu")).title.startswith("torchaudio==2.6.0+cpu")
    other = root_of(UV.format("markupsafe==3.0.2"))
    assert other.id == "package-not-found"
    assert other.title.startswith("The installer finds no file of markupsafe==3.0.2")
    both = f"{UV.format('markupsafe==3.0.2')}\n{UV.format('torch==2.5.1+cu126')}"
    assert root_of(both).title.startswith("torch==2.5.1+cu126")


def test_a_program_that_finds_no_gpu_where_torch_sees_one_hides_it() -> None:
    said = "RuntimeError: No CUDA GPUs are available"
    seen = ">>> print(torch.cuda.is_available())\nTrue\n"
    assert "sets CUDA_VISIBLE_DEVICES" in root_of(seen + said).title
    assert root_of(said).title == "torch.cuda.is_available() is False"


def test_a_binary_of_bitsandbytes_is_no_dll_of_torch() -> None:
    said = (
        "CUDA SETUP: Loading binary C:\\env\\bitsandbytes\\libbitsandbytes_cpu.so...\n"
        "[WinError 193] %1 is not a valid Win32 application"
    )
    assert all(event.kind != "windows-dll-missing" for event in read_report(said).events)
    torch = "OSError: [WinError 193] %1 is not valid. Error loading C:\\env\\torch\\lib\\shm.dll"
    assert root_of(torch).id == "windows-dll-missing"


def test_a_plugin_that_torch_builds_is_built_anew() -> None:
    said = "ImportError: DLL load failed while importing nvdiffrast_plugin: not found"
    assert root_of(said).id == "extension-not-built"
    assert "$env:LOCALAPPDATA" in commands_for(said)
    assert "~/.cache/torch_extensions" in commands_for("No module named 'bias_act_plugin'")
    other = "ImportError: DLL load failed while importing _C: not found"
    assert root_of(other).id == "windows-dll-missing"


@pytest.mark.parametrize("word", ["capacity", "capacty"])
def test_the_size_of_the_gpu_is_read_though_torch_misspelt_it(word: str) -> None:
    said = (
        "CUDA out of memory. Tried to allocate 18.00 MiB. GPU 0 has a total "
        f"{word} of 44.50 GiB of which 15.25 MiB is free."
    )
    assert "it has 44.5 GiB" in root_of(said).title
    assert (read_report(said).gpus or ())[0].memory_total_bytes == int(44.5 * (1 << 30))
