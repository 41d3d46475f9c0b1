"""What a command must know before it changes something, and whether that was read.

Each row names one thing: which torch is there, the container engine of a node, the Python that must
stay, a screen that must be reachable. `judge` compares the rows with what was read. A block of
commands that needs what was not read, or what a reading denies, is not shown; the sentence of the
fix stays, and the row's question is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.catalog.jetpack import board_of
from gpusetup.evidence.context import RuleContext, events, in_container, is_report, packages
from gpusetup.model.finding import Alternative, Fix, Need, map_blocks
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import Lines
from gpusetup.model.versions import parsed

Reading = Callable[[RuleContext], str]
"""What was read, in a sentence; "" if nothing was."""

TORCHS_VERSION = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
NODES_ENGINE = "kubectl get nodes -o wide  # its last column is CONTAINER-RUNTIME"

# --- which torch is there -------------------------------------------------------------------------

INSTALLING = (
    *("no-matching-distribution", "python-no-wheel", "wheel-not-supported", "wrong-index"),
    *("no-wheel-for-platform", "conda-not-found", "resolver-conflict", "torch-missing"),
    *("build-isolation-no-torch", "download-hash-mismatch", "download-network-error"),
    *("conda-cuda-virtual-missing", "externally-managed", "pip-cache-disk-full"),
)
"""Events of somebody who is about to install torch: the torch that is there does not count."""
SHOW_WHICH_TORCH = (
    *("torch-not-compiled-with-cuda", "gpu-not-in-wheel", "no-nvidia-driver"),
    *("no-xpu", "hip-kernel-missing"),
)
"""Events in which torch itself says what it lacks."""


def torch_that_is_there(context: RuleContext) -> str:
    """Which torch is there, as far as a change of it must know."""
    torch = context.torch
    if board := board_of(context.snapshot):
        return f"{board}, whose JetPack decides"
    # A machine was asked for its torch; a named host is told what would fit it.
    if not is_report(context) or context.other_host:
        return torch.version or "no torch is installed"
    if lent := events(context, "hosted-notebook"):
        return f"the torch of {lent[0].values.get('service', 'the notebook')}"
    if torch.version or torch.backend:
        return f"torch {torch.version or torch.backend}"
    if torch.kernels:
        return f"torch with kernels for {' '.join(torch.kernels)}"
    if torch.installed is False or events(context, *INSTALLING):
        return "no torch is installed yet"
    wanted = context.snapshot.wanted
    if wanted.torch or wanted.backend or wanted.companion:
        return f"torch {wanted.torch or wanted.backend or wanted.companion} is asked for"
    beside = [one for name in ("torchvision", "torchaudio") for one in packages(context, name)]
    if beside:
        return f"{beside[0].name} {beside[0].version}, which belongs to one torch"
    said = events(context, *SHOW_WHICH_TORCH)
    return said[0].text or said[0].kind if said else ""


# --- what the machine's owner, its engine, its Python allow ---------------------------------------


def engine_of_the_node(context: RuleContext) -> str:
    """The engine that starts the node's containers."""
    for event in events(context, "container-engine"):
        return f"the node's engine is {event.values.get('engine', '')}"
    return "" if context.snapshot.container.kind == "kubernetes" else "this host's own engine"


def no_boot_screen(context: RuleContext) -> str:
    """A machine whose screen cannot be reached before its system starts."""
    if not events(context, "cloud-machine", "no-boot-screen"):
        return ""
    return "the screen that enrols a key comes before the system's start, out of reach here"


def python_that_must_stay(context: RuleContext) -> str:
    """A program that is bound to the Python that is there."""
    for event in events(context, "python-bound"):
        return f"the program is bound to Python {event.values.get('python', '')}"
    return ""


def store_that_pip_cannot_change(context: RuleContext) -> str:
    """A package in a store that only its own package manager writes."""
    for event in events(context, "failing-file"):
        if event.values.get("place") == "store":
            return f"{event.values.get('package', 'The package')} lies in the store of Nix or Guix"
    return ""


def reboot_was_tried(context: RuleContext) -> str:
    """The machine was restarted already, and the failure is still there."""
    tried = {event.values.get("what") for event in events(context, "remedy-tried")}
    return "the machine was restarted already" if "reboot" in tried else ""


def cluster_without_docker(context: RuleContext) -> str:
    """A cluster whose jobs are given by a scheduler: its users start no docker."""
    return "a scheduler gives the jobs here" if events(context, "slurm-job", "login-node") else ""


def no_administrator(context: RuleContext) -> str:
    """A user who has no administrator's rights on the machine."""
    said = events(context, "no-root-rights")
    return "you have no administrator rights on this machine" if said else ""


VENDORS_FOLDER = r"^/usr/(?:local/)?lib/python3(?:\.\d+)?/dist-packages"


def build_of_a_vendor(context: RuleContext) -> str:
    """A torch that the maker of an image or a board built, which no index has."""
    images = events(context, "vendor-image")
    if images:
        return f"torch belongs to the image {images[0].values.get('image', '')}".rstrip()
    location = context.torch.location or ""
    if in_container(context) and re.search(VENDORS_FOLDER, location):
        return "torch lies in the system's folder of an image, where its maker put it"
    return ""


def reinstall_was_tried(context: RuleContext) -> str:
    """The torch that would be installed is the one that was reinstalled already."""
    tried = {event.values.get("what") for event in events(context, "remedy-tried")}
    build = context.choice.build
    torch = context.torch
    if "torch" not in tried or build is None or torch.version is None:
        return ""
    same_release = parsed(torch.version.partition("+")[0]) == parsed(build.torch)
    same_build = torch.backend in (None, build.backend)
    if not (same_release and same_build):
        return ""
    return f"torch {torch.version} was reinstalled already, without effect"


def pin_of_another_package(context: RuleContext) -> str:
    """A package whose requirement brings another torch back at its next installation."""
    for event in events(context, "pin-pulls-torch"):
        package, torch = event.values.get("package", ""), event.values.get("torch", "")
        version, file = event.values.get("version"), event.values.get("file", "its requirements")
        named = f"{package}=={version}" if version else package
        return (
            f"{named} requires torch=={torch} and puts that back whenever it is installed: first "
            f"take this pin out of {file}, or choose a release of {package} for the newer torch. "
        )
    return ""


def host_of_a_lender(context: RuleContext) -> str:
    """A rented container: its user changes neither the host's driver nor its power."""
    for event in events(context, "host-of-a-lender"):
        return f"the host cannot be changed from here ({(event.text or '')[:40].strip()})"
    return ""


def torch_inside_a_program(context: RuleContext) -> str:
    """A program that is one executable, with its Python and torch inside."""
    for event in events(context, "packaged-program"):
        name = event.values.get("program", "the program")
        return f"{name} brings its own Python and its own libraries"
    return ""


def marker_of_another_system(context: RuleContext) -> str:
    """A project whose index for torch holds on another system only: here it gives CPU builds."""
    if not events(context, "index-marker") or context.torch.backend != "cpu":
        return ""
    return (
        "In pyproject.toml the index of torch holds for one system only: add this one to its "
        "marker under `[tool.uv.sources]` (`sys_platform == 'linux' or sys_platform == 'win32'`), "
        "or `uv sync` takes the CPU build again. "
    )


def never(_: RuleContext) -> str:
    return ""


def always(_: RuleContext) -> str:
    return "nothing more is needed"


class NeedRow(Frozen):
    """One thing that some commands need to know."""

    what: str
    lines: str
    """How a line begins or goes on that needs it."""
    read: Reading = always
    denied: Reading = never
    asks: str = ""
    """The command whose output tells, if it was not read."""
    clauses: str = ""
    """Clauses of the fix's text that a denial takes out."""
    instead: str = ""
    """What is right where it is denied."""
    first: Reading = never
    """What must be done before the commands, or they do not hold."""


INSTALLS_TORCH = (
    r"^gpusetup install\b(?!.* (?:vllm|sglang|lmdeploy|xformers|flash-attn|--venv)\b)"
    r"|^(?:\S*python\S* -m )?(?:uv )?pip3? install\b.*(?<![\w/.-])torch(?:==\S+)?(?![\w.-])"
    r"|^(?:conda|mamba) install\b.* (?:pytorch|torch)\b|^uv add\b.* torch\b"
)
"""A line that puts another torch in the place of the one that is there. `--venv` makes a new
environment, which has none."""

NEEDS: tuple[NeedRow, ...] = (
    NeedRow(
        what="torch",
        lines=INSTALLS_TORCH,
        read=torch_that_is_there,
        asks=TORCHS_VERSION,
    ),
    NeedRow(
        what="vendor's build",
        lines=INSTALLS_TORCH,
        denied=build_of_a_vendor,
        clauses=r"[Ii]nstall torch|\bReplace (?:it|the)|--force-reinstall",
        instead="Keep the image's torch: its maker built it for this machine. Update the image, or "
        "change the program",
    ),
    NeedRow(
        what="packaged program",
        lines=rf"{INSTALLS_TORCH}|^(?:\S*python\S* -m )?(?:uv )?pip3? install\b",
        denied=torch_inside_a_program,
        clauses=r"[Ii]nstall torch|\bReplace (?:it|the)|needs NVIDIA driver|does not name the GPU"
        r"|site-packages|[Uu]pdate CTranslate2",
        instead="pip does not reach them: take a newer release of the program (made for this "
        "GPU), or run the program from its source",
    ),
    NeedRow(
        what="remedy",
        lines=INSTALLS_TORCH,
        denied=reinstall_was_tried,
        clauses=r"[Rr]einstall torch|[Ii]nstall torch",
        instead="Another installation of the same torch changes nothing",
    ),
    NeedRow(
        what="reboot",
        lines=r"^sudo reboot$",
        denied=reboot_was_tried,
        clauses=r"reboot it|[Tt]o avoid a reboot|^Reboot|restart the machine",
        instead="Another restart changes nothing",
    ),
    NeedRow(
        what="host",
        lines=r"^sudo (?:reboot|shutdown|modprobe|systemctl|apt|dnf)\b|nvidia-smi .*--gpu-reset",
        denied=host_of_a_lender,
        clauses=r"[Rr]eboot|power-off|kernel's command line|modprobe|driver",
        instead="The host is its lender's: report the message to the lender, stop this instance, "
        "and start one on another host",
    ),
    NeedRow(
        what="container program",
        lines=r"^(?:sudo )?docker run\b",
        denied=cluster_without_docker,
        clauses=r"a container with one",
        instead="Clusters have no docker: use the cluster's own container program, for example "
        "`apptainer exec --nv docker://IMAGE COMMAND`",
    ),
    NeedRow(
        what="rights",
        lines=r"^(?:sudo|su) ",
        denied=no_administrator,
        instead="Ask the administrators of the machine for this",
    ),
    NeedRow(
        what="environment",
        lines=r"^(?:\S*python\S* -m )?(?:uv )?pip3? (?:un)?install\b|^gpusetup install\b",
        denied=store_that_pip_cannot_change,
        clauses=r"[Ii]nstall|needs NVIDIA driver",
        instead="pip cannot change it: choose another release or override its build in the "
        "system's configuration",
    ),
    NeedRow(what="marker", lines=INSTALLS_TORCH, first=marker_of_another_system),
    NeedRow(what="pins", lines=INSTALLS_TORCH, first=pin_of_another_package),
    NeedRow(
        what="container engine",
        lines=r"nvidia-ctk runtime configure|systemctl restart (?:docker|containerd|crio)",
        read=engine_of_the_node,
        asks=NODES_ENGINE,
    ),
    NeedRow(
        what="boot screen",
        lines=r"mokutil --import|modprobe nvidia|dkms autoinstall",
        denied=no_boot_screen,
        clauses=r"MOK|mokutil|enrol|firmware",
        instead="Install the distribution's own signed kernel modules, which need no key (Ubuntu: "
        "`linux-modules-nvidia-BRANCH-FLAVOUR`, for example linux-modules-nvidia-535-azure), or "
        "use a machine without Secure Boot (Azure: security type Standard)",
    ),
    NeedRow(
        what="Python",
        lines=r"^uv venv --python|--python 3\.\d|^conda create\b.*python=",
        denied=python_that_must_stay,
        clauses=r"[Cc]reate an environment|[Mm]ake an environment|with python",
        instead="No wheel of torch for that Python has kernels for this GPU. Build torch from "
        "source for it, move to a release of the program for a newer Python, or use another GPU",
    ),
)
"""What commands need, in the order in which it is asked."""


def unread_torch(context: RuleContext) -> tuple[Need, ...]:
    """The need of a fix that has no command as long as the torch that is there is unknown."""
    return _unread(context, "torch")


def unread_engine(context: RuleContext) -> tuple[Need, ...]:
    """The need of a fix for a node whose container engine is unknown."""
    return _unread(context, "container engine")


def _unread(context: RuleContext, what: str) -> tuple[Need, ...]:
    row = next(row for row in NEEDS if row.what == what)
    need = _state(context, row)
    return (need,) if need.state == "unread" else ()


def judge(context: RuleContext, fix: Fix) -> Fix:
    """The fix without the blocks that need what was not read, or what a reading denies."""
    needs: dict[str, Need] = {need.what: need for need in fix.needs}
    denied: list[NeedRow] = []

    def keep_if_known(block: Alternative) -> Alternative | None:
        is_known = True
        for row in NEEDS:
            if not _needs(row, block.commands):
                continue
            need = needs.setdefault(row.what, _state(context, row))
            if need.state == "denied" and row not in denied:
                denied.append(row)
            is_known = is_known and need.state == "read"
        return block if is_known else None

    # Looks change nothing: they are shown whatever was read.
    judged = replace(map_blocks(replace(fix, looks=()), keep_if_known), looks=fix.looks)
    if not needs:
        return fix
    firsts = [row.first(context) for row in NEEDS if row.what in needs]
    text = f"{''.join(firsts)}{fix.text}"
    for row in denied:
        text = _text_where_denied(row, needs[row.what], text)
    # Who may not act on the host needs neither its rights nor its restart.
    if any(row.what == "host" for row in denied):
        judged = replace(judged, needs_root=False, needs_reboot=False)
    return replace(judged, text=text, needs=tuple(needs.values()))


def _needs(row: NeedRow, lines: Lines) -> bool:
    return any(re.search(row.lines, line.removeprefix("!")) for line in lines)


def _state(context: RuleContext, row: NeedRow) -> Need:
    """Whether what a row needs was read, or is denied."""
    if because := row.denied(context):
        return Need(what=row.what, state="denied", because=because)
    if because := row.read(context):
        return Need(what=row.what, state="read", because=because)
    return Need(what=row.what, state="unread", reading=row.asks or None)


def _text_where_denied(row: NeedRow, need: Need, text: str) -> str:
    """What denies it and what is right instead; of the fix's text what does not speak of it."""
    from gpusetup.fixes.clauses import clauses_without

    because = need.because[:1].upper() + need.because[1:]
    remaining = clauses_without(text, row.clauses) if row.clauses else text
    return ". ".join(filter(None, (because, row.instead, remaining)))
