"""The MCP server on stdin and stdout. This is the only module that imports `mcp`.

Only protocol messages are written to stdout. The transport sends everything else to stderr. Tools
run in a thread, one at a time, so that the server can respond to the protocol meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import anyio
import anyio.to_thread
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from gpusetup import __version__
from gpusetup.assistants import tools
from gpusetup.errors import INTERRUPTED
from gpusetup.render.console import harmless_json
from gpusetup.system.processes import end_children


def serve(python: str | None) -> None:
    """Serve requests until the client closes stdin or a signal ends the process."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _end)
    anyio.run(_serve, python)


def _end(*_: object) -> None:
    """End the process at once, because the thread that waits for stdin cannot be stopped."""
    end_children()
    os._exit(INTERRUPTED)


async def _serve(python: str | None) -> None:
    """Serve the protocol; `python` is the environment that the user chose."""
    # Only one tool runs at a time, because two would query the driver at the same time.
    single_call = anyio.CapacityLimiter(1)

    changes_nothing = types.ToolAnnotations(
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )
    listed_tools = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tools.schema_of(tool),
            annotations=changes_nothing,
        )
        for tool in tools.TOOLS
    ]

    async def list_tools(_context: Any, _request: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed_tools)

    async def call_tool(
        _context: Any, request: types.CallToolRequestParams
    ) -> types.CallToolResult:
        values = request.arguments or {}
        answer = await anyio.to_thread.run_sync(
            tools.call, request.name, values, python, limiter=single_call
        )
        is_error = answer.get("schema") == tools.ERROR
        text = harmless_json(json.dumps(answer))
        content: list[Any] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=is_error)

    server: Server[Any] = Server(
        "gpusetup",
        version=__version__,
        instructions=tools.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (incoming, outgoing):
        options = server.create_initialization_options()
        await server.run(incoming, outgoing, options)
