"""Errors about data: releases, records, images and prediction files."""

from __future__ import annotations

from recipes.errors import UserError


class DataError(UserError):
    """Data that is not what the schema or the benchmark promises."""
