"""The door to the program: what parts outside the kernel may use.

| module | for |
| --- | --- |
| `extension` | extensions: features, tools, commands, settings, layers, models, formats |
| `base` | errors, the version, dataclasses and patterns made at first use |
| `session` | options, features, turns and events of a session |
| `record` | the log, its entries, its other files, search |
| `context` | the view of a log, requests, tokens, the window, compaction |
| `models` | providers, requests and replies of each protocol, limits, prices |
| `tools` | the interface of tools, and parts of the built-in ones |
| `guard` | trust, start of programs, sandboxes, redaction |
| `settings` | the settings, and where they are stored |
| `recordings` | sessions that other agents recorded |
| `pages` | pages for browsers |
| `front_ends` | conversations in a terminal, an editor or another program |
| `cli` | commands of the shell |
| `files` | private and durable files, repositories |
| `programs` | programs, their environment, connections |
| `text` | text for readers, and values from documents of others |

Add-ons import from these modules and from their own folder alone. docs/guide/api.md lists the
names.
"""
