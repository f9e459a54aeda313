"""Encoders: prompts, image plans, codecs and one collator per model family."""
