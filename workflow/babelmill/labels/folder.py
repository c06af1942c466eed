"""Write the Hugging Face folder of a label model. Name the cases that prove it equal to the trained model.

`model.safetensors` holds the encoder with its classifier, under the names of their transformers class. This class
needs no code of ours, except for a GPT-BERT. `decoder.safetensors` holds the decoder that spells the codes; it needs
`modeling_codes.py`.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from babelmill.config.schema import Export
from babelmill.core.files import read_json
from babelmill.labels.codes import BEGIN, END, FIRST
from babelmill.labels.network import Labeller, encoder_from, make_encoder, names_in_source
from babelmill.model import __file__ as model_package
from babelmill.model.transformers import __file__ as transformers_package
from babelmill.release.folder.hub_folder import CODE as CODE_OF_GPT_BERT
from babelmill.release.folder.hub_folder import Architecture, Case, ExportInputs, write_part
from babelmill.training.networks.transformers_models import CLASSIFIER

ENCODER, DECODER = "encoder.", "decoder."
SYMBOLS = [FIRST, END, FIRST]  # the symbols that the proof gives to the decoder
CODE = [Path(model_package).parent / "code_decoder.py", Path(transformers_package).parent / "modeling_codes.py"]
OURS = "babelmill_gpt_bert"  # the model type of our own encoders
OF_GPT_BERT = Path(transformers_package).parent / "modeling_gpt_bert_codes.py"


class LabelsFolder(Architecture):
    """Writes the folder of a label model."""

    def write(self, folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
        ours = read_json(inputs.model / "config.json")["config"]["model_type"] == OURS
        self.code = [*CODE, *([*CODE_OF_GPT_BERT, OF_GPT_BERT] if ours else [])]
        return super().write(folder, inputs, export)

    def write_weights(self, inputs: ExportInputs, variant: str, path: Path) -> list[str]:
        trained = read_json(inputs.model / "config.json")
        weights = whole_weights(inputs.weights(variant), trained, inputs.frozen)
        files = write_part(path, weights, ENCODER)
        if trained["labels"]["decoder_layers"]:
            files += write_part(path.with_name(path.name.replace("model.", "decoder.", 1)), weights, DECODER)
        return files

    def config(self, trained: dict[str, Any], export: Export) -> dict[str, Any]:
        labels = trained["labels"]
        codes = labels["codes"]
        auto = {"AutoModel": "modeling_codes.CodesModel"}
        if trained["config"]["model_type"] == OURS:
            auto = {"AutoModel": "modeling_gpt_bert_codes.GPTBertCodesModel"}
            auto |= {"AutoConfig": "configuration_gpt_bert.GPTBertConfig"}
            auto |= {CLASSIFIER: "modeling_gpt_bert.GPTBertForSequenceClassification"}
        return trained["config"] | {
            "architectures": [trained["class"]],
            "id2label": dict(enumerate(codes)),
            "label2id": {code: i for i, code in enumerate(codes)},
            "problem_type": "single_label_classification" if labels["exclusive"] else "multi_label_classification",
            "labels": labels,
            "torch_dtype": "float32",
            "auto_map": auto,
        }

    def trained(self, inputs: ExportInputs, variant: str) -> nn.Module:
        values = read_json(inputs.model / "config.json")
        encoder = make_encoder(encoder_from(values["config"], len(values["labels"]["codes"])))
        trained = Labeller(encoder, values["labels"]).eval()
        trained.load_state_dict(whole_weights(inputs.weights(variant), values, inputs.frozen))
        return trained

    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the scores of the classes, [1, 1, K], or those for each of SYMBOLS, [1, 3, V]."""
        scores, symbols = trained(row, torch.ones_like(row, dtype=torch.bool), torch.tensor([SYMBOLS])[:, None])
        return scores[:, None] if mode == "classes" else symbols

    def exported_logits(self, exported: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        if mode == "classes":
            more = -row.size(1) % getattr(exported.config, "downsampling_rate", 1)  # the card explains this
            row = F.pad(row, (0, more), value=getattr(exported.config, "pad_token_id", None) or 0)
            seen = torch.arange(row.size(1))[None] < row.size(1) - more
            return exported(input_ids=row, attention_mask=seen.long()).logits[:, None]
        return exported(row, torch.ones_like(row), torch.tensor([[BEGIN, *SYMBOLS[:-1]]])).logits

    def cases(self, model: Path) -> list[Case]:
        """Return a case for the classes, scored by the encoder's own class, and one for the decoder's symbols."""
        spelt = read_json(model / "config.json")["labels"]["decoder_layers"]
        return [Case(CLASSIFIER, "classes"), *([Case("AutoModel", "blocks")] if spelt else [])]


def whole_weights(path: Path, trained: dict[str, Any], frozen: Path | None) -> dict[str, torch.Tensor]:
    """Return all weights of a model, including those that were not trained.

    `trained`: config.json beside the trained weights. `frozen`: those that the encoder took from its source, if any.
    """
    weights = load_file(path)
    if frozen is None:
        return weights
    with torch.device("meta"):
        encoder = make_encoder(encoder_from(trained["config"], len(trained["labels"]["codes"])))
    theirs = load_file(frozen)
    missing = [name for name, _ in encoder.named_parameters() if ENCODER + name not in weights]
    names = names_in_source(encoder, missing, theirs.keys(), str(frozen))
    return weights | {ENCODER + name: theirs[source] for name, source in names.items()}
