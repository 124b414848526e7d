/* A short run of each fuzzer without libFuzzer: its inputs are the files of tests/fuzz/corpus, and
 * the same files truncated and with some bytes changed, always in the same way. A finding ends the
 * program. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/test.h"

/* Each has a function of the same name. */
#define LLVMFuzzerTestOneInput fuzz_accelerate
#include "tests/fuzz/fuzz_accelerate.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_arrow
#include "tests/fuzz/fuzz_arrow.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_block_sums
#include "tests/fuzz/fuzz_block_sums.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_config
#include "tests/fuzz/fuzz_config.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_dashboard
#include "tests/fuzz/fuzz_dashboard.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_dcp
#include "tests/fuzz/fuzz_dcp.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_event_file
#include "tests/fuzz/fuzz_event_file.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_index
#include "tests/fuzz/fuzz_index.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_json_text
#include "tests/fuzz/fuzz_json_text.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_metrics_csv
#include "tests/fuzz/fuzz_metrics_csv.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_model_json
#include "tests/fuzz/fuzz_model_json.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_jinja
#include "tests/fuzz/fuzz_jinja.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_rows
#include "tests/fuzz/fuzz_rows.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "tests/fuzz/fuzz_safetensors.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_sentencepiece
#include "tests/fuzz/fuzz_sentencepiece.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tiktoken
#include "tests/fuzz/fuzz_tiktoken.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tokenizer_json
#include "tests/fuzz/fuzz_tokenizer_json.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_torch_file
#include "tests/fuzz/fuzz_torch_file.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_vocab_txt
#include "tests/fuzz/fuzz_vocab_txt.c"
#undef LLVMFuzzerTestOneInput

typedef int fuzz_fn(const uint8_t *data, size_t bytes);

enum {
    MUTANTS = 3000 /* mutants of a corpus */
};

/* Knuth's MMIX generator. */
static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Change up to four bytes, and truncate every other input. */
static void run_mutant(fuzz_fn *fuzz, const uint8_t *data, size_t bytes, uint64_t *state)
{
    uint8_t *copy =
        malloc(bytes); /* a copy of exact size, so that ASan finds reads beyond its end */
    if (!copy)
        abort();
    memcpy(copy, data, bytes);
    for (uint64_t n = next_random(state) % 4 + 1; n; n--)
        copy[next_random(state) % bytes] = (uint8_t)next_random(state);
    fuzz(copy, next_random(state) % 2 ? bytes : (size_t)(next_random(state) % bytes));
    free(copy);
}

static void run_corpus(fsdp_test *t, const char *name, fuzz_fn *fuzz)
{
    char dir[600], path[1200];
    char **names;
    size_t n;
    uint64_t state = 1;
    snprintf(dir, sizeof dir, "%s/%s", fsdp_test_path("fuzz/corpus"), name);
    ASSERT_OK(fsdp_directory_list(dir, &names, &n));
    ASSERT(n > 0);
    for (size_t i = 0; i < n; i++) {
        fsdp_mapping file;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        ASSERT_OK(fsdp_file_map(path, &file));
        fuzz(file.data, file.bytes);
        for (size_t k = 0; file.bytes && k < MUTANTS / n + 1; k++)
            run_mutant(fuzz, file.data, file.bytes, &state);
        fsdp_file_unmap(&file);
    }
    fsdp_free(names);
}

#define CORPUS(name)                                                                               \
    TEST(name##_finds_nothing_in_its_corpus)                                                       \
    {                                                                                              \
        run_corpus(t, #name, name);                                                                \
    }
CORPUS(fuzz_accelerate)
CORPUS(fuzz_arrow)
CORPUS(fuzz_block_sums)
CORPUS(fuzz_config)
CORPUS(fuzz_dashboard)
CORPUS(fuzz_dcp)
CORPUS(fuzz_event_file)
CORPUS(fuzz_index)
CORPUS(fuzz_json_text)
CORPUS(fuzz_metrics_csv)
CORPUS(fuzz_model_json)
CORPUS(fuzz_jinja)
CORPUS(fuzz_rows)
CORPUS(fuzz_safetensors)
CORPUS(fuzz_sentencepiece)
CORPUS(fuzz_tiktoken)
CORPUS(fuzz_tokenizer_json)
CORPUS(fuzz_torch_file)
CORPUS(fuzz_vocab_txt)
