"""The commands of fixes, written for one machine and its shell.

Facts, such as the name of a distribution's driver package, are in tables. The commands are quoted
for the system's shell, so that people can paste them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.jetpack import (
    INSTALLING_ON_JETSON,
    UNIFIED,
    board_of,
    jetpack_of,
    runs_ordinary_wheels,
)
from gpusetup.choose.coming import new_folder, options_of_new_environment
from gpusetup.choose.commands import python_command
from gpusetup.choose.compatibility import notes_on_installed
from gpusetup.choose.host import driver_family, gpus_to_serve
from gpusetup.evidence.command_values import is_a_path, is_a_version
from gpusetup.evidence.context import RuleContext, capabilities, is_report, on
from gpusetup.fixes import drivers, needs
from gpusetup.model import shell
from gpusetup.model.builds import TorchBuild
from gpusetup.model.finding import Alternative, Fix
from gpusetup.model.shell import Line, Lines, lines, shell_line
from gpusetup.model.versions import parsed


def command(context: RuleContext, *argv: str) -> Line:
    """An argument list as a command line for this machine's shell."""
    return shell_line(argv, context.os.family)


def posix(context: RuleContext, *texts: str) -> Lines:
    """Lines that are already written for a POSIX shell; none on Windows."""
    return () if on(context, "windows") else lines(*texts)


def setting(context: RuleContext, name: str, value: str) -> Line:
    """The line that sets a variable in this system's shell. On Windows it is PowerShell's syntax,
    because its `set` does not set environment variables."""
    return shell.setting(name, value, context.os.family)


LIBRARIES = "LD_LIBRARY_PATH"
"""The variable with the folders in which Linux' loader looks first."""


def without_folders(context: RuleContext, *unwanted: str) -> Lines:
    """The line that removes the folders whose names contain one of these words from
    LD_LIBRARY_PATH, as far as the variable was read; otherwise it unsets the variable. Windows and
    macOS have no such variable."""
    if context.os.family in ("windows", "macos"):
        return ()
    folders = context.snapshot.environment.get(LIBRARIES, "").split(":")
    kept = [folder for folder in folders if folder and not any(word in folder for word in unwanted)]
    # A report may contain any text as a path, and people paste the line into a shell.
    if kept and all(map(is_a_path, kept)):
        return (setting(context, LIBRARIES, ":".join(kept)),)
    return (shell.unsetting(LIBRARIES, context.os.family),)


def prepending(context: RuleContext, name: str, folder: str) -> Line:
    """The line that puts a folder first in a list such as PATH."""
    return shell.prepending(name, folder, context.os.family)


def toolkit_home(context: RuleContext, cuda: str | None) -> Lines:
    """The lines that tell a build where a CUDA version's toolkit is; () if it is unknown."""
    if not cuda or not is_a_version(cuda):
        return ()
    minor = ".".join(cuda.split(".")[:2])
    if on(context, "windows"):
        home = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{minor}"
        binaries = rf"{home}\bin"
    else:
        home = f"/usr/local/cuda-{minor}"
        binaries = f"{home}/bin"
    return (setting(context, "CUDA_HOME", home), prepending(context, "PATH", binaries))


def architectures_for_build(context: RuleContext) -> Lines:
    """The line that sets the GPUs' architectures for an extension build; () if they are unknown."""
    architectures = ";".join(map(str, sorted({*capabilities(context)})))
    return (setting(context, "TORCH_CUDA_ARCH_LIST", architectures),) if architectures else ()


def python(context: RuleContext) -> str:
    """The target's Python if its path is plausible, otherwise the `python` on PATH."""
    executable = context.snapshot.python.executable
    return executable if executable and is_a_path(executable) else "python"


# --- torch --------------------------------------------------------------------------------------


def install_commands(context: RuleContext) -> Lines:
    """`gpusetup install` for this target: for the project in this folder if one asks for torch, and
    into a new environment if the target may not be changed."""
    # The project's own environment is changed, so no target is named.
    if context.project_words == ("--project",):
        return (command(context, "gpusetup", "install", "--project"),)
    # Otherwise `-r FILE`, the folder's list of requirements.
    if context.project_words:
        return (gpusetup(context, *context.project_words),)
    if target_refuses(context):
        return (into_new_environment(context),)
    build = context.choice.build
    named: tuple[str, ...] = ()
    # The person asked for this build, or no build fits the installed torch's release, so that
    # `install` would choose another one on its own.
    if build and (context.choice.wish.names_build or context.choice.action == "refused"):
        named = ("--torch", build.torch, "--backend", build.backend)
    return (gpusetup(context, *named, *_host_options(context)),)


def into_new_environment(context: RuleContext) -> Line:
    """The same installation into a new environment, for a target that may not be changed."""
    folder = new_folder(context.snapshot)
    same_packages = options_of_new_environment(context.choice, context.snapshot)
    words = ("--venv", folder, *same_packages, *_host_options(context))
    return command(context, "gpusetup", "install", *words)


def by_hand(context: RuleContext) -> tuple[Alternative, ...]:
    """The same installation with this environment's installer. () in a uv project, whose next `uv
    sync` would undo it, in a target that may not be changed, and if the path of the target's Python
    is not plausible."""
    python = context.snapshot.python
    # A report may contain any text as the path, and people paste these commands into a shell.
    has_odd_path = python.executable is not None and not is_a_path(python.executable)
    if in_a_project(context) or target_refuses(context) or has_odd_path:
        return ()
    # If the environment has no pip, uv installs into it from outside.
    lacks_pip = context.installer == "pip" and python.has_pip is False
    installer = "uv" if lacks_pip else context.installer
    typed = tuple(command(context, *argv) for argv in context.commands.get(installer, ()))
    title = f"with {installer}"
    # The title says why there are two commands.
    if len(typed) > 1:
        title += " (torch from PyTorch's index, everything else from the index you normally use)"
    return titled(title, *typed)


def in_a_project(context: RuleContext) -> bool:
    """Whether uv manages torch in a project, whose next `uv sync` undoes `uv pip install`."""
    return context.snapshot.python.manager == "uv project" and context.installer == "uv"


def target_refuses(context: RuleContext) -> bool:
    """Whether the target belongs to the system or another user, so that it may not be changed."""
    python = context.snapshot.python
    return bool(python.externally_managed) or python.site_writable is False


def _host_options(context: RuleContext) -> tuple[str, ...]:
    """The options that describe another host; `gpusetup install` accepts the same ones."""
    if not context.other_host:
        return ()
    names = dict.fromkeys(gpu.name for gpu in context.snapshot.gpus or ())
    words = [word for name in names for word in ("--gpu", name)]
    version = context.driver.version
    return (*words, "--driver", version) if version else tuple(words)


def gpusetup(context: RuleContext, *options: str) -> Line:
    """`gpusetup install` with these options (or first with names of packages), into the target if
    it may be changed, otherwise into a new environment."""
    names_packages = options and not options[0].startswith("--")
    if target_refuses(context):
        target: tuple[str, ...] = ("--venv", new_folder(context.snapshot))
    # `--project` writes torch into pyproject.toml, but no other package.
    elif in_a_project(context) and not names_packages:
        target = ("--project",)
    else:
        # The Python on PATH is the default.
        executable = python(context)
        target = ("--python", executable) if executable != "python" else ()
    return command(context, "gpusetup", "install", *target, *options)


def ask_torch(context: RuleContext) -> Line:
    """The command that prints the target's torch and its CUDA."""
    ask = "import torch; print(torch.__version__, torch.version.cuda)"
    return command(context, python(context), "-c", ask)


def titled(title: str, *commands: Line) -> tuple[Alternative, ...]:
    """Commands under a title; () if there are none."""
    return (Alternative(title=title, commands=commands),) if commands else ()


ANOTHER_RUNS = (
    "The listed torch fits this machine, but the program runs a different torch. Check "
    "which torch the program's Python uses (`python -c \"import sys, torch; "
    'print(sys.executable, torch.__file__)"`). Start the program with the other Python, or '
    "remove the second torch"
)


def another_torch(context: RuleContext, why: str = "", if_installed: str = ANOTHER_RUNS) -> Fix:
    """Install the build that fits (`why`: see `install_torch`). If it is already listed as
    installed, an installation changes nothing, so the text is `if_installed`."""
    build, torch = context.choice.build, context.torch
    release, _, _ = (torch.version or "").partition("+")
    if build and (release, torch.backend) == (build.torch, build.backend):
        return Fix(text=if_installed)
    return install_torch(context, why)


def install_torch(context: RuleContext, why: str = "") -> Fix:
    """Install the build that the resolver chose. If none fits, the fix is what to change first.

    `why` is a sentence before the instruction, with a space at its end.
    """
    build = context.choice.build
    if build is None:
        return _no_build_fix(context)
    # A build in a channel of conda, not on PyTorch's own index: `conda-forge (cu126)`.
    source = build.backend
    if build.channel != "pytorch":
        source = f"{build.channel} ({build.backend})"
    if unread := needs.unread(context, needs.TORCH):
        sentence = (
            f"{why}Install the torch release that the program needs from {source}, or from another "
            "index that fits the GPU and the driver"
        )
        return Fix(text=sentence, needs=unread)
    how = "`gpusetup install` installs and tests it"
    if target_refuses(context):
        how = "use a new environment, because gpusetup may not change this one"
    elif in_a_project(context):
        how = "the command prints what to add to pyproject.toml (`uv sync` undoes `uv pip install`)"
    text = [
        f"{why}Install torch {build.torch} from {source}: {how}",
        *needs_of_build(context, build),
    ]
    if context.choice.installs_torch and not target_refuses(context):
        # Add which of the target's packages change together with torch, and which cannot.
        text += notes_on_installed(context.snapshot, build, context.catalog)
    commands, others = install_commands(context), by_hand(context)
    return Fix(text=". ".join(text), commands=commands, alternatives=others)


def needs_of_build(context: RuleContext, build: TorchBuild) -> Iterator[str]:
    """Which driver a CUDA build needs and, if a text names no GPU, which cards it leaves out."""
    catalog, family = context.catalog, driver_family(context.snapshot)
    # A build without CUDA needs no driver, and on a Jetson the driver comes with JetPack.
    floor = catalog.driver_floor(build.cuda, family) if build.cuda else None
    if floor is None or board_of(context.snapshot):
        return
    # The oldest driver that is enough must also support the GPUs that are there.
    of_gpus = (
        catalog.first_driver(gpu, family) for gpu in gpus_to_serve(context.snapshot, catalog)
    )
    oldest = max((floor, *filter(None, of_gpus)), key=parsed)
    version = context.driver.version
    installed = f"found: {version}" if version else "`nvidia-smi` shows yours"
    yield f"{build.backend} needs NVIDIA driver {oldest} or newer ({installed})"
    if is_report(context) and not capabilities(context):
        yield (
            "The text does not show which GPU you have: RTX 50 cards need cu128 or newer, GTX 10 "
            "cards need cu126, and AMD or Intel GPUs need a ROCm or XPU build"
        )


def _no_build_fix(context: RuleContext) -> Fix:
    """What to change first if no build of torch fits the machine."""
    if board_of(context.snapshot):
        return jetson_fix(context)
    none = "No build of torch fits this machine"
    advice = context.choice.advice
    if advice is None:
        return Fix(text=f"{none}. `gpusetup resolve --explain` shows why")
    text = f"{none}, but with {advice.change} {advice.to} you can use {advice.gives}"
    if advice.change == "driver":
        return drivers.driver_fix(context, f"{text}. Install that driver", advice.to)
    return with_python(context, advice.to, f"{text}. Create an environment with that Python")


def jetson_fix(context: RuleContext) -> Fix:
    """Install torch's own wheel if it supports the board, or else NVIDIA's for this JetPack."""
    jetpack = jetpack_of(board_of(context.snapshot))
    if jetpack and context.choice.build and runs_ordinary_wheels(jetpack, capabilities(context)):
        return install_torch(context, f"{jetpack.name} runs torch's own aarch64 wheels. ")
    if jetpack is None or jetpack.wheels is None:
        return Fix(
            text="Install the torch wheel that NVIDIA publishes for this board's JetPack. The "
            "first line of the command's output shows its release. On Orin, torch's own wheels "
            f"need {UNIFIED.name} or newer, which you flash with SDK Manager",
            commands=lines("cat /etc/nv_tegra_release"),
        )
    text = (
        f"NVIDIA's wheels for {jetpack.name} ({jetpack.wheels}) are built for Python "
        f"{jetpack.python}, the version that comes with {jetpack.name}. "
    )
    python = context.snapshot.python.version
    # The first two numbers: NVIDIA's wheels are for a minor release of Python, such as 3.10.
    if python is None or parsed(python).release[:2] != parsed(jetpack.python).release:
        new = command(context, "/usr/bin/python3", "-m", "venv", f".venv-{jetpack.python}")
        text += "Create an environment with that version, and run `gpusetup doctor` there"
        return Fix(text=text, commands=(new,))
    from_nvidia = ("--force-reinstall", "--no-deps", "--no-index", "--find-links", jetpack.wheels)
    return Fix(
        text=f"{text}Install the wheel, then its dependencies. NVIDIA's guide lists the libraries "
        f"that the wheel does not declare ({INSTALLING_ON_JETSON}). NVIDIA does not publish "
        "torchvision and torchaudio there, so build them from source if a program needs them",
        commands=(
            pip(context, "uninstall", "-y", "torchvision", "torchaudio"),
            pip(context, "install", *from_nvidia, "torch"),
            pip(context, "install", "torch"),
        ),
    )


def with_python(context: RuleContext, version: str, text: str) -> Fix:
    """Create a new environment with another Python and with the torch that fits or is wanted."""
    folder = f".venv-{version}"
    requested = context.snapshot.wanted.torch or ""
    releases = {build.torch for build in context.catalog.builds if version in build.pythons}
    words: tuple[str, ...] = ()
    # Only an exact release is kept, and only if it has wheels for that Python.
    exact_release = requested.removeprefix("==")
    if requested.startswith("==") and exact_release in releases:
        words = ("--torch", exact_release)
    return Fix(
        text=text,
        commands=(
            command(context, "uv", "venv", "--python", version, folder),
            command(context, "gpusetup", "install", *words, "--venv", folder),
        ),
    )


def pip(context: RuleContext, *words: str) -> Line:
    """A pip command for the target, as `uv pip` if uv installs there."""
    if context.installer == "uv":
        verb, *rest = words
        # `uv pip uninstall` never asks for confirmation and has no option -y.
        if verb == "uninstall":
            rest = [word for word in rest if word != "-y"]
        options = [UV_NAMES.get(word, word) for word in rest]
        return command(context, "uv", "pip", verb, "--python", python(context), *options)
    return command(context, *python_command(python(context)), "-m", "pip", *words)


UV_NAMES = {"--force-reinstall": "--reinstall"}
"""pip's options that have another name in uv."""
