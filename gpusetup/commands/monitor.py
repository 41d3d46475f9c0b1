"""`gpusetup monitor`: watches GPUs, with or without a command that it runs, and gives a verdict at
the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.common import DAY_SECONDS, TIMEOUT, seconds_from
from gpusetup.commands.question import (
    CommandQuestion,
    argument,
    command_after_dashes,
    option,
    options,
    switch,
)
from gpusetup.commands.reply import Reply
from gpusetup.errors import Blocked, Unsatisfiable, UsageError
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console
from gpusetup.system.processes import StreamingChild

if TYPE_CHECKING:
    from gpusetup.commands.monitor_recording import Recording
    from gpusetup.monitor.documents import Sample, Summary
    from gpusetup.monitor.sources import SampleSource

SUMMARY = """Watches utilisation, memory, temperature, power and clocks of the NVIDIA GPUs. At the
end it prints the figures, a verdict with its evidence, and the next step. The verdict is one of
good, input-starved, launch-bound, communication-bound, memory-bound, memory-tight, throttled,
bursty, idle, uneven, cpu-bound and faulty. If you give a command after `--`, monitor runs the
command in this terminal, also watches its CPU, memory and DataLoader workers, and exits with its
exit code. If the command prints a line per epoch, you also get the time per epoch. Without a GPU,
monitor watches only the command and the machine. With `--json`, the command's output goes to
stderr."""
JSON = "print JSON: one line for each sample, then a line with the summary"

EXAMPLES = (
    "gpusetup monitor 60",
    "gpusetup monitor -- python train.py --config conf.yaml",
    "gpusetup monitor --json -- torchrun train.py > run.jsonl",
    "gpusetup monitor --replay run.jsonl",
)


class Question(CommandQuestion):
    seconds: float = argument(
        "how long to watch (default: until Ctrl-C, or the end of the command after `--`)",
        default=0.0,
        # `gpusetup monitor python train.py`: the first word is taken for the time.
        parse=seconds_from(0, 366 * DAY_SECONDS, "; write a command after `--`"),
        metavar="SECONDS",
    )
    once: bool = switch("print one sample, without a verdict", one_of="how")
    interval: float = option(
        "time between samples (default: 1)",
        default=1.0,
        parse=seconds_from(0.02, DAY_SECONDS),
        metavar="SECONDS",
    )
    gpu: tuple[str, ...] = options(
        "watch only this GPU; repeatable (default: the GPUs in CUDA_VISIBLE_DEVICES)",
        metavar="INDEX|UUID",
    )
    pid: int | None = option(
        "also watch this process and its children, until the process ends",
        parse=int,
        metavar="PID",
        one_of="how",
    )
    timeout: float | None = TIMEOUT
    replay: str | None = option(
        "analyze a recording (from `--json`) or the output of nvidia-smi (its table, -q, dmon, a "
        "log of --query-gpu); a command after `--` is not run; it only tells monitor what was "
        "recorded",
        metavar="FILE",
        one_of="how",
    )
    after: tuple[str, ...] = command_after_dashes()


USAGE = "gpusetup monitor [SECONDS] [options] [-- COMMAND ...]"


def run(question: Question, out: Console) -> Reply:
    """Watch the GPUs, a process or a command, or judge a recording."""
    if question.after and (question.once or question.pid is not None):
        raise UsageError("`--once` and `--pid` cannot run a command", hint="leave out the command")
    if not question.replay:
        return _watch(question, out)
    if question.gpu or question.seconds:
        problem = "`--replay` reads a recording and does not watch any GPU"
        raise UsageError(problem, hint="leave out the time and `--gpu`")
    return _replay(question.replay, question, out)


def start_nvml(interval: float, count: int = 0) -> StreamingChild:
    """Start the child process that samples NVML. It takes `count` samples or, if `count` is 0, runs
    until it is stopped."""
    scripts = Path(__file__).resolve().parent.parent / "child_scripts"
    # With `-I`, no variable and no file in the user's folder can change what the child imports.
    # hold_back.py keeps NVML from loading a kernel module.
    python = (sys.executable, "-I", str(scripts / "hold_back.py"), str(scripts / "read_nvml.py"))
    return StreamingChild((*python, f"{interval:g}", str(count)))


def _watch(question: Question, out: Console) -> Reply:
    """Watch the GPUs, the process or the command that the options specify."""
    # The child loads NVML while we import the rest.
    nvml = start_nvml(question.interval, 1 if question.once else 0)
    from gpusetup.commands.monitor_recording import Recording
    from gpusetup.monitor.host import ProcessTree, or_none
    from gpusetup.monitor.session import watch
    from gpusetup.monitor.sources import PATIENCE_SECONDS
    from gpusetup.monitor.summary import UNJUDGED

    # Open the process first, so that the error for one that does not exist comes at once.
    process = None if question.pid is None else or_none(ProcessTree, question.pid)
    if question.pid is not None and process is None:
        nvml.end()
        message = f"There is no process {question.pid} that you may see"
        raise UsageError(message, hint="use the id of a running process")
    with ExitStack() as stack:
        source = _best_source(nvml, question, out)
        stack.callback(source.close)
        _choose_gpus(source, question.gpu, out)
        if question.once:
            return _once(source, question)
        recording = stack.enter_context(Recording(out))
        # The summary without figures and verdict, which `finish` adds.
        about = replace(UNJUDGED, source=source.name, not_watched=source.not_watched)
        patience = PATIENCE_SECONDS if question.timeout is None else question.timeout
        # Even a source that responds at once gives its next sample only after the interval.
        samples = partial(
            watch,
            source,
            out.talk,
            seconds=question.seconds,
            patience=patience + question.interval,
        )
        if question.after:
            return _command(question.after, samples, recording, about)
        # The time limit, the end of the process, Ctrl-C or SIGTERM ends the run.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with recording.live(), suppress(KeyboardInterrupt):
            recording.take(samples(process))
        command = process.command() if process else None
        recording.finish(replace(about, command=command))
        # `finish` has already printed the summary.
        return Reply()


def _best_source(nvml: StreamingChild, question: Question, out: Console) -> SampleSource:
    """The best source of samples: NVML, nvidia-smi, amdgpu's files, or the machine without a GPU.
    If it is not NVML, its `not_watched` says why, and so do the first line and the summary.

    Raises Unsatisfiable or Blocked if the user named a GPU and none can be watched.
    """
    from gpusetup.monitor.polled import open_amdgpu, open_nvidia_smi
    from gpusetup.monitor.sources import PolledSource, SourceEnded, open_nvml
    from gpusetup.probe.deadline import LIMIT_SECONDS

    try:
        return open_nvml(nvml, question.timeout or LIMIT_SECONDS, out.talk)
    except SourceEnded as problem:
        blocked, reasons = problem.blocked, [str(problem)]
    for open_source in (open_nvidia_smi, open_amdgpu):
        try:
            source = open_source(question.interval)
        except SourceEnded as problem:
            reasons.append(str(problem))
        else:
            source.not_watched = "; ".join(reasons)
            out.talk(
                f"Watching the GPUs with {source.name}, which shows neither their processes nor "
                f"their links ({source.not_watched})"
            )
            return source
    if question.gpu:
        # The third reason is about GPUs from AMD.
        message = f"No NVIDIA GPU can be watched ({'; '.join(reasons[:2])})"
        error = Blocked if blocked else Unsatisfiable
        raise error(message, hint="`gpusetup doctor` names the cause")
    source = PolledSource(question.interval)
    source.not_watched = "; ".join(reasons)
    out.talk(
        "Watching this machine's CPU, memory, disk and network: no NVIDIA GPU can be watched "
        f"({source.not_watched}); `gpusetup doctor` names the cause"
    )
    return source


def _choose_gpus(source: SampleSource, named: tuple[str, ...], out: Console) -> None:
    """Watch only the named GPUs or, if none is named, those that CUDA_VISIBLE_DEVICES allows."""
    from gpusetup.monitor.sources import VARIABLE, named_gpus, visible_gpus

    # The machine without a GPU has no first sample.
    gpus = source.first.gpus if source.first else ()
    variable = os.environ.get(VARIABLE)
    if named:
        source.watched = named_gpus(named, gpus)
    elif variable is not None and gpus:
        pci_order = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        source.watched, sentence = visible_gpus(variable, gpus, pci_order=pci_order)
        out.talk(sentence)


def _command(
    argv: tuple[str, ...],
    samples: Callable[..., Iterator[Sample]],
    recording: Recording,
    about: Summary,
) -> Reply:
    """Run the command while watching it (`samples`), and return its exit code."""
    from gpusetup.monitor.output import STDERR, STDOUT
    from gpusetup.monitor.session import Command

    recording.stream()
    # With `--json`, stdout is for the samples alone, unless they go to the file of `--output`.
    prints_samples = recording.out.json and not recording.out.output
    command = Command(argv, stdout_to=STDERR if prints_samples else STDOUT)
    try:
        recording.take(samples(command.tree, command))
    finally:  # however the watching ends, the command runs on, so wait for it
        code = command.exit_code()
    # A program may print the errors that it survives, so only a failed one has a last error.
    error = command.error() if code else None
    epochs = command.epochs.times()
    about = replace(about, command=argv, exit=code, error=error, epochs=epochs)
    recording.finish(about, to_stderr=True)
    return Reply(exit_code=code)


def _once(source: SampleSource, question: Question) -> Reply:
    """The reply with one sample of the GPUs or, without any, of the machine."""
    from gpusetup.monitor.host import HostSampler
    from gpusetup.monitor.sources import SourceEnded
    from gpusetup.probe.deadline import LIMIT_SECONDS
    from gpusetup.render.monitor import once

    try:
        sample = source.next(question.timeout or LIMIT_SECONDS)
    except (SourceEnded, TimeoutError) as problem:
        raise Blocked(f"No sample: {problem}", hint="`gpusetup doctor` names the cause") from None
    host = None if sample.gpus else HostSampler().sample()
    return Reply(replace(sample, host=host), once)


def _replay(file: str, question: Question, out: Console) -> Reply:
    """The reply with the verdict on a recording. Raises UsageError if it contains no sample."""
    from gpusetup.monitor.record import read_recording
    from gpusetup.monitor.summary import recorded_samples, summarise
    from gpusetup.render.monitor import summary_text

    recording = read_recording(file, question.interval)
    tally, recorded = recorded_samples(recording.documents)
    if not tally.samples:
        raise UsageError(f"{file} contains no samples")
    # nvidia-smi dmon prints no times, for example; a single sample needs none.
    if tally.samples > 1 and not any(sample.at for sample in tally.kept()):
        apart = f"{question.interval:g} s between samples"
        out.talk(f"{file} contains no times: assuming {apart} (`--interval`)")
    # A log of nvidia-smi has no summary that names its source.
    source = recorded.source or (recording.log.name if recording.log else None)
    about = replace(recorded, source=source, command=question.after or recorded.command)
    return Reply(summarise(tally, about), summary_text)
