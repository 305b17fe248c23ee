"""Measurements that need more than the package itself."""
