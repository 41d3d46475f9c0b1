"""The interpreter: can any torch be installed into it, and is it the one that the person means."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Event, Evidence, Finding, Fix, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    error,
    events,
    has_nvidia,
    is_report,
    note,
    on,
    shown,
    told,
    warning,
)
from gpusetup.shell import lines


def python_32bit(case: Case) -> Iterator[Finding]:
    python = case.snapshot.python
    # A torch that answered was imported: whatever a text says of 32 bits is about another Python.
    answered = is_report(case) and case.snapshot.torch.cuda_available is not None
    if python.bits == 32 and not answered:
        yield error(
            "python-32bit",
            f"Python {python.version or ''} is a 32-bit build: torch has no wheels for it".replace(
                "  ", " "
            ),
            evidence=(shown(case, "python.bits", f"{ways.python(case)}: 32 bits"),),
            fix=_other_python(case, "Use a 64-bit Python. "),
        )


def python_no_wheel(case: Case) -> Iterator[Finding]:
    """No build in the catalog is for this Python, on a platform that has builds."""
    python = case.snapshot.python
    tag = python_tag(case)
    if python.bits == 32 or tag is None or _no_install_is_meant(case):
        return
    here = [row for row in case.catalog.builds if _same_platform(case, row.os, row.machine)]
    if here and not any(tag in row.pythons for row in here):
        yield error(
            "python-no-wheel",
            f"torch has no wheel for Python {tag}",
            evidence=(shown(case, "python.version", f"Python {python.version}"),),
            fix=_other_python(case),
        )


def _no_install_is_meant(case: Case) -> bool:
    """A text from an environment that has its torch: an old Python is no trouble of its own."""
    torch = case.snapshot.torch
    return is_report(case) and bool(torch.version or case.snapshot.events)


def python_tag(case: Case) -> str | None:
    """The Python as the catalog writes it: `3.11`, `3.13t`."""
    python = case.snapshot.python
    if not python.version:
        return None
    minor = ".".join(python.version.split(".")[:2])
    return f"{minor}t" if python.free_threaded else minor


def _same_platform(case: Case, family: str, machine: str) -> bool:
    return family == case.snapshot.os.family and machine == case.snapshot.os.machine


def _other_python(case: Case, why: str = "") -> Fix:
    good = good_python(case)
    folder = ways.fresh(case, good)
    command = ways.command(case, "gpusetup", "install", "--venv", folder)
    return Fix(
        text=f"{why}Make an environment with Python {good} and install there",
        commands=(ways.command(case, "uv", "venv", "--python", good, folder), command),
        python=good,
    )


def good_python(case: Case) -> str:
    """The Python to take: one in the middle of those that the newest torch has here."""
    rows = [
        r
        for r in case.catalog.builds
        if _same_platform(case, r.os, r.machine) and r.channel == "pytorch"
    ]
    if not rows:
        return "3.12"
    newest = max((r.torch for r in rows), key=parsed)
    known = [p for r in rows if r.torch == newest for p in r.pythons if not p.endswith("t")]
    ordered = sorted(set(known), key=parsed)
    return ordered[len(ordered) // 2] if ordered else "3.12"


def no_wheel_for_platform(case: Case) -> Iterator[Finding]:
    """No torch for this system or machine type at all, whatever the Python."""
    os = case.snapshot.os
    said = events(case, "musl-libc")
    if not said and (os.family is None or os.machine is None or _no_install_is_meant(case)):
        return
    if case.snapshot.python.bits == 32:
        return
    musl = (os.libc or "").startswith("musl") or bool(said)
    known = any(_same_platform(case, row.os, row.machine) for row in case.catalog.builds)
    if musl or not known:
        what = (
            f"{os.libc or 'this system'} (a musl libc)" if musl else f"{os.family} on {os.machine}"
        )
        yield error(
            "no-wheel-for-platform",
            f"torch has no wheel for {what}",
            evidence=told(said) or (shown(case, "os.libc" if musl else "os.machine", what),),
            fix=Fix(
                text="Use an image with glibc (Debian, Ubuntu, Fedora) instead of Alpine"
                if musl
                else no_platform_way(case)
            ),
        )


THIRTY_TWO_BITS = ("armv6l", "armv7l", "i386", "i486", "i586", "i686")


def no_platform_way(case: Case) -> str:
    if on(case, "macos"):
        return "Intel Macs end with torch 2.2.2 (Python 3.12 or older, numpy<2)"
    if on(case, "windows"):
        return "Use a 64-bit x86 Python (it runs in emulation), or conda-forge"
    if case.snapshot.os.machine in THIRTY_TWO_BITS:
        return "Install a 64-bit system: torch has wheels for x86_64 and aarch64 only"
    return "Use the distribution's or conda-forge's package, or build torch from source"


def glibc_too_old(case: Case) -> Iterator[Finding]:
    """The system's glibc is below the wheel's."""
    libc = case.snapshot.os.libc or ""
    said = events(case, "glibc-too-old")
    found = libc.removeprefix("glibc ") if libc.startswith("glibc ") else None
    asked = bool(found) and not _no_install_is_meant(case)
    needed = _least_glibc(case) if asked else None
    short = bool(found and needed and parsed(found) < parsed(needed))
    if said or short:
        yield error(
            "glibc-too-old",
            _glibc_title(said, found, needed),
            evidence=(*told(said), *((shown(case, "os.libc", libc),) if libc else ())),
            fix=Fix(
                text="Use a newer distribution, or a container with one, as this command starts "
                "(a system's glibc is not replaced)",
                commands=lines("docker run --rm --gpus all -it ubuntu:24.04")
                if _has_gpus(case)
                else lines("docker run --rm -it ubuntu:24.04"),
            ),
        )


def _has_gpus(case: Case) -> bool:
    """Whether a container may ask for GPUs: docker refuses it where there are none."""
    return has_nvidia(case) is not False and case.snapshot.torch.backend != "cpu"


GLIBC_FILES = ("libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux")


def _glibc_title(said: tuple[Event, ...], found: str | None, needed: str | None) -> str:
    if not said:
        return f"glibc {found or 'here'} is older than {needed or 'what'} torch's wheels need"
    values = said[0].values
    library = values.get("library", "")
    # The loader names glibc's own file first, which lacks the version, then who asks for it.
    who = "a binary" if library.startswith(GLIBC_FILES) or not library else library
    wants = f"glibc {values['needed']}" if values.get("needed") else "a newer glibc"
    return f"{who} needs {wants}, this system has {found or 'an older one'}"


def _least_glibc(case: Case) -> str | None:
    """The lowest glibc that any wheel for this platform needs."""
    rows = (r.glibc for r in case.catalog.builds if _same_platform(case, r.os, r.machine))
    return min((glibc for glibc in rows if glibc), key=parsed, default=None)


def pip_missing(case: Case) -> Iterator[Finding]:
    """The environment has no pip: `pip install` would go elsewhere, or fail."""
    said = events(case, "pip-missing")
    if case.snapshot.python.has_pip is False or said:
        make = error if said else note
        yield make(
            "pip-missing",
            "The target environment has no pip: `pip install` would go elsewhere",
            evidence=told(said)
            or (shown(case, "python.has_pip", f"no pip in {case.snapshot.python.prefix or 'it'}"),),
            fix=Fix(
                text="Use uv (as gpusetup does), or add pip",
                commands=(
                    ways.command(
                        case, "uv", "pip", "install", "--python", ways.python(case), "pip"
                    ),
                ),
            ),
        )


def externally_managed(case: Case) -> Iterator[Finding]:
    """The distribution's own Python, which does not let pip in (PEP 668)."""
    if case.snapshot.python.externally_managed:
        yield warning(
            "externally-managed",
            f"{ways.python(case)} belongs to the operating system: pip may not install there",
            evidence=(shown(case, "python.externally_managed", "EXTERNALLY-MANAGED"),),
            fix=Fix(
                text="Make an environment and install there",
                commands=(ways.into_new_environment(case),),
            ),
        )


def tool_environment(case: Case) -> Iterator[Finding]:
    """Nothing to judge: no interpreter but the one that gpusetup itself lives in."""
    python = case.snapshot.python
    said = [r for r in case.snapshot.readings if r.subject == "python" and r.problem]
    if python.version is None and python.executable is None and said:
        yield note(
            "no-target",
            "No Python environment was named: torch was not looked for",
            evidence=tuple(Evidence(source=r.source, text=r.problem or "") for r in said[:1]),
            fix=Fix(text="Activate an environment, or name one with `--python PATH`"),
        )


def stale_environment(case: Case) -> Iterator[Finding]:
    said = events(case, "stale-environment")
    if said:
        values = said[0].values
        yield warning(
            "stale-environment",
            f"{values.get('variable')} names {values.get('path')}, which is no environment",
            evidence=told(said),
            fix=Fix(
                text=f"{values.get('instead') or 'Another interpreter'} was judged instead: "
                "activate anew"
            ),
        )


def site_not_writable(case: Case) -> Iterator[Finding]:
    python = case.snapshot.python
    if python.site_writable is False and not python.externally_managed:
        yield warning(
            "site-not-writable",
            f"This user may not write to {python.site_packages or python.prefix}",
            evidence=(shown(case, "python.site_writable", "not writable"),),
            fix=Fix(
                text="Make an environment of your own and install there",
                commands=(ways.into_new_environment(case),),
            ),
        )


def other_python_first(case: Case) -> Iterator[Finding]:
    """The `python` that a shell starts is not the judged one."""
    python = case.snapshot.python
    if not python.executable or not python.others or not _stands_behind(case):
        return
    yield note(
        "other-python-first",
        f"`python` in this shell is {python.others[0]}, not {python.executable}",
        evidence=(shown(case, "python.others", "on PATH: " + ", ".join(python.others[:3])),),
        fix=Fix(text=f"Start programs with `{python.executable}`, or activate its environment"),
    )


def _stands_behind(case: Case) -> bool:
    """Whether the target comes after the first other interpreter on PATH, or not at all."""
    python = case.snapshot.python
    path = case.snapshot.environment.get("PATH")
    if path is None:
        return False
    folders = path.split(";" if on(case, "windows") else ":")
    own, first = _folder(python.executable or ""), _folder(python.others[0])
    if first not in folders:
        return False
    return own not in folders or folders.index(own) > folders.index(first)


def _folder(path: str) -> str:
    """
    >>> _folder("/usr/bin/python3")
    '/usr/bin'
    """
    return path[: max(path.rfind("/"), path.rfind("\\"), 0)]


def module_shadowed(case: Case) -> Iterator[Finding]:
    """A file in the working folder hides a module that torch imports."""
    said = events(case, "module-shadowed")
    if said:
        module, path = said[0].values.get("module", "a module"), said[0].values.get("path", "")
        broken = (
            module in ("torch", "torchvision", "torchaudio")
            or case.snapshot.torch.import_error
            or is_report(case)
        )
        make = error if broken else warning
        yield make(
            "module-shadowed",
            f"{path or 'A local file'} hides the module {module} from programs started in "
            "this folder",
            evidence=told(said),
            fix=Fix(
                text="Rename it (and delete its __pycache__), or start Python in another folder"
            ),
        )


def free_threaded(case: Case) -> Iterator[Finding]:
    if case.snapshot.python.free_threaded:
        yield note(
            "free-threaded-python",
            f"Python {case.snapshot.python.version} is free-threaded: it takes wheels of its own "
            f"({python_tag(case)}), and many packages have none",
            evidence=(shown(case, "python.free_threaded", "Py_GIL_DISABLED"),),
        )


RULES = (
    python_32bit,
    python_no_wheel,
    no_wheel_for_platform,
    glibc_too_old,
    pip_missing,
    externally_managed,
    tool_environment,
    stale_environment,
    site_not_writable,
    other_python_first,
    module_shadowed,
    free_threaded,
)
