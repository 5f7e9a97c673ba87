"""Anchors: as a release states them, checked without a model, sampled for annotators, and made by a model."""
