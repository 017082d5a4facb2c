# Two commands matter: `make demo` and `make test`. Both prepare .venv, build, and run; a second run starts in seconds.
PYTHON ?= python3
JOBS ?= $(shell nproc)
TEST ?= tests
WORKERS ?= 2

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)

# Stamps carry what they depend on in their name, so a changed pin installs again and nothing else does.
REQUIREMENTS := $(VENV)/.requirements-$(shell cksum < requirements.txt | cut -d' ' -f1)
INSTALLED := $(VENV)/.installed-$(shell cat pyproject.toml torch_npu/version.py | cksum | cut -d' ' -f1)
CPP := $(shell find csrc drivers include support tools tests -name '*.cpp' -o -name '*.c' -o -name '*.h' 2>/dev/null)

.PHONY: help build runtime install wheel test conformance conformance-compile operators demo bench sanitize format lint \
  clean rtl-benches rtl-coverage rtl-area

help:
	@echo "make demo         train LeNet on npu:0 and on the CPU; fine-tune a small Qwen2 with LoRA and let it generate"
	@echo "make test         build and run the tests (TEST=tests/memory for a part, WORKERS=4 on a larger machine)"
	@echo "make conformance  PyTorch's op, module and optimizer databases, nine dtypes; report in build/conformance.html"
	@echo "make conformance-compile  every sample of PyTorch's op database through torch.compile; build/conformance-compile.html"
	@echo "make docs         the pages as a site with search and the Python reference, in build/docs/site"
	@echo "make tidy         clang-tidy (FOLDERS=\"csrc/core support\" for some)"
	@echo "make coverage     lines of Python and C++ that the tests reach (TEST=tests/memory for those of a part)"
	@echo "make operators    make docs/operators.md: what is native, decomposed, or still on the CPU"
	@echo "make install      build what a user needs, and let .venv/bin/python find the device (demo begins with it)"
	@echo "make build        .venv, libraries, tools, tests, all drivers (NPU_DRIVERS=cmodel,template for some of them)"
	@echo "make wheel        a wheel for this Python and this torch, in dist/"
	@echo "make bench        host cost per op, every op family and training steps against the CPU"
	@echo "make sanitize     drivers and allocator under AddressSanitizer and ThreadSanitizer"
	@echo "make rtl-benches  every module of rtl/ in cocotb, with random pauses (SEED=2 WORK=10 for other and more traffic)"
	@echo "make rtl-coverage lines and toggles of rtl/ that the benches reach"
	@echo "make rtl-area     LUT, flip-flops, DSP and RAM of every module, by Yosys (pip install pyosys)"
	@echo "make format       ruff and clang-format, in place"
	@echo "make lint         what CI checks besides tests: formatting, types of torch_npu, layers, sizes"
	@echo "make clean        remove build output, keep .venv"

$(REQUIREMENTS): requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	@rm -f $(VENV)/.requirements-*
	@touch $@

build/build.ninja: $(REQUIREMENTS)
	cmake -S . -B build -G Ninja -DPython3_EXECUTABLE=$(BIN)/python

# How far, and how long yet: by how long each step took the last time, or by the steps that are done.
export NINJA_STATUS ?= [%p, %W left]$(space)
space := $(subst ,, )
build runtime: build/build.ninja
	@$(if $(NPU_DRIVERS),cmake -S . -B build -DNPU_DRIVERS=$(NPU_DRIVERS))
	@ninja -C build -j$(JOBS) $(if $(filter runtime,$@),runtime)

# The entry point that makes `import torch` load the device. In place: nothing is copied, nothing is compiled.
$(INSTALLED): $(REQUIREMENTS)
	TORCH_NPU_BUILD=skip $(BIN)/python -m pip install --disable-pip-version-check --quiet \
	  --no-build-isolation --no-deps -e .
	@rm -f $(VENV)/.installed-*
	@touch $@

install: runtime $(INSTALLED)

# setuptools would pack again what an earlier wheel had.
wheel: $(REQUIREMENTS)
	rm -rf build/lib.* build/bdist.*
	$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-build-isolation --no-deps --wheel-dir dist .

test: build $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TEST)

conformance: install
	$(BIN)/python -m torch_npu conformance --dtype all --grad \
	  --json-file build/conformance.json --html build/conformance.html

conformance-compile: install
	$(BIN)/python -m torch_npu conformance --db compiled --timeout 900 \
	  --json-file build/conformance-compile.json --html build/conformance-compile.html

# From the last full run, or from a new one if the library has changed since. A failure in it fails conformance, not this.
operators: install
	test build/conformance.json -nt torch_npu/lib/libtorch_npu.so || $(MAKE) conformance || test -f build/conformance.json
	$(BIN)/python -m torch_npu conformance --from build/conformance.json --markdown docs/operators.md || test $$? = 1

demo: install
	$(BIN)/python examples/lenet_digits.py
	$(BIN)/python examples/lora_qwen.py --steps 100 --out build/lora
	$(BIN)/python examples/generate_qwen.py --model build/lora/merged --prompt "The device " --check

# Each writes its section of the page, with processor, date and commit.
RECORD := --record benchmarks/RESULTS.md
bench: install
	$(BIN)/python -m torch_npu bench dispatch $(RECORD)
	$(BIN)/python -m torch_npu bench basic $(RECORD)
	$(BIN)/python -m torch_npu bench ops $(RECORD) --plot build/bench-ops.svg --json-file build/bench-ops.json
	$(BIN)/python -m torch_npu bench training $(RECORD)
	$(BIN)/python -m torch_npu bench models $(RECORD)
	$(BIN)/python -m torch_npu bench compile $(RECORD)

sanitize: $(REQUIREMENTS)
	.ci/sanitize address,undefined build-asan $(JOBS)
	.ci/sanitize thread build-tsan $(JOBS)

# docs/rtl.md says what these do.
SEED ?= 1
WORK ?= 1
rtl-benches: $(REQUIREMENTS)
	$(BIN)/python -m tests.rtl --seed $(SEED) --work $(WORK)

rtl-coverage: $(REQUIREMENTS)
	$(BIN)/python -m tests.rtl.coverage

rtl-area: $(REQUIREMENTS)
	$(BIN)/python tools/rtl_area.py

format: $(REQUIREMENTS)
	ruff check --fix --quiet . && ruff format --quiet .
	clang-format -i $(CPP)
	$(BIN)/python tools/check_rtl.py --fix

lint: $(REQUIREMENTS)
	ruff check . && ruff format --check --quiet .
	@echo "clang-format --dry-run (of all C and C++)" && clang-format --dry-run -Werror $(CPP)
	$(BIN)/python -m mypy
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/check_rtl.py

clean:
	rm -rf build build-asan build-tsan build-coverage torch_npu/lib torch_npu/_C*.so torch_npu/_build_info.py *.egg-info

# Pages, static analysis, coverage: tools with pins of their own.
.PHONY: docs tidy coverage
stamp = $(VENV)/.$(1)-$(shell cksum < $(1)/requirements.txt | cut -d' ' -f1)
$(call stamp,docs) $(call stamp,tools): $(VENV)/.%: $(REQUIREMENTS)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -r $(firstword $(subst -, ,$*))/requirements.txt
	@touch $@

docs: install $(call stamp,docs)
	$(BIN)/python docs/docs_site.py

# Kernels of one instruction set use vector functions that only GCC has.
FOLDERS ?= csrc drivers support tools
tidy: build $(call stamp,tools)
	$(BIN)/python $(BIN)/run-clang-tidy.py -clang-tidy-binary $(BIN)/clang-tidy -p build -quiet -j $(JOBS) \
	  $(foreach folder,$(FOLDERS),'$(CURDIR)/$(folder)/(?!.*(kernels|micro)_)')

# Python by all of TEST, C++ by the programs that run without PyTorch; pages in build/coverage and build-coverage.
coverage: install $(call stamp,tools)
	mkdir -p build/coverage && rm -f build/coverage/data*
	$(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist loadfile $(TEST)
	$(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage html --quiet && $(BIN)/python -m coverage report
	.ci/coverage build-coverage $(JOBS)
