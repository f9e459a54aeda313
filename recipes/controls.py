"""Names of the controls: systems that a model which looks at the image must beat."""

from __future__ import annotations

# Without a model, learnt from the train split. ScintiGround's published priors box both views whatever was asked and
# rarely find the region in the prompt; the corrected ones mend both, which makes them the stronger opponents.
PRIOR_CONTROLS = ("majority", "prompt_only", "majority_corrected", "prompt_only_corrected")
# Benchmark -> those that it has; other data have none.
PRIORS_OF = {"scintiground": PRIOR_CONTROLS, "sgmri": ("majority", "prompt_only")}
# With a model and any dataset: the wrong image in the place of the right one.
IMAGE_CONTROLS = ("blank_image", "shuffled_image")
CONTROLS = (*PRIOR_CONTROLS, *IMAGE_CONTROLS)
