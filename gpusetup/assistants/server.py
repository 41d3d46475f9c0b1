"""The MCP server on stdin and stdout. The home of `mcp`.

Nothing but the protocol is written to stdout: the transport diverts the stream of everybody else to
stderr. Tools run one at a time in a thread, so that the protocol is answered meanwhile.
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
    """Answer until the client closes stdin, or a signal ends us."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _end)
    anyio.run(_serve, python)


def _end(*_: object) -> None:
    """End at once: the thread that waits for stdin cannot be told to."""
    end_children()
    os._exit(INTERRUPTED)


async def _serve(python: str | None) -> None:
    one_at_a_time = anyio.CapacityLimiter(1)

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_shown(tool) for tool in tools.TOOLS])

    async def call_tool(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        values = asked.arguments or {}
        text, is_error = await anyio.to_thread.run_sync(
            _called, asked.name, values, python, limiter=one_at_a_time
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
        await server.run(incoming, outgoing, server.create_initialization_options())


def _shown(tool: tools.Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )
    return types.Tool(
        name=tool.name,
        description=tool.what,
        input_schema=tools.schema_of(tool),
        annotations=hints,
    )


def _called(name: str, values: dict[str, Any], python: str | None) -> tuple[str, bool]:
    """The answer's JSON, and whether it is an error."""
    try:
        answer, is_error = tools.call(name, values, python), False
    except Exception as problem:
        fault = problem if isinstance(problem, GpuSetupError) else own_fault(problem)
        answer, is_error = tools.error_of(fault), True
    return harmless_json(json.dumps(answer)), is_error
