"""Values as people write them, read as what they mean; what is something else is refused with the
option that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpusetup.catalog import Catalog
from gpusetup.errors import UsageError

SYSTEMS: Mapping[str, str] = {
    "win": "windows",
    "win32": "windows",
    "win64": "windows",
    "darwin": "macos",
    "mac": "macos",
    "osx": "macos",
    "debian": "linux",
    "ubuntu": "linux",
    "wsl": "linux",
    "wsl2": "linux",
}
ARCHITECTURES: Mapping[str, str] = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "x86-64": "x86_64",
    "arm64": "aarch64",
    "arm": "aarch64",
    "sbsa": "aarch64",
}
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
    if found := re.fullmatch(r"(?:cuda|cu|v)?(\d{1,2})\.(\d)(?:\.\d+)*", plain):
        return f"cu{found[1]}{found[2]}"
    if found := re.fullmatch(r"(?:cuda|cu)?(\d{2,3})", plain):
        return f"cu{found[1]}"
    return plain


def system_named(text: str) -> str:
    """
    >>> system_named("Darwin"), system_named("linux")
    ('macos', 'linux')
    """
    return SYSTEMS.get(text.lower(), text.lower())


def architecture_named(text: str) -> str:
    """
    >>> architecture_named("ARM64"), architecture_named("x86_64")
    ('aarch64', 'x86_64')
    """
    return ARCHITECTURES.get(text.lower(), text.lower())


def python_named(text: str) -> str:
    """
    >>> python_named("cp311"), python_named("python3.12"), python_named("3.13t"), python_named("x")
    ('3.11', '3.12', '3.13t', 'x')
    """
    found = re.fullmatch(r"(?:cpython|python|cp|py)?-?(\d)\.?(\d{1,2}(?:\.\d+)?t?)", text.lower())
    return f"{found[1]}.{found[2]}" if found else text


def driver_named(text: str, catalog: Catalog, family: str | None = None) -> str:
    """The version of an NVIDIA driver; UsageError for another text, with what it may be.

    Windows' own number of a driver carries NVIDIA's in its last five digits.
    """
    plain = re.sub(r"^(nvidia|driver|version|[\s_-])*[rv]?(?=\d)", "", text.strip().lower())
    if found := re.fullmatch(r"\d{2}\.\d{1,2}\.\d*(\d)\.(\d{2})(\d{2})", plain):
        return f"{found[1]}{found[2]}.{found[3]}"
    if cuda := _cuda_in(plain):
        raise UsageError(
            f"{text!r} is a version of CUDA, not of an NVIDIA driver",
            hint=_driver_of(cuda, catalog, family),
        )
    if not re.fullmatch(r"\d{2,4}(\.\d+){0,3}", plain):
        raise UsageError(f"{text!r} is no NVIDIA driver version", hint="such as `580.95.05`")
    return plain


def _cuda_in(text: str) -> str | None:
    """The CUDA version that a text is; None where it may be a driver's."""
    label = re.fullmatch(r"(?:cuda|cu)[\s_-]*(\d{1,2})\.?(\d)", text)
    if label:
        return f"{label[1]}.{label[2]}"
    bare = re.fullmatch(r"(\d{1,2})(?:\.(\d)\d*(?:\.\d+)?)?", text)
    if bare is None or int(bare[1]) >= FIRST_DRIVER:
        return None
    return f"{bare[1]}.{bare[2] or 0}"


def _driver_of(cuda: str, catalog: Catalog, family: str | None) -> str:
    label = f"cu{cuda.replace('.', '')}"
    build = (
        f"`gpusetup resolve --cuda {cuda}` asks for a build of it"
        if label in catalog.backends
        else ""
    )
    driver = catalog.toolkit_driver(cuda, family or "linux")
    first = f"the first driver with CUDA {cuda} is `{driver}`" if driver else ""
    shown = "`nvidia-smi` prints the driver's own version as `Driver Version`"
    return "; ".join(part for part in (build, first, shown) if part)
