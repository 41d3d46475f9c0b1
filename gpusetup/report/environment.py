"""Reads environment variables that a text sets, and the container that the text mentions."""

from __future__ import annotations

from gpusetup.messages.search import Text
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import CHARACTERS_READ, GUESS, Claim, Facts

# The names of the variables that are kept: all of NCCL's (`NCCL_P2P_DISABLE`) and those listed
# here.
VARIABLES = lazy(
    r"CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|NVIDIA_DRIVER_CAPABILITIES|CUDA_HOME|CUDA_PATH|CUDA_DEVICE_ORDER"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PYTORCH_(?:CUDA_)?ALLOC_CONF|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    r"|CUDA_LAUNCH_BLOCKING|PYTORCH_NO_CUDA_MEMORY_CACHING|CUDA_DISABLE_PTX_JIT|CUDA_FORCE_PTX_JIT|CUDA_MODULE_LOADING"
    r"|CONDA_OVERRIDE_CUDA|HSA_OVERRIDE_GFX_VERSION|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|NCCL_[A-Z0-9_]{2,30}|TORCH_CUDA_ARCH_LIST|PYTHONPATH|PIP_EXTRA_INDEX_URL|UV_EXTRA_INDEX_URL"
    r"|WORLD_SIZE|LOCAL_RANK|KUBERNETES_SERVICE_HOST"
)
NAME = r"[A-Z][A-Z0-9_]{3,40}"
# The forms of an assignment. a: `export CUDA_VISIBLE_DEVICES=2`; b: `os.environ["CUDA_HOME"] =
# "/usr/local/cuda"`; c: `echo $PATH`, followed by its output; d:
# `print(repr(os.environ.get("PATH")))`, followed by its output; e: `CUDA_VISIBLE_DEVICES: all` of a
# compose file. Each form has a group for the name and one for the value.
ASSIGNED = lazy(
    rf"(?<!consider passing )(?:(?<![\w'\"$])(?P<a>{NAME})=(?P<q>['\"]?)(?P<av>[^\s'\";&]{{0,400}})(?P=q)"
    rf"|environ(?:\.get\()?\[?['\"](?P<b>{NAME})['\"][\])]\s?[:=]\s?(?:[frb]?['\"](?=[^'\"]*['\"]))?(?P<bv>[^\s'\")]{{0,400}})"
    rf"|echo \$\{{?(?P<c>{NAME})\}}?\s+(?P<cv>\S{{1,1000}})"
    rf"|environ\.get\(['\"](?P<d>{NAME})['\"]\)+['\"]?\s+['\"](?P<dv>[^\s'\"]{{1,400}})['\"]"
    r"|(?P<e>(?:CUDA|NVIDIA)_VISIBLE_DEVICES):\s['\"]?(?P<ev>all|none|void|-?\d+(?:,\d+)*)\b)"
)
"""An environment variable and its value, as shells, Python and programs show it.

The advice in torch's own errors ("consider passing CUDA_LAUNCH_BLOCKING=1") is left out, because it
sets nothing.
"""
UNSET = ("none", "<not", "not", "unset", "(not", "n/a", "undefined", "...", "$")


def variables(text: Text) -> Facts:
    """A claim for each variable in `VARIABLES`, with its first value in the text.

    >>> from gpusetup.report.cleaning import text_of
    >>> next(variables(text_of("$ CUDA_VISIBLE_DEVICES=2 python main.py"))).value
    '2'
    """
    # The pattern for assignments is slow, and most texts contain none of the variables.
    if not VARIABLES.search(text.flat):
        return
    already_read: set[str] = set()
    for match in ASSIGNED.finditer(text.flat, 0, CHARACTERS_READ):
        for form in "abcde":
            name, value = match[form], match[f"{form}v"]
            if not name or name in already_read or not VARIABLES.fullmatch(name):
                continue
            if not value.lower().startswith(UNSET):
                already_read.add(name)
                yield Claim(f"environment.{name}", value, text.source(match.start()))


# --- containers -----------------------------------------------------------------------------------


# `services: web: image: ...`
COMPOSED = r"\bservices:\s+[\w.-]{1,60}:\s+(?:image|build|command|container_name|deploy|environment|ports|restart|runtime|shm_size|volumes|gpus):"
"""The beginning of a compose file. Such a file shows whether the container gets GPUs, because it
lists the reserved devices (Compose Specification, services)."""
# `--gpus all` (not `--gpus none` or `0`), a compose file's `capabilities: [gpu]`, `--nv`.
GIVES_GPUS = lazy(
    r"(?=[-grndc])(?:--gpus[= ](?!none|['\"]?0\b)\S+|\bgpus:\s{1,20}(?:all\b|\d|-)|\bruntime: nvidia\b|- nvidia\.com/gpu=|--runtime[= ]nvidia|--device[= ]nvidia\.com/gpu|--nv\b"
    r"|nvidia-docker run|driver: nvidia|capabilities: \[\W{0,2}gpu)"
)
"""The options that give a container GPUs."""
# `docker run IMAGE`, `singularity exec IMAGE`.
STARTS_CONTAINER = lazy(
    rf"(?<![\w'/-])(?:docker|podman|nerdctl) (?:container )?run\s+(?!--help)[^\s`]|(?:singularity|apptainer) (?:exec|run|shell) [^\s`]|{COMPOSED}"
)
"""The command or the compose file with which a person starts a container."""


def containers(text: Text) -> Facts:
    """Whether the container of the text was given GPUs."""
    flat = text.flat[:CHARACTERS_READ]
    gpu_option = GIVES_GPUS.search(flat)
    # The text proves that the container was started without a GPU only if it shows the command or
    # file that started it.
    if shown := gpu_option or STARTS_CONTAINER.search(flat):
        source = text.source(shown.start())
        yield Claim("container.nvidia_requested", gpu_option is not None, source, GUESS)
