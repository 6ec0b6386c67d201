"""Compiled CPU code: one pass, valid elements only, parallel over tiles."""
