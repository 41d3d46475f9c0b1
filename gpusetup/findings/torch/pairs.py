"""What stands on torch and does not say so: pairs that only the table of companions knows."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.companion_table import companion_table, releases_for, takes_torch
from gpusetup.evidence.context import RuleContext, value_evidence
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.readings.packages import normalised

PAIR_MISMATCH = Cause(
    id="companion-torch-mismatch",
    severity=Severity.WARNING,
    title="a package takes another torch than the one that is here",
    means="Its libraries are compiled against one torch. Where its metadata does not say which, "
    "pip and uv let it stand; where it does, torch was exchanged afterwards. It fails, or leaves "
    "its kernels out, when it is imported.",
    proven_by="Its version and torch's, by the table of companions, or the label of its build",
    not_when="torchvision-mismatch, torchaudio-mismatch: those have records of their own",
    way_out="The release that takes this torch",
    source="data/companions.json: each row has its own",
)


def pairs(context: RuleContext) -> Iterator[Finding]:
    """Packages beside a torch that they do not take."""
    torch = context.snapshot.torch.version or ""
    for package in context.snapshot.packages or () if torch else ():
        project = companion_table().project(normalised(package.name))
        if project is None or project.wheels == "torch index" or package.installer == "conda":
            continue
        if takes_torch(project, package.version, torch) is False:
            pair = f"{project.name} {package.version} is not for torch {torch}"
            fitting = [f"{project.name}{one}" for one in releases_for(project, torch)[:1]]
            fix = Fix(
                text="Install the release that takes this torch, if there is one; else "
                f"{project.alternative}",
                commands=tuple(paste.pip(context, "install", "--no-deps", one) for one in fitting),
            )
            evidence = (value_evidence(context, "packages", pair),)
            yield PAIR_MISMATCH.found(pair, evidence=evidence, fix=fix)


RULES = (pairs,)
