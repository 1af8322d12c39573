"""Providers of models as data: protocol, address and key variables; and checks of an address.

A model ID is `provider/name`, such as `openrouter/qwen/qwen3-coder`; the server gets `name`. An ID
that does not start with a provider belongs to the default provider. The data is from each
provider's documentation in November 2026. The user's `providers.toml` adds providers and overrides
fields.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...tools.system.environment import declare_secrets, is_secret
from ...tools.system.files import read_below
from ..errors import ConfigError, RequestRejected, conceal
from ..lazy import dataclass

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
UNENCRYPTED = "the key and all messages are sent to {host} unencrypted; use https"


def host_of(url: str) -> str:
    """Return the host of a URL, "" if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def check_address(url: str, variable: str) -> None:
    """Raise RequestRejected for an invalid base URL. `variable` is the environment variable to name
    in the hint.
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid port, or an open bracket
        sound = False
    if not sound:
        raise RequestRejected(
            f"The base URL {conceal(url)!r} is not an http or https address.",
            hint=f"Write {variable} or model.base_url as https://HOST[:PORT].",
        )


def unencrypted_host(url: str) -> str:
    """Return the host of a base URL that would send keys and messages unencrypted. Return "" for
    https and for this machine.
    """
    host = host_of(url)
    return host if host not in ("", *LOOPBACK_HOSTS) and urlsplit(url).scheme == "http" else ""


MESSAGES, RESPONSES, CHAT = "messages", "responses", "chat"  # wire protocols
DEFAULT_PROVIDER = "anthropic"
BEDROCK, VERTEX = CLOUDS = ("bedrock", "vertex")  # with special credentials
LOCAL = "local"  # provider: the first server found on this machine
FILE_NAME = "providers.toml"
MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of models."""

    name: str
    protocol: str = CHAT
    address: str = ""  # default base URL, "" for the SDK's default or none
    address_variable: str = ""  # environment variable for another base URL
    address_end: str = ""  # path to append to that variable's value
    protocol_elsewhere: str = ""  # protocol at another base URL, "" for the same
    keys: tuple[str, ...] = ()  # variables with a key; the first that is set is used
    settings: tuple[str, ...] = ()  # other variables that affect requests
    key_header: str = "authorization"  # header for the key; `authorization` adds `Bearer`
    headers: Mapping[str, str] = field(default_factory=dict)  # sent with every request
    local: bool = False  # runs on this machine or its network, and needs no key
    first_byte: float = 120.0  # seconds until the first byte of a reply
    slots: int = 0  # concurrent requests, 0 if unlimited
    small: str = ""  # name of a cheap model with tools, proposed for `model.small`; "" for none
    # True if thinking is refused after any edit before it. Always true for the Messages API, and
    # therefore for gateways to Claude.
    binds_thinking: bool = False
    # Default terms of the prompt cache, for models without known prices: prices relative to input,
    # and seconds that a prefix stays cached after its last use. 0.25 is a safe default: clearing
    # with it saves money with a cache and without.
    cache_read: float = 0.25
    cache_write: float = 1.0
    cache_life: float = 300.0
    prices: str = ""  # provider ID in genai-prices, "" for none
    key_page: str = ""  # page where users create a key, "" for unknown

    def written_keys(self) -> Iterator[tuple[str, str]]:
        """Yield (header, value) for each key that is written in the provider's headers."""
        for name, value in self.headers.items():
            if name.lower() in ("authorization", self.key_header) or is_secret(name):
                yield name, value.removeprefix("Bearer ")


_HOUR = 3600.0


def _local(name: str, port: int, key: str, slots: int = 0) -> Provider:
    return Provider(
        name,
        address=f"http://127.0.0.1:{port}/v1",
        address_variable=f"{name.upper()}_BASE_URL",
        keys=(key,),
        local=True,
        first_byte=600.0,
        slots=slots,
        cache_read=0.05,
        cache_life=_HOUR,
    )


def _hosted(name: str, address: str, key: str, **more: Any) -> Provider:
    return Provider(name, address=address, keys=(key,), **{"prices": name, **more})


_BUILT_IN = (
    Provider(
        DEFAULT_PROVIDER,
        MESSAGES,
        address_variable="ANTHROPIC_BASE_URL",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        cache_read=0.1,
        cache_write=1.25,
        prices="anthropic",
        small="claude-haiku-5-5",
        key_page="https://console.anthropic.com/settings/keys",
    ),
    Provider(
        BEDROCK,
        MESSAGES,
        address_variable="ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
        keys=("AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_AWS_API_KEY"),
        settings=("AWS_REGION", "AWS_DEFAULT_REGION"),
        cache_read=0.1,
        cache_write=1.25,
        prices="aws",
        small="anthropic.claude-haiku-5-5",
    ),
    Provider(
        VERTEX,
        MESSAGES,
        address_variable="ANTHROPIC_VERTEX_BASE_URL",
        keys=("GOOGLE_OAUTH_ACCESS_TOKEN",),
        settings=("CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"),
        cache_read=0.1,
        cache_write=1.25,
        prices="google",
        small="claude-haiku-5-5",
    ),
    Provider(
        "openai",
        RESPONSES,
        address="https://api.openai.com/v1",
        address_variable="OPENAI_BASE_URL",
        protocol_elsewhere=CHAT,
        keys=("OPENAI_API_KEY",),
        cache_read=0.1,
        prices="openai",
        small="gpt-6-luna",
        key_page="https://platform.openai.com/api-keys",
    ),
    Provider(
        "azure",
        RESPONSES,
        address_variable="AZURE_OPENAI_ENDPOINT",
        address_end="/openai/v1",
        keys=("AZURE_OPENAI_API_KEY",),
        key_header="api-key",
        cache_read=0.1,
        prices="azure",
    ),
    _hosted("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY",
            binds_thinking=True, small="anthropic/claude-haiku-5.5",
            key_page="https://openrouter.ai/settings/keys"),
    _hosted(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        cache_read=0.1,
        prices="google",
        small="gemini-3.5-flash-lite",
        key_page="https://aistudio.google.com/apikey",
    ),
    _hosted("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", cache_read=0.1,
            small="deepseek-v4-flash",
            key_page="https://platform.deepseek.com/api_keys"),
    _hosted("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", cache_read=0.1,
            small="mistral-small-latest",
            key_page="https://console.mistral.ai/api-keys"),
    _hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", cache_read=1.0,
            small="openai/gpt-oss-120b", key_page="https://console.groq.com/keys"),
    _hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY", prices="x-ai",
            small="grok-4-1-fast-reasoning",
            key_page="https://console.x.ai"),
    _hosted("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY",
            small="Qwen/Qwen3.8-Flash"),
    _hosted("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY",
            small="accounts/fireworks/models/glm-5p3-flash"),
    _hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", cache_read=1.0,
            small="gpt-oss-120b"),
    _hosted("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY",
            prices="moonshotai", small="kimi-k2.5"),
    _hosted("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", cache_read=0.2,
            small="glm-5.3-flash"),
    _hosted("qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY",
            cache_read=0.2, prices="", small="qwen-flash"),
    _hosted("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN", prices="",
            small="openai/gpt-oss-120b"),
    _local("ollama", 11434, "OLLAMA_API_KEY", slots=1),
    _local("lmstudio", 1234, "LM_API_TOKEN", slots=1),
    _local("llamacpp", 8080, "LLAMA_API_KEY", slots=1),
    _local("vllm", 8000, "VLLM_API_KEY"),
    # A gateway to paid models; prices are looked up by model name.
    replace(_local("litellm", 4000, "LITELLM_API_KEY"), cache_read=0.25, prices="litellm",
            binds_thinking=True),
    replace(_local(LOCAL, 0, "LOCAL_API_KEY", slots=1), address=""),
)  # fmt: skip
_OTHER_NAMES = {
    "claude": "anthropic",
    "chatgpt": "openai", "codex": "openai", "gpt": "openai",
    "google": "gemini",
    "grok": "xai",
    "kimi": "moonshot",
    "glm": "zai", "z.ai": "zai", "zhipu": "zai",
    "alibaba": "qwen", "dashscope": "qwen",
    "hf": "huggingface",
    "aws": "bedrock",
    "gcp": "vertex",
    "llama.cpp": "llamacpp",
    "lm-studio": "lmstudio",
}  # fmt: skip
_BY_NAME = {provider.name: provider for provider in _BUILT_IN}
_changed: dict[str, Provider] = {}  # from the user's file


def providers() -> Mapping[str, Provider]:
    """Return all providers by name."""
    return {**_BY_NAME, **_changed}


def find_provider(name: str) -> Provider | None:
    """Return the provider with this name (in any case), or with this common name of its models or
    company.
    """
    name = name.lower()
    return providers().get(name) or _BY_NAME.get(_OTHER_NAMES.get(name, ""))


def other_names(name: str) -> list[str]:
    """Return the common names of a provider's models and company."""
    return [other for other, meant in _OTHER_NAMES.items() if meant == name]


def add_providers(path: Path) -> None:
    """Load the providers in the user's file, if it exists. Raises ConfigError."""
    import tomllib

    try:
        data = read_below(path.parent, path.name, MAX_FILE_BYTES)
    except OSError:
        return
    try:
        rows = tomllib.loads(data.decode())
        found = {name: _row(name, row) for name, row in rows.items()}
    except (ValueError, TypeError) as error:
        hint = f"Fields of a provider: {', '.join(_FIELDS)}."
        raise ConfigError(f"{error}", where=str(path), hint=hint) from None
    _changed.clear()
    _changed.update(found)
    declare_secrets(key for provider in found.values() for key in provider.keys)


_FIELDS = tuple(each.name for each in fields(Provider))[1:]


def _row(name: str, row: Any) -> Provider:
    """Return a provider from its table. Raises ValueError with the name of the invalid field."""
    if not isinstance(row, dict):
        raise ValueError(f"{name} is not a table: write [{name}]")
    known = _BY_NAME.get(name, Provider(name))
    given = dict(row)
    for field_name, value in row.items():
        if field_name not in _FIELDS:
            raise ValueError(f"[{name}]: {field_name} is not a field of a provider")
        sample = getattr(known, field_name)
        if isinstance(sample, tuple) and isinstance(value, list):
            given[field_name] = tuple(map(str, value))
        elif isinstance(sample, float) and type(value) in (int, float) and value >= 0:
            given[field_name] = float(value)
        elif type(value) is not type(sample) or (type(value) is int and value < 0):
            raise ValueError(f"[{name}]: {field_name} cannot be {value!r}")
    for header, value in given.get("headers", {}).items():
        if not isinstance(value, str):
            raise ValueError(f"[{name}]: the header {header} is not a text: {value!r}")
    if "key_header" in given:
        given["key_header"] = given["key_header"].lower()
    if given.get("protocol", CHAT) not in (MESSAGES, RESPONSES, CHAT):
        raise ValueError(f"[{name}]: protocol is one of {MESSAGES}, {RESPONSES}, {CHAT}")
    if "address" in given:  # the user's server may have another protocol
        given.setdefault("protocol", known.protocol_elsewhere or known.protocol)
    return replace(known, **given)


class ResolvedModel(NamedTuple):
    """A provider and a model's name on its server."""

    provider: Provider
    name: str  # model name on the server


def resolve_model(id: str) -> ResolvedModel:
    """Return the provider of a model, and the model's name there."""
    first, slash, rest = id.partition("/")
    if slash and rest and (found := _changed.get(first) or _BY_NAME.get(first)):
        return ResolvedModel(found, rest)
    return ResolvedModel(_changed.get(DEFAULT_PROVIDER) or _BY_NAME[DEFAULT_PROVIDER], id)


def canonical_id(id: str) -> str:
    """Return a model ID without the default provider, as in logs and tables."""
    return id.removeprefix(f"{DEFAULT_PROVIDER}/")


class Endpoint(NamedTuple):
    """The address and protocol for a model's requests."""

    provider: Provider
    name: str  # model name on the server
    protocol: str
    address: str  # without a trailing slash; "" for the SDK's default or none
    set_by: str  # setting or variable that controls the address

    @property
    def is_own(self) -> bool:
        """True for the provider's default address."""
        return self.address == self.provider.address

    @property
    def needs_key(self) -> bool:
        return not (self.provider.local or host_of(self.address) in LOOPBACK_HOSTS)


def endpoint_of(id: str, base_url: str | None, environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint for a model. The address is `base_url`, else the value of the provider's
    variable, else the provider's default.
    """
    provider, name = resolve_model(id)
    told = environ.get(provider.address_variable, "").strip() if provider.address_variable else ""
    if told and provider.address_end and not told.rstrip("/").endswith(provider.address_end):
        told = told.rstrip("/") + provider.address_end
    address = (base_url or told or provider.address).rstrip("/")
    own = address == provider.address
    protocol = provider.protocol if own else provider.protocol_elsewhere or provider.protocol
    is_setting = bool(base_url) or not provider.address_variable
    set_by = "model.base_url" if is_setting else provider.address_variable
    return Endpoint(provider, name, protocol, address, set_by)


def variables() -> Iterator[str]:
    """Yield the environment variables with keys, addresses and settings of providers."""
    for provider in providers().values():
        yield from provider.keys
        yield from provider.settings
        if provider.address_variable:
            yield provider.address_variable
