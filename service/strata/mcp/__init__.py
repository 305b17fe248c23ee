"""The MCP surface: tools for agents, over streamable HTTP and over standard input and output."""
