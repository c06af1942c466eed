"""Look at a text before a model is trained on it: what it holds, and what looks wrong (`babelmill corpus`).

`characters` counts kinds of characters and words, `findings` holds what was found in some documents and is added up,
`measures` makes the findings of a batch of documents, `walk` reads all files and adds the findings up, and `page`
writes the page.
"""
