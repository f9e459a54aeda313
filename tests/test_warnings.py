"""Deprecations of transformers and torch fail tests, whether they come as warnings or as log lines."""

import subprocess
import sys
from pathlib import Path

from transformers.utils import logging

ROOT = Path(__file__).parents[1]
CASES = """
import warnings
from transformers.utils import logging

def test_logged():
    logging.get_logger("transformers.models.any").warning("`old` is Deprecated, use `new`")

def test_warned_by_transformers():
    warnings.warn_explicit("old", FutureWarning, "file.py", 1, module="transformers.models.any")

def test_warned_by_torch():
    warnings.warn_explicit("old", FutureWarning, "file.py", 1, module="torch.nn.any")

def test_clean():
    logging.get_logger("transformers.models.any").warning("nothing of the kind")
"""


def test_the_handler_sees_what_transformers_logs(no_logged_deprecations):
    logger = logging.get_logger("transformers.models.qwen3_vl")
    logger.warning("a word on something else")
    assert no_logged_deprecations == []
    logger.warning("this argument is DEPRECATED")
    assert no_logged_deprecations == ["this argument is DEPRECATED"]
    no_logged_deprecations.clear()


def test_a_deprecation_fails_the_test_it_happens_in(tmp_path):
    (tmp_path / "test_cases.py").write_text(CASES)
    words = ["-q", "-c", ROOT / "pyproject.toml", "-p", "tests.conftest", "-p", "no:cacheprovider", tmp_path]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "2 failed, 2 passed, 1 error" in result.stdout, result.stdout
    summary = result.stdout.rpartition("short test summary")[2]
    for outcome in ("FAILED", "::test_warned_by_transformers", "::test_warned_by_torch", "ERROR", "::test_logged"):
        assert outcome in summary
