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
NUMBERS = "models would compute wrong numbers"
TRAINED = "training would follow wrong numbers"
MOVED = "data would arrive changed, or slowly"
SLOWLY = "training would take many times as long as it should"
FIXED_WORKSPACE = (("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),)
"""Without it, cuBLAS may give other bits when several streams are active (its documentation)."""


def device_check(name: str, module: str, proves: str, means: str = NUMBERS, **fields: Any) -> Check:
    """A check that computes on a device, with the usual defaults. Its function has the check's
    name, unless `module` names another one (`programs:compiled`)."""
    # "arch" runs on CUDA only; a need that did not run on the device counts as met.
    usual = {"on": BOTH, "needs": ("properties", "arch"), "then": AGAIN}
    run = module if ":" in module else f"{module}:{name.replace('-', '_')}"
    return Check(name, f"checks.{run}", proves=proves, means=means, **{**usual, **fields})


QUICK: Tuple[Check, ...] = (
    Check(
        *("import", "device.importing:torch_imports", (*OF_HOST, "host:cpu", "host:none")),
        proves="`import torch` works, and the module that it loads is PyTorch",
        means="nothing that uses torch can start in this environment",
    ),
    Check(
        *("gpu", "device.devices:gpus_detected", OF_HOST),
        needs=("import",),
        proves="torch sees a GPU of the requested kind",
        means="training would run on the CPU, or stop with an error",
    ),
    Check(
        *("libraries", "device.libraries:libraries_load", ("host:none",)),
        needs=("import",),
        proves="every CUDA library of this torch loads, even without a GPU",
        means="the image would fail on a GPU host at the first use of that library",
    ),
    Check(
        *("properties", "device.devices:properties", EVERY),
        needs=("import", "gpu"),
        proves="the device reports its properties, and returns the data that was written to it",
        means="the device cannot be used at all",
    ),
    Check(
        *("arch", "device.devices:arch_in_build", GPU),
        needs=("properties",),
        proves="the build has a kernel, or PTX, for this GPU, and a kernel runs",
        means="every operation on this GPU would fail",
    ),
    device_check(
        *("matmul", "products", "every element of a 1000 x 1000 float32 product is exact"),
        "every model would compute wrong numbers here",
        on=EVERY,
    ),
    device_check(
        *("amp", "training", "in a few steps of mixed precision, the loss falls and stays finite"),
        "mixed-precision training cannot be trusted here",
        then="`gpusetup doctor`, then another build of torch",
        on=EVERY,
    ),
)

STANDARD: Tuple[Check, ...] = (
    device_check("float64", "products", "float64 products of whole numbers are exact", on=EVERY),
    device_check("float32", "products", "float32 products are exact, up to 4096 x 4096", on=EVERY),
    device_check(
        *("float32-modes", "products", "each setting of TF32 and bfloat16 products takes effect"),
        "switching TF32 on or off would not have the effect that the program expects",
        then="`env` shows variables that override the program (NVIDIA_TF32_OVERRIDE, DNNL_*)",
    ),
    device_check("float16", "products", "float16 products of whole numbers are exact", on=EVERY),
    device_check("bfloat16", "products", "bfloat16 products of whole numbers are exact", on=EVERY),
    device_check("float8", "products", "8-bit formats are read, rounded and multiplied correctly"),
    device_check(
        *("grad-scaler", "training", "the scaler skips the step if a gradient is infinite or NaN"),
        "float16 training would end in NaN",
        then="train in bfloat16 until another build is installed",
    ),
    device_check(
        *("memory", "memory", "most of the free memory returns the patterns written to it"),
        "weights and data would change while they are in memory",
    ),
    device_check(
        *("out-of-memory", "memory", "too large a request raises an error, and torch still works"),
        "a batch that is too large would end the program instead of raising an error",
        then="update the driver; on Windows switch off the system memory fallback",
    ),
    device_check(
        "copy-in", "transfers", "64 MiB arrive intact on the device", MOVED, on=GPU, then=CARD
    ),
    device_check(
        "copy-out", "transfers", "64 MiB arrive intact on the host", MOVED, on=GPU, then=CARD
    ),
    device_check(
        "copy-within", "transfers", "64 MiB are copied intact on the device", MOVED, then=CARD
    ),
    device_check(
        *("pinned", "transfers", "asynchronous copies of page-locked memory arrive complete"),
        "data loaders with pin_memory would hand over wrong batches",
        on=GPU,
        then="use `pin_memory=False` until the driver is updated",
    ),
    device_check("speed", "speed", "float32 products are not unusually slow", SLOWLY),
    device_check(
        *("speed-half", "speed", "float16 products are not unusually slow (tensor cores)", SLOWLY),
        on=GPU,
    ),
    device_check(
        *("speed-over-cpu", "speed", "nothing: it shows how much faster the GPU is than the CPU"),
        "the GPU could not be compared with the CPU",
        on=GPU,
    ),
    device_check(
        *("compile", "programs:compiled", "`torch.compile` builds a kernel with correct results"),
        "compiled models would be wrong, or not start",
        then="set `TORCH_COMPILE_DISABLE=1` until another build of torch or Triton is installed",
    ),
    device_check(
        *("dataloader", "programs", "a loader with workers returns every item once, unchanged"),
        "training would stop, hang or miss data in its loader",
        then="`num_workers=0` works without worker processes",
    ),
    device_check(
        *("save-load", "programs", "tensors and views of eight formats load as they were saved"),
        "saved checkpoints would be wrong",
    ),
)


def known(name: str, module: str, proves: str, means: str = NUMBERS, **fields: Any) -> Check:
    """A check whose answers are known. If it fails, it runs once in float64 too."""
    return device_check(name, module, proves, means, in_float64=True, **fields)


KNOWN: Tuple[Check, ...] = (
    known("rounding", "arithmetic", "16-bit products are rounded to the nearest number"),
    known("batches", "arithmetic", "products in batches, with vectors and biases are exact"),
    known("sums", "arithmetic", "sums, means, norms and running sums are exact", TRAINED),
    known("pointwise", "arithmetic", "exponentials, roots and activations are right"),
    known("images", "layers", "convolutions (cuDNN) and pools are right, with their gradients"),
    known("norms", "layers", "layer, RMS, group and batch norms are right, and include eps"),
    known("softmax", "layers", "softmax and cross-entropy of up to 70,001 classes are right"),
    known(
        *("masks", "layers", "each attention backend uses the keys that its mask allows"),
        "transformers would see padding, or tokens that are still to come",
    ),
    known("recurrent", "layers", "LSTM and GRU (cuDNN) are right, with their gradients"),
    known(
        *("dropout", "layers", "dropout drops every lane and position equally often"),
        "models would train with units that are never dropped",
    ),
    known("ordering", "places", "sorts, topk, argmax and permutations are right, even with ties"),
    known("indexing", "places", "elements are read, written and added at the right places"),
    known("strides", "places", "copies, casts and slices in several memory layouts are complete"),
    known("large-tensor", "places", "elements past 2**31 are read and written at the right places"),
    known(
        *("optimizer-steps", "optimizers", "five optimizers take the same steps in each variant"),
        "training would take wrong steps",
        then="use `foreach=False, fused=False` until another build of torch is installed",
    ),
)
"""The checks whose answers are known: from whole numbers, formulas, or float64 on the CPU."""

PROGRAMS: Tuple[Check, ...] = (
    device_check(
        *("chance", "chance", "random numbers follow their distribution and seed, and none repeat"),
        "initial weights, dropout and sampling would be skewed, or repeat themselves",
    ),
    device_check(
        *("language-model", "training", "a small model trains as in float64 on the CPU", TRAINED),
        on=EVERY,
    ),
    # It comes last: on a GPU, a check with other variables needs a new process, which has to import
    # torch and create a CUDA context (4 s on an H100's host).
    device_check(
        *("repeats", "repeats", "the same work gives the same bits, on several threads at once"),
        "results would be wrong now and then, which no single test shows",
        then=f"undo overclocking, watch temperature and power with `gpusetup monitor`; {CARD}",
        environment=FIXED_WORKSPACE,
    ),
)

DISTRIBUTED: Tuple[Check, ...] = (
    Check(
        *("peers", "checks.transfers:peers", ("host:auto", "host:cuda")),
        needs=("gpu",),
        least_gpus=2,
        proves="for every pair of GPUs, data copied from one to the other arrives unchanged",
        means="model or data parallel training would work on other numbers than were sent",
        then="`nvidia-smi topo -p2p r` shows the links; NCCL_P2P_DISABLE=1 avoids a bad link",
    ),
)
"""Checks in which one process uses several GPUs."""

TOGETHER_SECONDS = 60.0
"""The limit in seconds of a single call among ranks. It covers giving up on one collective, and the
store's last messages."""
MEETING_SECONDS = 300.0
"""Long enough for a cold file system, a slow start, and the first connections."""


def ranks(name: str, proves: str, module: str = "collectives", **fields: Any) -> Check:
    """A check that several ranks run together."""
    usual = {"needs": ("import", "meet"), "limit_seconds": TOGETHER_SECONDS}
    return Check(
        *(name, f"ranks.{module}:{name}", ("ranks:cuda", "ranks:cpu")),
        proves=proves,
        means="training on these ranks would hang, stop, or compute something else",
        then="`NCCL_DEBUG=INFO` (gloo: `TORCH_DISTRIBUTED_DEBUG=DETAIL`) says where it waits",
        **{**usual, **fields},
    )


RANKS: Tuple[Check, ...] = (
    ranks(
        *("meet", "all ranks form one group, each on its own GPU", "group"),
        needs=("import",),
        limit_seconds=MEETING_SECONDS,
    ),
    ranks("all_reduce", "sums and other reductions over all ranks are right"),
    ranks("reduce", "the result of a reduction arrives at the right rank"),
    ranks("broadcast", "one rank's values reach every rank"),
    ranks("all_gather", "every rank receives the parts of all ranks, in order"),
    ranks("gather", "one rank receives the parts of all ranks, in order"),
    ranks("scatter", "the parts of one rank reach the right ranks"),
    ranks("reduce_scatter", "each rank gets its part of the sum"),
    ranks("all_to_all", "every rank's parts reach the right ranks"),
    ranks("send_recv", "data that one rank sends to another rank arrives unchanged"),
    ranks("barrier", "no rank leaves a barrier before all ranks have reached it"),
    ranks("ddp_step", "DDP gives the same result as one process", "training"),
)
"""Checks that run in addition, at any level, if torchrun or srun started several ranks."""

STRESS: Tuple[Check, ...] = (
    device_check(
        *("load", "stress", "under load, results and speed stay the same"),
        "long training runs on this device would slow down or go wrong",
        lasts=True,
        then="watch it: `gpusetup monitor 60`",
    ),
)

CENSUS: Tuple[Check, ...] = (
    device_check(
        *("operators", "census", "nothing: it lists the operators that differ from the CPU's"),
        "this platform differs from the CPU in these operators",
        on=EVERY,
        needs=("properties",),
        then="compare with torch's own tests: `python test/test_ops.py -k compare_cpu`",
    ),
)
"""Loading torch's database changes its process, so this check runs last."""
