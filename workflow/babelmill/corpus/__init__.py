"""Run the stage `corpus`, which turns text files in any of the usual formats into one clean Parquet file per split.

`readers` yields record batches of one schema (`record_batches`), `cleaning` cleans and filters documents, `digests`
remembers the documents so far, `sampling` draws a sample of the budget's size, `writer` writes the documents, and
`tally` counts them. `builtin` is the corpus that needs no files. `__main__` is the stage.
"""
