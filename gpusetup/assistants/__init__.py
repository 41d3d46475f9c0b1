"""What programs that act for a person are told: the MCP server, its tools, what it may install."""
