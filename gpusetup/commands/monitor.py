"""`gpusetup monitor`: watches GPUs, alone or beside a command, and judges at the end."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpusetup.commands.common import add_shared, seconds, timeout_of
from gpusetup.errors import Blocked, Unsatisfiable, UsageError
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console
from gpusetup.system.processes import StreamingChild

if TYPE_CHECKING:
    from gpusetup.commands.monitor_recording import Recording
    from gpusetup.monitor.host import RunningProcess
    from gpusetup.monitor.session import Limits
    from gpusetup.monitor.sources import Source
    from gpusetup.monitor.summary import Story

SUMMARY = """Watches utilisation, memory, temperature, power and clocks of the NVIDIA GPUs. At the
end it prints the figures, one verdict (good, input-starved, launch-bound, communication-bound,
memory-bound, memory-tight, throttled, bursty, idle, uneven or cpu-bound), its evidence and the next
step. A command after `--` runs in this terminal, and its exit code is passed on; its CPU, memory
and DataLoader workers are watched too, and if it prints its epochs you get the seconds of one.
Without a GPU, the command and the machine are watched. With `--json` the command's output goes to
stderr."""
JSON = "print JSON: a line for every sample, the last one for the summary"

EXAMPLES = (
    "gpusetup monitor 60",
    "gpusetup monitor -- python train.py --config conf.yaml",
    "gpusetup monitor --json -- torchrun train.py > run.jsonl",
    "gpusetup monitor --csv run.csv -- python train.py",
    "gpusetup monitor --replay run.jsonl",
    "gpusetup monitor --demo",
)
FASTEST_SECONDS = 0.02
DEMO = Path(__file__).resolve().parent.parent / "data" / "monitor_demo.jsonl"
DEMO_COMMAND = ("python", "train.py", "--config", "conf/base.yaml")
DEMO_SECONDS = 0.1
"""Between two samples of the demonstration on a terminal."""


def configure(parser: ArgumentParser) -> None:
    parser.takes_command = True  # type: ignore[attr-defined]
    parser.usage = "gpusetup monitor [SECONDS] [options] [-- COMMAND ...]"
    add, how = parser.add_argument, parser.add_mutually_exclusive_group().add_argument
    long = "how long to watch (default: until Ctrl-C, or the end of the command)"
    add("seconds", nargs="?", type=length, default=0.0, metavar="SECONDS", help=long)
    how("--once", action="store_true", help="print one sample, without a verdict")
    apart, each = seconds(FASTEST_SECONDS, 86400), "time between samples (1)"
    add("--interval", type=apart, default=1.0, metavar="SECONDS", help=each)
    some = "only this GPU; repeatable (default: those of CUDA_VISIBLE_DEVICES)"
    add("--gpu", action="append", default=[], metavar="INDEX|UUID", help=some)
    there = "also watch this process and its children, until the process ends"
    how("--pid", type=int, metavar="PID", help=there)
    add_shared(parser, "--timeout")
    table = "also write every sample into this CSV file, for a spreadsheet"
    add("--csv", metavar="FILE", help=table)
    how(
        "--replay",
        metavar="FILE",
        help="judge a recording (of `--json` or `--csv`) or what nvidia-smi printed (its table, "
        "-q, dmon, a log of --query-gpu); the command after `--` says what ran in it",
    )
    demo = "show what a training's run looks like, on any machine: a composed recording is replayed"
    how("--demo", action="store_true", help=demo)


def length(text: str) -> float:
    """Seconds; a word here is most likely a command without its `--`."""
    try:
        return seconds(0, 366 * 86400)(text)
    except ArgumentTypeError:
        problem = f"{text!r} is no number of seconds; a command comes after `--`"
        raise ArgumentTypeError(problem) from None


def run(options: Namespace, out: Console) -> int:
    if options.after and (options.once or options.demo or options.pid is not None):
        raise UsageError(
            "`--once`, `--pid` and `--demo` run no command", hint="leave the command out"
        )
    if options.demo:
        options.replay, options.after = str(DEMO), DEMO_COMMAND
    if options.replay and (options.gpu or options.seconds or options.csv):
        raise UsageError(
            "`--replay` judges a recording: nothing is watched",
            hint="only `--json`, `--output`, `--interval` and, after `--`, the "
            "command that ran go with it",
        )
    return _replay(options, out) if options.replay else _watch(options, out)


def start_nvml(interval: float, count: int = 0) -> StreamingChild:
    """The child that samples NVML, in our own interpreter; `count` 0: until it is ended."""
    scripts = Path(__file__).resolve().parent.parent / "child_scripts"
    hold_back = str(scripts / "hold_back.py")
    read_nvml = str(scripts / "read_nvml.py")
    every = (f"{interval:g}", str(count))
    return StreamingChild((sys.executable, "-I", hold_back, read_nvml, *every))


class Watching(NamedTuple):
    """What one run of the command watches, and where it goes."""

    source: Source
    options: Namespace
    recording: Recording
    story: Story


def _watch(options: Namespace, out: Console) -> int:
    """Watch what can be watched: the child of NVML starts while the rest of us is imported."""
    nvml = start_nvml(options.interval, 1 if options.once else 0)
    from gpusetup.commands.monitor_recording import Recording
    from gpusetup.monitor.host import running_process
    from gpusetup.monitor.summary import Story

    # A process that is not there is refused before anything is waited for.
    process = None if options.pid is None else running_process(options.pid)
    if options.pid is not None and process is None:
        nvml.end()
        raise UsageError(f"No process {options.pid} can be seen", hint="`--pid` names one")
    with ExitStack() as stack:
        source = _best_source(nvml, options, out)
        stack.callback(source.close)
        _say_what_is_watched(source, options, out)
        _choose(source, options, out)
        if options.once:
            return _once(source, options, out)
        recording = stack.enter_context(Recording(out, options.csv))
        story = Story(source=source.name, not_watched=source.not_watched)
        watching = Watching(source, options, recording, story)
        if options.after:
            return _command(watching)
        return _until_ended(watching, process)


def _best_source(nvml: StreamingChild, options: Namespace, out: Console) -> Source:
    """NVML, else nvidia-smi, else the machine alone; `not_watched` says why it is not more.

    Raises Unsatisfiable or Blocked if a GPU was asked for and none can be watched.
    """
    from gpusetup.monitor.nvml import open_nvml
    from gpusetup.monitor.smi import open_nvidia_smi
    from gpusetup.monitor.sources import Machine, SourceEnded
    from gpusetup.probe.deadline import Deadline

    source: Source
    try:
        return open_nvml(nvml, Deadline(timeout_of(options), out.talk))
    except SourceEnded as problem:
        blocked, reason = problem.blocked, str(problem)
    try:
        source = open_nvidia_smi(options.interval)
    except SourceEnded as problem:
        reason += f"; {problem}"
        if options.gpu:
            kind = Blocked if blocked else Unsatisfiable
            message = f"No NVIDIA GPU can be watched ({reason})"
            raise kind(message, hint="`gpusetup doctor` names the cause") from None
        source = Machine(options.interval)
    source.not_watched = reason
    return source


def _say_what_is_watched(source: Source, options: Namespace, out: Console) -> None:
    """In the first line, if it is not everything; and why."""
    if source.name == "nvidia-smi":
        out.talk(
            "Watching the GPUs with nvidia-smi, which tells neither their processes nor their "
            f"links, because NVIDIA's library cannot be used ({source.not_watched})"
        )
    elif source.name == "machine":
        command = "the command's CPU, memory and data loader, and " if options.after else ""
        out.talk(
            f"Watching {command}this machine's CPU, memory, disk and network: no NVIDIA GPU can "
            f"be watched ({source.not_watched}); `gpusetup doctor` names the cause"
        )


def _until_ended(watching: Watching, process: RunningProcess | None) -> int:
    """Until the time is over or Ctrl-C, which is how one ends it (SIGTERM does the same)."""
    import signal

    from gpusetup.monitor.session import watch

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    recording = watching.recording
    tree = process.tree if process else None
    with recording.live(), suppress(KeyboardInterrupt):
        recording.take(watch(watching.source, recording.out.talk, _limits(watching), tree))
    command = process.command if process else None
    recording.finish(replace(watching.story, command=command), aside=False)
    return 0


def _command(watching: Watching) -> int:
    """A command runs whatever can be watched, and its exit code is ours."""
    from gpusetup.monitor.output import STDERR, STDOUT
    from gpusetup.monitor.session import Command, watch

    options, recording = watching.options, watching.recording
    recording.stream()
    argv = tuple(options.after)
    stdout_is_ours = options.json and not options.output
    command = Command(argv, stdout_to=STDERR if stdout_is_ours else STDOUT)
    try:
        recording.take(watch(watching.source, recording.out.talk, _limits(watching), command))
    finally:  # whatever ends the watching, it does not end the command
        code = command.exit_code()
    story = replace(watching.story, command=argv, exit_code=code, epochs=command.epochs())
    recording.finish(story)
    return code


def _limits(watching: Watching) -> Limits:
    """How long is watched, and how long a sample may take."""
    from gpusetup.monitor.session import Limits
    from gpusetup.monitor.sources import PATIENCE_SECONDS

    options = watching.options
    patience = PATIENCE_SECONDS if options.timeout is None else options.timeout
    return Limits(seconds=options.seconds, patience=float(patience + options.interval))


def _once(source: Source, options: Namespace, out: Console) -> int:
    from gpusetup.monitor.sources import SourceEnded

    try:
        sample = source.next(timeout_of(options))
    except (SourceEnded, TimeoutError) as problem:
        raise Blocked(f"No sample: {problem}", hint="`gpusetup doctor` names the cause") from None
    from gpusetup.monitor.host import Host
    from gpusetup.monitor.session import with_unified_memory
    from gpusetup.render.monitor import once

    host = Host().sample()
    gpus = tuple(with_unified_memory(gpu, host) for gpu in sample.gpus)
    # With a GPU the sample is that of the GPUs alone.
    return out.answer(replace(sample, gpus=gpus, host=None if gpus else host), once)


def _replay(options: Namespace, out: Console) -> int:
    from gpusetup.commands.monitor_recording import Recording
    from gpusetup.monitor.documents import Sample, Summary
    from gpusetup.monitor.record import read_recording
    from gpusetup.monitor.summary import story_of

    with Recording(out) as recording, ExitStack() as screen:
        recorded: Summary | None = None
        if options.demo:
            out.talk("A recording of another machine is shown; nothing is watched here.")
            screen.enter_context(recording.live())
        run = read_recording(options.replay, options.interval)
        for document in run.documents:
            if isinstance(document, Sample):
                recording.take([document])
                time.sleep(DEMO_SECONDS if options.demo and sys.stdout.isatty() else 0)
            else:
                recorded = document
        if not recording.tally.samples:
            raise UsageError(f"{options.replay} holds no sample")
        if not run.has_times and recording.tally.samples > 1:
            apart = f"{options.interval:g} s between its samples are assumed (`--interval`)"
            out.talk(f"{options.replay} tells no time: {apart}")
        screen.close()
        story = story_of(recorded)
        source = story.source or run.source
        command = tuple(options.after or ()) or story.command
        recording.finish(replace(story, source=source, command=command), aside=False)
    return 0


def _choose(source: Source, options: Namespace, out: Console) -> None:
    """Tell the source which GPUs; say so where that is not all of them."""
    from gpusetup.monitor.sources import VARIABLE, named_positions, visible_positions

    gpus = source.first.gpus if source.first else ()
    variable = os.environ.get(VARIABLE)
    if options.gpu:
        source.positions = named_positions(options.gpu, gpus)
    elif variable is not None and gpus:
        pci = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        source.positions, words = visible_positions(variable, gpus, pci_order=pci)
        out.talk(words)
