# The two commands are `make demo` and `make test`; both set up everything they need.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

export OMP_NUM_THREADS ?= 2

.PHONY: demo demo-paligemma demo-base demo-base-paligemma demo-scan minority test test-slow check install clean help

help:
	@echo "make demo       synthetic bone scans: release -> training -> predictions -> report (about 5 minutes)"
	@echo "make demo-paligemma  the same with PaliGemma: one canvas, location tokens (about 5 minutes)"
	@echo "make demo-scan  the demo's model on a real bone scan (after make demo)"
	@echo "make test       the tests that every change must pass (under 10 minutes)"
	@echo "make test-slow  long tests: kill -9, three demo seeds, Chromium, the wheel"
	@echo "make install    the virtual environment alone (the others call it)"
	@echo "make check      ruff, ruff format, mypy"
	@echo "make minority   one abnormal answer in ten: the papers' training and ours, three seeds (about 45 minutes)"
	@echo "make demo-base  trains the demo's base weights again (about 15 minutes); so does make demo-base-paligemma"

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

# The demo: two CPU cores, no network. Six prediction folders: the tuned model first, then what it must beat.
DEMO := runs/demo
SEED := 0
P    := $(DEMO)/predictions
# Two processes of one thread each: two threads of one process wait for each other as soon as anything else runs.
TWO  := OMP_NUM_THREADS=1 $(BIN)/accelerate launch --multi_gpu --num_processes 2 --num_machines 1 \
  --mixed_precision no --dynamo_backend no -m
# Two predictions at a time, one thread each.
ASK  := OMP_NUM_THREADS=1 $(BIN)/python -m infer --data $(DEMO)/data --split test

demo: $(STAMP)
	rm -rf $(DEMO)
	$(BIN)/python -m benchmarks phantom $(DEMO)/release --preset demo seed=$$((2 + $(SEED)))
	$(BIN)/python -m benchmarks prepare scintiground $(DEMO)/release --out $(DEMO)/data
	$(TWO) train demo/lora data.dataset=$(DEMO)/data train.seed=$(SEED) --out $(DEMO)/lora
	$(ASK) $(DEMO)/lora --name "Qwen3-VL tuned" --out $(P)/tuned & first=$$!; \
	$(ASK) models/demo_base --recipe demo/lora --name "Qwen3-VL base" --out $(P)/base && wait $$first
	$(ASK) $(DEMO)/lora --control blank_image --out $(P)/blank_image & first=$$!; \
	$(ASK) $(DEMO)/lora --control shuffled_image --out $(P)/shuffled_image && wait $$first
	$(ASK) --control majority_corrected --out $(P)/majority & first=$$!; \
	$(ASK) --control prompt_only_corrected --out $(P)/prompt_only && wait $$first
	$(BIN)/python -m eval $(addprefix $(P)/,tuned base majority prompt_only blank_image shuffled_image) \
	  --json $(DEMO)/result.json --html $(DEMO)/report.html > $(DEMO)/scores.txt
	$(BIN)/python -m recipes.demo $(DEMO)/result.json
	@echo "all scores: $(DEMO)/scores.txt"
	@echo "report:     $(DEMO)/report.html  (open it in a browser)"
	@echo "next:       README.md, \"Your own data in five steps\""

# The demo's second arm on the same phantoms: one canvas, location tokens. After `make demo` the report has both arms.
ARM := runs/demo-paligemma
A   := $(ARM)/predictions
ASK_ARM := OMP_NUM_THREADS=1 $(BIN)/python -m infer --data $(ARM)/data --split test

demo-paligemma: $(STAMP)
	rm -rf $(ARM)
	$(BIN)/python -m benchmarks phantom $(ARM)/release --preset demo seed=$$((2 + $(SEED)))
	$(BIN)/python -m benchmarks prepare scintiground $(ARM)/release --out $(ARM)/data
	$(TWO) train demo/paligemma_lora data.dataset=$(ARM)/data train.seed=$(SEED) --out $(ARM)/lora
	$(ASK_ARM) $(ARM)/lora --name "PaliGemma tuned" --out $(A)/tuned & first=$$!; \
	$(ASK_ARM) models/demo_base_paligemma --recipe demo/paligemma_lora --name "PaliGemma base" --out $(A)/base && wait $$first
	$(ASK_ARM) $(ARM)/lora --control blank_image --out $(A)/blank_image & first=$$!; \
	$(ASK_ARM) $(ARM)/lora --control shuffled_image --out $(A)/shuffled_image && wait $$first
	$(ASK_ARM) --control majority_corrected --out $(A)/majority & first=$$!; \
	$(ASK_ARM) --control prompt_only_corrected --out $(A)/prompt_only && wait $$first
	$(BIN)/python -m eval $(addprefix $(A)/,tuned base majority prompt_only blank_image shuffled_image) \
	  --json $(ARM)/result.json > $(ARM)/scores.txt
	$(BIN)/python -m eval $(A)/tuned $(wildcard $(P)/tuned) $(addprefix $(A)/,base majority prompt_only blank_image shuffled_image) \
	  --data $(ARM)/data --html $(ARM)/report.html > $(ARM)/both.txt
	$(BIN)/python -m recipes.demo $(ARM)/result.json
	@echo "all scores: $(ARM)/scores.txt"
	@echo "report:     $(ARM)/report.html  (with the first arm beside it if \`make demo\` ran before)"
	@echo "next:       $(BIN)/python -m benchmarks show $(ARM)/data ID --canvas demo/paligemma_lora --predictions $(A)/tuned"

# Trains the committed base again: other phantoms than the demo's (recipes/demo/base.yaml).
BASE := runs/demo-base

demo-base: $(STAMP)
	rm -rf $(BASE)
	$(BIN)/python -m benchmarks phantom $(BASE)/release --preset demo_base
	$(BIN)/python -m benchmarks prepare scintiground $(BASE)/release --out $(BASE)/data
	$(BIN)/python -m benchmarks phantom $(BASE)/demo-release --preset demo
	$(BIN)/python -m benchmarks prepare scintiground $(BASE)/demo-release --out $(BASE)/demo-data
	$(BIN)/python -m models tiny $(BASE)/tiny --texts $(BASE)/data $(BASE)/demo-data --hidden 96 --layers 3
	$(TWO) train demo/base --out $(BASE)/run
	$(BIN)/python -m models export $(BASE)/run/model models/demo_base --dtype bfloat16
	cp $(BASE)/run/manifest.json models/demo_base/training.json
	$(BIN)/python -m infer models/demo_base --data $(BASE)/data --name base --out $(BASE)/predictions
	$(BIN)/python -m eval $(BASE)/predictions

# The second arm's base, on the same phantoms.
demo-base-paligemma: $(STAMP)
	rm -rf $(BASE)
	$(BIN)/python -m benchmarks phantom $(BASE)/release --preset demo_base
	$(BIN)/python -m benchmarks prepare scintiground $(BASE)/release --out $(BASE)/data
	$(BIN)/python -m benchmarks phantom $(BASE)/demo-release --preset demo
	$(BIN)/python -m benchmarks prepare scintiground $(BASE)/demo-release --out $(BASE)/demo-data
	$(BIN)/python -m models tiny $(BASE)/tiny_paligemma --family paligemma --texts $(BASE)/data $(BASE)/demo-data \
	  --hidden 96 --layers 3
	$(TWO) train demo/paligemma_base --out $(BASE)/run
	$(BIN)/python -m models export $(BASE)/run/model models/demo_base_paligemma --dtype bfloat16
	cp $(BASE)/run/manifest.json models/demo_base_paligemma/training.json
	$(BIN)/python -m infer models/demo_base_paligemma --data $(BASE)/data --split test --name base --out $(BASE)/predictions
	$(BIN)/python -m eval $(BASE)/predictions

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
