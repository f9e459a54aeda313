"""The corrected SGMRI-VQA scorer: each known fault of the published one mended, or stated."""
