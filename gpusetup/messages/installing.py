"""Messages of pip, uv, conda, mamba, pixi and poetry.

Sources: pip 9 to 26 (resolution, network, hashes), uv 0.1 to 0.9 (resolver report, wheel tags),
conda 4 to 25, libmamba, pixi's rattler, poetry's chooser.
"""

from __future__ import annotations

from gpusetup.messages.fragments import HOST
from gpusetup.messages.row import row, rows

SHM = r"/dev/shm|torch_\d|</torch|shared memory|nccl|torch\.save|PytorchStreamWriter|save_checkpoint|save_pretrained|checkpoint-\d"
"""What else fills: shared memory, and the disk of a program that writes its own checkpoint."""

AT_WORK = r"(?:\b(?:pip|uv|conda|poetry)\b|\.whl\b|Installing collected|Collecting )"
"""Signs of an installer: programs unzip their own files too."""
FETCHING = (
    r"(?:\bpip[/\\]_(?:vendor|internal)|\bpip3? (?:install|download)\b|\bDownloading \S{1,80}\.whl)"
)
"""Signs of pip at work near a message that any program prints."""

REQUIREMENT = r"(?P<requirement>(?<![\w.-])[A-Za-z][\w.-]*(?:[=<>!~]=?[^\s,]{1,60}(?:,[=<>!~]=?[^\s,]{1,40})?)?)"
"""A distribution and its range, as uv writes it: `torch>=2.0.1,<=2.4.1`."""

WHEELS = (
    *rows(
        "python-no-wheel",
        {
            "python abi tag": rf"{REQUIREMENT} has no wheels with a matching Python(?: \w+)? (?:ABI|implementation|version) tag(?: \(e\.g\., `?(?P<python>cp\d+t?)`?\))?",
            "no wheels are available with a matching python": rf"{REQUIREMENT} is unusable because no wheels are available with a matching Python",
            "abi tag": r"You(?:'re using| require) (?:CPython )?(?P<python>\d\.\d+)\S* \(`cp\d+\w*`\), but (?:we only found wheels for )?`?(?P<requirement>\w+)`?",
            "requires a different python": r"(?P<requirement>[\w.-]+)'? requires a different Python: (?P<python>\d\.\d+)[\d.]* not in",
            "python implementation tag": rf"{REQUIREMENT} has no wheels with a matching Python implementation tag",
        },
    ),
    *rows(
        "no-wheel-for-platform",
        {
            "no wheels are available with a matching platform": rf"{REQUIREMENT} is unusable because no wheels are available with a matching platform",
            "wheel for the current platform": (
                r"""(?x)
        (?:Distribution\ `?(?P<requirement>[\w.-]+==[\w.+]+)[^`]{0,200}?`?\ )?can't\ be\ installed\ because\ it\ doesn't\ have\ a\ source\ distribution\ or\ wheel\ for\ the\ current\ platform
        """
            ),
            "with neither wheels nor source distribution": r"found distribution (?P<requirement>[\w.-]+==[\w.+]+).{0,160}? with neither wheels nor source distribution",
            "matching platform tag": rf"{REQUIREMENT} has no wheels with a matching platform tag(?: \(e\.g\., `?(?P<platform>\w+)`?\))?",
            "only has wheels for the following platform": r"You're on (?P<platform>[^,]{3,60}), but `(?P<requirement>[\w.-]+)`",
        },
    ),
    row(
        "no-matching-distribution",
        "tools.nnwrap",
        r"No module named '?tools\.nnwrap",
        requirement="torch",
        none_found="true",
    ),
    row(
        "no-matching-distribution",
        "no compatible version found for: torch",
        r"No compatible version found for: torch\s+(?:DEBUG [^\n]{0,200}\s+)?[×x] No s",
        requirement="torch",
    ),
    row(
        "wheel-not-supported",
        "is not a supported wheel",
        r"(?P<wheel>[\w.+%-]+\.whl) is not a supported wheel on this platform",
    ),
    row(
        "no-wheel-for-platform",
        "unable to find installation candidates",
        r"Unable to find installation candidates for (?P<requirement>torch\w* \([\w.+]+\))",
        what="Python or system",
    ),
    row(
        "no-wheel-for-platform",
        "wheel",
        r"(?:\b(?:no|lack of|without|missing)\b|отсутств\w+|\bнет\b) (?:official |any |готовых )?(?:pre-?built |precompiled |binary )?wheels? (?:for|of|для) (?P<requirement>[A-Za-z][\w-]{2,40})(?: [\d.]{1,12})? (?:on|for|на|для|под) (?P<platform>Windows|macOS|Linux aarch64|aarch64|ARM64?)\b",
        said="in words",
    ),
    row(
        "requires-python",
        "requires-python",
        r"(?:Requires-Python|requires-python) ?(?P<needs>[<>=!~][\d.,<>=!~* ]+)",
    ),
)

INDEXES = (
    *rows(
        "wrong-index",
        {
            "download.pytorch.org": r"(?P<status>40[34])\b.{0,60}?(?P<index>https?://download\.pytorch\.org/whl/[\w./-]{1,60})",
            "package registry": r"(?P<requirement>torch\w*) was not found in the package registry",
            "there is no version of": r"there is no version of (?P<requirement>torch\w*(?:\[\w+\])?==[\w.]+\+\w+)",
            "invalid wheel": r"ERROR: Invalid requirement: '(?P<requirement>torch[^']{1,60})'",
        },
    ),
    row(
        "wrong-index",
        "download.pytorch.org",
        r"(?P<index>https?://download\.pytorch\.org/whl/[\w./-]{1,60})\W{0,3}.{0,40}?\b(?P<status>40[34])\b",
    ),
)

RESOLVERS = (
    *rows(
        "resolver-conflict",
        {
            "no solution found when resolving": "",
            "resolutionimpossible": "",
            "because there are no viable options": "",
            "contain conflicting urls for package": "",
            "conflicting dependencies": r"because these package versions have conflicting dependencies",
            "the conflict is caused by:": "",
            "unsatisfiableerror": "",
            "version solving failed": "",
            "found conflicts!": "",
            "failed to solve": r"failed to solve (?:the pypi )?requirements of environment",
            "encountered problems while solving": "",
        },
    ),
    row("resolver-conflict", "for which no candidates were found", unless=r"__cuda"),
    row(
        "conda-cuda-virtual-missing",
        "__cuda",
        r"nothing provides (?:requested )?(?P<needed>__cuda(?: \S{1,12})?) needed by",
    ),
    row(
        "conda-cuda-virtual-missing",
        "__cuda",
        r"(?P<needed>__cuda(?: ?[\d.*<>=]{1,10})?)[ ,`'\"]{1,3}(?:which |that )?(?:is missing on the system|is missing|cannot be installed)",
    ),
    row(
        "conda-cuda-virtual-missing",
        "__cuda",
        r"(?:virtual package|no candidates were found for|feature:/?\S{0,20}::) ?[`'\"]?(?P<needed>__cuda(?!==\d+\.\d+=0)(?: ?[=<>]{1,2} ?[\w.*]+)?)|(?P<needed2>__cuda(?: [\w.*<>=]{1,12})?), for which no candidates were found",
    ),
    row(
        "conda-cuda-virtual-missing",
        "__cuda",
        r"(?P<needed>__cuda[\d.*<>=|, ]{0,14}),? which is missing on the system",
    ),
    row(
        "driver-too-old",
        "conflicting with __cuda",
        r"has constraint __cuda >=(?P<cuda>\d+\.\d+) conflicting with __cuda-(?P<driver_cuda>\d+\.\d+)-",
    ),
    row("conda-cuda-virtual-missing", "__cuda", r"MatchSpec\(\"(?P<needed>__cuda\S{0,12})\"\)"),
    *rows(
        "conda-not-found",
        {
            "packagesnotfounderror": r"PackagesNotFoundError: .{0,120}?channels: ?-? ?(?P<package>[\w.=*-]+)",
            "resolvepackagenotfound": r"ResolvePackageNotFound: ?-? ?(?P<package>[\w.=*-]+)",
        },
    ),
    row(
        "requirement-broken",
        "but you",
        r"""(?x)
        (?<![\w.-])(?P<package>(?!torchvision|torchaudio)[\w.-]+)
        \ (?P<version>\d[\w.+!]*)
        \ (?:requires|has\ requirement)
        \ (?P<needs>[\w.\[\]-]+\ ?[<>=!~][^ ]*?),\ but\ you
        (?:'ll)?\ have\ (?P<have>[\w.-]+\ \d[\w.+]*\w)
        """,
    ),
)

TRANSFERS = (
    *rows(
        "pip-cache-disk-full",
        {
            "no space left on device": r"(?:\[Errno 28\] |os error 28|IOError|OSError|ERROR|error)?.{0,20}No space left on device(?::? '(?P<path>[^']{1,200})')?",
            "errno 28": r"\[Errno 28\]",
        },
        unless=SHM,
    ),
    *rows(
        "pip-cache-disk-full",
        {
            "112": r"\[?(?:WinError|os error) 112\b",
            "nospacelefterror": "",
            "not enough space on the disk": "",
            "errno 122": r"\[Errno 122\] Disk quota exceeded",
        },
    ),
    *rows(
        "download-hash-mismatch",
        {
            "do not match the hashes": r"DO NOT MATCH THE HASHES(?:.{0,260}?(?P<file>[\w.%+-]+\.whl))?",
            "hash mismatch": r"Hash mismatch for `?(?P<file>[\w.=+-]+)",
            "condaverificationerror": r"CondaVerificationError: The package for (?P<file>[\w.-]{2,60}) located at",
            "checksummismatch": r"ChecksumMismatchError",
            "bad crc-32": rf"{AT_WORK}.{{0,900}}?BadZipFile: Bad CRC-32|BadZipFile: Bad CRC-32 for file '(?:torch|nvidia|triton)",
            "file is not a zip file": rf"{AT_WORK}.{{0,900}}?BadZipFile: File is not a zip file",
            "is invalid": r"Wheel '[\w.-]{1,80}' located at [^\n]{3,240}?\.whl is invalid",
        },
    ),
    row(
        "download-network-error",
        "certificate",
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|invalid peer certificate|CondaSSLError",
        how="certificate",
    ),
    *rows(
        "download-network-error",
        {
            "timed out": rf"(?:ReadTimeoutError|ConnectTimeoutError|ReadTimeout)\W{{0,3}}(?:HTTPS?ConnectionPool\(host='{HOST}')?.{{0,240}}?timed out",
            "the read operation timed out": rf"{FETCHING}.{{0,1100}}?The read operation timed out|The read operation timed out.{{0,600}}?{FETCHING}",
            "network timeout": r"due to network timeout",
        },
        how="timeout",
    ),
    *rows(
        "download-network-error",
        {
            "httpsconnectionpool": rf"HTTPSConnectionPool\(host='{HOST}', port=\d+\): (?P<how>Max retries|Read timed out)",
            "condahttperror": r"CondaHTTPError: HTTP (?P<how>\w+)",
        },
    ),
    *rows(
        "download-network-error",
        {
            "cannot open url": r"cannot open URL '\S{0,40}(?:pytorch\.org|nvidia\.com|torch)\S{0,200}'",
            "newconnectionerror": r"NewConnectionError",
            "error sending request for url": rf"error sending request for url \(https?://{HOST}",
        },
        how="connection",
    ),
    *rows(
        "download-network-error",
        {
            "proxyerror": r"ProxyError|Cannot connect to proxy|Tunnel connection failed",
            "wrong_version_number": "",
        },
        how="proxy",
    ),
    *rows(
        "download-network-error",
        {
            "name resolution": r"Temporary failure in name resolution|NameResolutionError",
            "getaddrinfo failed": "",
            "dns error": "",
        },
        how="name",
    ),
    *rows(
        "download-network-error",
        {
            "connection broken": r"Connection broken: \w*(?:IncompleteRead|ConnectionReset)\w*|IncompleteRead\(",
            "connection reset by peer": r"Connection reset by peer.{0,200}(?:pip|https?://|whl|Retry)|(?:Retry|pip).{0,200}Connection reset by peer",
            "<urlopen error": r"<urlopen error \[(?:Errno|WinError) (?:104|110|111|10054|10060|10061)\]",
        },
        how="cut",
    ),
    row(
        "download-network-error",
        "failed to fetch",
        rf"Failed to fetch: `https?://{HOST}",
        unless=r"40[34] ",
    ),
)

TOOLS = (
    *rows(
        "torch-uninstalled",
        {
            "uninstalling torch-": r"Found existing installation: torch (?P<old>[\w.]+\+cu\d{2,3})\b",
            "uninstalled torch-": r"Successfully uninstalled torch-(?P<taken>\d+\.\d+\.\d+)(?![+.\d])(?!.{0,900}?Successfully installed)",
            "- torch==": r"(?<!\S)- torch==(?P<old>[\w.]+\+cu\d{2,3})\b.{0,400}?\+ torch==",
        },
    ),
    row(
        "torch-uninstalled",
        " --> ",
        r"\bpytorch-(?P<old>\d[\w.]*)-[\w.]*cuda[\w.~]* --> \S{0,60}pytorch-(?P<new>\d[\w.]*)-(?:[\w.]*_)?cpu",
        backend="cpu",
    ),
    *rows(
        "pip-missing",
        {
            "no module named": r"No module named ['\"]?pip\b['\"]?(?!\.)",
            "not found": r"\bpip3?: (?:command )?not found|command not found: pip3?\b",
            "' is not recognized": r"'pip3?' is not recognized",
            "pip": r"(?:module |package )['\"`]?pip3?['\"`]? (?:is |was |has )?not (?:been )?(?:installed|found)\b",
        },
    ),
    row(
        "conda-missing",
        "conda",
        r"'conda' is not recognized|The term 'conda'|\bconda: (?:command )?not found"
        r"|command not found: conda(?![\w-])",
    ),
    row("externally-managed", "externally-managed-environment"),
    *rows(
        "site-not-writable",
        {
            "errno 13": r"\[Errno 13\] Permission denied: '(?P<path>[^']{0,160}(?:site|dist)-packages[^']{0,160})'",
            "winerror 5": r"\[WinError 5\].{0,60}'(?P<path>[^']{0,160}site-packages[^']{0,160})'",
        },
    ),
    row(
        "installed-by-two",
        "cannot uninstall",
        r"Cannot uninstall '?(?P<name>[\w.-]+)'?.{0,40}distutils installed project",
    ),
)

ROWS = (*WHEELS, *INDEXES, *RESOLVERS, *TRANSFERS, *TOOLS)
