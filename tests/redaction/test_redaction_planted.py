"""Secrets of every kind, planted in every place that may hold a text, are not in what is shared."""

from __future__ import annotations

from each_row import each
from planted_by_a_stranger import PLANTED as BY_A_STRANGER
from planted_secrets import PLANTED, SETTINGS, STAYS, VARIABLES

from gpusetup.model.machine import Disk, Event, Package, Python, Reading, Snapshot, Torch, Wanted
from gpusetup.probe.snapshot_files import dump_snapshot
from gpusetup.redaction import Private, Scrubber, redact


def planted(text: str) -> Snapshot:
    """A snapshot that has a text in every place that may hold free text."""
    return Snapshot(
        python=Python(executable=text, prefix=text, site_packages=text),
        torch=Torch(location=text, import_error=text),
        packages=(Package(name="torch", version="2.5.1", location=text, channel=text),),
        disks=(Disk(subject="tmp", path=text),),
        environment={"LD_LIBRARY_PATH": text, "PIP_INDEX_URL": text},
        wanted=Wanted(source=text),
        events=(Event(kind="xid", values={"path": text, text: text}, source=text, text=text),),
        readings=(Reading(subject="x", source=text, value=text, problem=f"failed: {text}"),),
    )


def shared(snapshot: Snapshot) -> str:
    return dump_snapshot(redact(snapshot, Private()))


def test_there_are_many() -> None:
    assert len(PLANTED) + len(VARIABLES) >= 150
    assert len(BY_A_STRANGER) >= 150


@each("text, secret", BY_A_STRANGER)
def test_what_a_stranger_planted_is_not_shared(text: str, secret: str) -> None:
    assert secret not in shared(planted(text)).replace("\\\\", "\\")


@each("text, secret", PLANTED)
def test_what_is_planted_is_not_shared(text: str, secret: str) -> None:
    seen = shared(planted(text))
    assert secret not in seen.replace("\\\\", "\\")


@each("text, secret", PLANTED[::3])
def test_inside_a_sentence_it_is_not_shared_either(text: str, secret: str) -> None:
    seen = shared(planted(f'He said: "{text}", and then (see {text}) it failed.'))
    assert secret not in seen.replace("\\\\", "\\")


@each("name, value, secret", VARIABLES)
def test_a_variable_shares_no_secret(name: str, value: str, secret: str) -> None:
    assert secret not in shared(Snapshot(environment={name: value}))


@each("name, value", SETTINGS)
def test_a_setting_that_everybody_may_have_stays(name: str, value: str) -> None:
    assert redact(Snapshot(environment={name: value}), Private()).environment == {name: value}


@each("text", STAYS)
def test_what_the_record_is_for_stays(text: str) -> None:
    assert Scrubber((text,), Private()).text(text) == text


@each("text, secret", PLANTED)
def test_what_is_shared_can_be_shared_again(text: str, secret: str) -> None:
    once = Scrubber((text,), Private()).text(text)
    assert Scrubber((once,), Private()).text(once) == once, secret
