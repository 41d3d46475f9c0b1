"""The kinds of event about installing packages and building extensions."""

from __future__ import annotations

from gpusetup.report.kind import kinds

INSTALLING = kinds(
    (
        "python-no-wheel",
        "requirement python",
        "no matching distribution; no wheel with a matching Python ABI tag",
    ),
    (
        "no-matching-distribution",
        "requirement versions none_found index",
        "pip: Could not find a version that satisfies",
    ),
    ("requires-python", "needs", "Requires-Python of a distribution, where an installer names it"),
    ("wheel-not-supported", "wheel", "is not a supported wheel on this platform"),
    (
        "no-wheel-for-platform",
        "requirement platform what",
        "uv: no wheels with a matching platform tag",
    ),
    (
        "wrong-index",
        "index status requirement",
        "an index that is not there (403, 404), a local label that it lacks",
    ),
    (
        "resolver-conflict",
        "",
        "uv: No solution found; pip: ResolutionImpossible; conda: UnsatisfiableError",
    ),
    ("conda-cuda-virtual-missing", "needed", "nothing provides __cuda; feature __cuda missing"),
    ("conda-not-found", "package", "PackagesNotFoundError"),
    ("pip-cache-disk-full", "path", "[Errno 28] No space left on device; os error 28, 112"),
    ("download-hash-mismatch", "file", "THESE PACKAGES DO NOT MATCH THE HASHES; Hash mismatch"),
    (
        "download-network-error",
        "host how",
        "ReadTimeoutError, SSLError, ProxyError, NameResolutionError, CondaHTTPError",
    ),
    ("pip-missing", "", "No module named pip; pip: command not found"),
    ("externally-managed", "", "error: externally-managed-environment"),
    (
        "requires-other",
        "package version needs have",
        "pip check: A requires B==1, but you have B 2",
    ),
    ("download-forbidden", "path", "[Errno 13] Permission denied, while installing"),
    ("installed-by-two", "name", "pip could not uninstall what conda or distutils installed"),
)
"""pip, uv, conda."""


BUILDS = kinds(
    (
        "cuda-toolkit-mismatch",
        "nvcc torch module needs",
        "The detected CUDA version (A) mismatches the version that was used to compile PyTorch (B)",
    ),
    (
        "cuda-toolkit-missing",
        "path who",
        "CUDA_HOME environment variable is not set; nvcc not found",
    ),
    (
        "build-isolation-no-torch",
        "package",
        "ModuleNotFoundError: torch inside pip-build-env or a uv build",
    ),
    (
        "extension-arch",
        "module arches",
        "the arch flags that an extension was built with (detectron2's table)",
    ),
    ("compiler-too-new", "compiler", "unsupported GNU version! gcc versions later than N"),
    ("no-gpu-at-build", "", "_get_cuda_arch_flags: IndexError: no GPU, and no architectures named"),
    ("torch-header-gone", "header", "THC/THC.h: No such file: torch 1.11 dropped it"),
    ("ninja-missing", "", "Ninja is required to load C++ extensions"),
    (
        "cxx-standard",
        "needs who",
        "C++17 or later compatible compiler is required; unrecognized option -std=c++17",
    ),
    ("compiler-missing", "compiler", "Microsoft Visual C++ 14.0 or greater is required"),
    (
        "triton-missing-windows",
        "",
        "Cannot find a working triton installation; No module named 'triton'",
    ),
    (
        "path-too-long",
        "",
        "Windows: a path of inductor's, ninja's or pip's is longer than 260 characters",
    ),
    ("triton-no-compiler", "compiler", "Failed to find C compiler"),
    ("triton-build-failed", "lacks", "cannot find -lcuda; cuda.h, Python.h: No such file"),
    (
        "gpu-too-old-for-triton",
        "gpu capability",
        "too old to be supported by the triton GPU compiler",
    ),
)
"""Extensions, Triton, compilers."""
