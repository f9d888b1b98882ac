# assay: the only build file.  `make help` lists the targets.

MAKEFLAGS += -r
.DELETE_ON_ERROR:
.SUFFIXES:

BUILD   ?= build
CC      ?= cc
CUDA    ?= auto
ARCH    ?= sm_90
PREFIX  ?= /usr/local
V       ?= 0
Q       := $(if $(filter 1,$(V)),,@)

OPT      ?= -O3
WARN     := -Wall -Wextra -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wvla -Werror
SANITIZE ?=

# These goals build everything in their own way and place, so they come alone.
ifneq ($(filter asan,$(MAKECMDGOALS)),)
ifneq ($(words $(MAKECMDGOALS)),1)
$(error make asan takes no other goal beside it)
endif
BUILD    := $(BUILD)/asan
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT      := -O2
CUDA     := 0
endif

LIBS     := jansson yaml-0.1 libpcre2-8 libcrypto libxxhash
GATESLIBS := libcurl          # of assay alone: an engine asks no network
TESTLIBS := check

# No -march here: what a CPU feature needs is compiled per level (engine/cpu) and chosen at run time.
CPPFLAGS := -I. -I$(BUILD) -D_GNU_SOURCE
CFLAGS   := -std=c11 -g $(OPT) -ffp-contract=off -fno-math-errno -pthread $(WARN) $(SANITIZE)
LDFLAGS  := -pthread $(SANITIZE)

# CUDA=auto builds the device backend where nvcc is found; without it `backend: cuda` answers exit 77.
# ARCH: architectures of the kernels, "sm_90 sm_100", or `all`.
NVCC      ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
WITH_CUDA := $(if $(filter 0,$(CUDA)),,$(if $(NVCC),1,$(if $(filter 1,$(CUDA)),$(error CUDA=1 needs nvcc))))
ifeq ($(WITH_CUDA),1)
CUDA_HOME  := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_ARCHS := $(if $(filter all,$(ARCH)),80 86 87 89 90 100 103 110 120 121,$(patsubst sm_%,%,$(ARCH)))
CUDA_ARCHS := $(filter $(CUDA_ARCHS),$(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch)))
comma      := ,
GENCODE    := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
              -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
NVCCFLAGS  := -O3 -std=c++17 --fmad=false -lineinfo -Werror all-warnings -Xcompiler -Wall,-fno-threadsafe-statics
# wgmma exists in code for exactly sm_90: sm_90a.
NVCCFLAGS_wide := $(if $(filter 90,$(CUDA_ARCHS)),-DASSAY_SM90A=1)
GENCODE_wide   := $(subst arch=compute_90$(comma)code=sm_90,arch=compute_90a$(comma)code=sm_90a,$(GENCODE))
CPPFLAGS   += -DASSAY_CUDA -isystem $(CUDA_HOME)/include -isystem $(CUDA_HOME)/extras/CUPTI/include
CFLAGS_watch := -DASSAY_CUDA_ARCHS='"$(addprefix sm_,$(CUDA_ARCHS))"'
# cuBLASLt, CUPTI and NVML are opened at run time: the binary starts without them.
ENGINE_LIBS := -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib -lcudart_static -ldl -lrt -Wl,-rpath,$(CUDA_HOME)/lib64:$(CUDA_HOME)/lib:$(CUDA_HOME)/extras/CUPTI/lib64
cuda_src   := $(wildcard engine/cuda/*.c)
cuda_tests := $(wildcard engine/tests/cuda/check_*.c)
cuda_support := $(filter-out engine/tests/cuda/check_%,$(wildcard engine/tests/cuda/*.c))
cuda_obj    = $(patsubst %.cu,$(BUILD)/%.cu.o,$(wildcard engine/cuda/*.cu))
endif

# Expanded when a compiler is called, which is after `libraries`.
PKG_CFLAGS = $(shell pkg-config --cflags $(LIBS) $(GATESLIBS) 2>/dev/null)
PKG_LIBS   = $(shell pkg-config --libs $(LIBS) 2>/dev/null)
GATES_LIBS = $(shell pkg-config --libs $(GATESLIBS) 2>/dev/null)
CHECK_LIBS = $(shell pkg-config --libs $(TESTLIBS) 2>/dev/null)

contract_src := $(wildcard contract/*.c)
# The kernels of engine/cpu are compiled once per dispatch level (engine/cpu/level.h), the rest of it once.
level_src    := $(addprefix engine/cpu/,attn.c conv.c head.c level.c linear.c moe.c norm.c pack.c product.c ssm.c)
levels       := portable $(if $(filter x86_64,$(shell uname -m)),avx2 avx512 avx512bf16)
engine_src   := $(filter-out engine/main.c,$(wildcard engine/*.c)) \
	$(filter-out $(level_src),$(wildcard engine/ref/*.c engine/cpu/*.c)) $(cuda_src)
gates_src    := $(filter-out gates/main.c,$(wildcard gates/*.c))
contract_tests := $(wildcard contract/tests/check_*.c)
engine_tests   := $(wildcard engine/tests/check_*.c)
engine_support := $(filter-out engine/tests/check_%,$(wildcard engine/tests/*.c))   # shared by the engine's tests
gates_tests    := $(wildcard gates/tests/check_*.c)
gates_support  := $(wildcard gates/tests/*_rig.c)                                   # shared by the tests of `assay run`

comma := ,
obj = $(patsubst %.c,$(BUILD)/%.o,$(1))

.PHONY: all
all: $(BUILD)/assay $(BUILD)/assay-engine ## build both programs, assay and assay-engine (the default)

-include $(shell find $(BUILD) -path $(BUILD)/asan -prune -o -name '*.d' -print 2>/dev/null)

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(if $(Q),echo "  CC      $<")
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) $(CFLAGS_$(basename $(notdir $<))) -MMD -MP -c -o $@ $<

$(BUILD)/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	@$(if $(Q),echo "  NVCC    $<")
	$(Q)$(NVCC) $(NVCCFLAGS) $(NVCCFLAGS_$(basename $(notdir $<))) $(or $(GENCODE_$(basename $(notdir $<))),$(GENCODE)) -I. -MMD -MP -MT $@ -MF $(@:.o=.d) -c -o $@ $<

LEVEL_avx2       := -mavx2 -mfma -mf16c -mbmi2
LEVEL_avx512     := $(LEVEL_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
LEVEL_avx512bf16 := $(LEVEL_avx512) -mavx512bf16 -mavx512vbmi
define level_rule
$(BUILD)/engine/cpu/%.$(1).o: engine/cpu/%.c $(BUILD)/flags
	@mkdir -p $$(@D)
	@$$(if $$(Q),echo "  CC      $$< ($(1))")
	$$(Q)$$(CC) $$(CPPFLAGS) $$(PKG_CFLAGS) $$(CFLAGS) $$(LEVEL_$(1)) -DLEVEL=$(1) -DLEVEL_HEADER='"vec_$(1).h"' \
		-MMD -MP -c -o $$@ $$<
endef
$(foreach l,$(levels),$(eval $(call level_rule,$(l))))
level_obj := $(foreach l,$(levels),$(patsubst %.c,$(BUILD)/%.$(l).o,$(level_src)))

$(BUILD)/libcontract.a: $(call obj,$(contract_src))
$(BUILD)/libengine.a: $(call obj,$(engine_src)) $(level_obj) $(cuda_obj)
$(BUILD)/libenginetest.a: $(call obj,$(engine_support))
$(BUILD)/libgates.a: $(call obj,$(gates_src))
$(BUILD)/libgatestest.a: $(call obj,$(gates_support))
$(BUILD)/%.a:
	@$(if $(Q),echo "  AR      $@")
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# The judge never links the model: the engine's library is absent from its line.
$(BUILD)/assay: $(BUILD)/gates/main.o $(BUILD)/libgates.a $(BUILD)/libcontract.a
$(BUILD)/assay-engine: $(BUILD)/engine/main.o $(BUILD)/libengine.a $(BUILD)/libcontract.a
$(BUILD)/assay: ONLY_LIBS = $(GATES_LIBS)
$(BUILD)/assay-engine: ONLY_LIBS = $(ENGINE_LIBS)
$(BUILD)/assay $(BUILD)/assay-engine:
	@$(if $(Q),echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(PKG_LIBS) $(ONLY_LIBS) -lm

# The engine with planted faults, for `assay selftest`: its own objects, never installed (engine/faults.h).
faulty_obj = $(patsubst $(BUILD)/%,$(BUILD)/faulty/%,$(call obj,engine/main.c $(engine_src)) $(level_obj)) $(cuda_obj)
# private: else the flags stamp below would inherit it.
$(BUILD)/faulty/%: private CPPFLAGS += -DASSAY_FAULTS
$(BUILD)/faulty/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(if $(Q),echo "  CC      $< (faulty)")
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) $(CFLAGS_$(basename $(notdir $<))) -MMD -MP -c -o $@ $<
$(foreach l,$(levels),$(eval $(subst $(BUILD)/engine,$(BUILD)/faulty/engine,$(call level_rule,$(l)))))
$(BUILD)/assay-engine-faulty: $(faulty_obj) $(BUILD)/libcontract.a
	@$(if $(Q),echo "  LD      $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(PKG_LIBS) $(ENGINE_LIBS) -lm

$(BUILD)/contract/tests/check_%: $(BUILD)/contract/tests/check_%.o $(BUILD)/libcontract.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(PKG_LIBS) -lm
$(BUILD)/engine/tests/check_%: $(BUILD)/engine/tests/check_%.o $(BUILD)/libenginetest.a $(BUILD)/libengine.a $(BUILD)/libcontract.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(PKG_LIBS) $(ENGINE_LIBS) -lm
$(BUILD)/engine/tests/cuda/check_%: $(BUILD)/engine/tests/cuda/check_%.o $(call obj,$(cuda_support)) $(BUILD)/libenginetest.a $(BUILD)/libengine.a $(BUILD)/libcontract.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(PKG_LIBS) $(ENGINE_LIBS) -lm
# Errors are injected by standing in for the calls (engine/tests/cuda/inject).
$(BUILD)/engine/tests/cuda/check_errors: $(BUILD)/engine/tests/cuda/inject/inject.o
$(BUILD)/engine/tests/cuda/check_errors: private LDFLAGS += $(addprefix -Wl$(comma)--wrap=,cudaGetLastError dlopen dlsym dlclose \
	$(shell sed -n 's/^CALL.\(cuda[A-Za-z0-9]*\),.*/\1/p' engine/tests/cuda/inject/calls.def))
$(BUILD)/gates/tests/check_%: $(BUILD)/gates/tests/check_%.o $(BUILD)/libgatestest.a $(BUILD)/libgates.a $(BUILD)/libcontract.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(PKG_LIBS) $(GATES_LIBS) -lm
# Tests in Python: the page in a browser, where there is one; JUnit and the bench array as others read them.
python_tests := $(BUILD)/gates/tests/check_page $(BUILD)/gates/tests/check_readers
$(BUILD)/gates/tests/check_page: WORDS := $(BUILD)/pages
$(python_tests): $(BUILD)/gates/tests/%: gates/tests/%.py
	@mkdir -p $(@D)
	$(Q)printf '#!/bin/sh\ncommand -v python3 >/dev/null || { echo $*: skipped, no python3 is installed; exit 77; }\nexec python3 $< $(BUILD)/assay $(WORDS)\n' > $@ && chmod +x $@
# The runner is tested as a program, with an engine that misbehaves on request.
$(BUILD)/gates/tests/replay_server: ONLY_LIBS = $(shell pkg-config --libs libssl)
$(BUILD)/gates/tests/fake_engine $(BUILD)/gates/tests/replay_server: %: %.o $(BUILD)/libcontract.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(PKG_LIBS) $(ONLY_LIBS) -lm
# A library with NVML's names, which check_nvml opens by its path.
$(BUILD)/engine/tests/fake_nvml.so: engine/tests/nvml/fake_nvml.c engine/tests/nvml/fake_nvml.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -o $@ $<
$(BUILD)/engine/tests/check_nvml: | $(BUILD)/engine/tests/fake_nvml.so
$(BUILD)/engine/tests/check_engine_cli: | $(BUILD)/assay-engine $(BUILD)/assay-engine-faulty
$(BUILD)/gates/tests/check_selftest: | $(BUILD)/assay-engine-faulty
$(BUILD)/gates/tests/check_openai $(BUILD)/gates/tests/check_capture: | $(BUILD)/gates/tests/replay_server $(BUILD)/assay
$(BUILD)/gates/tests/check_run $(BUILD)/gates/tests/check_cli $(BUILD)/gates/tests/check_speed: | $(BUILD)/gates/tests/fake_engine $(BUILD)/assay
.SECONDARY:

tests := $(patsubst %.c,$(BUILD)/%,$(contract_tests) $(engine_tests) $(gates_tests) $(cuda_tests))

# ---- what people call ----

.PHONY: libraries deps gate check test check-browser check-junit docs asan valgrind lint goldens check-peers install help clean FORCE
deps: libraries ## install by apt what is missing (Debian 12)
# Other goals than these install nothing, but say what is missing before a compiler does.
libraries:
	@CC='$(CC)' sh scripts/deps.sh $(if $(filter deps check gate asan,$(MAKECMDGOALS)),,--check)

# GNU make knows one exit code for all failures, 2; what the run itself answered is printed.
gate: all ## deps, build, and run recipes/on-off-host.yaml
	$(Q)$(BUILD)/assay run recipes/on-off-host.yaml || { echo "gate: assay run exited $$?"; exit 1; }

check test: all $(tests) $(python_tests) ## deps, build with warnings as errors, and every test that this machine can run
	$(Q)sh scripts/run-tests.sh $(tests) $(python_tests)

ifeq ($(WITH_CUDA),1)
.PHONY: check-cuda device-package
cuda_programs := $(BUILD)/assay $(BUILD)/assay-engine $(BUILD)/assay-engine-faulty $(patsubst %.c,$(BUILD)/%,$(cuda_tests))
check-cuda: $(cuda_programs) ## what needs an NVIDIA device: tests, the device audit, planted faults, compute-sanitizer
	$(Q)sh scripts/check-cuda.sh $(BUILD)

device-package: $(cuda_programs) ## DIR=DIR: the programs and libraries of check-cuda, to run it on a bare machine with a device
	$(Q)sh scripts/device-package.sh $(BUILD) '$(or $(DIR),$(BUILD)/device-package)'
endif

# Pages and screenshots stay in build/pages.
check-browser: all ## the HTML report in headless Chromium, at its largest too (Debian: chromium, libjs-chart.js)
	$(Q)python3 gates/tests/check_page.py $(BUILD)/assay $(BUILD)/pages --large

# junitparser alone comes from PyPI.
check-junit: all ## JUnit and the bench array as junitparser and libxml2 read them, in a virtual environment in build/
	$(Q)[ -x $(BUILD)/junit/bin/python ] || python3 -m venv $(BUILD)/junit
	$(Q)$(BUILD)/junit/bin/python -c 'import junitparser' 2>/dev/null || $(BUILD)/junit/bin/python -m pip -q install junitparser==5.0.3
	$(Q)$(BUILD)/junit/bin/python gates/tests/check_readers.py $(BUILD)/assay

docs: all ## docs/STATUS.md and docs/BENCHMARKS.md from the records in results/
	$(Q)$(BUILD)/assay record --docs

asan: all $(tests) ## deps, build in build/asan, and every test under ASan, UBSan and leak detection
	$(Q)ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1 \
	 UBSAN_OPTIONS=print_stacktrace=1 CK_TIMEOUT_MULTIPLIER=10 sh scripts/run-tests.sh $(tests)

valgrind: all $(tests) ## every test under valgrind (slow)
	$(Q)CK_TIMEOUT_MULTIPLIER=100 TEST_TIMEOUT_S=7200 sh scripts/run-tests.sh \
	 --with 'valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite' $(tests)

lint: $(BUILD)/version_info.h libraries ## the house rules, cppcheck, clang and clang-tidy where installed
	$(Q)sh scripts/lint.sh -std=c11 $(CPPFLAGS) $(PKG_CFLAGS)

goldens: all ## capture the transformers golden anew on a CPU and show the difference (PYTHON=one with the requirements)
	$(Q)sh scripts/goldens.sh $(BUILD) $(PYTHON)

check-peers: all ## llama.cpp's server as oracle and as leg: LLAMACPP=DIR MODEL=DIR GOLDEN=FILE (scripts/check-peers.sh)
	$(Q)sh scripts/check-peers.sh '$(LLAMACPP)' '$(MODEL)' '$(GOLDEN)' '$(PROMPTS)'

BENCH_MODEL ?= oracle-goldens/models/book52-nvfp4
BENCH_PEERS ?= $(BUILD)/book52-wide
LLAMACPP    ?= $(BUILD)/llamacpp
.PHONY: bench bench-blas bench-formats bench-judge bench-peers
bench: all ## time the bundled checkpoint and a billion random weights in three formats
	$(Q)for t in 1 $$(nproc); do \
		$(BUILD)/assay-engine bench --model $(BENCH_MODEL) --prompt 512 --decode 64 --arm threads=$$t && \
		for f in bench/shapes/*.json; do \
			$(BUILD)/assay-engine bench --shape $$f --prompt 13 --decode 32 --arm threads=$$t || exit 1; done || exit 1; \
	done

bench-formats: $(BUILD)/assay-engine ## weight formats and dispatch levels, turn by turn; write docs/host-speed.md
	$(Q)python3 bench/formats.py --engine $(BUILD)/assay-engine --threads 1,$$(nproc) --table docs/host-speed.md

bench-blas: $(BUILD)/bench/blas ## the product of prefill against OpenBLAS (Debian: libopenblas-pthread-dev)
	$(Q)for t in 1 $$(nproc); do $(BUILD)/bench/blas $$t || exit 1; done
$(BUILD)/bench/blas: $(BUILD)/bench/blas.o $(BUILD)/libengine.a $(BUILD)/libcontract.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(PKG_LIBS) $(ENGINE_LIBS) $$(pkg-config --libs openblas) -lm
$(BUILD)/bench/blas.o: private CFLAGS += $(shell pkg-config --cflags openblas 2>/dev/null)

# 2,000 prompts of 500 steps, 20 ids each: 2 GB of files, kept.
bench-judge: $(BUILD)/bench/judge ## reading goldens and reports, and judging a million positions
	$(Q)test -e $(BUILD)/bench/judge.files/report.json || $(BUILD)/bench/judge make $(BUILD)/bench/judge.files 2000 500
	$(Q)$(BUILD)/bench/judge measure $(BUILD)/bench/judge.files
$(BUILD)/bench/judge: $(BUILD)/bench/judge.o $(BUILD)/libgates.a $(BUILD)/libcontract.a
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(PKG_LIBS) $(GATES_LIBS) -lm

# BENCH_PEERS: checkpoints, here one of random weights; a trained one may stand beside it.
bench-peers: all $(BENCH_PEERS) ## build llama.cpp, measure both engines turn by turn, write docs/peers.md
	$(Q)sh bench/llamacpp/build.sh $(LLAMACPP)
	$(Q)python3 bench/peers.py --engine $(BUILD)/assay-engine --llama $(LLAMACPP) --json $(BUILD)/bench-peers.jsonl \
		--table docs/peers.md $(BENCH_PEERS)
$(BUILD)/book52-wide:
	$(Q)$(BUILD)/assay-engine bench --shape bench/shapes/book52-wide.json --save $@ --prompt 1 --decode 0 --runs 1 \
		--no-bandwidth

install: all ## programs and man pages into DESTDIR, PREFIX (/usr/local)
	$(Q)install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	$(Q)install -m 755 $(BUILD)/assay $(BUILD)/assay-engine $(DESTDIR)$(PREFIX)/bin
	$(Q)$(foreach page,$(wildcard docs/*.1),install -m 644 $(page) $(DESTDIR)$(PREFIX)/share/man/man1 &&) true

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+( [a-z-]+)*:.*## / { sub(/ .*/, "", $$1); printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo "  CUDA=auto|0|1  ARCH=sm_90  BUILD=build  CC=cc  OPT=-O3  V=1  PREFIX, DESTDIR"

clean: ## remove what was built; runs in build/runs stay
	$(Q)test ! -d $(BUILD) || find $(BUILD) -mindepth 1 -maxdepth 1 ! -name runs -exec rm -rf {} +

FORCE:

# ---- which build this is ----

# Fuzzing: every fuzz_*.c is one libFuzzer program; it keeps what it finds in build/fuzz/corpus, and its crashes in build/fuzz.
FUZZ_CC      ?= clang
FUZZ_SECONDS ?= 60
FUZZ_FLAGS   := -std=c11 -g -O1 -pthread $(WARN) -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
fuzz := $(patsubst %.c,$(BUILD)/fuzz/%,$(wildcard contract/tests/fuzz_*.c engine/tests/fuzz_*.c gates/tests/fuzz_*.c))
fuzz_seeds_json        := contract/tests/data/golden contract/tests/data/report contract/tests/data/exit
fuzz_seeds_tokenizer   := $(wildcard engine/tests/fixtures/good-micro)
fuzz_seeds_safetensors := $(wildcard engine/tests/fixtures/good-micro engine/tests/fixtures/bad-offsets-*)
fuzz_seeds_recipe      := gates/tests/recipes

$(fuzz): $(BUILD)/fuzz/%: %.c $(contract_src) $(BUILD)/version_info.h
$(filter $(BUILD)/fuzz/engine/%,$(fuzz)): engine/safetensors.c engine/json_scan.c engine/arena.c
$(filter $(BUILD)/fuzz/gates/%,$(fuzz)): $(wildcard gates/recipe*.c) gates/yaml.c gates/suggest.c
$(fuzz):
	@mkdir -p $(@D)
	@$(if $(Q),echo "  FUZZ    $@")
	$(Q)$(FUZZ_CC) $(CPPFLAGS) $(PKG_CFLAGS) $(FUZZ_FLAGS) -o $@ $(filter %.c,$^) $(PKG_LIBS) -lm

.PHONY: fuzz
fuzz: $(fuzz) ## FUZZ_SECONDS=60: the readers under libFuzzer, each so long (clang)
	$(Q)for f in $(fuzz); do \
		name=$${f##*/fuzz_}; mkdir -p $(BUILD)/fuzz/corpus/$$name; \
		case $$name in $(foreach n,json tokenizer safetensors recipe,($(n)) seeds='$(fuzz_seeds_$(n))';;) esac; \
		echo "== $$f"; log=$(BUILD)/fuzz/$$name.log; \
		$$f -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=10 -print_final_stats=1 \
			-artifact_prefix=$(BUILD)/fuzz/ $(BUILD)/fuzz/corpus/$$name $$seeds > $$log 2>&1 || \
			{ tail -n 40 $$log; exit 1; }; \
		grep -E 'executed_units|peak_rss' $$log; \
	done

# The flags are a stamp: when they change, everything is built again.  Every compiler call waits for it, and so for
# the libraries.
$(BUILD)/flags: FORCE | libraries
	@mkdir -p $(@D)
	@echo '$(CC) $(CPPFLAGS) $(CFLAGS) CUDA=$(WITH_CUDA) $(NVCCFLAGS) $(GENCODE)' | cmp -s - $@ || \
	 echo '$(CC) $(CPPFLAGS) $(CFLAGS) CUDA=$(WITH_CUDA) $(NVCCFLAGS) $(GENCODE)' > $@

# Outside its own repository the revision is unknown.
VERSION := 0.1.0
$(BUILD)/version_info.h: $(BUILD)/flags FORCE
	@git=unknown dirty=-1; \
	if [ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$$(pwd -P)" ]; then \
		git=$$(git rev-parse HEAD) && dirty=0; \
		[ -z "$$(git status --porcelain --untracked-files=no)" ] || dirty=1; \
	fi; \
	{ echo '#define ASSAY_VERSION "$(VERSION)"'; echo "#define ASSAY_GIT \"$$git\""; echo "#define ASSAY_DIRTY $$dirty"; \
	  sed 's/[\\"]/\\&/g; s/.*/#define ASSAY_FLAGS "&"/' $(BUILD)/flags; } > $@.new; \
	if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/contract/version.o: $(BUILD)/version_info.h
$(BUILD)/contract/schemas.o: $(wildcard contract/schemas/*.json)
$(BUILD)/gates/show_html.o: $(wildcard gates/page/*)
