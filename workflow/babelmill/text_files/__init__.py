"""Open the files that users bring: tell what a file is by its content, unpack it within bounds, notice encodings.

Corpora, suites, tables to predict, lists of codes and the text of `score --words` are all opened here. So a PDF named
`a.txt`, UTF-16 without a mark, or a compressed file that ends early means the same everywhere.
"""
