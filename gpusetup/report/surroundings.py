"""What surrounds a program in a text: its variables, its container, and what paths give away: the
interpreter of a traceback, the system, the environment."""

from __future__ import annotations

import re
from collections import Counter

from gpusetup.messages.search import Text
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import GUESS, HINT, USUAL, Claim, Facts

NAMES = lazy(
    r"CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|NVIDIA_DRIVER_CAPABILITIES|CUDA_HOME|CUDA_PATH|CUDA_DEVICE_ORDER"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PYTORCH_(?:CUDA_)?ALLOC_CONF|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    r"|CUDA_LAUNCH_BLOCKING|PYTORCH_NO_CUDA_MEMORY_CACHING|CUDA_DISABLE_PTX_JIT|CUDA_FORCE_PTX_JIT|CUDA_MODULE_LOADING"
    r"|CONDA_OVERRIDE_CUDA|NCCL_[A-Z0-9_]{2,30}|TORCH_CUDA_ARCH_LIST|PYTHONPATH|PIP_EXTRA_INDEX_URL|UV_EXTRA_INDEX_URL"
    r"|WORLD_SIZE|LOCAL_RANK|KUBERNETES_SERVICE_HOST"
)
NAME = r"[A-Z][A-Z0-9_]{3,40}"
ASSIGNED = lazy(
    rf"(?<!consider passing )(?:(?<![\w'\"$])(?P<a>{NAME})=(?P<q>['\"]?)(?P<av>[^\s'\";&]{{0,400}})(?P=q)"
    rf"|environ(?:\.get\()?\[?['\"](?P<b>{NAME})['\"][\])]\s?[:=]\s?(?:[frb]?['\"](?=[^'\"]*['\"]))?(?P<bv>[^\s'\")]{{0,400}})"
    rf"|(?:environ\.setdefault|putenv|setenv)\(['\"](?P<c>{NAME})['\"],\s?['\"](?P<cv>[^'\"]{{0,400}})"
    rf"|(?:set|\$env:)\s?(?P<d>{NAME})\s?=\s?['\"]?(?P<dv>[^\s'\"]{{0,400}})|echo \$\{{?(?P<e>{NAME})\}}?\s+(?P<ev>\S{{1,1000}}))"
)
"""As shells, Python and programs show them; not as torch's own errors advise one."""
UNSET = ("none", "<not", "not", "unset", "(not", "n/a", "undefined", "...", "$")
READ = 400_000
"""Characters of a text that are looked at."""


def surroundings(text: Text) -> Facts:
    yield from variables(text)
    yield from containers(text)


def variables(text: Text) -> Facts:
    """Variables of the allow-list.

    >>> from gpusetup.report.cleaning import text_of
    >>> next(variables(text_of("$ CUDA_VISIBLE_DEVICES=2 python main.py"))).value
    '2'
    """
    seen: set[str] = set()
    assigned = ASSIGNED.finditer(text.flat, 0, READ) if NAMES.search(text.flat) else ()
    for found in assigned:
        form = next(one for one in "abcde" if found[one])
        name, value = found[form], found[f"{form}v"]
        if name in seen or not NAMES.fullmatch(name):
            continue
        if not value.lower().startswith(UNSET):
            seen.add(name)
            source = text.source(found.start())
            yield Claim(f"environment.{name}", value, source)


# --- containers -----------------------------------------------------------------------------------

COMPOSED = r"\bservices:\s+[\w.-]{1,60}:\s+(?:image|build|command|container_name|deploy|environment|ports|restart|runtime|shm_size|volumes|gpus):"
"""A compose file: what it reserves stands in it (Compose Specification, services)."""
KINDS = (
    ("kubernetes", ("kube", "gpu-operator", "k8s-device-plugin", "nvidia.com/gpu:", "nodes are", "pod/", "namespace:"), lazy(r"\bkubectl\b|-n gpu-operator\b|\bkubelet\b|k8s-device-plugin|nvidia\.com/gpu:|nodes are available|\bpod/|kubepods|Namespace: {2,}"), USUAL),
    ("podman", ("podman", "libpod"), lazy(r"\bpodman (?:run|exec|build|start|compose)|libpod|Emulate Docker CLI using podman"), USUAL),
    ("docker", ("docker", "from daemon", "oci runtime", "nvidia-container", "attaching to", "-workspace/", "services:"), lazy(rf"\b(?:nvidia-)?docker(?:-compose| compose)? (?:run|exec|up|start)\b|Error response from daemon|docker: Error|/\.dockerenv|\bOCI runtime\b|nvidia-container-cli|Attaching to |(?<![\w/])/(?:vllm|sgl)-workspace/|{COMPOSED}"), USUAL),
    ("docker", ("@",), lazy(r"\b[\w.-]{1,40}@[0-9a-f]{12}[: ][^$#%>]{0,120}[$#%>]"), USUAL),
    ("singularity", ("singularity", "apptainer"), lazy(r"\b(?:singularity|apptainer)['\", ]{1,5}(?:--?\w[\w-]{0,20}['\", ]{1,5}){0,4}(?:run|exec|shell)\b|Singularity>|Apptainer>"), USUAL),
    ("lxc", ("lxc",), lazy(r"\bLXC container\b|\b[Ii]n(?:side)? (?:an? |my |the |this )?LXC\b"), HINT),
    ("docker", ("nvidia container", "nvcr.io", "container image", "outside"), lazy(r"NVIDIA Container|nvcr\.io/nvidia|deep learning container image|This container image and its contents|\boutside (?:of )?(?:the )?(?:docker|container)\b"), HINT),
    ("docker", ("docker container", "/workspace/", "/app/", "dist-packages/"), lazy(r"(?=[Ii/])(?:(?<!works )(?<!worked )(?<!fine )(?<!runs )(?<!well )(?<!only )(?<!not )\b[Ii](?:n|nside|nside of) (?:an? |my |the |this |our )?docker container\b|(?<![\w/])/(?:workspace|app)/\w|/usr/local/lib/python\d\.\d+/dist-packages/(?:vllm|sglang))"), GUESS),
)  # fmt: skip
GIVEN = lazy(
    r"(?=[-grndc])(?:--gpus[= ](?!none|['\"]?0\b)\S+|\bgpus:\s{1,20}(?:all\b|\d|-)|\bruntime: nvidia\b|- nvidia\.com/gpu=|--runtime[= ]nvidia|--device[= ]nvidia\.com/gpu|--nv\b"
    r"|nvidia-docker run|driver: nvidia|capabilities: \[\W{0,2}gpu)"
)
"""How a container is given GPUs."""
STARTED = lazy(
    rf"(?<![\w'/-])(?:docker|podman|nerdctl) (?:container )?run\s+(?!--help)[^\s`]|(?:singularity|apptainer) (?:exec|run|shell) [^\s`]|{COMPOSED}"
)
"""A container that a person starts, by a command or by a compose file."""


def containers(text: Text) -> Facts:
    """The kind of container that the text speaks of, and whether it is given GPUs."""
    flat, low = text.flat[:READ], text.low[:READ]
    for kind, words, pattern, trust in KINDS:
        if any(word in low for word in words) and (found := pattern.search(flat)):
            source = text.source(found.start())
            yield Claim("container.kind", kind, source, trust)
    given = GIVEN.search(flat)
    if shown := given or STARTED.search(flat):
        source, asked = text.source(shown.start()), given is not None
        yield Claim("container.nvidia_requested", asked, source, GUESS)


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
OF_UNIX = ('file "/', "wsl", "/mnt/", "ssh ")
"""What puts a program elsewhere, though a text names a drive of Windows."""


def paths(text: Text) -> Facts:
    flat = text.flat[:READ]
    yield from python_of(flat)
    yield from family_of_paths(flat, text.low[:READ])
    for subject, value, needles, pattern in NAMED:
        named = any(needle in text.low for needle in needles)
        if found := pattern.search(flat) if named else None:
            yield Claim(subject, value or found[1], "paths", HINT)
    yield from interpreter(flat)


NAMED = (
    ("torch.location", "", ("dist-packages",), lazy(r"(/usr/(?:local/)?lib/python3(?:\.\d{1,2})?/dist-packages)/torch/")),
    ("python.executable", "", ("python_embed",), lazy(r"((?:[A-Z]:|\.)(?:\\[\w .()~@-]{1,60}){0,8}?\\python_embedd?ed\\python\.exe)")),
    ("python.manager", "conda", ("conda", "mamba", "forge", "envs"), lazy(r"[/\\](?:(?:ana|mini|micro)(?:conda|mamba|forge)\d?[/\\]|envs[/\\][\w.-]+[/\\]lib)", re.I)),
    ("python.manager", "uv tool", ("tools",), lazy(r"[/\\]uv[/\\]tools[/\\]", re.I)),
    ("python.manager", "venv", ("venv",), lazy(r"[/\\]\.?venv[/\\]", re.I)),
)  # fmt: skip
"""A torch in the system's own place, where a maker puts it; the Python of a portable package for
Windows; and who made the environment."""


def python_of(flat: str) -> Facts:
    """The version that most paths name.

    >>> fact = next(python_of('File "/home/me/venv/lib/python3.12/site-packages/torch/x.py"'))
    >>> fact.value
    '3.12'
    """
    found = Counter(one["dotted"] or f"3.{one['minor']}" for one in PYTHON.finditer(flat))
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
    if counts["windows"] and not any(word in low for word in OF_UNIX):
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
    roots = Counter(one["root"] or one["windows"] for one in SITE.finditer(flat))
    known = [root for root, _ in roots.most_common() if not NOT_A_TARGET.search(root)]
    if len(known) != 1:
        return
    root = known[0].replace("\\\\", "\\")
    is_venv = re.search(r"\\[\w.-]*env[\w.-]*$", root) is not None
    beside = r"\Scripts\python.exe" if is_venv else r"\python.exe"
    value = f"{root}/bin/python" if root.startswith("/") else root + beside
    yield Claim("python.executable", value, "paths", GUESS)
