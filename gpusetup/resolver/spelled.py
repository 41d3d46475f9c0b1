"""Values as people write them, read as what they mean."""

from __future__ import annotations

import re

from gpusetup.catalog.builds import Catalog
from gpusetup.errors import UsageError
from gpusetup.model.versions import parsed

FIRST_DRIVER = 60
"""No driver is older; CUDA's versions are all smaller numbers (Linux' first driver was 71.86)."""


def backend_label(text: str) -> str:
    """The label on torch's index that a text means; a text that is none stays as it is.

    >>> [backend_label(text) for text in ("12.4", "CU124", "cuda 12.4.1", "cuda-11.8", "ROCm 6.4")]
    ['cu124', 'cu124', 'cu124', 'cu118', 'rocm6.4']
    >>> backend_label("auto"), backend_label("124"), backend_label("12"), backend_label("xpu")
    ('auto', 'cu124', 'cu12', 'xpu')
    """
    plain = re.sub(r"[\s_-]+", "", text.lower())
    found = re.fullmatch(r"(?:cuda|cu|v)?(\d{1,2})\.(\d)(?:\.\d+)*", plain)
    found = found or re.fullmatch(r"(?:cuda|cu)?(\d{1,2})(\d)", plain)
    return f"cu{found[1]}{found[2]}" if found else plain


def torch_named(text: str) -> str:
    """A torch as a version or a specifier.

    >>> [torch_named(text) for text in ("v2.5.1", "=2.5.1", "torch>=2.5", "2.5.x", "stable")]
    ['2.5.1', '2.5.1', '>=2.5', '2.5.*', 'latest']
    >>> torch_named("torch==2.5.1+cu12.4"), torch_named(">=2.6,<2.9")
    ('2.5.1+cu124', '>=2.6,<2.9')
    """
    plain = re.sub(r"^(py)?torch\s*(?=[<>=!~]|$)", "", text.strip().lower())
    if plain in ("latest", "stable", "newest"):
        return "latest"
    version, label, backend = plain.partition("+")
    exact = re.fullmatch(r"(?:={1,3}\s*)?v?(\d[\d.]*)(\.x)?", version)
    version = f"{exact[1]}{'.*' if exact[2] else ''}" if exact else version
    return f"{version}+{backend_label(backend)}" if label else version


def driver_named(text: str, catalog: Catalog, family: str | None = None) -> str:
    """The version of an NVIDIA driver; UsageError for another text, with what it may be.

    Windows' own number of a driver carries NVIDIA's in its last five digits; of a branch alone
    (`580`) its first driver with a CUDA is taken.
    """
    plain = re.sub(r"^(nvidia|driver|version|[\s_-])*[rv]?(?=\d)", "", text.strip().lower())
    plain = re.sub(r"(\.[x*])+$", "", plain)
    if found := re.fullmatch(r"\d{2}\.\d{1,2}\.\d*(\d)\.(\d{2})(\d{2})", plain):
        return f"{found[1]}{found[2]}.{found[3]}"
    dotted = re.sub(r"^cu(?:da)?[\s_-]*(\d\d)\.?(?=\d)", r"\1.", plain)
    cuda = re.fullmatch(r"(\d{1,2})(?:\.(\d)\d*)?(?:\.\d+)?", dotted)
    if cuda and int(cuda[1]) < FIRST_DRIVER:
        version = f"{cuda[1]}.{cuda[2] or 0}"
        driver = catalog.toolkit_driver(version, family or "linux")
        said = f"; the first driver with CUDA {version} is `{driver}`" if driver else ""
        raise UsageError(
            f"{text!r} is a version of CUDA, not of an NVIDIA driver",
            hint=f"`nvidia-smi` prints the driver's own as `Driver Version`{said}",
        )
    if not re.fullmatch(r"\d{2,3}(\.\d+){0,3}", plain):
        raise UsageError(f"{text!r} is no NVIDIA driver version", hint="such as `580.95.05`")
    rows = (row.on(family or "linux") for row in catalog.toolkits)
    first = [row for row in rows if row and row.partition(".")[0] == plain]
    return min(first, key=parsed, default=plain)
