"""Classes of texts about programs beside torch: engines, containers, servers, schedulers, drawing."""

from __future__ import annotations

from report_classes import Class

MMU_FAULT = "NVRM: Xid (PCI:0000:10:00): 31, pid=1958, name=python3, channel 0x9, intr 0. MMU Fault: ENGINE GRAPHICS"

BESIDE: dict[str, Class] = {
    "a kernel log's fault of a program that is named": Class(
        "cuda-program-error",
        (
            f"sglang server crashes randomly on B200\n{MMU_FAULT}",
            f"vllm serve ends after some hours\n{MMU_FAULT}",
            f"llama-server stops\n{MMU_FAULT}",
        ),
        (
            MMU_FAULT,
            "vllm serve ends\nNVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus.",
        ),
    ),
    "a docker that does not know NVIDIA's runtime, in words": Class(
        "container-toolkit-missing",
        (
            "Docker not using Nvidia Runtime by Default\nmy Nvidia GPU was not used by it",
            "the container does not see the GPU; docker info shows no nvidia runtime",
            "GPU not found in the container: the NVIDIA runtime is not configured",
        ),
        (
            "if no nvidia runtime is listed, restart docker",
            "the container uses the nvidia runtime and ends with CUDA out of memory",
        ),
    ),
    "torch's exception of memory, its first words lost": Class(
        "out-of-memory",
        (
            "torch.cuda.OutOfMemoryError: . Tried to allocate 20.00 MiB (GPU 0; 6.00 GiB total capacity; 5.28 GiB already allocated)",
            "`torch.OutOfMemoryError: Tried to allocate 2.00 GiB`",
            "ends with torch.OutOfMemoryError: Versucht, 2 GiB zu belegen",
        ),
        ("except torch.cuda.OutOfMemoryError: clear()",),
    ),
}
