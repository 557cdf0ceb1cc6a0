"""Codes of embeddings: what a vector is stored as, in fewer bytes than float32.

Every vector is scaled to norm 1 before it is calibrated on or encoded: similarity is the cosine, and otherwise long
vectors would be clipped and a bit would depend on the length.

Axes in names: N vectors or documents, d dimensions, B bytes of a code, Q queries, C candidates, R ranks.
"""
