"""Labelled data as tensors: the papers' data sets in their publishers' formats, from a folder that the user names."""
