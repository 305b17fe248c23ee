"""tool_invocation: one row for every call, its review and retention."""
