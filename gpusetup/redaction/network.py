"""Servers and addresses: what a text says of somebody's network.

What everybody uses stays (`download.pytorch.org`, `127.0.0.1`); of other URLs those parts of the
path stay that are known words (`/whl/cu124`, a wheel's name).
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from gpusetup.redaction.rules import Found, Rule, compiled

PUBLIC_HOSTS = (
    "pytorch.org",
    "nvidia.com",
    "anaconda.org",
    "github.com",
    "huggingface.co",
    "localhost",
)
"""Servers that may stay in an address."""
OPEN_HOSTS = ("pytorch.org", "nvidia.com")
"""Servers whose paths hold no name and no token."""
PROJECTS = frozenset(
    "pytorch nvidia triton-lang dao-ailab vllm-project huggingface conda-forge astral-sh pypa "  # noqa: SIM905
    "facebookresearch bitsandbytes-foundation axolotl-ai-cloud unslothai comfyanonymous".split()
)
"""Owners of public repositories on github.com."""
HOST, ADDRESS = "<host>", "<address>"

HOST_VARIABLES = frozenset(
    "NO_PROXY no_proxy PIP_TRUSTED_HOST MASTER_ADDR KUBERNETES_SERVICE_HOST HTTP_PROXY HTTPS_PROXY "  # noqa: SIM905
    "http_proxy https_proxy ALL_PROXY all_proxy UV_INSECURE_HOST".split()
)
"""Variables whose whole value names servers."""

# --- URLs -----------------------------------------------------------------------------------------

_URL = (r"(?P<scheme>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?:[^/\s@\"'<>]*@)*"
    r"(?P<host>\[[0-9a-fA-F:.%]+\]|<[\w-]+>|[^\s/:?#\"'`<>(){}|\\,;\[\]]*)(?P<port>:\d{1,5})?"
    r"(?P<path>(?:/(?:<[\w-]+>|[^\s?#\"'`<>(){}|\\,;])*)?)(?P<query>\?[^\s\"'`<>(){}|\\#]*)?(?P<mark>#[^\s\"'`<>(){}|\\]*)?")  # fmt: skip
_KNOWN_SEGMENT = (r"(?i)(?:simple|whl|pypi|packages?|repository|artifactory|api|index|nightly|test|stable|v\d|conda|channels?"
    r"|conda-forge|main|defaults|linux-(?:64|aarch64)|win-64|noarch|cu\d{2,3}|cpu|xpu|rocm[\d.]+|wheels?|python|proxy|download"
    r"|torch\w*|triton|numpy|nvidia[\w-]*|[\w.+%-]+\.(?:whl|tar\.gz|conda|tar\.bz2|html?|json|metadata)|<[\w-]+>|)")  # fmt: skip


_OUR_RESOURCES = r"gpusetup://(?:snapshot|findings(?:/(?:ID|[a-z0-9-]{1,60}))?)"
"""The resources that `gpusetup mcp` offers."""


def _hide_url(match: Found) -> str:
    scheme, host, path = match["scheme"], match["host"], match["path"] or ""
    if re.fullmatch(_OUR_RESOURCES, match[0]):
        return match[0]
    if scheme.lower() == "file://" and host in ("", "~"):
        return f"{scheme}{host}{path}"  # a path: the rules of folders read it
    known = is_public(host)
    if not (known and host.lower().endswith(OPEN_HOSTS)) and not _is_of_a_project(host, path):
        path = "/".join(map(_hide_segment, path.split("/")))
    server = host + (match["port"] or "") if known else HOST
    query = "?<query>" if match["query"] and len(match["query"]) > 1 else match["query"] or ""
    mark = match["mark"] or ""
    if mark and not re.fullmatch(r"#(?:sha256=)?[\w.-]{0,64}", mark):
        mark = "#<mark>"
    return f"{scheme}{server}{path}{query}{mark}"


def _is_of_a_project(host: str, path: str) -> bool:
    owner = path.strip("/").partition("/")[0].lower()
    return host.lower() == "github.com" and owner in PROJECTS


def _hide_segment(segment: str) -> str:
    return segment if compiled(_KNOWN_SEGMENT).fullmatch(segment) else "<path>"


URLS: tuple[Rule, ...] = ((_URL, _hide_url),)


def is_public(host: str) -> bool:
    """Whether a server's name tells nothing of anybody."""
    low = host.lower().rstrip(".").strip("[]")
    if low in ("127.0.0.1", "::1", "0.0.0.0", "") or low.startswith("<"):
        return True
    return any(low == public or low.endswith("." + public) for public in PUBLIC_HOSTS)


# --- addresses --------------------------------------------------------------------------------------

_IPV4 = r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)(?P<more>(?:/\d{1,2})?(?::\d{1,5})?)"
_VERSION_BEFORE = (r"(?i)(?:[=~<>!]=\s*v?|[\w-]*(?:cu\d\d|cudnn|cublas\w*|curand|cufft|cusparse\w*|cusolver|nccl|cupti|nvrtc|npp|nvjpeg|driver|version|ver|build"
    r"|windows|windows nt|release|microsoft|toolkit|cuda|tensorrt|torch|python|nvidia[\w-]*)[ :=v-]{1,3})$")  # fmt: skip
_IPV6 = r"(?<![\w:.])::ffff:(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?:%\w+)?(?![\w:])(?:/\d{1,3})?"  # fmt: skip
_MAC = (r"\b(?:en[xu]|ib|wl[xp]|eth)[0-9a-f]{12}\b|(?<![\w:-])(?:[0-9a-f]{4}:){3}[0-9a-f]{4}(?![\w:])|(?<![\w:-])(?:(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}"
    r"|(?:[0-9a-fA-F]{2}[:-]){7,19}[0-9a-fA-F]{2})(?![\w:-])")  # fmt: skip
_GUID = r"(?i)(guid\W{1,3})0x[0-9a-f]{12,16}\b|\b0x[0-9a-f]{16}(?= mlx\d)"
"""Hardware addresses: of Ethernet, and InfiniBand's GUID."""


def _hide_ipv6(match: Found) -> str:
    written = match[0].partition("/")[0].partition("%")[0]
    try:
        known = IPv6Address(written)
    except (AddressValueError, ValueError):
        return match[0]
    few = len([part for part in written.split(":") if part]) < 2 and not written.endswith("::1")
    return match[0] if known.is_loopback or known.is_unspecified or few else ADDRESS


def _hide_ipv4(match: Found) -> str:
    """An address is hidden; this machine's own and what stands in the place of a version stay."""
    bare = match[0].removesuffix(match["more"]) if match["more"] else match[0]
    try:
        known = IPv4Address(bare)
    except AddressValueError:
        return match[0]
    if known.is_loopback or known.is_unspecified:
        return match[0]
    before = match.string[max(match.start() - 40, 0) : match.start()]
    library = bare.split(".")[0] in _LIBRARY_MAJORS and not known.is_private
    version = library or compiled(_VERSION_BEFORE).search(before)
    return match[0] if version and not match["more"] else ADDRESS


_LIBRARY_MAJORS = ("0", "1", "2", "3", "4", "5", "6", "7", "9", "11", "12", "13")
"""Libraries of CUDA have versions of four numbers that begin so; an address rarely does."""
ADDRESSES: tuple[Rule, ...] = (
    (_MAC, "<mac>"), (_GUID, r"\1<mac>"), (_IPV6, _hide_ipv6), (_IPV4, _hide_ipv4)
)  # fmt: skip


# --- names of servers ---------------------------------------------------------------------------------

_ENDINGS = (
    "com|net|org|edu|gov|mil|int|eu|uk|de|fr|nl|ch|es|se|fi|dk|pl|cz|ru|cn|jp|kr|au|nz|ca|br|be|ie|il|tw|hk|za|tr|gr|pt|ua|ro|hu|sg|mx|ar|cl"
    "|lan|internal|intranet|corp|localdomain|cluster|svc|example|invalid|private|priv|onion|info|biz"
)  # fmt: skip
_SHORT_ENDINGS = "io|ai|dev|app|cloud|in|it|at|no|us|to|home|local|test|tech|site|xyz|me|co|cc|sh|hpc|compute|lab|labs|univ|uni"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = (rf"(?<![\w./\\@%$~-])\.?(?:(?:{_LABEL}\.){{1,8}}(?:{_ENDINGS})|(?:{_LABEL}\.){{2,8}}(?:{_SHORT_ENDINGS})|(?:[a-z]*\d+|[a-z0-9]+-[a-z0-9-]+)\.(?:{_SHORT_ENDINGS}))"
    r"\.?(?::\d{1,5})?(?![\w-]|\.\w|\()")  # fmt: skip
_WITH_PORT = (r"(?i)(?<![\w./\\:@\[<-])(?!localhost|cuda|device|line|sm_|compute_|port|gpu|rank|step|epoch|pid|\w+\.(?:py|c|cc|cpp|cu|cuh|h|hpp|so|rs|go|js|sh|ya?ml|json|toml|txt|md|log|pyx|f90)\b)"
    r"(?:[A-Za-z][\w-]{0,40}\d[\w-]{0,22}|[A-Za-z]\w{0,30}-[\w-]{1,40}|(?:[A-Za-z][\w-]{0,62}\.){1,8}[\w-]{1,62})(?=:\d{4,5}(?![\d:.]))")  # fmt: skip
_AFTER_A_WORD = (
    r"(?i)(?<![\w-])(\w{0,20}host(?:name)?|server|node(?:name)?|machine|computer(?: ?name)?|domain|workstation|headnode|node_?list|master_addr)([\"']?)"
    r"(?:(\s*[=:]\s*[\"'\[]?)(?!<|localhost|none|null|true|false|\d+\b|not\b|no\b|yes\b|the\b|unknown|x86_64|aarch64|linux|download\.pytorch\.org)"
    r"(?(2)|(?=[\w.-]*[\d.-]|[a-z][a-z0-9]{2,}\b(?!\s+[A-Za-z]))(?!\w+\s*\())|(\s+(?:(?:is|named|called)\s+)?[\"'\[]?)(?!<|cuda|libcuda|gpu)(?=[a-z][\w.-]*[\d-]))([\w.-]+)(?![(])"
)
_CONNECTED_TO = (
    r"(?i)\b(ssh|scp|rsync|ping|telnet|sftp|mosh|connect(?:ed|ing)? to|reach|resolve(?: host)?|resolving|lookup)"
    r"(\s+(?:host\s+)?[\"'\[(]?)(?!<|-|the\b|a\b|to\b|this\b|any\b|host\b|server\b|localhost|http|gpu|cuda|nvidia)((?=[\w.-]*[\d.-])[A-Za-z][\w.-]*\w)(?!\s*\()"
)
_LOG_HOST = r"(?m)(?:^|(?<=[\s\"'(>|]))((?:\w{3} +\d+ [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.+-]+Z?) )[\w.-]+ (?=[\w.-]+(?:\[\d+\])?: )"
_SHARE = r"(?<![\w\\:])(\\\\|//)(?!wsl[.$])(?!<)([\w.-]+)(?=[\\/]\w)"
_SLURM = (r"\b(SLURMD?_\w*(?:USER|ACCOUNT|NODELIST|NODENAME|HOST|JOB_NAME|DIR|ADDR|ADDRESS|PARTITION|CLUSTER_NAME|COMMENT|IPADDR|QOS|RESERVATION|UID|GID)\w*)"
    r"(\s*[=:]\s*)(?!<)[^\s;\"']+")  # fmt: skip


_NOT_A_MACHINE = (
    r"(?!(?:rank|gpu|cuda|nvidia|lib\w*|linux|python|torch\w*|driver|device|step|epoch|worker|stage|line|error|warning|info|sm|cu|nccl|cudnn|nvcc|gcc|pid|task|cell"
    r"|module|package|attempt|try|iter|loss|fp|bf|int|float|llama|qwen|bert|gpt|x|amd|arm|aarch|win|macos|utf|iso|md|sha|http|ipv|py|cp|conda|pip|uv|mlx|nvme|ssd|pci|xid)(?:[\d_.-]|$)|c10d\b)"
)
_MACHINE = rf"{_NOT_A_MACHINE}(?=[a-z][\w.-]*-?\d|[a-z]+-[a-z0-9-]+)[a-z][\w.-]*\w"
"""A word that looks like a machine's: `curie-11`, `node042`, `gke-pool-1`; not a program's."""


def _hide_named_host(match: Found) -> str:
    word, quote, sign, blank, name = match.groups()
    if is_public(name) or (word.lower() == "server" and not re.search(r"[\d.-]", name)):
        return match[0]
    return f"{word}{quote or ''}{sign or blank}{HOST}"


def _hide_host(match: Found) -> str:
    return match[0] if is_public(match[0].lstrip(".").partition(":")[0]) else HOST


HOSTS: tuple[Rule, ...] = (
    (_SLURM, r"\1\2<private>"),
    (_LOG_HOST, r"\1<host> "),
    (_SHARE, r"\1<host>"),
    (_NAME, _hide_host),
    (_WITH_PORT, HOST),
    (_AFTER_A_WORD, _hide_named_host),
    (r"(\bPRETTY_HOSTNAME=)(?!<)[^\n]+", r"\1<host>"),
    (r"(\bpods? )(?!<)[a-z0-9-]+/[a-z0-9.-]+", r"\1<private>"),
    (rf"(?m)^((?:\d+: ?|\W)?){_MACHINE}(?=: (?:{_MACHINE}: )?[A-Z\[{{(])", r"\1<host>"),
    (rf"(\[){_MACHINE}(?=(?::\d+)?\])", r"\1<host>"),
    (r"(?<![\w.:/-])(?!localhost|rank|gpu|cuda)[a-z][\w.-]*(?=:\d{2,7}:\d{2,7} \[\d+\])", HOST),
    (rf"(\b(?:ON|kubelet,?|Node:?|on node|at node|from host|BatchHost=|NodeList=|ReqNodeList=|ExcNodeList=)\s*){_MACHINE}(\[[\d,-]+\])?", r"\1<host>"),
    (rf"(\b(?:srun|slurmstepd|mpirun|prterun|pdsh|salloc|sbatch|scontrol)(?:: \w+)?: ){_MACHINE}(?=:)", r"\1<host>"),
    (rf"(?m)^((?:<\d{{1,3}}>1 )?\d{{4}}-\d\d-\d\d[T ][\d:.,+Z-]+ ){_MACHINE}(?= )", r"\1<host>"),
    (rf"(?m)^((?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL) ){_MACHINE}(?= )", r"\1<host>"),
    (rf"(?m)^{_MACHINE}(?= kernel: )", HOST),
    (r"\b(Linux )(?!version|x86_64|aarch64|kernel|<)[\w.-]+(?= \d+\.\d+\.\d+\S* #)", r"\1<host>"),
    (_CONNECTED_TO, r"\1\2<host>"),
)  # fmt: skip
"""In this order; those in the middle say how programs put the machine's name before a line."""


def hide_servers(value: str) -> str:
    """The value of a variable that lists servers: what is everybody's stays.

    >>> hide_servers("localhost,127.0.0.1,.corp.example,10.0.0.0/8,git.corp")
    'localhost,127.0.0.1,<host>,<host>,<host>'
    """
    return ",".join(_hide_server(name) for name in re.split(r"\s*,\s*", value))


def _hide_server(name: str) -> str:
    return name if name in ("", "*", "127.0.0.0/8") or is_public(name) else HOST
