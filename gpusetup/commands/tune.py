"""`gpusetup tune`: adapts a training config to this machine, and finds the batch size that works by
running it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpusetup.commands.common import FROM, PYTHON, Machine, gather
from gpusetup.commands.question import CommandQuestion, HelpGroup, argument, number, option, switch
from gpusetup.commands.reply import Reply
from gpusetup.errors import INTERRUPTED, BadInput, Unsatisfiable, UsageError
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console
from gpusetup.tune.answer import TuneAnswer

if TYPE_CHECKING:
    from gpusetup.configs.config import Config
    from gpusetup.tune.case import Facts

SUMMARY = """Proposes changes to a training config for this machine, with a reason for every
change. It does not change the model, loss, data or effective batch size. If it adds mixed
precision, the results differ slightly. With --batch-size it measures which batch size fits."""
EXAMPLES = (
    "gpusetup tune train.yaml",
    "gpusetup tune train.yaml --in-place",
    'gpusetup tune train.yaml --gpu "RTX 4090"',
    "gpusetup tune train.yaml --batch-size --code train:build --max 64",
    "gpusetup tune train.yaml --benchmark --code train:build -o tuned.yaml",
)


class Question(CommandQuestion):
    config: str | None = argument("a YAML or JSON config", metavar="CONFIG")
    machine: Machine | None = FROM
    gpu: str | None = option(
        'tune the config for this GPU instead of this machine\'s, e.g. "RTX 4090"', metavar="NAME"
    )
    python: str | None = PYTHON

    _the_config = HelpGroup("the config")
    target: str | None = option(
        "write the tuned config to OUT", "-o", metavar="OUT", one_of="written"
    )
    in_place: bool = switch(
        "change CONFIG itself, and keep a copy of the previous file", one_of="written"
    )

    _measuring = HelpGroup("measuring")
    benchmark: bool = switch("measure the gain from AMP, batch size, workers and torch.compile")
    batch_size: bool = switch("find the batch size that fits")
    code: str | None = option(
        "a function that takes a batch size and returns a model and a batch, or a dict with "
        "'model', 'batch', 'loss', 'optimizer', 'dataset' (a Dataset or DataLoader)",
        metavar="MODULE:FUNCTION",
    )
    max: int | None = number("the largest batch size to try")
    device: str = option(
        "the device to measure on: auto, cpu, cuda or cuda:1", default="auto", metavar="NAME"
    )

    @property
    def measures(self) -> bool:
        """Whether the options request a measurement, which runs the user's code."""
        return self.benchmark or self.batch_size


def _check(question: Question) -> None:
    """Raise UsageError if options contradict each other."""
    config, code, measuring = question.config, question.code, question.measures
    rules = (
        (
            not config and (question.in_place or question.target or not measuring),
            "there is nothing to tune: add the path of a CONFIG",
        ),
        (measuring and question.machine, "gpusetup can only measure this machine: remove `--from`"),
        (measuring and question.gpu, "gpusetup can only measure this machine: remove `--gpu`"),
        (code and not measuring, "`--code` is for measuring: add `--batch-size` or `--benchmark`"),
        (measuring and not code, "measuring needs your code: add `--code MODULE:FUNCTION`"),
        (code and not all(code.rpartition(":")), f"`--code {code}` is not MODULE:FUNCTION"),
        (question.max is not None and question.max < 1, "`--max` must be at least 1"),
    )
    for wrong, problem in rules:
        if wrong:
            raise UsageError(problem, hint="`gpusetup tune --help` shows the options")


def run(question: Question, out: Console) -> Reply:
    """Run the requested measurements. If the user named a config, then propose changes to it."""
    _check(question)
    from gpusetup.render.tune import tune_screen
    from gpusetup.tune.case import Measured, facts_of, with_card

    config = _read(question.config) if question.config else None
    facts = None
    # The search for a batch size needs no facts about the machine.
    if config or question.benchmark:
        machine = gather(out, question.machine, question.python)
        if not question.machine:
            from gpusetup.probe.nvidia_smi import with_gpus_of_nvidia_smi
            from gpusetup.system.system import System

            # nvidia-smi tells the GPUs if NVML cannot be loaded.
            machine = with_gpus_of_nvidia_smi(machine, System())
        facts = facts_of(machine)
        if question.gpu:
            facts = with_card(facts, question.gpu)
    answer = _measure(question, out, config, facts) if question.measures else TuneAnswer()
    if config and facts:
        from gpusetup.tune.config_file import with_proposal
        from gpusetup.tune.measure import gains_by_role
        from gpusetup.tune.rules import propose

        measured = Measured(batch_size=answer.batch_size, is_faster=gains_by_role(answer.benchmark))
        proposal = propose(config, facts, measured)
        answer = replace(answer, device=answer.device or facts.gpu)
        target = config.name if question.in_place else question.target
        answer = with_proposal(answer, config, proposal, source=config.name, target=target)
    # Without a config, a search that finds no batch size has no answer.
    is_answered = config or answer.batch_size or answer.benchmark
    code = 0 if is_answered and not answer.cannot_fit else Unsatisfiable.exit_code
    screen = partial(tune_screen, config=question.config)
    return Reply(answer, screen, INTERRUPTED if answer.interrupted else code)


def _read(path: str) -> Config:
    """The config at this path. Raises BadInput if it has no setting that `tune` knows."""
    from gpusetup.configs.config import read_config
    from gpusetup.tune.case import known_settings
    from gpusetup.tune.config_file import read_bytes

    config = read_config(read_bytes(path), path)
    # Keys that only `plan` uses are no settings for `tune`.
    if all(key.plan for _, key in known_settings(config)):
        hint = "known settings are batch_size, num_workers, gradient_accumulation_steps, bf16, ..."
        raise BadInput(f"gpusetup knows none of the settings in {config.name}", hint=hint)
    return config


def _measure(
    question: Question, out: Console, config: Config | None, facts: Facts | None
) -> TuneAnswer:
    """Run the benchmark or search for the batch size, with the user's code."""
    from gpusetup.probe.target import choose_target
    from gpusetup.system.system import System
    from gpusetup.tune.bench import BenchJob
    from gpusetup.tune.measure import benchmark, search
    from gpusetup.tune.rules import worker_count

    job = BenchJob(
        code=question.code,
        device=question.device,
        python=choose_target(System(), question.python).python,
    )

    def say(measurement: str) -> None:
        out.talk(f"measuring {measurement} ...")

    if question.benchmark:
        assert facts is not None, "`run` reads the machine for a benchmark"
        workers, _ = worker_count(facts)
        return benchmark(job, say, config, workers=workers, largest=question.max)
    return search(job, say, config, largest=question.max)
