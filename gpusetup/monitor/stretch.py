"""One GPU's work sample by sample, in few slices of the run, so that a part can be left out.

A slice keeps its work and its pauses apart. When there are too many, neighbours become one: a run
of any length has at most `MOST_SLICES`.
"""

from __future__ import annotations

from typing import NamedTuple

from gpusetup.monitor.marks import BLIP, LOW, PAUSE, WARM_FULL, WARM_LESS, WARM_MOST
from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.monitor.work import Work, WorkTally, is_quiet, merged

MOST_SLICES = 64


class Pauses:
    """How many there were, and how long."""

    def __init__(self) -> None:
        self.count, self.seconds, self.longest = 0, 0.0, 0.0

    def add(self, count: int, seconds: float, longest: float) -> None:
        self.count += count
        self.seconds += seconds
        self.longest = max(self.longest, longest)

    def merge(self, other: Pauses) -> None:
        self.add(other.count, other.seconds, other.longest)

    @property
    def mean(self) -> float:
        return self.seconds / max(1, self.count)


class Slice:
    """A part of the run, from a second on."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.work, self.pause, self.pauses = WorkTally(), WorkTally(), Pauses()

    @property
    def samples(self) -> int:
        return self.work.samples + self.pause.samples

    @property
    def level(self) -> float:
        """Mean utilisation, its pauses counted."""
        total = self.work.utilization.total + self.pause.utilization.total
        return total / max(1, self.samples)

    def merge(self, later: Slice) -> Slice:
        self.work.merge(later.work)
        self.pause.merge(later.pause)
        self.pauses.merge(later.pauses)
        return self


class Parts(NamedTuple):
    """A run of one GPU, taken apart."""

    work: Work | None
    """Between its first and its last work, without start-up, warm-up and pauses; None where it
    never worked."""
    body: Work | None
    """The same with the pauses."""
    paused: Work | None
    """The pauses alone."""
    whole: Work | None
    """All samples, the start and the end too."""
    pauses: Pauses
    warm: float
    """Seconds of the first work that was much less than what came later; it is not judged."""

    @property
    def pause_share(self) -> float:
        """Percent of the samples between the first and the last work."""
        return self.paused.samples / self.body.samples * 100 if self.paused and self.body else 0.0


class Stretches:
    """The slices of one GPU, and what was before its first and after its last work."""

    def __init__(self) -> None:
        self.all = Slice(0.0)
        """Of all slices together."""
        self.slices: list[Slice] = []
        self.every = 1
        self.start = WorkTally()
        self.pending = WorkTally()
        self.pending_since: float | None = None
        self.stray: tuple[GpuSample, Sample] | None = None
        """A little work in a pause: what comes next tells whether the pause is over."""
        self.first_work: float | None = None

    def add(self, gpu: GpuSample, sample: Sample) -> None:
        """Work, or quiet that waits to be told a stutter, a pause or the end."""
        if is_quiet(gpu) or self._is_blip(gpu):
            if self.pending_since is None:
                self.pending_since = sample.seconds
            if self.stray is not None:
                self.pending.add(*self.stray)
                self.stray = None
            self.pending.add(gpu, sample)
        elif self._is_stray(gpu, sample):
            self.stray = gpu, sample
        else:
            self._work(gpu, sample)

    def _is_blip(self, gpu: GpuSample) -> bool:
        """Within quiet, next to nothing on a GPU that otherwise works."""
        works = self.pending_since is not None and self._usual() >= LOW
        return works and (gpu.utilization_percent or 0.0) < BLIP

    def _is_stray(self, gpu: GpuSample, sample: Sample) -> bool:
        """One sample of little work in what is a pause already."""
        if self.stray is not None or self.pending_since is None or self.first_work is None:
            return False
        paused = sample.seconds - self.pending_since >= PAUSE
        return paused and (gpu.utilization_percent or 0.0) < self._usual() / 2

    def _usual(self) -> float:
        return self.all.work.utilization.value() or 0.0

    def _work(self, gpu: GpuSample, sample: Sample) -> None:
        taken = [*filter(None, (self.stray,)), (gpu, sample)]
        self._settle(taken[0][1].seconds)
        self.stray = None
        if self.first_work is None:
            self.first_work = sample.seconds
        for one in taken:
            for part in (self._open(one[1].seconds), self.all):
                part.work.add(*one)

    def _settle(self, now: float) -> None:
        """Work came after quiet: it was the start-up, a stutter or a pause."""
        if self.pending_since is None:
            return
        length = now - self.pending_since
        if self.first_work is None:
            self.start.merge(self.pending)
        else:
            for part in (self._open(self.pending_since), self.all):
                if length < PAUSE:
                    part.work.merge(self.pending)
                else:
                    part.pause.merge(self.pending)
                    part.pauses.add(1, length, length)
        self.pending, self.pending_since = WorkTally(), None

    def _open(self, at: float) -> Slice:
        """The slice that takes what comes now."""
        if self.slices and self.slices[-1].samples < self.every:
            return self.slices[-1]
        if len(self.slices) >= MOST_SLICES:
            pairs = zip(self.slices[::2], self.slices[1::2], strict=True)
            self.slices = [first.merge(second) for first, second in pairs]
            self.every *= 2
        self.slices.append(Slice(at))
        return self.slices[-1]

    @property
    def rest(self) -> Work | None:
        """What came after its last work."""
        return None if self.first_work is None else self.pending.work()

    def warm_up(self) -> int:
        """How many of the first slices are a warm-up: much less work than what came later."""
        levels = [one.level for one in self.slices]
        later = sorted(levels[len(levels) // 2 :])
        usual = later[len(later) // 2] if later else 0.0
        pairs = zip(levels, [*levels[1:], *levels[-1:]], strict=True)
        full = next((n for n, pair in enumerate(pairs) if min(pair) >= usual * WARM_FULL), 0)
        first = self.slices[:full]
        count = sum(one.samples for one in first)
        most = WARM_MOST / 100 * sum(one.samples for one in self.slices)
        if not 3 <= count <= most:
            return 0
        mean = sum(one.level * one.samples for one in first) / count
        # What comes and goes is no work after a warm-up: most of it is as usual.
        low = sum(level < usual * WARM_LESS for level in levels[full:])
        return full if mean < usual * WARM_LESS and low * 4 <= len(levels) - full else 0

    def parts(self) -> Parts:
        """The warm-up is in neither the work nor the pauses."""
        warm, kept = self.warm_up(), self.all
        whole = merged([self.start, kept.work, kept.pause, self.pending])
        if warm:
            kept = Slice(self.slices[warm].at)
            for one in self.slices[warm:]:
                kept.merge(one)
        return Parts(
            work=kept.work.work(),
            body=merged([kept.work, kept.pause]).work(),
            paused=kept.pause.work(),
            whole=whole.work(),
            pauses=kept.pauses,
            warm=kept.at - self.slices[0].at if warm else 0.0,
        )
