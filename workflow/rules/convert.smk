"""Stage `convert`. Takes: export, evaluation and the manifests. Gives: converted/{model}/, the deliverable."""


rule convert:
    """Add the model card, written from what was measured, to the exported folder."""
    input:
        settings=settings("convert"),
        made_with=made_with,
        export="results/exports/{model}",
        evaluation=multiext("results/evaluations/{model}/", "manifest.json", "evaluation.json"),
        scores=results_of("score", "manifest.json"),
        score_files=results_of("score", "scores.json"),
        tuned=results_of("tune", "manifest.json"),
        tuned_files=results_of("tune", "scores.json"),
        corpora=results_of("corpus", "manifest.json"),
        tokenizer="results/tokenizers/{model}/manifest.json",
        model=multiext("results/models/{model}/", "manifest.json", "metrics.jsonl"),
    output:
        folder=directory("converted/{model}"),
    log:
        "logs/convert/{model}.log",
    benchmark:
        "results/benchmarks/convert/{model}.tsv"
    wildcard_constraints:
        model=".+",  # converted/eng/config.json then ends with our error (no such model), not a MissingRuleException
    conda:
        "../../envs/babelmill.yaml"
    threads: 1
    resources:
        mem_mb=memory(8, 0),
        runtime=minutes(30, 5),
    shell:
        "python -m babelmill.convert --settings {input.settings:q} --export {input.export:q}"
        " --evaluation {input.evaluation[0]:q} --scores {input.scores:q} --tuned {input.tuned:q} --corpora {input.corpora:q} --tokenizer {input.tokenizer:q}"
        " --model {input.model[0]:q} --out {output.folder:q} --log {log:q}"
