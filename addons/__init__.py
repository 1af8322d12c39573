"""Add-ons: parts that use `ctxagent.api` and their own folder alone, loaded when they are used."""
