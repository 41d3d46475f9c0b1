"""What paths give away: Python's version, the system, who made the environment, its interpreter."""

from __future__ import annotations

import re
from collections import Counter

from gpusetup.messages.search import Text
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import GUESS, HINT, Claim, Facts

CHARACTERS_READ = 400_000

PYTHON = lazy(
    r"[/\\](?:lib(?:64)?[/\\]python|versions[/\\]|pythons?[/\\]|installs/python[/\\](?:cpython-)?)(?P<dotted>\d\.\d{1,2}(?:\.\d{1,2})?)t?[/\\]"
    r"|(?:[/\\](?i:python|cpython-|python-)|\.cpython-)(?P<major>3)(?P<minor>\d{1,2})(?:-(?:32|arm64)|t?-(?:x86_64|aarch64|darwin)|(?=[/\\]))"
)
"""Paths that name the Python's version."""
LINUX = lazy(
    r"/(?<![\w.]/)(?:home|usr|opt|root|etc|dev|proc|tmp|var|mnt|data\d?|workspace|lib|scratch|ssd|app|raid|nfs)/"
)
MACOS = lazy(
    r"/(?<![\w.:]/)(?:Users|Applications|Library|System|opt/homebrew|private/var/folders)/"
)
WINDOWS = lazy(
    r":\\{1,2}(?<=[\s\"'(=\[<>,;][A-Za-z]:\\)\\?[\w .()~@-]{1,60}|^[A-Za-z]:\\|(?<!\w)[A-Z]:/(?:Users|Windows|Program Files|ProgramData)/"
)
WORDS = {
    "linux": (
        "nvrm:", "sudo ", "apt install", "apt-get", "apt update", "dnf install", "yum install", "pacman -",
        "modprobe", "systemctl", "dmesg", "journalctl", "manylinux", "linux_x86_64", "linux_aarch64", ".so: ",
        ".so.1", "kubectl", "podman", "nvidia-docker", "supergfxctl", "prime-select", "nvidia.com/gpu",
        "/dev/nvidia", "linux-64", "linux-aarch64", "sys_platform == 'linux'", "x86_64-linux-gnu", "rpm -q",
        "gpu-operator", "stub_library", "nvidia-driver-daemonset", "/lib/python", "fabric manager",
        "fabricmanager", "nvidia-cublas-cu1", "nvidia-cudnn-cu1", "nvidia-cuda-nvrtc-cu1", "ldconfig", "ulimit",
    ),
    "windows": (
        "winerror", ".exe", "powershell", "win_amd64", "_windows.go", "wddm", "win-64", "\\scripts\\", ".dll",
        "msvc", "appdata", "nvcuda", "on windows", ", windows", "windows laptop", "windows pc", "ps c:\\", "c:\\>", "d:\\>",
        "windowspath(", "press any key to continue . . .", "as an internal or external command",
    ),
}  # fmt: skip
"""Words of tools that only one system has."""
UNIX_IN_WINDOWS = ('file "/', "wsl", "/mnt/", "ssh ")
"""What puts a program elsewhere, though a text names a drive of Windows."""


def paths(text: Text) -> Facts:
    flat = text.flat[:CHARACTERS_READ]
    yield from python_version(flat)
    yield from family_of_paths(flat, text.low[:CHARACTERS_READ])
    for subject, value, needles, pattern in FIELDS_IN_PATHS:
        named = any(needle in text.low for needle in needles)
        if found := pattern.search(flat) if named else None:
            yield Claim(subject, value or found[1], "paths", HINT)
    yield from interpreter(flat)


FIELDS_IN_PATHS = (
    ("torch.location", "", ("dist-packages",), lazy(r"(/usr/(?:local/)?lib/python3(?:\.\d{1,2})?/dist-packages)/torch/")),
    ("python.executable", "", ("python_embed",), lazy(r"((?:[A-Z]:|\.)(?:\\[\w .()~@-]{1,60}){0,8}?\\python_embedd?ed\\python\.exe)")),
    ("python.manager", "conda", ("conda", "mamba", "forge", "envs"), lazy(r"[/\\](?:(?:ana|mini|micro)(?:conda|mamba|forge)\d?[/\\]|envs[/\\][\w.-]+[/\\]lib)", re.I)),
    ("python.manager", "uv tool", ("tools",), lazy(r"[/\\]uv[/\\]tools[/\\]", re.I)),
    ("python.manager", "venv", ("venv",), lazy(r"[/\\]\.?venv[/\\]", re.I)),
)  # fmt: skip
"""A torch in the system's own folder, where a maker puts it; the Python of a portable package for
Windows; and who made the environment."""


def python_version(flat: str) -> Facts:
    """The version that most paths name.

    >>> fact = next(python_version('File "/home/me/venv/lib/python3.12/site-packages/torch/x.py"'))
    >>> fact.value
    '3.12'
    """
    found = Counter(path["dotted"] or f"3.{path['minor']}" for path in PYTHON.finditer(flat))
    for version, _ in found.most_common(1):
        yield Claim("python.version", version, "paths", HINT)


def family_of_paths(flat: str, low: str) -> Facts:
    """The system by its paths; a WSL path under /mnt/c is Linux."""
    counts = {
        "windows": len(WINDOWS.findall(flat)) if ":" in flat else 0,
        "macos": len(MACOS.findall(flat)),
        "linux": len(LINUX.findall(flat)),
    }
    best = max(counts, key=lambda name: counts[name])
    if counts["windows"] and not any(word in low for word in UNIX_IN_WINDOWS):
        best = "windows"  # programs for Linux name their folders there too
    words = {name: sum(word in low for word in known) for name, known in WORDS.items()}
    likely = max(words, key=lambda name: words[name])
    for subject, value, shown, trust in (
        ("os.family", best, counts[best], HINT),
        ("os.wsl", True, "/mnt/c/" in low or "/mnt/d/" in low, GUESS),
        ("os.family", likely, words[likely], GUESS),
    ):
        if shown:
            yield Claim(subject, value, "paths", trust)


SITE = lazy(
    r"(?P<root>(?<![\w.~$}])/[\w.@+~/-]{2,160}?)/lib(?:64)?/python\d\.\d{1,2}/site-packages/"
    r"|(?P<windows>\b[A-Z]:(?:\\{1,2}[\w .()~@-]{1,60}){1,10}?)\\{1,2}Lib\\{1,2}site-packages\\", re.I
)  # fmt: skip
"""A package of an environment: its root."""
NOT_A_TARGET = lazy(
    r"^/(?:usr|nix)\b|/\.local(?:$|/share/uv)|[/\\](?:tmp|temp|\.cache|caches?|overlay|uv|pipx|builds-v0)[/\\]"
    r"|conda|mamba|miniforge|[/\\]envs[/\\]|app-?data"
    r"|\\(?![\w.-]*venv)[\w.-]*env[\w.-]*$",
    re.I,
)
"""Roots of the system, of a user's own packages, of a build, of a tool, and of conda; and on Windows
an `env`, which may be venv's, conda's or a copy of Python: each has its Python elsewhere."""


def interpreter(flat: str) -> Facts:
    r"""The Python of the environment whose packages a text goes through.

    >>> next(interpreter('File "/srv/a/.venv/lib/python3.12/site-packages/x.py"')).value
    '/srv/a/.venv/bin/python'
    >>> next(interpreter(r'File "C:\ComfyUI\venv\Lib\site-packages\x.py"')).value
    'C:\\ComfyUI\\venv\\Scripts\\python.exe'
    """
    if "site-packages" not in flat:
        return
    roots = Counter(path["root"] or path["windows"] for path in SITE.finditer(flat))
    known = [root for root, _ in roots.most_common() if not NOT_A_TARGET.search(root)]
    if len(known) != 1:
        return
    root = known[0].replace("\\\\", "\\")
    is_venv = re.search(r"\\[\w.-]*env[\w.-]*$", root) is not None
    in_windows = r"\Scripts\python.exe" if is_venv else r"\python.exe"
    value = f"{root}/bin/python" if root.startswith("/") else root + in_windows
    yield Claim("python.executable", value, "paths", GUESS)
