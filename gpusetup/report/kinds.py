"""Every kind of event: what a program said, the values it carries, and who prints it.

A reader makes an event only from what was printed; which cause follows from it is judged in
`rules/`. What the snapshot has a field for is no event: `cuda_api.init_code` holds the error with
which CUDA failed to start (2, 34, 36, 46, 100, 101, 214, 304, 801 to 809, 999; 30 is written 999,
10 is 101, 35 is the event `driver-too-old`, 38 is 100, 71 is 801), `driver.nvml_code` what NVML
answered, `torch.import_error` the last line of an import of torch that failed. Messages that have
both a field and a kind here give both.

Any event of a text may carry `place`, `container` or `host`, where the prompt or the command above
it tells which, and a text that shows both: nvidia-smi answers on the host and not in the container.
"""

from __future__ import annotations

from gpusetup.report.kind import Kind, kinds
from gpusetup.report.kinds_installing import BUILDS, INSTALLING
from gpusetup.report.kinds_machine import CONTAINER, DRIVER
from gpusetup.report.kinds_running import CUDA, LIBRARIES, PARALLEL

HEALTH = kinds(
    (
        "gpu-computes",
        "device",
        "a program computed on the GPU: losses, is_available() True, a device name",
    ),
    (
        "capability-warning",
        "gpu capability",
        "a capability warning that stops nothing (PTX or a later minor serves)",
    ),
    (
        "results-differ",
        "cpu cuda",
        "the same product printed from the CPU and from the GPU, about 1e-3 apart",
    ),
    ("foreign-gpu", "vendor name", "an AMD, Intel or Apple GPU that a text shows"),
    ("no-nvidia-gpu", "", "a program says that there is no NVIDIA GPU"),
)
"""What shows that it works, or that there is nothing to use."""

KINDS: dict[str, Kind] = {
    kind.name: kind
    for group in (DRIVER, CONTAINER, CUDA, LIBRARIES, BUILDS, INSTALLING, PARALLEL, HEALTH)
    for kind in group
}
"""Name -> its row."""
