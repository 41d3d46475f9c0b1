"""Apple: seen, not judged. torch's ordinary build for macOS serves its GPU."""

from __future__ import annotations

from gpusetup.accelerators.maker import Maker

MAKER = Maker(
    id="apple",
    name="Apple",
    words=("apple",),
    device="mps",
)
