"""Babelmill: raw text to published language models, one per language. See README.md.

`snakemake converted/eng` builds one model, `snakemake tier1` a batch, a bare `snakemake` the configuration's `targets:`.
"""


include: "workflow/rules/common.smk"


configfile: "config/config.yaml"


include: "workflow/rules/download.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/tokenizer.smk"
include: "workflow/rules/shards.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/export.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/convert.smk"
include: "workflow/rules/publish.smk"
include: "workflow/rules/no_such_target.smk"
include: "workflow/rules/ending.smk"


rule all:
    """Every model of the configuration's `targets:`."""
    default_target: True
    input:
        converted(CONFIG.targets()),
    localrule: True


for batch, models in CONFIG.batches.items():

    rule:
        """The converted models of a batch: tier1, tier2, tier3, or a list under `batches:`."""
        name:
            batch
        input:
            converted(models),
        localrule: True
