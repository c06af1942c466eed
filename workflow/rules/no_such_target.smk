"""Targets that a user typed and that no rule makes."""

@one_line
def meant(wildcards):
    """End with an error for a word that is not a target, and suggest the target that was meant."""
    word = wildcards.word
    if word.startswith("published/"):
        raise UserError(f"there is no target {word}; did you mean {word}.json?")
    if CONFIG.is_model(word):
        raise UserError(f"there is no target {word}; did you mean converted/{word}?")
    raise UserError(f"there is no target {word}{nearest(word, {'all', *CONFIG.batches, *CONFIG.known_models()})}")


rule no_such_target:
    """End with an error that suggests the target that was meant, instead of Snakemake's MissingRuleException."""
    input:
        meant,
    output:
        "{word}",
    wildcard_constraints:
        word=r"(published/)?\w+",
    localrule: True
