"""What a user typed and no rule makes."""


rule no_such_target:
    """An error that names what was meant, in place of Snakemake's own MissingRuleException."""
    input:
        meant,
    output:
        "{word}",
    wildcard_constraints:
        word=r"(published/)?\w+",
    localrule: True
