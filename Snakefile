"""Babelmill: the entry point of a clone. The workflow is workflow/Snakefile, where Snakemake's catalogue looks for it."""


include: "workflow/Snakefile"


workflow.default_target = workflow.modifier.modify_rulename("all")  # Snakemake forgets that of an included file
