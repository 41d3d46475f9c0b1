"""What is known about installers, and about extensions that are built or loaded."""

from __future__ import annotations

from gpusetup.rules.fact import Fact

CPP_EXTENSION = "messages of torch/utils/cpp_extension.py"
CUDA_API = "CUDA Runtime API reference, cudaError"
PIP = "pip documentation; messages of pip's sources"
UV = "messages of uv and pip"
WHEELS = "the wheels and indexes of torch, read for the catalog"

INSTALLERS = (
    Fact(
        id="wrong-index",
        title="the index, or the local label, does not exist where the installer looked",
        means="Local labels such as +cu128 are only in torch's own index, and not every CUDA has "
        "one.",
        proven_by="An index that no torch was ever in, a label asked of another index, 403 or 404, "
        "a release inside the range of those offered",
        not_when="python-no-wheel: the index has the release, for other Pythons",
        way_out="The index that the resolver names",
        source=WHEELS,
    ),
    Fact(
        id="package-not-found",
        title="the installer finds no file of another package",
        means="A wrong name or version, or torch's index given as the only one.",
        proven_by="No matching distribution for a name outside the torch family",
        way_out="Give torch's index for torch alone",
        source=PIP,
    ),
    Fact(
        id="download-network-error",
        title="the index or file host cannot be reached or verified",
        means="TLS, proxy, DNS, a clock that is wrong, a slow line.",
        proven_by="The installer's connection error",
        not_when="wrong-index: the server answers 403 or 404",
        way_out="Network, proxy, clock; a mirror by --index-root",
        source="messages of pip, urllib3, uv and conda",
    ),
    Fact(
        id="download-hash-mismatch",
        title="a download does not match its hash",
        means="It was cut or altered on the way.",
        proven_by="The installer's word",
        not_when="pip-cache-disk-full: the disk cut it",
        way_out="Clear the cache, download again",
        source=UV,
    ),
    Fact(
        id="resolver-conflict",
        title="the requirements exclude each other",
        means="Two pins need different versions of one package.",
        proven_by="The solver finds no solution",
        not_when="conda-cuda-virtual-missing, python-no-wheel: then that is why",
        way_out="Loosen a pin; one index for the torch family",
        source="messages of uv, pip, conda and pixi",
    ),
    Fact(
        id="installed-by-two",
        title="pip cannot remove what another installer installed",
        means="distutils and conda packages have no RECORD that pip could follow.",
        proven_by="pip's word",
        way_out="A fresh environment",
        source=PIP,
    ),
    Fact(
        id="requirement-broken",
        title="an installed package requires another version of its neighbour",
        means="pip installs all the same and warns; it matters when that package is used.",
        proven_by="pip's conflict line",
        not_when="torchvision-mismatch, torchaudio-mismatch",
        way_out="Versions that fit each other",
        source=PIP,
    ),
    Fact(
        id="library-missing",
        title="a system library is missing",
        means="A shared object outside CUDA and torch, as libGL for OpenCV.",
        proven_by="The loader names it",
        not_when="cuda-lib-missing, driver-missing (libcuda)",
        way_out="The system package that holds it",
        source="manual page of ld.so",
    ),
    Fact(
        id="compiler-missing",
        title="no C++ compiler for a package",
        means="No wheel fits, so that the package is compiled.",
        proven_by="The build's word",
        not_when="triton-no-compiler",
        way_out="Build tools, or a wheel",
        source="messages of setuptools and cpp_extension",
    ),
)

EXTENSIONS = (
    Fact(
        id="build-isolation-no-torch",
        title="a build runs in an environment without torch",
        means="pip and uv build in a fresh environment with the declared build requirements only.",
        proven_by="No module named torch inside a build environment",
        not_when="torch-missing: the program itself does not find it",
        way_out="Install torch, then --no-build-isolation",
        source="PEP 518; pip documentation, build system interface",
    ),
    Fact(
        id="cuda-toolkit-mismatch-extension-build",
        title="nvcc is of another CUDA than torch",
        means="An extension must be compiled with torch's CUDA (its major at least).",
        proven_by="The build names both versions, or nvcc an architecture that it does not know",
        not_when="cuda-toolkit-missing",
        way_out="CUDA_HOME with torch's CUDA, or torch with nvcc's",
        source=CPP_EXTENSION + "; CUDA release notes",
    ),
    Fact(
        id="cuda-toolkit-missing",
        title="a build finds no CUDA toolkit",
        means="torch's wheels bring CUDA's libraries, not its compiler.",
        proven_by="CUDA_HOME not set, nvcc not found",
        not_when="A wheel of the extension would do",
        way_out="The toolkit of torch's CUDA, CUDA_HOME",
        source=CPP_EXTENSION,
    ),
    Fact(
        id="compiler-too-new",
        title="nvcc does not take the C++ compiler",
        means="Every toolkit supports compilers up to one version.",
        proven_by="nvcc's host check",
        way_out="An older compiler by -ccbin",
        source="NVIDIA, CUDA Installation Guide, host compiler support",
    ),
    Fact(
        id="extension-abi-mismatch",
        title="an extension belongs to another torch or C++ ABI",
        means="It calls torch's C++ functions by names that changed.",
        proven_by="An undefined symbol of torch, or the extension's own check",
        not_when="torchvision-mismatch, torchaudio-mismatch, mixed-conda-pip (torch's own files)",
        way_out="Its release for this torch, or a new build",
        source="PyTorch documentation, C++ ABI; messages of xformers and others",
    ),
    Fact(
        id="extension-arch-mismatch",
        title="an extension has no kernel for the GPU, torch has",
        means="It was compiled for the GPUs of another machine.",
        proven_by="No kernel image, where torch's own kernels serve the GPU or the extension's "
        "list does not",
        not_when="arch-too-new-for-wheel, arch-too-old-for-wheel",
        way_out="Build it anew with TORCH_CUDA_ARCH_LIST",
        source=CPP_EXTENSION,
    ),
    Fact(
        id="no-kernel-image",
        title="a kernel for the GPU is missing, in torch or an extension",
        means="Neither the GPU nor who raised it is known.",
        proven_by="Error 209 (48, 8 and 98 in the older runtime) alone",
        not_when="extension-arch-mismatch, arch-too-new-for-wheel, arch-too-old-for-wheel",
        way_out="See which of them, then rebuild or reinstall",
        source=CUDA_API,
    ),
    Fact(
        id="triton-build-failed",
        title="Triton's helper does not build",
        means="A C compiler runs; libcuda.so, cuda.h or Python.h is not found.",
        proven_by="The compiler's or linker's line",
        not_when="triton-no-compiler",
        way_out="The link libcuda.so, the headers of Python",
        source="Triton's sources (build.py, driver.py)",
    ),
)

FACTS: tuple[Fact, ...] = (*INSTALLERS, *EXTENSIONS)
