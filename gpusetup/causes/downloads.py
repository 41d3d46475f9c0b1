"""Downloads that fail: the network, a proxy, a hash."""

from __future__ import annotations

from gpusetup.causes.record import Cause, Message
from gpusetup.causes.sources import UV
from gpusetup.messages.fragments import HOST, IF
from gpusetup.messages.row import says

NETWORK_WAYS = {
    "certificate": "Look at this machine's clock and its certificates (a proxy that opens TLS "
    "needs its own certificate in PIP_CERT or SSL_CERT_FILE)",
    "expired": "Look at this machine's clock; if it is right, the server's certificate has run "
    "out: try again later",
    "proxy": "Look at HTTPS_PROXY, HTTP_PROXY and NO_PROXY",
    "dns": "The host's name is not found: look at DNS, the VPN and the proxy",
    "timeout": "The connection is slow: give it more time (PIP_DEFAULT_TIMEOUT=120, "
    "UV_HTTP_TIMEOUT=300), or take a mirror",
}
"""How a connection failed -> what to look at."""

ANY_NETWORK = "Look at the network, the proxy and this machine's clock, and try again"

MIRROR = ". Another source: `gpusetup install --index URL` takes a mirror"

ANSWERS = ("curl -sSI https://{host}/",)

AT_WORK = r"(?:\b(?:pip|uv|conda|poetry)\b|\.whl\b|Installing collected|Collecting )"
"""Signs of an installer: programs unzip their own files too."""

FETCHING = (
    r"(?:\bpip[/\\]_(?:vendor|internal)|\bpip3? (?:install|download)\b|\bDownloading \S{1,80}\.whl)"
)
"""Signs of pip at work near a message that any program prints."""

CAUSES = (
    Cause(
        "download-hash-mismatch",
        title="The downloaded file does not match its hash: {file}",
        plain="The downloaded file does not match its hash",
        means="The download was cut or altered on the way (a proxy, a full disk, a mirror "
        "that is being updated), or a lock file names another build.",
        text="Clear the installer's cache, then run the same installation once more; behind a "
        "proxy or mirror try another network. Do not switch the check off",
        not_when="pip-cache-disk-full: the disk cut the file",
        source=UV,
        commands=("pip cache purge",),
        says=(
            r"DO NOT MATCH THE HASHES(?:.{0,260}?(?P<file>[\w.%+-]+\.whl))?",
            r"Hash mismatch for `?(?P<file>[\w.=+-]+)",
            r"CondaVerificationError: The package for (?P<file>[\w.-]{2,60}) located at",
            r"ChecksumMismatchError",
            rf"{AT_WORK}.{{0,900}}?BadZipFile: Bad CRC-32|BadZipFile: Bad CRC-32 for file '(?:torch|nvidia|triton)",
            rf"{AT_WORK}.{{0,900}}?BadZipFile: File is not a zip file",
            r"Wheel '[\w.-]{1,80}' located at [^\n]{3,240}?\.whl is invalid",
        ),
        examples=(
            "error: Hash mismatch for `torch==2.6.0+cu124`",
            "zipfile.BadZipFile: Bad CRC-32 for file 'torch/lib/libtorch_cuda.so'",
            "$ uv pip install x.whl\nzipfile.BadZipFile: File is not a zip file",
            "ERROR: Wheel 'llama-cpp-python-cuda' located at G:\\w\\llama_cpp_python_cuda-0.2.85-cp311-cp311-win_amd64.whl is invalid.",
            "CondaVerificationError: The package for pytorch located at /x/pkgs/pytorch-2.1.0 appears to be corrupted.",
        ),
        not_examples=(
            "zipfile.BadZipFile: File is not a zip file",
            "zipfile.BadZipFile: Bad CRC-32 for file 'data.csv'",
            "the argument is invalid",
        ),
    ),
    Cause(
        "download-network-error",
        title="{host} cannot be reached or verified",
        plain="The package index cannot be reached or verified",
        means="TLS, a proxy, DNS, a wrong clock or a slow line stopped it. torch, CUDA and the driver are not the problem.",
        text=ANY_NETWORK + MIRROR,
        not_when="wrong-index: the server answers 403 or 404",
        source="messages of pip, urllib3, uv and conda",
        explains=("python-no-wheel",),
        look=ANSWERS,
        see="show what the host answers",
        cases=tuple(
            Message(having={"how": how}, text=text + MIRROR, look=ANSWERS, see="ask the host")
            for how, text in NETWORK_WAYS.items()
        ),
        says=(
            r"\berror: Remote end closed connection without response",
            rf"HTTPSConnectionPool\(host='{HOST}', port=\d+\): (?P<how>Max retries|Read timed out)",
            r"CondaHTTPError: HTTP (?P<how>\w+)",
            r"registry\.ollama\.ai.{0,160}?(?:no such host|i/o timeout|connection (?:refused|reset)|TLS handshake|context deadline|server misbehaving|network is unreachable)",
            says(
                r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|invalid peer certificate|CondaSSLError",
                how="certificate",
            ),
            says(
                rf"(?:ReadTimeoutError|ConnectTimeoutError|ReadTimeout)\W{{0,3}}(?:HTTPS?ConnectionPool\(host='{HOST}')?.{{0,240}}?timed out",
                how="timeout",
            ),
            says(
                rf"{FETCHING}.{{0,1100}}?The read operation timed out|The read operation timed out.{{0,600}}?{FETCHING}",
                how="timeout",
            ),
            says(r"due to network timeout", how="timeout"),
            says(
                r"cannot open URL '\S{0,40}(?:pytorch\.org|nvidia\.com|torch)\S{0,200}'",
                how="connection",
            ),
            says(r"NewConnectionError", how="connection"),
            says(rf"error sending request for url \(https?://{HOST}", how="connection"),
            says(r"ProxyError|Cannot connect to proxy|Tunnel connection failed", how="proxy"),
            says("wrong_version_number", how="proxy"),
            says(r"Temporary failure in name resolution|NameResolutionError", how="name"),
            says("getaddrinfo failed", how="name"),
            says("dns error", how="name"),
            says(
                r"Connection broken: \w*(?:IncompleteRead|ConnectionReset)\w*|IncompleteRead\(",
                how="cut",
            ),
            says(
                r"Connection reset by peer.{0,200}(?:pip|https?://|whl|Retry)|(?:Retry|pip).{0,200}Connection reset by peer",
                how="cut",
            ),
            says(
                r"<urlopen error \[(?:Errno|WinError) (?:104|110|111|10054|10060|10061)\]",
                how="cut",
            ),
            says(rf"Failed to fetch: `https?://{HOST}", unless=r"40[34] "),
            says(
                r"\b(?:pip3?|uv|conda) (?:keeps |kept |is |was |always )?tim(?:ed|ing|es) out\b|\b(?:downloads?|downloading)\b (?:[^\s.]{1,20} ){0,6}?(?:keeps |kept |is |was |always |just )?tim(?:ed|ing|es) out\b|\btim(?:ed|ing|es) out (?:while |when |during |in )(?:the )?download(?:s|ing)?\b",
                *("timed out", "timing out", "times out"),
                how="timeout",
                unless=rf"{IF}(?:pip|uv|conda|the download)",
            ),
        ),
        examples=(
            "error: Remote end closed connection without response",
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain'))",
            "WARNING: Retrying after ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 407'))",
            "Temporary failure in name resolution",
            "error: error sending request for url (https://index.example.org/simple/torch/)",
            "CondaHTTPError: HTTP 000 CONNECTION FAILED for url",
            "ConnectionError: ('Connection broken: IncompleteRead(1234 bytes read, 5678 more expected)')",
            "pip: ConnectionResetError(104, 'Connection reset by peer') for https://files.example.org/x.whl",
            "error: <urlopen error [Errno 104] Connection reset by peer>",
            "error: Failed to fetch: `https://index.example.org/simple/numpy/`",
            'File "/usr/lib/python3/dist-packages/pip/_vendor/urllib3/response.py", line 438\nTimeoutError: The read operation timed out',
            "WARNING: Connection timed out while downloading.",
            "! cannot open URL 'https://download.pytorch.org/libtorch/cu124/libtorch-win.zip'",
            'Get "https://registry.ollama.ai/v2/x": dial tcp: lookup registry.ollama.ai: no such host',
        ),
        not_examples=(
            "Remote end closed connection, fine",
            "urllib.error.URLError: <urlopen error [Errno 2] No such file or directory>",
            "queue: The read operation timed out",
            "the connection timed out while waiting",
        ),
    ),
)
