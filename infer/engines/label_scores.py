"""Log probabilities of the classes of closed answers, from the prompt's cached keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infer.engines.label_tokens import LabelTokens
from models.registry import family_module

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class _Prompts:
    """The prompts of R rows to score, whose keys and values, but for the last token's, are in `cache`.

    Attributes:
        cache: Keys and values of P - 1 tokens, left padded.
        mask: int64[R, P - 1], 0 at padding.
        last: int64[R, 1], each prompt's last token.
        ends: int64[R, 1], its position; int64[3, R, 1] where the family counts on three axes.
    """

    cache: Cache
    mask: Tensor
    last: Tensor
    ends: Tensor


def label_scores(
    model: PreTrainedModel, inputs: Mapping[str, Tensor], cache: Cache, plans: Sequence[LabelTokens | None]
) -> list[Scores | None]:
    """Scores every class of every planned row, teacher forced, in one pass over the batch for each class.

    The images and the prompt are not computed again. A pass feeds the last token of the prompt and the answer up
    to the class; its keys and values are dropped before the next one.

    Args:
        model: Model in evaluation mode.
        inputs: The batch the cache was made from, left padded, on the model's device.
        cache: Keys and values of the whole batch, prompt and perhaps generated tokens. Used up by this call.
        plans: What to score for each row of the batch; `None` leaves a row out.

    Returns:
        Class -> log probability for each row; NaN where logits were not finite. `None` for rows left out.
    """
    planned = {number: plan for number, plan in enumerate(plans) if plan is not None}
    found: dict[int, Scores] = {number: {} for number in planned}
    if planned:
        prompts = _prompts(model, inputs, cache, list(planned))
        for turn in range(max(len(plan.scored) for plan in planned.values())):
            # A row with fewer classes takes part with one it has already, so that rows stay in place.
            labels = [list(plan.scored)[turn % len(plan.scored)] for plan in planned.values()]
            answers = [(plan.context, plan.scored[label]) for plan, label in zip(planned.values(), labels, strict=True)]
            values = _pass(model, prompts, answers)
            for number, label, value in zip(planned, labels, values, strict=True):
                found[number][label] = value
    return [found.get(number) for number in range(len(plans))]


def _prompts(model: PreTrainedModel, inputs: Mapping[str, Tensor], cache: Cache, rows: list[int]) -> _Prompts:
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    ends = family_module(model.config.model_type).last_positions(model, inputs)
    cache.crop(ids.shape[1] - 1 - cache.get_seq_length())
    chosen = torch.tensor(rows, device=ids.device)
    if len(rows) < len(ids):
        cache.batch_select_indices(chosen)
    return _Prompts(cache, mask[chosen, :-1], ids[chosen, -1:], ends[..., chosen, :])


def _pass(model: PreTrainedModel, prompts: _Prompts, answers: Sequence[tuple[list[int], list[int]]]) -> list[float]:
    """One forward pass; the sum of the log probabilities of each row's scored tokens.

    Logits are made at the scored positions only: float[R, S, V] for at most S scored tokens.
    """
    device = prompts.last.device
    targets = [context + scored for context, scored in answers]
    width, most = max(map(len, targets)), max(len(scored) for _, scored in answers)
    # Token t of an answer is predicted at position t of what is fed: the prompt's last token comes first.
    # Padding is on the right, where no real token sees it.
    fed = torch.zeros(len(answers), width, dtype=torch.long)
    keep, wanted = torch.zeros(len(answers), most, dtype=torch.long), []
    counts = torch.zeros_like(keep, dtype=torch.bool)
    for row, (target, (context, scored)) in enumerate(zip(targets, answers, strict=True)):
        fed[row, 1 : len(target)] = torch.tensor(target[:-1])
        keep[row, : len(scored)] = torch.arange(len(context), len(target))
        counts[row, : len(scored)] = True
        wanted.append(scored + [0] * (most - len(scored)))
    fed = fed.to(device)
    fed[:, :1] = prompts.last
    positions = prompts.ends + torch.arange(width, device=device)
    logits = model(
        input_ids=fed,
        attention_mask=torch.cat([prompts.mask, torch.ones_like(fed)], dim=1),
        position_ids=positions,
        cache=prompts.cache,
        use_cache=True,
        logits_to_keep=keep.to(device),
    ).logits.float()
    prompts.cache.crop(-width)
    chances = logits.log_softmax(dim=-1).gather(2, torch.tensor(wanted, device=device)[..., None])[..., 0]
    chances = chances.masked_fill(~torch.isfinite(logits).all(dim=-1), torch.nan)
    sums: list[float] = chances.masked_fill(~counts.to(device), 0.0).sum(dim=1).tolist()
    return sums
