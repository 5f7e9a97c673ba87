"""Keys stay where they are: in no log line, no error, no cache and no name."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from adapters.endpoints import Models, ModelSettings
from adapters.endpoints.check import check_model
from simulator.errors import ModelError
from tests.models.helpers import Verdict, asking
from tests.models.server import Script, Server, Step

KEY = "sk-pr/oj+AbCdEf0123456789=secret"
ECHO = KEY.replace("/", "\\/")


def echoing(padding: int = 0) -> tuple[Step, ...]:
    says = "x" * padding + f" the key {KEY} or {ECHO} or sk-pr%2Foj%2BAbCdEf0123456789%3Dsecret is wrong"
    return tuple(Step(does="refuse", status=status, message=says) for status in (500, 429, 400))


def holds(folder: Path, content: bytes) -> list[Path]:
    return [path for path in folder.iterdir() if content in path.read_bytes()]


async def test_a_key_is_sent_and_shown_nowhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    structlog.reset_defaults()
    configured = {
        "m": ModelSettings(base_url=server.url, model="scripted", api_key_env="TEST_KEY"),
        "e": ModelSettings(
            base_url=server.url, model="scripted", api_key_env="TEST_KEY", kind="embeddings", dimensions=8
        ),
    }
    shown: list[str] = []
    with capture_logs() as logged:
        async with Models(configured, cache=tmp_path / "c.db") as models:
            model, embedder = models.model("m", role="judge"), models.embedder("e", role="retrieval")
            await server.play(Script(key=KEY))
            await model.ask(asking("hello"))
            await model.ask_for(asking('{"outcome": "pass", "reason": ""}'), Verdict)
            await embedder.embed(["hello"])
            assert {a.headers["authorization"] for a in await server.asked()} == {f"Bearer {KEY}"}
            for padding in (0, 150, 170, 185, 195):  # where what is shown is cut short
                await server.play(Script(steps=echoing(padding)))
                with pytest.raises(ModelError) as raised:
                    await model.ask(asking(f"padded by {padding}"))
                shown.append("".join(traceback.format_exception(raised.value)))
            await server.play(Script(key="other"))  # it repeats the header
            for ask in (model.ask(asking("again")), embedder.embed(["again"])):
                with pytest.raises(ModelError) as raised:
                    await ask
                shown.append("".join(traceback.format_exception(raised.value)))
            assert "Incorrect API key provided: Bearer [key]" in shown[-1]
            await server.play(Script())
            shown += [model.name, repr(models.tallies()), str(await check_model("m", configured["m"]))]
    shown += [repr(logged), caplog.text]
    assert "400 Bad Request" in shown[0]
    for text in shown:
        assert "AbCdEf" not in text
    assert not holds(tmp_path, b"AbCdEf")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_that_comes_as_an_answer_is_not_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    settings = ModelSettings(base_url=server.url, model="scripted", api_key_env="TEST_KEY", stream=stream)
    await server.play(Script(steps=(Step(say=f"your key is {KEY}"),) * 4))
    async with Models({"m": settings}, cache=tmp_path / "c.db") as models:
        model = models.model("m", role="judge")
        assert (await model.ask(asking("hello"))).text == "your key is [key]"
        with pytest.raises(ModelError, match=r"nonsense.*\[key\]|\[key\]") as raised:
            await model.ask_for(asking("judge"), Verdict)
        assert KEY not in str(raised.value)
    assert holds(tmp_path, KEY.encode()) == []


async def test_a_check_of_a_model_that_repeats_its_key_does_not(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    await server.play(Script(key="other"))
    checks = await check_model("m", ModelSettings(base_url=server.url, model="x", api_key_env="TEST_KEY"))
    assert not checks.works
    assert "[key]" in checks.checks[1].detail
    assert "AbCdEf" not in repr(checks)
