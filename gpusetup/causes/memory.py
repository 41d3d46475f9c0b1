"""The GPU has run out of memory."""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import proofs
from gpusetup.evidence.context import events, has_nvidia
from gpusetup.fixes import training
from gpusetup.messages.row import says

OOM = r"(?:OOM(?:s|ed|ing|'d)?|out[- ]of[- ](?:the )?memory)(?![a-z:_])"

SAME_MESSAGE = r"(?:(?!out of memory).)"
"""A character that does not begin another "out of memory", because a title may quote the message
that follows it."""

CAUSES = (
    Cause(
        "out-of-memory",
        by_check=True,
        certain_if=proofs.numbers_show_it_is_full,
        check=CheckCommand("nvidia-smi --query-gpu=name,memory.total,memory.used --format=csv", "name, memory.total [MiB], memory.used [MiB]\nNVIDIA GeForce RTX 3090, 24576 MiB, 24110 MiB"),
        title="The GPU's memory is full",
        means="The model, its gradients and optimizer states, the activations and other programs "
        "share the GPU's memory, and together they need more than it has.",
        text=training.STEPS,
        # Source: torch documentation, memory management.
        explains=("gpu-check-failed", "cuda-library-error"),
        way=training.full_memory,
        cases=(
            # A Mac and other makers' GPUs have nothing that needs CUDA.
            Message(
                where=(lambda context: has_nvidia(context) is False,),
                text="For training, take these steps in order until the training fits: a smaller "
                "batch with gradient accumulation, a lower precision (bfloat16, float16), gradient "
                "checkpointing, LoRA, and last a smaller model. For inference, use smaller inputs "
                "or a quantized model. End other programs on the GPU",
            ),
            Message(
                having={"alone": ""},
                text="This one tensor is larger than the whole GPU. Check its shape: for "
                "example, attention that is written out by hand grows with the square of the "
                "input's length. Use `scaled_dot_product_attention` or a shorter input. Memory "
                "that other programs use is not the reason",
            ),
            Message(
                having={"others": ""},
                title="Other programs use {others} of the GPU's {total}",
                text="End the program that uses the memory (often an earlier run that is still "
                "there, or another notebook), or use another GPU. A smaller batch does not help "
                "here",
                look=("nvidia-smi",),
            ),
            Message(
                having={"unused": ""},
                title="CUDA could not allocate {asked} of GPU memory, although {unused} is free",
                means="The numbers in the message show that there is enough GPU memory. On "
                "Windows (and in WSL), GPU memory also needs the computer's memory and page "
                "file, so their limit is reached first. On other systems, it is a limit of the "
                "process.",
                text="Watch the computer's memory while the program runs (Windows: the committed "
                "memory in the Task Manager). Enlarge the page file, or let Windows manage it; "
                "in WSL, raise `memory=` in %UserProfile%\\.wslconfig. A smaller batch does not "
                "help",
                look=("nvidia-smi",),
            ),
            Message(
                having={"short": "cache"},
                title="The share of the GPU's memory that {engine} uses leaves too little for "
                "its KV cache",
                text="Lower the context length or the number of requests (vLLM: `--max-model-len`, "
                "`--max-num-seqs`; SGLang: `--context-length`, `--max-running-requests`). If no "
                "other program uses the GPU, let the server use a larger share of its memory "
                "instead (vLLM: `--gpu-memory-utilization`; SGLang: `--mem-fraction-static`). If "
                "the memory is still too small, use a quantized model or more GPUs",
                look=("nvidia-smi",),
            ),
            Message(
                having={"engine": "vLLM"},
                text="When vLLM starts, it reserves a fixed share of the GPU's total memory "
                "(`--gpu-memory-utilization`), but that much memory is not free. End the other "
                "programs on the GPU, or lower `--gpu-memory-utilization`",
                look=("nvidia-smi",),
            ),
            Message(
                having={"engine": "llama.cpp"},
                text="Put fewer layers on the GPU (`--n-gpu-layers`; ollama: `num_gpu`) or use a "
                "smaller context (`--ctx-size`; ollama: `num_ctx`). End other programs on the GPU",
                look=("nvidia-smi",),
            ),
            Message(
                where=(lambda context: bool(events(context, "ran-first")),),
                text="The training computed steps before it failed, so it fits in principle, and "
                "something later needed more: the longest batch, an evaluation, or memory that "
                "grows because a loss or an output is kept with its graph (store `loss.item()` "
                "and `out.detach()`). Run it under `gpusetup monitor`, which shows whether the "
                "memory jumps or grows. If the longest batch is the reason, limit its length, or "
                "use a smaller batch with gradient accumulation (32 = 8 x 4 trains in the same "
                "way)",
                look=("gpusetup monitor -- python train.py",),
            ),
        ),
        asks=("nvidia-smi",),
        says=(
            r"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate (?P<asked>[\d.]+ ?[KMG]i?B)(?:.{0,12}GPU (?P<gpu>\d+))?(?:[ ;).a-z]{1,30}(?P<total>[\d.]+ ?[KMG]i?B) total capacity| has a total capaci?ty of (?P<total2>[\d.]+ ?[KMG]i?B))?" rf"(?:{SAME_MESSAGE}{{0,90}}?(?P<free>[\d.]+ ?(?:[KMG]i?B|bytes)) (?:is )?free)?(?:{SAME_MESSAGE}{{0,200}}?(?:this process has )?(?P<held>[\d.]+ ?[KMG]i?B) (?:reserved in total|cached|memory in use\. Of the allocated))?(?:{SAME_MESSAGE}{{0,200}}?(?P<idle>[\d.]+ ?[KMG]i?B) is reserved by PyTorch but unallocated)?",
            says(r"mps backend out of memory(?: \(MPS allocated: (?P<held>[\d.]+ ?(?:bytes|[KMG]i?B)), other allocations: (?P<beside>[\d.]+ ?(?:bytes|[KMG]i?B)), max allowed: (?P<total>[\d.]+ ?[KMG]i?B)\)(?:\.? ?Tried to allocate (?P<asked>[\d.]+ ?(?:bytes|[KMG]i?B)))?)?", example="RuntimeError: MPS backend out of memory (MPS allocated: 17.50 GB, other allocations: 380.00 MB, max allowed: 18.13 GB). Tried to allocate 512.00 MB on private pool."),
            r"hip error: out of memory|ur_result_error_out_of_device_memory|cuda_error_out_of_memory|\bcuda_out_of_memory\b|cublas_status_alloc_failed|cudaerrormemoryallocation|erroroutofdevicememory",
            says(r"ResourceExhaustedError\b.{0,300}?(?:failed to allocate memory|OOM when allocating)|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|OOM when allocating tensor.{0,200}?device:GPU|Out of memory allocating [\d,]{1,20} bytes", example="XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes."),
            r"NVML_SUCCESS == .{1,220}?CUDACachingAllocator",
            says(r"Not enough memory\. Please try (?:to )?increas\w{1,3} --mem-fraction-static", engine="SGLang", short="cache", example="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.88"),
            says(r"Not enough memory to handle \d{1,9} (?:prefill|total) tokens", example="RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`"),
            says(r"Out of memory in cu(?:Mem|Ctx|Module|Launch|Graph|Array|Tex|Stream)\w{0,40}", example="Out of memory in cuMemAlloc(&device_pointer, size)"),
            says(r"unable to allocate CUDA\d{1,2} buffer|failed to allocate (?:CUDA|Vulkan|ROCm|SYCL|HIP)\d{1,2} buffer of size|failed to allocate compute (?:pp |tg )?buffers|ggml_vulkan: Device memory allocation of size \d{5,15} failed", example="ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 565182976"),
            r"Some modules are dispatched on the CPU or the disk",
            says(r"torch\.(?:cuda\.)?OutOfMemoryError", unless=r"memory\. tried to allocate|except torch"),
            says(r"Free memory on device.{0,20}?(?:\((?P<left>[\d.]{1,7})/(?P<of>[\d.]{1,7}) GiB\).{0,30}?)?is less than desired GPU memory utilization(?: \((?P<share>[01]?\.\d{1,4}))?", engine="vLLM at its start", example="ValueError: Free memory on device (9.5/23.6 GiB) on startup is less than desired GPU memory utilization (0.9, 21.2 GiB)."),
            says(r"Failed to allocate memory for requested buffer of size \d{3,15}", unless=r"\['CPUExecutionProvider'\]|ortvalue.{0,20}cpu", example="Failed to allocate memory for requested buffer of size 67108864"),
            says(r"failed to allocate (?:a )?buffer for (?:the )?kv cache", unless=r"CPU KV buffer|--no-kv-offload", example="Failed to initialize the context: failed to allocate buffer for kv cache"),
            says(r"\b(?:CUDA|GPUs?|VRAM|torch)(?: memory)? (?:\w+ )?(?:out of memory(?![a-z:_])|OOMs?\b)|\bOOMs? on (?:the |my )?(?:\w+ )?(?:GPU|card)\b|\bout of memory on (?:the |my )?GPU\b", unless=r"\b(?:avoid|prevent|without|never|no) (?:\S{1,12} ){0,3}(?:OOM|out of memory)|\bif\b", example="after an hour the GPU ran out of memory"),
            says(r"\b(?:not enough|out of) (?:GPU memory|VRAM)\b|\b(?:VRAM|GPU memory) (?:is|gets) (?:exhausted|full)\b", unless=r"\bif\b", example="there is not enough VRAM for this model"),
            says(r"no available memory for the cache blocks|larger than the (?:available KV cache memory|maximum number of tokens that can be stored in (?:the )?KV cache)", engine="vLLM", short="cache", example="(5.62 GiB KV cache is needed, which is larger than the available KV cache memory (3.2 GiB)."),
            says(r"cudaMalloc failed: out of memory", engine="llama.cpp"),
        ),
        formerly=("gpu-gives-no-memory",),
    ),
)  # fmt: skip
