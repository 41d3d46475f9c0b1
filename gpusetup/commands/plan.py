"""`gpusetup plan`: does a training workload fit on these GPUs, and with which recipe."""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.commands.common import add_machine_options, gather
from gpusetup.commands.plan_options import (
    answer_options,
    how_options,
    what_options,
    where_options,
)
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.model.documents import PlanCell
    from gpusetup.plan.answer.cell import Asked
    from gpusetup.plan.answer.place import Place
    from gpusetup.plan.answer.question import Question
    from gpusetup.plan.memory.constants import Constants
    from gpusetup.plan.model.workload import Workload

SUMMARY = (
    "Says whether a training workload fits on these GPUs, with which recipe and by what margin. "
    "GPUs are the trainer's; without a GPU's name, this machine's are meant."
)
EXAMPLES = (
    'gpusetup plan --model qwen3-8b --context 32768 --gpu "A100 80GB" --gpus 4',
    "gpusetup plan --params 124M --batch 2048 --gpus 8 --gpu-mem 8GiB --strategy ddp",
    "gpusetup plan --model path/to/config.json --gpu H200 --gpus 8 --max-context",
    "gpusetup plan --code train:build --batch 32 --amp bf16 --gpu-mem 24GiB",
    'gpusetup plan --from-config train.yaml --gpu "RTX 4090"',
    'gpusetup plan --serve vllm --model qwen3-32b --context 32768 --batch 8 --gpu "H100 SXM5"',
)
RENAMED = {
    "tokens": "max_tokens", "tensor_parallel": "tp", "pipeline_parallel": "pp",
    "context_parallel": "cp", "expert_parallel": "ep", "sequence_parallel": "tp_sp",
    "trained_embeddings": "train_embeddings",
}  # fmt: skip
"""Fields of a question -> the options that fill them."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_machine_options(parser, python=False)
    what_options(parser)
    where_options(parser)
    how_options(parser)
    answer_options(parser)


def run(options: argparse.Namespace, out: Console) -> int:
    _check_modes(options)
    if options.serve:
        from gpusetup.commands.plan_serve import run_serve

        return run_serve(options, out, _place(options, out))
    if options.weights or options.cache:
        raise UsageError("`--weights` and `--cache` are about serving: add `--serve`")
    if options.code:
        from gpusetup.commands.plan_code import run_code

        return run_code(options, out, _place(options, out), _constants(options))
    if options.calibrate:
        return _calibrate(options, out)
    if options.cells:
        return _cells(options, out)
    asked, workload = _asked(options, out)
    if options.table or options.png:
        return _grid(options, out, asked, workload)
    return _one(options, out, asked, workload)


def _one(options: argparse.Namespace, out: Console, asked: Asked, w: Workload) -> int:
    from gpusetup.plan.answer.cell import answer
    from gpusetup.plan.answer.decide import decide
    from gpusetup.plan.answer.solve import solve

    decision = solve(w, asked.case, options.solve) if options.solve else decide(w, asked.case)
    found = answer(decision, asked)
    if options.format == "yaml":
        from gpusetup.commands.plan_yaml import settings

        out.text(settings(found, decision, asked))
    else:
        from gpusetup.render.plan import plan_text

        out.answer(_document(found), lambda: plan_text(found, out.width))
    return 0 if found.fits else Unsatisfiable.exit_code


def _document(found: PlanCell) -> object:
    from gpusetup.model.documents import PlanAnswer
    from gpusetup.model.frozen import fields

    return PlanAnswer(**{field.name: getattr(found, field.name) for field in fields(found)})


def _grid(options: argparse.Namespace, out: Console, asked: Asked, w: Workload) -> int:
    from gpusetup.model.documents import PlanCellsAnswer
    from gpusetup.plan.answer.grid import grid
    from gpusetup.render.plan import grid_screen

    found = grid(w, asked, options.gpus or asked.place.count)
    if options.png:
        from gpusetup.render.plan_png import write_png

        write_png(found, Path(options.png))
        out.talk(f"wrote {options.png}")
    cells = tuple(plan for row in found.plans for plan in row)
    if options.table or out.json:
        out.answer(PlanCellsAnswer(cells=cells), grid_screen(found))
    return 0 if any(plan.fits for plan in cells) else Unsatisfiable.exit_code


def _cells(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.catalog.file import load_catalog
    from gpusetup.model.documents import PlanCellsAnswer
    from gpusetup.plan.answer.cells import plans, read_rows
    from gpusetup.render.plan import cells_text

    rows = read_rows(Path(options.cells), load_catalog().gpus)
    constants = _constants(options)
    found = tuple(
        plans(
            rows, constants, predict=bool(options.predict or options.constants), safe=options.safe
        )
    )
    out.answer(PlanCellsAnswer(cells=found), cells_text(found))
    return 0


def _calibrate(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.catalog.file import load_catalog
    from gpusetup.plan.answer.cells import facts, read_rows
    from gpusetup.plan.answer.report import calibration
    from gpusetup.render.plan import calibration_text

    path = Path(options.calibrate)
    found = calibration(facts(read_rows(path, load_catalog().gpus), path), _constants(options))
    out.answer(found, calibration_text(found))
    return 0


def _asked(options: argparse.Namespace, out: Console) -> tuple[Asked, Workload]:
    """The question, checked before the machine is read, and what its answer is made with."""
    from gpusetup.plan.answer.assumed import assumed
    from gpusetup.plan.answer.cell import Asked
    from gpusetup.plan.answer.decide import Case
    from gpusetup.plan.answer.tables import table_notes
    from gpusetup.plan.answer.unasked import unasked
    from gpusetup.plan.answer.workload import shape_of_question, workload_of

    question, found = _question(options), None
    if options.from_config:
        from gpusetup.commands.plan_config import read

        found = read(options.from_config, question)
        question = found.question
    shape = shape_of_question(question)
    place = _place(options, out)
    gpus = options.gpus or (found.gpus if found else None) or _default_gpus(question, place)
    if found:
        from gpusetup.plan.config.question import for_gpus

        question = for_gpus(found, gpus)
    linux = place.system != "windows"
    w = workload_of(question, shape, gpus, linux=linux, linked=place.linked)
    case = Case(
        limits=place.limits(safe=options.safe, sp=question.sp),
        constants=_constants(options),
        measured_gpu=None if options.predict or options.constants else place.measured,
    )
    own = found.notes if found else ()
    notes = (*own, *assumed(question, w, case), *table_notes(question, w, case))
    config = found.read if found else None
    asked = Asked(place=place, case=case, solved=options.solve, notes=notes, config=config,
                  trainer=question.trainer, accumulate=question.accumulate or 1,
                  unasked=unasked(question, w))  # fmt: skip
    return asked, w


def _default_gpus(question: Question, place: Place) -> int:
    """All GPUs of the machine; one where a GPU was only named, or is all that may be used."""
    return 1 if question.strategy == "single" else place.count or question.smallest


def _question(options: argparse.Namespace) -> Question:
    from gpusetup.model.frozen import fields
    from gpusetup.plan.answer.question import Question
    from gpusetup.plan.model.trainers import trainer_named

    names = [field.name for field in fields(Question)]
    said: dict[str, Any] = {name: getattr(options, RENAMED.get(name, name), None) for name in names}
    offload = tuple(options.offload or ())
    said["trainer"] = trainer_named(said["trainer"])
    if said["strategy"] == "shard-grad-op":
        said |= {"strategy": "fsdp1", "reshard": False}
    return Question(**{**said, "grid": bool(options.table or options.png), "offload": offload})


def _constants(options: argparse.Namespace) -> Constants:
    from gpusetup.plan.memory.constants import constants_in, shipped_constants

    return constants_in(Path(options.constants)) if options.constants else shipped_constants()


def _place(options: argparse.Namespace, out: Console) -> Place:
    """The GPU that was named, or the machine's."""
    from gpusetup.plan.answer.place import machine_place, named_gpu, sized_gpu
    from gpusetup.plan.memory.capacity import size

    if options.gpu_mem:
        return sized_gpu(size(options.gpu_mem))
    from gpusetup.catalog.builds import with_catalog
    from gpusetup.catalog.file import load_catalog
    from gpusetup.model.frozen import replace
    from gpusetup.plan.answer.speed import rates_of

    catalog = load_catalog()
    if options.gpu:
        place = named_gpu(options.gpu, catalog.gpus)
    else:
        place = machine_place(with_catalog(gather(options, out), catalog))
    return replace(place, rates=rates_of(place.gpu, catalog.gpus))


def _check_modes(options: argparse.Namespace) -> None:
    """Raise UsageError where two flags ask for different things."""
    said = _said(options)
    pairs = [pair for group in EXCLUSIVE for pair in combinations(group, 2)]
    pairs += [(flag, other) for flag, others in AGAINST.items() for other in others]
    for one, other in pairs:
        if one in said and other in said:
            raise UsageError(f"`{one}` and `{other}` exclude each other")
    if options.cells or options.calibrate:
        _rows_say_all(options)


SOLVERS = ("--max-context", "--max-batch", "--gpus-needed")
PLACES = ("--gpu", "--gpu-mem", "--from")
FILES = ("--cells", "--calibrate")
EXCLUSIVE = (PLACES, ("--model", "--params", "--code", *FILES))
"""Of each of these at most one."""

AGAINST = {
    "--table": (*SOLVERS, *FILES),
    "--png": (*SOLVERS, *FILES),
    "--format yaml": ("--json", "--table", "--png", *FILES),
    "--from-config": ("--params", "--code", *FILES),
    "--cells": PLACES,
    "--calibrate": (*PLACES, "--safe", "--predict"),
}
"""The first excludes each of the others."""


def _rows_say_all(options: argparse.Namespace) -> None:
    """The rows of a file name model, GPUs and length, of a trainer with its defaults."""
    from gpusetup.model.frozen import fields
    from gpusetup.plan.answer.question import Question

    said, silent = _question(options), Question()
    for field in fields(Question):
        if getattr(said, field.name) != getattr(silent, field.name):
            flag = f"--{RENAMED.get(field.name, field.name)}".replace("_", "-")
            raise UsageError(f"`{flag}` has no part in a file of cells: its rows say it all")


def _said(options: argparse.Namespace) -> set[str]:
    flags = {
        f"--{name.replace('_', '-')}": getattr(options, name)
        for name in ("gpu", "gpu_mem", "model", "params", "code", "cells", "calibrate", "table")
    }
    solve = {"context": "--max-context", "batch": "--max-batch", "gpus": "--gpus-needed"}
    flags |= {flag: options.solve == name for name, flag in solve.items()}
    flags |= {"--safe": options.safe, "--predict": options.predict}
    flags["--from-config"] = options.from_config
    flags |= {"--from": options.machine_from, "--json": options.json, "--png": options.png}
    flags["--format yaml"] = options.format == "yaml"
    return {flag for flag, value in flags.items() if value}
