"""A number that Python refuses to read (more than 4,300 digits) blinds no command."""

from __future__ import annotations

import pytest
from installing import World, needs_linux, site_of

from gpusetup import cli

ENDLESS = "1" * 5_000


@needs_linux
@pytest.mark.parametrize("command", ["doctor", "install --dry-run", "guard"])
def test_a_package_with_an_endless_version(
    world: World, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    venv = world.venv()
    for name in ("torch", "torchvision", "evil"):
        info = site_of(venv) / f"{name}-1.0.dist-info"
        info.mkdir()
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {ENDLESS}\n"
        (info / "METADATA").write_text(f"{head}Requires-Dist: torch>={ENDLESS}\n")
        (info / "RECORD").write_text("")
    package = site_of(venv) / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text(f"__version__ = '{ENDLESS}'\ncuda = '{ENDLESS}.1'\n")
    assert cli.main([*command.split(), "--python", str(venv)]) in (0, 1)
    assert "itself failed" not in capsys.readouterr().err
