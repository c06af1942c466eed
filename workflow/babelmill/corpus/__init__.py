"""The stage `corpus`: text files in any of the usual formats become one clean Parquet file per split.

`readers` yields record batches of one schema (`record_batches`), `cleaning` decides on each document, `digests`
remembers what was seen, `sampling` draws what a budget asks for, `writer` writes, `tally` counts. `builtin` is the
corpus that needs no files. `__main__` is the stage.
"""
