import pytest

from recipes.compare import changes


@pytest.mark.parametrize(
    ("key", "values", "named"),
    [
        ("vision_cache_gib", (16.0, 32.0), False),
        ("vision_cache_dir", (None, "elsewhere"), False),
        ("vision_cache", ("off", "disk"), True),
    ],
)
def test_a_run_may_keep_its_features_elsewhere_or_more_of_them(key, values, named):
    old, new = ({"recipe": {key: value}} for value in values)
    assert changes(old, new) == [f"recipe.{key}: {values[0]!r} -> {values[1]!r}"] * named
    assert changes(old, old) == []
