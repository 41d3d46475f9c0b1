"""Finds the certificates for gpusetup's own requests to an index, so that these requests trust the
same certificates as uv."""

from __future__ import annotations

import os
from pathlib import Path

SYSTEM_STORES = (
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    *("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"),
)
"""The files in which Linux distributions keep their trusted certificates."""


def certificates() -> str | bool:
    """The certificate file for the `requests` library; True if it should use its own file."""
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        path = os.environ.get(name)
        if path and Path(path).exists():
            return path
    for path in SYSTEM_STORES:
        if Path(path).exists():
            return path
    return True


def has_system_store() -> bool:
    """Whether this system has a certificate store; Windows and macOS always do."""
    if os.name != "posix":
        return True
    # A minimal container may have no certificate store. uv then uses its own certificates.
    return any(Path(path).exists() for path in SYSTEM_STORES)
