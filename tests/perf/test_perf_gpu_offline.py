"""The dry run with the packages of `make gpu-wheels` alone, as on a machine that has torch and nothing else."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perf.__main__ import main
from perf.gpu_cases import all_cases
from perf.rounds import MeasurementError
from perf.wheels import LIMIT, WHEELS, check_wheels

ROOT = Path(__file__).parents[2]
DRY_RUN = """
import json, sys
from perf.__main__ import main
assert main(["gpu", "--dry", "--out", sys.argv[1]]) == 0
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def needed(*names):
    """Distributions and all that they require."""
    found, waiting = set(), [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        requirements = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
        for each in requirements:
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *each.extras)):
                waiting.append(canonicalize_name(each.name))
                waiting += _extras(each)
    return found


def _extras(requirement):
    """What a distribution requires for the extras that are asked of it."""
    return [
        canonicalize_name(each.name)
        for extra in requirement.extras
        for each in map(Requirement, importlib.metadata.requires(requirement.name) or ())
        if each.marker is not None and each.marker.evaluate({"extra": extra})
    ]


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """Output folder and imported packages of a dry run that sees torch and the wheels."""
    site, out = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("out")
    for name in needed("torch") | set(WHEELS):
        distribution = importlib.metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(distribution.locate_file(top)))
    result = subprocess.run(
        [sys.executable, "-S", "-c", DRY_RUN, str(out)],
        env={"PYTHONPATH": f"{site}:{ROOT}", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PATH": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return out, set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_the_dry_run_measures_every_case(offline):
    out, _ = offline
    title, *results = map(json.loads, (out / "gpu.jsonl").read_text().splitlines())
    assert "a dry run" in title["title"]
    assert [each["case"] for each in results] == [case.name for case in all_cases()]
    for each in results:
        if "qlora" in each["case"]:
            assert "bitsandbytes is not there" in each["skipped"]
        elif "equal" in each["case"]:
            assert each["loss_difference"] < (1e-6 if "float32" in each["case"] else 1e-3)
        else:
            assert each["seconds"] > 0
        if "answer" in each["case"]:
            assert each["texts"] == 15
            assert each["seconds"] == pytest.approx(sum(each["phases"].values()))


@pytest.mark.slow
def test_the_wheels_are_what_is_imported(offline):
    _, imported = offline
    by_module = importlib.metadata.packages_distributions()
    found = {canonicalize_name(name) for module in imported for name in by_module.get(module, ())}
    assert found - needed("torch") - {"medvlm-baselines"} == set(WHEELS) - needed("torch")


def test_the_command_prints_the_list(capsys):
    assert main(["wheels"]) == 0
    assert capsys.readouterr().out.split() == list(WHEELS)


def test_a_folder_of_wheels_is_checked(tmp_path, capsys):
    for name in WHEELS:
        (tmp_path / f"{name.replace('-', '_')}-1.0-py3-none-any.whl").write_bytes(b"12")
    assert check_wheels(tmp_path) == 2 * len(WHEELS)
    assert main(["wheels", "--check", str(tmp_path)]) == 0
    extra = tmp_path / "torch-2.11-py3-none-any.whl"
    extra.touch()
    with pytest.raises(MeasurementError, match="not those that are needed: torch"):
        check_wheels(tmp_path)
    extra.unlink()
    with (tmp_path / "numpy-1.0-py3-none-any.whl").open("wb") as stream:
        stream.truncate(LIMIT)
    with pytest.raises(MeasurementError, match="the limit is 50,000,000"):
        check_wheels(tmp_path)
    (tmp_path / "numpy-1.0-py3-none-any.whl").unlink()
    with pytest.raises(MeasurementError, match="needed: numpy"):
        check_wheels(tmp_path)


def test_the_script_says_that_it_has_not_run_on_a_gpu():
    head = (ROOT / "perf" / "gpu.sh").read_text().partition("set -euo")[0]
    assert "NOT YET RUN ON A GPU" in head
