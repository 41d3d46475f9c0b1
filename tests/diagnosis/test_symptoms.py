"""What a text reports to be seen is no cause: it has a likely one, or a reading that decides."""

from __future__ import annotations

from each_row import each
from judging import judged
from report_asked import misses

from gpusetup.catalog.file import load_catalog
from gpusetup.commands.doctor import document, exit_code
from gpusetup.diagnosis.diagnose import Diagnosis, diagnose
from gpusetup.model.frozen import replace
from gpusetup.render.doctor import doctor_markdown, doctor_screen, unknown_of
from gpusetup.report.read import read_report

SMI = (
    "| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: 12.8 |\n"
    "|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |      N/A |\n"
)
NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
HOOK = "docker: Error response from daemon: OCI runtime create failed: nvidia-container-cli: "
RPC = "nvidia-container-cli: initialization error: driver rpc error: timed out: unknown."


def read(text: str) -> Diagnosis:
    return diagnose(read_report(text), load_catalog())


@each(
    "text, symptom, others",
    [
        ("torch.cuda.is_available()\nFalse", "torch-sees-no-gpu", "torch-cpu-build"),
        ("CUDA error: no kernel image is available for execution on the device", "no-kernel-image",
         "arch-too-new-for-wheel"),
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, "
         "Timeout(ms)=600000) ran for 600001 milliseconds", "nccl-timeout", "nccl-p2p-failure"),
        ("level=INFO source=gpu.go msg=\"no compatible GPUs were discovered\"",
         "program-sees-no-gpu", ""),
    ],
)  # fmt: skip
def test_what_is_only_seen_is_no_cause(text: str, symptom: str, others: str) -> None:
    answer = read(text)
    assert (answer.cause, answer.symptom, answer.certainty) == ("unknown", symptom, None)
    assert answer.next_reading
    assert not others or others in answer.other_causes
    assert symptom in {one.id for one in answer.findings}
    assert exit_code(answer, strict=False) == 1


def test_an_unknown_cause_names_what_was_seen_and_what_to_run() -> None:
    answer = document(read("torch.cuda.is_available()\nFalse"), load_catalog())
    assert unknown_of(answer) == "torch.cuda.is_available() is False; why is open"
    lines = doctor_markdown(answer).splitlines()
    assert lines[0] == "**unknown**" and lines[3] == f"? unknown: {unknown_of(answer)}"
    assert f"    {answer.next_reading}" in lines


BANNER = "| NVIDIA-SMI {}       Driver Version: {}      CUDA Version: {}      |"


def test_a_live_machine_names_where_its_reading_ended() -> None:
    machine = replace(read_report("torch.cuda.is_available()\nFalse"), origin="composed")
    assert judged(machine).cause == "torch-sees-no-gpu"


def test_a_case_of_a_shared_cause_is_named_in_the_first_line() -> None:
    answer = read("dkms autoinstall on 6.16.3-76-generic/x86_64 failed for nvidia(10)")
    told = document(answer, load_catalog())
    screen = " ".join(doctor_screen(told).shown(width=80, colour=False).split())
    for shown in (" ".join(doctor_markdown(told).split("text\n")[1].split()), screen):
        assert "driver-not-loaded" in shown.partition(":")[0]
        assert "(driver-build-failed)" in shown


HOSTS = (
    "| NVIDIA-SMI 570.86.16      Driver Version: 572.16      CUDA Version: 12.8 |\n"
    "|   0  NVIDIA GeForce RTX 2080 Ti     On  |   00000000:01:00.0 Off |      N/A |\n"
    "| 28%   36C    P8    10W / 250W |    475MiB /  11264MiB |      0%      Default |\n"
)
"""What nvidia-smi lists under WSL: its own version beside that of Windows' driver."""


WRONG_ADDRESS = "CUDA error: an illegal memory access was encountered"
XID_13 = "NVRM: Xid (PCI:0000:01:00): 13, "
BLIND = "RuntimeError: Found no NVIDIA driver on your system.\n"


@each(
    "text, has, never",
    [
        (f"llama-server\n{WRONG_ADDRESS}", "cuda-program-error", ""),
        ("vllm serve x\nProcess group watchdog thread terminated with exception: " + WRONG_ADDRESS,
         "cuda-program-error", ""),
        ("RuntimeError: CUDA error: device-side assert triggered", "cuda-program-error", ""),
        ("we see an XID error 31 of a user's program, NVRM: Xid (PCI:0000:06:00): 31, pid=77",
         "cuda-program-error", ""),
        (f"after the sleep: {XID_13}Graphics Exception: ESR 0x405840=0xa2", "\nunknown\n", ""),
        (f"{XID_13}Graphics SM Warp Exception on (GPC 0, TPC 0): Out Of Range", "", "\nunknown\n"),
        (BANNER.format("550.100", "550.100", "N/A"), "", "nvml-mismatch"),
        (BANNER.format("535.183", "538.15", "12.2"), "", "nvml-mismatch"),
        (f"Jetson AGX Orin, JetPack 6.1\n{NO_IMAGE}", "jetson-wrong-wheel", ""),
        (f"an Orin tablet\n{NO_IMAGE}", "", "jetson-wrong-wheel"),
        (f"{BLIND}docker run -it --gpus 0 image\n{HOSTS}", "container-no-gpu", ""),
        (f"{BLIND}I use WSL 2.\n{HOSTS}", "\nunknown\n", ""),
        (f"I use WSL 2.\n{HOSTS}", "\nok\n", ""),
        ("RuntimeError: CUDA error: no kernel image is available for execution",
         "\nunknown\nno-kernel-image\n", ""),
    ],
)  # fmt: skip
def test_a_text_has_its_cause(text: str, has: str, never: str) -> None:
    assert misses(text, has, never) == []


SAID_IN_WORDS = (
    ("After suspend the GPU is no longer used by my container, driver 570", "cuda-unknown-error"),
    (
        "docker run --gpus all: in it nvidia-smi shows CUDA N/A, libcuda.so.1 is missing",
        "container-driver-capability-missing",
    ),
    (
        "RTX 5070, Windows: it says that the detected CUDA version mismatches the version that "
        "was used to compile PyTorch",
        "cuda-toolkit-mismatch-extension-build",
    ),
)
WAITING = (
    "Why is the GPU memory usage high and the utilization at 0%? A40, it was 95 % before",
    "显存占满了,利用率却是 0,RTX 3090",
)


@each("text, cause", SAID_IN_WORDS)
def test_what_somebody_describes_is_taken_for_what_it_is(text: str, cause: str) -> None:
    assert judged(read_report(text)).cause == cause
