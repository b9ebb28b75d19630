"""flowjoin: an IPFIX Mediator that joins the two halves of each flow."""

__all__ = ["__version__"]

__version__ = "0.1.0"
