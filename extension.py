"""The former name of `ctxagent.api.extension`, for extensions that were written before."""

from .api.extension import *  # noqa: F403
from .api.extension import __all__ as __all__
