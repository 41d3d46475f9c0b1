"""Extensions: built for another torch or CUDA, or not built at all."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Alternative, Event, Evidence, Finding, Fix, parsed
from gpusetup.rules import drivers, packages, ways
from gpusetup.rules.case import (
    Case,
    cuda_needed,
    error,
    events,
    note,
    on,
    says_nothing_else,
    shown,
    told,
    with_cuda,
)
from gpusetup.rules.compiled import forget
from gpusetup.rules.distributions import OWNER, PIN_THEIR_TORCH, PYG, distribution_of
from gpusetup.rules.driver_ways import cuda_repository
from gpusetup.rules.messages import Message, said
from gpusetup.rules.plausible import is_a_name, is_a_path, is_a_source, is_a_version
from gpusetup.shell import Line, lines
from gpusetup.value import replace

MESSAGES: tuple[Message, ...] = (
    Message(
        kind="compiler-too-new",
        id="compiler-too-new",
        title="nvcc takes no gcc newer than {compiler}, and this one is",
        plain="nvcc does not take this C++ compiler: it is newer than the toolkit",
        text="Let nvcc use an older one that its release notes name, or use a newer toolkit of "
        "torch's CUDA major",
        commands=(
            "export NVCC_PREPEND_FLAGS='-ccbin g++-{compiler}'",
            "export CC=gcc-{compiler} CXX=g++-{compiler}",
        ),
        windows=(),
    ),
)


def build_isolation(case: Case) -> Iterator[Finding]:
    """A package's build imports torch, and runs where there is none."""
    heard = events(case, "build-isolation-no-torch")
    if not heard:
        return
    package = next((e.values["package"] for e in heard if e.values.get("package")), None)
    there = case.snapshot.torch.version
    known = package is not None and is_a_name(package)
    build = (ways.pip(case, "install", "--no-build-isolation", package or ""),) if known else ()
    yield error(
        "build-isolation-no-torch",
        f"{package or 'A package'} needs torch to build, and is built in an environment without it",
        detail="pip and uv build each package in a fresh environment that holds only what its "
        "build requirements name.",
        evidence=told(heard),
        fix=Fix(
            text=f"torch {there} is installed: build beside it, without isolation"
            if there
            else "Install torch first, then build without isolation (--no-build-isolation)",
            commands=(
                *(() if there else (ways.unasked(case, ways.gpusetup_install(case)),)),
                ways.pip(case, "install", "setuptools", "wheel", "ninja"),
                *build,
            ),
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
    if values.get("library", "").startswith("libc10_cuda"):
        yield _without_cuda(case, heard)
        return
    module = values.get("module") or "A compiled extension"
    known = (values.get("built_torch"), _release_of(values.get("built_cuda")))
    built = " and CUDA ".join(value for value in known if value)
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
            commands=_in_the_copy(case)
            if values.get("copy") and values.get("module") not in OWNER
            else _extension_anew(case, values.get("module"), torch),
            looks=ways.look("see which torch is there", ways.ask_torch(case)),
        )
        if not values.get("cache")
        else _empty_cache(case, values["cache"]),
    )


def _without_cuda(case: Case, heard: tuple[Event, ...]) -> Finding:
    """Only torch's CUDA builds have libc10_cuda: an extension for CUDA found none."""
    way = ways.install_torch(case, "`None` is a CPU build: then replace it. ")
    return error(
        "extension-abi-mismatch",
        "A CUDA extension finds no libc10_cuda.so: the installed torch is a CPU build, or is not "
        "imported before it",
        detail="Every CUDA build of torch has that library, no CPU build does; an extension finds "
        "it only in a process that has imported torch.",
        evidence=told(heard),
        fix=replace(
            way,
            text="See which torch is there. " + way.text,
            looks=ways.look("see first which torch is there", ways.ask_torch(case)),
        ),
    )


def _in_the_copy(case: Case) -> tuple[Line, ...]:
    """An extension that was built where its sources lie is no package of an index."""
    again = ("--no-build-isolation", "--no-cache-dir", "-e", ".")
    remove = "Remove-Item -Recurse -Force build" if on(case, "windows") else "rm -rf build"
    return (*lines(remove), ways.pip(case, "install", *again))


def _empty_cache(case: Case, cache: str) -> Fix:
    """What torch built by itself on the first call lies there until somebody deletes it."""
    return Fix(
        text="torch built it on the first call and keeps it there: delete it, so that the next "
        "call builds it for the torch and the sources of today",
        commands=forget(case, cache),
    )


def _most_telling(heard: tuple[Event, ...]) -> Event:
    return max(heard, key=lambda event: len(event.values))


ASK_TORCH = ("-c", "import torch; print(torch.__version__, torch.version.cuda)")


def _extension_anew(case: Case, module: str | None, torch: str | None) -> tuple[Line, ...]:
    source = distribution_of(module or "_")
    if source is None or not is_a_source(source):
        return ()
    torch = torch if torch and is_a_version(torch) else None
    name = source.rpartition("/")[2].removesuffix(".git")
    label = (torch or "").partition("+")[2]
    remove = ways.pip(case, "uninstall", "-y", name)
    if name == "xformers" and label.startswith("cu"):
        # Its wheels pin their torch, so that with torch named the one that fits is found.
        only_there = (*ways.torch_index(case, label), name, f"torch=={torch}")
        return (remove, ways.pip(case, "install", *only_there))
    if name in PYG and torch and label:
        page = f"https://data.pyg.org/whl/torch-{torch}.html"
        return (remove, ways.pip(case, "install", "--no-cache-dir", name, "-f", page))
    if name in PIN_THEIR_TORCH:
        return (remove, ways.pip(case, "install", name))
    built = () if source.startswith("git+") else ("--no-binary", name)
    again = ("--no-build-isolation", "--no-cache-dir", *built, source)
    return (remove, ways.pip(case, "install", *again))


def _release_of(cuda: str | None) -> str | None:
    """A CUDA release as one says it: xformers prints the compiler's number.

    >>> _release_of("1201"), _release_of("12.1")
    ('12.1', '12.1')
    """
    if not cuda or not (cuda.isascii() and cuda.isdigit() and len(cuda) in (3, 4)):
        return cuda
    return f"{int(cuda) // 100}.{int(cuda) % 100}"


def toolkit_mismatch(case: Case) -> Iterator[Finding]:
    """An extension build meets an nvcc of another CUDA than torch's."""
    heard = events(case, "cuda-toolkit-mismatch")
    if not heard:
        return
    nvcc = heard[0].values.get("nvcc") or case.snapshot.toolkit.nvcc
    torch = heard[0].values.get("torch") or cuda_needed(case.snapshot.torch)
    yield error(
        "cuda-toolkit-mismatch-extension-build",
        f"nvcc is {f'CUDA {nvcc}' if nvcc else 'of another CUDA'}, torch was built with "
        f"{f'CUDA {torch}' if torch else 'another'}: an extension built here would not fit",
        evidence=told(heard),
        fix=_one_cuda(case, nvcc, torch),
    )


def _one_cuda(case: Case, nvcc: str | None, torch: str | None) -> Fix:
    """Either nvcc of torch's CUDA, or torch of nvcc's."""
    build = case.resolution.build
    text = f"Build with nvcc {torch or 'of the same CUDA'}: let CUDA_HOME name that toolkit"
    same = bool(build and nvcc and build.cuda == ".".join(nvcc.split(".")[:2]))
    other = (
        Alternative(
            title=f"keep nvcc and install torch {build.torch} from {build.backend}",
            commands=ways.install_commands(case),
        )
        if build is not None and same
        else None
    )
    return Fix(
        text=text,
        commands=_toolkit_home(case, torch),
        alternatives=(other,) if other else (),
    )


def _toolkit_home(case: Case, cuda: str | None) -> tuple[Line, ...]:
    if not cuda or not is_a_version(cuda):
        return ()
    minor = ".".join(cuda.split(".")[:2])
    if on(case, "windows"):
        home = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{minor}"
        return (
            ways.setting(case, "CUDA_HOME", home),
            ways.first_on(case, "PATH", rf"{home}\bin"),
        )
    home = f"/usr/local/cuda-{minor}"
    return (
        ways.setting(case, "CUDA_HOME", home),
        ways.first_on(case, "PATH", f"{home}/bin"),
    )


NVCC_KNOWS = {
    "60": "8.0", "61": "8.0", "62": "8.0", "70": "9.0", "72": "9.2",
    "75": "10.0", "80": "11.0", "86": "11.1", "87": "11.4", "89": "11.8", "90": "11.8",
    "100": "12.8", "101": "12.8", "120": "12.8", "103": "12.9", "121": "12.9", "110": "13.0",
}  # fmt: skip
"""An architecture -> the first toolkit whose nvcc compiles for it (CUDA release notes)."""

NVCC_DROPPED = {"30": "11.0", "32": "11.0", "35": "12.0", "37": "12.0"} | dict.fromkeys(
    ("50", "52", "53", "60", "61", "62", "70", "72"), "13.0"
)
"""An architecture -> the first toolkit whose nvcc no longer does (CUDA release notes)."""


def toolkit_lacks_architecture(case: Case) -> Iterator[Finding]:
    """nvcc does not compile for an architecture that the build asks for."""
    heard = tuple(
        e for e in events(case, "jit-arch-rejected") if e.values.get("compiler", "") == "nvcc"
    )
    if not heard:
        return
    arch = heard[0].values.get("arch", "")
    number = arch.partition("_")[2].rstrip("af")
    nvcc, torch = case.snapshot.toolkit.nvcc, cuda_needed(case.snapshot.torch)
    first, gone = NVCC_KNOWS.get(number), NVCC_DROPPED.get(number)
    dropped = bool(gone and nvcc and parsed(nvcc) >= parsed(gone))
    yield error(
        "cuda-toolkit-mismatch-extension-build",
        f"nvcc{f' (CUDA {nvcc})' if nvcc else ''} does not compile for {arch or 'this GPU'}"
        + _known_to(first, gone),
        detail="An extension needs a toolkit of torch's CUDA major which knows the GPU.",
        evidence=told(heard),
        fix=Fix(
            text=_toolkit_for(torch, first, gone if dropped else None),
            commands=_toolkit_home(case, None if dropped else _best_toolkit(torch, first)),
            looks=ways.look(
                "see which CUDA torch and nvcc have", ways.ask_torch(case), *lines("nvcc --version")
            ),
        ),
    )


def _known_to(first: str | None, gone: str | None) -> str:
    """Which toolkits know an architecture.

    >>> _known_to("11.1", None), _known_to("9.0", "13.0")
    (': toolkits from 11.1 on know it', ': toolkits from 9.0 on know it, until 13.0 dropped it')
    """
    since = f": toolkits from {first} on know it" if first else ""
    until = f", until {gone} dropped it" if first else f": {gone} dropped it"
    return since + (until if gone else "")


def _best_toolkit(torch: str | None, first: str | None) -> str | None:
    """torch's own CUDA where it knows the architecture, else the first one that does."""
    return max(torch, first, key=parsed) if torch and first else torch


def _toolkit_for(torch: str | None, first: str | None, gone: str | None) -> str:
    if gone:
        return (
            f"Build for the GPU that is there only (TORCH_CUDA_ARCH_LIST), or with a toolkit older "
            f"than {gone} and a torch of the same CUDA"
        )
    least = f", {first} or newer" if first else ""
    text = f"Build with a toolkit of torch's CUDA{f' ({torch})' if torch else ''}{least}"
    if torch and first and parsed(torch) < parsed(first):
        text += f"; torch itself must then be a build for CUDA {first} or newer"
    return f"{text}: let CUDA_HOME name it and its nvcc be first on PATH"


def toolkit_missing(case: Case) -> Iterator[Finding]:
    """An extension build finds no toolkit."""
    heard = events(case, "cuda-toolkit-missing")
    if not heard:
        return
    # A torch that sees its GPU needs no nvcc: that a shell has none is no failure then.
    idle = all(e.values.get("who") == "shell" for e in heard)
    idle = idle and says_nothing_else(case, "cuda-toolkit-missing")
    make = note if idle and case.snapshot.torch.cuda_available else error
    cuda = cuda_needed(case.snapshot.torch)
    minor = ".".join(cuda.split(".")[:2]) if cuda else None
    named = case.snapshot.toolkit.home
    why = (
        f"CUDA_HOME names {named}, where no nvcc is"
        if named
        else "CUDA_HOME is not set and nvcc is not on PATH"
    )
    yield make(
        "cuda-toolkit-missing",
        f"A build of CUDA code finds no toolkit: {why}",
        detail="torch's wheels bring CUDA's libraries, not its compiler.",
        evidence=(*told(heard), *_torch_cuda_line(case)),
        fix=Fix(
            text=f"Install the CUDA toolkit {minor or 'of the CUDA that torch was built with'} and "
            "let CUDA_HOME name it; or look for a prebuilt wheel of the extension",
            commands=toolkit_commands(case, minor) if minor else (),
            looks=() if minor else ways.look("see which CUDA torch has", ways.ask_torch(case)),
            needs_root=bool(minor) and not _by_conda(case),
        ),
    )


def _by_conda(case: Case) -> bool:
    return bool(case.snapshot.conda.prefix) or case.installer == "conda"


def toolkit_commands(case: Case, minor: str) -> tuple[Line, ...]:
    """How the toolkit of one CUDA comes here, and the variable that names it to a build."""
    if not is_a_version(minor):
        return ()
    if _by_conda(case):
        prefix = case.snapshot.conda.prefix or ""
        into = ("--prefix", prefix) if is_a_path(prefix) else ()
        spec = f"cuda-toolkit={minor}"
        home: tuple[Line, ...] = (ways.setting(case, "CUDA_HOME", prefix),) if into else ()
        home = home or ways.posix(case, 'export CUDA_HOME="$CONDA_PREFIX"')
        return (ways.command(case, "conda", "install", "-y", *into, "-c", "nvidia", spec), *home)
    package = f"cuda-toolkit-{minor.replace('.', '-')}"
    return (
        *cuda_repository(drivers.wanted_driver(case)),
        *(packages.system_package(case, package) if on(case, "linux") else ()),
        *_toolkit_home(case, minor),
        *lines("nvcc --version"),
    )


def _torch_cuda_line(case: Case) -> tuple[Evidence, ...]:
    torch = case.snapshot.torch
    if not torch.version:
        return ()
    return (shown(case, "torch.version", with_cuda(f"torch {torch.version}", cuda_needed(torch))),)


RULES = (
    build_isolation,
    extension_messages,
    extension_abi_mismatch,
    toolkit_mismatch,
    toolkit_lacks_architecture,
    toolkit_missing,
)
