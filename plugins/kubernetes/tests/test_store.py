"""Records by address and time: the rules of Antrea's Pod store, and what keeps it bounded."""

from __future__ import annotations

import gc
from math import inf

import pytest
from kubernetes_objects import pod

from flowjoin_kubernetes._records import PodRecord
from flowjoin_kubernetes._store import TimedStore

ADDRESS = "10.0.0.1"


def record(name: str, created: float, *addresses: str, uid: str = "") -> PodRecord:
    manifest = pod(name, *(addresses or (ADDRESS,)), uid=uid or f"uid-{name}")
    return PodRecord.of(manifest, 0.0)._replace(created=created)


def store_of(*records: PodRecord, kept: float = 300.0, most: int = 100) -> TimedStore[PodRecord]:
    store = TimedStore(PodRecord, kept_seconds=kept, most_deleted=most)
    for each in records:
        store.put(each)
    return store


def found(store: TimedStore[PodRecord], at: float | None, address: str = ADDRESS) -> str | None:
    pod_record = store.find(address, at)
    return None if pod_record is None else pod_record.name


def only(store: TimedStore[PodRecord], address: str) -> PodRecord:
    """The one record of an address."""
    assert store.count(address) == 1
    pod_record = store.find(address, 0.0)
    assert pod_record is not None
    return pod_record


def test_an_address_that_nobody_had_finds_nothing() -> None:
    assert found(store_of(), 5.0) is None
    assert store_of().count(ADDRESS) == 0


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
    assert only(store, "10.0.0.2").created == 100.0
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
    assert only(store, ADDRESS).deleted == 200.0
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
    assert only(store, "10.0.0.2").deleted == 50.0
    assert found(store, None) == "stays"


def test_what_was_taken_for_deleted_and_is_listed_again_lives() -> None:
    store = store_of(record("one", 1.0))
    store.begin_list()
    assert store.end_list(50.0) == 1
    store.begin_list()
    store.put(record("one", 1.0))
    assert store.end_list(60.0) == 0
    assert only(store, ADDRESS).deleted == inf
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
    assert store.count("2001:db8::1") == len(store)
    for number in range(5000):
        store.delete(f"uid-pod-{number}", 5000.0)
    store.purge(1e6, 10_000)
    assert len(store) == 0
    assert not any(vars(store)[name] for name in ("_rows", "_only", "_several", "_deleted", "_listed"))
    assert store.keys == 0


def test_a_record_with_a_key_twice_is_found_and_goes_as_any_other() -> None:
    twice, other = record("one", 1.0, ADDRESS, ADDRESS), record("two", 2.0)
    twice = twice._replace(addresses=(ADDRESS, ADDRESS))
    store = store_of(twice)
    assert store.count(ADDRESS) == 1
    store.put(other)
    assert store.count(ADDRESS) == 2
    store.put(twice._replace(addresses=()))
    assert only(store, ADDRESS).name == "two"
    store.put(twice)
    for uid in ("uid-one", "uid-two"):
        store.delete(uid, 5.0)
    store.purge(1e6, 10)
    assert (len(store), store.keys) == (0, 0)


def test_what_is_held_is_nothing_that_the_garbage_collector_walks() -> None:
    store = store_of(*(record(f"pod-{number}", 1.0, f"10.0.0.{number}") for number in range(100)))
    gc.collect()
    gc.collect()
    assert not any(gc.is_tracked(row) for row in store._rows.values())
