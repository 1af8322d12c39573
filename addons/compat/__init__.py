"""What ctxagent shares with other agents: plugins, marketplaces, and settings that it copies."""
