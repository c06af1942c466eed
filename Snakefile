"""Babelmill: raw text to published language models, one per language. See README.md.

`snakemake converted/eng` builds one model, `snakemake tier1` a batch, and `snakemake` alone the `targets:` of the
configuration.
"""


include: "workflow/rules/common.smk"


for stage in STAGES:

    include: f"workflow/rules/{stage}.smk"


include: "workflow/rules/report.smk"
include: "workflow/rules/trial.smk"
include: "workflow/rules/sweep.smk"
include: "workflow/rules/experiment.smk"


if not IS_MODULE:

    include: "workflow/rules/no_such_target.smk"
    include: "workflow/rules/start_and_end.smk"


rule all:
    """Build every model of the configuration's `targets:`."""
    default_target: True
    input:
        targets_of("converted/{model}", CONFIG.top.targets),
    localrule: True


for batch, models in CONFIG.batches.items():

    rule:
        """Build the models of a batch (tier1, tier2, tier3, or a list under `batches:`) or of an experiment."""
        name:
            batch
        input:
            targets_of("converted/{model}", [batch] if batch in CONFIG.sweeps else models),
        localrule: True
