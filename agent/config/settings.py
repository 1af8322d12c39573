"""The settings: each key is declared once, with its default, type and help text.

A section is a frozen dataclass, and each field is a key declared with `setting`. Parsing,
environment variables, `config --explain`, the documentation and the checks of `.agentrc.example`
are derived from `KEYS`. To add a key, add a field. To add a section, add a class and a field of
`Settings`. The module `load` reads the values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from ..lazy import dataclass
from .add_on_settings import ADD_ON_SECTIONS, AddOnSettings, LspSettings, TelemetrySettings
from .compaction_settings import (
    CheckpointSettings,
    ClearSettings,
    CompactSettings,
    ContextSettings,
    MemorySettings,
    MoveSettings,
    StateSettings,
    TruncateSettings,
)
from .keyboard import KeyboardSettings
from .keys import (
    ADDRESS,
    COMMAND,
    COMMANDS,
    COMPACTABLE_CATEGORIES,
    FILE,
    FOLDER,
    HOSTS,
    KEPT_CATEGORIES,
    MODEL_ID,
    PROJECT_PATH,
    RULES,
    SECONDS,
    SECONDS_OR_AUTO,
    SERVER_NAMES,
    SWITCH,
    TOKENS_OR_AUTO,
    VARIABLE_NAMES,
    Setting,
    ValueType,
    list_of,
    loosens_if_different,
    loosens_if_larger,
    loosens_if_later,
    loosens_if_longer,
    loosens_if_shorter,
    loosens_if_turned,
    loosens_never,
    one_of,
    or_none,
    setting,
    whole_number,
)
from .preservation import ALWAYS, COMPACTABLE

ImagesMode = Literal["auto", "on", "off"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
# These are ordered from strict to lax.
PermissionMode = Literal["plan", "ask", "accept-edits", "sandboxed", "bypass"]
ConfinedCommands = Literal["ask", "allow"]
SandboxMode = Literal["require", "auto", "off"]
SearchMode = Literal["off", "auto", "on"]
FeatureName = Literal[
    "environment", "folder-instructions", "crash-recovery", "questions", "attachments", "plan",
    "subagents", "jobs", "skills", "memory", "web-search", "mcp", "drift", "loops", "run-state",
    "result-schema", "disk-budget", "provenance", "window", "hooks",
]  # fmt: skip
FEATURE_NAMES: tuple[FeatureName, ...] = get_args(FeatureName)  # in the order of their calls
Theme = Literal["auto", "dark", "light", "high-contrast", "ansi", "none"]
EditingMode = Literal["emacs", "vi"]
SendTime = Literal["after-call", "after-turn"]
NoticeStyle = Literal["auto", "bell", "osc9", "osc777", "osc99", "off"]


def _feature_name() -> ValueType:
    """Return the type of the name of a feature: of the kernel, or of an installed add-on."""
    known = one_of((*FEATURE_NAMES, *ADD_ON_SECTIONS))

    def read(value: Any) -> str:
        try:
            return str(known.read(value))
        except ValueError:
            from ..border.entry_points import FEATURES, entry_points

            if isinstance(value, str) and value in entry_points(FEATURES):
                return value
            raise

    return known._replace(read=read)


_FEATURE = _feature_name()


def _hook(help: str) -> tuple[str, ...]:
    return setting((), COMMANDS, help, adds=True, loosens=loosens_if_different)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """[model]"""

    id: str = setting(
        "claude-sonnet-5-5",
        MODEL_ID,
        "The model that answers: a name, or provider/name.",
        loosens=loosens_if_different,
    )
    small: str | None = setting(
        None,
        or_none("auto", MODEL_ID),
        'The model of "explore" subagents and of summary checks. "auto": no separate model.',
        loosens=loosens_if_different,
    )
    fallback: str | None = setting(
        None,
        or_none("off", MODEL_ID),
        'The model to use while another one is overloaded (529, 503, 429). "off": none.',
        loosens=loosens_if_different,
    )
    plan: str | None = setting(
        None,
        or_none("auto", MODEL_ID),
        'The model to use in plan mode. "auto": model.id.',
        loosens=loosens_if_different,
    )
    context_window: int | None = setting(
        None,
        TOKENS_OR_AUTO,
        'The context window of the model. "auto": the known size.',
        loosens=loosens_if_different,
    )
    max_tokens: int | None = setting(
        None,
        TOKENS_OR_AUTO,
        'The longest reply. "auto": as long as the model allows.',
        loosens=loosens_if_different,
    )
    effort: Effort | None = setting(
        None,
        or_none("auto", one_of(Effort)),
        'How hard the model thinks. "auto": the model\'s own default.',
        loosens=loosens_if_later(Effort),
    )
    base_url: str | None = setting(
        None,
        or_none("auto", ADDRESS),
        'The server that gets the requests and the key. "auto": the server of the provider.',
        loosens=loosens_if_different,
    )
    images: ImagesMode = setting(
        "auto",
        one_of(ImagesMode),
        'Whether the model accepts images. "auto": until it refuses one.',
        loosens=loosens_never,
    )
    overload_wait: int | None = setting(
        None,
        SECONDS_OR_AUTO,
        'How many seconds to retry an overloaded server (529, 503). "auto": 600, and 120 with -p.',
        loosens=loosens_never,
    )
    wait_file: Path | None = setting(
        None,
        or_none("off", FILE),
        "A file shared by several agents: if the server makes one wait (429, 529), all wait.",
        loosens=loosens_if_different,
    )


@dataclass(frozen=True, slots=True)
class PreserveSettings:
    """[preserve]"""

    always: tuple[str, ...] = setting(
        ALWAYS,
        KEPT_CATEGORIES,
        "The categories that every compaction keeps; see `ctxagent rules`.",
        loosens=loosens_if_shorter,
    )
    compactable: tuple[str, ...] = setting(
        COMPACTABLE,
        COMPACTABLE_CATEGORIES,
        "Old results that may be cleared. Thinking is cleared when earlier content changes.",
        loosens=loosens_if_longer,
    )
    strict: bool = setting(
        False,
        SWITCH,
        "Refuse to compact while a required section is missing.",
        loosens=loosens_if_turned(False),
    )
    notes: str = setting(
        "NOTES.md",
        PROJECT_PATH,
        "The file with the sections that every compaction keeps.",
        loosens=loosens_never,
    )
    run_state: str = setting(
        ".run/*.json",
        PROJECT_PATH,
        "A pattern for the state files of unattended runs.",
        loosens=loosens_never,
    )


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """[permissions]"""

    mode: PermissionMode = setting(
        "ask",
        one_of(PermissionMode),
        'What to do if no rule applies. "plan" changes nothing, "bypass" never asks.',
        loosens=loosens_if_later(PermissionMode),
    )
    sandboxed: ConfinedCommands = setting(
        "ask",
        one_of(ConfinedCommands),
        'Whether to ask about commands that the sandbox confines. "allow": never ask.',
        loosens=loosens_if_later(ConfinedCommands),
    )
    allow: tuple[str, ...] = setting(
        (), RULES, "Calls to allow without asking.", adds=True, loosens=loosens_if_different
    )
    ask: tuple[str, ...] = setting(
        (), RULES, "Calls to always ask about.", adds=True, loosens=loosens_never
    )
    deny: tuple[str, ...] = setting(
        (), RULES, "Calls to always refuse.", adds=True, loosens=loosens_never
    )
    directories: tuple[Path, ...] = setting(
        (),
        list_of(FOLDER),
        "Additional directories to work in, under the same rules as the project.",
        adds=True,
        loosens=loosens_if_different,
    )


@dataclass(frozen=True, slots=True)
class BashSettings:
    """[bash]"""

    keep_env: tuple[str, ...] = setting(
        (),
        VARIABLE_NAMES,
        "Variables to pass to commands although their names look like secrets.",
        loosens=loosens_if_different,
    )


def _loosens_network(new: Any, current: Any) -> bool:
    if isinstance(new, tuple) and isinstance(current, tuple):
        return not set(new) <= set(current)
    return new is not False and current is not True and new != current


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """[tools]"""

    # Equal to `MAX_OUTPUT_BYTES`, whose import would load the tools.
    max_output_bytes: int = setting(
        256 << 20,
        whole_number("bytes", 65_536),
        "How many bytes of a command's output to keep on disk.",
        loosens=loosens_if_larger,
    )


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """[sandbox]"""

    mode: SandboxMode = setting(
        "auto",
        one_of(SandboxMode),
        '"auto" confines commands with bubblewrap, else Landlock (weaker); "require" needs '
        "bubblewrap.",
        loosens=loosens_if_later(SandboxMode),
    )
    network: bool | tuple[str, ...] = setting(
        True,
        HOSTS,
        "Whether commands in the sandbox may use the network, or the hosts to allow without "
        "asking.",
        loosens=_loosens_network,
    )
    write: tuple[Path, ...] = setting(
        (),
        list_of(FOLDER),
        "Folders that commands may write to, in addition to the project and temporary folders.",
        adds=True,
        loosens=loosens_if_different,
    )
    read: tuple[Path, ...] = setting(
        (),
        list_of(FOLDER),
        "Folders and files of your home that commands may read, in addition to toolchains.",
        adds=True,
        loosens=loosens_if_different,
    )


@dataclass(frozen=True, slots=True)
class HookSettings:
    """[hooks]"""

    before_compact: tuple[str, ...] = _hook(
        "Shell commands to run before each compaction; exit code 2 prevents it."
    )
    after_compact: tuple[str, ...] = _hook("Shell commands to run after each compaction.")
    before_tool: tuple[str, ...] = _hook(
        "Shell commands to run before each call of a tool; exit code 2 prevents it."
    )
    after_tool: tuple[str, ...] = _hook("Shell commands to run after each call of a tool.")
    session_start: tuple[str, ...] = _hook("Shell commands to run when a session is opened.")
    session_end: tuple[str, ...] = _hook("Shell commands to run when a session is closed.")
    context_reached: tuple[str, ...] = _hook(
        "Shell commands to run when the context reaches a size in context.notify."
    )


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """[programs]"""

    network: bool = setting(
        False,
        SWITCH,
        "Whether hooks, status line and notice command of a project may use the network.",
        loosens=loosens_if_different,
    )
    write: tuple[Path, ...] = setting(
        (),
        list_of(FOLDER),
        "Folders that these programs of a project may write to, in addition to the project.",
        loosens=loosens_if_different,
    )
    outside: bool = setting(
        False,
        SWITCH,
        "Whether these programs of a project run outside the sandbox.",
        loosens=loosens_if_different,
    )


@dataclass(frozen=True, slots=True)
class McpSettings:
    """[mcp]"""

    load_at_start: tuple[str, ...] = setting(
        (),
        SERVER_NAMES,
        "MCP servers whose tools are in the tool list from the start, without a search.",
        loosens=loosens_if_longer,
    )
    needed: tuple[str, ...] = setting(
        (),
        SERVER_NAMES,
        "MCP servers that -p waits for before its first request.",
        loosens=loosens_never,
    )
    start_timeout: int = setting(
        30, SECONDS, "How many seconds an MCP server may take to start.", loosens=loosens_never
    )
    call_timeout: int = setting(
        300,
        SECONDS,
        "How many seconds one call of an MCP server may take.",
        loosens=loosens_never,
    )


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """[features]"""

    off: tuple[str, ...] = setting(
        (),
        list_of(_FEATURE),
        "Features to switch off, with their tools and their texts for the model.",
        loosens=loosens_if_longer,
    )


@dataclass(frozen=True, slots=True)
class WebSettings:
    """[web]"""

    search: SearchMode = setting(
        "auto",
        one_of(SearchMode),
        'Whether the model\'s server searches the web (costs extra). "auto": if it is the '
        'public API; "on": try any server.',
        loosens=loosens_if_later(SearchMode),
    )


@dataclass(frozen=True, slots=True)
class UiSettings:
    """[ui]"""

    theme: Theme = setting(
        "auto",
        one_of(Theme),
        'Colours for a "dark" or "light" background, "auto": detect it; "ansi": the '
        'terminal\'s sixteen; "none": no colours.',
        loosens=loosens_never,
    )
    editing_mode: EditingMode = setting(
        "emacs",
        one_of(EditingMode),
        "The key bindings of the input line.",
        loosens=loosens_never,
    )
    enter_while_working: SendTime = setting(
        "after-call",
        one_of(SendTime),
        "Whether Enter sends after the current call or after the turn. keys.send_other: the "
        "other one.",
        loosens=loosens_never,
    )
    plain: bool = setting(
        False,
        SWITCH,
        "Whether to print plain lines only: no colour, no animation, no redrawing.",
        loosens=loosens_never,
    )
    notify: NoticeStyle = setting(
        "auto",
        one_of(NoticeStyle),
        'How the terminal notifies you if it is not focused. "auto": by its type.',
        loosens=loosens_never,
    )
    notify_after: int = setting(
        10,
        whole_number("seconds", 0),
        "How many seconds a turn must take for a notification at its end.",
        loosens=loosens_never,
    )
    notify_command: str = setting(
        "",
        COMMAND,
        "A shell command to run for each notification, with NOTICE_TITLE and NOTICE_TEXT in "
        "its environment.",
        loosens=loosens_if_different,
    )
    title: bool = setting(
        True,
        SWITCH,
        "Whether the window title shows the state and the project.",
        loosens=loosens_never,
    )


@dataclass(frozen=True, slots=True)
class StatuslineSettings:
    """[statusline]"""

    command: str = setting(
        "",
        COMMAND,
        "A shell command that gets the state as JSON; its first line is shown below the "
        "status line.",
        loosens=loosens_if_different,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, checked."""

    model: ModelSettings = field(default_factory=ModelSettings)
    compact: CompactSettings = field(default_factory=CompactSettings)
    move: MoveSettings = field(default_factory=MoveSettings)
    clear: ClearSettings = field(default_factory=ClearSettings)
    truncate: TruncateSettings = field(default_factory=TruncateSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    context: ContextSettings = field(default_factory=ContextSettings)
    preserve: PreserveSettings = field(default_factory=PreserveSettings)
    permissions: PermissionSettings = field(default_factory=PermissionSettings)
    bash: BashSettings = field(default_factory=BashSettings)
    tools: ToolSettings = field(default_factory=ToolSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    hooks: HookSettings = field(default_factory=HookSettings)
    programs: ProgramSettings = field(default_factory=ProgramSettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    lsp: LspSettings = field(default_factory=LspSettings)
    features: FeatureSettings = field(default_factory=FeatureSettings)
    web: WebSettings = field(default_factory=WebSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    state: StateSettings = field(default_factory=StateSettings)
    ui: UiSettings = field(default_factory=UiSettings)
    keys: KeyboardSettings = field(default_factory=KeyboardSettings)
    statusline: StatuslineSettings = field(default_factory=StatuslineSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    # Settings of extensions by extension name, as declared by the extensions.
    extensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def of_add_ons(self) -> Mapping[str, AddOnSettings]:
        """The settings of features that add-ons provide, by the name of the feature."""
        return {name: getattr(self, section) for name, section in ADD_ON_SECTIONS.items()}


EXTENSIONS = "extensions"  # the section with a table for each extension
SECTIONS: dict[str, Any] = {
    section.name: section.type for section in fields(Settings) if section.name != EXTENSIONS
}


def _declared_fields() -> Iterator[tuple[str, str, Field[Any]]]:
    """Yield each setting's section, its name such as "compact.at", and its field."""
    for section, group in SECTIONS.items():
        for one in fields(group):
            leaf = one.name.removesuffix("_")  # `from` is a keyword of Python
            yield section, f"{section}.{leaf}", one


# The sections that had another name in earlier versions. Files, variables and flags may use both.
OLD_SECTIONS = {"demote": "move", "microcompact": "clear"}
KEYS: dict[str, Setting] = {
    name: one.metadata["key"]._replace(name=name) for _, name, one in _declared_fields()
}


def current_name(name: str) -> str:
    """Replace the old name of a section, in a section's name or a key's name."""
    section, dot, leaf = name.partition(".")
    return f"{OLD_SECTIONS.get(section, section)}{dot}{leaf}"


def build_settings(values: dict[str, Any]) -> Settings:
    """Return Settings with a value for each key in `KEYS`."""
    groups: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for section, name, one in _declared_fields():
        groups[section][one.name] = values[name]
    return Settings(**{section: SECTIONS[section](**group) for section, group in groups.items()})


def values_by_key(settings: Settings) -> dict[str, Any]:
    """Return the value of each key in `KEYS`: the inverse of `build_settings`."""
    return {
        name: getattr(getattr(settings, section), one.name)
        for section, name, one in _declared_fields()
    }
