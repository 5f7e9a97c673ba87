"""Language and embedding models behind OpenAI-compatible endpoints: docs/models.md.

async with Models(read_models(path), cache=default_cache()) as models:
    said = await models.model("judge", role="judge").ask(Ask(messages=(Message(role="user", content="?"),)))
"""

from adapters.endpoints.cache import Cache, default_cache
from adapters.endpoints.chat import Endpoint
from adapters.endpoints.embeddings import EmbeddingEndpoint
from adapters.endpoints.models import Models
from adapters.endpoints.settings import ModelSettings, find_model, read_models
from adapters.endpoints.tally import Tally

__all__ = [
    "Cache",
    "EmbeddingEndpoint",
    "Endpoint",
    "ModelSettings",
    "Models",
    "Tally",
    "default_cache",
    "find_model",
    "read_models",
]
