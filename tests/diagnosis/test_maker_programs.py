"""Programs without torch on another maker's GPU, and programs that bring a torch of their own."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines

FOR_NVIDIA_OR_TORCH = ("nvidia-smi", "GGML_CUDA", "collect_env", "triton", "TORCH_CUDA_ARCH_LIST")


def shown(answer: DoctorAnswer) -> str:
    """The main finding's fix with its commands, and the question."""
    fix = answer.findings[0].fix if answer.findings else None
    lines = (fix.text, *command_lines(fix)) if fix else ()
    return "\n".join((*lines, answer.next_reading or ""))


GGML_ON_HIP = (
    # the text, the program, its own build
    (
        "sd.exe: ggml_cuda_init: found 1 ROCm devices:\nDevice 0: AMD Radeon RX 6600\n"
        "CUDA error: invalid device function\n  in function ggml_cuda_compute_forward at "
        "D:/a/stable-diffusion.cpp/stable-diffusion.cpp/ggml/src/ggml-cuda.cu:2360\nWindows 10",
        "Vulkan build of stable-diffusion.cpp", "-DSD_HIPBLAS=ON -DGPU_TARGETS=gfx1032",
    ),
    (
        "Windows 11, APU with Radeon 660M (gfx1035)\nggml_cuda_compute_forward: SCALE failed\n"
        "ROCm error: device kernel image is invalid",
        "Vulkan build of llama.cpp", "-DGGML_HIP=ON -DGPU_TARGETS=gfx1035",
    ),
)  # fmt: skip


@each("text, vulkan, own_build", GGML_ON_HIP)
def test_cudas_name_in_a_program_for_hip_is_no_cuda(text: str, vulkan: str, own_build: str) -> None:
    answer = read_report(text)
    assert answer.cause == "amd-gpu"
    assert vulkan in shown(answer)
    for word in FOR_NVIDIA_OR_TORCH:
        assert word not in shown(answer)


BUILT, NEEDED = "x86_64", "arm64"
PROCESSORS = ((BUILT, NEEDED, "for Apple silicon"), (NEEDED, BUILT, "Python for Apple silicon"))


@each("built, needed, way", PROCESSORS)
def test_libraries_for_another_processor_need_another_environment(
    built: str, needed: str, way: str
) -> None:
    answer = read_report(
        "OSError: dlopen(/Users/me/v/lib/python3.10/site-packages/torch/lib/libtorch_global_deps."
        "dylib, 0x000A): tried: '...' (mach-o file, but is an incompatible architecture (have "
        f"'{built}', need '{needed}'))\nM1 MacBook"
    )
    assert answer.cause == "apple-silicon"
    assert way in shown(answer)
    assert "macos-aarch64" in shown(answer)
    assert '"mps"' not in shown(answer)
