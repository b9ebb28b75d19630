"""Which form of the kernel a program gets."""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

from flowjoin._kernel.interface import CompilePlan, Kernel, KernelLimits
from flowjoin._kernel.proxy import ProxyKernel
from flowjoin._kernel.python_kernel import PythonKernel
from flowjoin._model.errors import ConfigError
from flowjoin._model.schemas import FlowSchemas
from flowjoin.wire.decoder import Decoder

__all__ = ["KernelForm", "create_kernel", "kernel_form"]

KernelForm: TypeAlias = Literal["python", "compiled"]

_NOT_BUILT: Final = "this installation has no compiled kernel, as there was no C compiler; use auto or python"


def kernel_form(wanted: str) -> KernelForm:
    """The form that ``create_kernel`` takes for ``auto``, ``compiled`` or ``python``.

    Raises:
        ConfigError: the form is unknown or not at hand.
    """
    match wanted:
        case "python":
            return "python"
        case "auto":
            return "python" if _compiled_kernels() is None else "compiled"
        case "compiled":
            if _compiled_kernels() is None:
                raise ConfigError(f"FLOWJOIN_KERNEL=compiled: {_NOT_BUILT}")
            return "compiled"
    raise ConfigError(f"FLOWJOIN_KERNEL={wanted}: no such form; use auto, compiled or python")


class _MakeKernel(Protocol):
    def __call__(
        self,
        *,
        decoder: Decoder,
        compile_plan: CompilePlan,
        schemas: FlowSchemas,
        limits: KernelLimits,
        cluster_id: str = "",
        is_enriched: bool = False,
    ) -> Kernel: ...


def _compiled_kernels() -> tuple[_MakeKernel, _MakeKernel] | None:
    """That of flows, and Proxy mode's."""
    try:
        from flowjoin._kernel._compiled import CompiledKernel, CompiledProxyKernel
    except ImportError:  # it was not built
        return None
    return CompiledKernel, CompiledProxyKernel


def create_kernel(
    *,
    decoder: Decoder,
    compile_plan: CompilePlan,
    schemas: FlowSchemas,
    limits: KernelLimits | None = None,
    cluster_id: str = "",
    is_enriched: bool = False,
    is_proxy: bool = False,
    form: str = "auto",
) -> Kernel:
    """A kernel, empty.

    Args:
        decoder: of Messages; it becomes the kernel's own.
        compile_plan: makes the plans of Templates, for the same schemas and mode.
        schemas: of the batches.
        limits: on what is stored.
        cluster_id: of flows whose records bring none.
        is_enriched: whether enrichers are configured: rows are offered apart until ``store_enriched``.
        is_proxy: Proxy mode: records pass, none is joined.
        form: ``auto`` takes the fastest at hand; what ``FLOWJOIN_KERNEL`` says.

    Raises:
        ConfigError: the form is unknown or not at hand, or a limit leaves no room at all.
    """
    limits = limits or KernelLimits()
    taken = kernel_form(form)
    if limits.flows < 1:
        raise ConfigError("one flow at least must find room", path="limits.flows")
    if limits.active_timeout <= 0 or limits.idle_timeout <= 0:
        raise ConfigError("the timeouts of flows must be longer than nothing")
    compiled = _compiled_kernels() if taken == "compiled" else None
    for_flows, for_proxy = (PythonKernel, ProxyKernel) if compiled is None else compiled
    make: _MakeKernel = for_proxy if is_proxy else for_flows
    return make(
        decoder=decoder,
        compile_plan=compile_plan,
        schemas=schemas,
        limits=limits,
        cluster_id=cluster_id,
        is_enriched=is_enriched,
    )
