from __future__ import annotations

import sys

import pytest
from compiled_kernel import require_compiled_kernel

from flowjoin._kernel import Kernel, KernelLimits, create_kernel, kernel_form
from flowjoin._kernel.proxy import ProxyKernel
from flowjoin._kernel.python_kernel import PythonKernel
from flowjoin._model.errors import ConfigError
from flowjoin._model.schemas import build_schemas
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.wire import Decoder, default_registry


def create(*, form: str = "auto", limits: KernelLimits | None = None, is_proxy: bool = False) -> Kernel:
    registry = default_registry()
    schemas = build_schemas(registry)
    compile_plan = PlanCompiler(registry, schemas, is_proxy=is_proxy)
    return create_kernel(
        decoder=Decoder(registry),
        compile_plan=compile_plan,
        schemas=schemas,
        limits=limits,
        form=form,
        is_proxy=is_proxy,
    )


def test_the_plain_form_is_always_there() -> None:
    assert isinstance(create(form="python"), PythonKernel)
    assert kernel_form("python") == "python"


def test_the_compiled_form_is_taken_where_it_is_built() -> None:
    require_compiled_kernel()
    from flowjoin._kernel._compiled import CompiledKernel, CompiledProxyKernel

    for form in ("auto", "compiled"):
        assert isinstance(create(form=form), CompiledKernel)
        assert isinstance(create(form=form, is_proxy=True), CompiledProxyKernel)
        assert kernel_form(form) == "compiled"


def test_without_the_compiled_form_auto_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flowjoin._kernel._compiled", None)
    assert isinstance(create(form="auto"), PythonKernel)
    assert isinstance(create(form="auto", is_proxy=True), ProxyKernel)
    assert kernel_form("auto") == "python"
    with pytest.raises(ConfigError, match="no C compiler"):
        create(form="compiled")


def test_a_form_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="rust"):
        create(form="rust")


@pytest.mark.parametrize(
    "limits", [KernelLimits(flows=0), KernelLimits(active_timeout=0), KernelLimits(idle_timeout=-1)]
)
def test_limits_that_leave_no_room_are_refused(limits: KernelLimits) -> None:
    with pytest.raises(ConfigError):
        create(limits=limits)
