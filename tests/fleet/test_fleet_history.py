"""Since when a node has a finding, and a node's metrics for Prometheus."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import fleet_records
import pytest

from gpusetup.cli import main
from gpusetup.fleet.history import (
    MOST_PAST_FINDINGS,
    FindingHistory,
    NodeHistory,
    read_history,
    updated,
)
from gpusetup.fleet.node_check import NodeCheckAnswer
from gpusetup.fleet.node_finding import NodeFinding
from gpusetup.fleet.prometheus import metrics
from gpusetup.fleet.sight import Sight
from gpusetup.model.codec import to_json
from gpusetup.model.finding import Severity
from gpusetup.probe import node as probe_node

ECC = NodeFinding(id="ecc-error", severity=Severity.ERROR, title="GPU 3: memory errors")
SLOW = NodeFinding(id="pcie-degraded", severity=Severity.WARNING, title="GPU 1: 8 lanes")
DAYS = [f"2026-11-{day:02d}T03:00:00Z" for day in range(1, 30)]


def after(*checks: tuple[NodeFinding, ...]) -> NodeHistory:
    """The history after a check a day."""
    history = NodeHistory()
    for day, findings in zip(DAYS, checks, strict=False):
        history = updated(history, findings, day, Sight())
    return history


# --- the history ----------------------------------------------------------------------------------


def test_since_is_the_first_check_of_an_unbroken_row() -> None:
    assert after((ECC,), (ECC, SLOW), (ECC, SLOW)).since() == {
        ("ecc-error", ""): DAYS[0],
        ("pcie-degraded", ""): DAYS[1],
    }
    assert after((ECC,), (), (ECC,)).since() == {("ecc-error", ""): DAYS[2]}


def test_what_is_over_is_kept_and_a_long_life_stays_small() -> None:
    history = after((ECC,), ())
    assert [(past.id, past.first_seen, past.last_seen) for past in history.findings] == [
        ("ecc-error", DAYS[0], DAYS[0])
    ]
    for _ in range(MOST_PAST_FINDINGS):
        for findings in ((ECC, SLOW), ()):
            history = updated(history, findings, DAYS[5], Sight())
    assert len(history.findings) == MOST_PAST_FINDINGS


@pytest.mark.parametrize("time", ["2999-01-01T00:00:00Z", "yesterday", "", "0000-13-01T00:00:00Z"])
def test_a_time_that_cannot_be_is_now(time: str) -> None:
    row = FindingHistory(
        id="ecc-error", severity=Severity.ERROR, title="", first_seen=time, last_seen=time
    )
    text = to_json(NodeHistory(findings=(row,)))
    assert read_history(text, "h", DAYS[9]).since() == {("ecc-error", ""): DAYS[9]}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A node without a GPU, whose checks take place at the times of this list."""
    times = [*DAYS]
    read = probe_node.read_node

    def at_the_next_time(*words: Any) -> Any:
        from gpusetup.model.frozen import replace

        record = read(*words)
        empty = replace(record.snapshot, taken_at=times.pop(0), gpus=None, events=())
        return replace(record, snapshot=empty)

    monkeypatch.setattr(probe_node, "read_node", at_the_next_time)
    monkeypatch.setattr(probe_node, "name_of_node", lambda: "gpu07")
    return times


def test_the_command_keeps_the_history_and_show_says_since_when(
    failing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "records"
    for _ in range(3):
        assert main(["fleet", "check", "--history", str(folder)]) == 1
    record = folder / "gpu07.json"
    assert (
        main(["fleet", "check", "--history", str(folder), "--json", "--output", str(record)]) == 1
    )
    assert [path.name for path in sorted(folder.iterdir())] == [
        "gpu07.history.json",
        "gpu07.json",
    ]
    main(["fleet", "show", str(folder), "--json"])
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])["nodes"]
    assert [(node["name"], node["findings"][-1]["since"]) for node in shown] == [("gpu07", DAYS[0])]
    main(["fleet", "show", str(folder)])
    assert f"(since {DAYS[0]})" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{", "[" * 9000, '{"schema": "gpusetup.fleet/1"}', "\0\xff"])
def test_a_broken_history_begins_again_and_changes_no_answer(
    text: str, failing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpu07.history.json").write_text(text)
    assert main(["fleet", "check", "--history", str(tmp_path)]) == 1
    assert "the history begins again" in capsys.readouterr().err
    fresh = json.loads((tmp_path / "gpu07.history.json").read_text())
    assert fresh["findings"][0]["first_seen"] == DAYS[0]
    (tmp_path / "gpu07.history.json").write_text(text)
    (tmp_path / "gpu07.json").write_text(json.dumps(fleet_records.machine(0)))
    main(["fleet", "show", str(tmp_path), "--json"])
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [node["problem"] for node in answer["nodes"]] == [None]
    assert answer["left_out"]


def test_a_history_alone_is_no_record_of_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpu01.json").write_text(json.dumps(fleet_records.machine(0)))
    (tmp_path / "gpu02.history.json").write_text(to_json(after((ECC,))))
    assert main(["fleet", "show", str(tmp_path), "--nodes", "gpu[01-02]", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["nodes"][0]["problem"] == "no record: the node did not answer"
    assert main(["snapshot", "diff", *[str(tmp_path / "gpu02.history.json")] * 2]) == 2


def test_a_folder_that_cannot_be_written_is_a_warning_and_the_answer_stays(
    failing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    words = (
        "--history",
        str(tmp_path / "file" / "x"),
        "--prometheus",
        str(tmp_path / "file" / "y"),
    )
    assert main(["fleet", "check", *words]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("failed: no NVIDIA GPU found")
    assert said.err.count("warning: cannot write") == 2


def test_a_host_name_leads_out_of_no_folder(
    failing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_node, "name_of_node", lambda: "../../etc/x")
    main(["fleet", "check", "--history", str(tmp_path / "h")])
    assert [path.name for path in tmp_path.rglob("*.json")] == ["node.history.json"]


# --- metrics --------------------------------------------------------------------------------------

SAMPLE = re.compile(
    r'[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*\})? \S+'
)


SINCE = "gpusetup_node_finding_since_timestamp_seconds"


def answer(*findings: NodeFinding, **facts: str) -> NodeCheckAnswer:
    return NodeCheckAnswer(
        node="secret-host", ok=not findings, reason="secret reason", taken_at=DAYS[9],
        findings=findings, facts={"gpus.count": "8", "driver.version": "580.95.05", **facts},
    )  # fmt: skip


def samples(text: str) -> dict[str, float]:
    """The samples of a file in the text format; each line is one, or a comment."""
    values: dict[str, float] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if not line.startswith(("# HELP ", "# TYPE ")):
            assert SAMPLE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            assert name not in values, "a series comes once"
            values[name] = float(value)
    return values


def test_metrics_have_the_state_the_findings_and_since_when() -> None:
    since = NodeFinding(id="ecc-error", severity=Severity.ERROR, title="x", since=DAYS[0])
    values = samples(metrics(answer(since, since, SLOW), 1795000000.5))
    assert values == {
        "gpusetup_node_ok": 0,
        "gpusetup_node_check_timestamp_seconds": 1795000000.5,
        'gpusetup_node_info{driver="580.95.05",gpu=""}': 1,
        "gpusetup_node_gpus": 8,
        'gpusetup_node_finding{id="ecc-error",severity="error"}': 2,
        'gpusetup_node_finding{id="pcie-degraded",severity="warning"}': 1,
        f'{SINCE}{{id="ecc-error",severity="error"}}': 1793502000,
    }
    assert samples(metrics(answer(), 1.0))["gpusetup_node_ok"] == 1


@pytest.mark.parametrize("name", ['A"} 1\nevil 2', "back\\slash", "tab\tand\u2028", "\u202ex", ""])
def test_no_name_of_a_gpu_breaks_the_format(name: str) -> None:
    text = metrics(answer(ECC, **{"gpus.name": name}), 1.0)
    assert "evil" not in {line.split()[0] for line in text.splitlines()}
    assert samples(text)["gpusetup_node_ok"] == 0


def test_metrics_hold_nothing_private() -> None:
    text = metrics(answer(ECC, SLOW, **{"environment.SECRET": "secret"}), 1.0)
    assert "secret" not in text.lower() and "GPU 3" not in text


def test_prometheus_own_parser_reads_the_file() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = metrics(answer(ECC, SLOW, **{"gpus.name": 'A "quoted\\" name'}), 1795000000.5)
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert len(families) == 5
    assert all(family.type == "gauge" for family in families.values())
    assert families["gpusetup_node_info"].samples[0].labels["gpu"] == 'A "quoted\\" name'


def test_the_file_is_replaced_at_once_and_readable_for_the_collector(
    failing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, victim = tmp_path / "collector", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    file = folder / "gpusetup.prom"
    file.symlink_to(victim)
    assert main(["fleet", "check", "--prometheus", str(file)]) == 1
    assert victim.read_text() == "precious" and not file.is_symlink()
    assert samples(file.read_text())["gpusetup_node_ok"] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in folder.iterdir()] == ["gpusetup.prom"]
    main(["fleet", "check", "--prometheus", str(folder / "metrics.txt")])
    assert "files that end in .prom" in capsys.readouterr().err
