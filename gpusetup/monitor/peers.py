"""The GPUs of a run that are judged, and the GPUs that have the same verdict and need the same fix.
Pure functions."""

from __future__ import annotations

from gpusetup.monitor.run import WatchedRun, considered
from gpusetup.monitor.subject import Subject
from gpusetup.monitor.verdicts import case_of


def subjects_of(run: WatchedRun) -> list[Subject]:
    """The GPUs to judge: those that worked and are not lost, or all that worked if all of them were
    lost."""
    present_gpus = [gpu for gpu in run.at_work if gpu.lost_at is None] or run.at_work
    subjects = []
    for gpu in present_gpus:
        work = considered(gpu)
        if work is not None:
            subjects.append(Subject(run, gpu, work))
    return subjects


def equally_judged(subject: Subject) -> list[Subject]:
    """The GPUs of the run with the same verdict and cause as this one, including this one."""
    case = case_of(subject)
    equals = []
    for other in subjects_of(subject.run):
        other_case = case_of(other)
        if (other_case.verdict, other_case.cause) == (case.verdict, case.cause):
            equals.append(other)
    # A verdict may be about a GPU that is not among these subjects, such as a lost one.
    return equals or [subject]
