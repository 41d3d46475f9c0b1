"""Since when: the date belongs to one GPU, and only a check that looked ends a finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checked_node import (
    LOG_WAS_REFUSED,
    XID,
    Node,
    sound,
    with_ecc_errors,
    with_hung_driver,
)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


def test_a_gpu_that_fails_later_does_not_inherit_the_date_of_a_repaired_one(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.check(with_ecc_errors(4))
    node.check(with_ecc_errors(4))
    assert "(since 2026-11-01T03:00:00Z)" in last_line(capsys)
    node.check(with_ecc_errors(5))
    assert "since" not in last_line(capsys)
    node.check(with_ecc_errors(5))
    assert "(since 2026-11-03T03:00:00Z)" in last_line(capsys)


def test_a_second_gpu_keeps_the_date_of_the_first(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    for failed_gpus in ((4,), (4, 5)):
        node.check(with_ecc_errors(*failed_gpus))
    dates = "(since 2026-11-01T03:00:00Z, the last GPU since 2026-11-02T03:00:00Z)"
    assert last_line(capsys).endswith(f"GPUs 4, 5 {dates}")
    node.check(with_ecc_errors(5))
    assert "(since 2026-11-02T03:00:00Z)" in last_line(capsys)


BLIND_CHECKS = {
    "the driver hangs": with_hung_driver(),
    "the GPU is not listed": {**sound(), "gpus": sound()["gpus"][:4]},
}


@pytest.mark.parametrize("case", BLIND_CHECKS)
def test_a_check_that_could_not_look_ends_no_finding(
    case: str, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    for record in (with_ecc_errors(4), BLIND_CHECKS[case], with_ecc_errors(4)):
        node.check(record)
    assert "(since 2026-11-01T03:00:00Z)" in last_line(capsys)
    for record in (sound(), with_ecc_errors(4)):
        node.check(record)
    assert "since" not in last_line(capsys), "a check that looked ended it"


def test_a_check_that_may_not_read_the_kernels_log_ends_nothing_that_the_log_showed(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = {**sound(), "events": [XID]}
    for record in (logged, {**sound(), "readings": [LOG_WAS_REFUSED]}, logged):
        node.check(record)
    assert "(since 2026-11-01T03:00:00Z)" in last_line(capsys)
    for record in (sound(), logged):
        node.check(record)
    assert "since" not in last_line(capsys)


def test_a_check_without_a_profile_ends_nothing_that_the_profile_showed(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.check(sound(), "--json")
    profile = tmp_path / "profile.json"
    profile.write_text(last_line(capsys))
    limited = sound()
    limited["gpus"][6]["power_limit_watts"] = 500.0
    for words in (("--profile", str(profile)), (), ("--profile", str(profile))):
        node.check(limited, *words)
    assert "(since 2026-11-02T03:00:00Z)" in last_line(capsys)
    node.check(sound(), "--profile", str(profile))
    other_gpu = sound()
    other_gpu["gpus"][2]["power_limit_watts"] = 500.0
    node.check(other_gpu, "--profile", str(profile))
    assert "since" not in last_line(capsys)


def test_a_check_says_where_it_could_not_look(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.check({**with_hung_driver(), "readings": [LOG_WAS_REFUSED]}, "--json")
    assert json.loads(last_line(capsys))["blind_to"] == ["driver", "kernel log", "profile"]


def test_an_older_history_keeps_its_dates(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.history.mkdir()
    title = "GPU 4 (00000000:5B:00.0, NVIDIA H100 80GB HBM3): memory errors that ECC cannot correct"
    row = {"id": "ecc-error", "severity": "error", "title": title, "is_over": False,
           "first_seen": "2026-10-01T03:00:00Z", "last_seen": "2026-10-31T03:00:00Z"}  # fmt: skip
    text = json.dumps({"schema": "gpusetup.history/1", "checked_at": None, "findings": [row]})
    (node.history / "gpu07.history.json").write_text(text)
    node.check(with_ecc_errors(4))
    assert "(since 2026-10-01T03:00:00Z)" in last_line(capsys)
