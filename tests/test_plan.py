"""`gpusetup plan` as a person meets it: whole screens, exit codes, bad input, JSON."""

from __future__ import annotations

import csv
import json
import shlex
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from conftest import Same
from each_row import each
from machines_named import there

from gpusetup.catalog.file import load_catalog
from gpusetup.cli import main
from gpusetup.model.codec import json_schema
from gpusetup.model.documents import (
    PlanAnswer,
    PlanCalibrationAnswer,
    PlanCellsAnswer,
    PlanMemory,
)
from gpusetup.model.frozen import replace
from gpusetup.plan.answer.calibrate import BOUNDS
from gpusetup.plan.answer.cell import Asked
from gpusetup.plan.answer.decide import Case
from gpusetup.plan.answer.grid import grid
from gpusetup.plan.answer.measured import CELLS
from gpusetup.plan.answer.place import named_gpu
from gpusetup.plan.memory.constants import FITTED, shipped_constants
from gpusetup.plan.model.named import model_named
from gpusetup.plan.model.workload import Workload
from gpusetup.render.console import ASCII
from gpusetup.render.plan_bar import SIGNS, bar
from gpusetup.render.plan_png import _figure

RENDERED = Path(__file__).parent / "rendered" / "plan"
A100X4 = ("--gpu", "A100 80GB", "--gpus", "4")

SCREENS: dict[str, tuple[str, ...]] = {
    "measured": ("--model", "qwen3-8b", "--context", "32768", *A100X4),
    "predicted": ("--model", "qwen3-8b", "--context", "32768", *A100X4, "--predict"),
    "beyond-native": ("--model", "qwen3-8b", "--context", "61440", "--gpu", "H20", "--gpus", "6"),
    "sp-8": ("--model", "qwen3-4b", "--context", "200000", "--gpu", "H20", "--gpus", "8"),
    "ddp": ("--params", "124M", "--optimizer", "adamw", "--dtype", "fp32", "--amp", "bf16",
            "--batch", "2048", "--gpus", "8", "--gpu-mem", "8GiB"),
    "recommender": ("--model", "gpt2", "--users", "50000", "--items", "20000", "--embedding-dim",
                    "96", "--context", "1", "--batch", "2048", "--gpus", "8", "--gpu-mem", "8GiB",
                    "--strategy", "dp"),
    "laptop": ("--from", "rtx3050-laptop", "--model", "qwen3-0.6b", "--context", "1024"),
    "wsl": ("--from", "wsl2", "--model", "qwen3-0.6b", "--context", "3072"),
    "four-a100": ("--from", there("ecc-error"), "--model", "qwen3-4b", "--context", "8192"),
    "max-context": ("--model", "qwen3-14b", "--max-context", "--gpu", "H200", "--gpus", "8"),
    "max-batch": ("--model", "gpt2", "--context", "1024", "--max-batch", "--gpu-mem", "24GiB"),
    "gpus-needed": ("--model", "qwen3-14b", "--gpus-needed", "--context", "131072", "--gpu", "H20"),
    "nothing-fits": ("--model", "qwen3-14b", "--context", "4096", "--gpu-mem", "16GiB"),
    "table": ("--model", "qwen3-8b", "--gpu", "H20", "--gpus", "6", "--table"),
    "yaml": ("--model", "qwen3-8b", "--context", "61440", "--gpu", "H20", "--gpus", "6",
             "--format", "yaml"),
    "calibrate": ("--calibrate", str(CELLS)),
}  # fmt: skip
DOES_NOT_FIT = ("laptop", "nothing-fits")


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen(name: str, same_as_file: Same, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plan", *SCREENS[name]])
    same_as_file(capsys.readouterr().out, RENDERED / f"{name}.txt")
    assert code == (1 if name in DOES_NOT_FIT else 0)


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    main(["plan", *words, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", [n for n in SCREENS if n not in ("yaml", "calibrate", "table")])
def test_the_document_keeps_its_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = answered(capsys, *SCREENS[name])
    jsonschema.validate(document, json_schema(PlanAnswer))
    assert next(iter(document)) == "schema" and document["schema"] == "gpusetup.plan/1"
    memory = document["memory_gib"]
    parts = ("states", "checkpoints", "logits", "fragmentation", "other")
    assert sum(memory[part] for part in parts) == pytest.approx(memory["total"], abs=0.01)


def test_the_other_documents_keep_their_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    grid = answered(capsys, *SCREENS["table"])
    jsonschema.validate(grid, json_schema(PlanCellsAnswer))
    assert "schema" not in grid["cells"][0]


@pytest.mark.slow
def test_the_document_of_a_calibration_keeps_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.validate(answered(capsys, *SCREENS["calibrate"]), json_schema(PlanCalibrationAnswer))


def test_the_answer_names_both_variables_of_the_allocator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = answered(capsys, *SCREENS["beyond-native"])
    assert document["recipe"] == "Env + Offload + SP=2"
    assert document["env"] == {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    }
    assert document["better"] == {"gpus": 4, "recipe": "Env + SP=4"}
    assert document["settings"]["rope_scaling"]["factor"] == 61440 / 40960
    assert document["settings"]["max_token_len_per_gpu"] == 61440


ON_ONE = ("--model", "qwen3-8b", "--context", "4096", "--gpu", "RTX 3090")


def test_what_fits_only_with_the_hosts_memory_says_so_first_and_what_is_usual_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", *ON_ONE]) == 0
    first, *others = capsys.readouterr().out.splitlines()[2:]
    document = answered(capsys, *ON_ONE)
    host = round(document["memory_gib"]["host"])
    assert document["fits"] and host > 100
    assert first == f"! fits only with {host} GiB of RAM: {document['recipe']}"
    usual = others[others.index("Usual on one GPU, without Offload") + 1 :]
    ways = {one["step"]: one for one in document["helps"]}
    assert all(any(step in line for line in usual) for step in ways)
    whole = document["memory_gib"]["capacity"] + document["runner_up"]["short_gib"]
    lora = answered(capsys, *ON_ONE, "--lora", "16")
    plain = lora["memory_gib"]["capacity"] + lora["runner_up"]["short_gib"]
    way = ways["LoRA of rank 16 (`--lora 16`)"]
    assert way["saves_gib"] == pytest.approx(whole - plain, abs=0.1)
    four = answered(capsys, *ON_ONE, "--lora", "16", "--quantize", "nf4")
    quantised = four["memory_gib"]["total"] - four["memory_gib"]["fragmentation"]
    way = ways["LoRA on 4-bit weights (`--lora 16 --quantize nf4`)"]
    assert way["saves_gib"] == pytest.approx(whole - quantised, abs=0.1)
    assert way["recipe"] == four["recipe"] and four["fits"]


def test_what_fits_without_the_hosts_memory_has_no_condition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--model", "qwen3-8b", "--context", "4096", "--gpu", "A100 80GB", "--lora", "16")
    assert main(["plan", *words]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("✓ fits: ")
    assert answered(capsys, *words)["helps"] == []


@pytest.mark.parametrize("machine", ["rtx3050-laptop", "wsl2", "jetson-orin"])
def test_env_is_never_offered_where_it_does_not_work(
    machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = answered(capsys, "--from", machine, "--params", "300M", "--context", "2048")
    said = json.dumps([document["recipe"], document["ladder"], document["env"]])
    assert "Env" not in said and "expandable" not in said
    if machine != "wsl2":
        assert "SP=" not in said and "Offload" not in said


# --- many rows ----------------------------------------------------------------------------------


def test_cells_are_answered_in_order_and_their_recipes_are_never_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with CELLS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[::4]
    told, lying = tmp_path / "told.csv", tmp_path / "lying.csv"
    for path, changed in ((told, {}), (lying, {"recipe": "no recipe at all"})):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows({**row, **changed} for row in rows)
    honest = answered(capsys, "--cells", str(told), "--predict")["cells"]
    assert answered(capsys, "--cells", str(lying), "--predict")["cells"] == honest
    asked = [(row["model"], int(row["num_gpus"]), int(row["max_model_len"])) for row in rows]
    assert asked == [(plan["model"], plan["gpus"], plan["context"]) for plan in honest]
    assert {plan["basis"] for plan in honest} == {"predicted"}
    measured = answered(capsys, "--cells", str(lying))["cells"]
    assert [plan["recipe"] for plan in measured] == [row["recipe"] for row in rows]


def test_a_row_may_name_a_gpu_only_by_its_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cells.csv"
    file.write_text(
        "\ufeffgpu_mem_gb, num_gpus, model, max_model_len\n24,8,qwen3-4b,4096\n", encoding="utf-8"
    )
    (plan,) = answered(capsys, "--cells", str(file))["cells"]
    assert plan["gpu"] == "GPU with 24 GiB" and plan["basis"] == "predicted"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column num_gpus, model, max_model_len, gpu or gpu_mem_gb"),
        ("gpu,model\nH20,qwen3-8b\n", "has no column num_gpus, max_model_len"),
        ("gpu,num_gpus,model,max_model_len\nH20,two,qwen3-8b,1\n", "line 2: num_gpus is 'two'"),
        ("gpu,num_gpus,model,max_model_len\nH20,1,qwen3-8b,-5\n", "line 2: max_model_len is '-5'"),
        ("gpu,num_gpus,model,max_model_len\nH20,1,qwen3-8b,nan\n", "max_model_len is 'nan'"),
        ("gpu,num_gpus,model,max_model_len\nH20,1,qwen9,1\n", "line 2: No model is called 'qwen9'"),
        ("gpu,num_gpus,model,max_model_len\nH99,1,gpt2,1\n", "line 2: No GPU is called 'H99'"),
        ("gpu,num_gpus,model,max_model_len\nA100,1,gpt2,1\n", "does not name one memory size"),
        ("gpu,num_gpus,model,max_model_len\nH20,1\n", "line 2: No model is called ''"),
        (
            "gpu,gpu_mem_gb,num_gpus,model,max_model_len\nH20,141,1,gpt2,1\n",
            "H20 has 96 GiB of memory, gpu_mem_gb says 141",
        ),
        ("gpu,num_gpus,model,max_model_len\n,1,gpt2,1\n", "neither `gpu` nor `gpu_mem_gb`"),
    ],
)
def test_a_broken_row_is_named_by_its_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cells.csv"
    file.write_text(text, encoding="utf-8")
    assert main(["plan", "--cells", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_runs_of_one_s_own_are_calibrated_with_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs.csv"
    lines = ["gpu,num_gpus,model,max_model_len,recipe,outcome"]
    lines += [f"H20,4,qwen3-4b,{n},Env,{'fits' if n < 20000 else 'oom'}" for n in LENGTHS]
    runs.write_text("\n".join(lines), encoding="utf-8")
    constants = tmp_path / "constants.json"
    assert main(["plan", "--calibrate", str(runs), "--json", "--output", str(constants)]) == 0
    asked = ("--model", "qwen3-4b", "--context", "24576", "--gpu", "H20", "--gpus", "4")
    capsys.readouterr()
    before = answered(capsys, *asked, "--predict")
    after = answered(capsys, *asked, "--constants", str(constants))
    assert before["recipe"] == "Env" and after["recipe"] == "SP=2"


LENGTHS = range(4096, 36865, 2048)


def test_a_run_with_an_unknown_outcome_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "gpu,num_gpus,model,max_model_len,recipe,outcome\nH20,4,gpt2,8,Env,maybe\n",
        encoding="utf-8",
    )
    assert main(["plan", "--calibrate", str(runs)]) == 2
    assert "line 2: outcome 'maybe'" in capsys.readouterr().err


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [SCREENS["beyond-native"], SCREENS["measured"], SCREENS["ddp"], SCREENS["recommender"]],
)
def test_the_yaml_reads_back_as_the_settings(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    document = answered(capsys, *words)
    main(["plan", *words, "--format", "yaml"])
    trinity, plain = yaml.safe_load_all(capsys.readouterr().out)
    settings = document["settings"]
    assert (
        trinity["trainer"]["ulysses_sequence_parallel_size"] == settings["sequence_parallel_size"]
    )
    assert trinity["model"].get("rope_scaling") == settings.get("rope_scaling")
    offload = "offload_policy" in str(trinity["trainer"].get("trainer_config", {}))
    assert offload == settings["cpu_offload"] == ("Offload" in document["recipe"])
    assert plain["environment"] == document["env"]
    assert plain["strategy"] == settings["strategy"]
    assert f"nproc_per_node={document['gpus']}" in plain["launch"]


def test_there_are_no_settings_for_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SCREENS["nothing-fits"], "--format", "yaml"]) == 1
    assert "does not fit" in capsys.readouterr().err


def test_the_grid_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    file = tmp_path / "grid.png"
    words = ("plan", "--model", "qwen3-8b", "--gpu", "H20", "--gpus", "4", "--png", str(file))
    assert main([*words]) == 0
    raw = file.read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", raw[16:24])
    assert width > 500 and height > 500
    assert capsys.readouterr().out == ""


def test_without_matplotlib_the_way_to_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    file = tmp_path / "grid.png"
    assert main(["plan", "--model", "gpt2", "--gpu", "H20", "--png", str(file)]) == 3
    said = capsys.readouterr().err
    assert "gpusetup[plot]" in said and sys.executable in said


def test_the_bar_shows_every_part_and_the_limit_at_any_width() -> None:
    found = PlanMemory(states=20, checkpoints=5, logits=10, fragmentation=0, other=5,
                       total=40, capacity=80)  # fmt: skip
    for width in (20, 80, 120, 400):
        line = bar(found, width)
        assert len(line) == min(width, 100)
        inner = line[1:-1]
        assert inner.count("█") / len(inner) == pytest.approx(0.25, abs=0.06)
        assert inner.rstrip() != inner and "░" not in inner
        over = bar(replace(found, capacity=20), width)
        assert over.count("│") == 2 and over.rstrip() == over
        assert over.index("│", 1) - 1 == pytest.approx(len(inner) / 2, abs=1)


def test_a_terminal_without_these_signs_gets_its_own() -> None:
    assert len({ASCII[sign] for sign in SIGNS.values()}) == len(SIGNS)


def test_what_would_help_is_ranked_by_what_it_saves(capsys: pytest.CaptureFixture[str]) -> None:
    document = answered(capsys, *SCREENS["nothing-fits"])
    for enough in (True, False):
        saved = [one["saves_gib"] for one in document["helps"] if bool(one["recipe"]) == enough]
        assert saved == sorted(saved, reverse=True)
    assert document["helps"][0]["recipe"]
    assert not answered(capsys, *SCREENS["ddp"])["helps"]


TITAN = ("--model", "llama-3.1-8b", "--trainer", "torchtitan", "--selective", "op", "--context",
         "8192", "--batch", "8", "--gpu", "H100 SXM5", "--gpus", "8")  # fmt: skip


def test_the_estimate_of_speed_holds_published_runs(capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, *TITAN)["speed"]
    # torchtitan's benchmarks, 2024-12: 5,762 tokens a second on each of 8 H100 (compiled).
    assert found["tokens_per_second_low"] < 8 * 5762 < found["tokens_per_second_high"]
    mistral = ("--model", "mistral-7b-v0.1", "--trainer", "hf", "--checkpointing", "--dtype",
               "bf16", "--context", "4096", "--batch", "4", "--gpu", "A100 SXM4 80 GB")  # fmt: skip
    # fms-acceleration's reference runs: 2,775 tokens a second in full, 3,598 with LoRA.
    full = answered(capsys, *mistral)["speed"]
    lora = answered(capsys, *mistral, "--lora", "16")["speed"]
    assert full["tokens_per_second_low"] < 2775 < full["tokens_per_second_high"]
    assert lora["tokens_per_second_low"] < 3598 < lora["tokens_per_second_high"]


def test_slow_links_and_unknown_cards_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = list(TITAN)
    fast = answered(capsys, *words)["speed"]
    words[words.index("H100 SXM5")] = "H100 PCIe"
    slow = answered(capsys, *words)["speed"]
    assert slow["sending_share"] > 2 * fast["sending_share"] > 0
    unknown = ("--params", "124M", "--batch", "8", "--gpu-mem", "8GiB")
    assert answered(capsys, *unknown)["speed"] is None


def test_several_gpus_are_compared_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "gpt2", "--context", "1024", "--batch", "32", "--gpu", "RTX 4090")
    four = " ".join(answered(capsys, *words, "--gpus", "4", "--strategy", "ddp")["advice"])
    assert "one GPU would do" in four and "times as fast (an estimate)" in four
    same = ("--model", "gpt2", "--context", "512", "--batch", "16", "--gpu", "A100 80GB")
    two = " ".join(answered(capsys, *same, "--gpus", "2", "--strategy", "ddp")["advice"])
    assert "2 are about 1.3 times as fast" in two  # no range from 1.3 to 1.3
    assert "one GPU would do" not in " ".join(answered(capsys, *words)["advice"])


def test_the_gpus_that_are_advised_are_named_for_the_shell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = answered(capsys, *SCREENS["beyond-native"])
    assert "`export CUDA_VISIBLE_DEVICES=0,1,2,3`" in " ".join(document["advice"])
    words = (
        "--from",
        there("ecc-error"),
        "--model",
        "qwen3-0.6b",
        "--context",
        "4096",
        "--gpus",
        "2",
    )
    assert answered(capsys, *words)["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_the_settings_have_the_trainers_own_knobs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", *SCREENS["yaml"]])
    trinity = next(yaml.safe_load_all(capsys.readouterr().out))
    actor = trinity["trainer"]["trainer_config"]["actor_rollout_ref"]
    assert actor["actor"]["ppo_max_token_len_per_gpu"] == 61440
    assert actor["ref"]["log_prob_max_token_len_per_gpu"] == 61440
    assert trinity["model"]["model_path"] == "${oc.env:TRINITY_MODEL_PATH,Qwen/Qwen3-8B}"
    assert trinity["model"]["max_prompt_tokens"] < trinity["model"]["max_model_len"]


def test_the_ladder_is_told_in_the_guide_s_order(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "qwen3-8b", "--context", "8192", *A100X4)
    steps = [rung["step"] for rung in answered(capsys, *words)["ladder"] if ", " in rung["step"]]
    said = list(dict.fromkeys(step.partition(":")[0] for step in steps))
    assert said == [
        "first, the environment", "second, sequence parallelism", "third, offload"
    ]  # fmt: skip
    assert all("`Env" in step for step in steps)
    windows = answered(capsys, "--from", "rtx3050-laptop", "--params", "0.1B", "--context", "64")
    assert not any(rung["step"].startswith("first") for rung in windows["ladder"])


def test_tables_of_users_have_tiers_and_a_cache(capsys: pytest.CaptureFixture[str]) -> None:
    small = " ".join(answered(capsys, *SCREENS["recommender"])["advice"])
    assert "8 GPUs 256 samples" in small and "2 GPUs 1,024 samples" in small
    assert "`use_cache: true` is safe" in small
    many = [*SCREENS["recommender"], "--gpu-mem", "3GiB"]
    many[many.index("50000")] = "20000000"
    assert "`use_cache: false`" in " ".join(answered(capsys, *many)["advice"])


def test_the_picture_names_axes_recipes_and_measured_cells() -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    place = named_gpu("H20", load_catalog().gpus)
    case = Case(limits=place.limits(safe=False, sp=None), constants=shipped_constants(),
                measured_gpu=place.measured)  # fmt: skip
    w = Workload(shape=model_named("qwen3-8b"), context=4096)
    (ax,) = _figure(grid(w, Asked(place=place, case=case), 2)).axes
    assert "GPUs" in ax.get_xlabel() and "tokens" in ax.get_ylabel()
    said = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "recipe was measured" in said and "does not fit" in said and "vanilla" in said
    assert sum("●" in text.get_text() for text in ax.texts) > 3


# --- solving ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "flag", "name"),
    [
        (("--model", "qwen3-14b", "--gpu", "H200", "--gpus", "8"), "--max-context", "context"),
        (("--model", "gpt2", "--context", "512", "--gpu-mem", "24GiB"), "--max-batch", "batch"),
        (
            (
                "--params",
                "500M",
                "--context",
                "9",
                "--gpu",
                "L4",
                "--gpus",
                "3",
                "--strategy",
                "ddp",
            ),
            "--max-batch",
            "batch",
        ),
    ],
)
def test_the_largest_fits_and_one_more_does_not(
    words: tuple[str, ...], flag: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = answered(capsys, *words, flag)
    value = document[name]
    assert document["fits"] and document["solved"] == name and value > 1
    assert answered(capsys, *words, f"--{name}", str(value))["fits"]
    assert not answered(capsys, *words, f"--{name}", str(value + 1))["fits"]


def test_the_fewest_gpus_fit_and_fewer_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    words = SCREENS["gpus-needed"]
    rest = tuple(word for word in words if word != "--gpus-needed")
    needed = answered(capsys, *words)["gpus"]
    assert answered(capsys, *rest, "--gpus", str(needed))["fits"]
    for fewer in range(1, needed):
        assert not answered(capsys, *rest, "--gpus", str(fewer))["fits"]


def test_the_longest_measured_context_is_the_table_s(capsys: pytest.CaptureFixture[str]) -> None:
    document = answered(capsys, "--model", "qwen3-8b", *A100X4, "--max-context")
    assert (document["context"], document["basis"]) == (102400, "measured")


def test_what_would_help_does(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "qwen3-14b", "--context", "4096", "--gpu-mem", "16GiB")
    helps = {one["step"]: one["recipe"] for one in answered(capsys, *words)["helps"]}
    assert helps["2 GPUs of this kind"] and helps["3,243 tokens"]
    assert answered(capsys, *words, "--gpus", "2")["fits"]
    assert answered(capsys, "--model", "qwen3-14b", "--context", "3243", *words[-2:])["fits"]
    assert not answered(capsys, "--model", "qwen3-14b", "--context", "3244", *words[-2:])["fits"]


# --- bad input ----------------------------------------------------------------------------------

H20 = ("--gpu", "H20")
MODEL = ("--model", "qwen3-8b", "--context", "4096")
LONG = ("--model", "qwen3-14b", "--context", "51200", "--gpu", "A100 80GB", "--gpus", "6")


@each(
    "words, said",
    [
        ((*MODEL, *A100X4, "--sp", "3"), "must divide both the 4 GPUs and the 32 heads"),
        ((*MODEL, *A100X4, "--sp", "3"), "with these: 1, 2, 4"),
        (("--model", "qwen-8b", "--context", "1", *H20), "No model is called 'qwen-8b'"),
        (("--model", "qwen-8b", "--context", "1", *H20), "are near: Qwen3-8B"),
        ((*MODEL, "--gpu", "H21"), "No GPU is called 'H21'"),
        ((*MODEL, "--gpu", "A100"), "one of: A100 SXM4 40 GB, A100 SXM4 80 GB"),
        ((*MODEL, "--gpu", "sm_90"), "does not name one memory size"),
        ((*MODEL, *H20, "--gpu-mem", "4GiB"), "`--gpu` and `--gpu-mem` exclude each other"),
        ((*MODEL, *H20, "--params", "7B"), "`--model` and `--params` exclude each other"),
        (H20, "One of `--model`, `--params` and `--code`"),
        (("--model", "qwen3-8b", *H20), "`--context` is missing"),
        ((*MODEL, *H20, "--gpus", "0"), "`--gpus 0` is out of range"),
        ((*MODEL, *H20, "--gpus", "-1"), "`--gpus -1` is out of range"),
        (("--model", "gpt2", "--context", str(10**12), *H20), "is out of range"),
        ((*MODEL, *H20, "--frozen", "1.5"), "`--frozen 1.5` is no share"),
        ((*MODEL, *H20, "--gpus", "4", "--strategy", "single"), "uses one GPU"),
        ((*MODEL, *H20, "--gpus", "4", "--strategy", "ddp", "--sp", "2"), "needs a sharded"),
        ((*MODEL, *H20, "--gpus", "4", "--tp", "3"), "does not divide 4 GPUs"),
        ((*MODEL, *H20, "--gpus", "7", "--tp", "7"), "does not divide the 32 heads"),
        ((*MODEL, *H20, "--gpus", "64", "--pp", "64"), "more than the 36 layers"),
        ((*MODEL, *H20, "--gpus", "4", "--strategy", "hsdp"), "`--shard N` go together"),
        ((*MODEL, *H20, "--batch", "4", "--max-tokens", "9"), "exclude each other"),
        ((*LONG, "--max-tokens", "1000"), "at least 51,200, 25,600 with SP=2"),
        ((*LONG, "--max-tokens", "25599"), "25,599 tokens a GPU"),
        ((*LONG, "--sp", "1", "--max-tokens", "51199"), "at least 51,200\n"),
        ((*MODEL, *H20, "--lora", "8", "--frozen", "0.5"), "exclude each other"),
        ((*MODEL, *H20, "--lora", "8", "--trained-layers", "4"), "exclude each other"),
        ((*MODEL, *H20, "--trained-layers", "0"), "`--trained-layers 0` is out of range"),
        ((*MODEL, *H20, "--trained-layers", "999"), "is more than the "),
        ((*MODEL, *H20, "--gpus", "4", "--pp", "2", "--trained-layers", "1"), "`--pp` exclude"),
        (
            (*MODEL, *H20, "--checkpointing", "bogus"),
            "'bogus' is none of full, none, selective, op,",
        ),
        ((*MODEL, *H20, "--checkpointing", "0"), "'0' is none of full,"),
        ((*MODEL, *H20, "--selective", "bogus"), "`--selective bogus` is neither `op`"),
        ((*MODEL, *H20, "--max-context"), "looks for what `--context` gives"),
        ((*MODEL, *H20, "--gpus", "2", "--gpus-needed"), "looks for what `--gpus` gives"),
        ((*MODEL, *H20, "--max-context", "--max-batch"), "not allowed with"),
        ((*MODEL, *H20, "--table", "--max-context"), "exclude each other"),
        ((*MODEL, *H20, "--json", "--format", "yaml"), "exclude each other"),
        (("--params", "7x", *H20), "is no number of parameters"),
        ((*MODEL, "--gpu-mem", "1e9GiB"), "is no size"),
        (("--cells", str(CELLS), "--optimizer", "sgd"), "`--optimizer` has no part"),
        (("--cells", str(CELLS), *H20), "exclude each other"),
        (("--calibrate", str(CELLS), "--safe"), "exclude each other"),
        (("--cells", "/nowhere.csv"), "/nowhere.csv cannot be read"),
        ((*MODEL, *H20, "--constants", "/nowhere.json"), "/nowhere.json cannot be read"),
        ((*MODEL, "--from", "no-such-machine"), "no-such-machine"),
    ],
)
def test_a_wrong_question_is_answered_in_words(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    found = capsys.readouterr()
    message = found.err or json.loads(found.out)["message"]
    assert said in message and "Traceback" not in message
    assert (found.out == "") != ("--json" in words)


@pytest.mark.parametrize(("tokens", "least"), [(25600, 2), (51199, 2), (51200, 1)])
def test_a_budget_that_takes_one_sequence_decides_the_degrees(
    tokens: int, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--model", "qwen3-0.6b", "--loss", "fused", "--max-tokens", str(tokens), *LONG[4:])
    found = answered(capsys, *small, "--context", "51200")
    assert found["settings"]["sequence_parallel_size"] == least
    assert answered(capsys, *small, "--max-context")["context"] == 2 * tokens


def test_the_smallest_gpu_is_answered_for(capsys: pytest.CaptureFixture[str]) -> None:
    document = answered(capsys, "--model", "gpt2", "--context", "1", "--gpu-mem", "16MiB")
    assert not document["fits"] and document["memory_gib"]["capacity"] > 0


def test_constants_out_of_range_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "constants.json"
    constants = json.loads((CELLS.parent / "constants.json").read_text(encoding="utf-8"))
    constants["constants"]["logit"] = -1
    file.write_text(json.dumps(constants), encoding="utf-8")
    assert main(["plan", *MODEL, *H20, "--constants", str(file)]) == 2
    assert "`logit` is out of range" in capsys.readouterr().err
    file.write_text("{}", encoding="utf-8")
    assert main(["plan", *MODEL, *H20, "--constants", str(file)]) == 2
    assert "--calibrate runs.csv --json --output FILE` writes" in capsys.readouterr().err


def test_a_machine_without_a_gpu_is_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *MODEL, "--from", "no-gpu"]) == 1
    assert "no NVIDIA GPU" in capsys.readouterr().err


def test_plan_imports_neither_torch_nor_numpy_nor_a_drawing_library() -> None:
    program = (
        "import sys\n"
        "from gpusetup.cli import main\n"
        f"main({['plan', *SCREENS['predicted'], '--json', '--output', '/dev/null']!r})\n"
        "print([n for n in ('torch', 'numpy', 'scipy', 'matplotlib', 'rich', 'requests')"
        " if n in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_of_unlike_gpus_the_smallest_sets_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    document = answered(
        capsys, "--from", there("mixed-gpus"), "--params", "100M", "--context", "512"
    )
    assert "1080 Ti" in document["gpu"] and document["memory_gib"]["capacity"] < 11
    assert document["gpus"] == 2


def test_more_gpus_than_the_machine_has_are_planned_and_pointed_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--from", there("mixed-gpus"), "--params", "100M", "--context", "512", "--gpus", "4")
    assert "this machine has 2 GPUs, the plan is for 4" in answered(capsys, *words)["advice"]


def test_offload_that_the_machine_cannot_hold_is_not_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = answered(capsys, "--from", "wsl2", "--model", "qwen3-8b", "--context", "512")
    assert document["recipe"] == "-"
    said = [line for line in document["advice"] if line.startswith("Offload would need 122 GiB")]
    assert len(said) == 1


def test_the_source_says_whether_such_jobs_were_ever_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer = answered(capsys, "--model", "gpt2", "--context", "512", *H20)
    loop = answered(capsys, "--model", "gpt2", "--context", "512", "--batch", "4", *H20)
    assert "fitted to measured jobs of this kind" in trainer["source"]
    assert "met published figures that it had not seen within 12.1 %" in loop["source"]


# --- what the documentation says ----------------------------------------------------------------

DOCS = Path(__file__).resolve().parent.parent / "docs"


def documented() -> list[str]:
    text = (DOCS / "how-to" / "plan.md").read_text(encoding="utf-8")
    lines = [line.removeprefix("$ ") for line in text.splitlines()]
    found = [line for line in lines if line.startswith("gpusetup plan")]
    return [line for line in found if "path/to" not in line and ".csv" not in line]


@pytest.mark.parametrize("line", [line for line in documented() if "constants.json" not in line])
def test_a_documented_command_answers_yes(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out


def test_the_documented_constants_are_the_shipped_ones() -> None:
    text = (DOCS / "explanation" / "memory-model.md").read_text(encoding="utf-8")
    constants = shipped_constants()
    for name in FITTED:
        least, most = BOUNDS[name]
        assert f"| `{name}` | {getattr(constants, name):g} | {least:g} to {most:g} |" in text


def test_the_documented_runs_calibrate_as_they_stand_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / "how-to" / "plan.md").read_text(encoding="utf-8")
    block = text.partition("```text\n")[2].partition("```")[0]
    file = tmp_path / "runs.csv"
    file.write_text(block, encoding="utf-8")
    assert main(["plan", "--calibrate", str(file)]) == 0
    assert "On 5 cells" in capsys.readouterr().out
