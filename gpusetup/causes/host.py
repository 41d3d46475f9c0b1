"""The host's memory and disks, a GPU's memory, and settings that make CUDA slow or imprecise."""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import checks, proofs
from gpusetup.evidence.context import RuleContext, events, in_container
from gpusetup.fixes import training
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity
from gpusetup.model.machine import Disk
from gpusetup.model.units import GIB

SHM = r"/dev/shm|torch_\d|</torch|shared memory|nccl|torch\.save|PytorchStreamWriter|save_checkpoint|save_pretrained|checkpoint-\d"
"""Words for other places that can be full: shared memory, or the disk of a program's checkpoints."""

NEEDED_BYTES = {"site-packages": 8 * GIB, "tmp": GIB}
"""The folder of an install -> the disk space that a CUDA build of torch needs there: 3 GiB for the
wheels and 5 GiB unpacked (torch 2.9 on Linux). Wheels are unpacked next to their target, so /tmp
needs less."""
CACHE_BYTES = 4 * GIB
"""The disk space that the installer's cache needs."""


def short_disks(context: RuleContext) -> tuple[Disk, ...]:
    """The disks that have too little space for an install."""
    return tuple(
        disk
        for disk in context.snapshot.disks
        if disk.free_bytes is not None
        and disk.free_bytes < NEEDED_BYTES.get(disk.subject, CACHE_BYTES)
    )


SAME_MESSAGE = r"(?:(?!out of memory).)"
"""A character that does not begin another "out of memory", because a title may quote the message
that follows it."""

CAUSES = (
    Cause(
        "shm-too-small",
        certain_if=proofs.message_states("shm-too-small", "shared memory|shm"),
        check=CheckCommand("df -h /dev/shm  # in the container", "Filesystem      Size  Used Avail Use% Mounted on\nshm              64M     0   64M   0% /dev/shm"),
        title="/dev/shm is too small for DataLoader workers and NCCL",
        means="DataLoader workers and NCCL exchange data through shared memory (/dev/shm), of "
        "which docker gives a container only 64 MiB by default.",
        text="Give the container more shared memory (`--shm-size=8g`; in Kubernetes, mount an "
        "`emptyDir` with `medium: Memory` at /dev/shm), or use num_workers=0",
        cases=(
            Message(
                where=(lambda context: not in_container(context),),
                title="Bus error: /dev/shm is too small, or a data file is incomplete",
                text="First check how large /dev/shm is. If /dev/shm is small, start the container "
                "with `--shm-size=8g`, or use num_workers=0. If it is large enough, check whether "
                "a disk is full, or whether the dataset is damaged or on a network disk",
            ),
        ),
        asks=("df -h",),
        says=(
            says(r"killed by signal: Bus error|bus error encountered in worker|Signal 7 \(SIGBUS\) received|exitcode\s{0,8}: ?-7\b"),
            says(r"insufficient shared memory \(shm\)|workers are out of shared memory", example="ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."),
            says(r"unable to write to file </?torch_\w+>", example="RuntimeError: unable to write to file </torch_812_3419>"),
            says(r"unable to (?:mmap|resize|allocate|open).{0,80}</?torch_\w+>.{0,60}(?:No space|Cannot allocate)", example="RuntimeError: unable to mmap 1024 bytes from file </torch_7_8_9>: Cannot allocate memory (12)"),
            says(r"No space left on device.{0,20}'/dev/shm/(?!nccl)", example="OSError: [Errno 28] No space left on device: '/dev/shm/psm_ab12'"),
        ),
    ),
    Cause(
        "pip-cache-disk-full",
        by_check=True,
        certain_if=proofs.message_states_it,
        title="There is not enough disk space to install torch",
        text="Clear the installers' caches (`pip cache purge`, `uv cache clean`, `conda clean "
        "--all`), or move TMPDIR and the cache to a larger disk. An installation needs up to 8 GiB "
        "for packages, 4 GiB for the cache and 1 GiB for temporary files",
        # Source: the wheels and indexes of torch, read for the catalog.
        explains=("download-hash-mismatch",),
        says=(
            says(r"(?:\[Errno 28\] |os error 28|IOError|OSError|ERROR|error)?.{0,20}No space left on device(?::? '(?P<path>[^']{1,200})')?", unless=SHM),
            says(r"\[Errno 28\]", unless=SHM),
            says(r"\[?(?:WinError|os error) 112\b", example="OSError: [WinError 112] There is not enough space on the disk"),
            "nospacelefterror",
            "not enough space on the disk",
            r"\[Errno 122\] Disk quota exceeded",
        ),
    ),
    Cause(
        "tf32-precision",
        check=CheckCommand('python -c "import torch; ' "print(torch.backends.cuda.matmul.allow_tf32, " 'torch.backends.cudnn.allow_tf32)"', "False True"),
        title="float32 results differ in the third digit because the GPU multiplies in TF32",
        means="Ampere and newer GPUs support TF32, which is faster but less exact. By default, "
        "torch 1.7 to 1.11 uses TF32 for matrix products, and every torch uses it for "
        "convolutions.",
        text="If you need exact float32, set torch.backends.cuda.matmul.allow_tf32 = False and "
        "torch.backends.cudnn.allow_tf32 = False",
        only=Severity.NOTE,
        # Source: torch documentation, CUDA semantics.
    ),
    Cause(
        "dataloader-worker-killed",
        check=CheckCommand("sudo dmesg | grep -i 'killed process'", "Out of memory: Killed process 4711 (python3) total-vm:61204020kB, anon-rss:30106044kB"),
        title="A DataLoader worker was killed because the host ran out of memory",
        means="When memory runs out, the system (or a cgroup, or the batch system) kills the "
        "largest process. Each DataLoader worker adds its own copy of the dataset's data.",
        text="Use fewer workers (num_workers=0 shows the real error) or a smaller "
        "prefetch_factor, or give the job more memory",
        cases=(
            Message(
                having={"signal": "segmentation|abort|floating"},
                title="A DataLoader worker crashed: {signal}",
                means="A compiled library (a decoder, OpenCV, a tokenizer) crashed in the worker.",
                text="Run the program with num_workers=0 and `python -X faulthandler`. The first "
                "`File` line in its output shows which library crashed: update that library",
            ),
        ),
        # Source: torch/utils/data/_utils/signal_handling.py.
        says=(
            says(r"\bdataloader workers?(?: \(pid[^)]{0,24}\))? (?:(?:is|was|were|are|gets?|got) )?killed(?: by signal(?:ed|led):? (?:Killed|SIGKILL)\b|$| (?!by\b)|[.,!?]| by (?:a |an |the )?signal(?!(?:l?ed)?\W{0,3}(?:\d|Bus|Segm|Abort|Termin|Float|Illegal|Interrupt|Hangup|Unknown))(?!\w))", unless=r"\bif (?:the |a )?dataloader"),
            says(r"DataLoader worker \(pid\(?s?\)?:? ?[\d, ]+\) (?:is killed by signal: (?P<signal>Killed|Terminated|Segmentation fault|Aborted|Unknown signal)|exited unexpectedly)", "dataloader worker"),
            says(r"Unexpected (?P<signal>segmentation fault|floating-point exception) encountered in worker", example="ERROR: Unexpected segmentation fault encountered in worker."),
        ),
    ),
    Cause(
        "host-out-of-memory",
        title="The host ran out of memory",
        means="The computer ran out of RAM (not GPU memory), or the container reached its limit.",
        text="Load less data at once (fewer workers, memory-mapped or sharded weights), or give "
        "the job or the container more memory",
        # Source: Linux documentation, OOM killer.
        asks=(checks.HOST_MEMORY,),
        says=(
            says(r"can't allocate memory: you tried to allocate (?P<asked>\d+) bytes|DefaultCPUAllocator: not enough memory", example="RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes. Error code 12", who="torch"),
            says(r"Out of memory: Kill(?:ed)? process \d+ \((?P<who>[^)]{1,40})\)", example="Out of memory: Killed process 4711 (python3) total-vm:91234567kB, anon-rss:62345678kB"),
            says(r"oom-kill(?:er|:)?|oomkilled|std::bad_alloc|OSError: \[Errno 12\] Cannot allocate memory|MemoryError: Unable to allocate [\d.]{1,8} [KMGT]iB", example="python3 invoked oom-killer: gfp_mask=0x100cca"),
            says(r"Signal 9 \(SIGKILL\) received|return ?code ?= ?-9\b|exitcode\s{0,8}: ?-9\b|(?:exit(?:ed)?(?: with)?(?: code| status)?:?|code) 137\b", example="exitcode  : -9 (pid: 12)"),
            says(r"'(?P<who>cicc|ptxas|cudafe\+\+|nvlink)' died due to signal 9|Killed signal terminated program (?P<who2>cc1plus|cc1|ld|as)", example="nvcc error   : 'cicc' died due to signal 9 (Kill signal)"),
            says(r"Detected \d{1,6} oom_kill events?|have been OOM Killed|srun: error: \S{1,64}: tasks? [\d,-]{1,40}: Out Of Memory", example="slurmstepd: error: Detected 3 oom_kill events in StepId=12.batch", who="slurm"),
            says(r"scheduler died during initialization \(exit code: -9\)|llama runner process has terminated: signal: killed", who="the system", example="Error: llama runner process has terminated: signal: killed"),
            says(r"model requires more system memory \(\s?[\d.]{1,8} \w{1,3}\) than is available", example="Error: model requires more system memory (8.4 GiB) than is available (5.8 GiB)", who="ollama"),
        ),
    ),
    Cause(
        "open-files-limit",
        certain_if=proofs.message_states_it,
        title="Too many open files: DataLoader workers share tensors through file descriptors",
        text="Raise the limit in the shell that starts the program (with docker: `--ulimit "
        "nofile=65535:65535`). If the hard limit is too low, raise it in "
        "/etc/security/limits.conf. Or call "
        'torch.multiprocessing.set_sharing_strategy("file_system")',
        # Source: torch documentation, multiprocessing.
        commands=('ulimit -n "$(ulimit -Hn)"',),
        says=(says(r"Too many open files|received 0 items of ancdata", example="OSError: [Errno 24] Too many open files"),),
    ),
    Cause(
        "out-of-memory",
        by_check=True,
        certain_if=proofs.numbers_show_it_is_full,
        check=CheckCommand("nvidia-smi --query-gpu=name,memory.total,memory.used --format=csv", "name, memory.total [MiB], memory.used [MiB]\nNVIDIA GeForce RTX 3090, 24576 MiB, 24110 MiB"),
        title="The GPU's memory is full",
        means="The model, its gradients, optimizer states and activations share the GPU's memory "
        "with other programs.",
        text=training.STEPS,
        # Source: torch documentation, memory management.
        fix_for=training.full_memory,
        cases=(
            Message(
                having={"alone": ""},
                text="This one tensor is larger than the whole GPU. Check its shape: for example, "
                "hand-written attention needs memory that grows with the square of the input's "
                "length. Use `scaled_dot_product_attention` or a shorter input",
            ),
            Message(
                having={"others": ""},
                title="Other programs use {others} of the GPU's {total}",
                text="Stop the program that uses the memory (often an earlier run or another "
                "notebook), or use another GPU. A smaller batch does not help here",
            ),
            Message(
                having={"unused": ""},
                title="CUDA could not allocate {asked} of GPU memory, although {unused} is free",
                means="On Windows (and in WSL), GPU memory is also backed by the computer's memory "
                "and page file, and these can run out first. On other systems, a limit of the "
                "process stops the allocation.",
                text="Watch the computer's memory while the program runs (Windows: the committed "
                "memory in the Task Manager). Enlarge the page file; in WSL, raise `memory=` in "
                "%UserProfile%\\.wslconfig. A smaller batch does not help",
            ),
            Message(
                having={"engine": "vLLM|SGLang"},
                title="The share of GPU memory that {engine} may use is too small or not free",
                text="Lower the context length or the number of requests (vLLM: `--max-model-len`, "
                "`--max-num-seqs`; SGLang: `--context-length`, `--max-running-requests`). If no "
                "other program uses the GPU, let the server use a larger share of the GPU's memory "
                "(vLLM: `--gpu-memory-utilization`; SGLang: `--mem-fraction-static`)",
            ),
            Message(
                having={"engine": "llama.cpp"},
                text="Put fewer layers on the GPU (`--n-gpu-layers`; ollama: `num_gpu`) or use a "
                "smaller context (`--ctx-size`; ollama: `num_ctx`). Stop other programs that use the GPU",
            ),
            Message(
                where=(lambda context: bool(events(context, "ran-first")),),
                text="The training completed some steps before it failed, so a later step needed "
                "more memory: for example the longest batch, an evaluation, or a loss or output "
                "that you store with its graph (store `loss.item()` and `out.detach()` instead). "
                "Run the training under `gpusetup monitor`, which shows whether the memory jumps "
                "or grows. If the longest batch is the reason, limit its length, or use a smaller "
                "batch with gradient accumulation",
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
            says(r"Not enough memory\. Please try (?:to )?increas\w{1,3} --mem-fraction-static", engine="SGLang", example="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.88"),
            says(r"Not enough memory to handle \d{1,9} (?:prefill|total) tokens", example="RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`"),
            says(r"Out of memory in cu(?:Mem|Ctx|Module|Launch|Graph|Array|Tex|Stream)\w{0,40}", example="Out of memory in cuMemAlloc(&device_pointer, size)"),
            says(r"unable to allocate CUDA\d{1,2} buffer|failed to allocate (?:CUDA|Vulkan|ROCm|SYCL|HIP)\d{1,2} buffer of size|failed to allocate compute (?:pp |tg )?buffers|ggml_vulkan: Device memory allocation of size \d{5,15} failed", example="ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 565182976"),
            r"Some modules are dispatched on the CPU or the disk",
            says(r"torch\.(?:cuda\.)?OutOfMemoryError", unless=r"memory\. tried to allocate|except torch"),
            says(r"Free memory on device.{0,20}?(?:\((?P<left>[\d.]{1,7})/(?P<of>[\d.]{1,7}) GiB\).{0,30}?)?is less than desired GPU memory utilization(?: \((?P<share>[01]?\.\d{1,4}))?", engine="vLLM at its start", example="ValueError: Free memory on device (9.5/23.6 GiB) on startup is less than desired GPU memory utilization (0.9, 21.2 GiB)."),
            says(r"Failed to allocate memory for requested buffer of size \d{3,15}", unless=r"\['CPUExecutionProvider'\]|ortvalue.{0,20}cpu", example="Failed to allocate memory for requested buffer of size 67108864"),
            says(r"failed to allocate (?:a )?buffer for (?:the )?kv cache", unless=r"CPU KV buffer|--no-kv-offload", example="Failed to initialize the context: failed to allocate buffer for kv cache"),
            says(r"\b(?:CUDA|GPUs?|VRAM|torch)(?: memory)? (?:\w+ )?(?:out of memory(?![a-z:_])|OOMs?\b)|\bOOMs? on (?:the |my )?(?:\w+ )?(?:GPU|card)\b|\bout of memory on (?:the |my )?GPU\b", "out of memory", "oom", unless=r"\b(?:avoid|prevent|without|never|no) (?:\S{1,12} ){0,3}(?:OOM|out of memory)|\bif\b", example="after an hour the GPU ran out of memory"),
            says(r"\b(?:not enough|out of) (?:GPU memory|VRAM)\b|\b(?:VRAM|GPU memory) (?:is|gets) (?:exhausted|full)\b", "gpu memory", "vram", unless=r"\bif\b", example="there is not enough VRAM for this model"),
            says(r"no available memory for the cache blocks|larger than the (?:available KV cache memory|maximum number of tokens that can be stored in (?:the )?KV cache)", engine="vLLM", example="(5.62 GiB KV cache is needed, which is larger than the available KV cache memory (3.2 GiB)."),
            says(r"cudaMalloc failed: out of memory", engine="llama.cpp"),
        ),
        formerly=("gpu-gives-no-memory",),
    ),
)  # fmt: skip
