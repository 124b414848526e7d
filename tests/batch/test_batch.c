/* Packing: small cases with expected values written by hand, and random padded arrays against a
 * naive copy. */
#include <fsdp/batch.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/philox.h"
#include "src/batch/batch.h"
#include "tests/test.h"

enum {
    X = FSDP_IGNORE_INDEX
};

static const fsdp_batch_format seven_nine = {.decoder_start_token_id = 7, .pad_token_id = 9};

static void check_ids(fsdp_test *t, const char *what, const int32_t *actual,
                      const int32_t *expected, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (actual[i] != expected[i])
            FAIL("%s[%zu] is %d, not %d", what, i, (int)actual[i], (int)expected[i]);
}
#define CHECK_IDS(actual, ...)                                                                     \
    do {                                                                                           \
        const int32_t expected_[] = {__VA_ARGS__};                                                 \
        check_ids(t, #actual, actual, expected_, sizeof expected_ / sizeof *expected_);            \
        CHECK_HERE();                                                                              \
    } while (0)

/* Three rows: an ignored label between others keeps its position, trailing ones are removed, and a
 * row of ignored labels is empty. Start id 7 and padding id 9 distinguish the two. */
TEST(rows_are_packed_and_labels_shifted)
{
    const int32_t a[] = {11, 12, 13}, a_labels[] = {21, X, 23, 1, X, X};
    const int32_t b[] = {14}, b_labels[] = {X, X};
    const int32_t c[] = {15, 16}, c_labels[] = {X, 24};
    const fsdp_batch_row rows[] = {
        {.source = a, .labels = a_labels, .source_len = 3, .labels_len = 6},
        {.source = b, .labels = b_labels, .source_len = 1, .labels_len = 2},
        {.source = c, .labels = c_labels, .source_len = 2, .labels_len = 2}};
    fsdp_batch *batch;
    ASSERT_OK(fsdp_batch_create(rows, 3, &seven_nine, &batch));
    ASSERT_INT(batch->rows, 3);
    ASSERT_INT(batch->source_tokens, 6);
    ASSERT_INT(batch->target_tokens, 6);
    ASSERT_INT(batch->label_tokens, 4);
    ASSERT_INT(batch->max_source_len, 3);
    ASSERT_INT(batch->max_target_len, 4);
    CHECK_IDS(batch->input_ids, 11, 12, 13, 14, 15, 16);
    CHECK_IDS(batch->source_offsets, 0, 3, 4, 6);
    CHECK_IDS(batch->target_offsets, 0, 4, 4, 6);
    CHECK_IDS(batch->labels, 21, X, 23, 1, X, 24);
    CHECK_IDS(batch->decoder_input_ids, 7, 21, 9, 23, 7, 9);
    ASSERT(batch->source_positions == NULL && batch->target_positions == NULL);
    ASSERT(fsdp_batch_retain(batch) == batch);
    fsdp_batch_release(batch);
    ASSERT_INT(batch->rows, 3);
    fsdp_batch_release(batch);
    fsdp_batch_release(NULL);
}

TEST(a_batch_without_rows_is_a_batch)
{
    fsdp_batch *batch;
    ASSERT_OK(fsdp_batch_create(NULL, 0, NULL, &batch));
    ASSERT_INT(batch->rows, 0);
    ASSERT_INT(batch->source_offsets[0], 0);
    ASSERT_INT(batch->target_offsets[0], 0);
    ASSERT_INT(batch->label_tokens, 0);
    fsdp_batch_release(batch);
    ASSERT_ERROR(fsdp_batch_create(NULL, -1, NULL, &batch), FSDP_ERR_INVALID, "-1 rows");
}

/* Random lengths, padding on a random side, random ignored labels. Every packed token is the one at
 * its position, in order, and the positions are exactly those with mask 1. */
static void check_random_padded(fsdp_test *t, uint64_t seed)
{
    fsdp_philox r = fsdp_philox4x32(seed, 0, 0);
    enum {
        MOST = 5,
        WIDTH = 9
    };
    int64_t ids[MOST * WIDTH], mask[MOST * WIDTH], labels[MOST * WIDTH];
    int64_t rows = 1 + r.v[0] % MOST, width = 1 + r.v[1] % WIDTH, target_width = r.v[2] % WIDTH;
    for (int64_t i = 0; i < rows; i++) {
        fsdp_philox q = fsdp_philox4x32(seed, 1, (uint64_t)i);
        int64_t len = 1 + q.v[0] % (uint32_t)width, left = q.v[1] % 2 ? width - len : 0;
        for (int64_t j = 0; j < width; j++) {
            ids[i * width + j] = 100 * i + j;
            mask[i * width + j] = j >= left && j < left + len;
        }
        for (int64_t j = 0; j < target_width; j++)
            labels[i * target_width + j] = q.v[2] >> j & 1 ? 1000 + 100 * i + j : X;
    }
    const fsdp_padded padded = {.input_ids = ids,
                                .attention_mask = mask,
                                .labels = labels,
                                .rows = rows,
                                .source_width = width,
                                .target_width = target_width};
    fsdp_batch *batch;
    ASSERT_OK(fsdp_batch_from_padded(&padded, &seven_nine, &batch));
    int32_t source = 0, target = 0, counted = 0;
    for (int64_t i = 0; i < rows; i++) {
        ASSERT_INT(batch->source_offsets[i], source);
        ASSERT_INT(batch->target_offsets[i], target);
        for (int64_t at = i * width; at < (i + 1) * width; at++)
            if (mask[at]) {
                ASSERT_INT(batch->source_positions[source], at);
                ASSERT_INT(batch->input_ids[source++], ids[at]);
            }
        int64_t kept = target_width;
        while (kept > 0 && labels[i * target_width + kept - 1] == X)
            kept--;
        for (int64_t j = 0, at = i * target_width; j < kept; j++, at++) {
            int64_t before = j == 0 ? 7 : labels[at - 1] == X ? 9 : labels[at - 1];
            ASSERT_INT(batch->target_positions[target], at);
            ASSERT_INT(batch->decoder_input_ids[target], before);
            ASSERT_INT(batch->labels[target++], labels[at]);
            counted += labels[at] != X;
        }
    }
    ASSERT_INT(batch->source_tokens, source);
    ASSERT_INT(batch->source_offsets[rows], source);
    ASSERT_INT(batch->target_tokens, target);
    ASSERT_INT(batch->target_offsets[rows], target);
    ASSERT_INT(batch->label_tokens, counted);
    fsdp_batch_release(batch);
}

TEST(padded_arrays_are_packed_where_the_mask_is_1)
{
    for (uint64_t seed = 1; seed <= 500 && !t->failed; seed++) {
        check_random_padded(t, seed);
        if (t->failed)
            printf("seed %llu\n", (unsigned long long)seed);
    }
}

/* Labels are shifted within a document; its last token has none. */
TEST(causal_rows_are_documents_with_shifted_labels)
{
    const fsdp_batch_format causal = {.task = FSDP_TASK_CAUSAL_LM};
    const int32_t a[] = {11, 12, 13, 14, 15}, positions[] = {0, 1, 2, 0, 1}, b[] = {16, 17};
    const int32_t b_labels[] = {X, 18}, c[] = {19};
    const fsdp_batch_row rows[] = {
        {.source = a, .source_len = 5, .position_ids = positions},
        {.source = b, .labels = b_labels, .source_len = 2, .labels_len = 2},
        {.source = c, .source_len = 1},
    };
    fsdp_batch *batch;
    ASSERT_OK(fsdp_batch_create(rows, 3, &causal, &batch));
    ASSERT_INT(batch->rows, 4);
    ASSERT_INT(batch->source_tokens, 8);
    ASSERT_INT(batch->target_tokens, 0);
    ASSERT_INT(batch->n_labels, 8);
    ASSERT_INT(batch->label_tokens, 4);
    ASSERT_INT(batch->max_source_len, 3);
    CHECK_IDS(batch->input_ids, 11, 12, 13, 14, 15, 16, 17, 19);
    CHECK_IDS(batch->source_offsets, 0, 3, 5, 7, 8);
    CHECK_IDS(batch->position_ids, 0, 1, 2, 0, 1, 0, 1, 0);
    CHECK_IDS(batch->labels, 12, 13, X, 15, X, 18, X, X);
    ASSERT(batch->token_type_ids == NULL);
    fsdp_batch_release(batch);
}

/* A row of a token file has the token that follows its last one. If that begins a new document, it
 * is not a label. */
TEST(a_label_more_than_tokens_follows_the_last_one)
{
    const fsdp_batch_format causal = {.task = FSDP_TASK_CAUSAL_LM};
    const int32_t a[] = {11, 12, 13, 14}, positions[] = {0, 1, 0};
    const fsdp_batch_row rows[] = {
        {.source = a, .source_len = 3, .labels = a, .labels_len = 4},
        {.source = a, .source_len = 3, .labels = a, .labels_len = 4, .position_ids = positions},
    };
    fsdp_batch *batch;
    ASSERT_OK(fsdp_batch_create(rows, 2, &causal, &batch));
    ASSERT_INT(batch->n_labels, 6);
    ASSERT_INT(batch->label_tokens, 5);
    CHECK_IDS(batch->labels, 12, 13, 14, 12, X, 14);
    fsdp_batch_release(batch);
}

TEST(causal_rows_that_do_not_fit_are_refused)
{
    const fsdp_batch_format causal = {.task = FSDP_TASK_CAUSAL_LM};
    const int32_t ids[] = {1, 2, 3}, late[] = {1, 2, 3}, jump[] = {0, 2, 3};
    fsdp_batch_row row = {.source = ids, .source_len = 3, .labels = ids, .labels_len = 2};
    fsdp_batch *batch;
    ASSERT_ERROR(fsdp_batch_create(&row, 1, &causal, &batch), FSDP_ERR_INVALID,
                 "row 0: 2 labels for 3 ids");
    row.labels_len = 3;
    row.position_ids = late;
    ASSERT_ERROR(fsdp_batch_create(&row, 1, &causal, &batch), FSDP_ERR_INVALID, "entry 0 is 1");
    row.position_ids = jump;
    ASSERT_ERROR(fsdp_batch_create(&row, 1, &causal, &batch), FSDP_ERR_INVALID, "entry 1 is 2");
}

TEST(classified_rows_have_a_class_each)
{
    const fsdp_batch_format classes = {.task = FSDP_TASK_CLASSIFICATION};
    const int64_t ids[] = {0, 5, 6, 7, 8, 0}, mask[] = {0, 1, 1, 1, 1, 0};
    const int64_t types[] = {0, 0, 1, 0, 1, 0}, labels[] = {1, X};
    fsdp_padded p = {.input_ids = ids,
                     .attention_mask = mask,
                     .token_type_ids = types,
                     .labels = labels,
                     .rows = 2,
                     .source_width = 3,
                     .target_width = 1,
                     .n_classes = 2};
    fsdp_batch *batch;
    ASSERT_OK(fsdp_batch_from_padded(&p, &classes, &batch));
    ASSERT_INT(batch->rows, 2);
    ASSERT_INT(batch->n_labels, 2);
    ASSERT_INT(batch->label_tokens, 1);
    CHECK_IDS(batch->input_ids, 5, 6, 7, 8);
    CHECK_IDS(batch->token_type_ids, 0, 1, 0, 1);
    CHECK_IDS(batch->source_offsets, 0, 2, 4);
    CHECK_IDS(batch->labels, 1, X);
    ASSERT_INT(batch->source_positions[0], 1);
    ASSERT_INT(batch->source_positions[2], 3);
    fsdp_batch_release(batch);
    p.n_classes = 1;
    ASSERT_ERROR(fsdp_batch_from_padded(&p, &classes, &batch), FSDP_ERR_INVALID,
                 "row 0: labels: column 0 is 1, not in [0, 1)");
}

TEST(negative_labels_that_are_not_ignored_are_refused)
{
    static const fsdp_task tasks[] = {FSDP_TASK_SEQ2SEQ, FSDP_TASK_CAUSAL_LM,
                                      FSDP_TASK_CLASSIFICATION};
    for (size_t i = 0; i < FSDP_LENGTH(tasks); i++) {
        const fsdp_batch_format format = {.task = tasks[i]};
        const int32_t source[] = {1, 2}, good[] = {X, 3}, bad[] = {4, -1};
        const int32_t n = tasks[i] == FSDP_TASK_CLASSIFICATION ? 1 : 2;
        const fsdp_batch_row rows[] = {
            {.source = source, .source_len = 2, .labels = good, .labels_len = n},
            {.source = source, .source_len = 2, .labels = bad + 2 - n, .labels_len = n}};
        fsdp_batch *batch;
        ASSERT_ERROR(fsdp_batch_create(rows, 2, &format, &batch), FSDP_ERR_INVALID,
                     n == 1 ? "row 1: labels: entry 0 is -1" : "row 1: labels: entry 1 is -1");
        ASSERT_OK(fsdp_batch_create(rows, 1, &format, &batch));
        fsdp_batch_release(batch);
    }
}

TEST(arrays_that_cannot_be_packed_are_refused)
{
    int64_t ids[] = {1, 2, 3, 4, 5, 6}, mask[] = {1, 1, 1, 1, 1, 1}, labels[] = {1, 2};
    fsdp_padded p = {.input_ids = ids,
                     .attention_mask = mask,
                     .labels = labels,
                     .rows = 2,
                     .source_width = 3,
                     .target_width = 1,
                     .vocab_size = 10};
    fsdp_batch *batch = NULL;
    mask[4] = 0;
    ASSERT_ERROR(fsdp_batch_from_padded(&p, NULL, &batch), FSDP_ERR_INVALID,
                 "row 1: attention_mask: a hole at column 1");
    mask[4] = 2;
    ASSERT_ERROR(fsdp_batch_from_padded(&p, NULL, &batch), FSDP_ERR_INVALID, "column 1 is 2");
    mask[3] = mask[4] = mask[5] = 0;
    ASSERT_ERROR(fsdp_batch_from_padded(&p, NULL, &batch), FSDP_ERR_INVALID,
                 "row 1: attention_mask is 0 everywhere");
    mask[3] = 1;
    ids[3] = 10;
    ASSERT_ERROR(fsdp_batch_from_padded(&p, NULL, &batch), FSDP_ERR_INVALID,
                 "row 1: input_ids: column 0 is 10, not in [0, 10)");
    ids[3] = -1;
    ASSERT_ERROR(fsdp_batch_from_padded(&p, NULL, &batch), FSDP_ERR_INVALID, "column 0 is -1");
    ids[3] = 4;
    labels[0] = -101;
    ASSERT_ERROR(fsdp_batch_from_padded(&p, NULL, &batch), FSDP_ERR_INVALID,
                 "row 0: labels: column 0 is -101");
    labels[0] = X;
    ids[5] = 1 << 20; /* masked, so it is not checked */
    ASSERT(batch == NULL);
    ASSERT_OK(fsdp_batch_from_padded(&p, NULL, &batch));
    ASSERT_INT(batch->source_tokens, 4);
    ASSERT_INT(batch->target_tokens, 1);
    fsdp_batch_release(batch);
    p.labels = NULL;
    p.attention_mask = NULL;
    p.vocab_size = 0;
    ASSERT_OK(fsdp_batch_from_padded(&p, NULL, &batch));
    ASSERT_INT(batch->source_tokens, 6);
    ASSERT_INT(batch->target_tokens, 0);
    fsdp_batch_release(batch);
}

TEST(a_batch_is_whole_or_not_there_when_memory_runs_out)
{
    const int64_t ids[] = {1, 2, 3};
    const fsdp_padded p = {
        .input_ids = ids, .labels = ids, .rows = 1, .source_width = 3, .target_width = 3};
    fsdp_batch *batch = NULL;
    for (long n = 1; n <= 4; n++) {
        fsdp_alloc_fail_at(n);
        ASSERT_ERROR(fsdp_batch_from_padded(&p, NULL, &batch), FSDP_ERR_NOMEM, "memory");
        ASSERT(batch == NULL);
    }
    fsdp_alloc_fail_at(0);
}

/* A row without labels has NaN in all places, and does not count. */
TEST(labels_that_are_numbers_are_packed)
{
    static const int32_t ids[] = {4, 5};
    static const float targets[] = {0.5f, -2, 1, 0};
    static const int64_t wide[] = {4, 5, 4, 5};
    const fsdp_batch_format format = {.task = FSDP_TASK_CLASSIFICATION,
                                      .problem_type = FSDP_PROBLEM_REGRESSION,
                                      .num_targets = 2};
    const fsdp_batch_row rows[] = {
        {.source = ids, .source_len = 2, .targets = targets, .targets_len = 2},
        {.source = ids, .source_len = 1},
        {.source = ids, .source_len = 2, .targets = targets + 2, .targets_len = 2}};
    const fsdp_padded padded = {
        .input_ids = wide, .targets = targets, .rows = 2, .source_width = 2};
    fsdp_batch *b;
    ASSERT_OK(fsdp_batch_create(rows, 3, &format, &b));
    ASSERT_INT(b->num_targets, 2);
    ASSERT_INT(b->label_tokens, 2);
    CHECK_IDS(b->labels, 0, X, 0);
    ASSERT(b->targets[0] == 0.5f && b->targets[1] == -2 && b->targets[4] == 1 &&
           b->targets[5] == 0);
    ASSERT(b->targets[2] != b->targets[2] && b->targets[3] != b->targets[3]);
    fsdp_batch_release(b);
    ASSERT_OK(fsdp_batch_from_padded(&padded, &format, &b));
    ASSERT_INT(b->label_tokens, 2);
    ASSERT(b->targets[0] == 0.5f && b->targets[3] == 0);
    fsdp_batch_release(b);
    ASSERT_OK(fsdp_batch_create(NULL, 0, &format, &b));
    ASSERT_INT(b->num_targets, 2);
    fsdp_batch_release(b);
}

TEST(labels_that_do_not_fit_the_problem_type_are_refused)
{
    static const int32_t ids[] = {4}, class[] = {1};
    static const float targets[] = {1, 0, INFINITY};
    const fsdp_batch_format numbers = {.task = FSDP_TASK_CLASSIFICATION,
                                       .problem_type = FSDP_PROBLEM_MULTI_LABEL,
                                       .num_targets = 2},
                            classes = {.task = FSDP_TASK_CLASSIFICATION};
    const fsdp_batch_row
        three = {.source = ids, .source_len = 1, .targets = targets, .targets_len = 3},
        infinite = {.source = ids, .source_len = 1, .targets = targets + 1, .targets_len = 2},
        a_class = {.source = ids, .source_len = 1, .labels = class, .labels_len = 1};
    fsdp_batch *b;
    ASSERT_ERROR(fsdp_batch_create(&three, 1, &numbers, &b), FSDP_ERR_INVALID,
                 "row 0: 3 labels that are numbers, but the model has 2 labels");
    ASSERT_ERROR(fsdp_batch_create(&infinite, 1, &numbers, &b), FSDP_ERR_INVALID,
                 "row 0: label 1 is not finite");
    ASSERT_ERROR(fsdp_batch_create(&a_class, 1, &numbers, &b), FSDP_ERR_INVALID,
                 "row 0: 0 labels that are numbers, but the model has 2 labels");
    ASSERT_ERROR(fsdp_batch_create(&three, 1, &classes, &b), FSDP_ERR_INVALID,
                 "row 0: 3 labels that are numbers, but the model's labels are classes");
}
