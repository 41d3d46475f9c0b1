"""The table of checks: what each level runs, where, and after what. Rows, in running order."""

from __future__ import annotations

from typing import Dict, Iterator, Tuple

from .computing import amp, matmul
from .devices import arch_in_build, gpus_detected, properties
from .importing import torch_imports
from .libraries import libraries_load
from .values import HOST, Check, kind

QUICK: Tuple[Check, ...] = (
    Check("import", torch_imports, on=("host:auto", "host:cuda", "host:cpu", "host:none")),
    Check("gpu", gpus_detected, on=("host:auto", "host:cuda"), needs=("import",)),
    Check("libraries", libraries_load, on=("host:none",), needs=("import",)),
    Check("properties", properties, on=("cuda", "cpu"), needs=("import", "gpu")),
    Check("arch", arch_in_build, on=("cuda",), needs=("properties",)),
    Check("matmul", matmul, on=("cuda", "cpu"), needs=("properties", "arch")),
    Check("amp", amp, on=("cuda", "cpu"), needs=("properties", "arch")),
)
LEVELS: Dict[str, Tuple[Check, ...]] = {"quick": QUICK}


def on_host(level: str, wanted: str) -> Tuple[Check, ...]:
    """The checks that run once.

    >>> [check.name for check in on_host("quick", "cuda:1")]
    ['import', 'gpu']
    """
    return tuple(check for check in LEVELS[level] if f"{HOST}:{kind(wanted)}" in check.on)


def on_device(level: str, device: str) -> Tuple[Check, ...]:
    """The checks that run on a device.

    >>> [check.name for check in on_device("quick", "cpu")]
    ['properties', 'matmul', 'amp']
    """
    return tuple(check for check in LEVELS[level] if kind(device) in check.on)


def named(name: str) -> Check:
    """The row of a name."""
    return next(check for check in _all() if check.name == name)


def _all() -> Iterator[Check]:
    return (check for level in LEVELS.values() for check in level)
