"""Many nodes: what is found among them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import fleet_records
import pytest

from gpusetup.cli import main

Record = dict[str, Any]


def node(**parts: Any) -> Record:
    return {**fleet_records.machine(0), **parts}


def write(folder: Path, nodes: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, record in nodes.items():
        text = record if isinstance(record, str) else json.dumps(record)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Record]:
    code = main(["fleet", "show", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def row(answer: Record, name: str) -> Record:
    found: Record = next(one for one in answer["nodes"] if one["name"] == name)
    return found


SOUND = {f"n{i}": node() for i in range(5)}


# --- what is planted is found, and nothing else ---------------------------------------------------


def test_a_node_that_differs_has_the_field_its_value_and_the_majoritys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = node(driver={**node()["driver"], "version": "570.133.20"})
    code, answer = shown(capsys, str(write(tmp_path / "f", {**SOUND, "odd": other})))
    drift = {d["field"]: (d["value"], d["majority"]) for d in row(answer, "odd")["drift"]}
    assert drift == {"driver.version": ("570.133.20", "580.95.05")}
    assert answer["nodes"][0]["name"] == "odd"
    assert code == 0
    assert main(["fleet", "show", str(tmp_path / "f"), "--strict"]) == 1


def test_each_planted_fault_is_found_on_its_node_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus, of_a_gpu = node()["gpus"], fleet_records.OF_A_GPU
    for number, (field, value) in enumerate({**fleet_records.OF_A_NODE, **of_a_gpu}.items()):
        group, _, name = field.partition(".")
        sick = node(**{group: {**node()[group], name: value} if name else value})
        if field in of_a_gpu:
            sick = node(gpus=[{**gpus[0], field: value}, *gpus[1:]])
        _, answer = shown(capsys, str(write(tmp_path / str(number), {**SOUND, "odd": sick})))
        assert [one["name"] for one in answer["nodes"] if one["status"] != "ok"] == ["odd"], field


# --- bad input ------------------------------------------------------------------------------------


def test_missing_cut_and_foreign_files_are_named_and_the_others_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = {**node(), "schema": "gpusetup.snapshot/9"}
    cut = json.dumps(node())[:4000]
    nodes = {**SOUND, "cut": cut, "empty": "\n", "newer": newer, "foreign": {"a": 1}, "list": [1]}
    folder = write(tmp_path / "f", nodes)
    (folder / "README.txt").write_text("hello", encoding="utf-8")
    code, answer = shown(capsys, str(folder), "--nodes", "n[0-5]")
    assert code == 1
    assert "cut" in row(answer, "cut")["problem"]
    assert "not a snapshot of this gpusetup" in row(answer, "newer")["problem"]
    assert row(answer, "empty")["problem"].startswith("empty.json is empty: the command")
    assert row(answer, "n5")["problem"] == "no record in this folder"
    assert row(answer, "n0")["status"] == "ok"
    assert [one.partition(":")[0] for one in answer["left_out"]] == ["foreign.json", "list.json"]
    assert answer["exclude"] == "--exclude=cut,empty,n5,newer"


NO_GPU = {
    "schema": "gpusetup.node-check/1",
    "ok": False,
    "reason": "no-nvidia-gpu: no NVIDIA GPU found",
    "findings": [{"id": "no-nvidia-gpu", "severity": "error", "title": "no NVIDIA GPU found"}],
    "facts": {"gpus.count": "0", "os.name": "Debian"},
}


@pytest.mark.parametrize("record", [NO_GPU, {**NO_GPU, "facts": {}}])
def test_what_a_nodes_own_check_says_counts_and_no_majority_of_failed_nodes_blames_a_sound_one(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = {
        **NO_GPU,
        "ok": True,
        "reason": "8 x H100",
        "findings": [],
        "facts": {"gpus.count": "8", "gpus.name": "H100"},
    }
    nodes: Record = {**{f"g{i}": record for i in range(4)}, "g4": sound}
    code, answer = shown(capsys, str(write(tmp_path / "f", nodes)))
    assert code == 1
    assert row(answer, "g4")["status"] == "ok"
    assert {row(answer, f"g{i}")["status"] for i in range(4)} == {"failed"}
    assert row(answer, "g0")["findings"][0]["title"] == "no NVIDIA GPU found"
    assert answer["exclude"] == "--exclude=g[0-3]"


def test_a_name_that_a_shell_would_obey_is_not_written_into_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = node(gpus=node()["gpus"][:3])
    folder = write(tmp_path / "f", {**SOUND, "a b;$(reboot)": broken, "\x1b[2Jc": broken})
    _, answer = shown(capsys, str(folder))
    assert answer["exclude"] == ""
    main(["fleet", "show", str(folder)])
    said = capsys.readouterr().out
    assert "\x1b[2J" not in said and "--exclude" not in said


# --- what nobody can compare, and what is old -----------------------------------------------------


def test_a_failed_node_has_its_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus = node()["gpus"]
    sick = node(gpus=[{**gpus[0], "ecc_uncorrected": 4}, *gpus[1:]])
    slowed = node(gpus=[{**gpus[0], "throttle_reasons": ["hw_thermal_slowdown"]}, *gpus[1:]])
    failed_check = fleet_records.report(random.Random(1))
    failed_check["checks"][0]["status"] = "failed"
    cut = json.dumps(node())[:4000]
    nodes = {**SOUND, "sick": sick, "a b": sick, "slowed": slowed, "less": node(gpus=gpus[:7]),
             "wrong": node(), "wrong.verify": failed_check, "cut": cut, "v": node(),
             "v.verify": json.dumps(failed_check)[:400], "$(x)": "{",
             "other": node(gpus=[{**gpu, "ecc_enabled": False} for gpu in gpus])}  # fmt: skip
    folder = write(tmp_path / "f", nodes)
    _, answer = shown(capsys, str(folder), "--nodes", "gone")
    commands = {one["name"]: one["next"] for one in answer["nodes"]}
    assert commands["sick"] == f"gpusetup doctor --from {folder}/sick.json"
    assert commands["a b"] == f"gpusetup doctor --from '{folder}/a b.json'"
    assert commands["slowed"] == f"gpusetup doctor --from {folder}/slowed.json"
    # Doctor says "ok" about what these lack or failed at.
    assert commands["less"].startswith("ssh -t less 'lspci ") and "dmesg" in commands["less"]
    assert commands["wrong"] == "ssh wrong gpusetup verify --level standard"
    assert commands["cut"] == f"ssh cut gpusetup snapshot > {folder}/cut.json"
    again = "gpusetup verify --level standard --json"
    assert commands["v"] == f"ssh v {again} > {folder}/v.verify.json"
    assert commands["gone"] == f"ssh gone gpusetup snapshot > {folder}/gone.json"
    assert commands["other"] == f"ssh other gpusetup snapshot > {folder}/other.json"
    assert commands["$(x)"] is None and commands["n0"] is None
    for name in ("sick", "slowed"):
        main(["doctor", "--from", str(folder / f"{name}.json")])
        assert row(answer, name)["findings"][0]["id"] in capsys.readouterr().out
    main(["fleet", "show", str(folder)])
    assert "→ gpusetup doctor --from" in capsys.readouterr().out


# --- facts without a majority ---------------------------------------------------------------------


def driven(version: str) -> Record:
    return node(driver={**node()["driver"], "version": version})


def limited(watts: float) -> Record:
    return node(gpus=[{**gpu, "power_limit_watts": watts} for gpu in node()["gpus"]])


SPLITS = {
    "drivers 3 and 3": [*[driven("570.1")] * 3, *[driven("580.1")] * 3],
    "three drivers": [driven(f"{number}.1") for number in (560, 570, 580)],
    "power limits 3 and 3": [*[limited(700.0)] * 3, *[limited(500.0)] * 3],
}


@pytest.mark.parametrize("case", SPLITS)
def test_a_tie_is_not_called_alike(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {f"n{number}": record for number, record in enumerate(SPLITS[case])}
    folder = str(write(tmp_path / "f", nodes))
    _, answer = shown(capsys, folder)
    main(["fleet", "show", folder])
    screen = capsys.readouterr().out
    count = len(SPLITS[case])
    assert {node["status"] for node in answer["nodes"]} == {"differs"}
    assert screen.startswith(f"! {count} nodes: {count} to look at")
    assert "no value is shared by most nodes" in screen
    for node in answer["nodes"]:
        (drift,) = node["drift"]
        assert drift["majority"] is None and drift["value"] in screen
    assert main(["fleet", "show", folder]) == 0
    assert main(["fleet", "show", folder, "--strict"]) == 1
