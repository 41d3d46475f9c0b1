"""The environment variables that affect CUDA, torch and the installers, and the GPUs that
CUDA_VISIBLE_DEVICES leaves visible.

The list of variables is an allow-list: others are never kept. Passwords in URLs are removed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpusetup.model.logins import without_logins

JOB_VARIABLES = frozenset("SLURM_JOB_ID PBS_JOBID LSB_JOBID JOB_ID FLUX_JOB_ID OAR_JOB_ID".split())  # noqa: SIM905
"""The names of the variables that batch systems set in a job."""
NAMES = JOB_VARIABLES | frozenset(
    "CC CXX CUDACXX LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH PATH PYTHONPATH PYTHONHOME "  # noqa: SIM905
    "PYTHONNOUSERSITE VIRTUAL_ENV TMPDIR TEMP TMP CONDA_PREFIX CONDA_DEFAULT_ENV "
    "CONDA_OVERRIDE_CUDA XDG_CACHE_HOME LOCALAPPDATA UV_TORCH_BACKEND UV_INDEX UV_INDEX_URL "
    "UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_INDEX_STRATEGY UV_PYTHON UV_SYSTEM_PYTHON "
    "UV_CONSTRAINT UV_OVERRIDE UV_EXCLUDE_NEWER UV_PYTHON_DOWNLOADS UV_HTTP_TIMEOUT PIP_INDEX_URL "
    "PIP_EXTRA_INDEX_URL PIP_CERT PIP_TRUSTED_HOST HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE "
    "REQUESTS_CA_BUNDLE TRITON_CACHE_DIR TRITON_PTXAS_PATH MAX_JOBS OMP_NUM_THREADS "
    "MKL_THREADING_LAYER KMP_DUPLICATE_LIB_OK HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES "
    "HSA_OVERRIDE_GFX_VERSION ONEAPI_DEVICE_SELECTOR GLOO_SOCKET_IFNAME TORCHELASTIC_RUN_ID RANK "
    "LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_PORT SLURM_JOB_GPUS SLURM_GPUS "
    "KUBERNETES_SERVICE_HOST GPUSETUP_INDEX".split()
)
"""The names of the variables that are kept."""
PREFIXES = (
    "CUDA_", "NVIDIA_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "NCCL_", "CUDNN_", "CUBLAS_",
)  # fmt: skip
"""Variables whose names begin like this are kept too."""
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|AUTH|(^|_)(KEY|PWD|USER(NAME)?)$", re.I
)


def allowed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables in the allow-list, with credentials removed from URLs.

    >>> url = "https://me:word@host/simple"
    >>> allowed_variables({"PIP_INDEX_URL": url, "HOME": "/root", "NCCL_TOKEN": "x"})
    {'PIP_INDEX_URL': 'https://host/simple'}
    """
    return {
        name: without_logins(value) for name, value in sorted(environ.items()) if is_allowed(name)
    }


def is_allowed(name: str) -> bool:
    """Whether a variable is in the allow-list and its name does not suggest a secret."""
    is_listed = name in NAMES or name.startswith(PREFIXES)
    return is_listed and _SECRET.search(name) is None


def positions_named(variable: str, gpus: Sequence[tuple[int | None, str | None]]) -> list[int]:
    """The positions in `gpus` (their index and UUID) of those that the value of
    CUDA_VISIBLE_DEVICES names, in the value's order and each once.

    CUDA ignores everything from the first word on that does not name exactly one GPU: `-1` names
    none, and a short beginning of a UUID may name several.

    >>> two = [(0, "GPU-1a"), (1, "GPU-2b")]
    >>> positions_named("1,GPU-1", two), positions_named("-1,0", two)
    ([1, 0], [])
    """
    positions: list[int] = []
    for word in filter(None, map(str.strip, variable.split(","))):
        # `GPU-` alone would be the beginning of every UUID.
        may_be_uuid = len(word) > len("GPU-")
        named = [
            position
            for position, (index, uuid) in enumerate(gpus)
            if word == str(index) or (may_be_uuid and (uuid or "").startswith(word))
        ]
        if len(named) != 1:
            break
        if named[0] not in positions:
            positions += named
    return positions
