"""The strata command: thin commands over the services."""
