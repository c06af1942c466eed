"""Provide what all other packages use: files, manifests, code versions, and what all stage entries share."""
