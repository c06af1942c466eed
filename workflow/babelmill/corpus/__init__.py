"""The stage `corpus`: text files in any of the usual formats become one clean Parquet file a split.

`readers` yields record batches of one schema, `cleaning` decides on each document, `digests` remembers what was seen,
`builtin` is the corpus that needs no files. `__main__` is the stage.
"""
