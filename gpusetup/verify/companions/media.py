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


@companion("torchvision", against="what must come out")
def torchvision(torch: Any, vision: Any, device: str) -> Computed:
    """Of two boxes that nearly cover each other nms keeps one; a picture is packed without loss."""
    pictures = part("torchvision.io")
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]])
    kept = vision.ops.nms(boxes.to(device), torch.tensor([0.7, 0.9, 0.8]).to(device), 0.5)
    picture = (numbers(torch, 3, 33, 47, salt=3).abs() * 90).clamp(max=255).to(torch.uint8)
    unpacked = pictures.decode_png(pictures.encode_png(picture))
    return [same("nms", kept, torch.tensor([1, 2])), same("png", unpacked, picture)]


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
