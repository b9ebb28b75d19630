"""The rights that the manifests give are enough, and each that is taken away is named where it is missing."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from deployment import MANIFESTS, objects
from real_kubernetes import RealKubernetes, write_kubeconfig

from flowjoin.api import CertificateObject, PluginError, User
from flowjoin.testing import RecordingContext
from flowjoin_kubernetes import KubernetesConfig, _cluster_uuid, _object_watch, _watch
from flowjoin_kubernetes._access import ClusterAccess
from flowjoin_kubernetes._certificates import ClusterCertificates
from flowjoin_kubernetes._client import Api, ApiError, load_api
from flowjoin_kubernetes._cluster_uuid import cluster_uuid
from flowjoin_kubernetes._tables import open_tables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ACCOUNT = "flow-aggregator"
PATIENCE = 120.0
PAIR = {"tls.crt": b"certificate", "tls.key": b"key"}


def rules() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Of the roles that the Pod's service account has, by namespace (none: of the cluster) and name."""
    deployed = objects(MANIFESTS.read_text())
    bound = {
        (one["metadata"].get("namespace", ""), one["roleRef"]["name"])
        for one in deployed
        if any(subject["name"] == ACCOUNT for subject in one.get("subjects", ()))
    }
    found = {(one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in deployed if "rules" in one}
    return {place: found[place]["rules"] for place in bound}


def without(resource: str, verb: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    left = copy.deepcopy(rules())
    for place, each in left.items():
        left[place] = []
        for rule in each:
            others = [name for name in rule.get("resources", ()) if name != resource]
            if others:
                left[place].append({**rule, "resources": others})
            if len(others) < len(rule.get("resources", ())):
                left[place].append({**rule, "resources": [resource], "verbs": [v for v in rule["verbs"] if v != verb]})
    return {place: [rule for rule in each if rule["verbs"]] for place, each in left.items()}


def all_rights() -> Iterator[tuple[str, str]]:
    seen = {
        (resource, verb)
        for each in rules().values()
        for rule in each
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }
    yield from sorted(seen)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_watch, "TIMING", replace(_watch.TIMING, first_wait=0.05, longest_wait=0.2))
    monkeypatch.setattr(_cluster_uuid, "_PATIENCE_SECONDS", 1.0)
    for name in ("FIRST_LOOK_SECONDS", "LAST_LOOK_SECONDS"):
        monkeypatch.setattr(_object_watch, name, 0.05)


def grant(cluster: RealKubernetes, namespace: str, given: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    """A service account with these rights, under names of the test's own; gives its token."""
    group = "rbac.authorization.k8s.io"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    cluster.request("POST", accounts, {"metadata": {"name": ACCOUNT}})
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
    for number, ((place, _name), each) in enumerate(given.items()):
        kind, name = ("Role" if place else "ClusterRole"), f"{namespace}-{number}"
        metadata = {"name": name, **({"namespace": namespace if place == ACCOUNT else place} if place else {})}
        about = {"apiVersion": f"{group}/v1", "metadata": metadata}
        cluster.apply({**about, "kind": kind, "rules": each})
        reference = {"apiGroup": group, "kind": kind, "name": name}
        cluster.apply({**about, "kind": f"{kind}Binding", "roleRef": reference, "subjects": subjects})
    return cluster.make_token(namespace, ACCOUNT)


async def problems_of(api: Api, config: KubernetesConfig, namespace: str) -> set[str]:
    """What does not work of all that flowjoin does there, as operators read it."""
    context = RecordingContext()
    store, access = ClusterCertificates(api, namespace, context.log), ClusterAccess(api)
    found: list[str] = []

    async def note(call: Any) -> Any:
        try:
            return await call()
        except (ApiError, PluginError) as exc:
            found.append(str(exc))
            return None

    await note(partial(cluster_uuid, config, context.log))
    await note(partial(access.authenticate, "x"))
    await note(partial(access.is_allowed, User(name="x"), "get", "/flowrecords"))
    for name in CertificateObject:
        held = await note(partial(store.get, name))
        await note(partial(store.put, name, PAIR, None if held is None else held.version))
        held = await note(partial(store.get, name))
        await note(partial(store.put, name, PAIR, None if held is None else held.version))
    with trio.move_on_after(1.0):
        await store.wait_change()
    with trio.move_on_after(2.0):
        async with open_tables(api, config, context):
            await trio.sleep(0.5)
    found += [str(line.facts["problem"]) for line in context.log.lines if line.event == "certificate_unwatched"]
    return {*found, *(problem for problem in context.impairments if problem)}


@pytest.mark.parametrize(("resource", "verb"), [("nothing", "get"), *all_rights()], ids=" ".join)
async def test_without_a_right_the_sentence_names_it_and_with_all_nothing_is_wrong(
    real_cluster: RealKubernetes, tmp_path: Path, resource: str, verb: str
) -> None:
    ask = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
    identity = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "antrea-cluster-identity", "namespace": "kube-system"},
        "data": {"uuid": "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"},
    }
    await ask(real_cluster.apply, identity)
    namespace = await ask(real_cluster.make_namespace)
    token = await ask(grant, real_cluster, namespace, without(resource, verb))
    config = KubernetesConfig(kubeconfig=write_kubeconfig(tmp_path / "kubeconfig", real_cluster.url, token))
    wanted = set() if resource == "nothing" else {(verb, resource)}
    problems: set[str] = set()
    missing: set[tuple[str, str]] = set()
    with trio.move_on_after(PATIENCE):
        while True:
            problems = await problems_of(load_api(config), config, namespace)
            missing = {match for each in problems for match in re.findall(r'cannot (\w+) resource "(\w+)"', each)}
            if missing == wanted and all("forbidden" in each for each in problems):
                break  # its authoriser has learnt of the roles; and on a busy machine no answer was too late
            await trio.sleep(0.1)
    assert missing == wanted, problems
    assert len(problems) >= len(missing)
    assert all("forbidden" in each for each in problems), problems
