"""`fleet run --hosts` through a real sshd on this machine, by ssh."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fleet_records
import node_python
import pytest
from slurm_cluster import free_ports

pytestmark = pytest.mark.slow
SSHD = "/usr/sbin/sshd"
SSHD_CONF = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/me.pub
StrictModes no
PasswordAuthentication no
UsePAM no
AcceptEnv NODE
"""
SSH_CONF = """\
Host {node}
  HostName 127.0.0.1
  Port {port}
  SetEnv NODE={node}
  IdentityFile {folder}/me
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking accept-new
  HostKeyAlias all
"""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Four names of one sshd; nobody listens behind a fifth."""
    if not Path(SSHD).exists() or os.geteuid() != 0:
        pytest.skip("no sshd, or not root")
    port, dead = free_ports(2)
    for name in ("host", "me"):
        words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name))
        subprocess.run(words, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    (tmp_path / "sshd.conf").write_text(SSHD_CONF.format(folder=tmp_path, port=port))
    wrong = subprocess.run(
        (SSHD, "-t", "-f", str(tmp_path / "sshd.conf")), text=True, capture_output=True, check=False
    )
    if wrong.returncode:
        pytest.skip(f"sshd cannot start: {wrong.stderr}")
    names = {"n1": port, "n2": port, "n3": port, "slow": port, "dead": dead}
    conf = "".join(
        SSH_CONF.format(node=node, port=port, folder=tmp_path) for node, port in names.items()
    )
    (tmp_path / "ssh.conf").write_text(conf)
    _ssh_with(tmp_path, monkeypatch)
    server = subprocess.Popen((SSHD, "-D", "-e", "-f", str(tmp_path / "sshd.conf")))
    try:
        _until(lambda: subprocess.run(("ssh", "-n", "n1", "true"), check=False).returncode == 0)
        yield tmp_path
    finally:
        server.terminate()
        server.wait(10)


def _ssh_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh reads the test's configuration, whoever starts it."""
    (folder / "bin").mkdir()
    ssh = folder / "bin" / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh.conf "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PDSH_RCMD_TYPE", "ssh")


def _until(holds: object) -> None:
    end = time.monotonic() + 30
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, "sshd did not start"
        time.sleep(0.1)


def test_hosts_answer_and_those_that_do_not_are_named(hosts: Path) -> None:
    python = node_python.recorded_python(hosts)
    for node in ("n1", "n2", "n3", "slow"):
        snapshot, verify = fleet_records.machine(0), fleet_records.report(random.Random(1))
        check = {"schema": "gpusetup.node-check/1", "ok": True, "reason": "sound", "node": node}
        answers = {"node-check": check, "snapshot": snapshot, "verify": verify}
        node_python.record(hosts, node, answers)
    (hosts / "slow" / "hang").write_text("verify")
    (hosts / "list").write_text("n[1-3]\nslow\ndead\n")
    given = ("--hosts", str(hosts / "list"), "--into", str(hosts / "records"), "--limit", "6")
    words = ("-m", "gpusetup", "fleet", "run", *given, "--node-python", str(python), "--json")
    said = subprocess.run((sys.executable, *words), capture_output=True, text=True, check=False)
    rows = {one["name"]: one for one in json.loads(said.stdout)["nodes"]}
    assert {name for name, one in rows.items() if one["status"] == "ok"} == {"n1", "n2", "n3"}
    assert "Connection refused" in rows["dead"]["problem"]
    assert "(no verify)" in rows["slow"]["problem"]
    assert said.returncode == 1
