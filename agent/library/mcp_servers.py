"""The MCP servers of a run: read their configuration and start them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..extensions.mcp.config import ServerConfig, load_servers
from ..launch import LaunchOptions

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers


MCP_FOLDER = "mcp"  # in the state folder: login tokens, output of failed servers


def configured(launch: LaunchOptions) -> tuple[list[ServerConfig], list[str]]:
    """Return the servers configured for a run, and warnings about their files."""
    if launch.safe:
        return [], []
    return load_servers(
        launch.cwd,
        config_home=launch.config_home,
        home=launch.home,
        trust_dir=launch.trust or launch.state,
        environ=launch.environ,
        plugins=launch.plugins,
    )


class RunServers:
    """The MCP servers of a run, started once for all its sessions. Servers in `more` override those
    of the same name from files.
    """

    def __init__(self, launch: LaunchOptions, more: Sequence[ServerConfig] = ()) -> None:
        self._launch, self._more = launch, more
        self._has_begun = False

    def begin(self, warn: Callable[[str], None]) -> "McpServers | None":
        """Start the configured servers on the first call, without waiting for them. Return the
        servers.
        """
        if not self._has_begun and "mcp" not in self._launch.settings.features.off:
            self._has_begun = True
            configs, warnings = configured(self._launch)
            configs = [*{each.name: each for each in [*configs, *self._more]}.values()]
            for warning in warnings:
                warn(warning)
            if configs:
                servers = start_servers(self._launch, configs)
                self._launch = replace(self._launch, mcp=servers)
        return self._launch.mcp

    def end(self) -> None:
        """Stop the servers. Blocks."""
        if self._launch.mcp is not None:
            self._launch.mcp.close()


def start_servers(
    launch: LaunchOptions,
    configs: list[ServerConfig],
    show: Callable[[str], None] | None = None,
) -> "McpServers":
    """Start these servers without waiting for them. With `show`, the user logs in: `show` gets the
    login addresses.
    """
    from ...tools.system.environment import child_environment
    from ..extensions.mcp.login import LOGIN_TIMEOUT_S
    from ..extensions.mcp.servers import McpServers
    from ..security.program_starts import gate_of

    settings = launch.settings.mcp
    servers = McpServers(
        configs,
        env=child_environment(launch.environ, launch.settings.bash.keep_env),
        cwd=launch.cwd,
        starts=gate_of(launch),
        start_timeout=LOGIN_TIMEOUT_S if show else settings.start_timeout,
        call_timeout=settings.call_timeout,
        needed=settings.needed,
        load_at_start=settings.load_at_start,
        folder=launch.state / MCP_FOLDER,
        show=show,
    )
    servers.start()
    return servers
