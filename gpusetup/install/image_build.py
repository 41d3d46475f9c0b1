"""Detects whether gpusetup runs while a container image is built."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def in_image_build() -> bool:
    """Whether this process runs in an image build, as far as the builder can be recognised.

    BuildKit, buildah and kaniko can be recognised, but the old docker builder cannot.
    """
    return (
        platform.node() == "buildkitsandbox"
        or "BUILDAH_ISOLATION" in os.environ
        or Path("/kaniko/executor").exists()
    )
