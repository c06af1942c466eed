"""Compare two models: settings, bits per byte, and every suite and fine-tuning task that both have scores of.

    babelmill compare eng eng_big
    babelmill compare eng_seed1,eng_seed2,eng_seed3 big_seed1,big_seed2,big_seed3 --suite blimp
    babelmill compare eng tuned/openai-community--gpt2 --task rte_sound

A model is a name of this workflow, a converted folder, or a folder of scores (results/scores/eng, or what `babelmill
score` or `babelmill tune` wrote). Of two models of a workflow, the settings that differ come first: those that corpora,
tokenizer and weights were made with. A value that is `unset` cannot matter there, or is the usual one.

To compare recipes, list models that differ only in their seed on each side: scores are then means over seeds. Every
difference has a 95 % interval: of bits per byte, over the documents that both models were measured on, or over the
seeds of two recipes; of a suite, over its pairs, and for recipes also over seeds. The test over pairs is the exact test
of McNemar, and the tests of single phenomena have Holm's correction.

Of tasks, predictions for the same test rows are compared, and only if both sides were tuned by the same protocol. The
test is McNemar's if there is one seed on each side and rows are texts. For words of sentences, it is a bootstrap over
sentences. With several seeds, it is one over rows or sentences, and over seeds (of one model) or models (of several).
Holm's correction is for all tasks together.
"""

import argparse

from babelmill.core.files import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("first", metavar="A", help="a model, or several with commas: eng, converted/eng, scores/gpt2, a1,a2,a3")
    add("second", metavar="B", help="the model or models to compare with")
    add("--suite", help="compare only on this suite (default: all suites that both were scored on)")
    add("--task", help="compare only on this fine-tuning task (default: all tasks that both were tuned for)")
    methods = ["causal", "masked", "fused", "bound"]
    add("--method", choices=methods, help="use the scores of this method (default: each model's headline)")
    add("--pairs", type=int, default=5, metavar="N", help="show the N pairs on which they differ most (default: 5)")


def run(args: argparse.Namespace) -> None:
    """Print the comparison."""
    from babelmill.commands.terminal.comparison import comparison  # imports numpy, scipy and pyarrow

    if args.pairs < 0:
        raise UserError(f"--pairs {args.pairs}: 0 or more is expected")
    print(comparison([args.first, args.second], args.suite, args.task, args.method, args.pairs))
