"""Messages of installers: no network, requirements in conflict, no right to write, missing file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, event_evidence, events, on
from gpusetup.findings.host.settings import CONDA_CUDA_VIRTUAL_MISSING
from gpusetup.findings.installing.environment import (
    CONDA_MISSING,
    EXTERNALLY_MANAGED,
    SITE_NOT_WRITABLE,
)
from gpusetup.findings.installing.other_python import FAMILY
from gpusetup.findings.layers import NO_TORCH, UNINSTALLABLE, Layer
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.findings.sources import PIP, UV
from gpusetup.fixes import packages, paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.shell import Line, lines

MESSAGES: tuple[Cause, ...] = (
    Cause(
        id="download-hash-mismatch",
        place=(Layer.INSTALL, 50),
        title="a download does not match its hash",
        means="It was cut or altered on the way.",
        proven_by="The installer's word",
        not_when="pip-cache-disk-full: the disk cut it",
        way_out="Clear the cache, download again",
        source=UV,
        explains=NO_TORCH,
        message=Message(
            title="The file that was downloaded does not match its hash: {file}",
            plain="The file that was downloaded does not match its hash",
            detail="The download was cut or altered on the way (a proxy, a full disk, a mirror "
            "that is being updated), or a lock file names another build.",
            text="Clear the installer's cache, then run the same installation once more; behind a "
            "proxy or mirror try another way. Do not switch the check off",
            commands=("pip cache purge",),
        ),
    ),
    CONDA_MISSING,
    EXTERNALLY_MANAGED,
    SITE_NOT_WRITABLE,
    Cause(
        id="installed-by-two",
        place=(Layer.INSTALL, 110),
        title="pip cannot remove what another installer installed",
        means="distutils and conda packages have no RECORD that pip could follow.",
        proven_by="pip's word",
        way_out="A fresh environment",
        source=PIP,
        message=Message(
            title="pip cannot remove {name}: conda or the distribution installed it",
            plain="pip cannot remove a package that conda or the distribution installed",
            text="Remove it with what installed it, or make a fresh environment",
            commands=("gpusetup install --venv .venv",),
        ),
    ),
)


def installer_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, MESSAGES)


RESOLVER_CONFLICT = Cause(
    id="resolver-conflict",
    place=(Layer.INSTALL, 130),
    title="the requirements exclude each other",
    means="Two pins need different versions of one package.",
    proven_by="The solver finds no solution",
    not_when="conda-cuda-virtual-missing, python-no-wheel: then that is why",
    way_out="Loosen a pin; one index for the torch family",
    source="messages of uv, pip, conda and pixi",
    explains=("torch-missing",),
)


def resolver_conflict(context: RuleContext) -> Iterator[Finding]:
    """The solver finds no set of versions that holds all requirements."""
    messages = events(context, "resolver-conflict")
    if messages:
        yield RESOLVER_CONFLICT.found(
            "The requirements exclude each other: the solver finds no set that holds them all",
            evidence=event_evidence(messages),
            fix=Fix(
                text="Loosen the pin that the message names last; take torch, torchvision, "
                "torchaudio and triton from one index and let torch choose the versions of what it "
                "depends on, as this command does",
                commands=paste.install_commands(context),
                alternatives=paste.by_hand(context),
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


DOWNLOAD_NETWORK_ERROR = Cause(
    id="download-network-error",
    place=(Layer.INSTALL, 40),
    title="the index or file host cannot be reached or verified",
    means="TLS, proxy, DNS, a clock that is wrong, a slow line.",
    proven_by="The installer's connection error",
    not_when="wrong-index: the server answers 403 or 404",
    way_out="Network, proxy, clock; a mirror by --index-root",
    source="messages of pip, urllib3, uv and conda",
    explains=(*UNINSTALLABLE, "download-hash-mismatch", "python-no-wheel"),
)


def download_network_error(context: RuleContext) -> Iterator[Finding]:
    """The index or the file host cannot be reached or verified."""
    messages = events(context, "download-network-error")
    if not messages:
        return
    values = messages[0].values
    host = values.get("host")
    how = values.get("how", "").lower()
    way = next((text for word, text in NETWORK_WAYS.items() if word in how), ANY_NETWORK)
    yield DOWNLOAD_NETWORK_ERROR.found(
        f"{host or 'The package index'} cannot be reached or verified",
        detail="Nothing of torch, CUDA or the driver is at fault.",
        evidence=event_evidence(messages),
        fix=Fix(
            text=f"{way}. Another source: `gpusetup install --index-root URL` takes a mirror",
            looks=paste.look(
                "see what the host answers",
                *(
                    (
                        paste.command(
                            context,
                            "curl.exe" if on(context, "windows") else "curl",
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


def conda_cuda_virtual_missing(context: RuleContext) -> Iterator[Finding]:
    """conda solves on a machine where it sees no driver, for a build that needs one."""
    messages = events(context, "conda-cuda-virtual-missing")
    if messages:
        needed = messages[0].values.get("needed", "")
        version = re.search(r"\d+(\.\d+)?", needed)
        cuda = version.group() if version else context.snapshot.driver.cuda or "12"
        yield CONDA_CUDA_VIRTUAL_MISSING.found(
            "conda sees no CUDA driver here (the virtual package __cuda is missing), and the build "
            "needs one",
            detail="The machine that solves need not be the one that computes.",
            evidence=event_evidence(messages),
            fix=Fix(
                text="On a host without a GPU (an image build, a login node) say which CUDA the "
                "target serves; else install the driver",
                commands=(paste.setting(context, "CONDA_OVERRIDE_CUDA", cuda),),
                looks=paste.look("see whether conda takes it", *lines("conda info")),
            ),
        )


# --- requirements --------------------------------------------------------------------------------


REQUIREMENT_BROKEN = Cause(
    id="requirement-broken",
    severity=Severity.WARNING,
    title="an installed package requires another version of its neighbour",
    means="pip installs all the same and warns; it matters when that package is used.",
    proven_by="pip's conflict line",
    not_when="torchvision-mismatch, torchaudio-mismatch",
    way_out="Versions that fit each other",
    source=PIP,
)


def requirement_broken(context: RuleContext) -> Iterator[Finding]:
    """pip's own word that an installed package requires another version of its neighbour."""
    messages = tuple(
        e
        for e in events(context, "requirement-broken")
        if e.values.get("package", "") not in FAMILY
    )
    if messages:
        v = messages[0].values
        yield REQUIREMENT_BROKEN.found(
            f"{' '.join(filter(None, (v.get('package', 'A package'), v.get('version'))))} requires "
            f"{v.get('needs', 'another version')}, {v.get('have') or 'another'} is installed",
            evidence=event_evidence(messages),
            fix=Fix(
                text="Install versions that fit each other; it matters only when that package is "
                "used",
                looks=paste.look("see what does not fit", paste.pip(context, "check")),
            ),
        )


LIBRARY_MISSING = Cause(
    id="library-missing",
    place=(Layer.LIBRARIES, 210),
    title="a system library is missing",
    means="A shared object outside CUDA and torch, as libGL for OpenCV.",
    proven_by="The loader names it",
    not_when="cuda-lib-missing, driver-missing (libcuda)",
    way_out="The system package that holds it",
    source="manual page of ld.so",
)


def library_missing(context: RuleContext) -> Iterator[Finding]:
    """A shared object outside CUDA that the loader does not find."""
    messages = tuple(
        e for e in events(context, "library-missing") if not _is_driver(e.values.get("library", ""))
    )
    if messages:
        library = messages[0].values.get("library", "a shared library")
        yield LIBRARY_MISSING.found(
            f"{library} is not on this system",
            detail="It belongs neither to torch nor to CUDA.",
            evidence=event_evidence(messages),
            fix=Fix(
                text="Install the system package that holds it", commands=_holder(context, library)
            ),
        )


LIBRARY_NOT_MAPPED = Cause(
    id="library-not-mapped",
    place=(Layer.LIBRARIES, 215),
    title="the system lets no library be mapped into memory",
    means="Its folder is mounted noexec, or memory or address space of the process is limited.",
    proven_by="The loader's word: failed to map segment from shared object",
    not_when="cuda-lib-missing, library-missing: the file is not there",
    way_out="A folder without noexec, a higher limit",
    source="glibc's sources, dl-load.c; manual page of mmap",
    explains=("torch-import-failed",),
    message=Message(
        title="{library} is there, and the system does not let it be mapped into memory",
        plain="A library is there, and the system does not let it be mapped into memory",
        detail="Either its folder is mounted noexec (/tmp, a home on a server), or the process may "
        "have too little memory or address space (shared hosting, ulimit -v, a small container).",
        text="Put the environment, and TMPDIR while pip installs, on a file system without noexec; "
        "lift the limits on memory and address space",
        commands=("ulimit -v unlimited",),
        look=("findmnt -O noexec", "ulimit -a"),
        see="see what is mounted noexec, and the limits",
    ),
)


def library_not_mapped(context: RuleContext) -> Iterator[Finding]:
    """A library that is there, and that the system does not let in."""
    yield from from_messages(context, (LIBRARY_NOT_MAPPED,))


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


def _holder(context: RuleContext, library: str) -> tuple[Line, ...]:
    family = packages.distribution(context) or ""
    name = SYSTEM_PACKAGES.get(library, {}).get(family)
    return packages.system_package(context, name) if name else ()


RULES = (
    installer_messages,
    resolver_conflict,
    download_network_error,
    conda_cuda_virtual_missing,
    requirement_broken,
    library_missing,
    library_not_mapped,
)
