"""A machine with GPUs for the tests of verify: torch says that it has CUDA, the CPU computes.

On PYTHONPATH, with FAKE_CUDA holding JSON: `gpus` (name, memory_bytes, capability), `arch`,
`faults` (a fault -> the device it is on), `maker` (`xpu` or `mps`: torch is built for that). It
acts in the computing child only, and proves the order of the checks, the words and the handling of
faults; nothing about real GPUs.
"""

import json
import os
import sys
import types

SCENE = json.loads(os.environ.get("FAKE_CUDA") or "null")


def index_of(device):
    text = str(device)
    return int(text.partition(":")[2] or 0) if text.startswith(("cuda", "xpu", "mps")) else None


def build_for(torch, maker, gpus):
    """Make torch a build for Intel's or Apple's GPUs."""
    torch.version.cuda = None
    if maker == "mps":
        torch.backends.mps.is_built = lambda: True
        torch.backends.mps.is_available = lambda: bool(gpus)
        torch.mps.recommended_max_memory = lambda: gpus[0]["memory_bytes"]
        return
    torch.version.xpu = "20250300"
    torch.xpu.is_available = lambda: bool(gpus)
    torch.xpu.device_count = lambda: len(gpus)
    torch.xpu.get_device_properties = lambda device: types.SimpleNamespace(
        name=gpus[index_of(device)]["name"], total_memory=gpus[index_of(device)]["memory_bytes"]
    )


def install(scene):
    import torch
    from torch.overrides import TorchFunctionMode

    gpus, faults = scene["gpus"], scene.get("faults", {})
    if "maker" in scene:
        install_cuda(torch, {**scene, "gpus": []}, [])
        build_for(torch, scene["maker"], gpus)
    else:
        install_cuda(torch, scene, gpus)
    real_autocast, real_scaler = torch.autocast, torch.amp.GradScaler
    torch.autocast = lambda device_type, **how: real_autocast("cpu", **how)
    torch.amp.GradScaler = lambda device, **how: real_scaler("cpu", **how)

    class OnTheCpu(TorchFunctionMode):
        """Takes every GPU for the CPU, and works the fault of the device last named."""

        def __init__(self):
            super().__init__()
            self.device = None

        def __torch_function__(self, func, types_, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            named = [x for x in (*args, *kwargs.values()) if index_of(x) is not None]
            if named:
                self.device = str(named[0])
            args = tuple("cpu" if index_of(x) is not None else x for x in args)
            kwargs = {k: "cpu" if index_of(x) is not None else x for k, x in kwargs.items()}
            # Apple's backend has no float64, and says so in these words.
            is_double = bool(args) and getattr(args[0], "dtype", None) == torch.float64
            if named and is_double and scene.get("maker") == "mps":
                raise TypeError(
                    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't "
                    "support float64. Please use float32 instead."
                )
            found = func(*args, **kwargs)
            for fault, device in faults.items():
                if device == self.device:
                    found = FAULTS[fault](torch, func, found)
            return found

    OnTheCpu().__enter__()


def install_cuda(torch, scene, gpus):
    """Make torch a build for CUDA."""
    torch.__version__ = scene.get("torch", "2.5.1+cu124")
    torch.version.cuda = scene.get("cuda", "12.4")
    torch._C._cuda_getArchFlags = lambda: scene.get("arch", "sm_50 sm_80 sm_86 sm_90 compute_90")
    torch.cuda.is_available = lambda: bool(gpus)
    torch.cuda.device_count = lambda: len(gpus)
    torch.cuda.set_device = index_of
    torch.cuda.get_device_capability = lambda device: tuple(gpus[index_of(device)]["capability"])

    def init():
        if gpus and "init" not in scene:
            return
        raise RuntimeError(scene.get("init", "No CUDA GPUs are available"))

    torch.cuda.init = init

    def get_device_properties(device):
        gpu = gpus[index_of(device)]
        return types.SimpleNamespace(
            name=gpu["name"],
            major=gpu["capability"][0],
            minor=gpu["capability"][1],
            total_memory=gpu["memory_bytes"],
            multi_processor_count=16,
            uuid=f"0000000{index_of(device)}-0000-0000-0000-000000000000",
        )

    torch.cuda.get_device_properties = get_device_properties


def multiplies(torch, func, found):
    product = getattr(func, "__name__", "") in ("mm", "matmul", "__matmul__")
    return product and found.dtype == torch.float32 and found.shape == (1000, 1000)


def no_kernel(torch, func, found):
    if func is torch.ones:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
    return found


def sticky(torch, func, found):
    if multiplies(torch, func, found):
        os.environ["WAS_STICKY"] = str(os.getpid())
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore words")
    if os.environ.get("WAS_STICKY") == str(os.getpid()):
        raise AssertionError("the same process was used again")
    return found


def abort(torch, func, found):
    if multiplies(torch, func, found):
        os.abort()
    return found


def wrong_element(torch, func, found):
    if multiplies(torch, func, found):
        found[123, 456] += 4.0
    return found


FAULTS = {
    "no-kernel": no_kernel,
    "sticky": sticky,
    "abort": abort,
    "wrong-element": wrong_element,
}

if SCENE is not None and "--worker" in getattr(sys, "orig_argv", []):
    install(SCENE)
