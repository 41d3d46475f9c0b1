"""What a report's text is answered, and the messages that several tests put into one."""

from __future__ import annotations

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines
from gpusetup.render.doctor import main_finding
from gpusetup.report.read import read_report

NOT_FOUND = "bash: nvidia-smi: command not found"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
UNAVAILABLE = "torch.cuda.is_available()\nFalse"


def judged(text: str) -> DoctorAnswer:
    return diagnose(read_report(text), load_catalog())


def answered(text: str) -> DoctorAnswer:
    return judged(text)


def told(text: str) -> str:
    """What the answer is about, in lines: the cause, the finding that is shown, its way out."""
    answer = answered(text)
    seen = next((one for one in answer.findings if one.root), None) or main_finding(answer)
    said = ["", answer.cause]
    if seen is not None:
        said += [seen.id, seen.title, seen.detail]
        if seen.fix is not None:
            titles = (other.title for other in seen.fix.alternatives)
            said += [seen.fix.text, seen.fix.min_driver or "", *command_lines(seen.fix), *titles]
    return "\n".join((*said, ""))


def misses(text: str, has: str, never: str) -> list[str]:
    """What is missing of `has`, parted by `|`, and of `never` what is there."""
    shown = told(text)
    missing = [one for one in has.split("|") if one not in shown]
    return missing + [one for one in never.split("|") if one and one in shown]
