"""Ways out: the commands of a fix, exact for one machine.

Facts (what a distribution calls its driver, or a compiler) are rows. Commands are what a person
types: quoted for the shell of that system.
"""

from __future__ import annotations

from gpusetup import shell
from gpusetup.model import Alternative, Fix, Gpu, Request, TorchBuild
from gpusetup.resolver.companions import left_in_words, pinned_in_words
from gpusetup.resolver.offer import in_new_environment, new_folder
from gpusetup.rules import drivers
from gpusetup.rules.case import (
    Case,
    chosen_by,
    gpus,
    is_report,
    on,
)
from gpusetup.rules.plausible import is_a_path, is_an_identifier
from gpusetup.shell import Line, lines, shell_line


def command(case: Case, *argv: str) -> Line:
    """An argument list as one types it on this machine."""
    return shell_line(argv, case.snapshot.os.family)


def posix(case: Case, *texts: str) -> tuple[Line, ...]:
    """Lines of our own for systems with a POSIX shell; none on Windows."""
    return () if on(case, "windows") else lines(*texts)


def setting(case: Case, name: str, value: str) -> Line:
    """How a shell of this system sets a variable: PowerShell on Windows, whose `set` sets none."""
    return shell.setting(name, value, shell.shell_for(case.snapshot.os.family))


def unset(case: Case, name: str) -> tuple[Line, ...]:
    """How a shell of this system forgets a variable."""
    return (shell.unsetting(name, shell.shell_for(case.snapshot.os.family)),)


def first_on(case: Case, name: str, folder: str) -> Line:
    """How a folder is put before the others of a list like PATH."""
    return shell.putting_first(name, folder, shell.shell_for(case.snapshot.os.family))


def build_for(case: Case) -> tuple[Line, ...]:
    """The line that names the GPUs' architectures to an extension build; none of unknown GPUs."""
    listed = sorted({g.compute_capability for g in gpus(case) if g.compute_capability})
    arches = ";".join(map(str, listed))
    return (setting(case, "TORCH_CUDA_ARCH_LIST", arches),) if listed else ()


def python(case: Case) -> str:
    """The target interpreter, where what was read can be one; else the one on PATH."""
    named = case.snapshot.python.executable
    return named if named and is_a_path(named) else "python"


# --- torch --------------------------------------------------------------------------------------


def install_commands(case: Case, *, removed: bool = False) -> tuple[Line, ...]:
    """`gpusetup install` for this target; into an environment of its own where it may not be.

    `removed`: what shows which torch was there is taken away before it.
    """
    if target_refuses(case):
        return (into_new_environment(case),)
    return (gpusetup_install(case, removed=removed),)


def into_new_environment(case: Case) -> Line:
    """The same beside a target that may not be changed: its version, its companions."""
    known = case.decision and in_new_environment(case.decision, case.snapshot, case.request)
    return command(
        case,
        "gpusetup",
        "install",
        "--venv",
        new_folder(case.snapshot),
        *(known or ()),
        *_host(case),
    )


def by_hand(case: Case, *first: Line) -> tuple[Alternative, ...]:
    """The same by this environment's own installer, after what must come first."""
    executable = case.snapshot.python.executable
    known = executable is None or is_a_path(executable)
    # An environment without pip is served by uv, from outside of it.
    pipless = case.installer == "pip" and case.snapshot.python.has_pip is False
    by = "uv" if pipless else case.installer
    plain = case.commands.get(by) if known and not target_refuses(case) else ()
    typed = tuple(command(case, *argv) for argv in plain or ())
    if not typed:
        return ()
    title = f"the same by {by}{_how_to_get_it(case)}"
    return (Alternative(title=title, commands=(*first, *typed)),)


def _how_to_get_it(case: Case) -> str:
    """Where conda comes from, on a machine that was looked at and has none."""
    looked = not is_report(case) and case.snapshot.packages is not None
    if case.installer != "conda" or case.snapshot.conda.executable or not looked:
        return ""
    return ", which is not on PATH (https://conda-forge.org/download)"


def target_refuses(case: Case) -> bool:
    """Whether nothing may be installed into the target: the system's, or another user's."""
    python = case.snapshot.python
    return bool(python.externally_managed) or python.site_writable is False


def gpusetup_install(case: Case, *, removed: bool = False) -> Line:
    words = ["gpusetup", "install"]
    if (executable := python(case)) != "python":
        words += ["--python", executable]
    if case.installer == "conda":
        words += ["--installer", "conda"]
    return command(case, *words, *_named(case, removed=removed), *_host(case))


def _named(case: Case, *, removed: bool = False) -> tuple[str, ...]:
    """The build, where `install` by itself would take another one: it was asked for, it is for
    another maker's GPUs than the installed one, or that one is removed first."""
    build = chosen(case)
    if build is None:
        return ()
    how = case.decision.how if case.decision else "first"
    if case.request != Request() or how == "refused":
        return ("--torch", build.torch, "--backend", build.backend)
    return ("--torch", build.torch) if removed and how not in ("first", "newest") else ()


def _host(case: Case) -> tuple[str, ...]:
    """The host that was named in place of this one: `install` takes the same words."""
    if not case.other_host:
        return ()
    named = (r for r in case.snapshot.readings if r.source in ("--for-gpu", "--for-driver"))
    return tuple(word for r in named if r.value for word in (r.source, r.value))


def gpusetup(case: Case, *more: str) -> Line:
    """`gpusetup install` with some options of its own, into this target if it may be changed."""
    executable = python(case)
    if target_refuses(case):
        where: tuple[str, ...] = ("--venv", new_folder(case.snapshot))
    else:
        where = ("--python", executable) if executable != "python" else ()
    return command(case, "gpusetup", "install", *where, *more)


def unasked(case: Case, install: Line) -> Line:
    """`gpusetup install` before other lines: its question would take the next one for an answer."""
    return shell.more(install, ("--yes",), case.snapshot.os.family)


def gpu_named(gpu: Gpu) -> str:
    """What `nvidia-smi -i` takes for a GPU."""
    named = chosen_by(gpu) or "0"
    return named if is_an_identifier(named) else "0"


def fresh(case: Case, python: str) -> str:
    """A folder for a new environment with that Python: not the one that the target is."""
    named = f".venv-{python}"
    return named if is_report(case) else new_folder(case.snapshot, named)


def ask_torch(case: Case) -> Line:
    """What prints the target's torch and its CUDA."""
    ask = "import torch; print(torch.__version__, torch.version.cuda)"
    return command(case, python(case), "-c", ask)


def look(title: str, *commands: Line) -> tuple[Alternative, ...]:
    """What shows more and changes nothing; none where there is nothing to type."""
    return (Alternative(title=title, commands=commands),) if commands else ()


def other(title: str, *commands: Line) -> tuple[Alternative, ...]:
    """Another way to the same end; none where there is nothing to type."""
    return (Alternative(title=title, commands=commands),) if commands else ()


def chosen(case: Case) -> TorchBuild | None:
    """The build that fits, of the kind that this environment's installer installs."""
    if case.installer == "conda":
        return case.resolution.conda or case.resolution.build
    return case.resolution.build


def install_torch(case: Case, why: str = "") -> Fix:
    """Install the build that the resolver chose; what to change first where none fits."""
    build = chosen(case)
    if build is None:
        return _nothing_fits(case)
    where = build.backend if build.channel == "pytorch" else f"{build.channel} ({build.backend})"
    how = "`gpusetup install` does it and proves it"
    if target_refuses(case):
        how = "into an environment of its own, because this one may not be changed"
    return Fix(
        text=". ".join((f"{why}Install torch {build.torch} from {where}: {how}", *_beside(case))),
        commands=install_commands(case),
        alternatives=by_hand(case),
    )


def _beside(case: Case) -> tuple[str, ...]:
    """What of the target moves with the torch to come, and what cannot."""
    build = case.resolution.build
    moves = case.decision is not None and case.decision.moves
    if build is None or not moves or target_refuses(case):
        return ()
    return (
        *pinned_in_words(case.snapshot, build),
        *left_in_words(case.snapshot, build, case.catalog),
    )


def _nothing_fits(case: Case) -> Fix:
    """What to change first."""
    advice = case.resolution.advice
    if advice is None:
        return Fix(
            text="No build of torch in the catalog fits this machine: `gpusetup resolve --explain`"
        )
    if advice.change == "driver":
        why = f"No build of torch serves this driver; a newer one gives {advice.gives}. "
        return drivers.driver(case, f"{why}Update it to {advice.to} or newer", advice.to)
    text = f"No build of torch fits this machine; with {advice.change} {advice.to}: {advice.gives}"
    if advice.change != "python":
        return Fix(text=text)
    return Fix(
        text=f"{text}. Make an environment with that Python",
        commands=(
            command(case, "uv", "venv", "--python", advice.to, fresh(case, advice.to)),
            command(case, "gpusetup", "install", "--venv", fresh(case, advice.to)),
        ),
        python=advice.to,
    )


def pip(case: Case, *words: str) -> Line:
    """A pip command for the target: `uv pip` where uv installs there."""
    if case.installer == "uv":
        verb, *rest = words
        # `uv pip uninstall` asks nothing and knows no -y.
        rest = [word for word in rest if not (verb == "uninstall" and word == "-y")]
        return command(case, "uv", "pip", verb, "--python", python(case), *rest)
    return command(case, python(case), "-m", "pip", *words)


def torch_index(case: Case, backend: str) -> tuple[str, ...]:
    """The words with which this environment's installer looks at torch's own index only."""
    from gpusetup.install.pip import torch_index as by_pip
    from gpusetup.install.uv import torch_index as by_uv
    from gpusetup.install.wish import Wish

    words = by_uv if case.installer == "uv" else by_pip
    return words(backend, Wish(python=python(case)))


def anew(case: Case) -> str:
    """The word that makes this environment's installer install what is there already."""
    return "--reinstall" if case.installer == "uv" else "--force-reinstall"
