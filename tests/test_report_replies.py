"""From a text to the reply: what the person who pasted it can read, believe and type."""

from __future__ import annotations

from each_row import each
from judging import judged
from report_asked import answered, misses

from gpusetup.model.finding import Finding, typed
from gpusetup.model.frozen import replace
from gpusetup.render.markdown import doctor_markdown
from gpusetup.report.read import read_report


def root(text: str) -> Finding:
    return next(finding for finding in answered(text).findings if finding.root)


def quoted(text: str) -> list[str]:
    return [line.text for line in root(text).evidence]


def commands(text: str) -> tuple[str, ...]:
    fix = root(text).fix
    return fix.commands if fix else ()


# --- evidence, titles -----------------------------------------------------------------------------


def test_a_line_is_quoted_once_and_the_number_that_was_read_from_it_not_beside_it() -> None:
    assert quoted("program: CUDA error: system not yet initialized") == [
        "program: CUDA error: system not yet initialized"
    ]
    gsp = "[12.1] NVRM: Xid (PCI:0000:0b:00): 119, pid=7, name=x, Timeout waiting for RPC from GSP!"
    assert len(quoted(gsp)) == 1


def test_a_part_of_a_quoted_line_is_not_quoted_again() -> None:
    lines = quoted(
        "My GPU is an AMD RX 6800 XT\nAssertionError: Torch not compiled with CUDA enabled"
    )
    assert lines and not any(a != b and a in b for a in lines for b in lines)


def test_two_readers_of_one_line_quote_it_once() -> None:
    line = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    assert quoted(f"OS: Ubuntu 22.04\n$ nvidia-smi\n{line}") == [line]
    hook = "nvidia-container-cli: initialization error: nvml error: driver not loaded"
    assert quoted(f"`nvidia-container-cli info` returns  {hook}") == [
        f"`nvidia-container-cli info` returns {hook}"
    ]


def test_a_gpu_without_a_number_is_called_by_its_address() -> None:
    text = (
        "==============NVSMI LOG==============\nDriver Version                : 535.104.05\n"
        "GPU 00000000:9C:00.0\n    Product Name              : NVIDIA A100 80GB PCIe\n"
        "    Remapped Rows\n        Uncorrectable Error       : 4\n"
        "        Pending                   : Yes\n"
    )
    assert quoted(text)[0].startswith("GPU 00000000:9C:00.0: ")
    assert commands(text)[-1] == "sudo nvidia-smi --gpu-reset -i 00000000:9C:00.0"


# --- systems --------------------------------------------------------------------------------------


# --- commands -------------------------------------------------------------------------------------


def test_code_in_a_command_is_quoted_as_one_reads_it() -> None:
    text = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    machine = replace(read_report(f"OS: Ubuntu 22.04\n{text}"), origin="composed")
    found = next(one for one in judged(machine).findings if one.root)
    assert any(line.startswith('python -c "import torch; ') for line in typed(found.fix))


def test_a_value_that_is_not_known_is_not_printed_as_none() -> None:
    text = "pip list\ntorch 1.13.1\nAssertionError: CUDA_HOME does not exist, unable to compile CUDA op(s)"
    assert quoted(text) and not any("None" in line for line in quoted(text))


def test_a_container_without_a_gpu_quotes_who_looked_in_vain() -> None:
    text = "# kubectl exec -it demo sh\n# nvidia-smi\nsh: 27: nvidia-smi: not found"
    assert root(text).id == "container-no-gpu"
    assert quoted(text)[0] == "sh: 27: nvidia-smi: not found"


# --- the page -------------------------------------------------------------------------------------


def test_a_list_of_other_findings_stands_apart_from_a_code_block() -> None:
    lines = doctor_markdown(
        answered("NCCL WARN Cuda failure 'invalid device function'")
    ).splitlines()
    listed = [i for i, line in enumerate(lines) if line.startswith("- ")]
    assert listed and not lines[listed[0] - 1].startswith("`")


def test_what_comes_after_an_install_is_no_part_of_doing_it_by_hand() -> None:
    text = (
        "RTX 4090\nptxas /tmp/x, line 6; error   : PTX .version 7.4 does not support .target sm_89"
    )
    lines = doctor_markdown(answered(text)).splitlines()
    hand = next(i for i, line in enumerate(lines) if line.startswith("Or the same by pip ("))
    blocks = "\n".join(lines[hand:]).split("```")
    assert "TRITON_PTXAS_PATH" not in blocks[1] and "torch==" in blocks[1]


def test_a_torch_that_nobody_showed_is_not_called_fitting() -> None:
    driver = (
        "NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4\n"
        "GPU 0: Tesla T4 (UUID: GPU-0)"
    )
    first = doctor_markdown(answered(driver)).splitlines()[0]
    assert first == ("**ok**: the driver answers and no fault is shown; torch was not shown")
    torch = doctor_markdown(
        answered(f"{driver}\nPyTorch version: 2.6.0+cu124\nIs CUDA available: True")
    )
    assert torch.startswith("**ok**: torch 2.6.0+cu124 can use Tesla T4")


def test_versions_that_need_not_agree_are_told_apart_in_one_note() -> None:
    text = (
        "PyTorch version: 2.5.1+cu124\nIs CUDA available: True\nCUDA runtime version: 11.5.119\n"
        "GPU models and configuration: GPU 0: Tesla T4\nNvidia driver version: 550.120"
    )
    ids = [finding.id for finding in answered(text).findings]
    assert "cuda-versions-differ" in ids and "cuda-toolkit-differs" not in ids


FOUND_OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version 10010)."
NOT_COMPILED = "AssertionError: Torch not compiled with CUDA enabled"
ENGINE = 'Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'
XID_74 = "NVRM: Xid (PCI:0000:41:00): 74, pid=1, name=x, NVLink: fatal error detected on link 6"
LIBC = "/lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found (required by /x/y.so)"
SOLVER = "  × No solution found when resolving dependencies:\n  ╰─▶ Because torch==2.4.1 needs"
BOARD = "JetPack: 5.1.2\n# R35 (release), REVISION: 4.1\n>>> torch.cuda.is_available()\nFalse"
TOO_OLD = "CUDA driver version is insufficient for CUDA runtime version"
WINDOWS_7 = "PyTorch version: 1.7.1+cpu\nIs CUDA available: False\nOS: Microsoft Windows 10 Pro\n"
NO_TRITON = (
    "RuntimeError: Found NVIDIA GeForce GTX 1070 which is too old to be supported by the triton "
    "GPU compiler, which is used as the backend. Triton only supports devices of CUDA Capability "
    ">= 7.0, but your device is of CUDA capability 6.1"
)


@each(
    "text, has, never",
    [
        ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "\nThe NVIDIA", ""),
        ("|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0 Off |                  N/A |\n"
         "NVRM: GPU at 0000:01:00.0 has fallen off the bus.",
         "\nThe NVIDIA GPU has fallen off the PCI bus\n", ""),
        ("NVRM: GPU 0000:09:00.0: rm_init_adapter failed, device minor number 0",
         "\nThe driver is loaded but cannot start the NVIDIA GPU\n", ""),
        ("ImportError: /x/site-packages/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
         "\nflash_attn", ""),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4",
         "driver-too-old", " found"),
        (FOUND_OLD, "driver-too-old|440.33", ""),
        (f"sys.platform: darwin\n{NOT_COMPILED}", "\nThis is a Mac: there is no CUDA\n", ""),
        (f"PyTorch version: 2.4.0\nOS: macOS 14.5 (arm64)\n{NOT_COMPILED}",
         "\nThis is a Mac: there is no CUDA\n", ""),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
         "\nThe GPU is busy, or in exclusive mode", ""),
        ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity)",
         "20 MiB more were asked for, it has 7.9 GiB\n", ""),
        ("ncclInternalError: Internal check failed.\nLast error:\nNet : Call to recv from "
         "10.0.0.8<38309> failed : Connection refused",
         "\nNCCL cannot reach the rank at 10.0.0.8<38309>: Connection refused\n", ""),
        (f"OS: Microsoft Windows 11 Pro\ndocker: {ENGINE}", "\nwsl --update\n|WSL 2", "sudo"),
        (f"OS: Ubuntu 22.04\ndocker: {ENGINE}", "\nsudo systemctl restart docker\n", "wsl"),
        (XID_74, "sudo nvidia-bug-report.sh", ""),
        (f"{XID_74}\nunder WSL2 on Windows 11", "\n", "sudo nvidia-bug-report.sh"),
        (LIBC, "\ndocker run --rm --gpus all -it ubuntu:24.04\n", ""),
        (f"{LIBC}\ntorch==2.1.0+cpu", "\ndocker run --rm -it ubuntu:24.04\n", ""),
        ("Python version: 3.8.2\nERROR: Could not find a version that satisfies the requirement "
         "torch==1.4.0+cpu (from versions: 0.1.2)\nERROR: No matching distribution found for "
         "torch==1.4.0+cpu",
         "\nThe installer finds no wheel of torch==1.4.0+cpu|torch_stable.html torch==1.4.0+cpu\n", ""),
        (f"$ cd /home/x/.venv/\n{SOLVER} triton==3.0.0 and you require triton==3.1.0",
         "\ngpusetup install|\nuv pip ", ""),
        ("NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)\nNVRM: installed in this system "
         "requires use of the NVIDIA open kernel modules.",
         "open kernel modules, which this GPU needs", ""),
        (f"Python version: 3.10.4\n{BOARD}", "Python 3.8, not", ""),
        (f"Python version: 3.8.10\n{BOARD}", "\n", "Python 3.8, not"),
        (f"program: {TOO_OLD}", "driver-too-old", "gpusetup install"),
        (f"{WINDOWS_7}GPU models: GPU 0: GeForce MX250\nNvidia driver version: 441.22",
         "Update it to ", ""),
        ("Python version: 2.7\nOS: Ubuntu 16.04\nImportError: libcudnn.so.7: cannot open shared "
         "object file: No such file or directory", "\nuv venv --python 3.", ""),
        (f"ggml_cuda_init: failed to initialize CUDA: {TOO_OLD}\ndriver version: 515.65.01",
         "the program's build for an older CUDA", ""),
        (f"PyTorch version: 2.5.1+cu124\n{TOO_OLD}\ndriver version: 515.65.01", "\n", "program's"),
        ("PyTorch version: 2.2.1+cu121\nCuda compilation tools, release 11.8, V11.8.89\n"
         "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to "
         "compile PyTorch (12.1).", "\nexport CUDA_HOME=|\ngpusetup install", ""),
        ("NVRM: Xid (PCI:0000:0b:00): 119, pid=7, name=x, Timeout waiting for RPC from GSP!",
         "\nsudo reboot\n|NVreg_EnableGpuFirmware=0", ""),
        ("Failed to initialize NVML: Unknown Error.\nYou can check the prerequisites at: "
         "https://github.com/NVIDIA/k8s-device-plugin#x", "`kubectl delete pod`", ""),
        (f"OS: Ubuntu 22.04\n{NO_TRITON}", "\nexport TORCHDYNAMO_DISABLE=1\n", "$env"),
        (f"OS: Microsoft Windows 11 Pro\n{NO_TRITON}",
         "\n$env:TORCHDYNAMO_DISABLE = '1'\n", "export"),
        ("NVRM: Xid (PCI:0000:06:00): 31, pid=77, name=python3, MMU Fault: ENGINE GRAPHICS",
         "cuda-program-error", ""),
    ],
)  # fmt: skip
def test_the_cause_is_told_in_good_order(text: str, has: str, never: str) -> None:
    assert misses(text, has, never) == []
