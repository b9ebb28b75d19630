"""The HTTP API: health, metrics, and Antrea's figures and flow records, to be read only."""
