"""BERTScore of answer texts, by the package `bert-score` (Zhang et al., 2020), rescaled with its English baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval.sgmri.mark_cache import Mark, MarkCache, mark_key
from recipes.errors import UserError

# The package's model for English.
MODEL = "roberta-large"
# Pairs between two writes to the cache.
BLOCK = 256
# Candidate and reference.
Pair = tuple[str, str]


class BertScore:
    """Computes F1 of pairs of texts, each pair once."""

    def __init__(self, model: str = MODEL) -> None:
        self.model = model

    @property
    def name(self) -> str:
        """The model, and what is done to its values."""
        return f"BERTScore {self.model}, rescaled"

    def f1(self, pairs: Sequence[Pair], cache: MarkCache) -> dict[Pair, float]:
        """F1 of each pair of candidate and reference; may be negative.

        Args:
            pairs: Texts.
            cache: Where values are looked up and kept.

        Raises:
            UserError: `bert-score` is not installed, or it cannot use the model.
        """
        from tqdm import tqdm

        found, missing = {}, []
        for pair in dict.fromkeys(pairs):
            mark = cache.get(self._key(pair))
            if mark is None or mark.value is None:
                missing.append(pair)
            else:
                found[pair] = mark.value
        if missing:
            scorer = self._scorer()
            for start in tqdm(range(0, len(missing), BLOCK), desc="BERTScore", unit="block", disable=None):
                block = missing[start : start + BLOCK]
                for pair, value in zip(block, self._score(scorer, block), strict=True):
                    cache.add(Mark(key=self._key(pair), by=self.name, value=value))
                    found[pair] = value
        return found

    def _scorer(self) -> Any:  # noqa: ANN401 - the package ships no types
        try:
            from bert_score import BERTScorer
        except ImportError as error:
            raise UserError(
                "BERTScore needs the package bert-score", fix="pip install 'medvlm-baselines[bertscore]'"
            ) from error
        try:
            return BERTScorer(model_type=self.model, lang="en", rescale_with_baseline=True)
        except (KeyError, OSError) as error:
            raise self._unusable(error) from error

    def _score(self, scorer: Any, pairs: Sequence[Pair]) -> list[float]:  # noqa: ANN401 - as above
        try:
            _, _, values = scorer.score([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        except ValueError as error:
            # It looks for the baseline only now.
            raise self._unusable(error) from error
        return [float(value) for value in values]

    def _unusable(self, error: Exception) -> UserError:
        return UserError(
            f"bert-score cannot use the model {self.model!r}: {error}",
            fix=f"name a model that it knows and has a baseline for, such as {MODEL}, and let it be downloaded once",
        )

    def _key(self, pair: Pair) -> str:
        return mark_key([self.name, *pair])
