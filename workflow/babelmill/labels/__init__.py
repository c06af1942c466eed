"""All that only labelled tables need: codes, batches, network, loss, evaluation, card, prediction."""
