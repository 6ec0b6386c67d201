"""Benchmarks: what is measured (``table``), on which tiles, by whom (``providers``), and how it is told."""
