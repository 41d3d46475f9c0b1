"""What installers say: no way there, no agreement, no room to write, something is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model import Finding, Fix
from gpusetup.rules import packages, ways
from gpusetup.rules.case import Case, error, events, on, told, warning
from gpusetup.rules.messages import Message, said
from gpusetup.rules.wheels import FAMILY
from gpusetup.shell import Line, lines

MESSAGES: tuple[Message, ...] = (
    Message(
        kind="download-hash-mismatch",
        id="download-hash-mismatch",
        title="The file that was downloaded does not match its hash: {file}",
        plain="The file that was downloaded does not match its hash",
        detail="The download was cut or altered on the way (a proxy, a full disk, a mirror that is "
        "being updated), or a lock file names another build.",
        text="Clear the installer's cache and download again; behind a proxy or mirror try another "
        "way. Do not switch the check off",
        commands=("pip cache purge", "gpusetup install"),
    ),
    Message(
        kind="externally-managed",
        id="externally-managed",
        title="This Python belongs to the operating system: pip may not install there",
        text="Make an environment and install there",
        commands=("gpusetup install --venv .venv",),
    ),
    Message(
        kind="download-forbidden",
        id="site-not-writable",
        title="The installer may not write to {path}",
        plain="The installer may not write where it installs",
        text="Make an environment of your own and install there; end programs that use the files",
        commands=("gpusetup install --venv .venv",),
    ),
    Message(
        kind="installed-by-two",
        id="installed-by-two",
        title="pip cannot remove {name}: conda or the distribution installed it",
        plain="pip cannot remove a package that conda or the distribution installed",
        text="Remove it with what installed it, or make a fresh environment",
        commands=("gpusetup install --venv .venv",),
    ),
)


def installer_messages(case: Case) -> Iterator[Finding]:
    yield from said(case, MESSAGES)


def resolver_conflict(case: Case) -> Iterator[Finding]:
    """The solver finds no set of versions that holds all requirements."""
    heard = events(case, "resolver-conflict")
    if heard:
        yield error(
            "resolver-conflict",
            "The requirements exclude each other: the solver finds no set that holds them all",
            evidence=told(heard),
            fix=Fix(
                text="Loosen the pin that the message names last; take torch, torchvision, "
                "torchaudio and triton from one index and let torch choose the versions of what it "
                "depends on, as this command does",
                commands=ways.install_commands(case),
                alternatives=ways.by_hand(case),
            ),
        )


# --- the way there -------------------------------------------------------------------------------

NETWORK_WAYS = {
    "certificate": "Look at this machine's clock and its certificates (a proxy that opens TLS "
    "needs its own certificate in PIP_CERT or SSL_CERT_FILE)",
    "expired": "Look at this machine's clock; where it is right, the server's certificate has run "
    "out: try again later",
    "proxy": "Look at HTTPS_PROXY, HTTP_PROXY and NO_PROXY",
    "dns": "The host's name is not found: look at DNS, the VPN and the proxy",
    "timeout": "The connection is slow: give it more time (PIP_DEFAULT_TIMEOUT=120, "
    "UV_HTTP_TIMEOUT=300), or take a mirror",
}
"""How a connection failed -> what to look at."""
ANY_NETWORK = "Look at the network, the proxy and this machine's clock, and try again"


def download_network_error(case: Case) -> Iterator[Finding]:
    """The index or the file host cannot be reached or verified."""
    heard = events(case, "download-network-error")
    if not heard:
        return
    values = heard[0].values
    host = values.get("host")
    how = values.get("how", "").lower()
    way = next((text for word, text in NETWORK_WAYS.items() if word in how), ANY_NETWORK)
    yield error(
        "download-network-error",
        f"{host or 'The package index'} cannot be reached or verified",
        detail="Nothing of torch, CUDA or the driver is at fault.",
        evidence=told(heard),
        fix=Fix(
            text=f"{way}. Another source: `gpusetup install --index-root URL` takes a mirror",
            looks=ways.look(
                "see what the host answers",
                *(
                    (
                        ways.command(
                            case,
                            "curl.exe" if on(case, "windows") else "curl",
                            "-sSI",
                            f"https://{host}/",
                        ),
                    )
                    if _is_host(host)
                    else ()
                ),
            ),
        ),
    )


def _is_host(text: str | None) -> bool:
    return bool(text and re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?", text))


def conda_cuda_virtual_missing(case: Case) -> Iterator[Finding]:
    """conda solves on a machine where it sees no driver, for a build that needs one."""
    heard = events(case, "conda-cuda-virtual-missing")
    if heard:
        needed = heard[0].values.get("needed", "")
        version = re.search(r"\d+(\.\d+)?", needed)
        cuda = version.group() if version else case.snapshot.driver.cuda or "12"
        yield error(
            "conda-cuda-virtual-missing",
            "conda sees no CUDA driver here (the virtual package __cuda is missing), and the build "
            "needs one",
            detail="The machine that solves need not be the one that computes.",
            evidence=told(heard),
            fix=Fix(
                text="On a host without a GPU (an image build, a login node) say which CUDA the "
                "target serves; else install the driver",
                commands=(ways.setting(case, "CONDA_OVERRIDE_CUDA", cuda),),
                looks=ways.look("see whether conda takes it", *lines("conda info")),
            ),
        )


# --- requirements --------------------------------------------------------------------------------


def requirement_broken(case: Case) -> Iterator[Finding]:
    """pip's own word that an installed package requires another version of its neighbour."""
    heard = tuple(
        e for e in events(case, "requires-other") if e.values.get("package", "") not in FAMILY
    )
    if heard:
        v = heard[0].values
        yield warning(
            "requirement-broken",
            f"{v.get('package', 'A package')} {v.get('version', '')} requires "
            f"{v.get('needs', 'another version')}, {v.get('have') or 'another'} is installed",
            evidence=told(heard),
            fix=Fix(
                text="Install versions that fit each other; it matters only when that package is "
                "used",
                looks=ways.look("see what does not fit", ways.pip(case, "check")),
            ),
        )


def library_missing(case: Case) -> Iterator[Finding]:
    """A shared object outside CUDA that the loader does not find."""
    heard = tuple(
        e for e in events(case, "library-missing") if not _is_driver(e.values.get("library", ""))
    )
    if heard:
        library = heard[0].values.get("library", "a shared library")
        yield error(
            "library-missing",
            f"{library} is not on this system",
            detail="It belongs neither to torch nor to CUDA.",
            evidence=told(heard),
            fix=Fix(
                text="Install the system package that holds it", commands=_holder(case, library)
            ),
        )


def _is_driver(library: str) -> bool:
    return library.startswith(("libcuda.so", "nvcuda.dll", "libnvidia-"))


SYSTEM_PACKAGES = {
    "libGL.so.1": {"ubuntu": "libgl1", "debian": "libgl1", "fedora": "mesa-libGL"},
    "libgomp.so.1": {"ubuntu": "libgomp1", "debian": "libgomp1", "fedora": "libgomp"},
    "libnuma.so.1": {"ubuntu": "libnuma1", "debian": "libnuma1", "fedora": "numactl-libs"},
    "libglib-2.0.so.0": {"ubuntu": "libglib2.0-0", "debian": "libglib2.0-0", "fedora": "glib2"},
    "libgthread-2.0.so.0": {"ubuntu": "libglib2.0-0", "debian": "libglib2.0-0", "fedora": "glib2"},
    "libopenblas.so.0": {"ubuntu": "libopenblas0", "debian": "libopenblas0", "fedora": "openblas"},
}


def _holder(case: Case, library: str) -> tuple[Line, ...]:
    family = packages.distribution(case) or ""
    name = SYSTEM_PACKAGES.get(library, {}).get(family)
    return packages.system_package(case, name) if name else ()


RULES = (
    installer_messages,
    resolver_conflict,
    download_network_error,
    conda_cuda_virtual_missing,
    requirement_broken,
    library_missing,
)
