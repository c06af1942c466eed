"""Targets that a user typed and that no rule makes."""


rule no_such_target:
    """End with an error that suggests the target that was meant, instead of Snakemake's MissingRuleException."""
    input:
        meant,
    output:
        "{word}",
    wildcard_constraints:
        word=r"((published|submissions|baselines)/)?\w+|(?!(converted|published|submissions|baselines|reports|experiments)/)\w+/\w+",
    localrule: True
