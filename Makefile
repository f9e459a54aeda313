# The two commands are `make demo` and `make test`; both set up everything they need.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

export OMP_NUM_THREADS ?= 2

.PHONY: demo demo-paligemma demo-mri demo-base demo-base-paligemma demo-base-mri demo-scan minority gpu-wheels test test-slow check install clean help

help:
	@echo "make demo       synthetic bone scans: release -> training -> predictions -> report (about 5 minutes)"
	@echo "make demo-paligemma  the same with PaliGemma: one canvas, location tokens (about 5 minutes)"
	@echo "make demo-mri   synthetic MRI volumes: HDF5 -> slices -> training -> predictions -> report (about 5 minutes)"
	@echo "make demo-scan  the demo's model on a real bone scan (after make demo)"
	@echo "make test       the tests that every change must pass (under 10 minutes)"
	@echo "make test-slow  long tests: kill -9, three demo seeds, Chromium, the wheel"
	@echo "make install    the virtual environment alone (the others call it)"
	@echo "make check      ruff, ruff format, mypy"
	@echo "make minority   one abnormal answer in ten: the papers' training and ours, three seeds (about 45 minutes)"
	@echo "make gpu-wheels  packages for perf/gpu.sh on a machine without a network (perf/wheels, at most 50 MB)"
	@echo "make demo-base  trains the demo's base weights again (about 15 minutes); so do demo-base-paligemma, demo-base-mri"

# torch first and with pip: other resolvers fetch gigabytes (README, Install).
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt torch torchvision
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

install: $(STAMP)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile tests

# The demo: two CPU cores, no network. Six prediction folders an arm: the tuned model first, then what it must beat.
DEMO := runs/demo
ARM  := runs/demo-paligemma
SEED := 0
OPPONENTS := base majority prompt_only blank_image shuffled_image
# Two processes of one thread each: two threads of one process wait for each other as soon as anything else runs.
TWO  := OMP_NUM_THREADS=1 $(BIN)/accelerate launch --multi_gpu --num_processes 2 --num_machines 1 \
  --mixed_precision no --dynamo_backend no -m
# In the folder $(1). Two predictions run at a time, one thread each.
ask   = OMP_NUM_THREADS=1 $(BIN)/python -m infer --data $(1)/data --split test

# One arm from release to predictions: $(1) folder, $(2) recipe, $(3) base, $(4) name in tables.
define run_arm
	rm -rf $(1)
	$(BIN)/python -m benchmarks phantom $(1)/release --preset demo seed=$$((2 + $(SEED)))
	$(BIN)/python -m benchmarks prepare scintiground $(1)/release --out $(1)/data
	$(TWO) train $(2) data.dataset=$(1)/data train.seed=$(SEED) --out $(1)/lora
	$(call six,$(1),$(2),$(3),$(4),lora,_corrected)
endef

# The six prediction folders: $(1) to $(4) as above, $(5) run in the folder, $(6) which of the controls without a model.
define six
	$(ask) $(1)/$(5) --name "$(4) tuned" --out $(1)/predictions/tuned & first=$$!; \
	$(ask) $(3) --recipe $(2) --name "$(4) base" --out $(1)/predictions/base && wait $$first
	$(ask) $(1)/$(5) --control blank_image --out $(1)/predictions/blank_image & first=$$!; \
	$(ask) $(1)/$(5) --control shuffled_image --out $(1)/predictions/shuffled_image && wait $$first
	$(ask) --control majority$(6) --out $(1)/predictions/majority & first=$$!; \
	$(ask) --control prompt_only$(6) --out $(1)/predictions/prompt_only && wait $$first
endef

demo: $(STAMP)
	$(call run_arm,$(DEMO),demo/lora,models/demo_base,Qwen3-VL)
	$(BIN)/python -m eval $(addprefix $(DEMO)/predictions/,tuned $(OPPONENTS)) \
	  --json $(DEMO)/result.json --html $(DEMO)/report.html > $(DEMO)/scores.txt
	$(BIN)/python -m recipes.demo $(DEMO)/result.json
	@echo "all scores: $(DEMO)/scores.txt"
	@echo "report:     $(DEMO)/report.html  (open it in a browser)"
	@echo "next:       README.md, \"Your own data in five steps\""

# The demo's second arm on the same phantoms: one canvas, location tokens. After `make demo` the report has both arms.
demo-paligemma: $(STAMP)
	$(call run_arm,$(ARM),demo/paligemma_lora,models/demo_base_paligemma,PaliGemma)
	$(BIN)/python -m eval $(addprefix $(ARM)/predictions/,tuned $(OPPONENTS)) \
	  --json $(ARM)/result.json > $(ARM)/scores.txt
	$(BIN)/python -m eval $(ARM)/predictions/tuned $(wildcard $(DEMO)/predictions/tuned) $(addprefix $(ARM)/predictions/,$(OPPONENTS)) \
	  --data $(ARM)/data --html $(ARM)/report.html > $(ARM)/both.txt
	$(BIN)/python -m recipes.demo $(ARM)/result.json
	@echo "all scores: $(ARM)/scores.txt"
	@echo "report:     $(ARM)/report.html  (with the first arm beside it if \`make demo\` ran before)"
	@echo "next:       $(BIN)/python -m benchmarks show $(ARM)/data ID --canvas demo/paligemma_lora --predictions $(ARM)/predictions/tuned"

# MRI volumes, full fine-tuning: HDF5, annotation tables and official questions as the real sources have them.
MRI := runs/demo-mri

# Slices and records of the sources in $(1).
define prepare_mri
	$(BIN)/python -m benchmarks prepare sgmri $(1)/sources/release --volumes $(1)/sources/hdf5 \
	  --annotations $(1)/sources/annotations --out $(1)/data
endef

demo-mri: $(STAMP)
	rm -rf $(MRI)
	$(BIN)/python -m benchmarks phantom-mri $(MRI)/sources --preset demo_mri seed=$$((2 + $(SEED)))
	$(call prepare_mri,$(MRI))
	$(TWO) train demo/mri data.dataset=$(MRI)/data train.seed=$(SEED) --out $(MRI)/run
	$(call six,$(MRI),demo/mri,models/demo_base_mri,Qwen3-VL,run,)
	$(BIN)/python -m eval $(addprefix $(MRI)/predictions/,tuned $(OPPONENTS)) \
	  --json $(MRI)/result.json --html $(MRI)/report.html > $(MRI)/scores.txt
	$(BIN)/python -m recipes.demo $(MRI)/result.json
	@echo "all scores: $(MRI)/scores.txt"
	@echo "report:     $(MRI)/report.html  (open it in a browser: volumes have a slice slider)"

# Trains the committed bases again: other phantoms than the demo's (recipes/demo/base.yaml, paligemma_base.yaml).
BASE := runs/demo-base

# $(1) name and options of the random twin, $(2) recipe, $(3) folder of the base.
define train_base
	rm -rf $(BASE)
	$(BIN)/python -m benchmarks phantom $(BASE)/release --preset demo_base
	$(BIN)/python -m benchmarks prepare scintiground $(BASE)/release --out $(BASE)/data
	$(BIN)/python -m benchmarks phantom $(BASE)/demo-release --preset demo
	$(BIN)/python -m benchmarks prepare scintiground $(BASE)/demo-release --out $(BASE)/demo-data
	$(BIN)/python -m models tiny $(BASE)/$(1) --texts $(BASE)/data $(BASE)/demo-data --hidden 96 --layers 3
	$(TWO) train $(2) --out $(BASE)/run
	$(BIN)/python -m models export $(BASE)/run/model $(3) --dtype bfloat16
	cp $(BASE)/run/manifest.json $(3)/training.json
	$(BIN)/python -m infer $(3) --data $(BASE)/data --split test --name base --out $(BASE)/predictions
	$(BIN)/python -m eval $(BASE)/predictions
endef

MRI_BASE := runs/demo-base-mri

demo-base-mri: $(STAMP)
	rm -rf $(MRI_BASE)
	$(BIN)/python -m benchmarks phantom-mri $(MRI_BASE)/sources --preset demo_base_mri
	$(call prepare_mri,$(MRI_BASE))
	$(BIN)/python -m benchmarks phantom-mri $(MRI_BASE)/demo/sources --preset demo_mri
	$(call prepare_mri,$(MRI_BASE)/demo)
	$(BIN)/python -m models tiny $(MRI_BASE)/tiny --texts $(MRI_BASE)/data $(MRI_BASE)/demo/data --hidden 96 --layers 3
	$(TWO) train demo/mri_base --out $(MRI_BASE)/run
	$(BIN)/python -m models export $(MRI_BASE)/run/model models/demo_base_mri --dtype bfloat16
	cp $(MRI_BASE)/run/manifest.json models/demo_base_mri/training.json
	$(BIN)/python -m infer models/demo_base_mri --data $(MRI_BASE)/data --split test --name base --out $(MRI_BASE)/predictions
	$(BIN)/python -m eval $(MRI_BASE)/predictions

demo-base: $(STAMP)
	$(call train_base,tiny,demo/base,models/demo_base)

demo-base-paligemma: $(STAMP)
	$(call train_base,tiny_paligemma --family paligemma,demo/paligemma_base,models/demo_base_paligemma)

# One abnormal answer in ten: the papers' way of training and ours side by side, three seeds (about 45 minutes).
MINORITY := runs/minority

minority: $(STAMP)
	rm -rf $(MINORITY)
	for seed in 0 1 2; do \
	  folder=$(MINORITY)/$$seed; \
	  $(BIN)/python -m benchmarks phantom $$folder/release --preset minority seed=$$((10 + seed)) && \
	  $(BIN)/python -m benchmarks prepare scintiground $$folder/release --out $$folder/data && \
	  for recipe in ours paper; do \
	    $(TWO) train minority/$$recipe data.dataset=$$folder/data train.seed=$$seed --out $$folder/$$recipe || exit 1; \
	  done; \
	  $(TWO) infer $$folder/ours $$folder/paper --data $$folder/data --split test --out $$folder/predictions || exit 1; \
	  $(BIN)/python -m eval $$folder/predictions/ours $$folder/predictions/paper \
	    --json $(MINORITY)/result-$$seed.json --html $(MINORITY)/report-$$seed.html > $(MINORITY)/scores-$$seed.txt || exit 1; \
	done
	$(BIN)/python -m recipes.minority $(MINORITY)/result-0.json $(MINORITY)/result-1.json $(MINORITY)/result-2.json

# For Python 3.12 on Linux (x86-64) beside torch 2.11: what `python -m perf gpu` needs on a machine without a network.
GPU_WHEELS := perf/wheels

gpu-wheels: $(STAMP)
	rm -rf $(GPU_WHEELS)
	$(BIN)/pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
	  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
	  -c constraints.txt -d $(GPU_WHEELS) $$($(BIN)/python -m perf wheels)
	$(BIN)/python -m perf wheels --check $(GPU_WHEELS)

# A real scan: the NEMA sample "NM1" that pydicom-data ships; its posterior view is a mirrored stand-in.
SCAN := runs/scan

demo-scan: $(STAMP)
	rm -rf $(SCAN)
	$(BIN)/python -m benchmarks dicom "$$($(BIN)/python -c 'import data_store; print(data_store.__path__[0])')/data/JPEG-LL.dcm" \
	  --id P001 --view ANT --mirror --questions recipes/demo/scan_questions.csv --out $(SCAN)/images
	$(BIN)/python -m benchmarks prepare generic $(SCAN)/images/rows.jsonl --benchmark scintiground --out $(SCAN)/data
	$(BIN)/python -m infer $(DEMO)/lora --data $(SCAN)/data --name tuned --out $(SCAN)/predictions
	$(BIN)/python -m eval $(SCAN)/predictions --html $(SCAN)/report.html

test-slow: $(STAMP)
	command -v chromium >/dev/null || (apt-get update && apt-get install -y chromium) || echo "no Chromium: its tests skip"
	$(BIN)/python -m pytest -m slow tests

clean:
	rm -rf runs data build dist *.egg-info
