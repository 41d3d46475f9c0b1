"""Reads lists and logs of pip, uv and conda: what is installed, requested and not found."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import LABEL
from gpusetup.messages.search import Text
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Package
from gpusetup.readings.packages import CONDA_WATCHED, is_watched, normalised
from gpusetup.report.facts import SURE, USUAL, Claim, Facts

# `torch   2.5.1+cu124`, `torch==2.5.1`, `[pip3] torch==2.5.1`, and conda's row with build and channel:
# `pytorch  2.5.1  py3.12_cuda12.4_cudnn9.1.0_0  pytorch`.
PACKAGE_ROW = re.compile(
    r"\s*(?P<by>\[(?:pip3?|conda)\] )?(?P<name>[A-Za-z_][\w.-]{1,40})(?P<sign> {1,40}|==)(?P<version>\d[\w.+!-]{0,40})"
    r"(?: {1,30}(?P<build>[\w.]{1,60}_\w*|\w{1,12}|pypi_0)(?: {1,30}\[[\w,]{2,30}\])?(?: {1,30}(?P<channel>[\w./-]{2,60}))?| {2,}\S.*)?$"
)
"""A row of `pip list`, `pip freeze` or `conda list`, or of collect_env's copy of these lists."""
MAX_ROW = 140
"""Longer lines are sentences."""
CHANNEL = re.compile(r"conda-forge|pytorch|nvidia|defaults|pypi|main|pkgs/")
# Parts of the names of packages that belong to the GPU stack. Without any, no list is read.
RELEVANT = re.compile(
    "torch|nvidia-|numpy|mkl|triton|cuda|cudnn|nccl|xformers|libstdcxx|vllm|sglang|lmdeploy"
)


def packages(text: Text) -> Facts:
    """The watched distributions that the text shows as installed, in the output of `pip list`, `pip
    freeze` and `conda list`."""
    if not RELEVANT.search(text.low):
        return
    for line in text.lines:
        row = PACKAGE_ROW.match(line) if len(line) < MAX_ROW else None
        if row is None:
            continue
        name = normalised(row["name"])
        if is_watched(name) or name in CONDA_WATCHED:
            yield _package_of_row(row, line, name)


def _package_of_row(row: re.Match[str], line: str, name: str) -> Package:
    """The package in a row of a list, with the installer that the row's format shows."""
    package = Package(name=name, version=row["version"])
    build, channel = row["build"], row["channel"]
    # Only conda's rows have a build, alone or followed by one of conda's channels.
    if build and row["sign"] != "==" and (channel is None or CHANNEL.search(line)):
        # For a package that pip installed, conda lists `pypi` in one of these two columns.
        if build.startswith("pypi") or channel == "pypi":
            return replace(package, installer="pip")
        return replace(package, installer="conda", build=build)
    # A mark such as `[conda]` in collect_env's rows does not prove which installer installed the
    # package.
    return package if row["by"] else replace(package, installer="pip")


# `uv pip install torch ...`, `conda create -n ml pytorch ...`, with the text after them.
COMMAND = re.compile(r"\b(?:uv )?(?:pip3?|python\S* -m pip|uv|conda|mamba|micromamba|pixi|poetry)(?:\.exe)? (?:pip )?(?:install|add|create|sync|run)\b.{0,400}")  # fmt: skip
# The first words of an installer's output, or the next shell prompt.
OUTPUT_STARTS = re.compile(r" (?:Looking in|Collecting|ERROR|Requirement already|Channels:|Solving|error:|Resolved|Traceback|WARNING|DEBUG|Installed|Prepared|\+|>>>|\$|&&) ")  # fmt: skip
"""The words at which a typed command ends, if all lines of the text are joined."""
# The URL of one of PyTorch's own indexes, which ends with a build label.
INDEX = re.compile(rf"https?://download\.pytorch\.org/whl/(?:nightly/|test/|lts/[\d.]+/)?({LABEL})\b")  # fmt: skip
# `torch==2.5.1+cu124`, `torch>=2.4`, conda's `pytorch=2.5`.
PIN = re.compile(r"(?<![\w.-])(?:py)?torch(?:\[\w+\])? ?(?P<op>==?|~=|<=|>=|<)(?P<version>\d{1,2}(?:\.\d{1,3}){0,2}(?:\.?(?:dev|rc|post|a|b)\d*)?(?:\.\*)?)(?:\+(?P<label>[a-z]+[\d.]*))?")  # fmt: skip
# `torchvision==0.20.1+cu124`.
COMPANION_PIN = re.compile(r"\b(?P<companion>torch(?:vision|audio)) ?==(?P<version>\d{1,2}(?:\.\d{1,3}){2})(?:\+(?P<label>[a-z]+[\d.]*))?")  # fmt: skip
# pip's `Could not find a version that satisfies the requirement torch==1.7.1 (from versions: 2.2.0,
# 2.3.0)`, which people often quote without the versions, or its last line, `No matching distribution found for torch==1.7.1`.
REQUIREMENT = re.compile(
    r"satisfies the requirement (?P<requirement>torch\w*(?:\[\w+\])?(?:[=<>!~]{1,2}[\w.+*,<>=!~-]{1,60})?)(?![\w-])(?: ?\(from versions:? (?P<versions>(?:(?! ERROR)[^)]){0,6000})\)?)?"
    r"|No matching distribution found for (?P<only>torch\w*(?:[=<>!~]{1,2}[\w.+*,<>=!~]{1,60})?)(?![\w-])"
)
MAX_VERSIONS_CHARACTERS = 900
"""At most this many characters are kept of pip's list of versions, which may have hundreds."""
MESSAGE_CHARACTERS = 300
"""At most this many characters of pip's message are quoted as evidence."""

COMMAND_NEEDLES = (" install", "uv add", "uv sync", "create")
"""Strings of which each installing command contains one."""


def request_claims(text: Text) -> Facts:
    """What the user asked to install: a version, an index, and requirements that pip refused."""
    if "torch" not in text.low:
        return
    yield from refusals(text)
    for offset, window in text.near(*COMMAND_NEEDLES):
        for match in COMMAND.finditer(window):
            source = text.source(offset + match.start())
            command = OUTPUT_STARTS.split(match[0])[0]
            if "torch" in command:
                yield from pin_claims(command, source, USUAL)
                if index := INDEX.search(command):
                    yield Claim("wanted.backend", index[1], source)


def refusals(text: Text) -> Facts:
    """The requirements of torch that pip could not satisfy, each once, with the versions that it
    could choose from."""
    index = INDEX.search(text.flat)
    already_read: set[str] = set()
    for needle in ("satisfies the requirement torch", "no matching distribution found for torch"):
        for offset, window in text.near(needle):
            # `False` sorts first, so messages that list versions come first.
            messages = sorted(
                REQUIREMENT.finditer(window), key=lambda match: match["versions"] is None
            )
            for match in messages:
                requirement = (match["requirement"] or match["only"]).rstrip(".,'\"")
                if requirement in already_read:
                    continue
                already_read.add(requirement)
                values = {"requirement": requirement, **_offered_versions(match["versions"] or "")}
                if index:
                    values["index"] = index[1]
                start = offset + match.start()
                end = start + len(match[0][:MESSAGE_CHARACTERS])
                yield text.event("no-matching-distribution", start, end, values)
                yield from pin_claims(requirement, text.source(start), SURE)


def _offered_versions(versions: str) -> dict[str, str]:
    """The values of an event for pip's list of versions; {} if the text does not quote the list."""
    if not versions.strip():
        return {}
    # pip writes `none` if it saw no version at all.
    if versions.strip().startswith("none"):
        return {"none_found": "true"}
    return {"none_found": "false", "versions": versions.strip()[:MAX_VERSIONS_CHARACTERS]}


def pin_claims(words: str, source: str, trust: int) -> Facts:
    """The version and build of torch, or else of torchvision or torchaudio, that the words pin:
    `torch==2.5.1+cu124` requests both; conda's `torch=2.5` means any release of 2.5."""
    pin = PIN.search(words) or COMPANION_PIN.search(words)
    if pin is None:
        return
    groups = pin.groupdict()
    version, operator = pin["version"], groups.get("op") or "=="
    is_whole = version.count(".") >= 2 or "*" in version
    # To pip, `torch==2.5` means 2.5.0, but people who write it mean any release of 2.5.
    if operator == "=" or (operator == "==" and not is_whole):
        operator, version = "==", f"{version.removesuffix('.*')}.*"
    companion = groups.get("companion") or ""
    subject = "wanted.companion" if companion else "wanted.torch"
    yield Claim(subject, f"{companion}{operator}{version}", source, trust)
    if label := pin["label"]:
        yield Claim("wanted.backend", label, source, trust)
