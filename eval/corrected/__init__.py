"""The corrected ScintiGround profile: the published scorer's known faults mended, each by name."""
