"""Compare two models: settings, bits per byte, and every suite and fine-tuning task that both have scores of.

    babelmill compare eng eng_big
    babelmill compare eng scores/openai-community--gpt2 --suite blimp
    babelmill compare eng tuned/openai-community--gpt2 --task rte_sound

A model is a name of this workflow, a converted folder, or a folder of scores (what `babelmill score` or `babelmill
tune` wrote). The settings that differ come first: those that corpora, tokenizer and weights were made with. A value
that is `unset` cannot matter there, or is the usual one.

Every difference has a 95 % interval: of bits per byte, over the documents that both models were measured on; of a
suite, over its items. The test over items is the exact test of McNemar, and the tests of single phenomena have Holm's
correction. Suites of two different commits are refused.

Of tasks, predictions for the same test rows are compared, and only if both models were tuned by the same protocol. The
test is McNemar's if each has one seed and rows are texts, else a bootstrap over rows or sentences, and over seeds.
Holm's correction is for all tasks together.

This compares the weights of two models. To compare how they are made, use an experiment: several seeds of each.
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("first", metavar="A", help="a model: eng, converted/eng, scores/gpt2")
    add("second", metavar="B", help="the model to compare with")
    add("--suite", help="compare only on this suite (default: all suites that both were scored on)")
    add("--task", help="compare only on this fine-tuning task (default: all tasks that both were tuned for)")
    methods = ["causal", "masked", "fused", "bound"]
    add("--method", choices=methods, help="use the scores of this method (default: each model's headline)")


def run(args: argparse.Namespace) -> None:
    """Print the comparison."""
    from babelmill.commands.terminal.comparison import comparison  # imports pandas, scipy and pyarrow

    print(comparison([args.first, args.second], args.suite, args.task, args.method))
