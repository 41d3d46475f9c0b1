"""Messages of installers: no network, requirements in conflict, no right to write, missing file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, events
from gpusetup.findings.host.settings import CONDA_CUDA_VIRTUAL_MISSING
from gpusetup.findings.installing.environment import (
    CONDA_MISSING,
    EXTERNALLY_MANAGED,
    SITE_NOT_WRITABLE,
)
from gpusetup.findings.installing.wheels import FAMILY
from gpusetup.findings.layers import NO_TORCH, UNINSTALLABLE, Layer
from gpusetup.findings.message_rules import from_message, from_messages
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.findings.sources import PIP, UV
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity

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
MIRROR = ". Another source: `gpusetup install --index-root URL` takes a mirror"
ANSWERS = ("curl -sSI https://{host}/",)


def _as_chosen(context: RuleContext, text: str) -> Fix:
    commands, by_hand = paste.install_commands(context), paste.by_hand(context)
    return Fix(text=text, commands=commands, alternatives=by_hand)


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
    alike=(Alike(causes=("host-out-of-memory",), asks="findmnt -O noexec"),),
)
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
    Cause(
        id="resolver-conflict",
        place=(Layer.INSTALL, 130),
        title="the requirements exclude each other",
        means="Two pins need different versions of one package.",
        proven_by="The solver finds no solution",
        not_when="conda-cuda-virtual-missing, python-no-wheel: then that is why",
        way_out="Loosen a pin; one index for the torch family",
        source="messages of uv, pip, conda and pixi",
        explains=("torch-missing",),
        message=Message(
            title="The requirements exclude each other: the solver finds no set that holds them "
            "all",
            text="Loosen the pin that the message names last; take torch, torchvision, "
            "torchaudio and triton from one index and let torch choose the versions of what it "
            "depends on, as this command does",
            way=_as_chosen,
        ),
    ),
    Cause(
        id="download-network-error",
        place=(Layer.INSTALL, 40),
        title="the index or file host cannot be reached or verified",
        means="TLS, proxy, DNS, a clock that is wrong, a slow line.",
        proven_by="The installer's connection error",
        not_when="wrong-index: the server answers 403 or 404",
        way_out="Network, proxy, clock; a mirror by --index-root",
        source="messages of pip, urllib3, uv and conda",
        explains=(*UNINSTALLABLE, "download-hash-mismatch", "python-no-wheel"),
        message=Message(
            title="{host} cannot be reached or verified",
            plain="The package index cannot be reached or verified",
            detail="Nothing of torch, CUDA or the driver is at fault.",
            text=ANY_NETWORK + MIRROR,
            look=ANSWERS,
            see="see what the host answers",
            cases=tuple(
                Message(having={"how": how}, text=text + MIRROR, look=ANSWERS, see="ask the host")
                for how, text in NETWORK_WAYS.items()
            ),
        ),
    ),
    LIBRARY_NOT_MAPPED,
)


def _for_the_target(context: RuleContext, text: str) -> Fix:
    said = events(context, CONDA_CUDA_VIRTUAL_MISSING.id)[0].values.get("needed", "")
    needed = re.search(r"\d+(\.\d+)?", said)
    cuda = needed[0] if needed else context.snapshot.driver.cuda or "12"
    return Fix(text=text, commands=(paste.setting(context, "CONDA_OVERRIDE_CUDA", cuda),))


UNSEEN = Message(
    title="conda sees no CUDA driver here (the virtual package __cuda is missing), and the build "
    "needs one",
    detail="The machine that solves need not be the one that computes.",
    text="On a host without a GPU (an image build, a login node) say which CUDA the target "
    "serves; else install the driver",
    way=_for_the_target,
)
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
BROKEN = Message(
    title="{package} requires {needs}, {have} is installed",
    plain="An installed package requires another version of its neighbour",
    text="Install versions that fit each other; it matters only when that package is used",
    look=("pip check",),
    see="see what does not fit",
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
ABSENT = Message(
    title="{library} is not on this system",
    plain="A shared library is not on this system",
    detail="It belongs neither to torch nor to CUDA.",
    text="Install the system package that holds it (libGL: libgl1, mesa-libGL; libgthread: "
    "libglib2.0-0, glib2; libgomp: libgomp1, libgomp; libnuma: libnuma1, numactl-libs)",
)
OF_THE_DRIVER = ("libcuda.so", "nvcuda.dll", "libnvidia-")


def installer_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, MESSAGES)
    filtered = (
        (CONDA_CUDA_VIRTUAL_MISSING, UNSEEN, "", ("-",)),
        (REQUIREMENT_BROKEN, BROKEN, "package", FAMILY),
        (LIBRARY_MISSING, ABSENT, "library", OF_THE_DRIVER),
    )
    for cause, message, name, but in filtered:
        said = events(context, cause.id)
        if kept := tuple(e for e in said if not e.values.get(name, "").startswith(but)):
            yield from_message(context, cause, message, kept)


RULES = (installer_messages,)
