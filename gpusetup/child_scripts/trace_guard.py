"""What the traced code may not do: touch a GPU, make a connection. Python 3.8 syntax.

It also stands in for the few values that code asks of a tensor, where there are none.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Iterator

HERE = os.path.dirname(os.path.abspath(__file__))


class TouchesGpu(BaseException):
    """The code asked for a device that a trace does not have. No `except Exception` hides it."""


WITHOUT_CUDA = (
    "not linked with support for cuda",
    "not compiled with CUDA",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
)
"""What a torch says that is asked for a GPU and has none (its own messages)."""


NO_CONNECTION = "a trace makes no connection"
CONNECTING = {"socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.connect": 1}
"""The audit event -> which of its arguments is the address (a text there is a local socket)."""


class NoNetwork(OSError):
    """The code asked for a connection."""


def no_connections(event: str, arguments: Any) -> None:
    """An audit hook: a trace downloads nothing."""
    place = CONNECTING.get(event)
    if place is not None and not (place and isinstance(arguments[place], (str, bytes))):
        raise NoNetwork("%s (%r)" % (NO_CONNECTION, arguments[place]))


def no_cuda(*_: Any, **__: Any) -> None:
    raise TouchesGpu("it asks for CUDA")


class Guard:
    """Asked before each operator: a GPU is refused, a value that is asked for is invented."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.values_read = 0
        """How often a number was invented."""

    def __call__(self, function: Any, arguments: Any, keywords: Dict[str, Any]) -> Any:
        device = keywords.get("device")
        if device is not None and self.torch.device(device).type not in ("cpu", "meta"):
            raise TouchesGpu("it asks for the device `%s`" % (device,))
        if function is self.torch.ops.aten._local_scalar_dense.default:
            return self.value_of(arguments[0])
        return None

    def value_of(self, tensor: Any) -> Any:
        """1.0 for a number with a fraction (a loss that is logged); None: no other is invented.

        A DataLoader draws 0 for its seed and every index. A mask of transformers that asks whether
        the batch is full hears that it is.
        """
        if getattr(tensor, "constant", None) is not None:
            return None
        if tensor.dtype == self.torch.bool and asked_by("masking_utils.py"):
            return True
        if not tensor.is_floating_point():
            return 0 if loads_data() else None
        self.values_read += 1
        return 1.0


def asking() -> Iterator[str]:
    """The files of what runs, the innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def loads_data() -> bool:
    """Whether a DataLoader or a sampler of torch asks."""
    return any(os.path.basename(file) in ("dataloader.py", "sampler.py") for file in asking())


def asked_by(name: str) -> bool:
    """Whether the nearest caller outside torch is a file of this name."""
    inner = (HERE, os.path.dirname(sys.modules["torch"].__file__ or ""))
    caller = next((file for file in asking() if not file.startswith(inner)), "")
    return os.path.basename(caller) == name


def masks_as_in_training() -> None:
    """transformers makes whole masks for fake tensors, where a training step has none."""
    masks: Any = sys.modules.get("transformers.masking_utils")
    if hasattr(masks, "is_tracing"):
        masks.is_tracing = lambda *_: False
