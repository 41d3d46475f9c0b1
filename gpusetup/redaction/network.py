"""Hides servers and addresses, which reveal something about a user's network.

Public servers stay (`download.pytorch.org`, `127.0.0.1`). In all other URLs, only the known words
of the path are kept (`/whl/cu124`, a wheel's name).
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from gpusetup.redaction.rules import Match, Rule, compiled

PUBLIC_HOSTS = (
    "pytorch.org",
    "nvidia.com",
    "anaconda.org",
    "github.com",
    "huggingface.co",
    "localhost",
)
"""Servers that may stay in a URL."""
OPEN_HOSTS = ("pytorch.org", "nvidia.com")
"""Servers whose paths contain neither names nor tokens."""
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
"""Variables whose whole value is a list of servers."""

# --- URLs -----------------------------------------------------------------------------------------

_URL = (
    r"(?P<scheme>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://)"
    # A login; its password may contain an @.
    r"(?:[^/\s@\"'<>]*@)*"
    # The host: `[::1]`, `<host>`, `mirror.corp`.
    r"(?P<host>\[[0-9a-fA-F:.%]+\]|<[\w-]+>|[^\s/:?#\"'`<>(){}|\\,;\[\]]*)"
    r"(?P<port>:\d{1,5})?"
    r"(?P<path>(?:/(?:<[\w-]+>|[^\s?#\"'`<>(){}|\\,;])*)?)"
    r"(?P<query>\?[^\s\"'`<>(){}|\\#]*)?"
    r"(?P<mark>#[^\s\"'`<>(){}|\\]*)?"
)
_KNOWN_SEGMENT = (
    # Folder names of package indexes and conda channels.
    r"(?i)(?:simple|whl|pypi|packages?|repository|artifactory|api|index|nightly|test|stable|v\d|conda|channels?"
    r"|conda-forge|main|defaults|linux-(?:64|aarch64)|win-64|noarch|cu\d{2,3}|cpu|xpu|rocm[\d.]+|wheels?|python|proxy|download"
    # Packages and their files: `torch`, `numpy-2.3.0-cp312-...whl`.
    r"|torch\w*|triton|numpy|nvidia[\w-]*|[\w.+%-]+\.(?:whl|tar\.gz|conda|tar\.bz2|html?|json|metadata)|<[\w-]+>|)"
)
_OUR_RESOURCES = r"gpusetup://(?:snapshot|findings(?:/(?:ID|[a-z0-9-]{1,60}))?)"
"""The resources that `gpusetup mcp` offers."""
_HASH_MARK = r"#(?:sha256=)?[\w.-]{0,64}"
"""The end of a URL with a file's hash or the name of a heading. It is kept, while any other
fragment may be a token."""


def _hide_url(url: Match) -> str:
    """A URL without its login and query, and without the private parts of its server and path."""
    scheme, host, path = url["scheme"], url["host"], url["path"] or ""
    if re.fullmatch(_OUR_RESOURCES, url[0]):
        return url[0]
    # A `file:` URL is a path, so leave it to the rules for folders.
    if scheme.lower() == "file://" and host in ("", "~"):
        return f"{scheme}{host}{path}"

    is_public_host = is_public(host)
    is_open = is_public_host and host.lower().endswith(OPEN_HOSTS)
    if not is_open and not _is_of_a_project(host, path):
        path = "/".join(_hide_segment(segment) for segment in path.split("/"))
    server = HOST
    if is_public_host:
        port = url["port"] or ""
        server = f"{host}{port}"
    # A question mark without a query ends a sentence.
    query = url["query"] or ""
    if len(query) > 1:
        query = "?<query>"
    mark = url["mark"] or ""
    if mark and not re.fullmatch(_HASH_MARK, mark):
        mark = "#<mark>"
    return f"{scheme}{server}{path}{query}{mark}"


def _is_of_a_project(host: str, path: str) -> bool:
    """Whether a URL belongs to a public project on github.com."""
    if host.lower() != "github.com":
        return False
    # The path begins with the owner: `/pytorch/pytorch/releases`.
    owner = path.strip("/").partition("/")[0]
    return owner.lower() in PROJECTS


def _hide_segment(segment: str) -> str:
    """A part of a URL's path. It is hidden unless such parts are common on package indexes."""
    is_known = compiled(_KNOWN_SEGMENT).fullmatch(segment)
    return segment if is_known else "<path>"


URLS: tuple[Rule, ...] = ((_URL, _hide_url),)


def is_public(host: str) -> bool:
    """Whether a server's name reveals nothing: localhost, a public server, `<host>`."""
    name = host.lower().rstrip(".").strip("[]")
    if name in ("127.0.0.1", "::1", "0.0.0.0", ""):
        return True
    # The name was hidden before.
    if name.startswith("<"):
        return True
    for public_host in PUBLIC_HOSTS:
        is_below = name.endswith("." + public_host)
        if is_below or name == public_host:
            return True
    return False


# --- addresses --------------------------------------------------------------------------------------

_IPV4 = r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)(?P<more>(?:/\d{1,2})?(?::\d{1,5})?)"
"""Four numbers that are not part of a longer version. A network size and a port may follow."""
_VERSION_BEFORE = (
    # A requirement: `==12.8.4.1`, `>= 9.1.0.70`.
    r"(?i)(?:[=~<>!]=\s*v?"
    # A word before a version: `cudnn 9.1.0.70`, `nvidia-cublas-cu12-12.4.5.8`, `Windows
    # 10.0.19045.1`, `version: 1.2.3.4`.
    r"|[\w-]*(?:cu\d\d|cudnn|cublas\w*|curand|cufft|cusparse\w*|cusolver|nccl|cupti|nvrtc|npp|nvjpeg|driver|version|ver|build"
    r"|windows|windows nt|release|microsoft|toolkit|cuda|tensorrt|torch|python|nvidia[\w-]*)[ :=v-]{1,3})$"
)
"""Matches the text before four numbers if it shows that they are a version."""
_IPV6 = (
    # An IPv4 address in IPv6 notation: `::ffff:10.0.0.1`.
    r"(?<![\w:.])::ffff:(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"
    # Other IPv6 addresses: `fe80::1%eth0`, `2001:db8::/32`.
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?:%\w+)?(?![\w:])(?:/\d{1,3})?"
)
_MAC = (
    # An interface named after its hardware address: `enx001122334455`.
    r"\b(?:en[xu]|ib|wl[xp]|eth)[0-9a-f]{12}\b"
    # InfiniBand addresses: `0011:2233:4455:6677`.
    r"|(?<![\w:-])(?:[0-9a-f]{4}:){3}[0-9a-f]{4}(?![\w:])"
    # Ethernet: `00:11:22:33:44:55`, `0011.2233.4455`. Longer addresses belong to InfiniBand.
    r"|(?<![\w:-])(?:(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}"
    r"|(?:[0-9a-fA-F]{2}[:-]){7,19}[0-9a-fA-F]{2})(?![\w:-])"
)
_GUID = r"(?i)(guid\W{1,3})0x[0-9a-f]{12,16}\b|\b0x[0-9a-f]{16}(?= mlx\d)"
"""The hardware address of an InfiniBand card: `node_guid: 0x001122...`."""


def _hide_ipv6(address: Match) -> str:
    """`<address>` for an IPv6 address; times and C++ names, which look similar, are kept."""
    written = address[0].partition("/")[0].partition("%")[0]
    try:
        parsed_address = IPv6Address(written)
    except (AddressValueError, ValueError):
        return address[0]
    # `std::` and `a::` would be valid addresses too.
    groups = [group for group in written.split(":") if group]
    is_too_short = len(groups) < 2 and not written.endswith("::1")
    is_of_this_machine = parsed_address.is_loopback or parsed_address.is_unspecified
    return address[0] if is_of_this_machine or is_too_short else ADDRESS


def _hide_ipv4(address: Match) -> str:
    """`<address>` for an IPv4 address; the machine's own addresses and versions are kept."""
    network_and_port = address["more"]
    numbers = address[0].removesuffix(network_and_port) if network_and_port else address[0]
    try:
        parsed_address = IPv4Address(numbers)
    except AddressValueError:
        return address[0]
    if parsed_address.is_loopback or parsed_address.is_unspecified:
        return address[0]

    # Look back 40 characters, because the longest word before a version has about 30.
    text_before = address.string[max(address.start() - 40, 0) : address.start()]
    first_number = numbers.partition(".")[0]
    is_of_library = first_number in _LIBRARY_MAJORS and not parsed_address.is_private
    is_version = is_of_library or compiled(_VERSION_BEFORE).search(text_before)
    # Versions are not followed by a port, so an address with a port is always hidden.
    return address[0] if is_version and not network_and_port else ADDRESS


_LIBRARY_MAJORS = ("0", "1", "2", "3", "4", "5", "6", "7", "9", "11", "12", "13")
"""The first numbers of CUDA libraries' versions, which have four numbers. Addresses rarely begin
with these."""
ADDRESSES: tuple[Rule, ...] = (
    (_MAC, "<mac>"),
    (_GUID, r"\1<mac>"),
    (_IPV6, _hide_ipv6),
    (_IPV4, _hide_ipv4),
)


# --- names of servers ---------------------------------------------------------------------------------

_ENDINGS = (
    "com|net|org|edu|gov|mil|int|eu|uk|de|fr|nl|ch|es|se|fi|dk|pl|cz|ru|cn|jp|kr|au|nz|ca|br|be|ie|il|tw|hk|za|tr|gr|pt|ua|ro|hu|sg|mx|ar|cl"
    "|lan|internal|intranet|corp|localdomain|cluster|svc|example|invalid|private|priv|onion|info|biz"
)  # fmt: skip
"""Endings of server names that are not also endings of files or of names in programs."""
_SHORT_ENDINGS = "io|ai|dev|app|cloud|in|it|at|no|us|to|home|local|test|tech|site|xyz|me|co|cc|sh|hpc|compute|lab|labs|univ|uni"
"""Endings that are also words (`np.in`, `run.sh`). A name with such an ending counts as a server
only if it has two dots or a digit."""
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = (
    r"(?<![\w./\\@%$~-])\.?(?:"
    # Any name with a usual ending: `git.corp`, `gpu1.site.org`.
    rf"(?:{_LABEL}\.){{1,8}}(?:{_ENDINGS})"
    # A name with a short ending and two dots: `login.cluster.io`.
    rf"|(?:{_LABEL}\.){{2,8}}(?:{_SHORT_ENDINGS})"
    # A name with a short ending and a digit or dash: `node42.hpc`, `gpu-box.local`.
    rf"|(?:[a-z]*\d+|[a-z0-9]+-[a-z0-9-]+)\.(?:{_SHORT_ENDINGS}))"
    # A port may follow, but not a bracket (a function) or more of a longer word.
    r"\.?(?::\d{1,5})?(?![\w-]|\.\w|\()"
)
_WITH_PORT = (
    # Exclude words that programs print before a number: `cuda:0`, `train.py:42`, `rank:12`.
    r"(?i)(?<![\w./\\:@\[<-])(?!localhost|cuda|device|line|sm_|compute_|port|gpu|rank|step|epoch|pid|\w+\.(?:py|c|cc|cpp|cu|cuh|h|hpp|so|rs|go|js|sh|ya?ml|json|toml|txt|md|log|pyx|f90)\b)"
    # `node42`, `gpu-box` and `a.b`, if a port follows: `node42:29500`.
    r"(?:[A-Za-z][\w-]{0,40}\d[\w-]{0,22}|[A-Za-z]\w{0,30}-[\w-]{1,40}|(?:[A-Za-z][\w-]{0,62}\.){1,8}[\w-]{1,62})(?=:\d{4,5}(?![\d:.]))"
)
_AFTER_A_WORD = (
    # A word that announces a machine's name, perhaps in quotes: `hostname`, `"server"`,
    # `master_addr`.
    r"(?i)(?<![\w-])(?P<word>\w{0,20}host(?:name)?|server|node(?:name)?|machine|computer(?: ?name)?|domain|workstation|headnode|node_?list|master_addr)(?P<quote>[\"']?)"
    # A colon or equals sign, followed by a name and not by an ordinary word: `host: node42`,
    # `server = "x"`.
    r"(?:(?P<sign>\s*[=:]\s*[\"'\[]?)(?!<|localhost|none|null|true|false|\d+\b|not\b|no\b|yes\b|the\b|unknown|x86_64|aarch64|linux|download\.pytorch\.org)"
    # Or a space: `node gpu-7`, `host called node42`.
    r"|(?P<blank>\s+(?:(?:is|named|called)\s+)?[\"'\[]?)(?!<|cuda|libcuda|gpu)(?=[a-z][\w.-]*[\d-]))(?P<name>[\w.-]+)(?![(])"
)
_CONNECTED_TO = (
    r"(?i)\b(ssh|scp|rsync|ping|telnet|sftp|mosh|connect(?:ed|ing)? to|reach|resolve(?: host)?|resolving|lookup)"
    r"(\s+(?:host\s+)?[\"'\[(]?)(?!<|-|the\b|a\b|to\b|this\b|any\b|host\b|server\b|localhost|http|gpu|cuda|nvidia)((?=[\w.-]*[\d.-])[A-Za-z][\w.-]*\w)(?!\s*\()"
)
"""Matches names after a connecting command: `ssh node42`, `could not resolve host git.corp`."""
_LOG_HOST = (
    # The time: `Nov 26 21:00:01`, `2026-11-26T21:00:01Z`.
    r"(?m)(?:^|(?<=[\s\"'(>|]))((?:\w{3} +\d+ [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.+-]+Z?) )"
    # The machine's name, if a program follows: `node42 kernel: `, `node42 sshd[12]: `.
    r"[\w.-]+ (?=[\w.-]+(?:\[\d+\])?: )"
)
_SHARE = r"(?<![\w\\:])(\\\\|//)(?!wsl[.$])(?!<)([\w.-]+)(?=[\\/]\w)"
"""Matches a network share: `\\server\\share`, `//server/share`; but `\\wsl$` is this machine."""
_SLURM = (
    r"\b(SLURMD?_\w*(?:USER|ACCOUNT|NODELIST|NODENAME|HOST|JOB_NAME|DIR|ADDR|ADDRESS|PARTITION|CLUSTER_NAME|COMMENT|IPADDR|QOS|RESERVATION|UID|GID)\w*)"
    r"(\s*[=:]\s*)(?!<)[^\s;\"']+"
)
"""Slurm variables that contain the names of people, machines and projects."""

_NOT_A_MACHINE = (
    r"(?!(?:rank|gpu|cuda|nvidia|lib\w*|linux|python|torch\w*|driver|device|step|epoch|worker|stage|line|error|warning|info|sm|cu|nccl|cudnn|nvcc|gcc|pid|task|cell"
    r"|module|package|attempt|try|iter|loss|fp|bf|int|float|llama|qwen|bert|gpt|x|amd|arm|aarch|win|macos|utf|iso|md|sha|http|ipv|py|cp|conda|pip|uv|mlx|nvme|ssd|pci|xid)(?:[\d_.-]|$)|c10d\b)"
)
_MACHINE = rf"{_NOT_A_MACHINE}(?=[a-z][\w.-]*-?\d|[a-z]+-[a-z0-9-]+)[a-z][\w.-]*\w"
"""A word that looks like a machine's name, such as `curie-11`, `node042` or `gke-pool-1`, and not
like a program's."""


def _hide_named_host(match: Match) -> str:
    """Hides a machine's name after a word that announces one: `hostname: <host>`."""
    if _names_a_program(match) or is_public(match["name"]):
        return match[0]
    separator = match["sign"] or match["blank"]
    return f"{match['word']}{match['quote']}{separator}{HOST}"


def _names_a_program(match: Match) -> bool:
    """Whether the word after `server:` begins a sentence or a list, instead of being a machine's
    name.

    `server: NVIDIA Fabric Manager` is a sentence, and docker prints `Server:` above a list. But
    `server = titan` and `server: titan` name a machine.
    """
    looks_like_a_host = bool(re.search(r"[\d.-]", match["name"]))
    if match["word"].lower() != "server" or looks_like_a_host:
        return False
    separator = match["sign"]
    # After a space, only a name with a digit or a dash counts as a machine.
    if not separator or "=" in separator:
        return False
    text_after = match.string[match.end() :]
    is_a_sentence = bool(re.match(r"[ \t]+[A-Za-z(]", text_after))
    is_above_a_list = "\n" in separator
    return is_a_sentence or is_above_a_list


def _hide_host(name: Match) -> str:
    """`<host>` for a server's name, unless the server is public."""
    without_dot = name[0].lstrip(".")
    # A port may follow the name.
    host = without_dot.partition(":")[0]
    if is_public(host):
        return name[0]
    return HOST


HOSTS: tuple[Rule, ...] = (
    (_SLURM, r"\1\2<private>"),
    (_LOG_HOST, r"\1<host> "),
    (_SHARE, r"\1<host>"),
    (_NAME, _hide_host),
    (_WITH_PORT, HOST),
    (_AFTER_A_WORD, _hide_named_host),
    (r"(\bPRETTY_HOSTNAME=)(?!<)[^\n]+", r"\1<host>"),
    # A Kubernetes pod: `pod team-a/train-0`.
    (r"(\bpods? )(?!<)[a-z0-9-]+/[a-z0-9.-]+", r"\1<private>"),
    # A name at the beginning of a line: `node042: Traceback`, `0: node042: [rank0]`.
    (rf"(?m)^((?:\d+: ?|\W)?){_MACHINE}(?=: (?:{_MACHINE}: )?[A-Z\[{{(])", r"\1<host>"),
    # A machine and a process id in brackets: `[node042:1234]`.
    (rf"(\[){_MACHINE}(?=(?::\d+)?\])", r"\1<host>"),
    # A line of NCCL's log: `node042:1234:1240 [0]`.
    (r"(?<![\w.:/-])(?!localhost|rank|gpu|cuda)[a-z][\w.-]*(?=:\d{2,7}:\d{2,7} \[\d+\])", HOST),
    # A word of Slurm or Kubernetes before a node: `ON node042 CANCELLED`, `NodeList=node[1-4]`.
    (rf"(\b(?:ON|kubelet,?|Node:?|on node|at node|from host|BatchHost=|NodeList=|ReqNodeList=|ExcNodeList=)\s*){_MACHINE}(\[[\d,-]+\])?", r"\1<host>"),
    # A program of Slurm or MPI before a node: `srun: error: node042: task 0`.
    (rf"(\b(?:srun|slurmstepd|mpirun|prterun|pdsh|salloc|sbatch|scontrol)(?:: \w+)?: ){_MACHINE}(?=:)", r"\1<host>"),
    # A log line with the time before the machine: `2026-11-26T21:00:01Z node042 `.
    (rf"(?m)^((?:<\d{{1,3}}>1 )?\d{{4}}-\d\d-\d\d[T ][\d:.,+Z-]+ ){_MACHINE}(?= )", r"\1<host>"),
    # A machine after a log level: `INFO node042 `.
    (rf"(?m)^((?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL) ){_MACHINE}(?= )", r"\1<host>"),
    (rf"(?m)^{_MACHINE}(?= kernel: )", HOST),
    # The output of uname -a: `Linux node042 6.8.0-45-generic #45`.
    (r"\b(Linux )(?!version|x86_64|aarch64|kernel|<)[\w.-]+(?= \d+\.\d+\.\d+\S* #)", r"\1<host>"),
    (_CONNECTED_TO, r"\1\2<host>"),
)  # fmt: skip
"""The rules for servers and machines, which run in this order. Those in the middle are for programs
that print a machine's name before a line."""


def hide_servers(value: str) -> str:
    """The value of a variable that lists servers, with all private servers hidden.

    >>> hide_servers("localhost,127.0.0.1,.corp.example,10.0.0.0/8,git.corp")
    'localhost,127.0.0.1,<host>,<host>,<host>'
    """
    servers = []
    for name in re.split(r"\s*,\s*", value):
        servers.append(_hide_server(name))
    return ",".join(servers)


def _hide_server(name: str) -> str:
    """One server of a list; the loopback network (127.0.0.0/8) and `*` are kept."""
    if name in ("", "*", "127.0.0.0/8"):
        return name
    if is_public(name):
        return name
    return HOST
