"""The variables that a text sets, and the container that it speaks of."""

from __future__ import annotations

from gpusetup.messages.search import Text
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import GUESS, HINT, USUAL, Claim, Facts

VARIABLES = lazy(
    r"CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|NVIDIA_DRIVER_CAPABILITIES|CUDA_HOME|CUDA_PATH|CUDA_DEVICE_ORDER"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PYTORCH_(?:CUDA_)?ALLOC_CONF|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    r"|CUDA_LAUNCH_BLOCKING|PYTORCH_NO_CUDA_MEMORY_CACHING|CUDA_DISABLE_PTX_JIT|CUDA_FORCE_PTX_JIT|CUDA_MODULE_LOADING"
    r"|CONDA_OVERRIDE_CUDA|HSA_OVERRIDE_GFX_VERSION|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|NCCL_[A-Z0-9_]{2,30}|TORCH_CUDA_ARCH_LIST|PYTHONPATH|PIP_EXTRA_INDEX_URL|UV_EXTRA_INDEX_URL"
    r"|WORLD_SIZE|LOCAL_RANK|KUBERNETES_SERVICE_HOST"
)
NAME = r"[A-Z][A-Z0-9_]{3,40}"
ASSIGNED = lazy(
    rf"(?<!consider passing )(?:(?<![\w'\"$])(?P<a>{NAME})=(?P<q>['\"]?)(?P<av>[^\s'\";&]{{0,400}})(?P=q)"
    rf"|environ(?:\.get\()?\[?['\"](?P<b>{NAME})['\"][\])]\s?[:=]\s?(?:[frb]?['\"](?=[^'\"]*['\"]))?(?P<bv>[^\s'\")]{{0,400}})"
    rf"|(?:environ\.setdefault|putenv|setenv)\(['\"](?P<c>{NAME})['\"],\s?['\"](?P<cv>[^'\"]{{0,400}})"
    rf"|(?:set|\$env:)\s?(?P<d>{NAME})\s?=\s?['\"]?(?P<dv>[^\s'\"]{{0,400}})|echo \$\{{?(?P<e>{NAME})\}}?\s+(?P<ev>\S{{1,1000}}))"
)
"""As shells, Python and programs show them; not as torch's own errors advise one."""
UNSET = ("none", "<not", "not", "unset", "(not", "n/a", "undefined", "...", "$")
CHARACTERS_READ = 400_000
"""Characters of a text that are looked at."""


def environment(text: Text) -> Facts:
    yield from variables(text)
    yield from containers(text)


def variables(text: Text) -> Facts:
    """Variables of the allow-list.

    >>> from gpusetup.report.cleaning import text_of
    >>> next(variables(text_of("$ CUDA_VISIBLE_DEVICES=2 python main.py"))).value
    '2'
    """
    seen: set[str] = set()
    assignments = (
        ASSIGNED.finditer(text.flat, 0, CHARACTERS_READ) if VARIABLES.search(text.flat) else ()
    )
    for found in assignments:
        form = next(group for group in "abcde" if found[group])
        name, value = found[form], found[f"{form}v"]
        if name in seen or not VARIABLES.fullmatch(name):
            continue
        if not value.lower().startswith(UNSET):
            seen.add(name)
            source = text.source(found.start())
            yield Claim(f"environment.{name}", value, source)


# --- containers -----------------------------------------------------------------------------------

COMPOSED = r"\bservices:\s+[\w.-]{1,60}:\s+(?:image|build|command|container_name|deploy|environment|ports|restart|runtime|shm_size|volumes|gpus):"
"""A compose file: what it reserves stands in it (Compose Specification, services)."""
KINDS = (
    ("kubernetes", ("kube", "gpu-operator", "k8s-device-plugin", "nvidia.com/gpu:", "nodes are", "pod/", "namespace:"), lazy(r"\bkubectl\b|-n gpu-operator\b|\bkubelet\b|k8s-device-plugin|nvidia\.com/gpu:|nodes are available|\bpod/|kubepods|Namespace: {2,}"), USUAL),
    ("podman", ("podman", "libpod"), lazy(r"\bpodman (?:run|exec|build|start|compose)|libpod|Emulate Docker CLI using podman"), USUAL),
    ("docker", ("docker", "from daemon", "oci runtime", "nvidia-container", "attaching to", "-workspace/", "services:"), lazy(rf"\b(?:nvidia-)?docker(?:-compose| compose)? (?:run|exec|up|start)\b|Error response from daemon|docker: Error|/\.dockerenv|\bOCI runtime\b|nvidia-container-cli|Attaching to |(?<![\w/])/(?:vllm|sgl)-workspace/|{COMPOSED}"), USUAL),
    ("docker", ("@",), lazy(r"\b[\w.-]{1,40}@[0-9a-f]{12}[: ][^$#%>]{0,120}[$#%>]"), USUAL),
    ("singularity", ("singularity", "apptainer"), lazy(r"\b(?:singularity|apptainer)['\", ]{1,5}(?:--?\w[\w-]{0,20}['\", ]{1,5}){0,4}(?:run|exec|shell)\b|Singularity>|Apptainer>"), USUAL),
    ("lxc", ("lxc",), lazy(r"\bLXC container\b|\b[Ii]n(?:side)? (?:an? |my |the |this )?LXC\b"), HINT),
    ("docker", ("nvidia container", "nvcr.io", "container image", "outside"), lazy(r"NVIDIA Container|nvcr\.io/nvidia|deep learning container image|This container image and its contents|\boutside (?:of )?(?:the )?(?:docker|container)\b"), HINT),
    ("docker", ("docker container", "/workspace/", "/app/", "dist-packages/"), lazy(r"(?=[Ii/])(?:(?<!works )(?<!worked )(?<!fine )(?<!runs )(?<!well )(?<!only )(?<!not )\b[Ii](?:n|nside|nside of) (?:an? |my |the |this |our )?docker container\b|(?<![\w/])/(?:workspace|app)/\w|/usr/local/lib/python\d\.\d+/dist-packages/(?:vllm|sglang))"), GUESS),
)  # fmt: skip
GIVES_GPUS = lazy(
    r"(?=[-grndc])(?:--gpus[= ](?!none|['\"]?0\b)\S+|\bgpus:\s{1,20}(?:all\b|\d|-)|\bruntime: nvidia\b|- nvidia\.com/gpu=|--runtime[= ]nvidia|--device[= ]nvidia\.com/gpu|--nv\b"
    r"|nvidia-docker run|driver: nvidia|capabilities: \[\W{0,2}gpu)"
)
"""How a container is given GPUs."""
STARTS_CONTAINER = lazy(
    rf"(?<![\w'/-])(?:docker|podman|nerdctl) (?:container )?run\s+(?!--help)[^\s`]|(?:singularity|apptainer) (?:exec|run|shell) [^\s`]|{COMPOSED}"
)
"""A container that a person starts, by a command or by a compose file."""


def containers(text: Text) -> Facts:
    """The kind of container that the text speaks of, and whether it is given GPUs."""
    flat, low = text.flat[:CHARACTERS_READ], text.low[:CHARACTERS_READ]
    for kind, words, pattern, trust in KINDS:
        if any(word in low for word in words) and (found := pattern.search(flat)):
            source = text.source(found.start())
            yield Claim("container.kind", kind, source, trust)
    given = GIVES_GPUS.search(flat)
    if shown := given or STARTS_CONTAINER.search(flat):
        source = text.source(shown.start())
        yield Claim("container.nvidia_requested", given is not None, source, GUESS)
