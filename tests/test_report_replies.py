"""From a text to the reply: what the person who pasted it can read, believe and type."""

from __future__ import annotations

from judging import event, judged
from report_asked import answered
from test_rules_said import text as shows

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


def test_a_sentence_begins_with_a_capital_and_a_packages_name_stays_as_it_is() -> None:
    assert root("NVRM: GPU at 0000:01:00.0 has fallen off the bus.").title.startswith("The NVIDIA")
    built = "flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"
    assert root(f"ImportError: /x/site-packages/{built}").title.startswith("flash_attn")


def test_an_unknown_driver_is_not_said_to_be_found() -> None:
    image = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4"
    assert root(image).id == "driver-too-old" and "found" not in root(image).title
    old = "The NVIDIA driver on your system is too old (found version 10010)."
    assert root(f"RuntimeError: {old}").title.endswith("; this driver serves CUDA 10.1")


def test_a_mac_of_which_no_gpu_is_known_is_only_called_a_mac() -> None:
    text = "sys.platform: darwin\nAssertionError: Torch not compiled with CUDA enabled"
    assert root(text).title == "This is a Mac: there is no CUDA"
    text = "PyTorch version: 2.4.0\nOS: macOS 14.5 (arm64)\nAssertionError: Torch not compiled with CUDA enabled"
    assert root(text).title == "This is a Mac with an Apple GPU: there is no CUDA"


def test_a_busy_gpu_is_not_said_to_be_in_exclusive_mode_for_sure() -> None:
    said = root("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable")
    assert said.title.startswith("The GPU is busy, or in exclusive mode")


def test_two_readers_of_one_line_quote_it_once() -> None:
    line = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    assert quoted(f"OS: Ubuntu 22.04\n$ nvidia-smi\n{line}") == [line]
    hook = "nvidia-container-cli: initialization error: nvml error: driver not loaded"
    assert quoted(f"`nvidia-container-cli info` returns  {hook}") == [
        f"`nvidia-container-cli info` returns {hook}"
    ]


def test_a_small_size_is_not_written_as_nothing() -> None:
    said = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity)"
    assert root(said).title.endswith("20 MiB more were asked for, it has 7.9 GiB")


def test_a_gpu_without_a_number_is_called_by_its_address() -> None:
    text = (
        "==============NVSMI LOG==============\nDriver Version                : 535.104.05\n"
        "GPU 00000000:9C:00.0\n    Product Name              : NVIDIA A100 80GB PCIe\n"
        "    Remapped Rows\n        Uncorrectable Error       : 4\n"
        "        Pending                   : Yes\n"
    )
    assert quoted(text)[0].startswith("GPU 00000000:9C:00.0: ")
    assert commands(text)[-1] == "sudo nvidia-smi --gpu-reset -i 00000000:9C:00.0"


def test_a_rank_that_is_not_reached_is_named_whoever_called_it() -> None:
    text = "Last error:\nNet : Call to recv from 10.0.0.8<38309> failed : Connection refused"
    assert root(f"ncclInternalError: Internal check failed.\n{text}").title == (
        "NCCL cannot reach the rank at 10.0.0.8<38309>: Connection refused"
    )


def test_what_is_not_known_is_left_out_of_a_title_in_good_order() -> None:
    built = judged(shows(event("driver-build-failed", kernel="6.4.1-zen1"))).findings[0].title
    assert built == "The kernel module of the NVIDIA driver was not built for kernel 6.4.1-zen1"
    failed = root("NVRM: GPU 0000:09:00.0: rm_init_adapter failed, device minor number 0").title
    assert failed == "The driver is loaded but cannot start the NVIDIA GPU"
    nvcc = (
        judged(shows(event("cuda-toolkit-mismatch-extension-build", torch="12.1")))
        .findings[0]
        .title
    )
    assert nvcc.startswith("nvcc is of another CUDA, torch was built with CUDA 12.1")


def test_a_name_that_was_cut_before_the_model_is_none() -> None:
    row = "|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0 Off |                  N/A |"
    lost = "NVRM: GPU at 0000:01:00.0 has fallen off the bus."
    assert root(f"{row}\n{lost}").title == "The NVIDIA GPU has fallen off the PCI bus"


# --- systems --------------------------------------------------------------------------------------


def test_who_built_a_compiler_is_not_the_system_of_the_machine() -> None:
    gcc = "built with cc (Ubuntu 11.4.0-1ubuntu1~22.04.2) 11.4.0"
    assert read_report(f"{gcc}\nOS: none").os.name is None
    assert read_report(f"{gcc}\nI am on Ubuntu 20.04 here").os.name == "Ubuntu 20.04"
    assert read_report("gcc version 9.4.0 (Ubuntu 9.4.0-1ubuntu1)").os.name is None


def test_a_list_item_ends_the_name_of_a_system() -> None:
    asked = " - OS (e.g., Linux): Windows 10\n - How you installed PyTorch (`conda`, `pip`): pip"
    assert read_report(f" - PyTorch Version (e.g., 1.0): 1.4\n{asked}").os.name == "Windows 10"


# --- commands -------------------------------------------------------------------------------------


def test_a_windows_host_is_not_told_to_run_systemctl() -> None:
    said = (
        'Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'
    )
    text = f"OS: Microsoft Windows 11 Pro\ndocker: {said}"
    assert commands(text)[0] == "wsl --update"
    assert not any("sudo" in one for one in commands(text))
    assert "WSL 2" in (fix.text if (fix := root(text).fix) else "")
    assert "sudo systemctl restart docker" in commands(f"OS: Ubuntu 22.04\ndocker: {said}")


def test_the_drivers_own_report_is_written_as_root_and_only_on_linux() -> None:
    xid = "NVRM: Xid (PCI:0000:41:00): 74, pid=1, name=x, NVLink: fatal error detected on link 6"
    assert "sudo nvidia-bug-report.sh" in typed(root(xid).fix)
    assert "sudo nvidia-bug-report.sh" not in typed(root(f"{xid}\nunder WSL2 on Windows 11").fix)


def test_a_machine_without_gpus_is_not_given_a_container_with_them() -> None:
    libc = "/lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found (required by /x/y.so)"
    assert commands(libc) == ("docker run --rm --gpus all -it ubuntu:24.04",)
    assert commands(f"{libc}\ntorch==2.1.0+cpu") == ("docker run --rm -it ubuntu:24.04",)


def test_a_torch_older_than_the_catalog_is_installed_from_its_own_page() -> None:
    missing = "ERROR: No matching distribution found for torch==1.4.0+cpu"
    finding = root(f"Python version: 3.8.2\nERROR: Could not find a version that satisfies the "
                   f"requirement torch==1.4.0+cpu (from versions: 0.1.2)\n{missing}")  # fmt: skip
    assert finding.title.startswith("The installer finds no wheel of torch==1.4.0+cpu")
    assert finding.fix and finding.fix.commands[-1].endswith("torch_stable.html torch==1.4.0+cpu")


def test_a_text_of_uv_is_answered_with_uv() -> None:
    solver = "  × No solution found when resolving dependencies:\n  ╰─▶ Because torch==2.4.1 needs"
    text = f"$ cd /home/x/.venv/\n{solver} triton==3.0.0 and you require triton==3.1.0"
    assert commands(text)[0].startswith("gpusetup install")
    assert (fix := root(text).fix) and fix.alternatives[0].commands[0].startswith("uv pip ")


def test_a_command_line_of_uv_is_one_and_a_remark_is_none() -> None:
    assert read_report("(env) me@host:~/x$ uv sync --extra cu124").python.manager == "uv project"
    assert read_report("❯ uv run --with torch x.py").python.manager is None
    assert read_report("❯ uv pip install torch").python.manager == "uv"
    assert read_report("someone said that uv pip install torch would do").python.manager is None


def test_the_flavour_of_the_kernel_modules_is_the_one_that_the_kernel_asks_for() -> None:
    asked = "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
    fix = root(f"NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)\n{asked}").fix
    assert fix and "open kernel modules, which this GPU needs" in fix.text


def test_a_wheel_for_another_python_of_a_jetson_says_so() -> None:
    board = "JetPack: 5.1.2\n# R35 (release), REVISION: 4.1\n>>> torch.cuda.is_available()\nFalse"
    assert (fix := root(f"Python version: 3.10.4\n{board}").fix) and "Python 3.8, not" in fix.text
    assert (fix := root(f"Python version: 3.8.10\n{board}").fix) and "3.8" not in fix.text


def test_no_build_is_said_to_serve_a_driver_that_is_not_known() -> None:
    said = "CUDA driver version is insufficient for CUDA runtime version"
    assert commands(f"program: {said}") == ()


def test_a_driver_that_no_build_serves_is_to_be_updated_and_a_python_to_be_made() -> None:
    old = "PyTorch version: 1.7.1+cpu\nIs CUDA available: False\nOS: Microsoft Windows 10 Pro\n"
    fix = root(f"{old}GPU models: GPU 0: GeForce MX250\nNvidia driver version: 441.22").fix
    assert fix and fix.min_driver and f"Update it to {fix.min_driver} or newer" in fix.text
    line = "ImportError: libcudnn.so.7: cannot open shared object file: No such file or directory"
    fix = root(f"Python version: 2.7\nOS: Ubuntu 16.04\n{line}").fix
    assert fix and fix.commands[0].startswith("uv venv --python 3.") and fix.python


def test_a_program_that_is_not_torch_is_not_only_told_of_torch() -> None:
    said = "failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version"
    fix = root(f"ggml_cuda_init: {said}\ndriver version: 515.65.01").fix
    assert fix and "the program's build for an older CUDA" in fix.text
    fix = root(f"PyTorch version: 2.5.1+cu124\n{said}\ndriver version: 515.65.01").fix
    assert fix and "program" not in fix.text


def test_code_in_a_command_is_quoted_as_one_reads_it() -> None:
    text = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    machine = replace(read_report(f"OS: Ubuntu 22.04\n{text}"), origin="composed")
    found = next(one for one in judged(machine).findings if one.root)
    assert any(line.startswith('python -c "import torch; ') for line in typed(found.fix))


def test_a_value_that_is_not_known_is_not_printed_as_none() -> None:
    text = "pip list\ntorch 1.13.1\nAssertionError: CUDA_HOME does not exist, unable to compile CUDA op(s)"
    assert quoted(text) and not any("None" in line for line in quoted(text))


def test_commands_that_exclude_each_other_are_told_apart() -> None:
    text = (
        "PyTorch version: 2.2.1+cu121\nCuda compilation tools, release 11.8, V11.8.89\n"
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to "
        "compile PyTorch (12.1)."
    )
    fix = root(text).fix
    assert fix and fix.commands[0].startswith("export CUDA_HOME=")
    *_, other = fix.alternatives
    assert other.title.startswith("keep nvcc and install torch ")
    assert other.commands[0].startswith("gpusetup install")


def test_a_second_way_is_not_taken_before_the_first() -> None:
    xid = "NVRM: Xid (PCI:0000:0b:00): 119, pid=7, name=x, Timeout waiting for RPC from GSP!"
    fix = root(xid).fix
    assert fix and fix.commands == ("sudo reboot",)
    assert "NVreg_EnableGpuFirmware=0" in fix.alternatives[0].commands[0]


def test_a_device_plugin_is_of_kubernetes_whose_pods_are_not_restarted_by_docker() -> None:
    lines = (
        "Failed to initialize NVML: Unknown Error.",
        "You can check the prerequisites at: https://github.com/NVIDIA/k8s-device-plugin#x",
    )
    assert (fix := root("\n".join(lines)).fix) and "`kubectl delete pod`" in fix.text


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
    assert first == ("**ok**: the driver answers and the GPU is healthy; torch was not shown")
    torch = doctor_markdown(
        answered(f"{driver}\nPyTorch version: 2.6.0+cu124\nIs CUDA available: True")
    )
    assert torch.startswith("**ok**: torch 2.6.0+cu124 can use Tesla T4")


def test_a_gpu_that_only_lspci_shows_is_read() -> None:
    bus = "02:00.0 3D controller: NVIDIA Corporation TU117M [GeForce GTX 1650 Mobile] (rev a1)"
    assert "GeForce GTX 1650 Mobile" in doctor_markdown(answered(f"$ lspci -k\n{bus}"))


def test_a_variable_is_set_as_the_shell_of_the_system_sets_it() -> None:
    old = (
        "RuntimeError: Found NVIDIA GeForce GTX 1070 which is too old to be supported by the "
        "triton GPU compiler, which is used as the backend. Triton only supports devices of CUDA "
        "Capability >= 7.0, but your device is of CUDA capability 6.1"
    )
    assert commands(f"OS: Ubuntu 22.04\n{old}") == ("export TORCHDYNAMO_DISABLE=1",)
    windows = f"OS: Microsoft Windows 11 Pro\n{old}"
    assert commands(windows) == ("$env:TORCHDYNAMO_DISABLE = '1'",)


def test_versions_that_need_not_agree_are_told_apart_in_one_note() -> None:
    text = (
        "PyTorch version: 2.5.1+cu124\nIs CUDA available: True\nCUDA runtime version: 11.5.119\n"
        "GPU models and configuration: GPU 0: Tesla T4\nNvidia driver version: 550.120"
    )
    ids = [finding.id for finding in answered(text).findings]
    assert "cuda-versions-differ" in ids and "cuda-toolkit-differs" not in ids


def test_no_answer_says_that_it_computed_above_a_failure_that_the_text_reports() -> None:
    xid = "NVRM: Xid (PCI:0000:06:00): 31, pid=77, name=python3, MMU Fault: ENGINE GRAPHICS"
    told = doctor_markdown(answered(xid))
    assert told.startswith("**cuda-program-error**: The kernel log holds Xid")
