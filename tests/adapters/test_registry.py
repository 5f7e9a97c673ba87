from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from adapters.memory import Capabilities, MemorySystem
from adapters.registry import SystemSpec, available, capabilities, open_system, parse_spec
from adapters.systems.rag_raw import RagRawMemory
from simulator.errors import ConfigError
from tests.adapters.helpers import context, segment
from tests.models.fakes import FakeModel

OWN = """
from adapters.memory import Answer, Capabilities, Delta

class Good:
    capabilities = Capabilities(fork="none")

    def __init__(self, context, size: int = 3, flag: bool = False, note="n"):
        self.context, self.size, self.flag, self.note = context, size, flag, note

    async def ingest(self, segment): return Delta()
    async def answer(self, request): return Answer(text="")
    async def commit(self, interaction): return Delta()
    def fork(self): return self
    async def aclose(self): pass

class Fails(Good):
    def __init__(self, context):
        raise RuntimeError("no\\nserver")

class Half:
    async def ingest(self, segment): return Delta()
    def answer(self, request): return Answer(text="")

class Mislabelled(Good):
    capabilities = {"fork": "none"}

class Misdeclared(Good):
    capabilities = Capabilities(fork="copied")

class Unflushed(Good):
    capabilities = Capabilities(fork="copy")

class Anything(Good):
    def __init__(self, context, **options):
        self.options = options

class Partial(Good):
    @staticmethod
    def capabilities(*, size=3):
        return Capabilities(fork="none")

class Forkless(Good):
    capabilities = Capabilities()
    fork = None

class Replayed(Forkless):
    capabilities = Capabilities(fork="replay")
"""


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_memories.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("import no_such_thing")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("rag_raw", SystemSpec(label="rag_raw", name="rag_raw")),
        (
            "rag_raw:retrieval=bm25,top_k=5",
            SystemSpec(
                label="rag_raw:retrieval=bm25,top_k=5",
                name="rag_raw",
                options={"retrieval": "bm25", "top_k": "5"},
            ),
        ),
        (
            "bm25=rag_raw:retrieval=bm25",
            SystemSpec(label="bm25", name="rag_raw", options={"retrieval": "bm25"}),
        ),
        ("my.pkg:Mine", SystemSpec(label="my.pkg:Mine", name="my.pkg:Mine")),
        (
            "mine=my.pkg:Mine:url=http://x:1/y",
            SystemSpec(label="mine", name="my.pkg:Mine", options={"url": "http://x:1/y"}),
        ),
    ],
)
def test_specs(text: str, spec: SystemSpec) -> None:
    assert parse_spec(text) == spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rag", "unknown memory system 'rag'.*null, oracle, full_context, rag_raw"),
        ("rag:top_k=5", "unknown memory system 'rag'"),
        ("", "label"),
        ("=rag_raw", "label"),
        ("a b=rag_raw", "label"),
        ("a@b=rag_raw", "label"),
        ("my.pkg:Mine:path=/x", "label=my.pkg:Mine:path=/x"),
        ("rag_raw:top_k", "'top_k' is no option"),
        ("rag_raw:top_k=", "'top_k=' is no option"),
        ("rag_raw:top_k=1,,", "'' is no option"),
        ("rag_raw:top_k=1,top_k=2", "given twice"),
    ],
)
def test_specs_that_say_nothing_clear_are_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_spec(text)


async def test_every_built_in_system_opens_and_keeps_the_protocol() -> None:
    assert list(available()) == [
        *("null", "oracle", "full_context", "rag_raw", "rag_ext", "graph"),
        *("recency", "bm25", "dense", "hybrid", "http"),
    ]
    for name, summary in available().items():
        assert summary.endswith(".")
        assert ". " not in summary
        needed = {
            "http": "http:url=http://127.0.0.1:1",
            "rag_ext": "rag_ext:model=fake",
            "graph": "graph:model=fake",
        }
        spec = needed.get(name, name)
        system = open_system(spec, replace(context(), model_of=FakeModel))
        assert isinstance(system, MemorySystem)
        assert capabilities(spec).privileged == (name == "oracle")
        assert capabilities(spec).fork == "cheap"
        await system.aclose()


async def test_options_reach_the_system() -> None:
    system = open_system("rag_raw:retrieval=bm25,top_k=1,chunk_observations=1", context())
    assert isinstance(system, RagRawMemory)
    delta = await system.ingest(segment(0, "tea", "cup"))
    assert len(delta.records) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rag_raw:topk=5", "no option 'topk': there are chunk_observations, embedder, retrieval, top_k"),
        ("null:top_k=5", "no option 'top_k': it has none"),
        ("rag_raw:top_k=five", "top_k=five"),
        ("rag_raw:top_k=0", "at least 1"),
        ("rag_raw:retrieval=magic", "one of dense, bm25, hybrid"),
        ("rag_raw:embedder=x", "no model 'x': name the file"),
        ("rag_raw:encoder=x", "no option 'encoder'"),
        ("rag_raw:embedder=x,retrieval=bm25", "leave embedder away"),
        ("no_such_module:Mine", "can't import 'no_such_module'.*built in are null"),
        (
            "own_broken:Mine",
            "can't import 'own_broken': ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        ("own_memories:Missing", "no class 'Missing'.*it has Good, Fails, Half, Mislabelled, Mis"),
        ("own_memories:Half", "lacks async answer, async commit, async aclose, fork"),
        ("own_memories:Misdeclared", "declares fork='copied': there are cheap, copy, replay, none"),
        ("own_memories:Unflushed", "lacks async flush"),
        ("own_memories:Forkless", "lacks fork"),
        ("own_memories:Fails", "could not be made: RuntimeError: no server"),
        ("own_memories:Good:colour=red", "no option 'colour': there are flag, note, size"),
        ("own_memories:Good:size=big", "size=big"),
    ],
)
@pytest.mark.usefixtures("own_modules")
def test_what_can_t_be_opened_is_one_clear_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        open_system(text, context())
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("own_modules")
def test_one_s_own_class_gets_the_context_and_typed_options() -> None:
    lane = context()
    system = open_system("own_memories:Good:size=7,flag=true,note=12", lane)
    assert vars(system) == {"context": lane, "size": 7, "flag": True, "note": "12"}
    assert capabilities("own_memories:Good") == Capabilities(fork="none")
    assert capabilities("own_memories:Fails").fork == "none"
    assert capabilities("own_memories:Replayed").fork == "replay"
    open_system("own_memories:Replayed", lane)  # it needs no fork
    with pytest.raises(ConfigError, match="must be a Capabilities"):
        capabilities("own_memories:Mislabelled")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("own_memories:Good:sise=7", "own_memories:Good has no option 'sise': there are flag, note, size"),
        ("own_memories:Fails:size=7", "own_memories:Fails has no option 'size': it has none"),
        ("own_memories:Good:size=big", "option size=big: .*Expected .int., got"),
        ("own_memories:Partial:note=x", "Partial.capabilities could not be asked: TypeError: .*'note'"),
        ("rag_raw:retrieval=magic", "one of dense, bm25, hybrid"),
    ],
)
@pytest.mark.usefixtures("own_modules")
def test_an_option_that_is_none_is_refused_before_anything_is_opened(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        capabilities(text)


@pytest.mark.usefixtures("own_modules")
def test_a_class_that_takes_any_option_gets_it() -> None:
    spec = "own_memories:Anything:colour=red,size=7"
    assert capabilities(spec).fork == "none"
    assert vars(open_system(spec, context())) == {"options": {"colour": "red", "size": "7"}}


def test_a_module_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [p for p in __import__("sys").path if p])
    (tmp_path / "own_here.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_system("own_here:Good", context()), MemorySystem)
