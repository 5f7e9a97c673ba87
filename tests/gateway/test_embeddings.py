"""Vectors through the gateway, in both encodings, by a server or by the bundled encoder."""

from __future__ import annotations

import base64

import httpx
import numpy as np
import openai
import pytest

from adapters.embedder import default_embedder
from adapters.gateway import BUNDLED
from simulator.errors import EncoderError
from tests.adapters.helpers import HashEmbedder
from tests.gateway.helpers import asking, failure, front
from tests.models.server import Script, Server, Step

TEXTS = ["a cat", "", "a cat", "ein Hund"]


async def test_both_encodings_are_the_embedder_s_own_floats_in_order(server: Server) -> None:
    embedder = HashEmbedder()
    expected = await embedder.embed(TEXTS)
    async with front(server) as there, asking(lane := there.lane(embedder=embedder)) as client:
        async with lane.stage(lane.lane, "ingest") as stage:
            usual = await client.embeddings.create(model="any", input=TEXTS)  # base64
            floats = await client.embeddings.create(
                model="any", input=TEXTS, encoding_format="float", dimensions=16
            )
            one = await client.embeddings.create(model="any", input="a cat", user="me")
        for response in (usual, floats):
            rows = np.array([item.embedding for item in response.data], np.float32)
            assert np.array_equal(rows, expected)
            assert [item.index for item in response.data] == [0, 1, 2, 3]
            assert response.usage.prompt_tokens == 2 + 0 + 2 + 2
        assert np.array_equal(np.float32(one.data[0].embedding), expected[0])
        assert stage.usage.calls == 0  # as of systems of ours: events count what answers took
        [account] = there.gateway.accounts()
        assert account.texts == 9


async def test_base64_is_little_endian_floats(server: Server) -> None:
    async with front(server) as there, httpx.AsyncClient(timeout=60) as client:
        lane = there.lane(embedder=HashEmbedder())
        response = await client.post(
            lane.url_of(lane.lane) + "/embeddings", json={"input": "x", "encoding_format": "base64"}
        )
        raw = base64.b64decode(response.json()["data"][0]["embedding"])
        assert np.array_equal(np.frombuffer(raw, "<f4"), (await HashEmbedder().embed(["x"]))[0])


async def test_a_server_s_vectors_are_counted_with_their_tokens(server: Server) -> None:
    async with front(server) as there, asking(lane := there.lane(embedder=there.vectors())) as client:
        async with lane.stage(lane.lane, "ingest"):
            response = await client.embeddings.create(model="any", input=["one two", "three"])
        assert {len(item.embedding) for item in response.data} == {8}
        [account] = there.gateway.accounts()
        assert (account.texts, account.embedding_tokens, account.calls) == (2, 3, 0)


async def test_the_bundled_encoder_needs_no_model_server(server: Server) -> None:
    async with front(server) as there:
        lane = there.gateway.lane("mine@A1")
        async with lane.stage("mine@A1", "ingest"), asking(lane) as client:
            assert [model.id async for model in client.models.list()] == [BUNDLED]
            response = await client.embeddings.create(model=BUNDLED, input=["a cat", "ein Hund"])
        rows = np.array([item.embedding for item in response.data], np.float32)
        assert np.array_equal(rows, await default_embedder().embed(["a cat", "ein Hund"]))
        assert await server.asked() == []


async def test_other_dimensions_than_the_embedder_has_are_refused(server: Server) -> None:
    async def swallow(client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="have 16: set that in the system"):
            await client.embeddings.create(model="any", input="x", dimensions=1536)

    async with front(server) as there:
        error = await failure(there.lane(embedder=HashEmbedder()), swallow)
    assert "dimensions is 1536, and the vectors of hash have 16" in str(error)


async def test_vectors_that_can_t_be_had_fail_the_stage(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: list[int] = []

    async def swallow(client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.APIStatusError) as raised:
            await client.embeddings.create(model="any", input="x")
        statuses.append(raised.value.status_code)

    def broken(texts: object) -> None:
        raise EncoderError("the encoder's process died twice")

    script = Script(faults=(Step(does="refuse", status=400),), fault_share=1.0)
    async with front(server, script) as there:
        assert "400 Bad Request" in str(await failure(there.lane(embedder=there.vectors()), swallow))
        embedder = HashEmbedder()
        monkeypatch.setattr(embedder, "embed", broken)
        error = await failure(there.lane("own@A1", embedder), swallow)
        assert "died twice" in str(error)
        assert error.failure == "unavailable"
    assert statuses == [400, 424]
