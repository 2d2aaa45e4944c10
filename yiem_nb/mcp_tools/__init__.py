"""Tools of MCP servers: what they are called and how their definitions are held to their word."""
