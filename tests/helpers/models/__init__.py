"""Small models like those of others."""
