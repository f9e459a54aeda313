"""Reading recipes: YAML file plus dotted overrides to a `Recipe`, every mistake in one message."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recipes.errors import RecipeError
from recipes.schema import Recipe

ROOT = Path(__file__).parent
_NO_RECIPES = ("accelerate", "deepspeed", "slurm")


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice (the later one would win unseen) and reads `yes` and `no` as words.

    YAML 1.1 takes these for truth values; here they are the classes of closed questions.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} occurs twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# PyYAML stores the patterns by first letter.
_StrictLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if letter in "tTfF" or tag != "tag:yaml.org,2002:bool"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a recipe file or the name of a shipped one (`demo/lora`), then applies overrides.

    A relative `prompt.file` is looked for beside the recipe first, so that a model folder can be moved.

    Args:
        path: A YAML file, or a path below the `recipes` package with or without `.yaml`.
        overrides: `section.key=value` strings; the value is YAML.

    Raises:
        RecipeError: The file is missing, is not YAML, or holds mistakes; all of them are listed.
    """
    file = find_recipe(path)
    recipe = parse_recipe(file.read_text(encoding="utf-8"), overrides, where=str(path))
    beside = file.parent / (recipe.prompt.file or "")
    if recipe.prompt.file is None or not beside.is_file():
        return recipe
    prompt = recipe.prompt.model_copy(update={"file": str(beside)})
    return recipe.model_copy(update={"prompt": prompt})


def find_recipe(path: Path | str) -> Path:
    """Resolves a recipe argument to a file.

    Raises:
        RecipeError: Nothing there; names the nearest shipped recipe.
    """
    for candidate in (Path(path), ROOT / path, ROOT / f"{path}.yaml"):
        if candidate.is_file():
            return candidate
    names = shipped()
    near = difflib.get_close_matches(str(path).removesuffix(".yaml"), names, n=1, cutoff=0.3)
    hint = f"did you mean {near[0]}? " if near else ""
    raise RecipeError(f"no recipe {str(path)!r}", fix=f"{hint}`python -m recipes ls` lists the shipped ones")


def shipped() -> list[str]:
    """Names of the shipped recipes: every YAML file in a folder of this package but the launch settings."""
    files = sorted(file for file in ROOT.glob("*/*.yaml") if file.parent.name not in _NO_RECIPES)
    return [file.relative_to(ROOT).with_suffix("").as_posix() for file in files]


def parse_recipe(text: str, overrides: Sequence[str] = (), *, where: str = "recipe") -> Recipe:
    """Validates recipe text; see `load_recipe`."""
    try:
        data = _load_yaml(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"not YAML: {error}", where=where, fix="mend the named line") from error
    if not isinstance(data, dict):
        raise RecipeError("a recipe is a mapping of sections", where=where, fix="start from a shipped recipe")
    mistakes = [mistake for override in overrides if (mistake := _apply(data, override))]
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        mistakes += [_describe(item) for item in error.errors()]
    else:
        if not mistakes:
            return recipe
    listed = "\n  - ".join(mistakes)
    raise RecipeError(
        f"{len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''} in the recipe:\n  - {listed}",
        where=where,
        fix="`python -m recipes show RECIPE` prints a recipe with every key and default",
    )


def recipe_hash(recipe: Recipe) -> str:
    """SHA-256 of the recipe's values; key order and comments do not matter."""
    return hashlib.sha256(json.dumps(recipe.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as YAML with every key written out."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False)


def _load_yaml(text: str) -> Any:  # noqa: ANN401 - YAML has no narrower type
    return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a subclass of SafeLoader


def _apply(data: dict[str, Any], override: str) -> str | None:
    """Writes one override into `data`; returns the mistake, if it is one."""
    dotted, separator, value = override.partition("=")
    if not separator or not dotted.strip():
        return f"override {override!r}: expected section.key=value"
    *sections, key = dotted.strip().split(".")
    target = data
    for section in sections:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            return f"override {override!r}: {section} is not a section"
    try:
        target[key] = _load_yaml(value)
    except yaml.YAMLError:
        return f"override {override!r}: the value is not YAML"
    return None


def _describe(error: ErrorDetails) -> str:
    """One line for one pydantic error, naming the nearest valid key where a key is unknown."""
    path = [str(part) for part in error["loc"]]
    dotted = ".".join(path) or "recipe"
    if error["type"] == "extra_forbidden":
        elsewhere = [f"{section}.{path[-1]}" for section in _keys([]) if path[-1] in _keys([section])]
        if elsewhere:
            return f"{dotted}: unknown key; it belongs into a section: {' or '.join(elsewhere)}"
        if len(path) > 1 and path[-1] in _keys([]):
            return f"{dotted}: unknown key; it belongs to the top: {path[-1]}"
        valid = _keys(path[:-1])
        near = difflib.get_close_matches(path[-1], valid, n=1, cutoff=0.4)
        return f"{dotted}: unknown key; " + (
            f"the nearest is {near[0]}" if near else f"valid keys are {', '.join(valid)}"
        )
    if error["type"] == "missing":
        return f"{dotted}: missing"
    message = error["msg"].removeprefix("Value error, ")
    return f"{dotted}: {message}" + ("" if isinstance(error["input"], dict) else f", not {error['input']!r}")


def _keys(path: list[str]) -> list[str]:
    """Valid keys of the section at `path`."""
    section: type[BaseModel] = Recipe
    for part in path:
        annotation = section.model_fields[part].annotation if part in section.model_fields else None
        candidates = [annotation, *get_args(annotation)]
        found = [item for item in candidates if isinstance(item, type) and issubclass(item, BaseModel)]
        if not found:
            return []
        section = found[0]
    return list(section.model_fields)
