"""Extensions: built for another torch or CUDA, or not built at all."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Event, Evidence, Finding, Fix
from gpusetup.rules import ways
from gpusetup.rules.case import Case, cuda_needed, error, events, on, shown, told
from gpusetup.rules.messages import Message, said

MESSAGES: tuple[Message, ...] = (
    Message(
        kind="build-isolation-no-torch",
        id="build-isolation-no-torch",
        title="{package} needs torch to build, and pip builds it in an environment without it",
        plain="A package needs torch to build, and is built in an environment without it",
        detail="pip and uv build each package in a fresh environment that holds only what its "
        "build requirements name.",
        text="Install torch first, then build without isolation",
        commands=(
            "gpusetup install",
            "pip install setuptools wheel ninja",
            "pip install --no-build-isolation {package}",
        ),
    ),
    Message(
        kind="compiler-too-new",
        id="compiler-too-new",
        title="nvcc does not take this C++ compiler: {compiler}",
        plain="nvcc does not take this C++ compiler: it is newer than the toolkit",
        text="Let nvcc use an older one that its release notes name, or use a newer toolkit of "
        "torch's CUDA major",
        commands=(
            "export NVCC_PREPEND_FLAGS='-ccbin g++-12'",
            "export CC=gcc-12 CXX=g++-12",
        ),
        windows=(),
    ),
)


def extension_messages(case: Case) -> Iterator[Finding]:
    yield from said(case, MESSAGES)


def extension_abi_mismatch(case: Case) -> Iterator[Finding]:
    """A compiled extension of another torch release or C++ ABI."""
    heard = events(case, "extension-abi-mismatch")
    if not heard:
        return
    values = _most_telling(heard).values
    module = values.get("module") or "A compiled extension"
    built = " and CUDA ".join(v for v in (values.get("built_torch"), values.get("built_cuda")) if v)
    torch = case.snapshot.torch.version or values.get("torch")
    beside = f"torch {torch}" if torch else "the installed torch"
    yield error(
        "extension-abi-mismatch",
        f"{module} was built for {f'torch {built}' if built else 'another torch'}"
        f", and {beside} is another release",
        detail="An extension calls torch's C++ functions by their mangled names: it fits the "
        "release (and CUDA) that it was compiled with.",
        evidence=told(heard),
        fix=Fix(
            text=f"Install the release of it that is made for {beside} (its own table says which), "
            "or build it anew against this torch",
            commands=_extension_anew(case, values.get("module"), torch),
        ),
    )


def _most_telling(heard: tuple[Event, ...]) -> Event:
    return max(heard, key=lambda event: len(event.values))


def _extension_anew(case: Case, module: str | None, torch: str | None) -> tuple[str, ...]:
    name = (module or "EXTENSION").partition(".")[0].replace("_", "-")
    label = (torch or "").partition("+")[2]
    remove = ways.pip(case, "uninstall", "-y", name)
    if name == "xformers" and label.startswith("cu"):
        # Its wheels pin their torch, so that with torch named the one that fits is found.
        only_there = (*ways.torch_index(case, label), name, f"torch=={torch}")
        return (remove, ways.pip(case, "install", *only_there))
    again = ("--no-build-isolation", "--no-cache-dir", "--no-binary", name, name)
    return (remove, ways.pip(case, "install", *again))


def toolkit_mismatch(case: Case) -> Iterator[Finding]:
    """An extension build meets an nvcc of another CUDA than torch's."""
    heard = events(case, "cuda-toolkit-mismatch")
    if not heard:
        return
    nvcc = heard[0].values.get("nvcc") or case.snapshot.toolkit.nvcc
    torch = heard[0].values.get("torch") or cuda_needed(case.snapshot.torch)
    yield error(
        "cuda-toolkit-mismatch-extension-build",
        f"nvcc is CUDA {nvcc or '?'}, torch was built with CUDA {torch or 'another'}: an extension "
        "built here would not fit",
        evidence=told(heard),
        fix=_one_cuda(case, nvcc, torch),
    )


def _one_cuda(case: Case, nvcc: str | None, torch: str | None) -> Fix:
    """Either nvcc of torch's CUDA, or torch of nvcc's."""
    build = case.resolution.build
    commands = _toolkit_home(case, torch)
    text = f"Build with nvcc {torch or 'of the same CUDA'}: let CUDA_HOME name that toolkit"
    same = bool(build and nvcc and build.cuda == ".".join(nvcc.split(".")[:2]))
    if build is not None and same:
        text += f". Or keep nvcc and install torch {build.torch} from {build.backend}"
        commands = (*commands, *ways.install_commands(case))
    return Fix(text=text, commands=commands)


def _toolkit_home(case: Case, cuda: str | None) -> tuple[str, ...]:
    if not cuda:
        return ()
    minor = ".".join(cuda.split(".")[:2])
    if on(case, "windows"):
        home = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{minor}"
        return (f'set "CUDA_HOME={home}"', rf'set "PATH={home}\bin;%PATH%"')
    return (
        f"export CUDA_HOME=/usr/local/cuda-{minor}",
        'export PATH="$CUDA_HOME/bin:$PATH"',
    )


def toolkit_missing(case: Case) -> Iterator[Finding]:
    """An extension build finds no toolkit."""
    heard = events(case, "cuda-toolkit-missing")
    if not heard:
        return
    cuda = cuda_needed(case.snapshot.torch)
    minor = ".".join(cuda.split(".")[:2]) if cuda else None
    conda = case.snapshot.conda.prefix or case.installer == "conda"
    way = "conda" if conda else "apt" if ways.distribution(case) in ("ubuntu", "debian") else ""
    rows = {
        "conda": f"conda install -c nvidia cuda-toolkit={minor or 'VERSION'}",
        "apt": f"sudo apt install cuda-toolkit-{(minor or 'VERSION').replace('.', '-')}",
    }
    home = ("export CUDA_HOME=$CONDA_PREFIX",) if conda else _toolkit_home(case, minor)
    yield error(
        "cuda-toolkit-missing",
        "A build of CUDA code finds no toolkit: CUDA_HOME is not set and nvcc is not on PATH",
        detail="torch's wheels bring CUDA's libraries, not its compiler.",
        evidence=(*told(heard), *_torch_cuda_line(case)),
        fix=Fix(
            text=f"Install the CUDA toolkit {minor or 'of the CUDA that torch was built with'} and "
            "let CUDA_HOME name it; or look for a prebuilt wheel of the extension",
            commands=(*((rows[way],) if way else ()), *home, "nvcc --version"),
            needs_root=way == "apt",
        ),
    )


def _torch_cuda_line(case: Case) -> tuple[Evidence, ...]:
    torch = case.snapshot.torch
    if not torch.version:
        return ()
    return (shown(case, "torch.version", f"torch {torch.version}, CUDA {cuda_needed(torch)}"),)


RULES = (
    extension_messages,
    extension_abi_mismatch,
    toolkit_mismatch,
    toolkit_missing,
)
