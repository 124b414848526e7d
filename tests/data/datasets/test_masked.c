/* Rows of masked language models: what is drawn, on what it depends, and rows that are used as they
 * are. */
#include "src/data/datasets/masked_dataset.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "tests/test.h"

enum {
    VOCAB = 1000,
    MASK = 4,
    CLS = 5,
    N = 20000
};

static const int32_t special[] = {CLS, 6};
static const fsdp_masking masking = {
    .mask_token_id = MASK, .special_ids = special, .n_special = FSDP_LENGTH(special)};

static void set_row(fsdp_test *t, fsdp_example *e)
{
    static int32_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = i % 10 == 0 ? CLS : 7 + i % 900;
    ASSERT_OK(fsdp_token_list_set(&e->source, ids, N));
    e->labels.len = 0;
}

/* Of 18,000 tokens that are not special, 15 % are chosen. Bounds are five standard deviations. */
TEST(tokens_are_drawn_as_in_transformers_collator)
{
    static uint8_t is_special[VOCAB] = {[CLS] = 1};
    const double probabilities[] = {0.15, 0.5, 1.0};
    for (size_t k = 0; k < FSDP_LENGTH(probabilities); k++) {
        fsdp_example e = {0};
        const fsdp_masking m = {.mlm_probability = probabilities[k], .mask_token_id = MASK};
        int chosen = 0, masked = 0, kept = 0, other = 0;
        set_row(t, &e);
        CHECK_HERE();
        ASSERT_OK(fsdp_mask_tokens(&m, is_special, VOCAB, 77 + k, &e));
        ASSERT_INT(e.labels.len, N);
        for (int i = 0; i < N; i++) {
            const int32_t before = i % 10 == 0 ? CLS : 7 + i % 900;
            if (e.labels.ids[i] == FSDP_IGNORE_INDEX) {
                ASSERT_INT(e.source.ids[i], before);
                continue;
            }
            ASSERT(before != CLS);
            ASSERT_INT(e.labels.ids[i], before);
            ASSERT(e.source.ids[i] >= 0 && e.source.ids[i] < VOCAB);
            chosen++;
            masked += e.source.ids[i] == MASK;
            kept += e.source.ids[i] == before;
            other += e.source.ids[i] != MASK && e.source.ids[i] != before;
        }
        const double want = probabilities[k] * (N * 0.9);
        ASSERT_NEAR(chosen, want, 5 * sqrt(want * (1 - probabilities[k])) + 1e-9);
        ASSERT_NEAR(masked, 0.8 * chosen, 5 * sqrt(0.16 * chosen));
        ASSERT_NEAR(kept, 0.1 * chosen, 5 * sqrt(0.09 * chosen));
        ASSERT_NEAR(other, 0.1 * chosen, 5 * sqrt(0.09 * chosen));
        fsdp_example_fini(&e);
    }
}

static const char *write_rows(fsdp_test *t, const char *text)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/rows.jsonl", fsdp_test_dir(t));
    if (fsdp_file_write(path, text, strlen(text)) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "not written");
    return path;
}

static fsdp_status open_rows(const char *path, const fsdp_masking *m, fsdp_dataset **set)
{
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_MASKED_LM, .vocab_size = VOCAB, .type_vocab_size = 2, .masking = m};
    return fsdp_dataset_open(path, &options, set);
}

static bool same(const fsdp_token_list *a, const fsdp_token_list *b)
{
    return a->len == b->len && memcmp(a->ids, b->ids, a->len * sizeof *a->ids) == 0;
}

#define LONG_ROW "11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35"

/* The same draw gives the same row; another seed, epoch or index gives another one. */
TEST(a_draw_depends_on_seed_epoch_and_index_alone)
{
    const char *path =
        write_rows(t, "{\"input_ids\":[" LONG_ROW "]}\n{\"input_ids\":[" LONG_ROW "]}\n");
    const fsdp_draw draws[] = {{.seed = 1}, {.seed = 2}, {.seed = 1, .epoch = 1}};
    fsdp_dataset *set;
    fsdp_example first = {0}, again = {0};
    ASSERT_OK(open_rows(path, &masking, &set));
    ASSERT_INT(fsdp_dataset_len(set), 2);
    for (size_t i = 0; i < 3; i++)
        for (int64_t index = 0; index < 2; index++) {
            ASSERT_OK(fsdp_dataset_draw(set, 0, &draws[0], &first));
            ASSERT_OK(fsdp_dataset_draw(set, index, &draws[i], &again));
            ASSERT_INT(same(&first.labels, &again.labels), i == 0 && index == 0);
        }
    fsdp_example_fini(&first);
    fsdp_example_fini(&again);
    fsdp_dataset_close(set);
}

/* Without vocab_size and tokenizer, random tokens cannot be drawn. Rows that have been masked
 * already can be used. */
TEST(masking_needs_the_size_of_the_vocabulary)
{
    fsdp_dataset *set;
    fsdp_dataset_options options = {.task = FSDP_TASK_MASKED_LM, .masking = &masking};
    const char *path = write_rows(t, "{\"input_ids\":[5,4],\"labels\":[-100,9]}\n");
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_INVALID,
                 "but its size is not known: set vocab_size or tokenizer");
    options.masking = NULL;
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    fsdp_dataset_close(set);
}

TEST(rows_with_labels_are_used_as_they_are)
{
    static const int32_t ids[] = {CLS, MASK, 8}, labels[] = {-100, 9, -100}, types[] = {0, 1, 1};
    const char *path = write_rows(
        t, "{\"input_ids\":[0,5,4,8],\"attention_mask\":[0,1,1,1],\"labels\":[-100,-100,9,-100],"
           "\"token_type_ids\":[0,0,1,1]}\n");
    fsdp_dataset *set;
    fsdp_example e = {0};
    ASSERT_OK(open_rows(path, NULL, &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &e));
    ASSERT(e.source.len == 3 && memcmp(e.source.ids, ids, sizeof ids) == 0);
    ASSERT(e.labels.len == 3 && memcmp(e.labels.ids, labels, sizeof labels) == 0);
    ASSERT(e.token_type_ids.len == 3 && memcmp(e.token_type_ids.ids, types, sizeof types) == 0);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

/* A program may pass the same options for every task. */
TEST(rows_of_other_tasks_are_not_masked)
{
    const char *path =
        write_rows(t, "{\"input_ids\":[8,9,10],\"prompt_length\":1}\n{\"input_ids\":[8,9]}\n");
    const fsdp_masking all = {.mlm_probability = 1.0, .mask_token_id = MASK};
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .vocab_size = VOCAB, .masking = &all};
    fsdp_dataset *set;
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &e));
    ASSERT(e.labels.len == 3 && e.labels.ids[0] == FSDP_IGNORE_INDEX && e.source.ids[1] == 9);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

TEST(what_cannot_be_masked_is_named)
{
    fsdp_dataset *set;
    fsdp_example e = {0};
    const fsdp_masking unknown = {.mask_token_id = -1, .why_no_mask = "because"};
    const fsdp_masking beyond = {.mask_token_id = VOCAB}, none = {.mlm_probability = -0.1};
    ASSERT_OK(open_rows(write_rows(t, "{\"input_ids\":[8,9]}\n"), &unknown, &set));
    ASSERT_ERROR(fsdp_dataset_get(set, 0, &e), FSDP_ERR_INVALID,
                 "example 0 has no labels, and cannot be masked: the id of the mask token is not "
                 "known; because");
    fsdp_dataset_close(set);
    fsdp_example_fini(&e);
    ASSERT_ERROR(open_rows(write_rows(t, "{\"input_ids\":[8,9]}\n"), &beyond, &set),
                 FSDP_ERR_INVALID, "the mask token has id 1000, the vocabulary 1000 ids");
    ASSERT_ERROR(open_rows(write_rows(t, "{\"input_ids\":[8,9]}\n"), &none, &set), FSDP_ERR_INVALID,
                 "mlm_probability -0.1 is not in (0, 1]");
    ASSERT_ERROR(
        open_rows(write_rows(t, "{\"prompt_ids\":[8],\"completion_ids\":[9]}\n"), &masking, &set),
        FSDP_ERR_FORMAT, "prompt_ids: expected none: masked language models have no");
    ASSERT_ERROR(open_rows(write_rows(t, "{\"input_ids\":[8,9],\"labels\":[1]}\n"), &masking, &set),
                 FSDP_ERR_FORMAT, "labels: expected 2 entries, as in input_ids");
    ASSERT_ERROR(open_rows(write_rows(t, "{\"input_ids\":[8,9],\"token_type_ids\":[0,2]}\n"),
                           &masking, &set),
                 FSDP_ERR_FORMAT, "token_type_ids[1]: expected");
}

/* Programs pass the same options for all tasks. */
TEST(rows_of_causal_models_are_not_masked)
{
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .vocab_size = 1000, .masking = &masking};
    fsdp_dataset *set;
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_open(write_rows(t, "{\"prompt_ids\":[8],\"completion_ids\":[9]}\n"),
                                &options, &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &e));
    ASSERT_INT(e.source.len, 2);
    ASSERT_INT(e.labels.ids[1], 9);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

TEST(opening_without_memory_leaves_nothing)
{
    const char *path = write_rows(t, "{\"input_ids\":[8,9]}\n");
    fsdp_dataset *set;
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = open_rows(path, &masking, &set);
        fsdp_alloc_fail_at(0);
    }
    fsdp_dataset_close(set);
}
