"""The configuration: layers, checked, and the settings files made from them.

Layers, later beats earlier: `config/defaults.yaml` < preset < the user's configuration (`config/config.yaml` merged
with `--configfile` and `--config`) < its `models.<name>` or `languages.<code>`. `schema.py` holds types and bounds.

What a stage is asked to do is a file, `results/settings/{name}/{stage}.json`: the slice of the configuration that this
stage and nothing else reads, plus a digest of the stage's source. It is an input of the stage's rule, so a changed
value invalidates exactly that stage and what follows from it. It is canonical (sorted, typed), so that `1e-3` and
`0.001`, or another order of keys, are the same file.
"""

import dataclasses
import functools
import platform
import re
from pathlib import Path
from typing import Any

import pydantic

from babelmill import digest, revisions
from babelmill.files import UserError, atomic_write, canonical_json, sha256
from babelmill.globs import snapshot
from babelmill.languages import Language, read_table
from babelmill.layers import ABSENT, flatten, flatten_keys, lookup, merge, nearest, read_yaml
from babelmill.schema import SECTIONS, LanguageEntry, ModelEntry, User

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Path("results/settings")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
NAME = re.compile(r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
SECRET = re.compile(r"(^|_)(token|api_key|secret|password)$", re.IGNORECASE)

# Which sections each stage reads. `run` is no stage: it is what the train rule takes as an `ancient` input.
LANGUAGE_STAGES = {"download": (), "corpus": ("corpus",)}
MODEL_STAGES = {
    "tokenizer": ("tokenizer", "mixture"),
    "shards": (),
    "train": ("model", "train", "mixture"),
    "export": ("export",),
    "evaluate": ("evaluation",),
    "convert": ("card",),
    "publish": ("publish",),
}
STAGES = {**LANGUAGE_STAGES, **MODEL_STAGES}
MODEL_SECTIONS = [name for name in SECTIONS if name != "corpus"]


@dataclasses.dataclass(frozen=True)
class Resolved:
    """The configuration of one model, or the corpus of one language.

    `sections` maps section names to pydantic objects, `origins` dotted keys to the layer that each value came from.
    """

    name: str
    languages: tuple[str, ...]
    preset: str | None
    sections: dict[str, Any]
    origins: dict[str, str]


class Configuration:
    """All layers, checked. Resolving a name is cheap and cached, since Snakemake asks once for each job."""

    def __init__(self, sources: list[tuple[str, dict]], root: Path = ROOT):
        """`sources`: the user's files and command line as (label, values), later beats earlier."""
        self.root = root
        self.sources = sources
        defaults = read_yaml(root / "config/defaults.yaml")
        self.user = functools.reduce(merge, (values for _, values in sources), {})
        self._check_keys(self.user)
        top_keys = set(User.model_fields)
        self.defaults = {key: value for key, value in defaults.items() if key not in top_keys}
        top = merge(
            {key: defaults[key] for key in top_keys},
            {key: value for key, value in self.user.items() if key in top_keys},
        )
        self.top: User = self._validate(User, top, "", lambda key: self.origin(key) or "config/defaults.yaml")
        self.table = self._language_table()
        self.batches = {f"tier{tier}": [c for c, row in self.table.items() if row.tier == tier] for tier in (1, 2, 3)}
        self.batches |= self.top.batches
        for name in [*self.top.models, *self.top.languages, *self.top.batches]:
            if not NAME.fullmatch(name):
                raise UserError(
                    f"{self.origin_of_name(name)}: {name!r} is not a name; names are letters and digits in groups"
                    " joined by single underscores, beginning with a small letter, such as eng, srp_Latn, my_mixture"
                )
        for name in self.top.models:
            self.languages_of(name)
        for name, members in [*self.batches.items(), ("targets", self.top.targets)]:
            for member in members:
                if not self.is_model(member) and not (name == "targets" and member in self.batches):
                    raise UserError(
                        f"{self.origin(name) or self.origin('batches.' + name) or 'config/defaults.yaml'}: {name} names"
                        f" {member!r}, which is no model{nearest(member, self.known_models())}"
                    )

    # What exists.

    def known_models(self) -> set[str]:
        """Every language is a model of itself; mixtures are named in `models:`."""
        return set(self.table) | set(self.top.models)

    def is_model(self, name: str) -> bool:
        """Whether `name` can be trained."""
        return name in self.table or name in self.top.models

    def languages_of(self, model: str) -> tuple[str, ...]:
        """The languages of a model; a UserError with the nearest known names if there is no such model."""
        if not self.is_model(model):
            raise UserError(f"there is no model {model!r}{nearest(model, self.known_models() | set(self.batches))}")
        languages = self.top.models[model].languages if model in self.top.models else []
        if not languages and model not in self.table:
            raise UserError(f"{self.origin('models.' + model)}: models.{model} needs `languages:`, a list of codes")
        for code in languages:
            if code not in self.table:
                raise UserError(
                    f"{self.origin('models.' + model)}: models.{model}.languages names {code!r},"
                    f" which is no language{nearest(code, self.table)}"
                )
        return tuple(languages) or (model,)

    def language(self, code: str) -> Language:
        """The table's row of a language; a UserError with the nearest known ones if there is none."""
        if code not in self.table:
            raise UserError(f"there is no language {code!r}{nearest(code, self.table)}")
        return self.table[code]

    def targets(self) -> list[str]:
        """The models of `targets:`, batches expanded, each once."""
        return self.models_of(self.top.targets)

    def models_of(self, names) -> list[str]:
        """The models that models and batches (and `all`, the targets) stand for, each once; a UserError for others."""
        names = [member for name in names for member in (self.top.targets if name == "all" else [name])]
        names = [member for name in names for member in self.batches.get(name, [name])]
        for name in names:
            self.languages_of(name)
        return list(dict.fromkeys(names))

    # What applies.

    @functools.cache  # noqa: B019  one Configuration a process
    def model(self, name: str) -> Resolved:
        """The resolved configuration of a model."""
        languages = self.languages_of(name)
        preset = self._preset(name, languages)
        entry = self.user.get("models", {}).get(name) or {}
        layers = [
            ("config/defaults.yaml", self.defaults),
            (f"config/presets/{preset}.yaml", self._preset_values(preset)),
            (None, {key: value for key, value in self.user.items() if key in MODEL_SECTIONS}),
            (f"models.{name}", {key: value for key, value in entry.items() if key in MODEL_SECTIONS}),
        ]
        sections, origins = self._sections(MODEL_SECTIONS, layers)
        longest, positions = max(sections["train"].sequence_lengths), sections["model"].max_position_embeddings
        if longest > positions:
            raise UserError(
                f"{origins['train.sequence_lengths']}: train.sequence_lengths has {longest}, more than"
                f" model.max_position_embeddings = {positions}; lower the one or raise the other"
            )
        return Resolved(name, languages, preset, sections, origins)

    @functools.cache  # noqa: B019
    def corpus(self, code: str) -> Resolved:
        """The resolved corpus section of a language."""
        self.language(code)
        entry = self.user.get("languages", {}).get(code) or {}
        layers = [
            ("config/defaults.yaml", self.defaults),
            (None, {key: value for key, value in self.user.items() if key == "corpus"}),
            (f"languages.{code}", {key: value for key, value in entry.items() if key == "corpus"}),
        ]
        sections, origins = self._sections(["corpus"], layers)
        return Resolved(code, (code,), None, sections, origins)

    def settings(self, name: str, stage: str) -> dict:
        """The content of `results/settings/{name}/{stage}.json`."""
        if stage == "run":
            return self._slice(self.model(name), "run", ("run",))
        if stage == "download":
            return {"stage": stage, "name": name, "source": self.hub_source(name), "code": digest.of_stage(stage)}
        resolved = self.corpus(name) if stage in LANGUAGE_STAGES else self.model(name)
        values = self._slice(resolved, stage, STAGES[stage]) | {"code": digest.of_stage(stage)}
        if stage == "corpus":
            values["sources"] = self._corpus_sources(resolved)
            if not self.hub_source(name):  # what is not read must not rerun anything
                values["corpus"] |= {"hub": None, "revision": ""}
            if resolved.sections["corpus"].budget:
                values["byte_premium"] = self.table[name].byte_premium
        if stage == "tokenizer":
            values |= self._tokenizer_source(resolved)
        if stage == "convert":
            values["language_table"] = {
                code: {"name": self.table[code].name, "tag": self.table[code].tag, "script": self.table[code].script}
                for code in resolved.languages
            }
        if stage == "publish":
            values["repository"] = self._repository(resolved)
        return values

    def write_settings(self, name: str) -> None:
        """Write all settings files of a name, each only where it differs.

        All at once, since Snakemake takes one inventory of a folder and does not see a file that appears in it later.
        There are thousands for 500 languages: they are not flushed to disk, and one that a crash left empty differs.
        """
        self.languages_of(name)  # refuses a name that is no model, which every language is
        wanted = {stage: self.settings(name, stage) for stage in [*MODEL_STAGES, "run"]}
        if name in self.table:
            wanted["corpus"] = self.settings(name, "corpus")
            if self.hub_source(name):
                wanted["download"] = self.settings(name, "download")
        for stage, values in wanted.items():
            path, text = SETTINGS / name / f"{stage}.json", canonical_json(values)
            if not path.is_file() or path.read_bytes() != text.encode():
                with atomic_write(path, "w", durable=False) as file:  # thousands of them in a large batch
                    file.write(text)

    # Where a value came from.

    def origin(self, dotted: str) -> str | None:
        """The label of the user's last source that says something about a key; None if none does."""
        return self._origin(dotted.split("."))

    def _origin(self, keys) -> str | None:
        return next((label for label, values in reversed(self.sources) if lookup(values, keys) is not ABSENT), None)

    def origin_of_name(self, name: str) -> str:
        """The user's source in which a model, language or batch is named."""
        return next(filter(None, (self._origin((top, name)) for top in ("models", "languages", "batches"))), "?")

    # Details.

    def _preset(self, name: str, languages: tuple[str, ...]) -> str:
        entry = self.top.models.get(name)
        preset = (entry and entry.preset) or self.top.preset
        known = {path.stem for path in (self.root / "config/presets").glob("*.yaml")} | {"auto"}
        if preset not in known:
            where = self.origin(f"models.{name}.preset") or self.origin("preset")
            raise UserError(f"{where}: preset = {preset!r} of model {name} is not allowed{nearest(preset, known)}")
        if preset == "auto":
            if len(languages) > 1:
                return "multilingual"
            return "base" if self.table[languages[0]].tier == 1 else "small"
        return preset

    @functools.cache  # noqa: B019
    def _preset_values(self, preset: str) -> dict:
        return read_yaml(self.root / "config/presets" / f"{preset}.yaml")

    def _sections(self, names, layers) -> tuple[dict, dict]:
        """Merge layers and validate the named sections. A layer labelled None is the user's own."""
        merged: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for label, values in layers:
            merged = merge(merged, values)
            for key in flatten(values):
                source = (
                    self.origin(f"{label}.{key}") if label and label.startswith(("models.", "languages.")) else None
                )
                origins.pop(key, None)  # a later layer's keys stand last: see _section_label
                origins[key] = f"{source}, {label}" if source else label or self.origin(key) or "?"
        sections = {}
        for name in names:
            label = functools.partial(self._section_label, origins, name)
            sections[name] = self._validate(SECTIONS[name], merged.get(name, {}), f"{name}.", label)
        return sections, origins

    @staticmethod
    def _section_label(origins: dict, section: str, key: str) -> str:
        """Where to look: the key's own layer, or the last layer that sets anything in the section."""
        own = [label for dotted, label in origins.items() if dotted.startswith(f"{section}.")]
        return origins.get(key) or (own[-1] if own else "config/defaults.yaml")

    def _validate(self, schema, values, prefix: str, label):
        """Validate, or raise one line: file: key = value: what is allowed."""
        try:
            return schema.model_validate(values)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            message = first["msg"].removeprefix("Value error, ")
            if first["type"] == "list_type":
                message = f"a list is expected, such as [{first['input']}]"
            message = message[:1].lower() + message[1:]
            names = [part for part in first["loc"] if isinstance(part, int) or part in flatten_keys(values)]
            key = prefix + ".".join(str(part) for part in names)
            if not names:
                raise UserError(f"{label(key)}: {message}") from None
            raise UserError(f"{label(key)}: {key} = {first['input']!r}: {message}") from None

    def _check_keys(self, user: dict) -> None:
        """Refuse unknown keys and secrets anywhere in the user's layers, with the nearest known key."""

        def check(values, known, prefix):
            if not isinstance(values, dict):
                raise UserError(
                    f"{self.origin(prefix.rstrip('.'))}: {prefix.rstrip('.')} = {values!r}: keys are expected"
                )
            for key in values:
                if SECRET.search(str(key)):
                    raise UserError(
                        f"{self.origin(prefix + str(key))}: {prefix}{key}: a secret does not belong into a"
                        " configuration file; set it as an environment variable (HF_TOKEN, WANDB_API_KEY)"
                    )
                if key not in known:
                    inner = [f"{name}.{key}" for name, schema in SECTIONS.items() if key in schema.model_fields]
                    hint = f"; did you mean {' or '.join(inner)}?" if inner else nearest(str(key), known)
                    raise UserError(f"{self.origin(prefix + str(key))}: unknown key {prefix}{key}{hint}")

        check(user, {*User.model_fields, *SECTIONS}, "")
        for group in ("models", "languages", "batches"):
            if not isinstance(user.get(group, {}), dict):
                raise UserError(f"{self.origin(group)}: {group} = {user[group]!r}: a mapping of names is expected")
        for group, entry_type in (("models", ModelEntry), ("languages", LanguageEntry)):
            for name, entry in user.get(group, {}).items():
                check(entry, entry_type.model_fields, f"{group}.{name}.")
        for prefix, values in [
            ("", user),
            *((f"models.{name}.", entry) for name, entry in user.get("models", {}).items()),
            *((f"languages.{name}.", entry) for name, entry in user.get("languages", {}).items()),
        ]:
            for section, schema in SECTIONS.items():
                if section in values:
                    check(values[section], schema.model_fields, f"{prefix}{section}.")

    def _language_table(self) -> dict[str, Language]:
        table = read_table(self.root / "config/languages.tsv")
        for code, entry in self.top.languages.items():
            if code not in table and not entry.name:
                raise UserError(
                    f"{self.origin('languages.' + code)}: languages.{code} is not in config/languages.tsv,"
                    f" and a language of your own needs a `name`{nearest(code, table)}"
                )
            base = table.get(code) or Language(code, code, 3, "", 1.0, code)
            given = {k: v for k, v in entry.model_dump(exclude={"corpus"}, exclude_unset=True).items() if v is not None}
            table[code] = dataclasses.replace(base, **given)
        return table

    @staticmethod
    def _slice(resolved: Resolved, stage: str, sections) -> dict:
        values = {"stage": stage, "name": resolved.name, "languages": list(resolved.languages)}
        for name in sections:
            values[name] = resolved.sections[name].model_dump()
        if "mixture" in values and len(resolved.languages) == 1:
            values["mixture"] = {"weights": 1.0}  # nothing to weigh: a change must not rerun anything
        return values

    def hub_source(self, code: str) -> dict | None:
        """The dataset that a language's text comes from, {"repository", "revision", "commit" (None if not locked)}.

        None where the text is local or built in.
        """
        corpus = self.corpus(code).sections["corpus"]
        if corpus.files or corpus.builtin or not corpus.hub:
            return None
        repository = corpus.hub.replace("{language}", code)
        return revisions.source(code, repository, corpus.revision, SETTINGS / code / "download.json")

    def hub_tokenizer(self, model: str) -> dict | None:
        """The repository that a model's tokenizer comes from, as `hub_source` says; None if it comes from none."""
        tokenizer = self.model(model).sections["tokenizer"]
        name = tokenizer.source or ""
        if not HUB_NAME.fullmatch(name) or name.endswith(".json") or Path(name).is_file():
            return None
        key = revisions.tokenizer_key(name, tokenizer.revision)
        return revisions.source(key, name, tokenizer.revision, SETTINGS / model / "tokenizer.json")

    def _tokenizer_source(self, resolved: Resolved) -> dict:
        """The parts of the tokenizer's settings that say where it comes from. What is not read must not rerun anything:
        neither how to train one if there is one, nor the revision of a file."""
        tokenizer = resolved.sections["tokenizer"]
        hub = self.hub_tokenizer(resolved.name)
        unread: dict[str, Any] = {} if hub else {"revision": ""}
        if not tokenizer.source:
            return {"tokenizer": tokenizer.model_dump() | unread, "sources": {}, "source": None}
        unread |= {key: self.defaults["tokenizer"][key] for key in ("vocab_size", "min_frequency")}
        local = Path(tokenizer.source).is_file() and not hub
        return {
            "tokenizer": tokenizer.model_dump() | unread,
            "mixture": {"weights": 1.0},
            "sources": {tokenizer.source: sha256(tokenizer.source)} if local else {},
            "source": hub,
        }

    @staticmethod
    def _repository(resolved: Resolved) -> str:
        """Where a model is published: `owner/name`; `{username}` stays in it if that is the token's own."""
        publish, variants = resolved.sections["publish"], resolved.sections["export"].variants
        return publish.repo_template.format(
            username=publish.username or "{username}",
            model=resolved.name,
            causal_suffix="-causal" if resolved.sections["train"].objective == "causal" else "",
            variant_suffix="-ema" if variants == ["ema"] else "",
        )

    def _corpus_sources(self, resolved: Resolved) -> dict:
        corpus = resolved.sections["corpus"]
        code = resolved.name
        where = resolved.origins["corpus.files"]
        if not corpus.files and not corpus.builtin and not corpus.hub:
            raise UserError(
                f"{where}: language {code} has no text; set languages.{code}.corpus.files to a list of files"
                " (globs such as texts/*.txt)"
            )
        sources = {pattern: snapshot(pattern, where) for pattern in [*corpus.files, *corpus.validation_files]}
        if corpus.builtin:  # its text is the interpreter's
            sources[corpus.builtin] = platform.python_version()
        return sources
