"""Nodes, what a trial takes of them, and copies between machines without a shared disk."""
