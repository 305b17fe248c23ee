"""tool_invocation: one row for every call."""
