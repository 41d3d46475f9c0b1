"""The table of checks in running order: for one device, for several devices, under load, and the
census. If only GPUs have a feature, its checks run on `cuda` only."""

from __future__ import annotations

from typing import Any, Tuple

from ..values import OTHER_ACCELERATORS, Check

BOTH, GPU = ("cuda", "cpu"), ("cuda",)
EVERY = (*BOTH, *OTHER_ACCELERATORS)
"""The value of `on` for checks that need neither CUDA's own calls nor float64 on the device, so
that they also run on Intel's and Apple's GPUs."""
OF_HOST = ("host:auto", "host:cuda", "host:xpu", "host:mps")
"""The value of `on` for checks that run once, before any GPU is tested."""
AGAIN = (
    "run the check again; if it fails again, look for Xid and ECC in `dmesg`, and try another build"
)
CARD = "look for Xid and ECC in `dmesg`, reseat or replace the card"
DOCTOR = "`gpusetup doctor` names the cause"
SLOW = "look at power limit, temperature and other jobs: `gpusetup monitor`"


def of(name: str, run: str, proves: str, means: str, **fields: Any) -> Check:
    """A table row, with the usual defaults, for a check that computes on a device."""
    usual_fields = {"on": BOTH, "needs": ("properties", "arch"), "then": AGAIN}
    all_fields = {**usual_fields, **fields}
    return Check(name, f"checks.{run}", proves=proves, means=means, **all_fields)


QUICK: Tuple[Check, ...] = (
    Check(
        "import",
        "device.importing:torch_imports",
        on=(*OF_HOST, "host:cpu", "host:none"),
        proves="`import torch` works, and the module that it loads is PyTorch",
        means="nothing that uses torch can start in this environment",
        then=DOCTOR,
    ),
    Check(
        "gpu",
        "device.devices:gpus_detected",
        on=OF_HOST,
        needs=("import",),
        proves="torch sees a GPU of the requested kind",
        means="training would run on the CPU, or stop with an error",
        then=DOCTOR,
    ),
    Check(
        "libraries",
        "device.libraries:libraries_load",
        on=("host:none",),
        needs=("import",),
        proves="every CUDA library of this torch loads, even without a GPU",
        means="the image would fail on a GPU host at the first use of that library",
        then="reinstall torch: `gpusetup install`",
    ),
    Check(
        "properties",
        "device.devices:properties",
        on=EVERY,
        needs=("import", "gpu"),
        proves="the device reports its properties, and returns the data that was written to it",
        means="the device cannot be used at all",
        then=DOCTOR,
    ),
    Check(
        "arch",
        "device.devices:arch_in_build",
        on=GPU,
        needs=("properties",),
        proves="the build has a kernel, or PTX, for this GPU, and a kernel runs",
        means="every operation on this GPU would fail",
        then="`gpusetup resolve` names the build that supports this GPU",
    ),
    of(
        "matmul",
        "products:matmul",
        "a 1000 x 1000 matrix product in float32 is exact to the last bit",
        "every model would compute wrong numbers here",
        on=EVERY,
    ),
    of(
        "amp",
        "training:amp",
        "in a few steps of mixed-precision training, the loss falls and stays finite",
        "mixed-precision training cannot be trusted here",
        then="`gpusetup doctor`, then another build of torch",
        on=EVERY,
    ),
)
FIXED_WORKSPACE = (("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),)
"""Without it, cuBLAS may give other bits when several streams are active (its documentation)."""
NUMBERS = "models would compute wrong numbers"
TRAINED = "training would follow wrong numbers"
MOVED = "data would arrive changed, or slowly"
SLOWLY = "training would take many times as long as it should"

STANDARD: Tuple[Check, ...] = (
    of(
        "float64",
        "products:float64",
        "float64 products of whole numbers are exact",
        NUMBERS,
        on=EVERY,
    ),
    of(
        "float32",
        "products:float32",
        "float32 matrix products of whole numbers are exact, up to 4096 x 4096",
        NUMBERS,
        on=EVERY,
    ),
    of(
        "float32-modes",
        "products:float32_modes",
        "each setting for the precision of float32 products (TF32 or bfloat16 on and off) has the "
        "effect that torch documents",
        "switching TF32 on or off would not have the effect that the program expects",
        then="`env` shows variables that override the program (NVIDIA_TF32_OVERRIDE, DNNL_*)",
    ),
    of(
        "float16",
        "products:float16",
        "float16 products of whole numbers are exact",
        NUMBERS,
        on=EVERY,
    ),
    of(
        "bfloat16",
        "products:bfloat16",
        "bfloat16 products of whole numbers are exact",
        NUMBERS,
        on=EVERY,
    ),
    of(
        "float8",
        "products:float8",
        "numbers in both 8-bit floating-point formats are read, written, rounded and multiplied as "
        "defined",
        "models quantized to 8-bit floating point would be wrong",
    ),
    of(
        "grad-scaler",
        "training:grad_scaler",
        "the GradScaler notices an overflow, even of one number in a gradient, and skips the step",
        "float16 training would end in NaN",
        then="train in bfloat16 until another build is installed",
    ),
    of(
        "memory",
        "memory:memory",
        "most of the free memory returns the data that was written to it: patterns, their "
        "inverses and copies",
        "weights and data would change while they lie in memory",
        then=CARD,
    ),
    of(
        "out-of-memory",
        "memory:out_of_memory",
        "a request for too much memory raises an error, and the device continues to compute",
        "a batch that is too large would end the program instead of raising an error",
        then="update the driver; on Windows switch off the system memory fallback",
    ),
    of(
        "copy-in",
        "transfers:copy_in",
        "64 MiB that are copied from the host to the device arrive unchanged (the report shows "
        "the bandwidth)",
        MOVED,
        on=GPU,
        then=CARD,
    ),
    of(
        "copy-out",
        "transfers:copy_out",
        "64 MiB that are copied from the device to the host arrive unchanged (the report shows "
        "the bandwidth)",
        MOVED,
        on=GPU,
        then=CARD,
    ),
    of(
        "copy-within",
        "transfers:copy_within",
        "64 MiB that are copied within the device arrive unchanged (the report shows the "
        "bandwidth)",
        MOVED,
        then=CARD,
    ),
    of(
        "pinned",
        "transfers:pinned",
        "asynchronous copies from and to page-locked memory arrive complete",
        "data loaders with pin_memory would hand over wrong batches",
        on=GPU,
        then="use `pin_memory=False` until the driver is updated",
    ),
    of(
        "streams",
        "transfers:streams",
        "work on two CUDA streams keeps the order that CUDA events set",
        "programs that overlap copies and compute would read unfinished results",
        on=GPU,
        then="set `CUDA_LAUNCH_BLOCKING=1` until the driver is updated",
    ),
    of(
        "graph",
        "transfers:graph",
        "at each replay, a CUDA graph computes with its current inputs",
        "inference servers and `torch.compile(mode='reduce-overhead')` would be wrong",
        on=GPU,
        then="use no CUDA graphs until the driver is updated",
    ),
    of(
        "speed",
        "speed:speed",
        "float32 matrix products are not unusually slow (the report shows the speed)",
        SLOWLY,
        then=SLOW,
    ),
    of(
        "speed-half",
        "speed:speed_half",
        "float16 matrix products are not unusually slow, so the GPU uses its tensor cores if it "
        "has them",
        SLOWLY,
        on=GPU,
        then=SLOW,
    ),
    of(
        "speed-over-cpu",
        "speed:speed_over_cpu",
        "this check proves nothing, but shows how many times faster the GPU multiplies than this "
        "machine's CPU (in float32 on both, and also in float16 on the GPU)",
        "the GPU could not be compared with the CPU",
        on=GPU,
        then=SLOW,
        alone=True,
    ),
    of(
        "compile",
        "programs:compiled",
        "`torch.compile` builds a kernel that computes the same results and gradients",
        "compiled models would be wrong, or not start",
        then="set `TORCH_COMPILE_DISABLE=1` until another build of torch or Triton is installed",
        scratch=True,
    ),
    of(
        "dataloader",
        "programs:dataloader",
        "a DataLoader with workers returns every item exactly once and unchanged",
        "training would stop, hang or miss data in its loader",
        then="`num_workers=0` works without worker processes",
        scratch=True,
    ),
    of(
        "save-load",
        "programs:save_and_load",
        "tensors and parts of tensors in eight number formats are unchanged after saving and "
        "loading",
        "saved checkpoints would be wrong",
        scratch=True,
    ),
)


def known(name: str, run: str, proves: str, means: str, **fields: Any) -> Check:
    """A check whose answers are known; a failure is asked once in float64 too."""
    return of(name, run, proves, means, in_float64=True, **fields)


KNOWN: Tuple[Check, ...] = (
    known(
        "rounding",
        "arithmetic:rounding",
        "16-bit products are rounded to the nearest number, and never truncated or summed in 16 "
        "bits",
        NUMBERS,
    ),
    known(
        "batches",
        "arithmetic:batches",
        "products in batches, with vectors, with biases and on other threads are exact",
        NUMBERS,
    ),
    known(
        "sums",
        "arithmetic:sums",
        "sums, means, norms and running sums are exact, even in 16 bits",
        TRAINED,
    ),
    known(
        "pointwise",
        "arithmetic:pointwise",
        "functions, quotients and comparisons are right, even near zero and for NaN",
        NUMBERS,
    ),
    known(
        "complex-numbers",
        "arithmetic:complex_numbers",
        "complex products and Fourier transforms (cuFFT) are right",
        "rotary embeddings and audio models would compute wrong numbers",
    ),
    known(
        "linalg",
        "arithmetic:linalg",
        "solving, inverting and decomposing small matrices (cuSOLVER) is right",
        NUMBERS,
    ),
    known(
        "images",
        "layers:images",
        "convolutions (cuDNN), pooling and padding are right, with their gradients",
        "models of images would compute wrong numbers",
    ),
    known(
        "norms",
        "layers:norms",
        "layer, RMS, group and batch norms are right, even with small variances, and include eps",
        NUMBERS,
    ),
    known(
        "softmax",
        "layers:softmax",
        "softmax, log-softmax and cross-entropy with up to 70,001 classes are right",
        "losses and gradients of every classifier and language model would be wrong",
    ),
    known(
        "masks",
        "layers:masks",
        "attention by each backend uses exactly the keys that its mask allows",
        "transformers would see padding, or tokens that are still to come",
    ),
    known(
        "recurrent",
        "layers:recurrent",
        "LSTM and GRU (cuDNN) in both directions are right, with their gradients",
        NUMBERS,
    ),
    known(
        "gradients",
        "layers:gradients",
        "the gradients of a chain of layers are right, also where a checkpoint computes it again",
        TRAINED,
        scratch=True,
    ),
    of(
        "mixed-precision",
        "layers:mixed_precision",
        "autocast computes in the number formats that torch documents, and no overflow is missed",
        "mixed-precision training would follow wrong numbers",
    ),
    known(
        "dropout",
        "layers:dropout",
        "dropout drops every lane and position equally often, and no draw repeats the one before",
        "models would train with units that are never dropped",
    ),
    known(
        "ordering",
        "places:ordering",
        "sorts, topk, argmax and searches are right, even with ties and in long rows",
        "sampling, beam search and metrics would be wrong",
    ),
    known(
        "indexing",
        "places:indexing",
        "elements are read, written and added at the right places, even at repeated ones",
        "embeddings, gathers and scatters would read or write other elements",
    ),
    known(
        "strides",
        "places:strides",
        "copies, casts and slices of tensors in several memory layouts are complete",
        "data would change wherever a program transposes, slices or converts a tensor",
    ),
    known(
        "large-tensor",
        "places:large_tensor",
        "tensors with more than 2**31 elements are read and written up to the last element",
        "large tables and batches would be read and written in the wrong places",
    ),
    known(
        "optimizer-steps",
        "optimizers:optimizer_steps",
        "eleven optimizers make the same steps in each form: plain, foreach, fused, capturable",
        "training would take wrong steps",
        then="use `foreach=False, fused=False` until another build of torch is installed",
        scratch=True,
    ),
)
"""The checks whose answers are known: from whole numbers, formulas, or float64 on the CPU."""
PROGRAMS: Tuple[Check, ...] = (
    of(
        "chance",
        "chance:chance",
        "random numbers and dropout follow their distribution, depend on the seed as documented, "
        "and never repeat a sequence",
        "initial weights, dropout and sampling would be skewed, or repeat themselves",
    ),
    of(
        "language-model",
        "training:language_model",
        "a small language model trains on the device as it does on the CPU in float64",
        TRAINED,
        scratch=True,
        on=EVERY,
    ),
    # These two come last. On a GPU, a check with other variables needs a new process, which has to
    # import torch and create a CUDA context (4 s on an H100's host).
    of(
        "repeats",
        "repeats:repeats",
        "the same products, reductions and copies give the same bits every time, on several "
        "threads and streams at once",
        "results would be wrong now and then, which no single test shows",
        then=CARD,
        environment=FIXED_WORKSPACE,
    ),
    of(
        "determinism",
        "training:determinism",
        "two runs with the same seed give the same bits, for operations that torch documents as "
        "deterministic",
        "runs cannot be reproduced here",
        scratch=True,
        environment=FIXED_WORKSPACE,
    ),
)


RANKS_ONLY = ("ranks:cuda", "ranks:cpu")
TOGETHER_SECONDS = 100.0
"""The limit in seconds of a check among ranks. It covers waiting for the other ranks, making the
calls, and giving up on one collective."""
MEETING_SECONDS = 300.0
"""Long enough for a cold file system, a slow start, and the first connections."""
NETWORK_STEP = "`NCCL_DEBUG=INFO` (gloo: `TORCH_DISTRIBUTED_DEBUG=DETAIL`) says where it waits"


def among_ranks(
    name: str, proves: str, *needs: str, module: str = "collectives", seconds: float = 0.0
) -> Check:
    return Check(
        name,
        f"ranks.{module}:{name}",
        on=RANKS_ONLY,
        needs=("import", *needs),
        limit_seconds=seconds or TOGETHER_SECONDS,
        proves=proves,
        means="training on these ranks would hang, stop, or compute something else",
        then=NETWORK_STEP,
    )


DISTRIBUTED: Tuple[Check, ...] = (
    Check(
        "peers",
        "checks.transfers:copies_between_gpus",
        on=("host:auto", "host:cuda"),
        needs=("gpu",),
        least_gpus=2,
        proves="for every pair of GPUs, data copied from one to the other arrives unchanged, "
        "directly or through the host",
        means="model or data parallel training would work on other numbers than were sent",
        then="`nvidia-smi topo -p2p r` shows the links; NCCL_P2P_DISABLE=1 avoids a bad link",
    ),
)
"""Checks in which one process uses several GPUs."""

RANKS: Tuple[Check, ...] = (
    among_ranks(
        "meet",
        "all ranks form one group, each on its own GPU",
        module="meeting",
        seconds=MEETING_SECONDS,
    ),
    among_ranks("all_reduce", "sums and other reductions over all ranks are exact", "meet"),
    among_ranks("reduce", "the result of a reduction arrives at the right rank", "meet"),
    among_ranks("broadcast", "one rank's values reach every rank", "meet"),
    among_ranks("all_gather", "every rank receives the parts of all ranks, in order", "meet"),
    among_ranks("gather", "one rank receives the parts of all ranks, in order", "meet"),
    among_ranks("scatter", "the parts of one rank reach the right ranks", "meet"),
    among_ranks("reduce_scatter", "each rank gets its part of the sum", "meet"),
    among_ranks("all_to_all", "every rank's parts reach the right ranks", "meet"),
    among_ranks("send_recv", "data that one rank sends to another rank arrives unchanged", "meet"),
    among_ranks("barrier", "no rank leaves a barrier before all ranks have reached it", "meet"),
    among_ranks(
        "ddp_step",
        "DDP gives the same result as one process, with small buckets, accumulation and sub-groups",
        "meet",
        module="training",
    ),
    among_ranks(
        "fsdp_step", "FSDP2 gives the same result as one process", "meet", module="training"
    ),
)
"""Checks that run in addition, at any level, if torchrun or srun started several ranks."""

STRESS: Tuple[Check, ...] = (
    Check(
        "load",
        "checks.stress:load",
        on=("cuda", "cpu"),
        needs=("properties", "arch"),
        lasts=True,
        proves="under sustained load, every result has the same bits and the speed stays the same",
        means="long training runs on this device would slow down or go wrong",
        then="watch it: `gpusetup monitor 60`",
    ),
)


CENSUS: Tuple[Check, ...] = (
    Check(
        "operators",
        "checks.census:operators",
        on=EVERY,
        needs=("properties",),
        samples_seconds=7200.0,
        proves="this check proves nothing, but names each operator of torch's own test database "
        "whose results on the device differ from the CPU's, by torch's own tolerances",
        means="this platform differs from the CPU in these operators",
        then="compare with torch's own tests: `python test/test_ops.py -k compare_cpu`",
    ),
)
"""Loading torch's database changes its process (`census.py` undoes the changes that we know of), so
this check runs last."""
