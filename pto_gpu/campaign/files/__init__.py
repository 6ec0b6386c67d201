"""Tiles in files: saved failures, dumps of other programs, dumps for other programs."""
