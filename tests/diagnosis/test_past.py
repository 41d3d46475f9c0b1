"""What a text shows to be over is no present failure; what it merely hopes for is."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report

BLACKWELL_ERROR = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    "torch 2.6.0+cu124, RTX 5070\n"
)
OVER = (
    # Mended, and shown to compute.
    BLACKWELL_ERROR
    + "EDIT: solved with another index. Now:\n>>> torch.__version__\n'2.7.1+cu128'\n"
    ">>> torch.rand(2, device='cuda').sum()\ntensor(0.9, device='cuda:0')",
    "[SOLVED] nvidia-smi has failed\n\nNVIDIA-SMI has failed because it couldn't communicate with "
    "the NVIDIA driver.\n\nUpdate: fixed, I enrolled the key and rebooted. nvidia-smi shows the "
    "RTX 3060 again.",
    # A result came from the GPU: nothing that is missing was needed.
    "$ nvcc --version\nCommand 'nvcc' not found\n>>> torch.__version__\n'2.8.0+cu128'\n"
    ">>> x = torch.randn(9, 9, device='cuda'); (x @ x).sum().item()\n-13.5\nRTX 4060. Needed?",
    "$ nvidia-smi\nbash: nvidia-smi: command not found\n2.7.1+rocm6.3 True AMD Instinct MI250X\n"
    "tensor(250.13, device='cuda:0')",
    "MacBook M4\n>>> torch.cuda.is_available()\nFalse\n>>> torch.rand(1, device='mps') + 1\n"
    "tensor([1.12], device='mps:0')",
)
NOT_OVER = (
    BLACKWELL_ERROR + "It worked five minutes before.",
    BLACKWELL_ERROR + "I hope it can be solved.",
    "EDIT: solved, it works now.\nAnd an hour later again:\n" + BLACKWELL_ERROR,
    # The result came before the failure.
    ">>> torch.rand(2, device='cuda')\ntensor([0.1, 0.2], device='cuda:0')\n"
    ">>> train()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
    "has a total capacity of 7.78 GiB",
    # Code that names a device printed nothing.
    "model = model.to('cuda')\nx = torch.zeros(2, device='cuda:0')\n" + BLACKWELL_ERROR,
)


NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running.\nUbuntu 22.04, RTX 3060\n"
)
NO_REPORT = (
    "How can I get it fixed?",
    "Was this fixed in a newer release?",
    "I will close this when it is fixed.",
    "I think it was fixed in a nightly.",
    "If this is fixed, tell me.",
    "Someone says it works now with cu128.",
    "Does it work now for anybody?",
    "This was solved for others by a reinstall.",
    "Last week a colleague installed the same way and it worked.",
    "It works now only without the GPU.",
)
COMPUTED = (
    "RTX 3060, torch 2.5.1+cu124\n>>> torch.rand(1, device='cuda')\n"
    "tensor([0.1], device='cuda:0')\n"
)
SEEN_ELSEWHERE_ONLY = (
    "My service prints: CUDA is not available",
    "In Jupyter torch.cuda.is_available() is False",
    "The second GPU is not found",
)


@each("sentence", NO_REPORT)
def test_only_a_plain_report_says_that_a_failure_is_over(sentence: str) -> None:
    assert read_report(NO_DRIVER + sentence).cause == "driver-not-loaded"
    assert read_report(NO_DRIVER + "EDIT: it is fixed now.").cause == "ok"


@each("sentence", SEEN_ELSEWHERE_ONLY)
def test_a_result_denies_only_that_a_tool_is_missing(sentence: str) -> None:
    assert read_report(COMPUTED + sentence).cause != "ok"
    assert read_report(COMPUTED + "nvcc not found").cause == "ok"


@each("text", OVER)
def test_a_failure_that_is_over_is_no_cause(text: str) -> None:
    assert read_report(text).cause == "ok"


@each("text", NOT_OVER)
def test_a_failure_that_is_not_over_stays(text: str) -> None:
    assert read_report(text).cause != "ok"


CLUSTER = "On the node (A100, driver 550.54) nvidia-smi works outside. I asked for --gres=gpu:1.\n"
INSIDE = '$ apptainer exec train.sif nvidia-smi\nFATAL: "nvidia-smi": executable file not found\n'


def commands_of(text: str) -> str:
    answer = read_report(text)
    root = next(finding for finding in answer.findings if finding.root)
    return "\n".join(line for line in root.fix.commands) if root.fix else ""


def test_who_asked_the_scheduler_is_not_told_to_ask() -> None:
    assert "--nv" in commands_of(CLUSTER + INSIDE)
    assert "srun" not in commands_of(CLUSTER + INSIDE)


def test_slurms_own_line_shows_a_job_without_a_gpu() -> None:
    said = (
        "$ scontrol show job 8\n   AllocTRES=cpu=4,mem=16G,node=1\n$ nvidia-smi\nNo devices found\n"
    )
    assert read_report(said + "No devices were found").cause == "cuda-visible-devices-hidden"
    with_gpu = said.replace("node=1", "node=1,gres/gpu=1")
    assert read_report(with_gpu + "No devices were found").cause != "cuda-visible-devices-hidden"


def test_a_driver_that_was_installed_inside_wsl_is_removed() -> None:
    said = (
        "WSL2, Ubuntu 22.04, Windows driver 551.86. I ran `sudo apt install nvidia-driver-535`.\n"
        "Failed to initialize NVML: GPU access blocked by the operating system"
    )
    assert "apt purge" in commands_of(said)
    assert "apt purge" not in commands_of(said.replace("sudo apt install nvidia-driver-535", "ls"))


def test_an_exception_of_a_download_is_no_fault_of_the_gpu() -> None:
    said = (
        "Loading a model fails on my GPU server (L4)\nTraceback (most recent call last):\n"
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://example.org\n"
        "OSError: You are trying to access a gated repository.\n"
    )
    answer = read_report(said)
    assert answer.cause == "program-failed"
    assert "The GPU, the driver and torch are not the reason" in (answer.findings[0].detail or "")


def test_a_mismatched_companion_gets_the_release_for_the_torch_that_is_there() -> None:
    said = (
        "OSError: /opt/e/lib/python3.12/site-packages/torchcodec/libtorchcodec_core6.so: undefined "
        "symbol: torch_from_blob\ntorch 2.9.1+cu128, torchcodec 0.10.0\nRTX 4070\n"
    )
    assert "torchcodec==0.9.*" in commands_of(said)


def test_a_programs_sentence_in_a_fenced_block_is_no_persons_word() -> None:
    output = (
        "tom@box:~$ rocminfo\nROCk module version 6.10.5 is loaded\n"
        "Unable to open /dev/kfd read-write: Permission denied\n"
        "tom@box:~$ ls -l /dev/kfd\ncrw-rw---- 1 root render 236, 0 Feb  2 09:10 /dev/kfd\n"
        "tom@box:~$ id\nuid=1000(tom) gid=1000(tom) groups=1000(tom),4(adm)\n"
    )
    answer = read_report(f"PyTorch doesn't find my RX 7900 XT\n```\n{output}```\nUbuntu 24.04")
    assert answer.cause == "maker-device-permission", answer.cause
    assert (
        "the text describes this problem, but no line of it looks like a program's output"
        not in answer.doubts
    )


TOLD_AS_PAST = (
    "[Solved] RTX 5070 is not recognised\n\nIt was the old torch.\nDevice: cuda:0 NVIDIA GeForce "
    "RTX 5070\n20/20 [00:04<00:00, 4.61it/s]\n\nBefore that I got: " + BLACKWELL_ERROR,
    "【已解决】torch.cuda.is_available() 返回 False\n\n原因是装了CPU版的torch\n\n"
    ">>> torch.cuda.is_available()\nTrue\n>>> torch.cuda.get_device_name(0)\n"
    "'NVIDIA GeForce RTX 4060'",
    "RTX 4060. Everything is OK now, I had to reboot after the update.\n\nOld log:\n"
    "RuntimeError: CUDA error: no CUDA-capable device is detected",
    "GPU unused, CPU build [solved]\nRTX 3080, slow, 0-2 % usage\n2.4.0+cpu\nNone\nFalse\n"
    "After that:\n2.4.0+cu124\n12.4\nTrue\n",
    "Résolu ! Il fallait redémarrer. Maintenant torch voit la carte (RTX A4000).",
)
TOLD_OF_THE_PRESENT = (
    "[Solved?] RTX 5070\n\nBefore that I got no kernel image, but now every image is black.\n"
    "Device: cuda:0 NVIDIA GeForce RTX 5070\n20/20 [00:04<00:00, 4.61it/s]",
    "Everything is OK now except that it uses the CPU. RTX 4060\n\nOld log:\n"
    "RuntimeError: CUDA error: no CUDA-capable device is detected",
    "I had to reboot the PC five times because the GPU is lost. RTX 3090",
)


@each("text", TOLD_AS_PAST)
def test_what_is_told_as_what_was_before_is_over(text: str) -> None:
    assert read_report(text).cause == "ok"


@each("text", TOLD_OF_THE_PRESENT)
def test_words_of_the_past_hide_nothing_that_fails_now(text: str) -> None:
    assert read_report(text).cause != "ok"
