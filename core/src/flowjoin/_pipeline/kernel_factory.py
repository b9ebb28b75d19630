"""The kernel that a configuration wants."""

from __future__ import annotations

from math import inf

from flowjoin._config.plugin_settings import BoundConfig
from flowjoin._kernel import Kernel, KernelLimits, create_kernel
from flowjoin._model.schemas import build_schemas
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.limits import DecoderLimits

__all__ = ["make_kernel"]


def make_kernel(bound: BoundConfig, *, cluster_uuid: str, form: str) -> Kernel:
    """A kernel for a configuration's mode, elements and limits.

    Args:
        bound: the configuration.
        cluster_uuid: of flows, unless the configuration names the cluster.
        form: what ``FLOWJOIN_KERNEL`` says, or ``auto``.

    Raises:
        ConfigError: the form is unknown or not at hand.
    """
    config, limits = bound.config, bound.config.limits
    added = [name for plugin in bound.enrichers for name in plugin.type.adds]
    schemas = build_schemas(bound.registry, extra=[*(element.name for element in bound.elements), *added])
    is_proxy = config.mode == "Proxy"
    return create_kernel(
        decoder=Decoder(
            bound.registry,
            limits=DecoderLimits(
                sessions=limits.sessions,
                templates_per_session=limits.templates_per_session,
                fields_per_template=limits.fields_per_template,
                held_octets=limits.held_bytes,
                template_lifetime=limits.template_lifetime or inf,  # 0 keeps them
                idle_timeout=limits.session_idle,
            ),
        ),
        compile_plan=PlanCompiler(bound.registry, schemas, is_proxy=is_proxy),
        schemas=schemas,
        limits=KernelLimits(
            flows=limits.flows,
            string_octets=limits.string_bytes,
            active_timeout=config.active_flow_record_timeout,
            idle_timeout=config.inactive_flow_record_timeout,
        ),
        cluster_id=config.cluster_id or cluster_uuid,
        is_enriched=bool(bound.enrichers),
        is_proxy=is_proxy,
        form=form,
    )
