"""Output of tools that proves a fact about the machine, but no cause."""

from __future__ import annotations

from gpusetup.messages.row import MessageRow, row

# `>>> False`, `Out [12]: False`, `"True"`: a whole text of one word.
ALONE = r"^(?:>>> ?|out ?\[\d{{1,5}}\]: ?)?[\W_]{{0,4}}(?P<bare>{})[\W_]{{0,4}}$"
ROWS: tuple[MessageRow, ...] = (
    # An answer by which torch sees no GPU, and the call whose result it usually is.
    row("cuda-unavailable", ALONE.format("False"), "false", asked="yes", question="torch.cuda.is_available()"),
    row("cuda-unavailable", ALONE.format("None"), "none", asked="yes", question="torch.version.cuda"),
    row("cuda-unavailable", ALONE.format("cpu"), "cpu", asked="yes", question="the device that a program chose"),
    row("bare-yes", ALONE.format("True"), "true", example="True"),
    # collect_env, if torch has no device and neither nvidia-smi nor nvcc answers; also with the example of an
    # issue form before the answer. A build for Intel's GPUs prints it on a machine where nothing is wrong.
    row("no-nvidia-gpu", r"GPU models and configuration(?: \(e\.g\.[^)]{0,40}\))?\s?: ?[ *-]*No CUDA", unless=r"XPU available: True", shown_by="collect_env", example="GPU models and configuration: No CUDA"),
    # What `ls` and Python print below the commands that doctor asks for.
    row("container-no-gpu", r"# in (?:the|a|my) container\b.{0,80}?ls: cannot access '?/dev/nvidia0\b", "/dev/nvidia0", example="$ ls /dev/nvidia0  # in the container\nls: cannot access '/dev/nvidia0': No such file"),
    row("wsl-driver", r"ls: cannot access '?/dev/dxg'?: No such file", "/dev/dxg", example="ls: cannot access '/dev/dxg': No such file"),
    row("module-shadowed", r"print\(torch\.__file__\)\S{0,4} (?P<path>\S{1,300}[\\/]torch\.py)(?!\S)", "torch.__file__", module="torch", example='python -c "import torch; print(torch.__file__)"\n/home/me/torch.py'),
    # A folder with the toolkit's stubs or with CUDA's libraries, which would be loaded before torch's own.
    row("libcuda-stub", r"LD_LIBRARY_PATH[}'\"]{0,2}[=: ]{1,3}[^\s]{0,400}?(?P<folder>/[^\s:'\"]{0,100}/stubs\b[^\s:'\"]*)", "ld_library_path"),
    row("foreign-library", r"LD_LIBRARY_PATH[}'\"]{0,2}[=: ]{1,3}[^\s]{0,400}?(?P<folder>/[^\s:'\"]{0,100}?(?:/cuda|cudnn|nccl)[^\s:'\"]*)", "ld_library_path", unless="/stubs"),
    row("container-engine", r"\b(?P<engine>cri-o|containerd|docker)://\d", "://", example="cri-o://1"),
    row("container-engine", r"/(?:var/)?run/(?P<engine>crio|containerd|k3s)\b[\w/.-]*\.sock", ".sock", example="/var/run/crio/crio.sock"),
    row("vendor-image", r"\b(?P<image>(?:intelanalytics|intel/(?:intel-extension-for-pytorch|vllm)|rocm/(?:pytorch|vllm|dev)|nvcr\.io/nvidia|nvidia/pytorch|dustynv|l4t-pytorch)[\w./:@-]*)", "intelanalytics", "intel/", "rocm/", "nvcr.io", "nvidia/pytorch", "dustynv", "l4t-pytorch", example="nvcr.io/nvidia/l4t-pytorch:r32.4.2-pth1.5-py3"),
    row("container-start-failed", r"Failed to run mount hooks|error running (?:prestart |createRuntime )?hook|\bhooks?\b[^\n]{0,40}?exit status [1-9]|Failed to setup container", "hook", "setup container", example="hook #0:: error running hook: exit status 1"),
    row("toolkit-installed", r"\bii +nvidia-container-toolkit +(?P<version>\d[\w.-]*)", "nvidia-container-toolkit", example="ii  nvidia-container-toolkit         1.16.2-1"),
    row("toolkit-installed", r"\bnvidia-container-toolkit-(?P<version>1\.\d{1,2}\.\d)", "nvidia-container-toolkit-", example="nvidia-container-toolkit-1.17.8"),
    row("toolkit-installed", r"NVIDIA Container (?:Toolkit CLI|Runtime Hook) version (?P<version>\d[\w.-]*)", "nvidia container", example="NVIDIA Container Toolkit CLI version 1.17.4"),
    row("gpu-unused", r"FP16 is not supported on CPU; using FP32 instead", "fp16 is not supported on cpu"),
    row("host-of-a-lender", r"\b(?:RunPod|vast\.ai|TensorDock|SaladCloud|Novita)\b|\b(?:can ?not|can't|not allowed to|no way to|unable to) (?:reboot|restart|power[- ]cycle)\b", "runpod", "vast.ai", "tensordock", "saladcloud", "novita", "reboot", "restart", "cycle"),
    row("torch-loads-libraries", r"\b_load_global_deps\b|from torch\._C import \*(?! *\n?ModuleNotFound)|\b_preload_cuda_deps\b", "_load_global_deps", "torch._c", "_preload_cuda_deps", example="_load_global_deps"),
    row("host-of-a-lender", r"\bhf jobs\b|\bHF Jobs\b|\bHugging ?Face Jobs\b|\b(?:Modal|Paperspace|CoreWeave|Lightning AI|Lambda(?: Labs| Cloud)?|Jarvislabs|Vultr|SageMaker|Vertex AI)\b(?: (?:job|pod|instance|machine|GPU|node)s?)", "hf jobs", "hugging", "modal", "paperspace", "coreweave", "lightning", "lambda", "jarvis", "vultr", "sagemaker", "vertex"),
    row("nccl-on-a-bridge", r"NCCL INFO (?:Bootstrap : Using|NET/Socket : Using \[0\]) ?(?P<interface>docker\d|br-\w{4,16}|virbr\d|veth\w{2,12}):", "nccl info", example="NCCL INFO Bootstrap : Using docker0:"),
    row("output-shown", r"NCCL INFO (?:Bootstrap|NET/|Channel|Connected|comm )", "nccl info", what="nccl", example="NCCL INFO Bootstrap"),
    row("output-shown", r"\b(?:amdgpu|xe|i915) 0000:[0-9a-f]{2}:|\bkernel: \[drm", "0000:", "kernel: ", what="kernel", example="amdgpu 0000:03:"),
    row("output-shown", r"\bIs CUDA available: ", "is cuda available", what="collect-env"),
    row("output-shown", r"\bgcnArchName\b|\bAgent \d+ +\*|\bMarketing Name: ", "gcnarchname", "agent ", "marketing name", what="devices"),
    row("output-shown", r"\bThread 0x[0-9a-f]+ \((?:active|idle|most recent)|\bCurrent thread 0x[0-9a-f]+|\bThread \d+ \((?:active|idle)", "thread 0x", "(active", "(idle", what="threads", example="Thread 0x7f3a (most recent call first)"),
    # `torch.backends.mps.is_available() True`.
    row("output-shown", r"\bmps\.is_available\(\)\S{0,3} ?(?:\d\.\d{1,2}\.\d\S* )?\W{0,12}(?:True|False)\b|\bMPS (?:is )?available:? (?:True|False)\b", "mps", what="mps"),
    # `torch.xpu.is_available() False`.
    row("output-shown", r"\bxpu\.is_available\(\)\S{0,2} ?\W{0,12}(?:True|False)\b|\bXPU (?:is )?available:? (?:True|False)\b|\bxpu device count is zero\b|\bxpu[. ]device_count(?:\(\))?['\"`]*\)?[,: ]{1,3}\d\b", "xpu", what="xpu"),
    row("output-shown", r"\bGPU0 +GPU1\b|\bGPU0 +X\b", "gpu0 ", what="topology", example="GPU0    GPU1    CPU Affinity"),
    row("output-shown", r"\bCUDA_LAUNCH_BLOCKING ?= ?[\"']?1", "cuda_launch_blocking", unless=r"For debugging consider passing|set CUDA_LAUNCH_BLOCKING ?= ?1 to|try(?:ing)? ", what="blocking"),
    row("output-shown", r"\bC(?:\+G)? +\S*python\S* +\d{3,6} ?MiB", "mib", what="processes", example="0   N/A  N/A   1234   C   python   5000MiB"),
    row("program-crashed", r"\bIllegal instruction\b|\bSIGILL\b|\b0xC000001D\b", "illegal instruction", "sigill", "0xc000001d", what="instruction", example="Illegal instruction"),
    row("program-crashed", r"\bSegmentation fault\b|\bSIGSEGV\b|\bsegfaults?\b|\baccess violation\b|\bMemory access fault\b|\b0xC0000005\b", "segmentation", "sigsegv", "segfault", "access", "0xc0000005", what="memory", example="Segmentation fault"),
)  # fmt: skip
"""Output by which a program, a tool or an image is known."""
