"""How a text names the GPU: in another script, as a setting that is off, or not at all."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.model.finding import command_lines

NOT_COMPILED = "AssertionError: Torch not compiled with CUDA enabled"
SENTENCES = (
    # a sentence beside torch's error, the cause
    ("我用的是苹果M1芯片，已经改成MPS了", "apple-silicon"),
    ("맥북 M1에서 실행했더니 오류가 납니다", "apple-silicon"),
    ("Auf meinem Mac mit M1-Chip bekomme ich", "apple-silicon"),
    ("英特尔锐炫A770显卡，Windows11，怎么解决？", "intel-gpu"),
    ("电脑是锐龙7840HS核显780M", "amd-gpu"),
)


@each("sentence, cause", SENTENCES)
def test_a_gpu_is_found_in_a_sentence_of_any_script(sentence: str, cause: str) -> None:
    answer = read_report(f"{sentence}\n{NOT_COMPILED}")
    assert answer.cause == cause


OF_NVIDIA = (
    "我的显卡是3060，在服务器上，从苹果M1 ssh过去，报错",
    "windows和mac上都报错，显卡是RTX 3060",
)


@each("sentence", OF_NVIDIA)
def test_a_mac_beside_the_machine_that_failed_is_not_the_cause(sentence: str) -> None:
    assert read_report(f"{sentence}\n{NOT_COMPILED}").cause == "torch-cpu-build"


SETTINGS_THAT_ARE_OFF = (
    "Torch overrides: cuda=False rocm=False ipex=True directml=False zluda=False",
    "ZLUDA is disabled",
)


@each("line", SETTINGS_THAT_ARE_OFF)
def test_a_setting_that_is_off_is_not_in_use(line: str) -> None:
    answer = read_report(
        f"Intel Arc A770\n{line}\nAssertionError: Torch not compiled with XPU enabled"
    )
    fix = answer.findings[0].fix
    assert fix is not None
    shown = "\n".join((fix.text, *command_lines(fix))).lower()
    assert "zluda" not in shown
    assert "whl/xpu" in shown


NO_DRIVER = (
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU "
    "and installed a driver from http://www.nvidia.com/Download/index.aspx"
)
LABELLED = (
    # a line of the text, torch's error, the cause
    ("GPU: Intel(R) Arc(TM) A770 Graphics", NO_DRIVER, "intel-gpu"),
    ("**GPU:** MI50", NOT_COMPILED, "amd-gpu"),
    ("/home/u/stable-diffusion-webui-amdgpu/launch.py", NO_DRIVER, "amd-gpu"),
    # These have no build for the GPU, or an NVIDIA GPU.
    ("my laptop with Iris Xe graphics (i7-1165G7)", NOT_COMPILED, "no-nvidia-gpu"),
    ("### GPU\n\nNVIDIA RTX 3060", NO_DRIVER, "driver-missing"),
)


@each("line, error, cause", LABELLED)
def test_the_gpu_of_a_label_or_a_fork_is_the_texts_gpu(line: str, error: str, cause: str) -> None:
    assert read_report(f"{line}\n{error}").cause == cause


ON_A_MAC = (
    # the text, the cause: every Mac has no CUDA, so this explains only what looked for it
    (
        "Apple M2 Pro\nOMP: Error #15: Initializing libomp.dylib, but found libomp.dylib",
        "openmp-twice",
    ),
    (f"Apple M2 Pro\n{NOT_COMPILED}", "apple-silicon"),
    (
        "macOS 13.1, MacBook Pro M1\n"
        "it says Could not find a version that satisfies the requirement torch==1.12.1+cu113",
        "no-wheel-for-platform",
    ),
)


@each("text, cause", ON_A_MAC)
def test_a_mac_is_the_cause_only_of_what_looked_for_a_gpu(text: str, cause: str) -> None:
    assert read_report(text).cause == cause


def test_a_cuda_library_that_torch_misses_beside_an_amd_gpu_is_no_library_to_install() -> None:
    answer = read_report(
        "Radeon RX 6800\n"
        '  File "/usr/lib/python3.10/site-packages/torch/__init__.py", line 172, in '
        "_load_global_deps\n"
        "OSError: libcublas.so.11: cannot open shared object file: No such file or directory"
    )
    assert answer.cause == "amd-gpu"
