"""Deciding what to install: pure functions of pages, words and figures."""

from __future__ import annotations

import json

import pytest

from gpusetup.errors import Blocked, ToolFailed, Unreached, Unsatisfiable
from gpusetup.install.complaints import complaint
from gpusetup.install.fetching.limits import LIMITS
from gpusetup.install.fetching.page import parse_page
from gpusetup.install.fetching.web import PAUSES
from gpusetup.install.fetching.wheels import Wheel, best, locked, target_tags
from gpusetup.install.settings.environment import LIMITS as TOOL_LIMITS
from gpusetup.install.target.layout import Layout
from gpusetup.system.processes import Output

TAGS = ("cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-linux_x86_64", "py3-none-any")


def html(*names: str) -> str:
    return "<html><body>" + "".join(f'<a href="{n}">{n}</a>' for n in names) + "</body></html>"


def test_both_forms_of_a_page_say_the_same() -> None:
    name = "torch-2.5.1+cu124-cp311-cp311-linux_x86_64.whl"
    url = "https://m/whl/cu124/torch/"
    text = f'<a href="../files/{name}#sha256=ab" data-dist-info-metadata="true">{name}</a>'
    row = {
        "filename": name,
        "url": f"../files/{name}",
        "hashes": {"sha256": "ab"},
        "core-metadata": {"sha256": "cd"},
    }
    from_html = parse_page(url, "text/html", text)
    from_json = parse_page(url, "application/vnd.pypi.simple.v1+json", json.dumps({"files": [row]}))
    assert from_html == from_json
    assert from_html[0].url == f"https://m/whl/cu124/files/{name}"
    assert from_html[0].metadata_url == f"https://m/whl/cu124/files/{name}.metadata"


@pytest.mark.parametrize("text", ["", "<html><body></body></html>", html("torch-2.5.1.tar.gz")])
def test_a_page_without_wheels_is_an_empty_page(text: str) -> None:
    assert parse_page("https://m/x/", "text/html", text) == ()


def test_a_yanked_wheel_and_other_files_are_left_out() -> None:
    text = html("torch-1.0-py3-none-any.whl.asc", "torch-1.0.zip") + (
        '<a data-yanked="broken" href="torch-1.1-py3-none-any.whl">x</a>'
    )
    assert parse_page("https://m/x/", "text/html", text.replace(".asc", ".txt")) == ()


def named(filename: str) -> Wheel:
    return Wheel(name="torch", version="2.5.1", filename=filename, url=f"https://m/{filename}")


def test_the_best_tag_wins() -> None:
    names = (
        "torch-2.5.1-py3-none-any.whl",
        "torch-2.5.1-cp311-cp311-linux_x86_64.whl",
        "torch-2.5.1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.5.1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.5.1-cp311-cp311-win_amd64.whl",
    )
    found = best(map(named, names), "2.5.1", TAGS)
    assert found is not None and found.filename == names[2]
    assert best(map(named, names[3:]), "2.5.1", TAGS) is None


def test_a_free_threaded_python_takes_wheels_of_its_own() -> None:
    shared = {
        "python": "",
        "prefix": "",
        "purelib": "",
        "platlib": "",
        "scripts": "",
        "data": "",
    }
    tags = target_tags(Layout(version="3.13.0", free_threaded=True, **shared))  # type: ignore[arg-type]
    assert tags[0].startswith("cp313-cp313t-")
    assert not [tag for tag in tags if tag.startswith("cp313-cp313-")]


def test_a_lock_without_a_wheel_names_the_project() -> None:
    lock = {"packages": [{"name": "old", "version": "1.0", "wheels": []}]}
    with pytest.raises(ValueError, match=r"old 1\.0"):
        locked(lock, TAGS, ())


# --- the tools -----------------------------------------------------------------------------------


def test_a_dead_host_is_told_within_15_seconds() -> None:
    """Time-outs are met once by us; uv and pip try once more."""
    assert sum(LIMITS) <= 15
    assert LIMITS[1] * 2 + sum(PAUSES) <= 15
    assert float(TOOL_LIMITS["UV_HTTP_TIMEOUT"]) * (1 + int(TOOL_LIMITS["UV_HTTP_RETRIES"])) <= 13


COMPLAINTS = [
    (
        "error: Failed to fetch: `https://i/simple/x/`\n  Caused by: HTTP status server error "
        "(503 Service Unavailable) for url (https://i/simple/x/)",
        Unreached,
        "503",
    ),
    ("  x No solution found when resolving dependencies:\n  because y", Unsatisfiable, "because y"),
    (
        "error: Failed to install: x.whl\n  Caused by: No space left on device (os error 28)",
        Blocked,
        "No space left",
    ),
    ("ERROR: No matching distribution found for nope", Unsatisfiable, "nope"),
    ("ERROR: Could not install packages due to an OSError: [Errno 13] x", Blocked, "Errno 13"),
    ("thread 'main' panicked at 'what'", ToolFailed, "panicked"),
]


@pytest.mark.parametrize(("text", "kind", "cause"), COMPLAINTS)
def test_what_a_tool_complains_of_gets_its_exit_code(
    text: str, kind: type[Exception], cause: str
) -> None:
    problem = complaint("uv cannot", Output(argv=("uv",), exit=1, stderr=text))
    assert type(problem) is kind
    assert cause in problem.message
    assert "\n" not in problem.message
