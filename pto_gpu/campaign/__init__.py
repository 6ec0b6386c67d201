"""Bulk validation: generate, execute, compare, report."""
