"""The tools a model may call. They import nothing from `agent`."""
