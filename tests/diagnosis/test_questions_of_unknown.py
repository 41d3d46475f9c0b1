"""An unknown answer asks for the one output that decides at its stage, never for what is there."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.causes import alike

COMPOSE = """services:
  vllm:
    image: vllm/vllm-openai:latest
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: all
              capabilities: [gpu]
"""
BY_STAGE = (
    ("pip install flash-attn fails after 40 minutes, no idea why. A6000", "installer's command"),
    ("My PC shuts down a minute after the training starts. RTX 3090", alike.LAST_BOOT),
    ("Мой компьютер выключается через пару минут обучения. RTX 3090", alike.LAST_BOOT),
    ("游戏正常,但是跑AI就黑屏重启,4090", alike.LAST_BOOT),
    ("The editor ends with: GPU crash dump triggered. RTX 3070", alike.KERNEL_LOG),
    ("Training on one 3090 works fine. With two it hangs.", alike.NCCL_LOG),
    ("My script hangs at the first batch, no error. RTX 3060", alike.STACK),
    ("el entrenamiento se queda colgado en la primera época, RTX 3060", alike.STACK),
    (f"vllm in docker compose says no GPU:\n{COMPOSE}", alike.GPU_BY_DOCKER),
    ("llm_load_tensors: offloaded 0/41 layers to GPU\nRTX 2070", "llama-cli --list-devices"),
    (
        "torch.cuda.is_available() True in the terminal, in the notebook it says False. 4060",
        alike.THIS_TORCH,
    ),
    ("It prints Using device: cuda, and the GPU usage stays at 0 %", alike.WHILE_IT_RUNS),
    ("The second GPU is not used at all, the first works. 2x 4090", alike.TORCHS_DEVICES),
    ("With device cuda the kernel dies without any message. RTX 3080", alike.FAULTS),
    ("After the update my training is much slower. RTX 4090.", alike.MONITOR),
    ("My GPU isn't being used. RTX 3060, Windows 11.", alike.ASK_TORCH),
)


@each("text, reading", BY_STAGE)
def test_each_stage_asks_for_the_output_that_decides(text: str, reading: str) -> None:
    answer = read_report(text)
    assert answer.cause == "unknown"
    assert reading in (answer.next_reading or "")


def test_a_rocm_build_that_has_the_kernels_is_not_replaced_and_rocminfo_is_asked() -> None:
    text = "RuntimeError: HIP error: invalid device function\nRadeon RX 7900 XTX, "
    answer = read_report(f"{text}torch 2.6.0+rocm6.2.4")
    assert answer.cause == "unknown"
    assert "rocminfo" in (answer.next_reading or "")
    assert [cause.id for cause in answer.ruled_out] == ["amd-gpu"]
    assert read_report(f"{text}torch 2.0.1+rocm5.4.2").cause in ("amd-gpu", "unknown")


def test_a_triton_of_another_release_is_the_cause() -> None:
    message = "ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler'"
    on_windows = read_report(f"{message}\ntorch 2.6.0+cu124, Windows 11")
    assert on_windows.cause == "triton-mismatch"
    commands = [
        line for finding in on_windows.findings if finding.fix for line in finding.fix.commands
    ]
    assert any("triton-windows==3.2" in line for line in commands)
    assert not any("gpusetup install" in line for line in commands)
