"""The contexts API: the wire of the public Python client ``taguru`` (http_contract 1), over our services."""
