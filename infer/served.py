"""A model on a server as a system that answers: its recipe and encoder, nothing loaded here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chat import Chat, Endpoint, Wording, cost
from benchmarks.predictions import Prediction
from collators.encoder import Encoder, build_chat_encoder
from collators.sources import ImageSource
from infer.engines.openai import OpenAiEngine
from recipes.errors import RecipeError
from recipes.load import load_recipe
from recipes.schema import Recipe

WORDING = Wording(
    "the server",
    "the model's name and --server",
    "finished rows are kept, the same command continues (--retry-errors asks failed ones again)",
)


@dataclass(frozen=True, slots=True)
class Served:
    """A model on a server.

    Attributes:
        endpoint: Whom to ask.
        recipe: Recipe in force, overrides applied, with the model's name on the server.
        encoder: Encoder in force.
    """

    endpoint: Endpoint
    recipe: Recipe
    encoder: Encoder

    def engine(self, images: ImageSource) -> OpenAiEngine:
        """The engine over an image source.

        Raises:
            UserError: The `openai` package is not installed, or a key is missing.
        """
        return OpenAiEngine(
            Chat(self.endpoint, WORDING),
            self.encoder,
            images,
            max_pixels=self.recipe.images.max_pixels,
            max_new_tokens=self.recipe.decoding.max_new_tokens,
        )


def describe_served(endpoint: Endpoint, *, recipe_path: str | None, overrides: Sequence[str]) -> Served:
    """Reads the recipe for a model on a server.

    Raises:
        RecipeError: There is none, or it is for a model that is loaded here.
    """
    if recipe_path is None:
        raise RecipeError(
            f"{endpoint.model} on a server has no recipe beside it: prompt and answer form are unknown",
            fix="give one with --recipe, such as sgmri/chat_zero_shot",
        )
    recipe = load_recipe(recipe_path, overrides)
    encoder = build_chat_encoder(recipe)
    model = recipe.model.model_copy(update={"checkpoint": endpoint.model})
    return Served(endpoint, recipe.model_copy(update={"model": model}), encoder)


def costs(rows: Sequence[Prediction], price: tuple[float, float] | None) -> dict[str, float]:
    """What the rows of a folder cost, for its manifest; failed calls are not counted.

    Args:
        rows: All rows of the folder.
        price: Dollars per million tokens of prompt and of reply; `None` tells nothing.

    Returns:
        `dollars` and both prices; without `dollars` where the server did not count the tokens of some reply.
    """
    if price is None:
        return {}
    known = {"dollars_per_million_prompt_tokens": price[0], "dollars_per_million_new_tokens": price[1]}
    counts = [row.tokens for row in rows if row.error is None]
    told = [tokens for tokens in counts if tokens is not None]
    if len(told) < len(counts):
        return known
    total = cost(sum(tokens.prompt for tokens in told), sum(tokens.new for tokens in told), price)
    return known | {"dollars": round(total, 6)}
