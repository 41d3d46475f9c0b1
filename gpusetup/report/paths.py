"""Reads what paths in a text show: the Python version, the system, how the environment was created,
and its interpreter."""

from __future__ import annotations

import re
from collections import Counter

from gpusetup.messages.search import Text
from gpusetup.report.facts import CHARACTERS_READ, GUESS, HINT, Claim, Facts

# `/lib/python3.12/`, `/versions/3.12.3/`, `\\Python312\\`, `.cpython-312-x86_64-linux-gnu.so`.
PYTHON = re.compile(
    r"[/\\](?:lib(?:64)?[/\\]python|versions[/\\]|pythons?[/\\]|installs/python[/\\](?:cpython-)?)(?P<dotted>\d\.\d{1,2}(?:\.\d{1,2})?)t?[/\\]"
    r"|(?:[/\\](?i:python|cpython-|python-)|\.cpython-)(?P<major>3)(?P<minor>\d{1,2})(?:-(?:32|arm64)|t?-(?:x86_64|aarch64|darwin)|(?=[/\\]))"
)
"""A path that contains Python's version."""
# The first folder of a path on Linux: `/home/`, `/usr/`.
LINUX = re.compile(
    r"/(?<![\w.]/)(?:home|usr|opt|root|etc|dev|proc|tmp|var|mnt|data\d?|workspace|lib|scratch|ssd|app|raid|nfs)/"
)
# The first folder of a path on macOS: `/Users/`, `/opt/homebrew/`.
MACOS = re.compile(
    r"/(?<![\w.:]/)(?:Users|Applications|Library|System|opt/homebrew|private/var/folders)/"
)
# A drive letter with a folder: `C:\\Users\\me`, `C:/Windows`.
WINDOWS = re.compile(
    r":\\{1,2}(?<=[\s\"'(=\[<>,;][A-Za-z]:\\)\\?[\w .()~@-]{1,60}|^[A-Za-z]:\\|(?<!\w)[A-Z]:/(?:Users|Windows|Program Files|ProgramData)/"
)
WORDS_OF_SYSTEM = {
    "linux": (
        "nvrm:", "sudo ", "apt install", "apt-get", "apt update", "dnf install", "yum install", "pacman -",
        "modprobe", "systemctl", "dmesg", "journalctl", "manylinux", "linux_x86_64", "linux_aarch64", ".so: ",
        ".so.1", "kubectl", "podman", "nvidia-docker", "supergfxctl", "prime-select", "nvidia.com/gpu",
        "/dev/nvidia", "linux-64", "linux-aarch64", "sys_platform == 'linux'", "x86_64-linux-gnu", "rpm -q",
        "gpu-operator", "stub_library", "nvidia-driver-daemonset", "/lib/python", "fabric manager",
        # The first ROCm with builds for Windows is 6.4.4. Source: AMD, "PyTorch for Windows".
        "+rocm5.", "+rocm6.0", "+rocm6.1", "+rocm6.2", "+rocm6.3",
        "fabricmanager", "nvidia-cublas-cu1", "nvidia-cudnn-cu1", "nvidia-cuda-nvrtc-cu1", "ldconfig", "ulimit",
    ),
    "windows": (
        "winerror", ".exe", "powershell", "win_amd64", "_windows.go", "wddm", "win-64", "\\scripts\\", ".dll",
        "msvc", "appdata", "nvcuda", "on windows", ", windows", "windows laptop", "windows pc", "ps c:\\", "c:\\>", "d:\\>",
        "windowspath(", "press any key to continue . . .", "as an internal or external command",
    ),
}  # fmt: skip
"""Lower-case words of tools and files that only one system has."""


def paths(text: Text) -> Facts:
    """What the paths in a text show about Python, the system and the environment.

    >>> from gpusetup.report.cleaning import text_of
    >>> shown = text_of('File "/srv/a/.venv/lib/python3.12/site-packages/torch/x.py"')
    >>> [str(claim.value) for claim in paths(shown)]
    ['3.12', 'linux', '/srv/a/.venv/bin/python']
    """
    flat = text.flat[:CHARACTERS_READ]
    # The Python version that occurs most often in paths.
    versions = Counter(path["dotted"] or f"3.{path['minor']}" for path in PYTHON.finditer(flat))
    for version, _ in versions.most_common(1):
        yield Claim("python.version", version, "paths", HINT)
    yield from family_of_paths(flat, text.low[:CHARACTERS_READ])
    yield from interpreter(flat)


def family_of_paths(flat: str, low: str) -> Facts:
    """Claims for the system of the paths, and for the one of which most tools and files are named."""
    paths_in = {"macos": len(MACOS.findall(flat)), "linux": len(LINUX.findall(flat))}
    most_paths = max(paths_in, key=lambda name: paths_in[name])
    # On Windows, programs that were ported from Linux also print folders such as `/usr/`, so one
    # Windows path decides. It contains a colon, and most texts have none.
    if ":" in flat and WINDOWS.search(flat):
        yield Claim("os.family", "windows", "paths", HINT)
    elif paths_in[most_paths]:
        yield Claim("os.family", most_paths, "paths", HINT)
    words_of = {name: sum(word in low for word in words) for name, words in WORDS_OF_SYSTEM.items()}
    most_words = max(words_of, key=lambda name: words_of[name])
    if words_of[most_words]:
        yield Claim("os.family", most_words, "paths", GUESS)


# The path of a package up to its environment's root: `/srv/app/.venv`, `C:\\ComfyUI\\venv`.
SITE = re.compile(
    r"(?P<root>(?<![\w.~$}])/[\w.@+~/-]{2,160}?)/lib(?:64)?/python\d\.\d{1,2}/site-packages/"
    r"|(?P<windows>\b[A-Z]:(?:\\{1,2}[\w .()~@-]{1,60}){1,10}?)\\{1,2}Lib\\{1,2}site-packages\\", re.I
)  # fmt: skip
"""The path of an installed package. One group matches the environment's root on Linux, the other on
Windows."""
NOT_A_TARGET = re.compile(
    r"^/(?:usr|nix)\b|/\.local(?:$|/share/uv)|[/\\](?:tmp|temp|\.cache|caches?|overlay|uv|pipx|builds-v0)[/\\]"
    r"|conda|mamba|miniforge|[/\\]envs[/\\]|app-?data"
    r"|\\(?![\w.-]*venv)[\w.-]*env[\w.-]*$",
    re.I,
)
"""Roots whose Python is in another place or should not be changed by the user.

They belong to the system, to a user's own packages, to a build, to a tool or to conda. A Windows
folder called `env` is included because it may be from venv, from conda or a copy of Python.
"""
# `/home/me/miniconda3/envs/ml`: a conda environment on Linux.
CONDA_ENVIRONMENT = re.compile(r"^/.*/envs/[^/]+$")
# `\\venv`, `\\myenv` at the end of a root on Windows.
WINDOWS_VENV = re.compile(r"\\[\w.-]*env[\w.-]*$")


def interpreter(flat: str) -> Facts:
    r"""The Python of the environment whose packages the text shows, if there is only one.

    >>> next(interpreter(r'File "C:\ComfyUI\venv\Lib\site-packages\x.py"')).value
    'C:\\ComfyUI\\venv\\Scripts\\python.exe'
    """
    if "site-packages" not in flat:
        return
    roots = {path["root"] or path["windows"] for path in SITE.finditer(flat)}
    of_environments = [
        root for root in roots if CONDA_ENVIRONMENT.match(root) or not NOT_A_TARGET.search(root)
    ]
    if len(of_environments) != 1:
        return
    # Python's repr, which messages use for paths, doubles every backslash.
    root = of_environments[0].replace("\\\\", "\\")
    executable = rf"{root}\python.exe"
    if root.startswith("/"):
        executable = f"{root}/bin/python"
    elif WINDOWS_VENV.search(root):
        executable = rf"{root}\Scripts\python.exe"
    yield Claim("python.executable", executable, "paths", GUESS)
