"""Models by name: the file, the quick form, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adapters.endpoints import ModelSettings, find_model, read_models
from adapters.endpoints.settings import Price, key_of
from simulator.errors import ConfigError
from tests.conftest import ROOT

WHOLE = """
[models.judge]
base_url = "https://api.example.com/v1/"
model = "gpt-x"
api_key_env = "EXAMPLE_KEY"
price_per_million = { prompt = 0.15, completion = 0.6 }
temperature = 0.5
seed = 7
max_tokens = 512
timeout_s = 60
deadline_s = 300
attempts = 5
max_in_flight = 16
requests_per_minute = 500
tokens_per_minute = 200_000
structured = "json_object"
stream = true
headers = { X-Title = "egostream" }
body = { top_p = 0.9 }

[models.bge]
kind = "embeddings"
base_url = "http://127.0.0.1:8080/v1"
model = "bge-m3"
dimensions = 1024
batch = 16
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "models.toml"
    path.write_text(text)
    return path


def test_every_key_is_read(tmp_path: Path) -> None:
    found = read_models(write(tmp_path, WHOLE))
    assert found["judge"] == ModelSettings(
        base_url="https://api.example.com/v1",
        model="gpt-x",
        api_key_env="EXAMPLE_KEY",
        price_per_million=Price(prompt=0.15, completion=0.6),
        temperature=0.5,
        seed=7,
        max_tokens=512,
        timeout_s=60,
        deadline_s=300,
        attempts=5,
        max_in_flight=16,
        requests_per_minute=500,
        tokens_per_minute=200_000,
        structured="json_object",
        stream=True,
        headers={"X-Title": "egostream"},
        body={"top_p": 0.9},
    )
    assert (found["bge"].kind, found["bge"].dimensions, found["bge"].batch) == ("embeddings", 1024, 16)
    for model in found.values():  # no key of the file is left at its default by these two
        assert model != ModelSettings(base_url=model.base_url, model=model.model)


def test_the_documentation_s_example_is_one_and_its_table_has_every_key(tmp_path: Path) -> None:
    documentation = (ROOT / "docs" / "models.md").read_text()
    example = documentation.partition("```toml\n")[2].partition("```")[0]
    assert list(read_models(write(tmp_path, example))) == ["judge", "local", "bge"]
    rows = [line.split("|")[1] for line in documentation.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in row.replace("`", "").replace(",", " ").split()}
    assert named >= set(ModelSettings.__struct_fields__)
    defaults = {"timeout_s": 120, "deadline_s": 480, "attempts": 8, "max_in_flight": 32, "batch": 32}
    for name, value in defaults.items():
        assert f"| `{name}` | {value} |" in documentation
        assert getattr(ModelSettings(base_url="http://h", model="m"), name) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = [", "no TOML"),
        ("[judge]\nmodel = 'm'", "judge: unknown; models stand in tables [models.NAME]"),
        ("", "it has no table [models.NAME]"),
        ("models = 3", "it has no table [models.NAME]"),
        ("models.judge = 3", "models.judge: must be a table [models.judge]"),
        ("[models.'a b']\nmodel = 'm'", "a model's name has letters"),
        ("[models.j]\nmodel = 'm'", "models.j: it lacks the key `base_url`"),
        ("[models.j]\nbase_url = 'http://h/v1'", "models.j: it lacks the key `model`"),
        ("[models.j]\nbase_url = 'http://h'\nmodel = ''", "models.j.model: is empty"),
        ("[models.j]\nbase_url = 'h/v1'\nmodel = 'm'", "models.j.base_url: 'h/v1' is no address"),
        (
            "[models.j]\nbase_url = 'http://h?k=1'\nmodel = 'm'",
            "models.j.base_url: 'http://h?k=1': an address ends",
        ),
        ("[models.j]\nbase_url = 'http://u:p@h'\nmodel = 'm'", "a user name or password"),
        ("@temprature = 1", "models.j: there is no key `temprature`"),
        ("@temperature = 'hot'", "models.j.temperature: Expected `float | null`, got `str`"),
        ("@temperature = 3", "models.j.temperature: is 3, and must be from 0 to 2"),
        ("@temperature = nan", "models.j.temperature: is nan"),
        ("@timeout_s = 0", "models.j.timeout_s: is 0, and must be above 0"),
        ("@deadline_s = inf", "models.j.deadline_s: is inf"),
        ("@requests_per_minute = -1", "models.j.requests_per_minute: is -1"),
        ("@attempts = 0", "models.j.attempts: is 0, and must be at least 1"),
        ("@max_in_flight = 0", "models.j.max_in_flight: is 0"),
        ("@structured = 'xml'", "models.j.structured: Invalid enum value 'xml'"),
        ("@price_per_million = 3", "models.j.price_per_million: Expected `object`, got `int`"),
        ("@price_per_million = { promt = 3 }", "models.j.price_per_million: there is no key `promt`"),
        ("@price_per_million = { prompt = -3 }", "models.j.price_per_million.prompt: must not be below 0"),
        ("@kind = 'embeddings'", "models.j.dimensions: is missing"),
        ("@headers = { Authorization = 'Bearer x' }", "models.j.headers.Authorization: carries a key"),
        ("@headers = { X-Name = 'Zoë☕' }", "models.j.headers.X-Name: has characters"),
        (r'@headers = { X-Name = "a\nb" }', "models.j.headers.X-Name: has characters"),
        ("@headers = { 'X Name' = 'a' }", "models.j.headers.X Name: has characters"),
        ("@body = { stream = true }", "models.j.body.stream: is set by egostream"),
        ("@api_key_env = '$KEY'", "models.j.api_key_env: is no name of an environment variable"),
    ],
)
def test_what_is_wrong_is_named_with_file_key_and_reason(tmp_path: Path, text: str, says: str) -> None:
    if text.startswith("@"):
        text = f"[models.j]\nbase_url = 'http://h/v1'\nmodel = 'm'\n{text[1:]}"
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read_models(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert says in str(raised.value)


@pytest.mark.parametrize("line", ["api_key = 'sk-secret-1'", "key = 'sk-secret-1'", "TOKEN = 'sk-secret-1'"])
def test_a_key_in_the_file_is_refused_and_not_repeated(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, f"[models.j]\nbase_url = 'http://h/v1'\nmodel = 'm'\n{line}")
    with pytest.raises(ConfigError, match="put it into an environment variable") as raised:
        read_models(path)
    assert "secret" not in str(raised.value)


def test_a_key_where_its_variable_should_stand_is_not_repeated(tmp_path: Path) -> None:
    for line in (
        "api_key_env = 'sk-secret-1'",
        "body = { api_key = 'sk-secret-1' }",
        "headers = { api-key = 'sk-secret-1' }",
    ):
        path = write(tmp_path, f"[models.j]\nbase_url = 'http://h/v1'\nmodel = 'm'\n{line}")
        with pytest.raises(ConfigError) as raised:
            read_models(path)
        assert "secret" not in str(raised.value)


def test_without_a_name_it_is_the_file_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_models() == {}
    write(tmp_path, WHOLE)
    assert list(read_models()) == ["judge", "bge"]
    with pytest.raises(ConfigError, match=r"other\.toml: can't read the models: No such file"):
        read_models(Path("other.toml"))


def test_a_model_can_be_named_without_a_file() -> None:
    found = find_model({}, "openai:org/qwen2.5@7b@http://127.0.0.1:8080/v1/")
    assert found == ModelSettings(model="org/qwen2.5@7b", base_url="http://127.0.0.1:8080/v1")
    for text in ("openai:m", "openai:@http://h/v1", "openai:m@http://"):
        with pytest.raises(ConfigError, match=r"openai:|is no address"):
            find_model({}, text)


def test_an_unknown_name_says_what_there_is(tmp_path: Path) -> None:
    found = read_models(write(tmp_path, WHOLE))
    with pytest.raises(ConfigError, match=r"no model is called 'jugde': there are judge, bge; or write it"):
        find_model(found, "jugde")
    with pytest.raises(ConfigError, match=r"there is no models\.toml here, and no --models"):
        find_model({}, "judge")
    with pytest.raises(ConfigError, match="'bge' is one for embeddings, and chat is wanted"):
        find_model(found, "bge")


def test_keys_come_from_the_environment_alone() -> None:
    settings = ModelSettings(base_url="http://h/v1", model="m", api_key_env="K")
    assert key_of(settings, "judge", {"K": "sk-1"}) == "sk-1"
    assert key_of(msgspec.structs.replace(settings, api_key_env=""), "judge", {}) is None
    with pytest.raises(ConfigError, match=r"'judge': its key should be in \$K, which is not set"):
        key_of(settings, "judge", {})
    for bad in ("sk-secret\n", "sk secret", "sk-sécret"):
        with pytest.raises(ConfigError) as raised:
            key_of(settings, "judge", {"K": bad})
        assert "cret" not in str(raised.value)


def test_a_name_has_all_that_changes_answers_and_nothing_else(tmp_path: Path) -> None:
    settings = read_models(write(tmp_path, WHOLE))["judge"]
    assert settings.name == (
        "gpt-x at https://api.example.com/v1 "
        "(max_tokens=512, seed=7, structured=json_object, temperature=0.5, top_p=0.9)"
    )
    same = {
        "timeout_s": 1.0,
        "attempts": 1,
        "max_in_flight": 1,
        "stream": False,
        "api_key_env": "",
        "headers": {},
    }
    assert msgspec.structs.replace(settings, **same).name == settings.name
    others = {
        "base_url": "http://h/v1", "model": "n", "temperature": 0.6, "seed": 8, "max_tokens": 5, "structured": "text",
        "body": {"top_p": 0.8},
    }  # fmt: skip
    for name, value in others.items():
        assert msgspec.structs.replace(settings, **{name: value}).name != settings.name
