"""Rewrites of a whole graph."""
