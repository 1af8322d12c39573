"""Language servers of plugins, from `.lsp.json` or `lspServers` of a plugin's manifest.

The format is https://code.claude.com/docs/en/plugins-reference#lsp-servers: `{NAME: {"command",
"args", "env", "extensionToLanguage", "initializationOptions", "settings", "startupTimeout"}}`.
`${VAR}` and `${VAR:-default}` are replaced by environment variables.
"""

from collections.abc import Mapping
from typing import Any

from ...border.document import read_object
from ...config.trust import read_untrusted
from ..mcp.config import with_variables
from ..plugin_layout import places_of
from ..plugins import Plugin
from .kinds import KINDS, ServerKind

LSP_KEY = "lspServers"
MAX_START_S = 600.0


def servers_of(
    plugin: Plugin, environ: Mapping[str, str] | None
) -> tuple[dict[str, ServerKind], list[str]]:
    """Return the servers of a plugin by name, and a warning for each skipped server. Replace
    variables by those of `environ`; keep them if `environ` is None. The built-in server for the
    same suffixes is the fallback if the plugin's program is not installed.
    """
    found, problems = dict[str, ServerKind](), list[str]()
    for path in places_of(plugin.folder, LSP_KEY):
        shown = path.relative_to(plugin.folder)
        try:
            document = read_object(read_untrusted(path))
            rows = {**document.get(LSP_KEY, document)}
        except (OSError, ValueError, TypeError):
            problems.append(f"{shown}: no language server in it is used: it is not {{NAME: {{…}}}}")
            continue
        for name, values in rows.items():
            try:
                if environ is not None:
                    values = with_variables(values, {**environ, **plugin.environ})
                found[name] = _kind(values, plugin.environ)
            except (ValueError, TypeError, AttributeError) as error:
                problems.append(f"{shown}: the language server {name} is left out: {error}")
    return found, problems


def _kind(values: Any, environ: Mapping[str, str]) -> ServerKind:
    """Return a server from its description in a plugin. Raises ValueError, TypeError and
    AttributeError.
    """
    command, arguments = values.get("command"), values.get("args") or []
    languages = values.get("extensionToLanguage")
    if not isinstance(command, str) or not command.strip():
        raise ValueError("it has no command")
    if not isinstance(languages, dict) or not languages:
        raise ValueError("it has no extensionToLanguage")
    if (transport := values.get("transport", "stdio")) != "stdio":
        raise ValueError(f"its transport {str(transport)[:40]!r} is not supported here")
    same = next((kind for kind in KINDS if kind.languages.keys() & languages.keys()), None)
    start_ms = values.get("startupTimeout") or 0
    return ServerKind(
        {str(suffix): str(language) for suffix, language in languages.items()},
        ((command, *map(str, arguments)), *(same.commands if same else ())),
        same.markers if same else (),
        env={
            **environ,
            **{str(key): str(value) for key, value in (values.get("env") or {}).items()},
        },
        options=values.get("initializationOptions"),
        settings=values.get("settings"),
        start_s=min(float(start_ms) / 1_000, MAX_START_S),
    )
