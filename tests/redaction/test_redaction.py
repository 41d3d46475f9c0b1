"""What is made for sharing carries no user, host, serial number, secret or GPU UUID."""

from __future__ import annotations

import json
import string
from functools import cache
from typing import Any

import pytest
from each_row import each
from hypothesis import given, settings
from hypothesis import strategies as st
from machines_named import example_machines, machine_named
from planted_by_a_stranger import PLANTED as BY_A_STRANGER
from planted_secrets import PLANTED, SETTINGS, STAYS, VARIABLES

from gpusetup.model.codec import from_plain, to_plain
from gpusetup.model.frozen import replace
from gpusetup.model.machine import (
    Disk,
    Event,
    Gpu,
    Package,
    Python,
    Reading,
    Snapshot,
    Torch,
    Wanted,
)
from gpusetup.probe.snapshot_files import dump_snapshot
from gpusetup.redaction import CLOSED_FIELDS, Private, Scrubber, redact, redact_document

NOBODY = Private()
WORDS = st.text(string.ascii_lowercase, min_size=3, max_size=10).map("zq".__add__)
"""Names that are no part of the record's own words, so that they can be looked for."""
HEX = st.text("0123456789abcdef", min_size=32, max_size=32)
UUIDS = st.uuids(version=4).map(str)


def shared(snapshot: Snapshot, private: Private = NOBODY) -> str:
    return dump_snapshot(redact(snapshot, private))


def planted(text: str) -> Snapshot:
    """A snapshot that has a text in every place that may hold free text."""
    return Snapshot(
        python=Python(executable=text, prefix=text, site_packages=text),
        torch=Torch(location=text, import_error=text),
        packages=(Package(name="torch", version="2.5.1", location=text),),
        disks=(Disk(subject="tmp", path=text),),
        environment={"LD_LIBRARY_PATH": text, "PIP_INDEX_URL": text, "AWS_SECRET_ACCESS_KEY": text},
        wanted=Wanted(source=text),
        events=(Event(kind="xid", values={"path": text, text: text}, source=text, text=text),),
        readings=(Reading(subject="x", source=text, value=text, problem=f"failed: {text}"),),
    )


# --- secrets of every kind in every place that may hold a text --------------------------------


@each("text, secret", (*PLANTED, *BY_A_STRANGER))
def test_what_is_planted_is_not_shared(text: str, secret: str) -> None:
    assert secret not in shared(planted(text)).replace("\\\\", "\\")


@each("text, secret", PLANTED)
def test_inside_a_sentence_it_is_not_shared_either_and_can_be_shared_again(
    text: str, secret: str
) -> None:
    sentence = f'He said: "{text}", and then (see {text}) it failed.'
    once = Scrubber(NOBODY).text(sentence)
    assert secret not in once and Scrubber(NOBODY).text(once) == once


@each("name, value, secret", VARIABLES)
def test_a_variable_shares_no_secret(name: str, value: str, secret: str) -> None:
    assert secret not in shared(Snapshot(environment={name: value}))


@each("name, value", SETTINGS)
def test_a_setting_that_everybody_may_have_stays(name: str, value: str) -> None:
    assert redact(Snapshot(environment={name: value}), NOBODY).environment == {name: value}


@each("text", STAYS)
def test_what_the_record_is_for_stays(text: str) -> None:
    assert Scrubber(NOBODY).text(text) == text


# --- the names and homes of people ----------------------------------------------------------------


@settings(max_examples=30)
@given(
    user=WORDS, host=WORDS, form=st.sampled_from(["by {} on {}", "{}-{}", "/data/{}/{}/x", "{}.{}"])
)
def test_the_names_of_this_user_and_host_are_taken_out_wherever_they_stand(
    user: str, host: str, form: str
) -> None:
    private = Private(names=(user, host), homes=(f"/srv/people/{user}",))
    text = shared(planted(form.format(user, host) + f" /srv/people/{user}/x"), private).lower()
    assert user not in text
    assert host not in text
    assert "~/x" in text


# --- GPUs ---------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(first=UUIDS, second=UUIDS, stranger=UUIDS)
def test_a_gpu_has_one_alias_wherever_its_uuid_stands(
    first: str, second: str, stranger: str
) -> None:
    gpus = (
        Gpu(name="NVIDIA L4", uuid=f"GPU-{first}"),
        Gpu(name="NVIDIA L4", uuid=f"GPU-{second}", mig_instances=(f"MIG-{stranger}",)),
    )
    snapshot = Snapshot(
        gpus=gpus,
        environment={
            "CUDA_VISIBLE_DEVICES": f"GPU-{second},GPU-{first[:13]}",
            "NVIDIA_VISIBLE_DEVICES": f"MIG-{stranger}",
        },
        readings=(Reading(subject="gpus", source="nvml", value=f"GPU-{second.upper()} L4"),),
        events=(Event(kind="x", text=f"uuid {first}"),),
    )
    made = redact(snapshot, NOBODY)
    assert [gpu.uuid for gpu in made.gpus or ()] == ["GPU-0001", "GPU-0002"]
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "GPU-0002,GPU-0001"
    assert made.gpus is not None
    assert made.gpus[1].mig_instances == (made.environment["NVIDIA_VISIBLE_DEVICES"],)
    assert made.readings[0].value == "GPU-0002 L4"
    text = dump_snapshot(made).lower()
    assert not any(uuid in text or uuid[:13] in text for uuid in (first, second, stranger))


# --- what must stay -------------------------------------------------------------------------------


@cache
def redacted(name: str) -> Snapshot:
    return redact(machine_named(name), NOBODY)


@each("name", example_machines())
def test_what_the_judgement_needs_stays(name: str) -> None:
    before, after = machine_named(name), redacted(name)
    for part in (
        "os",
        "driver",
        "cuda_api",
        "pci_devices",
        "container",
        "cpu",
        "memory",
        "devices",
    ):
        assert getattr(after, part) == getattr(before, part)
    for gpu, shared_gpu in zip(before.gpus or (), after.gpus or (), strict=True):
        same = replace(gpu, uuid=shared_gpu.uuid, mig_instances=())
        assert replace(shared_gpu, mig_instances=()) == same
    versions = [(p.name, p.version, p.installer, p.build) for p in before.packages or ()]
    assert [(p.name, p.version, p.installer, p.build) for p in after.packages or ()] == versions


def test_a_secret_under_a_telling_key_goes_whatever_its_shape() -> None:
    event = Event(kind="x", values={"serial_number": "1", "token": "b"})
    values: Any = json.loads(shared(Snapshot(events=(event,))))["events"][0]["values"]
    assert values == {"serial_number": "<secret>", "token": "<secret>"}


def test_a_user_who_is_called_like_a_word_of_the_record_does_not_break_it() -> None:
    snapshot = Snapshot(origin="composed", taken_at="2026-11-20T09:00:00Z")
    assert redact(snapshot, Private(names=("composed", "gpusetup", "snapshot"))) == snapshot


@pytest.mark.parametrize("host", ["h100", "triton", "toolkit"])
def test_a_host_that_is_called_like_its_hardware_does_not_spoil_the_record(host: str) -> None:
    machine = "h100-no-fabric-manager"
    made = redact(machine_named(machine), Private(names=(host,)))
    assert made == redacted(machine)


def everywhere(value: Any, text: str, key: str = "") -> Any:
    """A plain snapshot with a text added to every text but those of fixed words."""
    if isinstance(value, str):
        return value if key in CLOSED_FIELDS else f"{value} {text}"
    if isinstance(value, dict):
        return {name: everywhere(inner, text, name) for name, inner in value.items()}
    return [everywhere(inner, text, key) for inner in value] if isinstance(value, list) else value


@settings(max_examples=15)
@given(name=st.sampled_from(example_machines()), word=WORDS, digits=HEX)
def test_secrets_planted_in_every_text_of_a_machine_are_gone(
    name: str, word: str, digits: str
) -> None:
    secret = f"/home/{word}/x {word} token={digits} https://u:{digits}@{word}.example/ GPU-{digits}"
    plain = everywhere(to_plain(machine_named(name)), secret)
    text = shared(from_plain(plain, Snapshot, what="planted")).lower()
    assert word not in text
    assert digits not in text


@each(
    "text",
    [
        "the resource gpusetup://findings lists them, gpusetup://findings/nvml-mismatch one",
        "gpusetup://snapshot, gpusetup://findings, gpusetup://findings/ID",
        "'hf_transfer' and 'sk-learn-contrib' are packages, as npm_something is",
    ],
)
def test_our_own_words_and_names_of_packages_stay(text: str) -> None:
    assert redact_document({"hint": text}) == {"hint": text}


@each("login", ("me:sesame", "me:ses/ame", "me:12345/sesame", "me:12?sesame", "me:ses@ame"))
def test_a_password_in_a_url_is_in_no_error(login: str) -> None:
    shown = redact_document({"hint": f"cannot read http://{login}@mirror.example/whl, try again"})
    assert shown == {"hint": "cannot read http://mirror.example/whl, try again"}
