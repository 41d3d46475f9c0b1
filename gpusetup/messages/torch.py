"""Messages about torch's build, CUDA and GPUs, both from torch itself and in people's words.

Sources: torch 0.4 to 2.13 (torch/cuda/__init__.py, c10/cuda, c10/xpu, ATen), vLLM, JAX, numba-cuda,
TensorFlow, YOLO's select_device, oneAPI, tiny-cuda-nn, ollama.

Sources, as of November 2026: titles and first lines of threads in issue trackers and forums.
"""

from __future__ import annotations

from gpusetup.messages.row import row

# `is_available()` in any sentence or language: "is_available() is False", "gibt immer False".
UNAVAILABLE = r"cuda\.is_available(?: ?\(\))?(?:(?!True\b)[^\n]){0,40}?(?<![A-Za-z_=])(?<!build: )False(?![A-Za-z_])"

ROWS = (
    # `assert torch.cuda.is_available()"` … `AssertionError`.
    row("cuda-unavailable", r"assert torch\.cuda\.is_available\(\).{0,700}?AssertionError"),
    row("cuda-unavailable", r"torch\.cuda\.is_available\(\).{0,200}?# ?(?:[-=]*> ?)?False", asked="yes", example="torch.cuda.is_available()  # => False"),
    row("cuda-unavailable", UNAVAILABLE, unless=r"\b(?:if|when|falls|wenn|if not|while not)\b[^\n]{0,12}torch\.cuda|如果|assert", asked="yes"),
    row("cuda-unavailable", "torch is not able to use gpu"),
    row("cuda-unavailable", r"device_type of 'cuda', but CUDA is not available"),
    row("cuda-unavailable", "no cuda gpus are available"),
    row("cuda-unavailable", "might not have a cuda gpu"),
    row("cuda-unavailable", "no cuda runtime is found"),
    row("cuda-unavailable", r"Invalid CUDA '?(?:--)?device[ =][^\s{]{1,12} requested"),
    row("cuda-unavailable", r"CUDA unavailable, invalid device \S{1,12} requested"),
    row("cuda-unavailable", r"(?<!cuda\.)\bselect_device\([\w.]{1,30}(?!.{0,600}?Invalid CUDA '?(?:--)?device[ =](?:cuda|gpu)'?)"),
    row("cuda-unavailable", r"No (?:CUDA |compatible )?GPUs?(?: or other accelerators?)? (?:was |were )?detected"),
    row("cuda-unavailable", r"CUDA is not available\.? {1,2}Disabling|ops, but CUDA is not available"),
    row("torch-not-compiled-with-cuda", r"(?:built|compiled) with CUDA(?: support)?:\s?(?:False|No)\b"),
    row("torch-not-compiled-with-cuda", r"Torch not compiled with CUDA(?: enabled)?"),
    row("torch-not-compiled-with-cuda", r"PyTorch (?:was|is) compiled without CUDA support"),
    row("no-hip-gpus", "no hip gpus are available"),
    row("no-xpu", r"Torch not compiled with XPU|not linked with support for xpu", why="build", example="not linked with support for xpu"),
    row("cuda-unavailable", r"\bno (?:supported|compatible|suitable) (?:nvidia |cuda )?gpus? (?:backend )?(?:was |were |is |are )?(?:found|detected|available)\b", "no supported ", "no compatible ", "no suitable ", unless=r"\b(?:if|when) no (?:supported|compatible|suitable)", example="no compatible CUDA GPU was detected"),
    row("cuda-error", r"(?:block: \[[\d, ]{3,40}\],? thread: \[[\d, ]{3,40}\]\W{1,5}Assertion|\bAssertion\W{1,4}(?:srcIndex < |t >= 0 && t < |-sizes\[i\] <= index|idx_dim >= 0 &&|input_val >= )).{1,160}?failed", code="710", name="cudaErrorAssert", example="Assertion `srcIndex < srcSelectDimSize` failed"),
    row("gpu-not-in-wheel", r"Unknown CUDA arch \((?P<capability>(?:[89]|1\d)\.\d)[af]?\) or GPU not supported", side="new", example="Unknown CUDA arch (12.0) or GPU not supported"),
    row("no-nvidia-driver", "cuda driver library cannot be found", library="libcuda.so"),
    row("no-nvidia-driver", "could not open libcuda", library="libcuda.so"),
    row("cuda-unavailable", "failed to infer device type"),
    row("cuda-unavailable", r"failed call to cuInit.{0,80}CUDA_ERROR_NO_DEVICE"),
    row("no-xpu", r"Native API (?:failed|returns)", why="driver"),
    row("no-xpu", r"No device of requested type ['\"]?(?:info::device_type::)?gpu", why="driver"),
    # `nvidia-smi in a terminal I can see my two 3090`.
    # `nvidia-smi works fine`, `nvidia-smi shows my GPU`.
    row("smi-sees-it", r"\bnvidia-smi\b[^.\n]{0,30}? (?:works?\b(?! (?:only )?(?:on|in) the)|(?:shows?|showed|detects?|sees?|lists?|finds?|recogni[sz]es)\b[^.\n]{0,40}?\b(?:GPUs?|cards?|[RG]TX|[345]0[5-9]0s?)\b)", unless=r"\b(?:if|when|whether|make sure|check|no longer|ensure|not|n't) (?:\S{1,12} ){0,3}?`?nvidia-smi"),
    # `libtorch 2.3.1 cpu_mkl_h0bb0d08_100`, a line of `conda list`.
    row("torch-not-compiled-with-cuda", r"(?:lib|py)torch +\d[\w.]{1,12} +cpu_\w{3,40}"),
    # `PyTorch does not detect my GPU`, `GPU not detected by PyTorch`.
    row("cuda-unavailable", r"torch(?: [\d.]+)? (?:can ?not|can't|does(?: not|n't)) (?:see|find|detect|use|recogni[sz]e) (?:the |my |any )?(?:GPUs?|CUDA|[RG]TX \d{3,4})\b|\bGPU (?:is )?not (?:detected|recogni[sz]ed|found|used) by PyTorch", unless=r"\b(?:if|when|whether|in case|make sure) (?:\w+ ){0,3}?(?:py)?torch\b", asked="yes"),
    row("gpu-computes", r"tensor\(\S.{0,200}?, device='(?P<device>cuda:\d{1,2})'", example="tensor([[0., 0., 0.]], device='cuda:1'"),
    row("no-matching-distribution", r"Looking in links: \S{0,160}(?:cu\d{2,3}|torch-?\d)\S{0,80}.{0,400}?No matching distribution found for (?P<requirement>(?!torch(?:vision|audio)?(?![\w-]))[a-z][\w-]{1,40}(?:[=<>!~]{1,2}[\w.+]{1,30})?)(?![\w-])", none_found="true"),
    row("module-not-found", r"NVIDIA kernel module (?:is )?(?:missing|not found)", unless=r"\b(?:if|when)\b[^.\n]{0,40}NVIDIA kernel module", example="Nvidia kernel module missing"),
)  # fmt: skip
