"""Seconds an epoch, from what a training prints in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from each_row import each

from gpusetup.monitor.documents import EpochTimes
from gpusetup.monitor.epochs import EpochReader

Prints = Iterable[tuple[float, str]]
"""Seconds since the start, and what is printed then."""


def times(prints: Prints) -> EpochTimes | None:
    reader = EpochReader()
    for seconds, text in prints:
        reader.feed(text.encode(), seconds)
    return reader.times()


def each_epoch(line: Callable[[int], str]) -> Prints:
    """A line an epoch, every 5 s, after 3 s of start-up."""
    return [(3 + 5 * number, line(number)) for number in range(1, 5)]


def bars(description: str) -> Prints:
    """tqdm or Lightning: a bar of the batches for each epoch."""
    for number in range(3):
        for percent in (0, 25, 50, 75, 100):
            bar = f"\r{description.format(number)}:  {percent}%|###   | {percent}/100 [00:01<00:03]"
            yield 5.0 * number + percent / 20, f"\x1b[32m{bar}\x1b[0m"


WAYS: dict[str, Prints] = {
    "plain": each_epoch(lambda n: f"Epoch {n}/10\n"),
    "keras": each_epoch(lambda n: f"Epoch {n}/3\n 469/938 [===>..] - ETA: 2s - loss: 0.3\n"),
    "tqdm with a number": bars("epoch {}"),
    "transformers": [(2.5 * n, f"{{'loss': 0.5, 'epoch': {n / 2}}}\n") for n in range(1, 9)],
    "in pieces": [(0, "Epo"), (0, "ch 1\nEpoch"), (5, " 2"), (5, "/9\n")],
}


@each("way", WAYS)
def test_the_seconds_of_an_epoch_are_read_however_it_is_printed(way: str) -> None:
    """001-17: you watch the seconds that an epoch takes."""
    measured = times(WAYS[way])
    assert measured is not None and 4.9 <= measured.seconds <= 5.1, measured


@each(
    "text",
    [
        "Num Epochs = 3\nTotal epochs: 10\nmax_epochs: 20\n",
        "training for 100 epochs\n",
        "epoch took 12 s\nepoch took 13 s\n",
        "Epoch 1\n" * 5,
        "\x00\xff" * 5000,
    ],
)
def test_what_names_no_two_epochs_has_no_seconds(text: str) -> None:
    assert times([(second, text) for second in (1.0, 2.0, 3.0)]) is None
