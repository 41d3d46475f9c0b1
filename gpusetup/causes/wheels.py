"""Why an installer found no wheel, or could not download it."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Refutation
from gpusetup.evidence import facts, proofs
from gpusetup.evidence.context import RuleContext
from gpusetup.fixes import paste
from gpusetup.fixes.extension_packages import newer_glibc
from gpusetup.messages.fragments import HOST
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity
from gpusetup.model.versions import parsed

AT_WORK = r"(?:\b(?:pip|uv|conda|poetry)\b|\.whl\b|Installing collected|Collecting )"
"""Words that show that an installer was running, because other programs unzip files too."""

FETCHING = (
    r"(?:\bpip[/\\]_(?:vendor|internal)|\bpip3? (?:install|download)\b|\bDownloading \S{1,80}\.whl)"
)
"""Words that show that pip was running, near a message that any program could print."""


def _as_chosen(context: RuleContext, text: str) -> Fix:
    """Install with gpusetup, with the installers' own commands as alternatives."""
    commands = paste.install_commands(context)
    return Fix(text=text, commands=commands, alternatives=paste.by_hand(context))


def good_python(context: RuleContext) -> str:
    """The Python release for which nearly every package has wheels, such as "3.12"."""
    return context.catalog.milestone("usual python")


def _create_64_bit_environment(context: RuleContext, _text: str) -> Fix:
    """Create an environment with a Python for which torch has wheels, and install torch there."""
    python = good_python(context)
    installed_python = context.snapshot.python.version or ""
    # If this release is already installed, uv would use the installed Python again, for which there
    # are no wheels (a 32-bit Python, for example). So request the next release.
    if installed_python.startswith(f"{python}."):
        release = parsed(python)
        python = f"{release.major}.{release.minor + 1}"
    text = f"Create an environment with a 64-bit Python {python} and install there"
    return paste.with_python(context, python, text)


REQUIREMENT = r"(?P<requirement>(?<![\w.-])[A-Za-z][\w.-]*(?:[=<>!~]=?[^\s,]{1,60}(?:,[=<>!~]=?[^\s,]{1,40})?)?)"
"""A distribution with its version range, as uv writes it: `torch>=2.0.1,<=2.4.1`."""


CAUSES = (
    Cause(
        "download-hash-mismatch",
        certain_if=proofs.message_states_it,
        title="The downloaded file does not match its hash: {file}",
        means="A proxy, a full disk or a mirror cut off or changed the download. Another "
        "possible cause is a lock file that contains the hash of a different build.",
        text="Clear the installer's cache, then run the same installation again. If you use a "
        "proxy or mirror, try another network. Do not switch off the hash check",
        # Source: messages of uv and pip.
        commands=("pip cache purge",),
        says=(
            r"DO NOT MATCH THE HASHES(?:.{0,260}?(?P<file>[\w.%+-]+\.whl))?",
            says(r"Hash mismatch for `?(?P<file>[\w.=+-]+)", example="error: Hash mismatch for `torch==2.6.0+cu124`"),
            says(r"CondaVerificationError: The package for (?P<file>[\w.-]{2,60}) located at", example="CondaVerificationError: The package for pytorch located at /x/pkgs/pytorch-2.1.0 appears to be corrupted."),
            says(rf"{AT_WORK}.{{0,900}}?BadZipFile: Bad CRC-32|BadZipFile: Bad CRC-32 for file '(?:torch|nvidia|triton)", example="zipfile.BadZipFile: Bad CRC-32 for file 'torch/lib/libtorch_cuda.so'"),
            says(rf"{AT_WORK}.{{0,900}}?BadZipFile: File is not a zip file", example="$ uv pip install x.whl\nzipfile.BadZipFile: File is not a zip file"),
        ),
    ),
    Cause(
        "download-network-error",
        title="{host} cannot be reached or verified",
        means="TLS, a proxy, DNS, a wrong clock or a slow connection stopped the download. "
        "torch, CUDA and the driver are not the cause.",
        text="Check the network, and this machine's clock and certificates (a proxy that decrypts TLS: "
        "set PIP_CERT or SSL_CERT_FILE to its certificate). Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY, and whether DNS knows the "
        "server's name. If the connection is slow, allow more time (PIP_DEFAULT_TIMEOUT=120 for pip, UV_HTTP_TIMEOUT=300 for "
        "uv). To use a mirror instead: `gpusetup install --index URL`",
        # Source: messages of pip, urllib3, uv and conda.
        explains=("python-no-wheel",),
        look=("curl -sSI https://{host}/",),
        says=(
            rf"HTTPSConnectionPool\(host='{HOST}', port=\d+\): (?P<how>Max retries|Read timed out)",
            says(r"CondaHTTPError: HTTP (?P<how>\w+)", example="CondaHTTPError: HTTP 000 CONNECTION FAILED for url"),
            says(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|invalid peer certificate|CondaSSLError", how="certificate", example="SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain'))"),
            says(rf"(?:ReadTimeoutError|ConnectTimeoutError|ReadTimeout)\W{{0,3}}(?:HTTPS?ConnectionPool\(host='{HOST}')?.{{0,240}}?timed out", how="timeout"),
            says(rf"error sending request for url \(https?://{HOST}", how="connection", example="error: error sending request for url (https://index.example.org/simple/torch/)"),
            says(r"ProxyError|Cannot connect to proxy|Tunnel connection failed|wrong_version_number", example="WARNING: Retrying after ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 407'))", how="proxy"),
            says(r"Temporary failure in name resolution|NameResolutionError|getaddrinfo failed|dns error", example="Temporary failure in name resolution", how="name"),
            says(r"Connection broken: \w*(?:IncompleteRead|ConnectionReset)\w*|IncompleteRead\(|<urlopen error \[(?:Errno|WinError) (?:104|110|111|10054|10060|10061)\]|Connection reset by peer.{0,200}(?:pip|https?://|whl|Retry)|(?:Retry|pip).{0,200}Connection reset by peer", example="error: <urlopen error [Errno 104] Connection reset by peer>", how="cut"),
            says(rf"Failed to fetch: `https?://{HOST}", unless=r"40[34] ", example="error: Failed to fetch: `https://index.example.org/simple/numpy/`"),
        ),
    ),
    Cause(
        "resolver-conflict",
        certain_if=proofs.message_states_it,
        title="The requirements contradict each other, so no set of versions satisfies all of them",
        means="Two requirements need different versions of one package.",
        text="Relax the version pin that the message names last. Install torch, torchvision, "
        "torchaudio and triton from one index, and let torch choose the versions of its "
        "dependencies, as the command below does",
        # Source: messages of uv, pip, conda and pixi.
        way=_as_chosen,
        says=(
            r"no solution found when resolving|resolutionimpossible|because there are no viable options|contain conflicting urls for package|because these package versions have conflicting dependencies|the conflict is caused by:|unsatisfiableerror|version solving failed|found conflicts!|encountered problems while solving",
            says("for which no candidates were found", unless=r"__cuda"),
        ),
    ),
    Cause(
        "requirement-broken",
        severity=Severity.WARNING,
        title="{package} requires {needs}, but {have} is installed",
        plain="An installed package requires another version of a second package",
        means="pip prints a warning about the conflict but installs the package anyway. The "
        "warning matters only if you use the package that has the requirement.",
        text="If you use the package that has the requirement, install versions that fit each "
        "other",
        # Source: pip documentation; messages of pip's sources.
        but={"package": "^torch(?:vision|audio)?"},
        look=("pip check",),
        says=(
            says(r"""(?x)
        (?<![\w.-])(?P<package>(?!torchvision|torchaudio)[\w.-]+)
        \ (?P<version>\d[\w.+!]*)
        \ (?:requires|has\ requirement)
        \ (?P<needs>[\w.\[\]-]+\ ?[<>=!~][^ ]*?),\ but\ you
        (?:'ll)?\ have\ (?P<have>[\w.-]+\ \d[\w.+]*\w)
        """, "but you", example="xformers 0.0.28 requires torch==2.4.1, but you have torch 2.6.0 which is incompatible."),
        ),
        failure=7,
    ),
    Cause(
        "python-32bit",
        check=CheckCommand(alike.BITS, "3.12.4 (tags/v3.12.4:8e8a4ba, Jun  6 2024, 19:11:27) [MSC v.1940 32 bit (Intel)] 32"),
        certain_if=proofs.message_states_it,
        title="This Python is a 32-bit build, and torch has no wheels for 32-bit Python",
        text="Create an environment with a 64-bit Python",
        # Source: the wheels and indexes of torch, read for the catalog.
        way=_create_64_bit_environment,
    ),
    Cause(
        "python-no-wheel",
        by_check=True,
        refuted_by=(Refutation(facts.catalog_has_torch_for_this_python, "wrong-index"),),
        title="{asked} has no wheel for this Python",
        plain="torch has no wheel for this Python",
        means="This Python is too new, too old, or free-threaded.",
        text="Create an environment with another Python",
        # Source: the wheels and indexes of torch, read for the catalog.
        way=_create_64_bit_environment,
        says=(
            says(rf"{REQUIREMENT} has no wheels with a matching Python(?: \w+)? (?:ABI|implementation|version) tag(?: \(e\.g\., `?(?P<python>cp\d+t?)`?\))?", example="hint: torch==1.13.1 has no wheels with a matching Python implementation tag"),
            says(rf"{REQUIREMENT} is unusable because no wheels are available with a matching Python", example="Because torch==2.0.0 is unusable because no wheels are available with a matching Python implementation"),
            says(r"You(?:'re using| require) (?:CPython )?(?P<python>\d\.\d+)\S* \(`cp\d+\w*`\), but (?:we only found wheels for )?`?(?P<requirement>\w+)`?", example="hint: You require CPython 3.14 (`cp314`), but we only found wheels for `torch` (v2.8.0) with the following Python ABI tags: `cp312`"),
            says(r"(?P<requirement>[\w.-]+)'? requires a different Python: (?P<python>\d\.\d+)[\d.]* not in", example="ERROR: Package 'vllm' requires a different Python: 3.13.1 not in '<3.13,>=3.9'"),
            rf"{REQUIREMENT} has no wheels with a matching Python implementation tag",
        ),
    ),
    Cause(
        "no-wheel-for-platform",
        by_check=True,
        certain_if=proofs.message_states_it,
        title="{asked} has no wheel for {what}",
        plain="torch has no wheel for this system",
        means="torch has wheels for 64-bit Linux with glibc, for Windows, and for macOS on Apple "
        "silicon.",
        text="Use an image or system for which torch has wheels: one with glibc (`FROM "
        "python:3.12-slim` in place of Alpine), and a 64-bit x86_64 or aarch64. For an Intel Mac, "
        "torch 2.2.2 is the last release (Python 3.12 or older, numpy<2). Windows on ARM has the "
        "CPU build only: use a 64-bit x86 Python, or the index "
        "https://download.pytorch.org/whl/cpu",
        # Source: the wheels and indexes of torch, read for the catalog.
        asks=(alike.BITS,),
        says=(
            says(rf"{REQUIREMENT} (?:is unusable because no wheels are available with a matching platform|has no wheels with a matching platform tag(?: \(e\.g\., `?(?P<platform>\w+)`?\))?)", example="hint: torch==2.7.0 has no wheels with a matching platform tag (e.g., `macosx_14_0_x86_64`)"),
            says(r"""(?x)
        (?:Distribution\ `?(?P<requirement>[\w.-]+==[\w.+]+)(?:\ @\ registry\+(?P<index>https?://download\.pytorch\.org/[\w./-]{1,60}))?[^`]{0,200}?`?\ )?can't\ be\ installed\ because\ it\ doesn't\ have\ a\ source\ distribution\ or\ wheel\ for\ the\ current\ platform
        """, "wheel for the current platform", example="error: Distribution `pillow==11.3.0 @ registry+https://download.pytorch.org/whl/cu128` can't be installed because it doesn't have a source distribution or wheel for the current platform"),
            says(r"found distribution (?P<requirement>[\w.-]+==[\w.+]+).{0,160}? with neither wheels nor source distribution", example="error: found distribution torchaudio==2.0.0 @ registry+https://download.pytorch.org/whl/cu121 with neither wheels nor source distribution"),
            r"You're on (?P<platform>[^,]{3,60}), but `(?P<requirement>[\w.-]+)`",
            says(r"Unable to find installation candidates for (?P<requirement>torch\w* \([\w.+]+\))", what="Python or system", example="Unable to find installation candidates for torch (2.1.0+cu118)"),
        ),
    ),
    Cause(
        "glibc-too-old",
        certain_if=proofs.message_states_it,
        title="The system's glibc is too old: version {needed} is needed",
        plain="The system's glibc is too old for the packages here",
        means="torch's wheels need glibc 2.28 since torch 2.6.",
        text="Use a newer distribution, or a container with one. Do not replace the system's glibc",
        # Source: PEP 600; the wheels and indexes of torch, read for the catalog.
        explains=("torch-missing", "torch-half-installed", "library-missing"),
        way=newer_glibc,
        says=(r"(?:(?P<library>[\w.+-]+\.so[.\d]*): )?version [`'\"]?GLIBC_(?P<needed>2\.\d+)\W{0,2} ?not found(?: \(required by (?P<by>[^()\s]{1,200})\))?",),
    ),
    Cause(
        "wrong-index",
        by_check=True,
        plain="The index, or a version's label such as `+cu121`, does not exist",
        title="{asked} does not exist where the installer looked",
        means="Versions with a label such as +cu128 are only in PyTorch's index, and that index "
        "does not have every label for every release.",
        text="Use the index that `gpusetup resolve` shows",
        # Source: the wheels and indexes of torch, read for the catalog.
        asks=(alike.BITS,),
        says=(
            says(r"(?P<status>40[34])\b.{0,60}?(?P<index>https?://download\.pytorch\.org/whl/[\w./-]{1,60})", example="ERROR: HTTP error 403 while getting https://download.pytorch.org/whl/cu999/torch/"),
            says(r"(?P<requirement>torch\w*) was not found in the package registry", example="Because torch was not found in the package registry and you require torch, we can conclude"),
            says(r"there is no version of (?P<requirement>torch\w*(?:\[\w+\])?==[\w.]+\+\w+(?:\.\w+)*)", example="Because there is no version of torch==2.9.0+cu126 and you require torch==2.9.0+cu126"),
            says(r"ERROR: Invalid requirement: '(?P<requirement>torch[^']{1,60})'", example="ERROR: Invalid requirement: 'torch==2.0.0+cu118,' Hint: = is not a valid operator; an invalid wheel"),
            says(r"(?P<index>https?://download\.pytorch\.org/whl/[\w./-]{1,60})\W{0,3}.{0,40}?\b(?P<status>40[34])\b", example="error: Request failed: https://download.pytorch.org/whl/cu120/torch/ - HTTP 403 Forbidden"),
        ),
    ),
    Cause(
        "package-not-found",
        title="The installer finds no file of {asked} for this Python and system",
        means="The package's name or version is wrong, or the installer searched only PyTorch's index.",
        text="Use PyTorch's index only for torch",
        # Source: pip documentation; messages of pip's sources.
        kind_of="wrong-index",
    ),
)  # fmt: skip
