"""The physics: accelerators, models, deployments, the roofline. Pure; no I/O but the packaged catalogues."""
