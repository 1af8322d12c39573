"""Providers: addresses, protocols and keys; providers from the user's file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.errors import ConfigError, NoCredentials
from ctxagent.agent.models.catalog import known_model
from ctxagent.agent.models.keys import find_key, key_headers
from ctxagent.agent.models.providers import (
    add_providers,
    canonical_id,
    endpoint_of,
    find_provider,
    providers,
    resolve_model,
)
from ctxagent.agent.security.redaction import redaction_for
from ctxagent.tools.system.environment import child_environment


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A user's providers file, removed from the table after the test."""
    path = tmp_path / "providers.toml"
    yield path
    path.write_text("")
    add_providers(path)


@pytest.mark.parametrize(
    ("id", "provider", "name"),
    [
        ("claude-sonnet-5-5", "anthropic", "claude-sonnet-5-5"),
        ("anthropic/claude-sonnet-5-5", "anthropic", "claude-sonnet-5-5"),
        ("openrouter/anthropic/claude-sonnet-5", "openrouter", "anthropic/claude-sonnet-5"),
        ("local/openai/gpt-oss-20b", "local", "openai/gpt-oss-20b"),
        ("meta-llama/Llama-4", "anthropic", "meta-llama/Llama-4"),  # a name with a slash
        ("openai/", "anthropic", "openai/"),
    ],
)
def test_the_first_part_of_an_id_is_the_provider(id: str, provider: str, name: str) -> None:
    found = resolve_model(id)
    assert (found.provider.name, found.name) == (provider, name)


def test_the_default_provider_is_left_out_of_an_id() -> None:
    assert canonical_id("anthropic/claude-opus-5-5") == "claude-opus-5-5"
    assert canonical_id("openai/gpt-5.5") == "openai/gpt-5.5"


@pytest.mark.parametrize(
    ("id", "environ", "protocol", "address"),
    [
        ("openai/gpt", {}, "responses", "https://api.openai.com/v1"),
        ("openai/gpt", {"OPENAI_BASE_URL": ""}, "responses", "https://api.openai.com/v1"),
        (
            "openai/gpt",
            {"OPENAI_BASE_URL": "https://api.openai.com/v1/"},
            "responses",
            "https://api.openai.com/v1",
        ),
        ("openai/gpt", {"OPENAI_BASE_URL": "http://gate/v1"}, "chat", "http://gate/v1"),
        (
            "azure/gpt",
            {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com/"},
            "responses",
            "https://a.openai.azure.com/openai/v1",
        ),
        ("claude-opus-5-5", {"ANTHROPIC_BASE_URL": " "}, "messages", ""),
        ("ollama/qwen3", {}, "chat", "http://127.0.0.1:11434/v1"),
    ],
)
def test_where_requests_go(id: str, environ: dict[str, str], protocol: str, address: str) -> None:
    found = endpoint_of(id, None, environ)
    assert (found.protocol, found.address) == (protocol, address)


def test_the_small_models_have_a_known_price_and_are_in_the_guide() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "models.md").read_text()
    for each in filter(lambda each: each.small, providers().values()):
        id = canonical_id(f"{each.name}/{each.small}")
        assert f"| `{each.name}` | `{id}` |" in page
        found = known_model(id)
        assert (found is not None and found.price is not None) == bool(each.prices), id


def test_a_setting_counts_more_than_a_variable() -> None:
    environ = {"OPENAI_BASE_URL": "http://there/v1"}
    here = endpoint_of("openai/gpt", "http://here/v1", environ)
    assert (here.address, here.set_by) == ("http://here/v1", "model.base_url")
    assert endpoint_of("openai/gpt", None, environ).set_by == "OPENAI_BASE_URL"


def test_own_providers_are_added_and_fields_of_known_ones_changed(own: Path) -> None:
    own.write_text(
        '[corp]\naddress = "https://llm.example/v1"\nkeys = ["CORP_KEY"]\nfirst_byte = 300\n'
        'headers = { "x-team" = "a" }\n[openai]\nkeys = ["OTHER_KEY"]\n[ollama]\nslots = 4\n'
        '[openrouter]\nprotocol = "messages"\naddress = "https://openrouter.ai/api"\n'
    )
    add_providers(own)
    corp = endpoint_of("corp/m", None, {})
    assert (corp.protocol, corp.address, corp.provider.first_byte) == (
        "chat",
        "https://llm.example/v1",
        300.0,
    )
    assert key_headers(corp, {"CORP_KEY": "key-1"}) == {
        "x-team": "a",
        "authorization": "Bearer key-1",
    }
    assert endpoint_of("openai/gpt", None, {}).protocol == "responses"
    assert providers()["openai"].keys == ("OTHER_KEY",)
    assert providers()["ollama"].slots == 4
    assert endpoint_of("openrouter/m", None, {}).protocol == "messages"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("corp = 1\n", "corp is not a table"),
        ("[corp]\nport = 1\n", r"\[corp\]: port is not a field of a provider"),
        ("[corp]\nslots = -1\n", r"\[corp\]: slots cannot be -1"),
        ('[corp]\nkeys = "A"\n', r"\[corp\]: keys cannot be 'A'"),
        ('[corp]\nprotocol = "telex"\n', "protocol is one of messages, responses, chat"),
        ('[corp]\nheaders = { "x-team" = 1 }\n', "the header x-team is not a text: 1"),
        ("[corp\n", "providers.toml"),
    ],
)
def test_a_broken_file_is_named_with_its_field(own: Path, text: str, why: str) -> None:
    own.write_text(text)
    with pytest.raises(ConfigError, match=why) as caught:
        add_providers(own)
    assert "Fields of a provider: protocol, address" in caught.value.hint


def test_a_key_is_found_by_its_variables_and_sent_in_its_header() -> None:
    openai, azure = endpoint_of("openai/g", None, {}), endpoint_of("azure/g", "https://a/v1", {})
    assert key_headers(openai, {"OPENAI_API_KEY": "k-1"}) == {"authorization": "Bearer k-1"}
    assert key_headers(azure, {"AZURE_OPENAI_API_KEY": "k-2"}) == {"api-key": "k-2"}


def test_the_header_of_a_key_counts_whatever_its_case(own: Path) -> None:
    own.write_text('[corp]\naddress = "https://c/v1"\nkeys = ["K"]\nkey_header = "Authorization"\n')
    add_providers(own)
    assert key_headers(endpoint_of("corp/m", None, {}), {"K": "k-1"}) == {
        "authorization": "Bearer k-1"
    }


def test_the_keys_of_own_providers_are_secret_whatever_their_names(own: Path) -> None:
    environ = {"GATEWAY_LOGIN": "gate-login-1234567", "TEAM": "search-team-1234567"}
    own.write_text(
        '[corp]\naddress = "https://c/v1"\nkeys = ["GATEWAY_LOGIN"]\n'
        'headers = { "x-corp-token" = "written-key-1234567", "x-team" = "search-team-1234567" }\n'
    )
    add_providers(own)
    assert child_environment(environ).keys() & environ.keys() == {"TEAM"}
    known = redaction_for(environ).known
    assert known == {"gate-login-1234567": "GATEWAY_LOGIN", "written-key-1234567": "x-corp-token"}


def test_a_server_on_this_machine_needs_no_key() -> None:
    assert find_key(endpoint_of("ollama/q", None, {}), {}) == ""
    assert find_key(endpoint_of("openai/q", "http://127.0.0.1:9/v1", {}), {}) == ""
    assert find_key(endpoint_of("ollama/q", None, {}), {"OLLAMA_API_KEY": "k"}) == "OLLAMA_API_KEY"


def test_a_missing_key_is_named_with_the_next_step() -> None:
    with pytest.raises(NoCredentials, match="No key for openai: OPENAI_API_KEY is not set") as e:
        find_key(endpoint_of("openai/gpt", None, {}), {})
    assert e.value.hint == "export OPENAI_API_KEY=…"
    own_endpoint = endpoint_of("openai/gpt", None, {})
    own_endpoint = own_endpoint._replace(provider=replace(own_endpoint.provider, keys=()))
    with pytest.raises(
        NoCredentials, match="No key for openai: no variable for its key is configured"
    ) as e:
        find_key(own_endpoint, {})
    assert "local = true" in e.value.hint
    with pytest.raises(NoCredentials, match="OPENAI_API_KEY is set but empty"):
        find_key(endpoint_of("openai/gpt", None, {}), {"OPENAI_API_KEY": ""})


def test_a_missing_address_is_named_with_the_next_step(own: Path) -> None:
    with pytest.raises(NoCredentials, match="No address for azure: AZURE_OPENAI_ENDPOINT is") as e:
        find_key(endpoint_of("azure/gpt", None, {}), {"AZURE_OPENAI_API_KEY": "k"})
    assert e.value.hint == "export AZURE_OPENAI_ENDPOINT=https://…"
    own.write_text('[walrus]\nprotocol = "messages"\nkeys = ["WALRUS_KEY"]\n')
    add_providers(own)
    with pytest.raises(NoCredentials, match=r"No address for walrus: \[walrus\] address is not"):
        find_key(endpoint_of("walrus/tusk", None, {}), {"WALRUS_KEY": "k"})
    assert find_key(endpoint_of("local/q", None, {}), {}) == ""  # found at the first request


@pytest.mark.parametrize("key", ["k\n", " k", "k\u00e9", "  "])
def test_a_key_that_cannot_be_sent_is_refused(key: str) -> None:
    with pytest.raises(NoCredentials, match="OPENAI_API_KEY"):
        find_key(endpoint_of("openai/gpt", None, {}), {"OPENAI_API_KEY": key})


def test_providers_are_found_by_the_names_of_their_models_and_companies(own: Path) -> None:
    names = {"kimi": "moonshot", "Google": "gemini", "claude": "anthropic", "chatgpt": "openai",
             "gpt": "openai", "grok": "xai", "OpenAI": "openai"}  # fmt: skip
    found = {name: getattr(find_provider(name), "name", "") for name in names}
    assert found == names
    assert find_provider("walrus") is None
    own.write_text('[kimi]\naddress = "https://example.com/v1"\n')
    add_providers(own)
    assert find_provider("kimi") == providers()["kimi"]
