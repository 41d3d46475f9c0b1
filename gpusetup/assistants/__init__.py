"""Answers for AI assistants: the MCP server and its tools."""
