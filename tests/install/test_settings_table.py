"""pip's configuration says where packages come from, in pip's own order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from installing import needs_linux

from gpusetup.uv.pip_settings import pip_settings

pytestmark = needs_linux


def test_pips_files_in_its_own_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://pip.pypa.io/en/stable/topics/configuration/#precedence-override-order"""
    users, env, named = (tmp_path / name for name in ("users", "env", "named"))
    for folder, text in (
        (users / ".config/pip", "\ufeff[global]\nindex-url = users\ntrusted_host = a\n"),
        (env, "[global]\nextra-index-url = env\n"),
    ):
        folder.mkdir(parents=True)
        (folder / "pip.conf").write_text(text, encoding="utf-8")
    monkeypatch.setenv("HOME", str(users))
    for name in [name for name in os.environ if name.startswith(("PIP_", "XDG_"))]:
        monkeypatch.delenv(name)
    found = pip_settings(str(env))
    assert (found["index-url"], found["trusted-host"]) == ("users", "a")
    assert found["extra-index-url"] == "env"
    named.write_text("[install]\nindex-url = named\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(named))
    assert pip_settings()["index-url"] == "named"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert pip_settings() == {}
    monkeypatch.setenv("PIP_INDEX_URL", "mine")
    assert pip_settings()["index-url"] == "mine"
