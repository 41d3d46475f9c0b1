"""torchvision, torchaudio, torchcodec: boxes, pictures and sound against what they must be."""

from __future__ import annotations

import math
import os
import struct
import tempfile
import wave
from typing import Any, List

from ..judging.tolerance import Part, agree, holds, numbers, same
from .companion import Computed, companion, part


@companion("torchvision", against="plain torch")
def torchvision(torch: Any, vision: Any, device: str) -> Computed:
    """The boxes that nms keeps, a resize, and a picture packed and unpacked without loss."""
    pictures, transforms = part("torchvision.io"), part("torchvision.transforms.v2.functional")
    boxes, scores = boxes_of(torch)
    kept = vision.ops.nms(boxes.to(device), scores.to(device), 0.5)
    picture = (numbers(torch, 3, 33, 47, salt=3).abs() * 90).clamp(max=255).to(torch.uint8)
    unpacked = pictures.decode_png(pictures.encode_png(picture))
    small = transforms.resize(picture.double().to(device)[None], [11, 47], antialias=False)
    plain = torch.nn.functional.interpolate(picture.double()[None], (11, 47), mode="bilinear")
    return [
        same("nms", kept.cpu(), kept_by_hand(torch, boxes, scores, 0.5)),
        same("png", unpacked, picture),
        agree("resize", small, plain, 1e-3),
    ]


def boxes_of(torch: Any) -> Any:
    """60 boxes of random corners, and their scores."""
    corners = numbers(torch, 60, 2, salt=1).abs() * 40
    sizes = numbers(torch, 60, 2, salt=2).abs() * 20 + 5
    return torch.cat([corners, corners + sizes], 1), torch.linspace(0, 1, 60).roll(17)


def kept_by_hand(torch: Any, boxes: Any, scores: Any, most: float) -> Any:
    """Which boxes non-maximum suppression keeps, by its definition."""
    left, kept = scores.argsort(descending=True).tolist(), []
    while left:
        best = left.pop(0)
        kept.append(best)
        left = [each for each in left if overlap(boxes[best], boxes[each]) <= most]
    return torch.tensor(kept)


def overlap(one: Any, other: Any) -> float:
    """Intersection over union of two boxes."""
    wide = float(min(one[2], other[2]) - max(one[0], other[0]))
    high = float(min(one[3], other[3]) - max(one[1], other[1]))
    shared = max(0.0, wide) * max(0.0, high)
    areas = [float((box[2] - box[0]) * (box[3] - box[1])) for box in (one, other)]
    return shared / (sum(areas) - shared)


@companion("torchaudio", against="the sine that it must be")
def torchaudio(torch: Any, audio: Any, device: str) -> Computed:
    """A sine of 440 Hz resampled from 48 to 16 kHz is the same sine, but for its ends."""
    functional = part("torchaudio.functional")
    before = torch.sin(torch.arange(4800, dtype=torch.float64) * (2 * math.pi * 440 / 48000))
    after = functional.resample(before.to(device, torch.float32), 48000, 16000)
    exact = torch.sin(torch.arange(1600, dtype=torch.float64) * (2 * math.pi * 440 / 16000))
    return [agree("resample", after[200:-200], exact[200:-200], 5e-3)]


@companion("torchcodec", module="torchcodec.decoders", against="the samples that were written")
def torchcodec(torch: Any, decoders: Any, device: str) -> Computed:
    """A WAV file of known samples is decoded to them; on the CPU, as FFmpeg does it."""
    said = [int(20000 * math.sin(each / 7)) for each in range(1600)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sine.wav")
        write_wave(path, said)
        decoded = decoders.AudioDecoder(path).get_all_samples()
    parts: List[Part] = [holds("rate", decoded.sample_rate == 16000, str(decoded.sample_rate))]
    exact = torch.tensor([said], dtype=torch.float64) / 32768
    return [*parts, agree("samples", decoded.data, exact, 1e-4)]


def write_wave(path: str, samples: List[int]) -> None:
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
