"""What a person has done, what they run, and what is over: each changes the answer."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.causes import alike
from gpusetup.model.documents import DoctorAnswer


def fix_text(answer: DoctorAnswer) -> str:
    """The way out of the root cause, in words."""
    cause = next(finding for finding in answer.findings if finding.id == answer.cause)
    assert cause.fix is not None
    return cause.fix.text


PORTABLE = (
    "C:\\AI\\ComfyUI_windows_portable>.\\python_embeded\\python.exe -s ComfyUI\\main.py\n"
    'raise AssertionError("Torch not compiled with CUDA enabled")\n'
    "AssertionError: Torch not compiled with CUDA enabled\n"
)


def test_an_updater_that_was_run_is_not_advised_again() -> None:
    fresh = fix_text(read_report(PORTABLE))
    updated = fix_text(read_report(f"I ran update_comfyui_and_python_dependencies.bat\n{PORTABLE}"))
    assert "update\\update_comfyui" in fresh
    assert "update\\update_comfyui" not in updated


def test_a_folder_of_models_is_no_environment() -> None:
    started = "AssertionError: Torch not compiled with CUDA enabled\n"
    path = r"Adding extra search path loras E:\AI\stable-diffusion-webui\models\Lora" + "\n"
    assert "webui-user" not in fix_text(read_report(f"Windows 11\n{path}{started}"))
    venv = r'File "E:\AI\stable-diffusion-webui\venv\lib\site-packages\torch\cuda\__init__.py"'
    assert "webui-user" in fix_text(read_report(f"Windows 11\n{venv}\n{started}"))


OLD_BUILD = (
    "NVIDIA GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch "
    "installation.\nThe current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70."
)
OVER = (
    f"{OLD_BUILD}\n\nEDIT: the issue is solved after reinstalling pytorch.",
    "Ollama: both GPUs were filtered out, it fell back to CPU. Driver 535 was too old.\n\n"
    "After the upgrade, Ollama 0.32.1 correctly offloads to both Tesla P40 GPUs.",
)
NOT_OVER = (
    OLD_BUILD,
    f"{OLD_BUILD}\n\nEDIT: reinstalling pytorch changed nothing.",
    "Ollama on a Tesla P40: it fell back to CPU.\n\nAfter the upgrade, it still uses the CPU.",
    "Ollama on a Tesla P40: it fell back to CPU.\n\nAfter the upgrade it should properly use both.",
)


@each("text", NOT_OVER)
def test_a_repair_that_is_not_told_is_none(text: str) -> None:
    assert read_report(text).cause not in ("ok", "answer")


READINGS = (
    ("### OS\n\nWindows\n\n### GPU\n\nNvidia\n\nOllama uses only the CPU now", "$env:OLLAMA_DEBUG"),
    ("### OS\n\nLinux\n\n### GPU\n\nNvidia\n\nOllama uses only the CPU now", "OLLAMA_DEBUG=1"),
    ("Ollama filters both GPUs out and uses the CPU", "OLLAMA_DEBUG=1"),
    (
        "docker run --gpus all vllm/vllm-openai:latest\nRuntimeError: Failed to infer device type",
        alike.GPU_BY_DOCKER,
    ),
)


@each("text, reading", READINGS)
def test_the_question_is_put_to_the_program_and_its_system(text: str, reading: str) -> None:
    answer = read_report(text)
    assert answer.cause == "unknown"
    assert answer.next_reading is not None and answer.next_reading.startswith(reading)


CAUSES = (
    ("After putting the PC to sleep ollama runs on CPU. RTX 4070, Linux", "cuda-unknown-error"),
    ("When training on my GTX 1660 I see a nan loss with fp16", "loss-diverges"),
    ("# Training on a V100 in fp16 gives **nan** losses", "loss-diverges"),
    ("# Torch not compiled with CUDA enabled on my RTX 3060", "torch-cpu-build"),
)


@each("text, cause", CAUSES)
def test_words_name_the_cause(text: str, cause: str) -> None:
    assert read_report(text).cause == cause


def test_a_card_without_bfloat16_is_not_told_to_use_it() -> None:
    assert "bfloat16" not in fix_text(read_report("V100, fp16 training: the loss is nan"))
    assert "bfloat16" in fix_text(read_report("A100, fp16 training: the loss is nan"))


def test_programs_that_make_pictures_are_not_told_to_train() -> None:
    full = "torch.OutOfMemoryError: Allocation on device\n"
    picture = fix_text(read_report(f"{PORTABLE.splitlines()[0]}\n{full}"))
    assert "lowvram" in picture and "gradient" not in picture
    assert "gradient" in fix_text(read_report(f"RTX 3060, train.py\n{full}"))
