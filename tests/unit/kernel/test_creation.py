from __future__ import annotations

import pytest

from flowjoin._kernel import Kernel, KernelLimits, create_kernel
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


@pytest.mark.parametrize("form", ["auto", "python"])
def test_the_form_at_hand_is_the_plain_one(form: str) -> None:
    assert isinstance(create(form=form), PythonKernel)
    assert isinstance(create(form=form, is_proxy=True), ProxyKernel)


@pytest.mark.parametrize("form", ["compiled", "rust"])
def test_a_form_that_is_not_there_is_refused(form: str) -> None:
    with pytest.raises(ConfigError, match=form):
        create(form=form)


@pytest.mark.parametrize(
    "limits", [KernelLimits(flows=0), KernelLimits(active_timeout=0), KernelLimits(idle_timeout=-1)]
)
def test_limits_that_leave_no_room_are_refused(limits: KernelLimits) -> None:
    with pytest.raises(ConfigError):
        create(limits=limits)
