"""Models on the command line: what is configured, what works, what is kept; and a run that embeds by one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.helpers import egostream
from tests.models.server import Script, Server

TINY = "synthetic:wearers=1,segments_per_day=2,anchors_per_day=1"


def configure(folder: Path, server: Server, more: str = "") -> Path:
    path = folder / "models.toml"
    path.write_text(
        f"""
[models.judge]
base_url = "{server.url}"
model = "scripted"
{more}
[models.bge]
kind = "embeddings"
base_url = "{server.url}"
model = "scripted"
dimensions = 8
"""
    )
    return path


def test_what_is_configured_is_listed(server: Server, tmp_path: Path) -> None:
    configure(
        tmp_path, server, 'api_key_env = "NOT_SET_HERE"\nprice_per_million = { prompt = 0.5, completion = 2 }'
    )
    ran = egostream("models", cwd=tmp_path, env={"COLUMNS": "120"})
    assert ran.code == 0, ran.err
    assert "judge" in ran.out
    assert "$NOT_SET_HERE (not set)" in ran.out
    assert "0.5/2" in ran.out
    found = egostream("models", "--json", "--models", tmp_path / "models.toml").json
    assert found["bge"]["dimensions"] == 8
    assert egostream("models", "check", "judge", cwd=tmp_path).code == 2


def test_without_any_it_says_what_to_do(tmp_path: Path) -> None:
    for arguments in (["models"], ["models", "check"], ["models", "check", "judge"]):
        ran = egostream(*arguments, cwd=tmp_path)
        assert ran.code == 2
        assert "models.toml" in ran.err


async def test_a_check_says_what_works_and_what_to_set(server: Server, tmp_path: Path) -> None:
    configure(tmp_path, server)
    await server.play(Script(rule="tests.models.rules:colour", formats=("json_object",)))
    ran = egostream("models", "check", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    chat, embeddings = ran.json
    works = {check["what"]: check["works"] for check in chat["checks"]}
    assert works == {
        "models": True,
        "chat": True,
        "stream": True,
        "schema": False,
        "json_object_schema": True,
        "json_object": True,
        "text": True,
    }
    assert chat["advice"] == ['structured = "json_object_schema"']
    assert (embeddings["model"], embeddings["works"]) == ("bge", True)
    shown = egostream("models", "check", "judge", cwd=tmp_path, env={"COLUMNS": "150"})
    assert 'structured = "json_object_schema"' in shown.out
    await server.play(Script(dimensions=4, stream_options=False))
    ran = egostream("models", "check", "--json", f"openai:other@{server.url}", "bge", cwd=tmp_path)
    assert ran.code == 1
    chat, embeddings = ran.json
    details = {check["what"]: check["detail"] for check in chat["checks"] + embeddings["checks"]}
    assert details["models"] == "scripted is in its list"
    assert "no count of tokens" in details["stream"]
    assert details["embeddings"] == "vectors of 4 dimensions, and not 8: set dimensions = 4"
    assert not embeddings["works"]


async def test_a_run_embeds_by_a_configured_model_once_and_says_so(server: Server, tmp_path: Path) -> None:
    configure(tmp_path, server)
    await server.play(Script())
    arguments = ["run", "--data", TINY, "--system", "rag=rag_raw:embedder=bge", "--cache", "c.db", "--json"]
    first = egostream(*arguments, "--out", "first", cwd=tmp_path)
    assert first.code == 0, first.err
    texts = [text for asked in await server.asked() for text in asked.body["input"]]
    assert len(texts) == len(set(texts)) > 3
    assert "Vectors by bge are not counted here." in egostream("scores", "first", cwd=tmp_path).out
    dry = egostream(*arguments[:-1], "--out", "dry", "--dry-run", cwd=tmp_path)
    assert "asks models for vectors alone, which are not counted" in dry.out
    again = egostream(*arguments, "--out", "again", "--offline", cwd=tmp_path)
    assert again.code == 0, again.err
    assert len(await server.asked()) == len({tuple(asked.body["input"]) for asked in await server.asked()})
    assert (tmp_path / "first" / "verdicts.jsonl").read_bytes() == (
        tmp_path / "again" / "verdicts.jsonl"
    ).read_bytes()
    [started] = [
        e
        for e in egostream("tap", tmp_path / "first", "control", "--json").json_lines
        if e["kind"] == "run_started"
    ]
    assert started["identity"]["embedder.rag"] == f"scripted at {server.url} (dimensions=8)"
    counted = egostream("cache", "--cache", "c.db", "--json", cwd=tmp_path).json["models"]
    assert [(m["model"], m["entries"]) for m in counted] == [
        (f"scripted at {server.url} (dimensions=8)", len(texts))
    ]
    pruned = egostream(
        "cache", "prune", "--cache", "c.db", "--model", counted[0]["model"], "--json", cwd=tmp_path
    )
    assert pruned.json == {"deleted": len(texts)}
    refused = egostream(*arguments, "--out", "third", "--offline", cwd=tmp_path)
    assert refused.code == 4  # unjudged: nobody was asked
    assert re.search(r"not_in_the_cache +answers=\d+ model=bge", refused.err)


def test_a_system_can_t_embed_by_what_is_no_embedder(server: Server, tmp_path: Path) -> None:
    configure(tmp_path, server)
    for name, says in (
        ("judge", "'judge' is one for chat, and embeddings is wanted"),
        ("x", "no model is called 'x'"),
    ):
        ran = egostream(
            "run", "--data", TINY, "--system", f"rag_raw:embedder={name}", "--out", "r", cwd=tmp_path
        )
        assert ran.code == 2
        assert says in ran.err


def test_a_cache_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("milk, bread\n" * 100)
    for arguments in (["cache"], ["cache", "prune", "--days", "0"]):
        ran = egostream(*arguments, "--cache", tmp_path / "notes.txt")
        assert ran.code == 2
        assert "name another with --cache" in ran.err
        assert egostream(*arguments, "--cache", tmp_path / "none.db").code == 2
    assert egostream("cache", "prune").code == 2
