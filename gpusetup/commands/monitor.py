"""`gpusetup monitor`: watches GPUs, alone or beside a command, and judges at the end."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.common import add_shared, seconds, timeout_of
from gpusetup.errors import Blocked, Unsatisfiable, UsageError
from gpusetup.render.console import Console
from gpusetup.system.processes import StreamingChild

if TYPE_CHECKING:
    from gpusetup.commands.monitor_recording import Recording
    from gpusetup.monitor.nvml import Nvml

SUMMARY = """Watches utilisation, memory, temperature, power and clocks of the NVIDIA GPUs. At the
end it prints the figures, one verdict (good, input-starved, launch-bound, communication-bound,
memory-bound, memory-tight, throttled, bursty, idle or uneven), its evidence and the next step. A
command after `--` runs in this terminal, and its exit code is passed on; its CPU, memory and
DataLoader workers are watched too. With `--json` the command's output goes to stderr."""
JSON = "print JSON: a line for every sample, the last one for the summary"

EXAMPLES = (
    "gpusetup monitor 60",
    "gpusetup monitor -- python train.py --config conf.yaml",
    "gpusetup monitor --json -- torchrun train.py > run.jsonl",
    "gpusetup monitor --replay run.jsonl",
    "gpusetup monitor --demo",
)
FASTEST_SECONDS = 0.02
DEMO = Path(__file__).resolve().parent.parent / "data" / "monitor_demo.jsonl"
DEMO_COMMAND = ("python", "train.py", "--config", "conf/base.yaml")
DEMO_SECONDS = 0.1
"""Between two samples of the demonstration on a terminal."""
STDERR = 2
SOURCE = "nvml"


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
    how(
        "--replay",
        metavar="FILE",
        help="judge a recording (of `--json`, or a log of `nvidia-smi --query-gpu`); the command "
        "after `--` says what ran in it",
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
    if options.replay and (options.gpu or options.seconds):
        raise UsageError(
            "`--replay` judges a recording: nothing is watched",
            hint="only `--json`, `--output`, `--interval` and, after `--`, the "
            "command that ran go with it",
        )
    return _replay(options, out) if options.replay else _watch(options, out)


def start_nvml(interval: float, count: int = 0) -> StreamingChild:
    """The child that samples NVML, in our own interpreter; `count` 0: until it is ended."""
    scripts = Path(__file__).resolve().parent.parent / "child_scripts"
    hold_back, watch = (str(scripts / name) for name in ("hold_back.py", "read_nvml.py"))
    return StreamingChild((sys.executable, "-I", hold_back, watch, f"{interval:g}", str(count)))


def _watch(options: Namespace, out: Console) -> int:
    """The child starts while the rest of us is still being imported."""
    nvml = start_nvml(options.interval, 1 if options.once else 0)
    from gpusetup.commands.monitor_recording import Recording
    from gpusetup.monitor.nvml import SourceEnded, open_nvml
    from gpusetup.probe.deadline import Deadline

    source: Nvml | None = None
    with ExitStack() as stack:
        try:
            source = open_nvml(nvml, Deadline(timeout_of(options), out.talk))
        except SourceEnded as problem:
            if not options.after:  # no GPU that can be watched is a no
                kind = Blocked if problem.blocked else Unsatisfiable
                told = f"No NVIDIA GPU can be watched ({problem})"
                raise kind(told, hint="`gpusetup doctor` names the cause") from None
            out.talk(f"no GPU can be watched ({problem})")
        if source is not None:
            stack.callback(source.close)
            _choose(source, options, out)
            if options.once:
                return _once(source, options, out)
        recording = stack.enter_context(Recording(out))
        if options.after:
            return _command(source, options, recording)
        assert source is not None
        return _until_ended(source, options, recording)


def _until_ended(source: Nvml, options: Namespace, recording: Recording) -> int:
    """Until the time is over or Ctrl-C, which is how one ends it (SIGTERM does the same)."""
    import signal

    from gpusetup.monitor.host import running_process
    from gpusetup.monitor.session import watch

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found = (None, None) if options.pid is None else running_process(options.pid)
    if found is None:
        raise UsageError(f"No process {options.pid} can be seen", hint="`--pid` names one")
    tree, command = found
    with recording.live(), suppress(KeyboardInterrupt):
        length, late = options.seconds, _late(options)
        recording.take(watch(source, recording.out.talk, seconds=length, patience=late, tree=tree))
    recording.finish(source=SOURCE, command=command, aside=False)
    return 0


def _command(source: Nvml | None, options: Namespace, recording: Recording) -> int:
    """A command runs whatever can be watched, and its exit code is ours."""
    from gpusetup.monitor.session import Command, watch

    recording.stream()
    argv, aside = tuple(options.after), options.json and not options.output
    command = Command(argv, stdout=STDERR if aside else None)
    try:
        if source is not None:
            length, late = options.seconds, _late(options)
            recording.take(
                watch(source, recording.out.talk, seconds=length, patience=late, command=command)
            )
    finally:  # whatever ends the watching, it does not end the command
        code = command.exit_code()
    recording.finish(source=SOURCE if source else None, command=argv, exit_code=code)
    return code


def _late(options: Namespace) -> float:
    """How long a sample may take."""
    from gpusetup.monitor.nvml import PATIENCE_SECONDS

    return float((options.timeout or PATIENCE_SECONDS) + options.interval)


def _once(source: Nvml, options: Namespace, out: Console) -> int:
    from gpusetup.monitor.nvml import SourceEnded

    try:
        sample = source.next(timeout_of(options))
    except (SourceEnded, TimeoutError) as problem:
        raise Blocked(f"No sample: {problem}", hint="`gpusetup doctor` names the cause") from None
    from gpusetup.render.monitor import once

    return out.answer(sample, once)


def _replay(options: Namespace, out: Console) -> int:
    from gpusetup.commands.monitor_recording import Recording
    from gpusetup.monitor.documents import Sample
    from gpusetup.monitor.record import read_recording

    with Recording(out) as recording, ExitStack() as screen:
        told = None
        if options.demo:
            out.talk("A recording of another machine is shown; nothing is watched here.")
            screen.enter_context(recording.live())
        read = read_recording(options.replay, options.interval)
        if not read.has_times:
            said = f"{options.replay} tells no time: {options.interval:g} s between its samples"
            out.talk(f"{said} are assumed (`--interval`)")
        for document in read.documents:
            if isinstance(document, Sample):
                recording.take([document])
                time.sleep(DEMO_SECONDS if options.demo and sys.stdout.isatty() else 0)
            else:
                told = document
        if not recording.tally.samples:
            raise UsageError(f"{options.replay} holds no sample")
        screen.close()
        recording.finish(
            source=told.source if told else read.source,
            command=tuple(options.after or ()) or (told.command if told else None),
            exit_code=told.exit if told else None,
            aside=False,
        )
    return 0


def _choose(source: Nvml, options: Namespace, out: Console) -> None:
    """Tell the source which GPUs; say so where that is not all of them."""
    from gpusetup.monitor.nvml import VARIABLE, named_places, visible_places

    gpus = source.first.gpus if source.first else ()
    variable = os.environ.get(VARIABLE)
    if options.gpu:
        source.places = named_places(options.gpu, gpus)
    elif variable is not None:
        pci = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        source.places, said = visible_places(variable, gpus, pci_order=pci)
        out.talk(said)
