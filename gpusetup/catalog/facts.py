"""Facts that do not depend on torch releases (`data/facts.json`): Jetson boards and extensions.

Each table has the name of its class.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from gpusetup.model.codec import from_json, from_plain
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import Capability
from gpusetup.named_file import shipped


class Integrated(Frozen):
    """The integrated GPU of a Jetson chip."""

    capability: Capability
    apart: bool = False
    """Whether this GPU and other GPUs of its major version cannot run each other's kernels."""
    desktop_from: str | None = None
    """The CUDA version from which on this GPU can run kernels for other GPUs of its major version.
    """


class JetPack(Frozen):
    """One release of Jetson Linux, and the libraries that torch finds on it."""

    l4t: str
    name: str
    cuda: str
    """The newest CUDA version that its driver supports. The driver's own version number does not
    show that, because it differs from those of other drivers."""
    python: str
    wheels: str | None = None
    """The folder of NVIDIA's own wheels; None if torch's aarch64 wheels support its boards."""
    torch_for: tuple[Capability, ...] = ()
    """The GPUs that torch's aarch64 wheels support under this JetPack."""


class Extension(Frozen):
    """A package with compiled extensions of torch."""

    name: str
    """The name under which pip installs it."""
    modules: tuple[str, ...] = ()
    """Its compiled modules whose names do not contain the package's name."""
    pins_torch: bool = False
    """Whether its wheels require one exact torch version, which is then installed too."""
    page_of_wheels: bool = False
    """Whether PyTorch Geometric's pages have a wheel of it for each torch and CUDA version."""


EXTENSION_TOOLS = ("packaging", "wheel", "psutil", "ninja", "setuptools")
"""What extensions need to build without isolation: flash-attn's setup.py imports the first four."""

FactRow = TypeVar("FactRow", bound=Frozen)


def facts(kind: type[FactRow]) -> tuple[FactRow, ...]:
    """All rows of one kind, read from the file: a caller that asks often keeps them."""
    tables = from_json(shipped("facts.json"), dict[str, Any], what="the table of facts")
    name = kind.__name__
    return tuple(from_plain(row, kind, what=f"the table {name}") for row in tables[name]["rows"])


def extension(name: str) -> Extension:
    """The row for a package; an empty row if the table does not contain the package."""
    return next((row for row in facts(Extension) if row.name == name), Extension(name=name))


@cache
def extension_modules() -> Mapping[str, str]:
    """Maps each compiled module to the package that it belongs to."""
    return {module: row.name for row in facts(Extension) for module in row.modules}
