"""The ledger against what it is for: deltas, played one after another, are the records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapters.foreign.host.driver import Held
from adapters.foreign.host.ledger import Change, Entry, Ledger

texts = st.sampled_from(["", "a", "b", "c"])
held = st.builds(Held, texts, st.one_of(st.none(), st.integers(0, 3)))
states = st.lists(st.dictionaries(st.sampled_from("uvwxyz"), held), max_size=8)


@given(states)
def test_deltas_played_in_order_give_the_records_under_the_names_of_a_search(
    states: list[dict[str, Held]],
) -> None:
    ledger = Ledger()
    played: dict[str, Entry] = {}
    for number, state in enumerate(states):
        for change in ledger.take(state, f"s{number}", 10 + number):
            assert (change.op == "add") == (change.entry.id not in played)
            if change.op == "delete":
                assert played.pop(change.entry.id).text == change.entry.text
            else:
                played[change.entry.id] = change.entry
        found = {native: ledger.entry(native) for native in state}
        assert sorted(found.values()) == sorted(played.values())
        assert {native: entry.text for native, entry in found.items()} == {
            n: h.text for n, h in state.items()
        }


@given(states)
def test_the_same_state_again_changes_nothing(states: list[dict[str, Held]]) -> None:
    ledger = Ledger()
    for number, state in enumerate(states):
        ledger.take(state, f"s{number}", number)
        assert ledger.take(state, "again", 99) == []


@given(states, st.permutations("uvwxyz"))
def test_names_hang_on_the_order_and_not_on_native_ids(
    states: list[dict[str, Held]], others: list[str]
) -> None:
    renamed = dict(zip("uvwxyz", others, strict=True))
    one, other = Ledger(), Ledger()
    for number, state in enumerate(states):
        again = {renamed[native]: held for native, held in state.items()}
        adds = [c for c in one.take(state, f"s{number}", number) if c.op != "delete"]
        assert adds == [c for c in other.take(again, f"s{number}", number) if c.op != "delete"]


@given(states, states)
def test_a_copy_goes_its_own_way(first: list[dict[str, Held]], second: list[dict[str, Held]]) -> None:
    ledger = Ledger()
    for number, state in enumerate(first):
        ledger.take(state, f"s{number}", number)
    before = {native: ledger.entry(native) for native in (first[-1] if first else {})}
    copy = ledger.copy()
    for number, state in enumerate(second):
        copy.take(state, f"c{number}", number)
    assert {native: ledger.entry(native) for native in before} == before


def test_a_new_text_is_as_new_as_its_operation_and_a_time_alone_is_no_change() -> None:
    ledger = Ledger()
    assert ledger.take({"u": Held("a"), "v": Held("b", 5)}, "s0", 10) == [
        Change(Entry("s0/m0", "a", 10), "add"),
        Change(Entry("s0/m1", "b", 5), "add"),
    ]
    assert ledger.take({"u": Held("a"), "v": Held("b", 20)}, "s1", 20) == []
    assert ledger.entry("v") == Entry("s0/m1", "b", 5)
    assert ledger.take({"v": Held("c"), "w": Held("a")}, "e/0", 30) == [
        Change(Entry("s0/m1", "c", 30), "update"),
        Change(Entry("e/0/m0", "a", 30), "add"),
        Change(Entry("s0/m0", "a", 30), "delete"),
    ]
