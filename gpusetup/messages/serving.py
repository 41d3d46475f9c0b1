"""Messages of programs that serve models, about the GPU's memory.

Sources: ollama's server/sched.go, llama.cpp's src/llama-model.cpp.
"""

from __future__ import annotations

from gpusetup.messages.row import row

ROWS = (
    row(
        "vram-not-released",
        "gpu vram usage",
        r"gpu VRAM usage didn't recover within timeout\\?\"? seconds=(?P<seconds>\d{1,4}(?:\.\d{1,9})?)",
        program="ollama",
    ),
    row("out-of-memory", "unable to allocate cuda", r"unable to allocate CUDA\d{1,2} buffer"),
)
