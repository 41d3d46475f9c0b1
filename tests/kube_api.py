"""What stands in for a Kubernetes: a program `kubectl`, and an API server for one node on loopback.

    python tests/kube_api.py CLUSTER.json create -f - | wait | logs | get | delete ...

The program runs a Job's command here, with the node's name in NODE.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Object = dict[str, Any]
PROBLEMS = {
    "full": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no GPU"}]},
    "noimage": {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
}
"""Node -> the state of a pod there, which does not begin."""


def kubectl(folder: Path, words: list[str]) -> int:
    """What kubectl prints and does; Jobs are files of the folder `jobs`."""
    words = [word for word in words if not word.startswith("--namespace")]
    verb, what = words[0], words[1]
    if verb == "get" and what in ("nodes", "pods") and "json" not in words:
        print((folder / what).read_text(), end="")
        return 0
    if verb == "create":
        job = json.load(sys.stdin)
        (folder / "jobs" / job["metadata"]["name"]).write_text(json.dumps(job))
        return 0
    name = next((word for word in words if "gpusetup-" in word), "")
    path = folder / "jobs" / name.removeprefix("job/").removeprefix("--selector=job-name=")
    if verb == "delete":
        path.unlink(missing_ok=True)
        return 0
    job = json.loads(path.read_text())
    node = job["metadata"]["annotations"]["gpusetup.io/node"]
    if verb == "wait":
        return 1 if node in PROBLEMS else 0
    if verb == "get":
        print(json.dumps({"items": [{"status": PROBLEMS[node]}]}))
    elif node not in PROBLEMS:
        command = job["spec"]["template"]["spec"]["containers"][0]["command"]
        subprocess.run(command, env={**os.environ, "NODE": node}, check=False)
    return 0


@contextmanager
def kube_api(folder: Path) -> Iterator[dict[str, Object]]:
    """A server of one node for a pod's account in `folder/account`; yields the node's conditions
    by type, and `port`."""
    conditions: dict[str, Object] = {"Ready": {"type": "Ready", "status": "True"}}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _answer(self) -> None:
            allowed = self.headers["Authorization"] == "Bearer secret"
            there = self.path.removesuffix("/status") == "/api/v1/nodes/n1"
            size = int(self.headers.get("Content-Length") or 0)
            if allowed and there and self.command == "PATCH":
                assert self.path.endswith("/status")
                assert "strategic-merge-patch" in self.headers["Content-Type"]
                for one in json.loads(self.rfile.read(size))["status"]["conditions"]:
                    conditions[one["type"]] = one
            self.send_response(200 if allowed and there else 404 if allowed else 401)
            self.end_headers()
            body = {"metadata": {"name": "n1"}, "status": {"conditions": [*conditions.values()]}}
            self.wfile.write(json.dumps(body).encode())

        do_GET = do_PATCH = _answer

    account = folder / "account"
    account.mkdir()
    (account / "token").write_text("secret\n")
    make = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    named = ("-subj", "/CN=own", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(folder / "key"), "-out", str(account / "ca.crt"))
    subprocess.run((*make, *named, *files), check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "ca.crt", folder / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    conditions["port"] = {"type": "port", "value": server.server_address[1]}
    try:
        yield conditions
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    sys.exit(kubectl(Path(sys.argv[1]), sys.argv[2:]))
