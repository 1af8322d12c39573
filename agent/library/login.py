"""Providers and their keys for `/login` and the first start: list the choices, check a key,
store it.
"""

from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RecordError
from ..launch import LaunchOptions
from ..lazy import dataclass
from ..models.keys import KeyStore
from ..models.providers import CLOUDS, DEFAULT_PROVIDER, Provider, canonical_id, resolve_model

if TYPE_CHECKING:
    from ..models.overview import ProviderState, ServedModel


def add_stored_keys(environ: MutableMapping[str, str], state: Path) -> None:
    """Set the environment variables of the keys that `/login` stored in a state folder."""
    KeyStore(state, environ).add_to(environ)


@dataclass(frozen=True, slots=True)
class Logins:
    """The keys of the providers. A new key is added to `environ` at once."""

    launch: LaunchOptions
    environ: MutableMapping[str, str]

    @property
    def store(self) -> KeyStore:
        return KeyStore(self.launch.places.state, self.environ)

    @property
    def chosen_model(self) -> str:
        """The model in the settings."""
        return self.launch.settings.model.id

    @property
    def is_first(self) -> bool:
        """Whether the user was never asked for a provider, and the model needs a key."""
        chosen = canonical_id(self.launch.settings.model.id)
        needs_key = not (resolve_model(chosen).provider.local or self.launch.is_scripted)
        return needs_key and not self.store.has_asked

    def note_asked(self) -> None:
        """Record that the user was asked for a provider. Ignore a failed write."""
        with suppress(RecordError):
            self.store.note_asked()

    async def choices(self) -> "list[ProviderState]":
        """Return the running local servers, then the providers that need only a key, then the
        local servers that do not answer.
        """
        from ..models.overview import provider_states

        found = await provider_states(self.environ)
        usable = [each for each in found if _takes_key(each.provider, each.address)]
        local = [each for each in found if each.provider.local]
        running = [each for each in local if each.ready]
        return [*running, *usable, *(each for each in local if not each.ready)]

    def default_model(self, provider: Provider) -> str:
        """Return the model in the settings if the provider has it, else the provider's first known
        model, else "".
        """
        from ..models.catalog import known_models

        ids = (canonical_id(self.launch.settings.model.id), *known_models())
        return next((id for id in ids if resolve_model(id).provider == provider), "")

    def proposed_small_model(self, provider: Provider, model: str) -> str:
        """Return the small model that the provider has next to `model`. Return "" for none, or if
        `model.small` is set.
        """
        small = canonical_id(f"{provider.name}/{provider.small}")
        has_one = bool(provider.small) and not self.launch.settings.model.small
        return small if has_one and small != model else ""

    async def models(self, provider: Provider, key: str) -> "list[ServedModel]":
        """Return the models that a provider lists for a key. Raises ModelError."""
        from ..models.overview import served_models

        launch = self.launch
        return await served_models(
            provider, launch.settings, self._with(provider, key), launch.places.state
        )

    async def try_key(self, provider: Provider, key: str, model: str) -> None:
        """Send a tiny request to a model to check a key. Raises ModelError: KeyRefused for a
        wrong key.
        """
        from ..models.factory import make_model, with_model
        from ..models.probe import try_model
        from ..models.server_model import ServerModel

        launch = self.launch
        chosen = with_model(launch.settings.model, model)
        environ = self._with(provider, key)
        client = make_model(replace(launch.settings, model=chosen), environ, launch.places.state)
        assert isinstance(client, ServerModel)
        try:
            await try_model(client)
        finally:
            await client.close()

    def store_key(self, provider: Provider, key: str) -> Path | None:
        """Store a key and use it from now on. Return its file, or None for the keyring. Raises
        RecordError.
        """
        name = provider.keys[0]
        where = self.store.keep(name, key)
        self.environ[name] = key
        return where

    def has_stored(self, provider: Provider) -> bool:
        """Return True if a key of the provider is stored."""
        return any(map(self.store.has, provider.keys))

    def remove_key(self, provider: Provider) -> bool:
        """Remove a stored key. Return True if there was one. Raises RecordError."""
        for name in provider.keys:
            if self.store.forget(name):
                self.environ.pop(name, None)
                return True
        return False

    def _with(self, provider: Provider, key: str) -> Mapping[str, str]:
        others = {name: value for name, value in self.environ.items() if name not in provider.keys}
        return {**others, provider.keys[0]: key} if key else self.environ


def _takes_key(provider: Provider, address: str) -> bool:
    if provider.local or provider.name in CLOUDS or not provider.keys:
        return False
    return bool(address) or provider.name == DEFAULT_PROVIDER
