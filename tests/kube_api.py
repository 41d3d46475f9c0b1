"""An API server of Kubernetes on loopback, as far as kubectl and a pod's account ask it.

It keeps objects by their paths, merges conditions by type as a strategic merge patch does, and runs
a Job's command here, with the node's name in NODE. Its forms are those of the API reference.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
RESOURCES = {
    "v1": ("Node", "Pod", "Event", "ConfigMap", "ServiceAccount"),
    "batch/v1": ("Job",),
    "apps/v1": ("DaemonSet",),
    "rbac.authorization.k8s.io/v1": ("ClusterRole", "ClusterRoleBinding"),
}
GLOBAL = ("Node", "ClusterRole", "ClusterRoleBinding")
CONFIG = """\
apiVersion: v1
kind: Config
current-context: it
contexts: [{{name: it, context: {{cluster: it, user: it}}}}]
clusters: [{{name: it, cluster: {{server: "{url}", certificate-authority: "{ca}"}}}}]
users: [{{name: it, user: {{token: "{token}"}}}}]
"""


def plural(kind: str) -> str:
    return f"{kind.lower()}s"


LISTS: dict[str, Object] = {
    plural(kind): {"kind": f"{kind}List", "apiVersion": version}
    for version, kinds in RESOURCES.items()
    for kind in kinds
}


class Api:
    """The server's objects by path, and what it was asked."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.logs: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.forbidden: tuple[str, ...] = ()
        self.running: list[subprocess.Popen[str]] = []
        self.url, self.token = "", "secret"

    def add_node(self, name: str, gpus: int = 8, **more: Any) -> None:
        ready = {"type": "Ready", "status": "True", "message": "kubelet is posting ready status"}
        self.objects[f"/api/v1/nodes/{name}"] = {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {}, "status": {"allocatable": {"nvidia.com/gpu": str(gpus)},
                                   "conditions": [ready]}, **more,
        }  # fmt: skip

    def add_pod(self, name: str, node: str, gpus: int) -> None:
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        self.objects[f"/api/v1/namespaces/default/pods/{name}"] = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {}},
            "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": "Running"},
        }  # fmt: skip

    def of_kind(self, kind: str) -> list[Object]:
        return [one for one in self.objects.values() if one["kind"] == kind]

    # --- what it does

    def create(self, path: str, made: Object) -> Object:
        meta = made["metadata"]
        meta.setdefault("name", f"{meta.get('generateName', '')}{len(self.objects)}")
        meta |= {"uid": f"uid-{meta['name']}", "resourceVersion": "1"}
        if "/namespaces/" in path:
            meta["namespace"] = path.split("/namespaces/")[1].split("/")[0]
        self.objects[f"{path}/{meta['name']}"] = made
        if made["kind"] == "Job":
            self._begin(made)
        return made

    def _begin(self, job: Object) -> None:
        meta, template = job["metadata"], job["spec"]["template"]
        labels = {**template["metadata"]["labels"], "job-name": meta["name"]}
        job["spec"]["selector"] = {"matchLabels": {"job-name": meta["name"]}}
        job["status"] = {}
        pod = {
            "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
            "metadata": {"name": f"{meta['name']}-x", "namespace": meta["namespace"],
                         "labels": labels},
            "status": {"phase": "Pending"},
        }  # fmt: skip
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}-x"
        self.objects[path] = pod
        node = meta["annotations"]["gpusetup.io/node"]
        if node.startswith("full"):
            told = {"type": "PodScheduled", "status": "False", "message": "0/4 nodes are available"}
            pod["status"]["conditions"] = [told]
        elif node.startswith("noimage"):
            waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
            pod["status"]["containerStatuses"] = [{"name": "c", "state": {"waiting": waiting}}]
        else:
            threading.Thread(target=self._run, args=(job, pod, path, node), daemon=True).start()

    def _run(self, job: Object, pod: Object, path: str, node: str) -> None:
        command = pod["spec"]["containers"][0]["command"]
        child = subprocess.Popen(
            command, env={**os.environ, "NODE": node}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.running.append(child)
        self.logs[path] = child.communicate()[0]
        pod["status"]["phase"] = "Succeeded"
        job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]

    def patch(self, path: str, change: Object) -> Object:
        """A strategic merge patch of conditions: those of one type replace each other."""
        found = self.objects[path.removesuffix("/status")]
        new = change["status"]["conditions"]
        kept = [
            c for c in found["status"]["conditions"] if c["type"] not in {n["type"] for n in new}
        ]
        found["status"]["conditions"] = [*kept, *new]
        return found


def _listed(api: Api, path: str, query: dict[str, list[str]]) -> list[Object]:
    kind = path.rsplit("/", 1)[1]
    folder = path if "/namespaces/" in path else path.rsplit("/", 1)[0]
    every = [
        o for p, o in api.objects.items() if p.startswith(folder) and plural(o["kind"]) == kind
    ]
    for pair in filter(None, query.get("labelSelector", [""])[0].split(",")):
        name, _, value = pair.partition("=")
        every = [o for o in every if o["metadata"].get("labels", {}).get(name) == value]
    for pair in filter(None, query.get("fieldSelector", [""])[0].split(",")):
        if pair.startswith("metadata.name="):
            every = [o for o in every if o["metadata"]["name"] == pair.partition("=")[2]]
    return every


def _discovered(path: str) -> Object | None:
    groups = [version for version in RESOURCES if "/" in version]
    if path == "/version":
        return {"major": "1", "minor": "32", "gitVersion": "v1.32.4"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        names: list[Object] = [
            {"name": one.split("/")[0], "versions": [{"groupVersion": one, "version": "v1"}],
             "preferredVersion": {"groupVersion": one, "version": "v1"}}
            for one in groups
        ]  # fmt: skip
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": names}
    version = path.removeprefix("/apis/").removeprefix("/api/")
    if version not in RESOURCES:
        return None
    verbs = ["create", "delete", "get", "list", "patch", "watch"]
    rows: list[Object] = [
        {"name": plural(kind), "singularName": "", "kind": kind, "verbs": verbs,
         "namespaced": kind not in GLOBAL}
        for kind in RESOURCES[version]
    ]  # fmt: skip
    return {"kind": "APIResourceList", "groupVersion": version, "resources": rows}


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _send(self, document: object, code: int = 200, kind: str = "application/json") -> None:
            body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _refused(self, code: int, reason: str, message: str) -> None:
            self._send(
                {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
                 "message": message, "code": code}, code,
            )  # fmt: skip

        def _body(self) -> Any:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return json.loads(raw) if raw else None

        def _may(self) -> bool:
            path = urlsplit(self.path).path
            api.asked.append((self.command, self.path))
            if self.headers.get("Authorization") != f"Bearer {api.token}":
                self._refused(401, "Unauthorized", "Unauthorized")
                return False
            if any(f"{self.command} {path}".startswith(one) for one in api.forbidden):
                self._refused(403, "Forbidden", f"no {self.command} of {path} for you")
                return False
            return True

        def do_GET(self) -> None:
            if not self._may():
                return
            asked = urlsplit(self.path)
            path, query = asked.path, parse_qs(asked.query)
            known = _discovered(path)
            if known is not None:
                self._send(known)
            elif path.endswith("/log"):
                self._send(api.logs.get(path.removesuffix("/log"), ""), kind="text/plain")
            elif path in api.objects:
                self._send(api.objects[path])
            elif "watch" in query:
                self._watch(path, query)
            elif path.rsplit("/", 1)[1] in LISTS:
                rows = {**LISTS[path.rsplit("/", 1)[1]], "metadata": {"resourceVersion": "1"}}
                self._send({**rows, "items": _listed(api, path, query)})
            else:
                self._refused(404, "NotFound", f"{path} not found")

        def _watch(self, path: str, query: dict[str, list[str]]) -> None:
            """Tell of the Job once it is complete."""
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            for _ in range(600):
                found = _listed(api, path, query)
                if found and found[0].get("status", {}).get("conditions"):
                    event = {"type": "MODIFIED", "object": found[0]}
                    self.wfile.write(json.dumps(event).encode() + b"\n")
                    return
                time.sleep(0.1)

        def do_POST(self) -> None:
            if self._may():
                self._send(api.create(urlsplit(self.path).path, self._body()), 201)

        def do_PATCH(self) -> None:
            if self._may():
                assert "strategic-merge-patch" in self.headers["Content-Type"]
                self._send(api.patch(urlsplit(self.path).path, self._body()))

        def do_DELETE(self) -> None:
            if self._may():
                self._body()
                gone = api.objects.pop(urlsplit(self.path).path, None)
                self._send(gone or {"kind": "Status", "status": "Success"})

    return Handler


@contextmanager
def kube_api(folder: Path, tls: Path) -> Iterator[Api]:
    """The server; `folder/config` is a kubeconfig, `folder/account` a pod's account."""
    api = Api()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    api.url = f"https://127.0.0.1:{server.server_address[1]}"
    account = folder / "account"
    account.mkdir()
    (account / "token").write_text(f"{api.token}\n")
    (account / "ca.crt").write_text((tls / "ca.pem").read_text())
    config = CONFIG.format(url=api.url, ca=tls / "ca.pem", token=api.token)
    (folder / "config").write_text(config)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        for child in api.running:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def openssl(*words: str, cwd: Path) -> None:
    subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True)


def authority(folder: Path, host: str = "IP:127.0.0.1", days: str = "2") -> Path:
    """A folder with `ca.pem`, an authority of our own, and `server.pem`, what it vouches for."""
    folder.mkdir(parents=True)
    new = ("-newkey", "rsa:2048", "-nodes")
    openssl(
        *("req", "-x509", *new, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"),
        *("-subj", "/CN=Own authority", "-addext", "basicConstraints=critical,CA:TRUE"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        cwd=folder,
    )
    openssl(*("req", *new, "-keyout", "key", "-out", "csr", "-subj", "/CN=index"), cwd=folder)
    (folder / "names").write_text(f"subjectAltName={host}\nextendedKeyUsage=serverAuth\n")
    openssl(
        *("x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", days, "-extfile", "names", "-out", "crt"),
        cwd=folder,
    )
    (folder / "server.pem").write_text((folder / "crt").read_text() + (folder / "key").read_text())
    return folder
