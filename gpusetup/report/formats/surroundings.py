"""What surrounds a program in a text: environment variables, containers, several machines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.patterns import lazy
from gpusetup.report.facts import GUESS, HINT, USUAL, Claim, Fact
from gpusetup.report.messages import event
from gpusetup.report.text import CONTAINER_HOST, PROMPT, Text

NAMES = (
    r"CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|NVIDIA_DRIVER_CAPABILITIES|CUDA_HOME|CUDA_PATH|CUDA_DEVICE_ORDER"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PYTORCH_(?:CUDA_)?ALLOC_CONF|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    r"|CUDA_LAUNCH_BLOCKING|PYTORCH_NO_CUDA_MEMORY_CACHING|CUDA_DISABLE_PTX_JIT|CUDA_FORCE_PTX_JIT|CUDA_MODULE_LOADING"
    r"|CONDA_OVERRIDE_CUDA|NCCL_[A-Z0-9_]{2,30}|TORCH_CUDA_ARCH_LIST|PYTHONPATH|PIP_EXTRA_INDEX_URL|UV_EXTRA_INDEX_URL"
    r"|WORLD_SIZE|LOCAL_RANK|KUBERNETES_SERVICE_HOST"
)
VARIABLES = (
    lazy(rf"environ(?:\.get\()?\[?['\"]({NAMES})['\"][\])]\s?[:=]\s?(?:[frb]?['\"](?=[^'\"]*['\"]))?([^\s'\")]{{0,400}})"),
    lazy(rf"(?:environ\.setdefault|putenv|setenv)\(['\"]({NAMES})['\"],\s?['\"]([^'\"]{{0,400}})"),
    lazy(rf"(?:set|\$env:)\s?({NAMES})\s?=\s?['\"]?([^\s'\"]{{0,400}})"),
    lazy(rf"^\s*({NAMES}): {{1,6}}(\S{{1,200}})$"),
    lazy(rf"echo \$\{{?({NAMES})\}}?\s+(\S{{1,1000}})"),
)  # fmt: skip
FIRST = lazy(rf"(?<![\w'\"$])({NAMES})=(['\"]?)([^\s'\";&]{{0,400}})\2")
ADVISED = "consider passing "
"""What torch's own errors say in front of a variable that is not set."""
ASSIGNED = lazy(r"(?:_[A-Z0-9_]+|PYTHONPATH)(?:\s?=|: |['\"])")
"""How a name ends and what follows it in each of these forms, but in `echo`'s: asked first, because
it is quick, and most texts name a variable without its value."""
ECHOED = "echo $"
UNSET = ("none", "<not", "not", "unset", "(not", "n/a", "undefined", "...", "$")
NEEDLES = ("cuda_", "nvidia_", "ld_", "pytorch_", "conda_override", "nccl_", "torch_", "pythonpath", "_index_url", "world_size")  # fmt: skip
READ = 300_000


def surroundings(text: Text) -> Iterator[Fact]:
    yield from variables(text)
    yield from containers(text)
    yield from differing(text)


def variables(text: Text) -> Iterator[Fact]:
    """Variables of the allow-list, as shells, Python and programs show them."""
    flat = text.flat[:READ]
    if ECHOED not in flat and not ASSIGNED.search(flat):
        return
    seen: set[str] = set()
    for name, value, place in assigned(flat):
        if name in seen or value.lower().startswith(UNSET):
            continue
        seen.add(name)
        source = text.source(place)
        yield Claim(subject=f"environment.{name}", value=value, source=source, trust=USUAL)


def assigned(flat: str) -> Iterator[tuple[str, str, int]]:
    """
    >>> next(assigned("$ CUDA_VISIBLE_DEVICES=2 python main.py"))[:2]
    ('CUDA_VISIBLE_DEVICES', '2')
    """
    for found in FIRST.finditer(flat):
        if flat[max(found.start() - len(ADVISED), 0) : found.start()] == ADVISED:
            continue
        yield found.group(1), found.group(3), found.start()
    for pattern in VARIABLES:
        for found in pattern.finditer(flat):
            yield found.group(1), found.group(2), found.start()


# --- containers -----------------------------------------------------------------------------------

COMPOSED = lazy(r"\bservices:\s+[\w.-]{1,60}:\s+(?:image|build|command|container_name|deploy|environment|ports|restart|runtime|shm_size|volumes|gpus):")  # fmt: skip
"""A compose file: what it reserves stands in it (Compose Specification, services)."""
KINDS = (
    ("kubernetes", ("kube", "gpu-operator", "k8s-device-plugin", "nvidia.com/gpu:", "nodes are", "pod/", "namespace:"), lazy(r"\bkubectl\b|-n gpu-operator\b|\bkubelet\b|k8s-device-plugin|nvidia\.com/gpu:|nodes are available|\bpod/|kubepods|Namespace: {2,}"), USUAL),
    ("podman", ("podman", "libpod"), lazy(r"\bpodman (?:run|exec|build|start|compose)|libpod|Emulate Docker CLI using podman"), USUAL),
    ("docker", ("docker", "from daemon", "oci runtime", "nvidia-container", "attaching to"), lazy(r"\b(?:nvidia-)?docker(?:-compose| compose)? (?:run|exec|up|start)\b|Error response from daemon|docker: Error|/\.dockerenv|\bOCI runtime\b|nvidia-container-cli|Attaching to "), USUAL),
    ("docker", ("nvidia container", "nvcr.io", "container image"), lazy(r"NVIDIA Container|nvcr\.io/nvidia|deep learning container image|This container image and its contents"), HINT),
    ("docker", ("-workspace/",), lazy(r"(?<![\w/])/(?:vllm|sgl)-workspace/"), USUAL),
    ("singularity", ("singularity", "apptainer"), lazy(r"\b(?:singularity|apptainer)['\", ]{1,5}(?:--?\w[\w-]{0,20}['\", ]{1,5}){0,4}(?:run|exec|shell)\b|Singularity>|Apptainer>"), USUAL),
    ("docker", ("services:",), COMPOSED, USUAL),
    ("docker", ("docker container",), lazy(r"(?<!works )(?<!worked )(?<!fine )(?<!runs )(?<!well )(?<!only )(?<!not )\b[Ii](?:n|nside|nside of) (?:an? |my |the |this |our )?docker container\b"), GUESS),
    ("docker", ("outside",), lazy(r"\boutside (?:of )?(?:the )?(?:docker|container)\b"), HINT),
    ("docker", ("/workspace/", "/app/", "dist-packages/"), lazy(r"(?<![\w/])/(?:workspace|app)/\w|/usr/local/lib/python\d\.\d+/dist-packages/(?:vllm|sglang)"), GUESS),
)  # fmt: skip
GIVEN = (
    lazy(r"--gpus[= ](?!none|['\"]?0\b)\S+"),
    lazy(r"\bgpus:\s{1,20}(?:all\b|\d|-)"),
    lazy(r"\bruntime: nvidia\b"),
    lazy(r"- nvidia\.com/gpu="),
    lazy(r"--runtime[= ]nvidia"),
    lazy(r"--device[= ]nvidia\.com/gpu"),
    lazy(r"--nv\b"),
    lazy(r"nvidia-docker run"),
    lazy(r"driver: nvidia"),
    lazy(r"capabilities: \[\W{0,2}gpu"),
)
"""How a container is given GPUs."""


STARTED = lazy(r"(?<![\w'/-])(?:docker|podman|nerdctl) (?:container )?run\s+(?!--help)[^\s`]")
"""A container that a person starts."""


def containers(text: Text) -> Iterator[Fact]:
    """The kind of container that the text speaks of."""
    flat = text.flat[:READ]
    for line in text.lines[:2000]:
        prompt = PROMPT.match(line) if "@" in line[:60] else None
        if prompt and CONTAINER_HOST.match(prompt.group(1)):
            yield Claim(subject="container.kind", value="docker", source="prompt", trust=USUAL)
            break
    low = text.low[:READ]
    for kind, words, pattern, trust in KINDS:
        if not any(word in low for word in words):
            continue
        if found := pattern.search(flat):
            source = text.source(found.start())
            yield Claim(subject="container.kind", value=kind, source=source, trust=trust)
    given = [found.start() for one in GIVEN if (found := one.search(flat))]
    if given:
        source = text.source(min(given))
        yield Claim(subject="container.nvidia_requested", value=True, source=source, trust=GUESS)
    elif found := started_without(low, flat):
        source = text.source(found.start())
        yield Claim(subject="container.nvidia_requested", value=False, source=source, trust=GUESS)


def started_without(low: str, flat: str) -> re.Match[str] | None:
    """Where a text shows how a container is started, by a command or by a compose file."""
    found = STARTED.search(flat) if " run" in low else None
    return found or (COMPOSED.search(flat) if "services:" in low else None)


# --- TF32 -----------------------------------------------------------------------------------------

PRINTED = lazy(r"tensor\((-?\d+\.\d{3,8})(, device='cuda:\d+')?(?:, dtype=torch\.float32)?(?:, grad_fn=\S{1,40})?\)")  # fmt: skip
TF32_APART = (3e-5, 5e-3)
"""How far a product in TF32 (10 bits of mantissa) lies from one in float32, relatively."""


def differing(text: Text) -> Iterator[Fact]:
    """The same number printed from the CPU and from the GPU, as far apart as TF32 makes it."""
    if "device='cuda" not in text.low:
        return
    if computed := re.search(r"tensor\(\S.{0,200}?, device='(cuda:\d{1,2})'", text.flat[:READ]):
        values = {"device": computed.group(1)}
        yield event(text, "gpu-computes", computed.start(), computed.end(), values)
    printed = list(PRINTED.finditer(text.flat[:READ]))[:60]
    there = [one for one in printed if one.group(2)]
    here = [one for one in printed if not one.group(2)]
    for one in there:
        for other in here:
            if _apart(float(one.group(1)), float(other.group(1))):
                values = {"cpu": other.group(1), "cuda": one.group(1)}
                yield event(text, "results-differ", one.start(), one.end(), values)
                return


def _apart(one: float, other: float) -> bool:
    """
    >>> _apart(9.8616, 9.8596), _apart(1.0, 1.0), _apart(1.0, 2.0)
    (True, False, False)
    """
    largest = max(abs(one), abs(other))
    return largest > 0 and TF32_APART[0] < abs(one - other) / largest < TF32_APART[1]
