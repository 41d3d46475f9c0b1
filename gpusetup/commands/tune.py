"""`gpusetup tune`: a training config for this machine, and the batch size that really runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup import named_file
from gpusetup.commands.common import add_machine_options, gather
from gpusetup.errors import BadInput, Unsatisfiable, UsageError
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.tune.measure import Asked

SUMMARY = (
    "Proposes changes of a training config for this machine: a diff, with a reason and a source "
    "for every line. It never writes a change that could alter your results. With --batch-size it "
    "measures which batch fits."
)
EXAMPLES = (
    "gpusetup tune train.yaml",
    "gpusetup tune train.yaml --in-place",
    "gpusetup tune --preset balanced -o train.yaml",
    "gpusetup tune --batch-size --code train:build --objective speed",
    "gpusetup tune train.yaml --benchmark --code train:build -o tuned.yaml",
)
REFERENCES = ("conv", "lstm", "transformer", "gpt2")
PRESETS = ("top", "balanced", "saving", "rtx-4090", "rtx-4080", "rtx-4070", "gtx-1080")
INTERRUPTED = 130


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "config", nargs="?", metavar="CONFIG", help="a YAML, JSON, TOML or Python config"
    )
    add_machine_options(parser)
    _write_options(parser)
    _measure_options(parser)


def _write_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("the config")
    group.add_argument(
        "-o", dest="target", metavar="OUT", help="write the tuned config to this file"
    )
    group.add_argument(
        "--in-place", action="store_true", help="change CONFIG itself; the previous one is kept"
    )
    group.add_argument("--preset", choices=PRESETS, help="print a config to start from (no CONFIG)")


def _measure_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "--benchmark",
        action="store_true",
        help="measure the gain of AMP, batch, workers and compile",
    )
    group.add_argument("--batch-size", action="store_true", help="find the batch size that fits")
    group.add_argument(
        "--code",
        metavar="MODULE:FUNCTION",
        help="makes model and batch for a batch size, or {'model', 'batch', 'dataset', ...}",
    )
    group.add_argument("--reference", choices=REFERENCES, help="measure a built-in model instead")
    group.add_argument("--max", type=int, metavar="N", help="the largest size to try")
    group.add_argument("--gpu-mem", type=_size, metavar="8GiB", help="use no more memory than this")
    group.add_argument(
        "--objective", choices=("fit", "speed"), default="fit", help="the largest, or the fastest"
    )
    group.add_argument("--amp", choices=("bf16", "fp16"), help="train with mixed precision")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")


def _size(text: str) -> int:
    from gpusetup.plan.capacity import size

    return size(text)


def run(options: Namespace, out: Console) -> int:
    _check(options)
    if options.preset:
        return _preset(options, out)
    if not options.config:
        return _batch_only(options, out)
    return _config(options, out)


def _check(options: Namespace) -> None:
    """`UsageError` for questions that contradict themselves."""
    measuring = options.benchmark or options.batch_size
    rules = (
        (
            options.preset and (options.config or measuring or options.in_place),
            "`--preset` starts a new file: write it with `-o FILE`, then tune that one",
        ),
        (
            not options.config and not measuring and not options.preset,
            "there is nothing to tune: name a CONFIG",
        ),
        (options.target and options.in_place, "`-o` and `--in-place` exclude each other"),
        (
            bool(options.target or options.in_place) and not (options.config or options.preset),
            "there is no CONFIG",
        ),
        (options.code and options.reference, "`--code` and `--reference` exclude each other"),
        (measuring and options.machine_from, "another machine cannot be measured: remove `--from`"),
        (
            (options.code or options.reference) and not measuring,
            "`--code` is measured: add `--batch-size` or `--benchmark`",
        ),
        (
            options.batch_size and not (options.code or options.reference),
            "`--batch-size` needs `--code MODULE:FUNCTION` (or `--reference`)",
        ),
        (
            options.code and not all(options.code.rpartition(":")),
            f"`--code {options.code}` is not MODULE:FUNCTION",
        ),
        (options.max is not None and options.max < 1, "`--max` is at least 1"),
    )
    for wrong, said in rules:
        if wrong:
            raise UsageError(said, hint="`gpusetup tune --help` shows what it takes")


def _preset(options: Namespace, out: Console) -> int:
    """A file to start from: shown, or written where no file stands yet."""
    from gpusetup.tune.answer import TuneAnswer
    from gpusetup.tune.files import write_bytes

    text = named_file.shipped(f"presets/{options.preset}.yaml").decode()
    if options.target:
        if named_file.is_there(options.target):
            raise BadInput(f"{options.target} is there already", hint="name another `-o FILE`")
        write_bytes(options.target, text.encode())
    told = f"Written to {options.target}\n" if options.target else text
    out.answer(TuneAnswer(preset=text, written=options.target), told)
    return 0


def _asked(options: Namespace) -> Asked:
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System
    from gpusetup.tune.bench import Job
    from gpusetup.tune.measure import Asked

    job = Job(
        code=options.code,
        reference=options.reference,
        amp=options.amp,
        device=options.device,
        memory_limit_bytes=options.gpu_mem,
        python=choose_target(System(), options.python).python,
    )
    return Asked(
        benchmark=options.benchmark,
        job=job,
        speed=options.objective == "speed",
        most=options.max,
    )


def _batch_only(options: Namespace, out: Console) -> int:
    from gpusetup.render.tune import measuring, tune_screen
    from gpusetup.tune.measure import measure

    answer, _ = measure(_asked(options), partial(measuring, out.talk))
    out.answer(answer, None if out.json else tune_screen(answer))
    if answer.interrupted:
        return INTERRUPTED
    return 0 if answer.batch_size or answer.benchmark else Unsatisfiable.exit_code


def _config(options: Namespace, out: Console) -> int:
    from gpusetup.configs.config import changed, read_config
    from gpusetup.render.tune import measuring, tune_screen
    from gpusetup.tune.answer import TuneAnswer, difference
    from gpusetup.tune.case import Option, facts_of, meant
    from gpusetup.tune.files import read_bytes, write_tuned
    from gpusetup.tune.rules import propose

    raw = read_bytes(options.config)
    config = read_config(raw, Path(options.config).name)
    facts, option, answer = facts_of(gather(options, out)), Option(), TuneAnswer()
    if all(key.plan for _, key in meant(config)):
        known = "known are batch_size, num_workers, gradient_accumulation_steps, bf16, ..."
        raise BadInput(f"{config.name} has no setting that is known", hint=known)
    if options.benchmark or options.batch_size:
        from gpusetup.tune.measure import measure, start_of

        showing = partial(measuring, out.talk)
        answer, option = measure(_asked(options), showing, start_of(config))
    proposal = propose(config, facts, option)
    tuned, written_to = changed(config, proposal.edits), None
    if options.target or options.in_place:
        written_to = write_tuned(options.config, options.target, raw, tuned.raw)
    answer = replace(
        answer,
        changes=proposal.changes,
        cannot_fit=proposal.cannot_fit,
        recommendations=proposal.words,
        diff=difference(config.name, config.text, tuned.text),
        written=written_to,
        device=answer.device or facts.gpu,
    )
    out.answer(answer, None if out.json else tune_screen(answer, config=options.config))
    if answer.interrupted:
        return INTERRUPTED
    return Unsatisfiable.exit_code if answer.cannot_fit else 0
