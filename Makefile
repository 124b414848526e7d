# fsdp.c. `make` builds build/fsdp and build/libfsdp.{a,so}; `make help` lists the rest.
# New .c files are found automatically. BUILD=dir builds elsewhere, V=1 prints commands,
# DEBUG=1 adds debug asserts and line numbers in tests for a debugger, WERROR=1 makes warnings errors (CI).
BUILD ?= build
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
CC ?= gcc
CXX ?= g++
Q := $(if $(V),,@)

# --- dependencies (docs/decisions/27-dependencies.md says what each is for) ----------------------
PACKAGES := gcc g++ pkg-config libdnnl-dev libjansson-dev libcsv-dev \
            libyaml-dev libhwloc-dev libcairo2-dev libpcre2-dev libutf8proc-dev libflatbuffers-dev \
            libmicrohttpd-dev nettle-dev zlib1g-dev libzstd-dev liblz4-dev
# Optional libraries are used if they are found, except those in WITHOUT="oneDNN PCRE2
# ...".
has = $(if $(filter $(1) $(2),$(WITHOUT)),,$(shell pkg-config --exists $(1) 2>/dev/null && echo 1))
has_header = $(if $(filter $(1),$(WITHOUT)),,$(shell $(CC) $(DEPS_CFLAGS) -include $(2) -E -x $(or $(3),c) /dev/null >/dev/null 2>&1 && echo 1))
# For machines where packages cannot be installed: the folder that `make deps-folder` unpacked,
# here or elsewhere.
DEPS_DIR ?= $(wildcard build/deps)
DEPS_CFLAGS := $(if $(DEPS_DIR),-isystem $(DEPS_DIR)/usr/include)
deps_library = $(abspath $(firstword $(if $(DEPS_DIR),$(wildcard $(DEPS_DIR)/usr/lib/*/lib$(1).a))))
DEPS_JANSSON := $(call deps_library,jansson)
PKGS := $(if $(DEPS_JANSSON),,jansson)
DEFS :=
LIBS := $(DEPS_JANSSON)
LEFT_OUT :=
ifeq ($(call has_header,oneDNN,dnnl.h),1)
LIBS += -ldnnl -lgomp
DEFS += -DFSDP_HAVE_DNNL
LEFT_OUT += src/kernels/cpu/product_plain.c
else
LEFT_OUT += src/kernels/cpu/product_onednn.c
endif
ifeq ($(call has_header,csv,csv.h),1)
LIBS += $(or $(call deps_library,csv),-lcsv)
DEFS += -DFSDP_HAVE_CSV
LEFT_OUT += src/data/csv/csv_none.c
else
LEFT_OUT += src/data/csv/csv.c
endif
ifeq ($(call has,yaml-0.1,yaml),1)
PKGS += yaml-0.1
DEFS += -DFSDP_HAVE_YAML
endif
ifeq ($(call has,hwloc),1)
PKGS += hwloc
DEFS += -DFSDP_HAVE_HWLOC
endif
# MPI is loaded at run time and needs nothing here. WITHOUT=MPI leaves it out.
MPI_C := $(addprefix src/comm/mpi/,abi_mpich.c abi_openmpi.c exchange.c incoming.c library.c outgoing.c progress.c sockets.c transport_mpi.c world.c)
ifeq ($(filter MPI,$(WITHOUT)),)
DEFS += -DFSDP_HAVE_MPI
LEFT_OUT += src/comm/mpi/mpi_none.c
else
LEFT_OUT += $(MPI_C)
endif
ifeq ($(call has,cairo),1)
PKGS += cairo
DEFS += -DFSDP_HAVE_CAIRO
endif
ifeq ($(call has,libmicrohttpd,microhttpd),1)
PKGS += libmicrohttpd
DEFS += -DFSDP_HAVE_MICROHTTPD
LEFT_OUT += src/dashboard/server_none.c
else
LEFT_OUT += src/dashboard/server.c
endif
ifeq ($(call has,nettle),1)
PKGS += nettle
DEFS += -DFSDP_HAVE_NETTLE
endif
ifeq ($(call has,libpcre2-8,PCRE2),1)
PKGS += libpcre2-8
DEFS += -DFSDP_HAVE_PCRE2
LEFT_OUT += src/text/regex/regex_none.c
else
LEFT_OUT += src/text/regex/regex.c
endif
ifeq ($(call has,libutf8proc,utf8proc),1)
PKGS += libutf8proc
DEFS += -DFSDP_HAVE_UTF8PROC
LEFT_OUT += src/text/chars/unicode_none.c
else
LEFT_OUT += src/text/chars/unicode.c
endif
ifeq ($(call has_header,flatbuffers,flatbuffers/flatbuffers.h,c++),1)
LIBS += -lstdc++
DEFS += -DFSDP_HAVE_FLATBUFFERS
LEFT_OUT += src/data/arrow/metadata_none.c
else
LEFT_OUT += src/data/arrow/metadata.cc
endif
ifeq ($(call has,zlib),1)
PKGS += zlib
DEFS += -DFSDP_HAVE_ZLIB
endif
ifeq ($(call has,libzstd,zstd),1)
PKGS += libzstd
DEFS += -DFSDP_HAVE_ZSTD
endif
ifeq ($(call has,liblz4,lz4),1)
PKGS += liblz4
DEFS += -DFSDP_HAVE_LZ4
endif
# CUDA: the headers compile the device for the emulator of the tests, and nvcc compiles it for cards.
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(realpath $(shell command -v nvcc 2>/dev/null)))),/usr/local/cuda)
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_INCLUDE := $(if $(filter CUDA,$(WITHOUT)),,$(patsubst %/cublasLt.h,%,$(firstword $(wildcard $(CUDA_HOME)/include/cublasLt.h))))
CUDA_NVCC := $(if $(CUDA_INCLUDE),$(NVCC))
# 1: the user gave NVCC=, to build without the device cuda.
CUDA_DECLINED := $(if $(filter command environment,$(firstword $(origin NVCC))),$(if $(NVCC),,1))
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS += $(shell pkg-config --libs $(PKGS) 2>/dev/null)
# Debian's libjansson.a is compiled for executables only and cannot be linked into a shared
# library.
SHARED := $(if $(DEPS_JANSSON),$(shell $(CC) -shared -o /dev/null -Wl,--whole-archive $(DEPS_JANSSON) -Wl,--no-whole-archive 2>/dev/null && echo 1),1)

# --- flags --------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wdouble-promotion \
        -Wvla -Wundef -Wcast-qual -Wformat=2 $(if $(WERROR),-Werror)
WARN_C := -Wstrict-prototypes -Wmissing-prototypes
OPT ?= -O2 -g
ISA_OPT ?= -O3
# -ffp-contract=off: a product and a sum are contracted only if the code says fma.
# Sanitized code is several times as large, so its tests share one library that exports all
# symbols.
VISIBILITY := $(if $(SANITIZE),default,hidden)
COMMON := $(OPT) -fPIC -fvisibility=$(VISIBILITY) -ffp-contract=off -fno-math-errno -pthread -I. -Iinclude \
          -MMD -MP $(DEFS) $(DEPS_CFLAGS) $(PKG_CFLAGS) $(if $(DEBUG),-DFSDP_DEBUG) $(SANITIZE) \
          $(if $(SANITIZE),-DFSDP_TESTING)
CFLAGS_ALL := -std=c17 -D_GNU_SOURCE $(COMMON) $(WARN) $(WARN_C) $(CFLAGS)
CXXFLAGS_ALL := -std=c++17 $(COMMON) $(WARN) $(CXXFLAGS)
# Real and emulated CUDA code. The emulator's headers, and NVIDIA's in C++, are not free of warnings.
# Tools that find overruns need an allocation for each block of the device's allocator.
CUDA_CFLAGS := $(if $(CUDA_INCLUDE),-isystem $(CUDA_INCLUDE))
EMULATED := -DCUDA_EMULATED -Itests/cuda/emulator -fno-strict-aliasing \
            $(if $(SANITIZE),-DFSDP_CUDA_BLOCKS_ARE_ALONE)
EMULATED_CXXFLAGS = -std=c++17 $(COMMON) $(CUDA_CFLAGS) $(EMULATED) -Wall -Wextra -Wno-unknown-pragmas \
                    $(if $(WERROR),-Werror) $(CXXFLAGS)
# sm_80 and sm_90a are compiled; newer cards compile the PTX of compute_90.
CUDA_ARCHS ?= -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a \
              -gencode=arch=compute_90,code=compute_90
# The same in short, for 'fsdp env': sm_80 sm_90a compute_90.
comma := ,
CUDA_CODE = $(patsubst code=%,%,$(filter code=%,$(subst $(comma), ,$(CUDA_ARCHS)))) $(patsubst -arch=%,%,$(filter -arch=%,$(CUDA_ARCHS)))
NVCC_FLAGS = -std=c++17 -O3 $(CUDA_ARCHS) -I. -Iinclude -Xcompiler -fPIC,-fvisibility=hidden,-Wall \
             $(if $(WERROR),-Werror all-warnings)
CUDA_LIBS := $(if $(CUDA_NVCC),$(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a)) -ldl -lrt -lstdc++)
LDLIBS_ALL := $(LIBS) $(CUDA_LIBS) -lm $(SANITIZE) -pthread $(LDFLAGS)
# The emulator is C++.
TEST_LDLIBS_ALL = $(LDLIBS_ALL) $(if $(filter %.emulated.o,$(CUDA_TESTING_O)),-lstdc++)

# --- sources ------------------------------------------------------------------------------------
CUDA_C := $(wildcard src/kernels/cuda/*.c) src/tensor/cuda_cards.c src/tensor/cuda_links.c src/tensor/cuda_memory.c src/tensor/cuda_shared.c src/tensor/device_cuda.c
CUDA_CU := $(wildcard src/kernels/cuda/*.cu)
LIB_C := $(filter-out $(LEFT_OUT) $(CUDA_C) %_testing.c,$(shell find src -name '*.c' ! -path 'src/cli/*' ! -path 'src/kernels/cpu/isa/*' | sort))
LIB_CXX := $(filter-out $(LEFT_OUT),$(shell find src -name '*.cc' | sort))
# Hooks for tests are not in the release. A file *_testing.c is only in the testing build. A file
# that includes a header *_testing.h, or contains FSDP_TESTING, is compiled for both builds. All
# other objects are shared. Sanitized builds are testing builds as a whole.
TESTING_C := $(shell find src -name '*_testing.c' | sort)
HOOKED_C := $(shell grep -lE 'FSDP_TESTING|_testing\.h"' $(LIB_C))
# Each file of isa/ is compiled once per ISA into a const table; context.c picks one by CPUID.
ISA_C := $(shell find src/kernels/cpu/isa -name '*.c' | sort)
ISAS := x86-64 x86-64-v3 x86-64-v4
CLI_C := $(shell find src/cli -name '*.c' | sort)
# Files of tests that tests/run.sh skips are not compiled.
TEST_C := $(shell find tests -name 'test_*.c' ! -name test_main.c | sed 's|\.c$$||' | \
            grep -Ev -- "$${TEST_SKIP:-^$$}" | sed 's|$$|.c|' | sort)
TEST_SUPPORT_C := $(shell find tests -name '*.c' ! -name 'test_*.c' ! -path 'tests/fuzz/*' ! -path 'tests/cuda/programs/*') tests/test_main.c
EXAMPLE_C := $(wildcard examples/*.c)
BENCH_C := $(wildcard bench/*.c)

# The device of CUDA: compiled for cards, for the release, or for the emulator, for the tests. With
# CUDA_TESTS=card the tests use a card.
CUDA_TESTS ?= emulator
EMULATOR_CXX := $(wildcard tests/cuda/emulator/*.cpp)
ifneq ($(CUDA_NVCC),)
CUDA_O := $(CUDA_C:%.c=$(BUILD)/%.o) $(CUDA_CU:%.cu=$(BUILD)/%.cu.o)
endif
ifeq ($(CUDA_TESTS),card)
CUDA_TESTING_O := $(CUDA_O)
else ifneq ($(CUDA_INCLUDE),)
ifeq ($(findstring thread,$(SANITIZE)),)
CUDA_TESTING_O := $(CUDA_C:%.c=$(BUILD)/%.emulated.o) $(CUDA_CU:%.cu=$(BUILD)/%.cu.emulated.o) \
                  $(EMULATOR_CXX:%.cpp=$(BUILD)/%.emulated.o)
endif
endif

# Programs that test the emulator itself. They do not contain the library.
CUDA_PROGRAM_SOURCES := $(wildcard tests/cuda/programs/*.cu tests/cuda/programs/*.c)
CUDA_PROGRAM_NAMES := $(if $(filter %.emulated.o,$(CUDA_TESTING_O)),$(basename $(CUDA_PROGRAM_SOURCES)))
CUDA_PROGRAMS := $(CUDA_PROGRAM_NAMES:%=$(BUILD)/%)
EMULATOR_O := $(EMULATOR_CXX:%.cpp=$(BUILD)/%.emulated.o)
# The check build finds races and wrong accesses of kernels and of the host code that starts them.
# They are compiled with -fsanitize=thread, which calls tests/cuda/emulator/hooks.cpp instead of
# libtsan. clang++ instruments more stores than g++. It compiles kernels twice as fast with -O1 and line
# numbers only as with -O2 and all symbols. Everything else is as in $(BUILD).
CHECK := $(BUILD)-check
CHECK_CXX ?= $(or $(shell command -v clang++ 2>/dev/null),$(CXX))
CHECK_CC := $(if $(findstring clang,$(CHECK_CXX)),clang,$(CC))
CHECK_ARGUMENT := $(if $(findstring clang,$(CHECK_CXX)),-mllvm -tsan-instrument-func-entry-exit=0,--param tsan-instrument-func-entry-exit=0)
CHECK_FLAGS := -O1 -fsanitize=thread $(CHECK_ARGUMENT) -DFSDP_CUDA_BLOCKS_ARE_ALONE -DFSDP_TESTING -Wno-unknown-warning-option
CHECK_TEST_C := $(filter tests/cuda/%,$(TEST_C))
CHECK_EMULATOR_O := $(EMULATOR_CXX:%.cpp=$(CHECK)/%.o)
CHECK_TESTS_O := $(CUDA_C:%.c=$(CHECK)/%.o) $(CUDA_CU:%.cu=$(CHECK)/%.o) $(CHECK_TEST_C:%.c=$(CHECK)/%.o)
CHECK_PROGRAMS := $(CUDA_PROGRAM_NAMES:%=$(CHECK)/%)

LIB_O := $(LIB_C:%.c=$(BUILD)/%.o) $(LIB_CXX:%.cc=$(BUILD)/%.cc.o) \
         $(foreach isa,$(ISAS),$(ISA_C:%.c=$(BUILD)/%.$(isa).o)) \
         $(if $(SANITIZE),$(TESTING_C:%.c=$(BUILD)/%.o) $(CUDA_TESTING_O),$(CUDA_O))
TESTING_O := $(patsubst %.c,$(BUILD)/%.testing.o,$(HOOKED_C) $(TESTING_C)) \
             $(filter-out $(HOOKED_C:%.c=$(BUILD)/%.o) $(CUDA_O),$(LIB_O)) $(CUDA_TESTING_O)
CLI_O := $(CLI_C:%.c=$(BUILD)/%.o)
TEST_LIB := $(BUILD)/libfsdp-$(if $(SANITIZE),tests.so,testing.a)
# One program for each layer's folder of tests, which also contains the tests of the folders in it.
# That of tests/release links the installed library.
TEST_FOLDERS := $(sort $(foreach test,$(TEST_C),tests/$(word 2,$(subst /, ,$(test)))/))
TESTS := $(patsubst %,$(BUILD)/%tests,$(TEST_FOLDERS))
# T=FOLDER and T=FOLDER/... need the program of this folder alone. Scripts of tests/cuda and
# tests/tensor run the programs of other folders.
TEST_FOLDER := $(filter-out tests/cuda/ tests/tensor/,$(filter $(TEST_FOLDERS),tests/$(firstword $(subst /, ,$(T:tests/%=%)))/))
TEST_O := $(TEST_C:%.c=$(BUILD)/%.o)
TEST_SUPPORT_O := $(TEST_SUPPORT_C:%.c=$(BUILD)/%.o)
EXAMPLES := $(EXAMPLE_C:%.c=$(BUILD)/%)
BENCHES := $(BENCH_C:%.c=$(BUILD)/%)

.PHONY: all lib objects tests examples benches test check-deps deps demo demo-bert demo-llama pretrain asan tsan ubsan fuzz soak lint format bench bench-torch bench-summarization bench-features install clean help
.SECONDARY:
BUILT := $(BUILD)/fsdp $(BUILD)/libfsdp.a $(if $(SHARED),$(BUILD)/libfsdp.so)
all: check-deps $(BUILT) examples $(BUILD)/built
# The last line of `make`, if something was linked. A `make` inside of another one has its own.
$(BUILD)/built: $(BUILT) $(EXAMPLES)
	@touch $@
	@$(if $(filter-out all,$(MAKECMDGOALS))$(filter-out 0,$(MAKELEVEL)),:,echo "built $(strip $(BUILT)) $(BUILD)/examples; next: $(BUILD)/fsdp --help, or 'Train your own' in README.md")
lib: $(BUILD)/libfsdp.a
# In the lines that `make` prints for the objects of these targets: "[3/700] ", the how manyth of the
# objects that did not exist when make began to compile. Other objects, which are compiled again, have no
# number. MISSING_O is computed when the first object is compiled, so that `make` with nothing to do is as
# fast as without it.
COUNTED_O = $(LIB_O) $(if $(filter lib,$(MAKECMDGOALS)),,$(CLI_O) $(EXAMPLES:%=%.o))
MISSING_O = $(eval MISSING_O := $(filter-out $(wildcard $(COUNTED_O)),$(COUNTED_O)))$(MISSING_O)
COMPILED_O :=
PROGRESS = $(if $(filter $@,$(MISSING_O)),$(eval COMPILED_O += $@)[$(words $(COMPILED_O))/$(words $(MISSING_O))] )
# Compile everything and link nothing, for the warnings of another compiler.
objects: $(LIB_O) $(TESTING_O) $(CLI_O) $(TEST_SUPPORT_O) $(TEST_O) $(EXAMPLES:%=%.o) $(BENCHES:%=%.o)
tests: $(if $(TEST_FOLDER),$(BUILD)/$(TEST_FOLDER)tests,$(TESTS) $(CUDA_PROGRAMS)) $(BUILD)/fsdp-testing
examples: $(EXAMPLES)
benches: $(BENCHES)

# Prints in one line what is missing, instead of failing in the middle of a compile, and in
# another line what the build uses of CUDA.
check-deps:
	@[ -z "$(DEPS_DIR)" ] || [ -n "$(DEPS_JANSSON)" ] || \
	{ echo "DEPS_DIR=$(DEPS_DIR): no usr/lib/*/libjansson.a in it. 'make deps-folder DEPS_DIR=$(DEPS_DIR)' makes one."; exit 1; }
	@[ -n "$(DEPS_JANSSON)" ] || pkg-config --exists jansson 2>/dev/null || \
	{ echo "missing library: jansson. 'make deps' installs it with apt-get; where nothing can be installed,"; \
	  echo "'make deps-folder' gets it without root, there or on another machine: see 'make help'."; exit 1; }
	@[ -z "$(DEPS_JANSSON)" ] || echo "jansson: $(DEPS_JANSSON), linked statically"
	@[ -n "$(SHARED)" ] || echo "built without: libfsdp.so (that libjansson.a is not position-independent)"
	@without="$(strip $(if $(findstring DNNL,$(DEFS)),,oneDNN) $(foreach l,CSV YAML HWLOC CAIRO MICROHTTPD NETTLE PCRE2 UTF8PROC FLATBUFFERS ZLIB ZSTD LZ4 MPI,$(if $(findstring $(l),$(DEFS)),,$(l))))"; \
	[ -z "$$without" ] || echo "built without: $$without ('fsdp --version' says what for)"
	@sh tools/find_cuda.sh '$(WITHOUT)' '$(CUDA_HOME)' '$(CUDA_INCLUDE)' '$(CUDA_NVCC)' '$(strip $(CUDA_CODE))' '$(CUDA_DECLINED)'

deps:
	@sh tools/deps.sh $(PACKAGES)
# The required library, and an optional one that is static too, without root and without
# installing anything.
.PHONY: deps-folder
deps-folder:
	@sh tools/deps_folder.sh $(or $(DEPS_DIR),build/deps) libjansson-dev libcsv-dev
# What lint and the sanitizers need in addition.
.PHONY: deps-lint
deps-lint:
	@sh tools/deps.sh clang clang-format libclang-rt-14-dev valgrind
# What tools/pretrain_vocab.sh needs in addition: spm_train.
.PHONY: deps-pretrain
deps-pretrain:
	@sh tools/deps.sh sentencepiece

# The libraries and the optimization that objects were compiled for. If these change, everything is
# compiled again.
$(BUILD)/found: FORCE
	@mkdir -p $(@D); found='$(strip $(DEFS) $(LIBS) $(DEPS_CFLAGS) $(OPT) $(ISA_OPT) $(DEBUG) $(SANITIZE))'; \
	echo "$$found" | cmp -s - $@ || echo "$$found" >$@
.PHONY: FORCE
# What the build uses of CUDA. If that changes, the list of devices is compiled again, and so are the
# libraries and programs that contain it. The names do not contain $(BUILD), which may be absolute in one
# command and relative in another.
$(BUILD)/cuda-found: FORCE
	@mkdir -p $(@D); found='$(strip $(CUDA_NVCC) $(CUDA_ARCHS) $(CUDA_O:$(BUILD)/%=%) $(CUDA_TESTING_O:$(BUILD)/%=%) $(CUDA_LIBS) $(CUDA_HOME))'; \
	echo "$$found" | cmp -s - $@ || echo "$$found" >$@
$(foreach o,device device_names,$(BUILD)/src/tensor/$(o).o $(BUILD)/src/tensor/$(o).testing.o) $(CUDA_O): $(BUILD)/cuda-found

$(BUILD)/%.o: %.c $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC $(PROGRESS)$<")
	$(Q)$(CC) $(CFLAGS_ALL) -c $< -o $@
$(BUILD)/%.testing.o: %.c $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC $< (testing)")
	$(Q)$(CC) $(CFLAGS_ALL) -DFSDP_TESTING -c $< -o $@
# The page of `fsdp dashboard`, which the assembler reads (.incbin).
$(BUILD)/src/dashboard/assets.o: $(wildcard src/dashboard/*.html src/dashboard/*.css src/dashboard/*.js)
# The list of devices.
$(BUILD)/src/tensor/device.o $(BUILD)/src/tensor/device_names.o: private CFLAGS_ALL += $(if $(filter $(CUDA_O) $(CUDA_TESTING_O),$(LIB_O)),-DFSDP_HAVE_CUDA)
$(BUILD)/src/tensor/device.testing.o $(BUILD)/src/tensor/device_names.testing.o: private CFLAGS_ALL += $(if $(CUDA_TESTING_O),-DFSDP_HAVE_CUDA)
# Sanitized code of tests compiles three times as fast without optimization. Only the tests of kernels
# compute so much themselves that they would lose more than that.
$(BUILD)/tests/%.o: private CFLAGS_ALL += -DFSDP_TESTING $(if $(SANITIZE),-O0)
$(BUILD)/tests/kernels/%.o: private CFLAGS_ALL += $(if $(SANITIZE),-O1)
# For 'fsdp env'.
$(BUILD)/src/cli/common/version.o: private CFLAGS_ALL += -DFSDP_BUILD_FLAGS='"$(strip $(OPT), kernels $(ISA_OPT) $(if $(DEBUG),DEBUG=1) $(SANITIZE))"'
$(BUILD)/%.cc.o: %.cc $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CXX $(PROGRESS)$<")
	$(Q)$(CXX) $(CXXFLAGS_ALL) -c $< -o $@
$(CUDA_C:%.c=$(BUILD)/%.o): private CFLAGS_ALL += $(CUDA_CFLAGS) -DFSDP_CUDA_CODE='"$(strip $(CUDA_CODE))"' \
    -DFSDP_CUDA_HOME='"$(CUDA_HOME)"'
$(BUILD)/%.emulated.o: %.c $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC $< (emulated)")
	$(Q)$(CC) $(CFLAGS_ALL) $(CUDA_CFLAGS) $(EMULATED) -c $< -o $@
$(BUILD)/%.emulated.o: %.cpp $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CXX $(PROGRESS)$<")
	$(Q)$(CXX) $(EMULATED_CXXFLAGS) -O3 -c $< -o $@
$(BUILD)/%.cu.emulated.o: %.cu $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CXX $< (emulated)")
	$(Q)$(CXX) $(EMULATED_CXXFLAGS) -x c++ -c $< -o $@
# On cards the optimizers, NF4 and float8 round every product and every sum, as on the CPU.
$(patsubst %,$(BUILD)/src/kernels/cuda/%.cu.o,adamw adamw_8bit sgd schedule_free adafactor nf4 float8 magnitude): private NVCC_FLAGS += -fmad=false
$(BUILD)/%.cu.o: %.cu $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  NVCC $(PROGRESS)$<")
	$(Q)$(CUDA_NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
# Programs of tests/cuda/programs, and the check build.
$(CUDA_PROGRAMS): $(BUILD)/%: $(BUILD)/%.emulated.o $(EMULATOR_O)
	@$(if $(V),,echo "  LD $@")
	$(Q)$(CXX) -o $@ $^ $(SANITIZE) -pthread -ldl $(LDFLAGS)
$(BUILD)/tests/cuda/programs/%.emulated.o: tests/cuda/programs/%.cu $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CXX $< (emulated)")
	$(Q)$(CXX) $(EMULATED_CXXFLAGS) -x c++ -c $< -o $@
CHECK_COMMON := -g1 -fPIC -ffp-contract=off -fno-math-errno -pthread -I. -Iinclude -MMD -MP $(DEFS) \
                $(DEPS_CFLAGS) $(PKG_CFLAGS) $(CUDA_CFLAGS) $(EMULATED)
CHECKED := objcopy $(foreach f,memcpy memmove memset,--redefine-sym $(f)=__tsan_$(f))
$(CHECK)/tests/cuda/emulator/%.o: tests/cuda/emulator/%.cpp $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CXX $< (check)")
	$(Q)$(CXX) -std=c++17 -O3 $(CHECK_COMMON) -DEMU_CHECK -Wall -Wextra -Wno-unknown-pragmas -c $< -o $@
$(CHECK)/%.o: %.cu $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CXX $< (check)")
	$(Q)$(CHECK_CXX) -std=c++17 $(CHECK_COMMON) $(CHECK_FLAGS) -Wno-unknown-pragmas -Wno-pass-failed -x c++ -c $< -o $@
	$(Q)$(CHECKED) $@
$(CHECK)/%.o: %.c $(BUILD)/found
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC $< (check)")
	$(Q)$(CHECK_CC) -std=c17 -D_GNU_SOURCE $(CHECK_COMMON) $(CHECK_FLAGS) -c $< -o $@
	$(Q)$(CHECKED) $@
$(CHECK)/tests/cuda/tests: $(CHECK_TESTS_O) $(CHECK_EMULATOR_O) $(TEST_SUPPORT_O) $(TEST_LIB)
	@$(if $(V),,echo "  LD $@")
	$(Q)$(CC) -o $@ $^ -rdynamic $(TEST_LDLIBS_ALL)
$(CHECK_PROGRAMS): $(CHECK)/%: $(CHECK)/%.o $(CHECK_EMULATOR_O)
	@$(if $(V),,echo "  LD $@")
	$(Q)$(CXX) -o $@ $^ -pthread -ldl
define isa_rule
$(BUILD)/%.$(1).o: %.c $(BUILD)/found
	@mkdir -p $$(@D)
	@$(if $(V),,echo "  CC $$(PROGRESS)$$< ($(1))")
	$(Q)$(CC) $(CFLAGS_ALL) $(ISA_OPT) -march=$(1) -mprefer-vector-width=512 -Wno-psabi \
	    -DFSDP_ISA=$(subst -,_,$(1)) -DFSDP_ISA_NAME='"$(1)"' -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

$(BUILD)/libfsdp.a: $(LIB_O)
	@rm -f $@
	@echo "  AR $@"
	$(Q)ar rcs $@ $^
$(BUILD)/libfsdp-testing.a: $(TESTING_O)
	@rm -f $@
	@echo "  AR $@"
	$(Q)ar rcs $@ $^
# Programs are linked with the first name and load the second one when they start.
$(BUILD)/libfsdp.so.0: $(LIB_O)
	@echo "  LD $@"
	$(Q)$(CC) -shared -Wl,-soname,libfsdp.so.0 -o $@ $^ $(LDLIBS_ALL)
$(BUILD)/libfsdp.so: $(BUILD)/libfsdp.so.0
	$(Q)ln -sf libfsdp.so.0 $@
$(BUILD)/libfsdp-tests.so: $(LIB_O)
	@echo "  LD $@"
	$(Q)$(CC) -shared -Wl,-soname,$(abspath $@) -Wl,-Bsymbolic -o $@ $^ $(TEST_LDLIBS_ALL)
$(BUILD)/fsdp: $(CLI_O) $(BUILD)/libfsdp.a
	@echo "  LD $@"
	$(Q)$(CC) -o $@ $^ $(LDLIBS_ALL)
# The command with hooks, such as the fake device.
$(BUILD)/fsdp-testing: $(CLI_O) $(TEST_LIB)
	@echo "  LD $@"
	$(Q)$(CC) -o $@ $^ $(if $(DEBUG),,-Wl,-S) $(TEST_LDLIBS_ALL)
# Each contains the library. The symbols for a debugger are only included with DEBUG=1.
RELEASE_LIB := $(if $(SANITIZE),$(TEST_LIB),$(BUILD)/libfsdp.a)
# The tests of kernels, with an allocation of their own for each tensor, so that compute-sanitizer finds
# accesses beyond it. On a card only.
$(BUILD)/tests/cuda/tests-alone: $(filter $(BUILD)/tests/cuda/%,$(TEST_O)) $(BUILD)/src/tensor/cuda_memory.alone.o $(TEST_SUPPORT_O) $(TEST_LIB)
	@$(if $(V),,echo "  LD $@")
	$(Q)$(CC) -o $@ $^ $(if $(DEBUG),,-Wl,-S) $(TEST_LDLIBS_ALL)
$(BUILD)/src/tensor/cuda_memory.alone.o: src/tensor/cuda_memory.c $(BUILD)/found
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(CUDA_CFLAGS) -DFSDP_CUDA_BLOCKS_ARE_ALONE -c $< -o $@
define tests_rule
$(BUILD)/$(1)tests: $(filter $(BUILD)/$(1)%,$(TEST_O)) $(if $(filter tests/release/,$(1)),$(BUILD)/tests/test_main.o $(RELEASE_LIB),$(TEST_SUPPORT_O) $(TEST_LIB))
	@$(if $(V),,echo "  LD $$@")
	$(Q)$(CC) -o $$@ $$^ $(if $(DEBUG),,-Wl,-S) $$(TEST_LDLIBS_ALL)
endef
$(foreach folder,$(TEST_FOLDERS),$(eval $(call tests_rule,$(folder))))
$(EXAMPLES) $(BENCHES) $(BUILD)/tools/arrow_rows: $(BUILD)/%: $(BUILD)/%.o $(BUILD)/libfsdp.a
	@$(if $(V),,echo "  LD $@")
	$(Q)$(CC) -o $@ $^ $(LDLIBS_ALL)

# --- what people run ----------------------------------------------------------------------------
# Without -j, these targets compile on all cores.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
# With DEPS_DIR no packages are installed.
SETUP := $(if $(DEPS_JANSSON),,deps)
# Install packages, then run every test. T=fsdp/overlap runs tests/fsdp/test_overlap.c; see
# tests/run.sh.
test: $(SETUP)
	@$(MAKE) --no-print-directory $(JOBS) run-tests
.PHONY: run-tests
run-tests: all tests $(if $(SANITIZE),,benches)
	@sh tests/run.sh $(BUILD) $(T)

demo: $(SETUP)
	@$(MAKE) --no-print-directory $(JOBS) all
	@sh tools/demo.sh $(BUILD)
# A few minutes: a BERT learns which synopsis belongs to which description.
demo-bert: $(SETUP)
	@$(MAKE) --no-print-directory $(JOBS) all
	@sh tools/demo_bert.sh $(BUILD)
# A few minutes: a Llama learns to write descriptions.
demo-llama: $(SETUP)
	@$(MAKE) --no-print-directory $(JOBS) all
	@sh tools/demo_llama.sh $(BUILD)
# Takes an hour and can be resumed at any instant. Knobs come from the environment: see
# tools/pretrain.sh.
pretrain: $(SETUP) deps-pretrain
	@$(MAKE) --no-print-directory $(JOBS) all
	@sh tools/pretrain.sh $(BUILD)

# Sanitizers check memory accesses, so they get fewer random cases, and kernels that compile faster.
# ASan runs one script for each command. It skips scripts whose programs run in other tests too, those
# that measure, and the tests on the fake device: they run only under TSan, which finds races, and uses
# of freed memory as well. Both run several files of tests at a time: no test measures time there.
ASAN_SKIP := tensor/test_on_fake|cuda/test_on_cuda|cuda/test_(narrow|several_cards)_training|cuda/test_gpu_check|plan/test_(plan$$|adapter_traffic)|cli/test_(fsdp2_train|plan|verify|evaluate|bench|mpi|on_fake|nlp_example|llama_continual|launch_accelerate|train_options|t5_wikihow|resume|soak|pretrain|shipped_model|completion|install|packages|first_use|predict|transformers_flags|call_cycles|troubleshooting|qlora|float8|own_disks|tracking)\.sh
asan:
	@FSDP_TEST_CASES=20 TEST_BESIDE=. TEST_SKIP='$(ASAN_SKIP)' $(MAKE) --no-print-directory run-tests BUILD=$(BUILD)-asan DEBUG=1 \
	    SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" OPT="-O1 -g1" ISA_OPT=-O1
# TSan skips what has no threads of its own: scripts whose threads (loaders, files, saves) are also
# covered by test_train.sh and C tests, since their ranks are processes; models and generation, whose
# ranks meet in the collectives that fsdp and comm test; kernels and operations that share work as others
# do; readers of files; launchers, tracking, plans, options, texts; on the fake device, files whose units
# wait as those of others do.
TSAN_SKIP := cuda/|cli/test_([^dt]|t5|tokenize|tracking|train_options|transformers|troubleshooting)|(plan|bench|models|generate|launch|train_config|options|text|accelerate|foreign|fuzz)/|report/test_tracking|_shm|kernels/test_(gemm|attention|norm|elementwise|optim|math|loss|rope|narrow_states|float8|nf4)|autograd/test_ops_(activated_linear|cast|chunk|linear|pointwise|sum)|data/(arrow|csv|json|labels)/|data/datasets/test_(arrow_dataset|forms|jsonl|packing|span_corruption)|dcp/test_dcp_writer_failures|state_dict/test_save_memory|fake:(fsdp/test_(hsdp|kept_copies)|models/)|train/test_(span_corruption|flags)
tsan:
	@FSDP_TEST_CASES=20 TEST_BESIDE=. TEST_TIMEOUT=900 TEST_SKIP='$(TSAN_SKIP)' TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp $$TSAN_OPTIONS" $(MAKE) --no-print-directory run-tests BUILD=$(BUILD)-tsan DEBUG=1 \
	    SANITIZE="-fsanitize=thread" OPT="-O1 -g1" ISA_OPT=-O1
# Races and wrong accesses of the CUDA device: its tests, and faults that must be found, in the check
# build, for each EMU_SEED below CUDA_SEEDS.
CUDA_SEEDS ?= 3
.PHONY: cuda-check cuda-check-programs
cuda-check-programs: $(CHECK)/tests/cuda/tests $(CHECK_PROGRAMS)
cuda-check:
	@$(MAKE) --no-print-directory $(JOBS) cuda-check-programs
	@sh tests/cuda/check.sh $(CHECK) $(CUDA_SEEDS)
# Faults that are planted in kernels, one at a time, and must be found by their tests.
.PHONY: cuda-mutants cuda-flags
cuda-mutants: $(BUILD)/tests/cuda/tests cuda-check-programs
	@MAKE='$(MAKE)' sh tests/cuda/mutants.sh $(BUILD)
# For tests/cuda/mutants.sh: how kernels are compiled and programs are linked, as shell variables.
cuda-flags:
	@echo "plain_compile='$(CXX) $(EMULATED_CXXFLAGS) -x c++ -c'"
	@echo "check_compile='$(CHECK_CXX) -std=c++17 $(CHECK_COMMON) $(CHECK_FLAGS) -Wno-unknown-pragmas -Wno-pass-failed -x c++ -c'"
	@echo "check_finish='$(CHECKED)'"
	@echo "plain_objects='$(filter $(BUILD)/tests/cuda/%,$(TEST_O)) $(TEST_SUPPORT_O)'"
	@echo "check_objects='$(CHECK_TESTS_O) $(CHECK_EMULATOR_O) $(TEST_SUPPORT_O)'"
	@echo "link='$(CC) -rdynamic'"
	@echo "libraries='$(TEST_LIB) $(TEST_LDLIBS_ALL)'"
# Readers of untrusted bytes under libFuzzer (clang), FUZZ_S seconds each. New inputs go to
# $(BUILD)-fuzz/corpus; -set_cover_merge=1 makes tests/fuzz/corpus from them. With optimization, clang takes
# minutes for a kernel that is instrumented.
FUZZ_S ?= 60
FUZZ_FLAGS := address,undefined -fno-sanitize-recover=all
fuzz:
	@$(MAKE) --no-print-directory $(JOBS) lib BUILD=$(BUILD)-fuzz CC=clang CXX=clang++ WITHOUT="$(WITHOUT) CUDA" OPT="-O1 -g" ISA_OPT=-O0 \
	    SANITIZE="-fsanitize=fuzzer-no-link,$(FUZZ_FLAGS)"
	@for f in tests/fuzz/fuzz_*.c; do \
	    name=$$(basename $$f .c); found=$(BUILD)-fuzz/corpus/$$name; \
	    mkdir -p $$found && \
	    clang $(CFLAGS_ALL) -g -O1 -fsanitize=fuzzer,$(FUZZ_FLAGS) -fsanitize-link-c++-runtime -MF /dev/null \
	        -o $(BUILD)-fuzz/$$name $$f $(BUILD)-fuzz/libfsdp.a $(TEST_LDLIBS_ALL) && \
	    $(BUILD)-fuzz/$$name -max_total_time=$(FUZZ_S) -max_len=4096 $$found tests/fuzz/corpus/$$name || exit 1; \
	done
# Jobs over several hosts, which are network namespaces (needs root; skipped with a reason without).
.PHONY: test-hosts
test-hosts: all
	@for f in tests/hosts/hosts_*.sh; do FSDP_BUILD=$(BUILD) sh $$f || exit 1; done
# Trainings that are killed or run into failing disks, SOAK_RUNS times; see the script.
soak: $(BUILD)/fsdp
	@sh tools/soak.sh $(BUILD)
lint: $(LIB_O) $(CLI_O)
	@sh tools/lint.sh '$(CC)' $(BUILD)
format:
	@find src include tests examples bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' | xargs clang-format -i
bench: all benches
	@sh tools/bench.sh $(BUILD)
# Compared with PyTorch from PyPI, in a virtual environment: make bench-torch VENV=DIR.
bench-torch: all
	@sh tools/bench_torch.sh $(BUILD) $(or $(VENV),venv)
# With the rows of the CSV files DATA, or of data/debian.
bench-summarization: all
	@sh tools/bench_summarization.sh $(BUILD) $(or $(VENV),venv) $(DATA)
bench-features: all
	@sh tools/bench_features.sh $(BUILD)
# With PyTorch and others from PyPI in a virtual environment: make check-python VENV=DIR. DATA is a
# folder with files that are not in the repository: see tools/check_python.sh. ONLY=dcp runs one.
PYTHON ?= $(if $(VENV),$(VENV)/bin/python,python3)
.PHONY: check-python
check-python: all $(BUILD)/tools/arrow_rows $(BUILD)/bench/token_models $(BUILD)/bench/tokenizer
	@sh tools/check_python.sh $(BUILD) $(PYTHON) '$(DATA)' '$(ONLY)'
# On a machine with an NVIDIA card: docs/cuda-check.md. It builds in build-gpu.
.PHONY: gpu-check
gpu-check:
	@DEPS_DIR=$(DEPS_DIR) sh tools/gpu_check.sh

# Pages of the manual and completion scripts, which the program makes from its option tables.
SOURCE_DATE = $(or $(SOURCE_DATE_EPOCH),$(shell sh tools/source_date.sh))
$(BUILD)/man/fsdp.1: $(BUILD)/fsdp
	@rm -rf $(@D)
	$(Q)SOURCE_DATE_EPOCH=$(SOURCE_DATE) $< help --man-pages $(@D)
$(BUILD)/completion/fsdp.bash: $(BUILD)/fsdp
	@mkdir -p $(@D)
	$(Q)for shell in bash zsh fish; do $< completion $$shell >$(@D)/fsdp.$$shell || exit 1; done
.PHONY: man
man: $(BUILD)/man/fsdp.1 $(BUILD)/completion/fsdp.bash

install: all man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include/fsdp \
	    $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 755 $(BUILD)/fsdp $(DESTDIR)$(PREFIX)/bin/fsdp
	install -m 644 $(BUILD)/libfsdp.a $(DESTDIR)$(LIBDIR)/libfsdp.a
	$(if $(SHARED),install -m 755 $(BUILD)/libfsdp.so.0 $(DESTDIR)$(LIBDIR)/libfsdp.so.0)
	$(if $(SHARED),ln -sf libfsdp.so.0 $(DESTDIR)$(LIBDIR)/libfsdp.so)
	install -m 644 include/fsdp.h $(DESTDIR)$(PREFIX)/include/fsdp.h
	install -m 644 include/fsdp/*.h $(DESTDIR)$(PREFIX)/include/fsdp
	install -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(BUILD)/completion/fsdp.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fsdp
	install -m 644 $(BUILD)/completion/fsdp.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_fsdp
	install -m 644 $(BUILD)/completion/fsdp.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fsdp.fish
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@LIBS_PRIVATE@|$(LIBS) $(CUDA_LIBS) -lm -pthread|' \
	    -e "s|@VERSION@|$$(sed -n 's/.*FSDP_VERSION "\(.*\)"/\1/p' include/fsdp/base.h)|" \
	    tools/fsdp.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/fsdp.pc
	@sh tools/ldconfig.sh '$(DESTDIR)' '$(LIBDIR)'

# Packages: docs/decisions/33-packages.md.
.PHONY: dist deb wheel
dist:
	@sh tools/dist.sh $(BUILD)/dist
deb:
	@$(MAKE) --no-print-directory $(JOBS) all man
	@MAKE='$(MAKE)' sh tools/deb.sh $(BUILD) $(filter %-dev,$(PACKAGES))
# In $(BUILD)-wheel, with the libraries that can be linked statically.
wheel:
	@MAKE='$(MAKE) --no-print-directory $(JOBS)' CC='$(CC)' sh tools/wheel.sh $(BUILD)-wheel $(BUILD)/dist $(WITHOUT)
$(BUILD)/fsdp-static: $(CLI_O) $(BUILD)/libfsdp.a
	@echo "  LD $@"
	$(Q)$(CC) -o $@ $^ -static-libgcc $(STATIC_LIBS) $(CUDA_LIBS) -lm -pthread $(LDFLAGS)

# Keeps build/deps, which may have been made on another machine.
clean:
	[ ! -d $(BUILD) ] || find $(BUILD) -mindepth 1 -maxdepth 1 ! -path build/deps -exec rm -rf {} +
	rm -rf $(BUILD)-asan $(BUILD)-tsan $(BUILD)-check build-gpu

help:
	@echo "make            build/fsdp, build/libfsdp.a, build/libfsdp.so, examples"
	@echo "make demo       install packages, build, fine-tune T5 on two ranks, show the result"
	@echo "make demo-bert  the same for a small BERT from random weights: does a synopsis belong to a description"
	@echo "make demo-llama the same for a small Llama from nothing: its own vocabulary, token files, texts that it writes"
	@echo "make pretrain   install packages, build, pretrain a small T5 (an hour; can be resumed)"
	@echo "make test       install packages, build, all tests (T=fsdp/overlap: only tests/fsdp/test_overlap.c; or a test's name)"
	@echo "make deps       only install the Debian packages"
	@echo "make deps-folder DEPS_DIR=DIR  unpack headers and static libraries into DIR (build/deps),"
	@echo "                which may be copied to another machine; make DEPS_DIR=DIR needs no packages"
	@echo "make deps-pretrain  install what make pretrain needs in addition"
	@echo "make asan tsan  tests under the sanitizers"
	@echo "make cuda-check tests of the CUDA device with a race detector (CUDA_SEEDS=20: more orders)"
	@echo "make cuda-mutants  tests of the tests: faults planted in CUDA kernels"
	@echo "make lint       layering, circles of calls, headers, formatting"
	@echo "make test-hosts jobs over several hosts, as namespaces of this machine; needs root"
	@echo "make fuzz       readers of untrusted bytes under libFuzzer (clang): FUZZ_S=seconds each"
	@echo "make soak       trainings interrupted at random: SOAK_RUNS=200"
	@echo "make bench      measure training steps and kernels"
	@echo "make bench-torch VENV=DIR  the same steps in PyTorch's FSDP2 and here, alternately"
	@echo "make bench-summarization VENV=DIR [DATA=FILE.csv]  the summarization job, compared with PyTorch's"
	@echo "make check-python VENV=DIR [DATA=DIR] [ONLY=NAME]  compare with PyTorch and Hugging Face: tools/check_*.py"
	@echo "make bench-features  what checkpointing, more ranks, bf16 and prefetch cost or save"
	@echo "make gpu-check  build, check and measure on an NVIDIA card in six minutes (docs/cuda-check.md);"
	@echo "                REHEARSE=1: the same script on the emulated card of the tests"
	@echo "make install    PREFIX=/usr/local: command, library, headers, pkg-config file, manual, completion"
	@echo "make dist       the sources: build/dist/fsdp-VERSION.tar.gz"
	@echo "make deb        Debian packages fsdp, libfsdp0, libfsdp-dev in build/dist"
	@echo "make wheel      a wheel in build/dist, which pip installs where nothing else can be installed"

-include $(shell find $(BUILD) $(CHECK) -type f -name '*.d' 2>/dev/null)
