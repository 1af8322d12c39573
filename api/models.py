"""Models: providers, requests and replies of each protocol, refusals, limits and prices."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.models.base import Model, Reply, text_of
    from ..agent.models.catalog import (
        DEFAULT_LIMITS,
        CacheTerms,
        cache_terms,
        cost,
        known_limits,
        known_model,
    )
    from ..agent.models.chat.draft import ChatDraft
    from ..agent.models.chat_templates import TEMPLATES, template_path
    from ..agent.models.factory import (
        PROTOCOLS,
        address_of,
        find_key,
        is_provider_variable,
        main_key_variable,
        make_model,
    )
    from ..agent.models.http_client import MAX_UNPACKED_BYTES, unpacked
    from ..agent.models.local_servers import find_local_servers
    from ..agent.models.messages.body import API_HOST
    from ..agent.models.messages.draft import ReplyDraft
    from ..agent.models.probe import check_server
    from ..agent.models.providers import (
        CHAT,
        DEFAULT_PROVIDER,
        LOOPBACK_HOSTS,
        MESSAGES,
        RESPONSES,
        UNENCRYPTED,
        canonical_id,
        check_address,
        find_provider,
        host_of,
        providers,
        resolve_model,
        unencrypted_host,
    )
    from ..agent.models.refusals import ServerHints, classify_answer
    from ..agent.models.responses.draft import ResponseDraft
    from ..agent.models.retry import Fault
    from ..agent.models.server_model import ServerModel
    from ..agent.models.transport import (
        MAX_REPLY_BYTES,
        NotConnected,
        parse_arguments,
        parse_error,
        parse_events,
        status_of,
    )
    from ..agent.models.wire import Draft, StreamError, cut_name
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "API_HOST",
    "CHAT",
    "DEFAULT_LIMITS",
    "DEFAULT_PROVIDER",
    "LOOPBACK_HOSTS",
    "MAX_REPLY_BYTES",
    "MAX_UNPACKED_BYTES",
    "MESSAGES",
    "PROTOCOLS",
    "RESPONSES",
    "TEMPLATES",
    "UNENCRYPTED",
    "CacheTerms",
    "ChatDraft",
    "Draft",
    "Fault",
    "Model",
    "NotConnected",
    "Reply",
    "ReplyDraft",
    "ResponseDraft",
    "ServerHints",
    "ServerModel",
    "StreamError",
    "address_of",
    "cache_terms",
    "canonical_id",
    "check_address",
    "check_server",
    "classify_answer",
    "cost",
    "cut_name",
    "find_key",
    "find_local_servers",
    "find_provider",
    "host_of",
    "is_provider_variable",
    "known_limits",
    "known_model",
    "main_key_variable",
    "make_model",
    "parse_arguments",
    "parse_error",
    "parse_events",
    "providers",
    "resolve_model",
    "status_of",
    "template_path",
    "text_of",
    "unencrypted_host",
    "unpacked",
]
