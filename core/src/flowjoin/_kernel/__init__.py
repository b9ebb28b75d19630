"""Bytes to flow table to batches: one interface, in more than one form."""

from flowjoin._kernel.creation import KernelForm, create_kernel, kernel_form
from flowjoin._kernel.interface import CompilePlan, IngestResult, Kernel, KernelLimits, KernelStatistics

__all__ = [
    "CompilePlan",
    "IngestResult",
    "Kernel",
    "KernelForm",
    "KernelLimits",
    "KernelStatistics",
    "create_kernel",
    "kernel_form",
]
