"""What a report's text is answered, and the messages that several tests put into one."""

from __future__ import annotations

from gpusetup.catalog.file import load_catalog
from gpusetup.commands.doctor_answer import document
from gpusetup.diagnosis.diagnose import Diagnosis, diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.report.read import read_report

NOT_FOUND = "bash: nvidia-smi: command not found"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
UNAVAILABLE = "torch.cuda.is_available()\nFalse"


def judged(text: str) -> Diagnosis:
    return diagnose(read_report(text), load_catalog())


def answered(text: str) -> DoctorAnswer:
    return document(judged(text), load_catalog())
