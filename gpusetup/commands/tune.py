"""`gpusetup tune`: a training config for this machine, and the batch size that really runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING

from gpusetup.commands.common import add_shared, gather
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console
from gpusetup.tune.answer import TuneAnswer
from gpusetup.tune.presets import LIST, PRESETS, spelled

if TYPE_CHECKING:
    from gpusetup.configs.config import Config
    from gpusetup.model.machine import Snapshot
    from gpusetup.tune.case import Facts, Measured, Proposal

SUMMARY = (
    "Proposes changes of a training config for this machine: a diff, with a reason and a source "
    "for every line. The model, the loss, the data and the effective batch stay; mixed precision "
    "rounds otherwise. With --batch-size it measures which batch fits."
)
EXAMPLES = (
    "gpusetup tune train.yaml",
    "gpusetup tune train.yaml --in-place",
    "gpusetup tune --preset balanced -o train.yaml",
    "gpusetup tune train.yaml --batch-size --code train:build --max 64",
    "gpusetup tune train.yaml --benchmark --code train:build -o tuned.yaml",
)
INTERRUPTED = 130


def configure(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("config", nargs="?", metavar="CONFIG", help="a YAML, JSON, TOML or Python config")
    add_shared(parser, "--from", "--python")
    group = parser.add_argument_group("the config")
    preset = "print a config to start from, or write it with -o; `list` shows the presets"
    names = (LIST, *(row.name for row in PRESETS))
    group.add_argument("--preset", type=spelled, choices=names, metavar="NAME", help=preset)
    add = group.add_mutually_exclusive_group().add_argument
    add("-o", dest="target", metavar="OUT", help="write the tuned config, or the preset, to OUT")
    own = "change CONFIG itself; the previous one is kept"
    add("--in-place", action="store_true", help=own)
    group = parser.add_argument_group("measuring")
    add = group.add_argument
    gain = "measure the gain of AMP, batch, workers and compile"
    add("--benchmark", action="store_true", help=gain)
    add("--batch-size", action="store_true", help="find the batch size that fits")
    makes = (
        "a function that takes a batch size and returns model and batch, or a dict with 'model', "
        "'batch', 'loss', 'optimizer', 'dataset' (a Dataset or DataLoader)"
    )
    add("--code", metavar="MODULE:FUNCTION", help=makes)
    add("--max", type=int, metavar="N", help="the largest size to try")
    grow = "write a larger batch that ran, although it changes the experiment"
    add("--grow-batch", action="store_true", help=grow)
    add("--gpu-mem", type=_size, metavar="8GiB", help="use no more memory than this")
    goal = "the largest, or the fastest"
    add("--objective", choices=("fit", "speed"), default="fit", help=goal)
    add("--amp", choices=("bf16", "fp16"), help="train with mixed precision")
    add_shared(group, "--device", help="auto, cpu, cuda, cuda:1")


def _size(text: str) -> int:
    from gpusetup.plan.place import memory_size

    return memory_size(text)


def _check(options: Namespace) -> None:
    """`UsageError` for questions that contradict themselves."""
    config, measuring = options.config, options.benchmark or options.batch_size
    code, writes = options.code, options.in_place or options.target
    rules = (
        (
            not config and (writes or not measuring),
            "there is nothing to tune: name a CONFIG, or start from a preset with `--preset list`",
        ),
        (measuring and options.machine_from, "another machine cannot be measured: remove `--from`"),
        (code and not measuring, "`--code` is measured: add `--batch-size` or `--benchmark`"),
        (
            options.grow_batch and not (config and measuring),
            "`--grow-batch` writes a batch that ran: it needs a CONFIG, and `--batch-size` or"
            " `--benchmark`",
        ),
        (measuring and not code, "measuring needs your code: add `--code MODULE:FUNCTION`"),
        (code and not all(code.rpartition(":")), f"`--code {code}` is not MODULE:FUNCTION"),
        (options.max is not None and options.max < 1, "`--max` is at least 1"),
    )
    for wrong, problem in rules:
        if wrong:
            raise UsageError(problem, hint="`gpusetup tune --help` shows what it takes")


def run(options: Namespace, out: Console) -> int:
    """Measure what is to be measured, then propose for the config, if there is one."""
    if options.preset:
        from gpusetup.commands.tune_preset import run_preset

        return run_preset(options, out)
    _check(options)
    from gpusetup.render.tune import tune_screen
    from gpusetup.tune.case import facts_of

    config = _read(options.config) if options.config else None
    facts = facts_of(_machine(options, out)) if config or options.benchmark else None
    answer, measured = TuneAnswer(), None
    if options.benchmark or options.batch_size:
        answer, measured = _measure(options, out, config, facts)
    if config and facts:
        from gpusetup.tune.rules import NOTHING_MEASURED, propose

        proposal = propose(config, facts, measured or NOTHING_MEASURED)
        answer = replace(answer, device=answer.device or facts.gpu)
        answer = _written(options, answer, config, proposal)
    is_answered = config or answer.batch_size or answer.benchmark
    code = out.answer(
        answer,
        partial(tune_screen, config=options.config),
        yes=bool(is_answered) and not answer.cannot_fit,
    )
    return INTERRUPTED if answer.interrupted else code


def _read(path: str) -> Config:
    """The config at this path, with at least one setting that `tune` knows."""
    from gpusetup.configs.config import read_config
    from gpusetup.tune.case import known_settings
    from gpusetup.tune.config_file import read_bytes

    config = read_config(read_bytes(path), path)
    if all(key.plan for _, key in known_settings(config)):
        known_names = "known are batch_size, num_workers, gradient_accumulation_steps, bf16, ..."
        raise BadInput(f"{config.name} has no setting that is known", hint=known_names)
    return config


def _machine(options: Namespace, out: Console) -> Snapshot:
    """The machine that the options name; this one also by nvidia-smi, if NVML does not load."""
    machine = gather(options, out)
    if options.machine_from:
        return machine
    from gpusetup.probe.nvidia_smi import with_gpus_of_nvidia_smi
    from gpusetup.system.system import System

    return with_gpus_of_nvidia_smi(machine, System())


def _written(
    options: Namespace, answer: TuneAnswer, config: Config, proposal: Proposal
) -> TuneAnswer:
    """The answer with what changes in the config, written if that was asked for."""
    from gpusetup.configs.config import edited
    from gpusetup.tune.answer import difference
    from gpusetup.tune.config_file import write_tuned

    tuned, written_to = edited(config, proposal.edits), None
    if options.target or options.in_place:
        written_to = write_tuned(options.config, options.target, config.raw, tuned.raw)
    return replace(
        answer,
        changes=proposal.changes,
        cannot_fit=proposal.cannot_fit,
        recommendations=(*answer.recommendations, *proposal.words),
        diff=difference(config.name, config.text, tuned.text),
        written=written_to,
    )


def _measure(
    options: Namespace, out: Console, config: Config | None, facts: Facts | None
) -> tuple[TuneAnswer, Measured]:
    from gpusetup.probe.target import choose_target
    from gpusetup.render.tune import measuring
    from gpusetup.system.system import System
    from gpusetup.tune.baseline import DEFAULT_BASELINE, MeasureRequest, baseline_of
    from gpusetup.tune.bench import BenchJob
    from gpusetup.tune.measure import measure
    from gpusetup.tune.rules import worker_count

    job = BenchJob(
        code=options.code,
        amp=options.amp,
        device=options.device,
        memory_limit_bytes=options.gpu_mem,
        python=choose_target(System(), options.python).python,
    )
    request = MeasureRequest(
        benchmark=options.benchmark,
        job=job,
        finds_fastest=options.objective == "speed",
        largest=options.max,
        grows=options.grow_batch,
        workers=worker_count(facts)[0] if facts else 0,
    )
    baseline = baseline_of(config) if config else DEFAULT_BASELINE
    return measure(request, partial(measuring, out.talk), baseline)
