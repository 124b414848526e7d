/* What the tests of `fsdp tokenize` share: runs with the tokenizer fixtures/chat on files in the
 * folder of the test. */
#pragma once
#include "src/tokenize/tokenize.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/io.h"
#include "src/base/str.h"
#include "tests/test.h"

static inline const char *in_dir(fsdp_test *t, const char *name)
{
    static char paths[64][700];
    static int next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static inline fsdp_tokenize_config config_of(fsdp_test *t, const char *data, const char *output)
{
    static char tokenizer[700];
    snprintf(tokenizer, sizeof tokenizer, "%s", fsdp_test_path("fixtures/chat"));
    return (fsdp_tokenize_config){.tokenizer = tokenizer,
                                  .data = in_dir(t, data),
                                  .output = in_dir(t, output),
                                  .task = FSDP_TASK_CAUSAL_LM,
                                  .form.csv_quotes = true,
                                  .append_eos = true,
                                  .add_special_tokens = true,
                                  .seed = 1,
                                  .threads = 1,
                                  .journal_bytes = 1 << 30,
                                  .rows = 5};
}

/* Run, and set *lines to what was printed. The caller frees *lines. */
static inline fsdp_status run_printing(const fsdp_tokenize_config *config, char **lines)
{
    size_t size = 0;
    *lines = NULL;
    FILE *out = open_memstream(lines, &size);
    const fsdp_status status = fsdp_tokenize_run(config, out);
    fclose(out);
    return status;
}

static inline fsdp_status run(const fsdp_tokenize_config *config)
{
    char *lines;
    const fsdp_status status = run_printing(config, &lines);
    free(lines);
    return status;
}

static inline void put(fsdp_test *t, const char *name, const char *text)
{
    ASSERT_OK(fsdp_file_write(in_dir(t, name), text, strlen(text)));
}

static inline void check_same_file(fsdp_test *t, const char *a, const char *b)
{
    fsdp_mapping first, second;
    ASSERT_OK(fsdp_file_map(in_dir(t, a), &first));
    ASSERT_OK(fsdp_file_map(in_dir(t, b), &second));
    const bool same = first.bytes > 0 && first.bytes == second.bytes &&
                      memcmp(first.data, second.data, first.bytes) == 0;
    fsdp_file_unmap(&first);
    fsdp_file_unmap(&second);
    if (!same)
        FAIL("%s and %s differ", a, b);
}

/* Write documents of different lengths, of `bytes` bytes together. */
static inline void put_corpus(fsdp_test *t, const char *name, size_t bytes)
{
    fsdp_str text = {0};
    for (unsigned i = 0; text.len < bytes; i++) {
        fsdp_str_printf(&text, "document %u\n", i * 2654435761u);
        for (unsigned k = 0; k < i % 50; k++)
            fsdp_str_printf(&text, "hello world in Paris, %u times \u00e9.\n", k * i);
        fsdp_str_printf(&text, "\n");
    }
    ASSERT(!text.failed);
    put(t, name, text.data);
    fsdp_str_fini(&text);
}

static inline bool same_list(const fsdp_token_list *a, const fsdp_token_list *b)
{
    return a->len == b->len && (!a->len || memcmp(a->ids, b->ids, a->len * sizeof *a->ids) == 0);
}

static inline bool same_targets(const fsdp_example *a, const fsdp_example *b)
{
    return a->num_targets == b->num_targets &&
           (!a->num_targets ||
            memcmp(a->targets, b->targets, a->num_targets * sizeof *a->targets) == 0);
}

/* Check that the folder `name`, opened with `of_folder`, has the rows that a dataset of `data` has.
 */
static inline void check_rows_with(fsdp_test *t, const char *data,
                                   const fsdp_dataset_options *options, const char *name,
                                   const fsdp_dataset_options *of_folder)
{
    fsdp_dataset *texts, *tokens;
    fsdp_example a = {0}, b = {0};
    ASSERT_OK(fsdp_dataset_open(in_dir(t, data), options, &texts));
    ASSERT_OK(fsdp_dataset_open(in_dir(t, name), of_folder, &tokens));
    ASSERT_INT(fsdp_dataset_len(tokens), fsdp_dataset_len(texts));
    for (int64_t i = 0; i < fsdp_dataset_len(texts); i++) {
        ASSERT_OK(fsdp_dataset_get(texts, i, &a));
        ASSERT_OK(fsdp_dataset_get(tokens, i, &b));
        if (a.labels.len == 0) /* all tokens have a loss */
            ASSERT_OK(fsdp_token_list_set(&a.labels, a.source.ids, a.source.len));
        if (b.labels.len == 0)
            ASSERT_OK(fsdp_token_list_set(&b.labels, b.source.ids, b.source.len));
        if (!same_list(&a.source, &b.source) || !same_list(&a.labels, &b.labels) ||
            !same_targets(&a, &b))
            FAIL("row %d of %s is not that of %s", (int)i, name, data);
    }
    fsdp_example_fini(&a);
    fsdp_example_fini(&b);
    fsdp_dataset_close(texts);
    fsdp_dataset_close(tokens);
}

/* The same, opened with the options of `data`. */
static inline void check_rows(fsdp_test *t, const char *data, const char *name,
                              const fsdp_dataset_options *options)
{
    check_rows_with(t, data, options, name, options);
}

/* Run with a limit on the size of a file, as on a full disk. */
static inline fsdp_status run_limited(const fsdp_tokenize_config *config, rlim_t bytes)
{
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
    const fsdp_status status = run(config);
    setrlimit(RLIMIT_FSIZE, &before);
    return status;
}
