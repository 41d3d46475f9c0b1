"""Apple: seen, not judged. torch's ordinary build for macOS serves its GPU."""

from __future__ import annotations

from gpusetup.accelerators.maker import Maker

MAKER = Maker(
    id="apple",
    name="Apple",
    words=("apple",),
    models=r"\b(apple|m[1-9](\s?(pro|max|ultra))?)\b",
    instead="that is Apple's: torch's macOS build uses it and needs no name "
    "(`gpusetup resolve --os macos`)",
    device="mps",
)
