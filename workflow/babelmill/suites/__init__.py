"""Run evaluation suites: read pairs of sentences, score them with a model, and summarise and compare the scores."""
