"""Run the stage `corpus`, which turns text files in any of the usual formats into one clean Parquet file per split.

`readers` yields record batches of one schema (`record_batches`), `cleaning` cleans and filters documents, `digests`
names them, `duplicates` drops repeated ones, `sampling` draws a sample of the budget's size, `writer` writes the
documents, and `tally` counts them. `pieces` cuts the files, and `workers` reads the pieces in parallel. `builtin` is
the corpus that needs no files. `__main__` is the stage.
"""
