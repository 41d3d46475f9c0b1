"""How sure an answer about a text is, which torch it speaks of, and what it leaves alone."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines

NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
LIST = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"


def commands_of(answer: DoctorAnswer) -> str:
    lines = [line for f in answer.findings if f.fix for line in command_lines(f.fix)]
    return "\n".join(lines)


# --- how sure -------------------------------------------------------------------------------------


def test_an_answer_is_certain_if_torch_prints_what_decides() -> None:
    answer = read_report(
        f"{NO_KERNEL}>>> torch.__version__, torch.cuda.get_arch_list()\n"
        f"2.6.0+cu124 {LIST.split()}\nGPU 0: NVIDIA GeForce RTX 5080\n"
    )
    assert (answer.cause, answer.certainty) == ("arch-too-new-for-wheel", "certain")
    assert answer.doubts == ()


UNSURE = [
    # what the text says, the cause
    (f"{NO_KERNEL}My new RTX 5080, torch is old I think.", "arch-too-new-for-wheel"),
    ("NVRM: Xid (PCI:0000:81:00): 62, 2f10 0000\nRTX 6000 Ada", "hardware-fault"),
    (
        "Unexpected error from cudaGetDeviceCount(). Error 2: out of memory\nin WSL2",
        "cuda-init-out-of-memory",
    ),
    (
        'OSError: [WinError 126] Error loading "C:\\v\\torch\\lib\\fbgemm.dll" or one of its '
        "dependencies.\nThe Visual C++ Redistributable is already installed.",
        "windows-dll-missing",
    ),
]


@each("text, cause", UNSURE)
def test_a_likely_answer_says_what_else_it_could_be(text: str, cause: str) -> None:
    answer = read_report(text)
    assert (answer.cause, answer.certainty) == (cause, "likely")
    assert answer.doubts


# --- which torch ----------------------------------------------------------------------------------

WHICH_TORCH = [
    # what the text says, the torch of the environment that failed
    ("pip shows torch 2.7+cu128, error on my 5070", "2.7.0+cu128"),
    ("uv resolves torch 2.7.0 cpu\nrepro: torch 2.7.0+cpu, torch.version.cuda None", "2.7.0+cpu"),
]


@each("text, version", WHICH_TORCH)
def test_only_the_torch_of_the_failing_environment_counts(text: str, version: str) -> None:
    assert read_report(text).snapshot.torch.version == version


def test_a_named_build_that_has_the_kernels_is_not_installed_again() -> None:
    answer = read_report(f"{NO_KERNEL}my 5060 Ti, pip list says torch 2.8+cu128")
    assert answer.cause == "unknown"
    assert "get_arch_list" in (answer.next_reading or "")
    assert "install" not in commands_of(answer)


def test_an_old_document_does_not_take_back_a_newer_release() -> None:
    answer = read_report(
        "GTX 1060. The README says pip install torch==1.13.1. The torch 2.8.0 wheel has no sm_61 "
        "kernels"
    )
    assert "1.13.1" not in commands_of(answer)


def test_a_release_that_works_beside_one_that_fails_clears_the_driver() -> None:
    answer = read_report(
        "Arc 140V. torch.xpu.is_available() with torch 2.6.0+xpu: True\n"
        "torch.xpu.is_available() with torch 2.7.0+xpu: False\n"
        "It works with torch 2.6.0+xpu and fails with torch 2.7.0+xpu."
    )
    assert answer.cause == "torch-release-regressed"
    assert "torch==2.6.0+xpu" in commands_of(answer)


# --- what works -----------------------------------------------------------------------------------

WORKS = [
    # what the text says, what the answer names
    ("42 tokens per second on a 4080 with --device cuda, 15 with --compile. Normal?", "warm-up"),
    ("RTX 3090: 3.2 it/s with fp16, my friend gets 6. Driver 560.94", "gpusetup monitor"),
    ("conv on cuda:0 (A100): the result differs from the CPU in the fourth digit", "tf32"),
    ("RTX 4060, GPU utilization is only 22 %, the loss goes down", "gpusetup monitor"),
]


@each("text, step", WORKS)
def test_a_gpu_that_computes_is_ok_and_its_question_is_answered(text: str, step: str) -> None:
    answer = read_report(text)
    assert answer.cause == "ok"
    assert step in (answer.proof or "")


def test_several_gpus_that_fail_where_one_works_are_not_ok() -> None:
    answer = read_report(
        "One GPU works fine, two GPUs do not. torchrun stops at init.\n"
        "PyTorch version: 2.6.0+cu124\nIs CUDA available: True\n"
        "GPU 0: NVIDIA RTX A6000\nGPU 1: NVIDIA RTX A6000\nNvidia driver version: 570.86.15\n"
    )
    assert answer.cause == "unknown"
    assert "NCCL_DEBUG=INFO" in (answer.next_reading or "")


# --- numbers and pairs ----------------------------------------------------------------------------


def test_full_memory_that_is_empty_is_not_full() -> None:
    answer = read_report(
        "RuntimeError: MPS backend out of memory (MPS allocated: 0 bytes, other allocations: "
        "0 bytes, max allowed: 7.93 GB). Tried to allocate 256 bytes on shared pool."
    )
    assert answer.cause == "gpu-gives-no-memory"


def test_of_two_pairs_the_one_that_differs_is_the_cause() -> None:
    answer = read_report(
        "xFormers was built for: PyTorch 2.8.0 with CUDA 1209 (you have 2.8.0) "
        "Python 3.12.3 (you have 3.10.12)"
    )
    assert "Python 3.12.3" in answer.findings[0].title
    assert "--no-deps" in commands_of(answer)


def test_a_python_that_has_wheels_is_not_exchanged() -> None:
    answer = read_report(
        "ERROR: Could not find a version that satisfies the requirement torch (from versions: "
        "none)\nERROR: No matching distribution found for torch\nPython 3.11.9 on Windows 11"
    )
    assert answer.cause == "unknown"
    assert "calcsize" in (answer.next_reading or "")


# --- other makers ---------------------------------------------------------------------------------


def test_a_gpu_of_amd_gets_no_advice_for_nvidia() -> None:
    answer = read_report(
        "RuntimeError: Found no NVIDIA driver on your system.\n"
        "Hi, I use an AMD GPU in my kubernetes node with k8s-device-plugin."
    )
    assert answer.cause == "amd-gpu"
    assert [finding.id for finding in answer.findings] == ["amd-gpu"]
    fix = answer.findings[0].fix
    assert fix and "amd.com/gpu" in fix.text


def test_a_program_that_found_its_gpu_is_believed() -> None:
    answer = read_report(
        'ollama is slow on my RX 7600 XT. msg="inference compute" library=rocm compute=gfx1102 '
        'available="15.8 GiB"'
    )
    assert answer.cause == "unknown"
    assert "ollama ps" in (answer.next_reading or "")


# --- an unknown answer, a packed program ----------------------------------------------------------


def test_an_index_says_which_cards_it_leaves_out() -> None:
    answer = read_report("AssertionError: Torch not compiled with CUDA enabled. Windows 10")
    assert "RTX 50" in "".join(f.fix.text for f in answer.findings if f.fix)


def test_pip_does_not_reach_a_packed_program() -> None:
    answer = read_report(f"{NO_KERNEL}I run `sp.exe`, RTX 5060, torch 2.5.1+cu121")
    assert "install" not in commands_of(answer)
