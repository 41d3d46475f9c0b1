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
from gpusetup.errors import GpuSetupError, own_fault
from gpusetup.render.console import harmless_json
from gpusetup.system.processes import end_children

INTERRUPTED = 130


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

    async def list_tools(_context: Any, _request: Any) -> types.ListToolsResult:
        listed_tools = [_listed(tool) for tool in tools.TOOLS]
        return types.ListToolsResult(tools=listed_tools)

    async def call_tool(
        _context: Any, request: types.CallToolRequestParams
    ) -> types.CallToolResult:
        values = request.arguments or {}
        text, is_error = await anyio.to_thread.run_sync(
            _answer, request.name, values, python, limiter=single_call
        )
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


def _listed(tool: tools.Tool) -> types.Tool:
    """Describe a tool in the form that the protocol requires."""
    hints = types.ToolAnnotations(
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tools.schema_of(tool),
        annotations=hints,
    )


def _answer(name: str, values: dict[str, Any], python: str | None) -> tuple[str, bool]:
    """The JSON of a tool's answer, and whether it is an error."""
    is_error = False
    try:
        answer = tools.call(name, values, python)
    except GpuSetupError as problem:
        answer, is_error = tools.error_of(problem), True
    except Exception as problem:
        # Return an unexpected error as an answer too, because a bug in gpusetup must not end the
        # server.
        answer, is_error = tools.error_of(own_fault(problem)), True
    return harmless_json(json.dumps(answer)), is_error
