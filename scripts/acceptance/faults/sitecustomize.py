"""A card that computes wrongly, made on purpose: ACCEPTANCE_FAULT names a row of FAULTS.

On the PYTHONPATH of verify alone. Results in float64 stay right: they are the reference.
"""

import os

FAULTS = {
    "a bent product": ("mm", "matmul"),
    "a product 0.1 % too large": ("mm", "float32"),
    "a flipped bit": ("clone", "properties"),
    "a stuck bit of the memory": ("copy_", "memory"),
    "TF32 where IEEE is set": ("mm", "matmul"),
}
"""Name -> the operator that is wrong, and the check of verify that must see it."""
UNORDERED = "a read that does not wait"


def changed(name, found, args):
    import torch

    single = found.dtype == torch.float32
    if name == "a bent product" and found.shape == (1000, 1000):
        found.view(-1)[77] += 1
    elif name == "a product 0.1 % too large" and single:
        found = found * 1.001
    elif name == "a flipped bit" and found.dtype == torch.int32 and found.numel() == 4096:
        found.view(-1)[77] ^= 4
    elif name == "a stuck bit of the memory" and found.numel() >= 2**22 and not single:
        found.view(torch.uint8).view(-1)[12345] &= 0xEF
    elif name == "TF32 where IEEE is set" and single:
        first, second = (short(one).double() for one in args)
        found = first.matmul(second).float()
    return found


def short(one):
    """TF32's 10 bits of mantissa."""
    import torch

    whole = one.contiguous().view(torch.int32)
    return ((whole + 0x1000) & ~0x1FFF).view(torch.float32)


def install(name):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Wrong(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            if func.overloadpacket.__name__ != FAULTS[name][0] or found.dtype == torch.float64:
                return found
            return changed(name, found, args)

    if name == UNORDERED:
        torch.cuda.Stream.wait_stream = torch.cuda.Stream.wait_event = lambda *_: None
    else:
        Wrong().__enter__()


if "ACCEPTANCE_FAULT" in os.environ:
    install(os.environ["ACCEPTANCE_FAULT"])
