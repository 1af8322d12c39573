"""One conversation: turns, tool calls and subagents."""
