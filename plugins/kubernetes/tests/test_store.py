"""Records by address and time: the rules of Antrea's Pod store, and what keeps it bounded."""

from __future__ import annotations

from math import inf

import pytest
from kubernetes_stand_in import pod

from flowjoin_kubernetes._records import PodRecord
from flowjoin_kubernetes._store import TimedStore

ADDRESS = "10.0.0.1"


def record(name: str, created: float, *addresses: str, uid: str = "") -> PodRecord:
    manifest = pod(name, *(addresses or (ADDRESS,)), uid=uid or f"uid-{name}")
    made = PodRecord(manifest, 0.0)
    made.created = created
    return made


def store_of(*records: PodRecord, kept: float = 300.0, most: int = 100) -> TimedStore[PodRecord]:
    store: TimedStore[PodRecord] = TimedStore(kept_seconds=kept, most_deleted=most)
    for each in records:
        store.put(each)
    return store


def found(store: TimedStore[PodRecord], at: float | None, address: str = ADDRESS) -> str | None:
    pod_record = store.find(address, at)
    return None if pod_record is None else pod_record.name


def test_an_address_that_nobody_had_finds_nothing() -> None:
    assert found(store_of(), 5.0) is None
    assert list(store_of().candidates(ADDRESS)) == []


@pytest.mark.parametrize("at", [0.0, 99.0, 100.0, 1e12])
def test_the_only_pod_of_an_address_is_found_whatever_the_time(at: float) -> None:
    store = store_of(record("one", 100.0))
    assert found(store, at) == "one"
    store.delete("uid-one", 200.0)
    assert found(store, at) == "one"


@pytest.mark.parametrize(
    ("at", "name"),
    [
        (99.0, None), (100.0, None), (101.0, "first"), (199.0, "first"), (200.0, None),
        (249.0, None), (250.0, None), (251.0, "second"), (1e12, "second"),
    ],
)  # fmt: skip
def test_of_several_the_one_that_was_created_before_and_deleted_after_both_strictly(
    at: float, name: str | None
) -> None:
    store = store_of(record("first", 100.0))
    store.delete("uid-first", 200.0)
    store.put(record("second", 250.0))
    assert found(store, at) == name


def test_of_two_that_fit_it_is_the_younger() -> None:
    store = store_of(record("younger", 120.0), record("elder", 100.0))
    assert found(store, 150.0) == "younger"


def test_the_present_knows_only_what_lives() -> None:
    store = store_of(record("one", 100.0))
    assert found(store, None) == "one"
    store.delete("uid-one", 200.0)
    assert found(store, None) is None
    store.put(record("two", 250.0))
    store.put(record("three", 260.0))
    assert found(store, None) == "three"


def test_an_update_keeps_the_time_of_creation_and_brings_new_addresses() -> None:
    store = store_of(record("one", 100.0))
    store.put(record("one", 900.0, "10.0.0.2", "2001:db8::2"))
    assert [each.created for each in store.candidates("10.0.0.2")] == [100.0]
    assert found(store, 5.0, "2001:db8::2") == "one"
    assert found(store, 5.0) is None
    assert len(store) == 1


def test_what_was_deleted_is_kept_for_the_delay_and_then_gone() -> None:
    store = store_of(record("one", 100.0), kept=300.0)
    store.delete("uid-one", 200.0)
    assert not store.purge(499.9, 10)
    assert found(store, 150.0) == "one"
    assert not store.purge(500.0, 10)
    assert (found(store, 150.0), len(store), store.deleted_held) == (None, 0, 0)


def test_a_second_deletion_changes_nothing() -> None:
    store = store_of(record("one", 100.0))
    store.delete("uid-one", 200.0)
    store.delete("uid-one", 300.0)
    store.delete("uid-other", 300.0)
    assert [each.deleted for each in store.candidates(ADDRESS)] == [200.0]
    assert store.deleted_held == 1


def test_purging_goes_in_pieces() -> None:
    store = store_of(*(record(f"pod-{number}", 1.0, f"10.0.0.{number}") for number in range(5)))
    for number in range(5):
        store.delete(f"uid-pod-{number}", 10.0)
    assert store.purge(1000.0, 2)
    assert len(store) == 3
    assert store.purge(1000.0, 2)
    assert not store.purge(1000.0, 2)
    assert len(store) == 0


def test_beyond_the_most_deleted_the_oldest_is_forgotten_early_and_counted() -> None:
    store = store_of(*(record(f"pod-{number}", 1.0, f"10.0.0.{number}") for number in range(5)), most=2)
    for number in range(5):
        store.delete(f"uid-pod-{number}", 10.0 + number)
    assert (len(store), store.deleted_held, store.forgotten_early) == (2, 2, 3)
    assert [found(store, 5.0, f"10.0.0.{number}") for number in range(5)] == [None, None, None, "pod-3", "pod-4"]


def test_what_a_list_lacks_was_deleted_unseen() -> None:
    store = store_of(record("stays", 1.0), record("goes", 1.0, "10.0.0.2"))
    store.begin_list()
    store.put(record("stays", 1.0))
    assert store.end_list(50.0) == 1
    assert found(store, None, "10.0.0.2") is None
    assert [each.deleted for each in store.candidates("10.0.0.2")] == [50.0]
    assert found(store, None) == "stays"


def test_what_was_taken_for_deleted_and_is_listed_again_lives() -> None:
    store = store_of(record("one", 1.0))
    store.begin_list()
    assert store.end_list(50.0) == 1
    store.begin_list()
    store.put(record("one", 1.0))
    assert store.end_list(60.0) == 0
    assert [each.deleted for each in store.candidates(ADDRESS)] == [inf]
    assert store.deleted_held == 0


def test_days_of_churn_leave_nothing_behind() -> None:
    store = store_of(kept=10.0, most=1000)
    for number in range(5000):
        now = float(number)
        store.put(record(f"pod-{number}", now, f"10.0.0.{number % 50}", "2001:db8::1"))
        if number >= 20:
            store.delete(f"uid-pod-{number - 20}", now)
        store.purge(now, 100)
    assert len(store) <= 20 + 11
    assert len(store.candidates("2001:db8::1")) == len(store)
    for number in range(5000):
        store.delete(f"uid-pod-{number}", 5000.0)
    store.purge(1e6, 10_000)
    assert len(store) == 0
    assert vars(store)["_index"] == {}
