"""Values as people write them, read as what they mean."""

from __future__ import annotations

import re

from gpusetup.catalog.builds import Catalog
from gpusetup.errors import UsageError
from gpusetup.model.versions import parsed


def backend_label(text: str) -> str:
    """The label on torch's index that a text means; a text that is none stays as it is.

    >>> [backend_label(text) for text in ("12.4", "CU124", "cuda 12.4.1", "cuda-11.8", "ROCm 6.4")]
    ['cu124', 'cu124', 'cu124', 'cu118', 'rocm6.4']
    >>> backend_label("auto"), backend_label("124"), backend_label("12"), backend_label("xpu")
    ('auto', 'cu124', 'cu12', 'xpu')
    """
    plain = re.sub(r"[\s_-]+", "", text.lower())
    found = re.fullmatch(r"(?:cuda|cu)?(\d{1,2})\.?(\d)(?:\.\d+)*", plain)
    return f"cu{found[1]}{found[2]}" if found else plain


def driver_named(text: str, catalog: Catalog, family: str | None = None) -> str:
    """The version of an NVIDIA driver; UsageError for another text, with what it may be.

    Of a branch alone (`580`) its first driver with a CUDA is taken.
    """
    plain = text.strip()
    if not re.fullmatch(r"\d{3}(\.\d+){0,3}", plain):
        raise UsageError(
            f"{text!r} is no version of an NVIDIA driver",
            hint="such as `580.95.05`: `nvidia-smi` prints it as `Driver Version`",
        )
    rows = (row.on(family or "linux") for row in catalog.toolkits)
    first = [row for row in rows if row and row.partition(".")[0] == plain]
    return min(first, key=parsed, default=plain)
