"""Deciding what to install: pure functions of pages, words and figures."""

from __future__ import annotations

import json

import pytest

from gpusetup.errors import Blocked, ToolFailed, Unreached, Unsatisfiable
from gpusetup.install.complaints import complaint
from gpusetup.install.fetching.choose import choices_of, first_that_has
from gpusetup.install.fetching.limits import LIMITS
from gpusetup.install.fetching.page import parse_page
from gpusetup.install.fetching.web import PAUSES
from gpusetup.install.fetching.wheels import Wheel, best, locked, target_tags
from gpusetup.install.settings.environment import LIMITS as TOOL_LIMITS
from gpusetup.install.settings.environment import asking_environment, switching_environment
from gpusetup.install.target.disk_space import DiskNeed, shortage
from gpusetup.install.target.layout import Layout
from gpusetup.model.resolution import Choice, Resolution, TorchBuild
from gpusetup.system.processes import Output

TAGS = ("cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-linux_x86_64", "py3-none-any")


def html(*names: str) -> str:
    return "<html><body>" + "".join(f'<a href="{n}">{n}</a>' for n in names) + "</body></html>"


def choice(backend: str) -> Choice:
    return Choice(torch="2.5.1", backend=backend, index_url=f"https://i/whl/{backend}")


def test_the_first_index_that_has_the_wheel_is_taken_and_the_others_are_named() -> None:
    pages = {
        "https://m/whl/cu121/torch/": html("torch-2.4.0%2Bcu121-cp311-cp311-linux_x86_64.whl"),
        "https://m/whl/cu118/torch/": html("torch-2.5.1%2Bcu118-cp311-cp311-linux_x86_64.whl"),
    }

    def page(url: str, _accept: str) -> tuple[str, str, str] | None:
        return (url, "text/html", pages[url]) if url in pages else None

    choices = [choice("cu124"), choice("cu121"), choice("cu118")]
    taken, wheels, passed = first_that_has(page, choices, "https://m/whl", {"torch": "2.5.1"}, TAGS)
    assert taken.backend == "cu118"
    assert [wheel.version for wheel in wheels] == ["2.5.1+cu118"]
    assert passed == (
        ("cu124", "https://m/whl/cu124/torch/: there is no such page"),
        (
            "cu121",
            "https://m/whl/cu121/torch/: has no wheel of torch 2.5.1 for "
            "cp311-cp311-manylinux_2_28_x86_64",
        ),
    )


def test_a_named_backend_has_nothing_in_its_place() -> None:
    build = TorchBuild(
        torch="2.5.1",
        backend="cu124",
        cuda="12.4",
        os="linux",
        machine="x86_64",
        pythons=("3.11",),
        kernels=("sm_86",),
    )
    resolution = Resolution(
        build=build, index_url=choice("cu124").index_url, fallbacks=(choice("cu121"),)
    )
    assert choices_of(resolution, "auto") == (choice("cu124"), choice("cu121"))
    assert choices_of(resolution, "cu124") == (choice("cu124"),)


def test_what_is_no_page_is_no_reason_to_fall_back() -> None:
    def page(url: str, _accept: str) -> tuple[str, str, str] | None:
        assert "cu124" in url, "the next index must not be asked"
        return url, "text/html", "<html><a href='/login'>Log in</a></html>"

    choices = [choice("cu124"), choice("cu121")]
    with pytest.raises(Blocked, match="no index page"):
        first_that_has(page, choices, "https://m/whl", {"torch": "2.5.1"}, TAGS)


def test_every_member_of_the_family_must_be_there() -> None:
    def page(url: str, _accept: str) -> tuple[str, str, str] | None:
        name = url.split("/")[-2]
        backend = url.split("/")[-3]
        if (name, backend) == ("torchaudio", "cu124"):
            return None
        return url, "text/html", html(f"{name}-2.5.1%2B{backend}-cp311-cp311-linux_x86_64.whl")

    versions = {"torch": "2.5.1", "torchaudio": "2.5.1"}
    taken, wheels, _ = first_that_has(
        page, [choice("cu124"), choice("cu121")], "https://m/whl", versions, TAGS
    )
    assert taken.backend == "cu121"
    assert {wheel.version for wheel in wheels} == {"2.5.1+cu121"}


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


def test_what_lies_on_one_disk_counts_together() -> None:
    one = DiskNeed(path="/cache", needed_bytes=600 << 20, free_bytes=1 << 30, disk=1)
    two = DiskNeed(path="/env", needed_bytes=600 << 20, free_bytes=1 << 30, disk=1)
    other = DiskNeed(path="/env", needed_bytes=600 << 20, free_bytes=1 << 30, disk=2)
    assert shortage([one, other]) is None
    short = shortage([one, two])
    assert short is not None and short.needed_bytes == 1200 << 20


# --- the tools -----------------------------------------------------------------------------------


def test_a_dead_host_is_told_within_15_seconds() -> None:
    """Time-outs are met once by us; uv and pip try once more."""
    assert sum(LIMITS) <= 15
    assert LIMITS[1] * 2 + sum(PAUSES) <= 15
    assert float(TOOL_LIMITS["UV_HTTP_TIMEOUT"]) * (1 + int(TOOL_LIMITS["UV_HTTP_RETRIES"])) <= 13


def test_uv_is_told_what_only_pip_knows(tmp_path: object) -> None:
    from pathlib import Path

    home = Path(str(tmp_path))
    (home / ".config/pip").mkdir(parents=True)
    there = [home / "a", home / "b,c"]
    links = "".join(f"\n  {place}" for place in (*there, home / "gone", "https://h/x,y"))
    (home / ".config/pip/pip.conf").write_text(
        f"[global]\nindex-url = https://mirror.example/simple\nfind-links ={links}\n"
    )
    for place in there:
        place.mkdir()
    environ = {"XDG_CONFIG_DIRS": str(home / "none")}
    told = asking_environment(environ, home)
    assert told["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    quoted = there[1].as_uri().replace(",", "%2C")
    assert told["UV_FIND_LINKS"] == f"{there[0]},{quoted},https://h/x%2Cy"
    own = asking_environment({**environ, "UV_INDEX": "https://own.example"}, home)
    assert "UV_DEFAULT_INDEX" not in own
    assert own["UV_INDEX"] == "https://own.example"


def test_the_switch_knows_no_setting_of_the_user_but_the_cache() -> None:
    environ = {
        "PATH": "/bin",
        "UV_CACHE_DIR": "/c",
        "UV_REQUIRE_HASHES": "1",
        "UV_INDEX": "https://own.example",
        "PIP_TARGET": "/elsewhere",
    }
    switching = switching_environment(environ)
    assert switching["UV_CACHE_DIR"] == "/c"
    assert not {"UV_REQUIRE_HASHES", "UV_INDEX", "PIP_TARGET"} & set(switching)
    assert switching["UV_PYTHON_DOWNLOADS"] == "never"


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
