"""The main program: reads options, runs the checks in order, and writes the report."""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
import traceback
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from .again import should_try_again, try_again
from .answer.junit import as_junit
from .answer.render import as_json, as_text
from .answer.screen import Live, complain, write
from .checks.table import chosen_rows, on_device, refuse_unknown
from .child import Child, ChildTask
from .device.devices import devices_to_test
from .ending import Ended, ended_by_signals
from .judging.expect import NAMES, judge
from .options import Options, read_options
from .ranks.gathering import Hub, Spoke, as_message, merged, send
from .ranks.launch import Rank, rank_in
from .streams import ELSEWHERE, Unwritten, discard, open_closed_streams
from .values import (
    CRASHED,
    FAILED,
    HOST,
    NO_ANSWER,
    NOT_ASKED,
    PASSED,
    SKIPPED,
    WRONG,
    Check,
    Outcome,
    Report,
    ReportBlocked,
    Result,
    Row,
    Stop,
    kind,
    verdict,
)

MOST_SILENT = 2
"""After this many checks in a row without an answer, the device's other checks are skipped."""


def main(words: Sequence[str]) -> int:
    """Run the program. Returns exit code 0 for passed, 1 for failed, 2 for wrong options, 3 for a
    report that cannot be written, 5 for an internal error, or 128 plus a signal."""
    open_closed_streams()
    streams: Tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        # A terminal may be unable to show a character, such as one of a GPU's name.
        stream.reconfigure(errors="replace")
    try:
        with ended_by_signals():
            options = read_options(words)
            # Names that do not exist end the program before any check runs.
            refuse_unknown((*options.for_checks.only, *options.skip))
            rank = rank_in(os.environ)
            return run_as_rank(options, rank) if rank else run_alone(options)
    except Stop as stop:
        # The words, because the options may be what could not be read.
        return complain(stop, "--json" in words)
    except BrokenPipeError:  # the reader has gone, so no report reached it
        discard(sys.stdout)
        return ReportBlocked.exit_code
    except Unwritten as problem:
        return complain(ReportBlocked(str(problem), ELSEWHERE), as_document=False)
    except Ended as ended:
        # Before the first check there is nothing to report; with several ranks, rank 0 names those
        # that are missing.
        return 128 + ended.number
    except Exception as problem:  # an error in gpusetup says nothing about a GPU
        if "-v" in words or "--verbose" in words:
            traceback.print_exc()
        message = f"verify itself failed: {type(problem).__name__}: {problem}"
        own_fault = Stop(message, "`-v` shows where; please report it")
        return complain(own_fault, "--json" in words)


def run_alone(options: Options) -> int:
    """Run the checks in a single process. If a signal ends it, the results so far count."""
    for path in (options.junit, options.output):
        # Open the file first, so that a user does not wait minutes to hear that it fails. Appending
        # nothing keeps what an earlier run wrote.
        if path:
            write("", path, "a")
    run = Run(options, Child(options.verbose, options.for_checks))
    exit_code_of_signal = 0
    try:
        run.all()
    except Ended as ended:
        exit_code_of_signal = 128 + ended.number
        name = signal.Signals(ended.number).name
        detail = f"ended by {name}; verify did not run the remaining checks"
        run.results.append(Result("run", HOST, Outcome(CRASHED, detail)))
    finally:
        run.child.end()
    exit_code = write_report(run.report(), options)
    return exit_code_of_signal or exit_code


def run_as_rank(options: Options, rank: Rank) -> int:
    """Run the checks of one rank. Rank 0 merges the reports of all, writes the result, and tells
    the other ranks the exit code."""
    link = Hub(rank) if rank.rank == 0 else Spoke(rank)
    run = Run(options, Child(options.verbose, options.for_checks), rank, link)
    try:
        run.all()
        # The child of rank 0 may hold the store that all ranks use, so it ends last.
        others = link.exchange_reports(as_message(run.report()))
    finally:
        run.child.end()
    # Only rank 0 writes the report; the others exit with its code.
    if isinstance(link, Spoke):
        return link.exit_code()
    try:
        return link.finish(write_report(merged(run.report(), others, rank), options))
    except Stop as stop:
        link.finish(stop.exit_code)
        raise


def write_report(report: Report, options: Options) -> int:
    """Write the report in every form that the options request, and return the exit code."""
    if options.junit:
        write(as_junit(report), options.junit)
    write(as_json(report) if options.json else as_text(report, options.verbose), options.output)
    return 0 if verdict(report) == PASSED else 1


class Run:
    """One run through the table of checks: the facts known so far, and the results in order."""

    def __init__(
        self, options: Options, child: Any, rank: Optional[Rank] = None, link: Any = None
    ) -> None:
        self.options, self.child, self.rank, self.link = options, child, rank, link
        self.facts: Row = {
            "seed": options.for_checks.seed,
            "devices": [],
            "python": platform.python_version(),
        }
        self.rows = chosen_rows(options.for_checks.level, options.for_checks.only, options.skip)
        self.results: List[Result] = []
        self.end = time.monotonic() + (options.timeout or float("inf"))
        """The time at which `--timeout` ends the run."""
        self.is_late = False
        """Whether a check had not begun, or not finished, when the time ran out."""
        self.silent: Dict[str, int] = {}
        """Device -> how many of its last checks in a row gave no answer."""
        self.stopped: Dict[str, str] = {}
        """Device -> why its remaining checks are skipped."""
        # If there are several ranks, only the first shows progress, because they share a terminal.
        self.live = Live(rank is None or rank.rank == 0)

    def report(self) -> Report:
        """The report of the results so far."""
        options = self.options
        return Report(options.device, options.strict, self.facts, tuple(self.results))

    def all(self) -> None:
        """Run every check, with a progress line on a terminal."""
        with self.live:
            self._run_checks()
        for expectation in self.options.expect:
            # An expectation about a value that no check could determine is skipped, not failed.
            skipped = blocked(NAMES[expectation.name].needs, None, self.results)
            outcome = skipped or judge(expectation, self.facts)
            self.results.append(Result("expect", HOST, outcome))
        if self.is_late:
            detail = f"--timeout {self.options.timeout:g}: not every check was finished"
            outcome = Outcome(FAILED, detail, problem=NOT_ASKED)
            self.results.append(Result("timeout", HOST, outcome))

    def _run_checks(self) -> None:
        """Run the checks of the host, each device, and all ranks together."""
        wanted = self.options.device
        for check in self._checks_on(f"{HOST}:{kind(wanted)}"):
            self._run_or_skip(check, HOST, wanted)
        devices = self._devices(wanted)
        table = [(check, device) for device in devices for check in self._checks_on(device)]
        self.live.check_count = len(self.results) + len(table)
        for check, device in table:
            self._run_or_skip(check, device, device)
        if self.rank:
            # There is no device only for `--device none`; the ranks then meet on the CPU.
            self._run_among_ranks(self.rank, devices[0] if devices else "cpu")

    def _devices(self, wanted: str) -> Tuple[str, ...]:
        """The devices to run checks on."""
        devices = devices_to_test(wanted, tuple(self.facts.get("seen", ())))
        # A rank tests the GPU with its local index or, if Slurm shows each task a single GPU, that.
        if self.rank and devices:
            devices = (devices[self.rank.local % len(devices)],)
        # If torch finds no GPU, its checks still appear in the report, as skipped ones.
        if not devices and wanted != "none":
            return ("cuda" if wanted == "auto" else wanted,)
        return devices

    def _checks_on(self, device: str) -> Iterator[Check]:
        """The checks of a device that are wanted, and make sense on this machine and rank."""
        for check in on_device(self.rows, device):
            # This check needs the whole CPU, which the ranks on one machine share.
            if check.name == "speed-over-cpu" and self.rank:
                continue
            # A check that uses all GPUs of a machine runs on only its first rank.
            is_later_rank = self.rank is not None and self.rank.local > 0
            if check.least_gpus and is_later_rank:
                continue
            if self.facts.get("gpus", 0) >= check.least_gpus:
                yield check

    def _run_among_ranks(self, rank: Rank, device: str) -> None:
        """Run what all ranks do together, as long as all of them arrive and stay in step."""
        all_ranks = f"{rank.world} ranks"
        stopped = ""
        for check in self._checks_on(f"ranks:{kind(device)}"):
            # The parent processes meet first, so that torch does not wait for a missing rank.
            if not stopped:
                stopped = self.link.meet_at(check.name, self.stopped.get(all_ranks, ""))
            if stopped:
                self.stopped[all_ranks] = stopped
            self._run_or_skip(check, all_ranks, device)

    def _run_or_skip(self, check: Check, device: str, subject: str) -> None:
        """Run a check on `subject`, or skip it because of an earlier result or lack of time."""
        self.live.begin_check(check.name, device)
        skipped = blocked(check.needs, device, self.results)
        # If a device hangs, every further check would take its whole limit.
        if skipped is None and device in self.stopped:
            skipped = Outcome(SKIPPED, self.stopped[device])
        if skipped:
            self.results.append(Result(check.name, device, skipped))
            return
        seconds_left = self.end - time.monotonic()
        if seconds_left <= 0:
            self.is_late = True
            return
        # Rank 0 knows what it is doing itself; the others tell it.
        if self.rank and self.rank.rank:
            send(self.link.link, {"doing": check.name})
        limit = check.limit_seconds + (self.options.for_checks.seconds if check.lasts else 0.0)
        # Set the rank's variables for every check, because the process has already loaded torch
        # when it meets the other ranks.
        variables = self.rank.environment if self.rank else ()
        task = ChildTask(check, subject, limit, seconds_left, variables_of_rank=variables)
        answer = self.child.run(task)
        if should_try_again(check, device, answer) and time.monotonic() < self.end:
            answer = try_again(self.child, task, answer)
        self._record(check, device, answer)

    def _record(self, check: Check, device: str, answer: Row) -> None:
        """Store a check's outcome and facts, and stop the device's later checks if it hangs."""
        outcome = Outcome(**answer["outcome"])
        facts = outcome.facts or {}
        # The check `properties` describes the device for the report.
        if "device" in facts:
            self.facts["devices"].append(facts.pop("device"))
        self.facts.update(facts)
        if outcome.status in (FAILED, CRASHED):
            outcome = outcome._replace(hint=outcome.hint or check.then or None)
        # A check that crashed gave no answer, so `means`, for example that the device computes
        # wrong numbers, does not apply.
        means = check.means if outcome.status == FAILED else None
        self.results.append(Result(check.name, device, outcome, answer["seconds"], means))
        # `--timeout` ended the check before it answered.
        if outcome.status == SKIPPED and time.monotonic() >= self.end:
            self.is_late = True
        # The host is no device that can hang.
        is_silent = outcome.detail.startswith(NO_ANSWER) and device != HOST
        self.silent[device] = self.silent.get(device, 0) + 1 if is_silent else 0
        if self.silent[device] >= MOST_SILENT:
            self.stopped[device] = f"{MOST_SILENT} checks gave no answer: the device hangs"
        # Unless it only got wrong numbers, this rank may have left a collective before the others.
        is_bad = outcome.status in (FAILED, CRASHED) and outcome.problem != WRONG
        if is_bad and device.endswith(" ranks"):
            self.stopped[device] = f"the ranks are out of step since {check.name}"
        if outcome.spent:
            self.child.end()


def blocked(
    needs: Tuple[str, ...], device: Optional[str], results: Sequence[Result]
) -> Optional[Outcome]:
    """The skipped outcome of a check if one that it needs did not pass on this device or the host
    (if `device` is None, on any device); None if the check can run."""
    for result in results:
        is_about_device = device is None or result.device in (device, HOST)
        status = result.outcome.status
        if result.name not in needs or not is_about_device or status == PASSED:
            continue
        # If the needed check was skipped itself, its own reason tells more.
        if status == SKIPPED:
            return Outcome(SKIPPED, result.outcome.detail)
        return Outcome(SKIPPED, f"needs {result.name}, which {status}")
    return None
