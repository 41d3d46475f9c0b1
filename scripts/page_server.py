"""A plain file server for a built page, which remembers what it was asked for."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path


class PageServer:
    """Serves a folder on a port of its own: `python -m http.server`, with a list of requests.

    No answer may be kept by the browser's own cache: what works without a network works by the
    service worker alone.
    """

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                asked.append(f"{self.command} {self.path} {code}")

            def end_headers(self) -> None:
                self.send_header("Cache-Control", "no-store")
                super().end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is printed."""

        handler = functools.partial(Handler, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """From now on nobody answers at that address."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
