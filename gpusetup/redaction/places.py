"""Hides folders, servers and addresses: a home becomes `~`, an unknown folder `dir-1`, a server
`<host>`.

Homes can be anywhere (`/data/users/N`, `/scratch/N`, `/afs/.../N`), so a path keeps only the
folders that `harmless` knows. Below system folders (`/usr`, `C:\\Windows`) everything is kept.
An alias such as `dir-1` is the same everywhere and needs no quotes in a shell. Public servers stay
(`download.pytorch.org`, `127.0.0.1`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address

from gpusetup.redaction.harmless import is_known_folder

Match = re.Match[str]

# --- homes ----------------------------------------------------------------------------------------

_NAME = r"[^\\/:*?\"'<>|;,\r\n\s()\[\]{}=`&]+"
"""A folder name without spaces that is also valid on Windows."""
_SPACED = rf"{_NAME}(?: {_NAME}){{1,2}}(?=[\\/>'\"])"
r"""A name with spaces, up to a separator or a quote: `Jane Doe\`."""
_WHO = rf"(?:(?!<){_SPACED}|(?!<){_NAME})"
_SEP = r"(?:\\{1,4}|/{1,2})"
"""A path separator; it may be doubled, as in JSON strings: `C:\\Users`."""
_START = r"(?:(?<![A-Za-z0-9])[A-Za-z]:|(?<![\w.~>-]))"
"""A drive, or the beginning of a path. The `b:` in `/usr/lib:/home` is not a drive."""
_ABOVE = rf"(?:{_SEP}[\w.$@-]{{1,80}}){{0,12}}?"
HOMES = (
    # Homes on Windows: `C:\Users\Jane Doe`, `C:\Documents and Settings\jane`.
    rf"(?i){_START}{_ABOVE}{_SEP}(?:Users|Documents and Settings){_SEP}(?!Public\b|Default\b|All Users\b){_WHO}",
    # Homes below a folder `home`: `/home/jane`, `/cluster/home2/jane`, `\\server\home$\jane`.
    rf"(?i){_START}{_ABOVE}{_SEP}homes?\d{{0,3}}\$?{_SEP}{_WHO}",
)
"""Matches home folders of any user in the usual places. Elsewhere (`/data/users/jane`), a name
becomes an unknown folder."""


def hide_homes(text: str) -> str:
    """The text with home folders replaced by `~`.

    >>> hide_homes("/home/alice/x C:\\\\Users\\\\Jane Doe\\\\x /mnt/data/x")
    '~/x ~\\\\x /mnt/data/x'
    """
    for pattern in HOMES:
        text = re.sub(pattern, "~", text)
    return text


# --- paths ----------------------------------------------------------------------------------------

SYSTEM_FOLDER = (
    # Below the first two, every user may create folders.
    r"(?i)(?!/+dev/shm/|/+usr/local/)/+(?:usr|lib(?:32|64)?|s?bin|etc|proc|sys|dev|boot|snap|nix|gnu"
    r"|cvmfs|system|library|applications|builddir|pytorch)(?:/|$)"
    # `C:\Windows`, `C:\Program Files (x86)`.
    r"|[A-Z]:(?:\\\\|[\\/])(?:windows|program files(?: \(x86\))?|python\d*)(?:[\\/]|$)"
)
"""The beginning of a path in a folder that the system or a package fills, so that all names below
it are public."""
_LETTERS = r"[^\s:;,\"'<>|*?()\[\]{}=\\/`&$#!]+"
"""The characters of a folder name outside of quotes."""
_PART = rf"(?:<[\w-]+>|{_LETTERS})"
_WINDOWS_PART = rf"(?:<[\w-]+>|{_LETTERS}(?: {_LETTERS}){{0,3}}(?=\\)|{_LETTERS})"
"""A folder name of up to four words, if a separator follows."""
PATH = (
    # `/a/b`, `~/a` and `C:/a`, but not the end of a relative path, and not `//host` in a URL.
    rf"(?<![\w.>/~}}\\-])(?<!:(?=//))(?:~|[A-Za-z]:(?=/))?(?:/+{_PART})+/?"
    # A path on a drive: `C:\a\b`, `~\a`.
    rf"|(?<![\w>/\\])(?:~|[A-Za-z]:)(?:\\{{1,2}}{_WINDOWS_PART})+\\?"
)


def hide_folders(path: str, alias: Callable[[str], str]) -> str:
    """A path with each unknown folder replaced by its alias.

    >>> [hide_folders(path, lambda name: "dir-1") for path in ("~/acme/.venv/bin", "/usr/lib/acme")]
    ['~/dir-1/.venv/bin', '/usr/lib/acme']
    """
    if re.match(SYSTEM_FOLDER, path):
        # A library with an unknown name may be a company's own.
        folder, _, file = path.rpartition("/")
        is_own = re.match(r"lib.*\.so", file) and not is_known_folder(file)
        return f"{folder}/{alias(file)}" if is_own else path
    parts = re.split(r"(/|\\+)", path)  # with the separators
    # NVIDIA installs the same files everywhere: `/opt/nvidia/...`, `/mnt/nvidia/...`.
    is_public = re.match(r"(?:/\w+)?/nvidia/", path) is not None
    for index, part in enumerate(parts):
        is_drive = re.fullmatch(r"[A-Za-z]:", part) is not None
        if part.strip("/\\") and not (is_public or is_drive or is_known_folder(part)):
            parts[index] = alias(part)
        # The names of packages are public.
        is_public = is_public or part.lower() in ("site-packages", "dist-packages")
    return "".join(parts)


# --- servers --------------------------------------------------------------------------------------

PUBLIC_HOSTS = (
    "pytorch.org", "nvidia.com", "anaconda.org", "github.com", "huggingface.co", "localhost",
)  # fmt: skip
"""Servers that may stay."""
# `torch-2.5.1-cp312-cp312-linux_x86_64.whl`.
PACKAGE_FILE = r"\.(?:whl|tar\.gz|tar\.bz2|conda)$"
URL = (
    r"(?P<scheme>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://)"
    # A login; its password may contain an @.
    r"(?:[^/\s@\"'<>]*@)*"
    # The host: `[::1]`, `<host>`, `mirror.corp`.
    r"(?P<host>\[[0-9a-fA-F:.%]+\]|<[\w-]+>|[^\s/:?#\"'`<>(){}|\\,;\[\]]*)(?P<port>:\d{1,5})?"
    r"(?P<path>(?:/(?:<[\w-]+>|[^\s?#\"'`<>(){}|\\,;])*)?)"
    # A query or the name of a part, either of which may be a token: `?access_token=x`, `#x`.
    r"(?P<more>[?#](?:<more>|[^\s\"'`<>(){}|\\])*)?"
)


def hide_url(url: Match) -> str:
    """A URL without its login and query, and without the private parts of its server and path."""
    parts = url["path"].split("/")
    for index, part in enumerate(parts):
        # The text before the first slash is empty, and so may be that behind the last one.
        if part and not is_known_folder(part) and not re.search(PACKAGE_FILE, part):
            parts[index] = "<path>"
    host, more = url["host"], url["more"] or ""
    server = f"{host}{url['port'] or ''}" if is_public(host) else "<host>"
    # A question mark without a query ends a sentence.
    query = f"{more[:1]}<more>" if len(more) > 1 else more
    return f"{url['scheme']}{server}{'/'.join(parts)}{query}"


def is_public(host: str) -> bool:
    """Whether a server's name reveals nothing: localhost, a public server, `<host>`."""
    name = host.lower().rstrip(".").strip("[]")
    if name in ("127.0.0.1", "::1", "0.0.0.0", "") or name.startswith("<"):
        return True
    return any(name == public or name.endswith("." + public) for public in PUBLIC_HOSTS)


# --- addresses ------------------------------------------------------------------------------------

_IPV4 = r"(?<![\w.])(?P<ip>(?:\d{1,3}\.){3}\d{1,3})(?![\w]|\.\d|-[a-z])(?P<more>(?:/\d{1,2})?(?::\d{1,5})?)"
"""Four numbers that are not part of a longer version (`6.6.87.2-microsoft`). A network size and a port may follow."""
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
    r"(?<![\w:.])(?P<ip>::ffff:(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"
    # Other IPv6 addresses: `fe80::1%eth0`, `2001:db8::/32`.
    r"|(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?!\w))"
    r"(?P<more>(?:%\w+)?(?:/\d{1,3})?)(?![\w:])"
)
_MAC = (
    # Ethernet and InfiniBand: `00:11:22:33:44:55`, `00-11-22-33-44-55`.
    r"(?<![\w:-])[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5,19}(?![\w:-])"
    # `0011.2233.4455`, `0011:2233:4455:6677`.
    r"|(?<![\w:-])[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4}){2}(?![\w:-])|(?<![\w:-])(?:[0-9a-f]{4}:){3}[0-9a-f]{4}(?![\w:])"
)


def hide_addresses(text: str) -> str:
    """The text without addresses of networks and network cards.

    >>> hide_addresses("10.1.2.3 127.0.0.1 cudnn 9.1.0.70 fe80::1c2d:3e4f 00:11:22:33:44:55")
    '<address> 127.0.0.1 cudnn 9.1.0.70 <address> <mac>'
    """
    text = re.sub(_MAC, "<mac>", text)
    return re.sub(_IPV4, _hide_address, re.sub(_IPV6, _hide_address, text))


def _hide_address(address: Match) -> str:
    """`<address>` for an address of a network. The machine's own addresses are kept, and so are
    versions, times and C++ names, which look similar."""
    written = address["ip"]
    try:
        parsed = ip_address(written)
    except ValueError:
        return address[0]
    if parsed.is_loopback or parsed.is_unspecified:
        return address[0]
    # `std::` and `a::` would be valid addresses too.
    is_name = parsed.version == 6 and len([*filter(None, written.split(":"))]) < 2
    # Look back 40 characters, because the longest word before a version has about 30.
    before = address.string[max(address.start() - 40, 0) : address.start()]
    # A version has no port or network size (`more`) behind it, so such an address is always hidden.
    is_version = not address["more"] and re.search(_VERSION_BEFORE, before)
    return address[0] if is_name or (parsed.version == 4 and is_version) else "<address>"
