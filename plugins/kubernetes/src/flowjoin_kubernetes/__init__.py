"""Enricher and look-up plugin: what the API server of a cluster knows about addresses and names."""

from math import inf

from flowjoin.api import (
    AccessReview,
    CertificateStore,
    ClientCredentialsLookup,
    EnricherType,
    LookupType,
    NodeLookup,
    PodLookup,
    PodNetworkLookup,
    ServiceLookup,
    hookimpl,
)
from flowjoin_kubernetes._client import check
from flowjoin_kubernetes._cluster_uuid import cluster_uuid
from flowjoin_kubernetes._config import KubernetesConfig, KubernetesLookupConfig
from flowjoin_kubernetes._enricher import ADDS, FILLS, open_enricher
from flowjoin_kubernetes._lookup import open_lookup
from flowjoin_kubernetes._tables import Tables

__all__ = ["KubernetesConfig", "KubernetesLookupConfig", "flowjoin_enricher_types", "flowjoin_lookup_types"]


@hookimpl
def flowjoin_lookup_types() -> list[LookupType]:
    """Hand over the type that ``lookups: [{type: kubernetes}]`` stands for."""
    provides = (
        PodLookup,
        PodNetworkLookup,
        NodeLookup,
        ServiceLookup,
        ClientCredentialsLookup,
        CertificateStore,
        AccessReview,
        Tables,
    )
    return [
        LookupType(
            "kubernetes",
            KubernetesLookupConfig,
            provides,
            open_lookup,
            api_version=1,
            cluster_uuid=cluster_uuid,
            patience=_without_end,
            check=check,
        )
    ]


@hookimpl
def flowjoin_enricher_types() -> list[EnricherType]:
    """Hand over the type that ``enrichers: [{type: kubernetes}]`` stands for."""
    return [
        EnricherType(
            "kubernetes",
            KubernetesConfig,
            ADDS,
            FILLS,
            open_enricher,
            api_version=1,
            cluster_uuid=cluster_uuid,
            patience=_without_end,
            check=check,
        )
    ]


def _without_end(_config: KubernetesConfig | KubernetesLookupConfig) -> float:
    """Each wait for the server has an end of its own; what is wrong is said, and a large list may take its time."""
    return inf
