/* The texts and results of `fsdp classify` without a model: rows of every form become objects, and
 * results are added to them. tests/cli/test_classify.sh has the command. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/classify/class_items.h"
#include "src/classify/class_output.h"
#include "tests/test.h"

/* Return the path of a file in the folder of the test, for the next eight calls. */
static const char *path_of(fsdp_test *t, const char *name)
{
    static char paths[8][600];
    static size_t next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static const char *write_text(fsdp_test *t, const char *name, const char *text)
{
    const char *path = path_of(t, name);
    if (fsdp_file_write(path, text, strlen(text)) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
}

static fsdp_status classify(const char *input, const char *output, int64_t top_k)
{
    static const double scores[] = {0.25, 0.75};
    char *labels[] = {(char *)"no", (char *)"yes, \"sure\""};
    const fsdp_classify_config config = {
        .input = input, .output = output, .top_k = top_k, .form.csv_quotes = true};
    fsdp_class_items items = {0};
    fsdp_class_output *out = NULL;
    fsdp_status status = fsdp_class_items_read(&config, &items);
    if (status == FSDP_OK)
        status = fsdp_class_output_open(&config, &items, labels, 2, NULL, &out);
    for (size_t i = 0; status == FSDP_OK && i < items.n; i++)
        status = fsdp_class_output_write(out, scores);
    status = fsdp_class_output_close(out, status);
    fsdp_class_items_fini(&items);
    return status;
}

static const struct {
    const char *name, *rows;
} forms[] = {
    {"a.csv", "id,text,label\r\n1,\"a \"\"b\"\"\",x\r\n"},
    {"b.csv", "id;text;label\n1;\"a \"\"b\"\"\";x\n"},
    {"a.jsonl", "{\"id\": \"1\", \"text\": \"a \\\"b\\\"\", \"label\": \"x\"}\n"},
    {"a.json", "[{\"id\": \"1\", \"text\": \"a \\\"b\\\"\", \"label\": \"x\"}]"},
};

/* The same row in every form gives the same results in CSV and JSON lines. */
TEST(results_are_added_to_rows_of_every_form)
{
    const struct {
        const char *output;
        int64_t top_k;
        const char *text;
    } cases[] = {
        {"o.csv", FSDP_CLASSIFY_BEST,
         "id,text,label,predicted_label,predicted_score\r\n"
         "1,\"a \"\"b\"\"\",x,\"yes, \"\"sure\"\"\",0.75\r\n"},
        {"o.csv", 9,
         "id,text,label,label_1,score_1,label_2,score_2\r\n"
         "1,\"a \"\"b\"\"\",x,\"yes, \"\"sure\"\"\",0.75,no,0.25\r\n"},
        {"o.jsonl", FSDP_CLASSIFY_BEST,
         "{\"id\": \"1\", \"text\": \"a \\\"b\\\"\", \"label\": \"x\", \"predicted_label\": "
         "\"yes, \\\"sure\\\"\", \"predicted_score\": 0.75}\n"},
        {"o.jsonl", FSDP_CLASSIFY_ALL,
         "{\"id\": \"1\", \"text\": \"a \\\"b\\\"\", \"label\": \"x\", \"predictions\": "
         "[{\"label\": \"yes, \\\"sure\\\"\", \"score\": 0.75}, {\"label\": \"no\", \"score\": "
         "0.25}]}\n"},
    };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const char *output = path_of(t, cases[i].output);
            char *text;
            size_t bytes;
            ASSERT_OK(
                classify(write_text(t, forms[f].name, forms[f].rows), output, cases[i].top_k));
            ASSERT_OK(fsdp_file_read(output, 1 << 20, &text, &bytes));
            const bool same = strcmp(text, cases[i].text) == 0;
            fsdp_free(text);
            ASSERT(same);
        }
}

TEST(keys_that_results_need_are_not_overwritten)
{
    ASSERT_ERROR(classify(write_text(t, "a.csv", "text,label,predicted_score\na,b,c\n"),
                          path_of(t, "o.csv"), FSDP_CLASSIFY_BEST),
                 FSDP_ERR_INVALID, "rename those of the rows");
    ASSERT_ERROR(classify(write_text(t, "a.csv", "text,x,x\na,b,c\n"), path_of(t, "o.csv"),
                          FSDP_CLASSIFY_BEST),
                 FSDP_ERR_FORMAT, "a.csv: line 1: two columns are named 'x'");
    ASSERT(!fsdp_path_exists(path_of(t, "o.csv")));
}

/* Return true if two files have the same bytes. */
static bool is_same(const char *a, const char *b)
{
    char *texts[2] = {NULL, NULL};
    size_t bytes;
    const bool same = fsdp_file_read(a, 1 << 20, &texts[0], &bytes) == FSDP_OK &&
                      fsdp_file_read(b, 1 << 20, &texts[1], &bytes) == FSDP_OK &&
                      strcmp(texts[0], texts[1]) == 0;
    fsdp_free(texts[0]);
    fsdp_free(texts[1]);
    return same;
}

/* Each allocation fails in turn: an error and no output file, or the whole result, and no leak
 * (checked by ASan). */
TEST(no_allocation_is_taken_for_granted)
{
    const char *whole = path_of(t, "whole.csv"), *output = path_of(t, "n.csv");
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        const char *path = write_text(t, forms[f].name, forms[f].rows);
        int failures = 0, in_a_row = 0; /* results that no failure changed */
        ASSERT_OK(classify(path, whole, 2));
        for (long n = 1; n <= 300 && in_a_row < 4; n++) {
            fsdp_alloc_fail_at(n);
            const fsdp_status status = classify(path, output, 2);
            fsdp_alloc_fail_at(0);
            ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
            ASSERT(status == FSDP_OK ? is_same(whole, output) : !fsdp_path_exists(output));
            failures += status != FSDP_OK;
            in_a_row = status == FSDP_OK ? in_a_row + 1 : 0;
            remove(output);
        }
        ASSERT(failures > 20 && in_a_row == 4);
    }
}
