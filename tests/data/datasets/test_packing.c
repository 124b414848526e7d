/* Several files as one dataset, plain text, and rows that are joined. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <fsdp/data.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/data/datasets/dataset.h"
#include "src/data/rows/rows_form.h"
#include "tests/test.h"

static char *path_of(fsdp_test *t, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static const char *write_text(fsdp_test *t, const char *name, const char *text)
{
    const char *path = path_of(t, name);
    if (fsdp_file_write(path, text, strlen(text)) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
}

/* The examples of a dataset, as "ids/labels/positions;". A label without loss is "_". */
static char *list_examples(fsdp_test *t, const fsdp_dataset *set)
{
    fsdp_str s = {0};
    fsdp_example e = {0};
    for (int64_t i = 0; i < fsdp_dataset_len(set); i++) {
        if (fsdp_dataset_get(set, i, &e) != FSDP_OK)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
        for (size_t k = 0; k < e.source.len; k++)
            fsdp_str_printf(&s, "%s%d", k ? " " : "", (int)e.source.ids[k]);
        fsdp_str_printf(&s, e.labels.len ? "/" : "");
        for (size_t k = 0; k < e.labels.len; k++)
            if (e.labels.ids[k] == FSDP_IGNORE_INDEX)
                fsdp_str_printf(&s, "_");
            else
                fsdp_str_printf(&s, "%d", (int)e.labels.ids[k]);
        fsdp_str_printf(&s, e.position_ids.len ? "/" : "");
        for (size_t k = 0; k < e.position_ids.len; k++)
            fsdp_str_printf(&s, "%d", (int)e.position_ids.ids[k]);
        fsdp_str_printf(&s, ";");
    }
    fsdp_example_fini(&e);
    return fsdp_str_take(&s);
}

static void check_examples(fsdp_test *t, const char *path, const fsdp_dataset_options *options,
                           const char *expected)
{
    fsdp_dataset *set;
    ASSERT_OK(fsdp_dataset_open(path, options, &set));
    char *found = list_examples(t, set);
    ASSERT_STR(found, expected);
    fsdp_free(found);
    fsdp_dataset_close(set);
}

static const fsdp_dataset_options causal = {.task = FSDP_TASK_CAUSAL_LM, .vocab_size = 100};

/* ---- packing ---- */

TEST(wrapped_rows_are_concatenated_and_cut)
{
    fsdp_dataset_options options = causal;
    options.packing = FSDP_PACKING_WRAPPED;
    options.max_length = 4;
    const char *path = write_text(t, "a.jsonl",
                                  "{\"input_ids\": [1, 2, 3]}\n"
                                  "{\"input_ids\": [4, 5], \"labels\": [-100, 5]}\n"
                                  "{\"input_ids\": [6, 7, 8, 9]}\n"
                                  "{\"input_ids\": [10]}\n");
    check_examples(t, path, &options, "1 2 3 4/123_;5 6 7 8/5678;9 10/910;");
    options.max_samples = 3;
    fsdp_dataset *set;
    fsdp_left_out out;
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), 2); /* one token is left: it has nothing to predict */
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.unused_tokens, 1);
    ASSERT(fsdp_dataset_uses(set) & FSDP_USES_PACKING);
    fsdp_dataset_close(set);
}

/* Rows of all lengths, of ids and of texts, up to more than LONG_PIECES packed rows: what is cut is
 * their concatenation. */
TEST(wrapped_rows_may_be_longer_than_a_packed_row)
{
    fsdp_str text = {0}, expected = {0};
    int64_t at = 0;
    for (int row = 0; row < 58; row++) {
        const int n = 1 + row * row % 47;
        fsdp_str_printf(&text, "{\"input_ids\": [");
        for (int k = 0; k < n; k++)
            fsdp_str_printf(&text, "%s%d", k ? ", " : "", (row * 53 + k) % 97);
        fsdp_str_printf(&text, "]");
        fsdp_str_printf(&text, row % 3 ? "}\n" : ", \"prompt_length\": 1}\n");
        for (int k = 0; k < n; k++, at++)
            fsdp_str_printf(&expected, "%d %d;", (row * 53 + k) % 97,
                            k == 0 && row % 3 == 0 ? FSDP_IGNORE_INDEX : (row * 53 + k) % 97);
    }
    const char *path = write_text(t, "a.jsonl", text.data);
    fsdp_dataset_options options = causal;
    options.packing = FSDP_PACKING_WRAPPED;
    options.max_length = 5;
    fsdp_dataset *set;
    fsdp_left_out out;
    fsdp_example e = {0};
    text.len = 0;
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), (at + 4) / 5);
    for (int64_t i = 0; i < fsdp_dataset_len(set); i++) {
        ASSERT_OK(fsdp_dataset_get(set, i, &e));
        ASSERT_INT(e.source.len, at - i * 5 < 5 ? at - i * 5 : 5);
        for (size_t k = 0; k < e.source.len; k++)
            fsdp_str_printf(&text, "%d %d;", (int)e.source.ids[k], (int)e.labels.ids[k]);
    }
    ASSERT_STR(text.data, expected.data);
    ASSERT_OK(fsdp_dataset_left_out(set, 0, &out));
    ASSERT_INT(out.cut_rows, 0);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
    fsdp_str_fini(&text);
    fsdp_str_fini(&expected);
}

/* A packed row does not depend on which ones were read before. */
TEST(wrapped_rows_of_one_long_text_are_read_in_any_order)
{
    enum {
        LENGTH = 30000
    };
    fsdp_str text = {0};
    fsdp_tokenizer *tokenizer;
    fsdp_token_list ids = {0};
    fsdp_dataset *set;
    fsdp_example e = {0};
    for (int i = 0; i < LENGTH / 10; i++)
        fsdp_str_printf(&text, "word%06d", i * 7919);
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/chat"), &tokenizer));
    ASSERT_OK(fsdp_tokenizer_encode(tokenizer, text.data, text.len, 0, &ids));
    char *row = fsdp_strdup_printf("{\"text\": \"%s\"}\n", text.data);
    const char *path = write_text(t, "a.jsonl", row);
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM,
                                          .tokenizer = tokenizer,
                                          .packing = FSDP_PACKING_WRAPPED,
                                          .max_length = 64};
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    const int64_t len = fsdp_dataset_len(set);
    ASSERT(len > 100 && len == ((int64_t)ids.len + 1 + 63) / 64); /* 1: eos */
    for (int64_t k = 0; k < len; k++) {
        const int64_t i = k * 37 % len;
        ASSERT_OK(fsdp_dataset_get(set, i, &e));
        const size_t n = i + 1 < len ? 64 : ids.len - (size_t)i * 64;
        ASSERT(memcmp(e.source.ids, ids.ids + i * 64, n * sizeof *ids.ids) == 0);
    }
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
    fsdp_free(row);
    fsdp_str_fini(&text);
    fsdp_token_list_fini(&ids);
    fsdp_tokenizer_close(tokenizer);
}

/* Lengths 3 5 2 4 1 2 in rows of 6: the 4 takes the first 2, the 3 the second 2. Then there is room
 * for 1 with the 5 and with the 3, which was filled last. */
TEST(best_fit_puts_whole_rows_together)
{
    fsdp_dataset_options options = causal;
    options.packing = FSDP_PACKING_BFD;
    options.max_length = 6;
    const char *path = write_text(t, "a.jsonl",
                                  "{\"input_ids\": [1, 1, 1]}\n"
                                  "{\"input_ids\": [2, 2, 2, 2, 2]}\n"
                                  "{\"input_ids\": [3, 3], \"labels\": [-100, 3]}\n"
                                  "{\"input_ids\": [4, 4, 4, 4], \"position_ids\": [0, 1, 0, 1]}\n"
                                  "{\"input_ids\": [5]}\n"
                                  "{\"input_ids\": [6, 6]}\n");
    check_examples(t, path, &options,
                   "1 1 1 5 6 6/111566/012001;2 2 2 2 2/22222/01234;3 3 4 4 4 4/_34444/010101;");
}

/* Lengths 3 5 2 4 1 2 in rows of 6: the first 2 and the 1 fill the packed row of the 3, and the
 * last 2 is added to the 4. Best-fit decreasing makes other rows of them (above). */
TEST(first_fit_uses_the_first_row_that_has_room)
{
    fsdp_dataset_options options = causal;
    options.packing = FSDP_PACKING_FIRST_FIT;
    options.max_length = 6;
    const char *path = write_text(t, "a.jsonl",
                                  "{\"input_ids\": [1, 1, 1]}\n"
                                  "{\"input_ids\": [2, 2, 2, 2, 2]}\n"
                                  "{\"input_ids\": [3, 3], \"labels\": [-100, 3]}\n"
                                  "{\"input_ids\": [4, 4, 4, 4], \"position_ids\": [0, 1, 0, 1]}\n"
                                  "{\"input_ids\": [5]}\n"
                                  "{\"input_ids\": [6, 6]}\n");
    check_examples(t, path, &options,
                   "1 1 1 3 3 5/111_35/012010;2 2 2 2 2/22222/01234;4 4 4 4 6 6/444466/010101;");
}

/* Random rows in two windows: the packed rows are those of a loop over all open rows. */
TEST(first_fit_equals_a_loop_over_all_packed_rows)
{
    enum {
        ROWS = 65536 + 3000,
        CAPACITY = 23,
    };
    static int lengths[ROWS], bins[ROWS], rooms[ROWS];
    unsigned x = 11;
    int n_bins = 0, first_bin = 0, full = 0;
    fsdp_str text = {0};
    for (int row = 0; row < ROWS; row++) {
        x = x * 1664525u + 1013904223u;
        lengths[row] = 1 + (int)(x >> 16) % CAPACITY;
        if (row == 65536)
            full = first_bin = n_bins; /* the second window begins */
        while (full < n_bins && rooms[full] == 0)
            full++; /* a full bin is not looked at again: only faster */
        int bin = full;
        while (bin < n_bins && rooms[bin] < lengths[row])
            bin++;
        if (bin == n_bins)
            rooms[n_bins++] = CAPACITY;
        rooms[bin] -= lengths[row];
        bins[row] = bin;
        fsdp_str_printf(&text, "{\"input_ids\": [%d", row);
        for (int k = 1; k < lengths[row]; k++)
            fsdp_str_printf(&text, ", %d", row);
        fsdp_str_printf(&text, "]}\n");
    }
    ASSERT(first_bin > 0 && n_bins > first_bin);
    const char *path = write_text(t, "a.jsonl", text.data);
    fsdp_str_fini(&text);
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .packing = FSDP_PACKING_FIRST_FIT, .max_length = CAPACITY};
    fsdp_dataset *set;
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), n_bins);
    int seen = 0;
    for (int bin = 0; bin < n_bins; bin++) {
        ASSERT_OK(fsdp_dataset_get(set, bin, &e));
        int before = -1;
        for (size_t k = 0; k < e.source.len; k += (size_t)lengths[before]) {
            const int row = e.source.ids[k];
            ASSERT(row > before && k + (size_t)lengths[row] <= e.source.len);
            ASSERT_INT(bins[row], bin);
            ASSERT_INT(e.source.ids[k + (size_t)lengths[row] - 1], row);
            before = row;
            seen++;
        }
    }
    ASSERT_INT(seen, ROWS);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

/* All rows that are cut to the length of a packed row are counted, also those behind the first
 * ones. */
TEST(packed_whole_rows_count_all_rows_that_are_cut)
{
    fsdp_dataset_options options = causal;
    fsdp_dataset *set;
    fsdp_left_out out;
    options.max_length = 3;
    const char *path = write_text(t, "a.jsonl",
                                  "{\"input_ids\": [1, 1]}\n"
                                  "{\"input_ids\": [2]}\n"
                                  "{\"input_ids\": [3, 3, 3, 3, 3]}\n"
                                  "{\"input_ids\": [4, 4, 4, 4]}\n");
    for (int i = 0; i < 2; i++) {
        options.packing = i ? FSDP_PACKING_FIRST_FIT : FSDP_PACKING_BFD;
        ASSERT_OK(fsdp_dataset_open(path, &options, &set));
        ASSERT_OK(fsdp_dataset_left_out(set, 1, &out));
        ASSERT_INT(out.counted_rows, 4);
        ASSERT_INT(out.cut_rows, 2);
        ASSERT_INT(out.cut_tokens, 3);
        fsdp_dataset_close(set);
    }
}

/* Random rows: each is in exactly one packed row, whole, and no packed row is too long. */
TEST(best_fit_loses_no_row_and_fills_rows_well)
{
    fsdp_str text = {0};
    unsigned x = 7;
    int64_t tokens = 0;
    const int rows = 3000, capacity = 64;
    for (int i = 0; i < rows; i++) {
        x = x * 1664525u + 1013904223u;
        const int n = 1 + (int)(x >> 16) % capacity;
        tokens += n;
        fsdp_str_printf(&text, "{\"input_ids\": [%d", i);
        for (int k = 1; k < n; k++)
            fsdp_str_printf(&text, ", %d", i);
        fsdp_str_printf(&text, "]}\n");
    }
    const char *path = write_text(t, "a.jsonl", text.data);
    fsdp_str_fini(&text);
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_CAUSAL_LM, .packing = FSDP_PACKING_BFD, .max_length = capacity};
    fsdp_dataset *set;
    fsdp_example e = {0};
    static char seen[3000];
    ASSERT_OK(fsdp_dataset_open(path, &options, &set));
    int64_t found = 0;
    for (int64_t i = 0; i < fsdp_dataset_len(set); i++) {
        ASSERT_OK(fsdp_dataset_get(set, i, &e));
        ASSERT(e.source.len <= (size_t)capacity);
        ASSERT_INT(e.position_ids.len, e.source.len);
        for (size_t k = 0; k < e.source.len; k++) {
            if (e.position_ids.ids[k] == 0)
                ASSERT(!seen[e.source.ids[k]]++);
            else
                ASSERT_INT(e.source.ids[k], e.source.ids[k - 1]);
        }
        found += (int64_t)e.source.len;
    }
    ASSERT_INT(found, tokens);
    ASSERT(fsdp_dataset_len(set) * capacity < tokens + tokens / 50); /* at most 2 % are empty */
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

/* position_ids that count up from 0 are those of one document. */
TEST(wrapped_rows_may_not_have_several_documents)
{
    fsdp_dataset *set;
    fsdp_dataset_options options = causal;
    options.packing = FSDP_PACKING_WRAPPED;
    options.max_length = 3;
    check_examples(t,
                   write_text(t, "a.jsonl",
                              "{\"input_ids\": [1, 2], \"position_ids\": [0, 1]}\n"
                              "{\"input_ids\": [3]}\n"),
                   &options, "1 2 3/123;");
    ASSERT_ERROR(
        fsdp_dataset_open(write_text(t, "a.jsonl",
                                     "{\"input_ids\": [1, 2]}\n"
                                     "{\"input_ids\": [3, 4, 5], \"position_ids\": [0, 1, 0]}\n"),
                          &options, &set),
        FSDP_ERR_INVALID, "row 2: position_ids: entry 2 is 0 and begins another document");
}

TEST(packing_says_what_it_needs)
{
    fsdp_dataset *set = NULL;
    fsdp_dataset_options options = {.packing = FSDP_PACKING_BFD};
    ASSERT_ERROR(fsdp_dataset_open("a", &options, &set), FSDP_ERR_INVALID,
                 "packing is for causal language models");
    options.task = FSDP_TASK_CAUSAL_LM;
    options.packing = FSDP_PACKING_WRAPPED;
    const char *path = write_text(t, "a.jsonl", "{\"input_ids\": [1]}\n");
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_FORMAT, "fewer than two tokens");
    for (long n = 1; n < 130; n++) {
        options.packing = n % 3 == 0   ? FSDP_PACKING_WRAPPED
                          : n % 3 == 1 ? FSDP_PACKING_BFD
                                       : FSDP_PACKING_FIRST_FIT;
        options.max_length = 2;
        path = write_text(t, "a.jsonl",
                          "{\"input_ids\": [1, 2]}\n"
                          "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]}\n");
        fsdp_alloc_fail_at(n);
        const fsdp_status status = fsdp_dataset_open(path, &options, &set);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        if (status == FSDP_OK)
            fsdp_dataset_close(set);
    }
}

/* ---- several files ---- */

TEST(a_folder_or_a_pattern_is_all_its_files)
{
    fsdp_dataset *set = NULL;
    fsdp_dataset_options options = causal;
    write_text(t, "b-train.jsonl", "{\"input_ids\": [3]}\n{\"input_ids\": [4]}\n");
    write_text(t, "a.json", "[{\"input_ids\": [1]}, {\"input_ids\": [2]}]");
    write_text(t, "c_validation.jsonl", "{\"input_ids\": [5]}\n");
    write_text(t, "d-dev.jsonl", "{\"input_ids\": [7]}\n");
    write_text(t, "test.jsonl", "{\"input_ids\": [6]}\n");
    write_text(t, "testing_0.jsonl", "{\"input_ids\": [8]}\n");
    write_text(t, "my eval.jsonl", "{\"input_ids\": [8]}\n");
    write_text(t, "evaluation.jsonl", "{\"input_ids\": [8]}\n");
    write_text(t, "val-test.jsonl", "{\"input_ids\": [8]}\n");
    write_text(t, "device_Val_latest.jsonl", "{\"input_ids\": [9]}\n");
    write_text(t, "LICENSE", "not rows\n");
    write_text(t, "README.md", "not rows\n");
    write_text(t, "dataset_info.json", "{\"features\": 1}");
    check_examples(t, fsdp_test_dir(t), &options, "1;2;3;4;9;");
    options.max_samples = 3;
    check_examples(t, fsdp_test_dir(t), &options, "1;2;3;");
    options.max_samples = 0;
    options.validation = true;
    check_examples(t, fsdp_test_dir(t), &options, "5;7;");
    check_examples(t, path_of(t, "*[natl].json*"), &options, "1;2;3;4;5;9;8;8;6;8;");
    CHECK_HERE();
    options.validation = false;
    write_text(t, "b.jsonl", "{\"input_ids\": [3]}\n{\"input_ids\": [400]}\n");
    ASSERT_ERROR(fsdp_dataset_open(fsdp_test_dir(t), &options, &set), FSDP_ERR_FORMAT,
                 "b.jsonl: line 2: row: input_ids[0]");
    write_text(t, "b.csv", "text\na\n");
    ASSERT_ERROR(fsdp_dataset_open(fsdp_test_dir(t), &options, &set), FSDP_ERR_INVALID,
                 "are files of different kinds: a pattern in quotes");
    ASSERT_ERROR(fsdp_dataset_open(path_of(t, "*.none"), &options, &set), FSDP_ERR_NOT_FOUND,
                 "no file matches");
}

TEST(folders_of_splits_are_used_by_name)
{
    fsdp_dataset *set = NULL;
    fsdp_dataset_options options = causal;
    ASSERT(mkdir(path_of(t, "train"), 0700) == 0);
    write_text(t, "train/a.jsonl", "{\"input_ids\": [1]}\n");
    check_examples(t, fsdp_test_dir(t), &options, "1;");
    options.validation = true;
    ASSERT_ERROR(fsdp_dataset_open(fsdp_test_dir(t), &options, &set), FSDP_ERR_NOT_FOUND,
                 "has a folder train, but no folder validation");
    ASSERT(mkdir(path_of(t, "valid"), 0700) == 0);
    write_text(t, "valid/validation.jsonl", "{\"input_ids\": [2]}\n");
    check_examples(t, fsdp_test_dir(t), &options, "2;");
    /* all files of such a folder are for validation */
    write_text(t, "valid/part-1.jsonl", "{\"input_ids\": [3]}\n");
    write_text(t, "valid/test.jsonl", "{\"input_ids\": [4]}\n");
    check_examples(t, fsdp_test_dir(t), &options, "3;4;2;");
    check_examples(t, path_of(t, "valid/"), &options, "3;4;2;");
    options.validation = false;
    check_examples(t, path_of(t, "valid"), &options, "3;");
    options.validation = true;
    ASSERT(remove(path_of(t, "valid/part-1.jsonl")) == 0);
    ASSERT(remove(path_of(t, "valid/test.jsonl")) == 0);
    char valid[600];
    snprintf(valid, sizeof valid, "%s/valid", fsdp_test_dir(t));
    ASSERT(rename(valid, path_of(t, "dev")) == 0);
    check_examples(t, fsdp_test_dir(t), &options, "2;");
}

/* ---- a share for validation ---- */

static void check_file_rows(fsdp_test *t, const char *path, const fsdp_dataset_options *options,
                            fsdp_file_rows expected)
{
    fsdp_dataset *set;
    ASSERT_OK(fsdp_dataset_open(path, options, &set));
    const fsdp_file_rows rows = fsdp_dataset_file_rows(set);
    ASSERT_INT(rows.count, expected.count);
    ASSERT_INT(rows.in_split, expected.in_split);
    ASSERT(rows.are_documents == expected.are_documents);
    fsdp_dataset_close(set);
}

/* The rows are split before they are joined. A half is rounded to an even number, as datasets does:
 * 50 % of 5 rows are 2, and of 7 rows 4. */
TEST(the_first_percent_of_rows_are_for_validation)
{
    fsdp_dataset_options options = causal;
    options.max_length = 8;
    options.validation_percent = 50;
    const char *path = write_text(t, "a.jsonl",
                                  "{\"input_ids\": [1, 2]}\n{\"input_ids\": [3, 4]}\n"
                                  "{\"input_ids\": [5, 6]}\n{\"input_ids\": [7, 8]}\n"
                                  "{\"input_ids\": [9, 10]}\n");
    options.split = FSDP_SPLIT_VALIDATION;
    check_examples(t, path, &options, "1 2;3 4;");
    options.max_samples = 1;
    check_examples(t, path, &options, "1 2;");
    options.max_samples = 0;
    options.packing = FSDP_PACKING_WRAPPED;
    check_examples(t, path, &options, "1 2 3 4/1234;");
    check_file_rows(t, path, &options, (fsdp_file_rows){2, 2, false});
    options.split = FSDP_SPLIT_TRAIN;
    check_examples(t, path, &options, "5 6 7 8 9 10/5678910;");
    options.max_samples = 2;
    check_file_rows(t, path, &options, (fsdp_file_rows){2, 3, false});
    options.max_samples = 0;
    options.packing = FSDP_PACKING_NONE;
    path = write_text(t, "b.jsonl",
                      "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2]}\n"
                      "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2]}\n"
                      "{\"input_ids\": [9, 10]}\n{\"input_ids\": [9, 10]}\n"
                      "{\"input_ids\": [9, 11]}\n");
    check_examples(t, path, &options, "9 10;9 10;9 11;");
    options.task = FSDP_TASK_MASKED_LM;
    options.max_samples = 1;
    check_file_rows(t, path, &options, (fsdp_file_rows){1, 3, false});
    options.split = FSDP_SPLIT_ALL;
    check_file_rows(t, path, &options, (fsdp_file_rows){1, 1, false});
    options.split = FSDP_SPLIT_TRAIN;
    fsdp_dataset *set = NULL;
    options.validation_percent = 99;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_INVALID,
                 "7 rows, of which 99 % are 7: too few");
}

/* ---- plain text ---- */

/* Count the rows of a plain text with rows of one token, so that each id but the last is a row. The
 * text of the stream is the decoded ids. */
static void check_split_documents(fsdp_test *t, const char *path,
                                  const fsdp_dataset_options *options, int n_documents,
                                  const char *expected)
{
    const fsdp_tokenizer *tokenizer = options->tokenizer;
    fsdp_dataset *set;
    fsdp_example e = {0};
    fsdp_str ids = {0};
    int ends = 1; /* the last token is the end of the last document, and no row */
    ASSERT_OK(fsdp_dataset_open(path, options, &set));
    ASSERT(fsdp_dataset_uses(set) & FSDP_USES_DOCUMENTS);
    for (int64_t i = 0; i < fsdp_dataset_len(set); i++) {
        ASSERT_OK(fsdp_dataset_get(set, i, &e));
        ends += e.source.ids[0] == fsdp_tokenizer_eos_id(tokenizer);
        fsdp_str_append(&ids, (const char *)e.source.ids, sizeof(int32_t));
    }
    ASSERT_INT(ends, n_documents);
    char *text;
    ASSERT_OK(fsdp_tokenizer_decode(tokenizer, (const int32_t *)(const void *)ids.data,
                                    ids.len / sizeof(int32_t), FSDP_DECODE_SKIP_SPECIAL, &text));
    ASSERT_STR(text, expected);
    fsdp_text_free(text);
    fsdp_str_fini(&ids);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

static void check_documents(fsdp_test *t, const char *path, fsdp_documents documents,
                            fsdp_tokenizer *tokenizer, int n_documents, const char *expected)
{
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM,
                                          .tokenizer = tokenizer,
                                          .documents = documents,
                                          .max_length = 1};
    check_split_documents(t, path, &options, n_documents, expected);
}

/* validation_percent counts documents over all files; those of training are all others. */
TEST(the_first_percent_of_documents_are_for_validation)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = NULL;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    write_text(t, "a.txt", "one house\n\ntwo houses\n");
    write_text(t, "b.txt", "three trees\n\nlast one\n");
    fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM,
                                    .tokenizer = tokenizer,
                                    .max_length = 1,
                                    .split = FSDP_SPLIT_VALIDATION,
                                    .validation_percent = 70}; /* 2.8 of 4 documents */
    check_split_documents(t, path_of(t, "?.txt"), &options, 3, "one house two houses three trees");
    check_file_rows(t, path_of(t, "?.txt"), &options, (fsdp_file_rows){3, 3, true});
    options.split = FSDP_SPLIT_TRAIN;
    check_split_documents(t, path_of(t, "?.txt"), &options, 1, "last one");
    CHECK_HERE();
    fsdp_dataset *set = NULL;
    options.validation_percent = 10;
    ASSERT_ERROR(fsdp_dataset_open(path_of(t, "?.txt"), &options, &set), FSDP_ERR_INVALID,
                 "4 documents, of which 10 % are 0");
    fsdp_tokenizer_close(tokenizer);
}

TEST(plain_text_has_documents_by_blank_lines_lines_or_files)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = NULL;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    const char *path =
        write_text(t, "a.txt", "\n\none house\ntwo houses\r\n \t\n\nthree trees\n\n");
    check_documents(t, path, FSDP_DOCUMENTS_DEFAULT, tokenizer, 2,
                    "one house two houses three trees");
    check_documents(t, path, FSDP_DOCUMENTS_LINE, tokenizer, 3, "one house two houses three trees");
    check_documents(t, path, FSDP_DOCUMENTS_FILE, tokenizer, 1, "one house two houses three trees");
    CHECK_HERE();
    write_text(t, "b.txt", "last one");
    check_documents(t, path_of(t, "?.txt"), FSDP_DOCUMENTS_FILE, tokenizer, 2,
                    "one house two houses three trees last one");
    check_documents(t, fsdp_test_dir(t), FSDP_DOCUMENTS_FILE, tokenizer, 2,
                    "one house two houses three trees last one");
    CHECK_HERE();
    fsdp_dataset *set = NULL;
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM, .tokenizer = tokenizer};
    ASSERT_ERROR(fsdp_dataset_open(path_of(t, "b.txt"), &options, &set), FSDP_ERR_FORMAT,
                 "fewer than a row of 1024");
    ASSERT_ERROR(fsdp_dataset_open(path_of(t, "b.txt"), &causal, &set), FSDP_ERR_INVALID,
                 "plain text needs a tokenizer");
    fsdp_tokenizer_close(tokenizer);
}
