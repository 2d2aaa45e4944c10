"""Tools of MCP servers: their names, lists, definitions and answers; no client connects yet."""
