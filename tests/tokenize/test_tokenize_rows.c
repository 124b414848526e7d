/* Rows that `fsdp tokenize` writes for each task: they train like the rows they were made of. */
#include "src/base/alloc.h"
#include "src/data/arrow/table.h"
#include "tests/tokenize/runs.h"

/* ---- masked language models ---- */

static const fsdp_masking masking = {.mask_token_id = 3, .mlm_probability = 0.5};

static fsdp_status open_masked(fsdp_test *t, const char *name, fsdp_dataset **set)
{
    const fsdp_dataset_options options = {
        .task = FSDP_TASK_MASKED_LM, .vocab_size = 400, .masking = &masking};
    return fsdp_dataset_open(in_dir(t, name), &options, set);
}

/* Count the tokens of a row that have a loss. */
static size_t count_labels(const fsdp_example *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->labels.len; i++)
        n += e->labels.ids[i] != FSDP_IGNORE_INDEX;
    return n;
}

/* With labels of its own, a block would be taken for one that has been masked. */
TEST(blocks_of_a_masked_language_model_are_masked_when_they_are_read)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *set;
    fsdp_example e = {0};
    size_t labels = 0, tokens = 0;
    put_corpus(t, "a.txt", 20000);
    CHECK_HERE();
    fsdp_tokenize_config config = config_of(t, "a.txt", "blocks");
    config.task = FSDP_TASK_MASKED_LM;
    config.block_size = 32;
    ASSERT_OK(run(&config));
    ASSERT_OK(open_masked(t, "blocks", &set));
    for (int64_t i = 0; i < fsdp_dataset_len(set); i++) {
        ASSERT_OK(fsdp_dataset_get(set, i, &e));
        ASSERT_INT(e.source.len, 32);
        ASSERT_INT(e.labels.len, 32);
        labels += count_labels(&e);
        tokens += 32;
    }
    ASSERT(tokens > 4000);
    ASSERT(labels > tokens * 4 / 10 && labels < tokens * 6 / 10);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

static const char masked_and_not[] =
    "{\"input_ids\": [5, 3, 7], \"labels\": [-100, 6, -100]}\n"
    "{\"input_ids\": [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26]}\n";

TEST(only_rows_without_labels_are_masked)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *set;
    fsdp_example e = {0};
    put(t, "rows.jsonl", masked_and_not);
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.task = FSDP_TASK_MASKED_LM;
    ASSERT_OK(run(&config));
    ASSERT_OK(open_masked(t, "rows", &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &e));
    ASSERT_INT(count_labels(&e), 1);
    ASSERT_INT(e.labels.ids[1], 6);
    ASSERT_OK(fsdp_dataset_get(set, 1, &e));
    ASSERT(count_labels(&e) > 0 && count_labels(&e) < 16);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

TEST(a_block_has_no_rows_that_are_masked_and_rows_that_are_not)
{
    NEEDS_FLATBUFFERS();
    fsdp_dataset *set;
    fsdp_example e = {0};
    put(t, "rows.jsonl", masked_and_not);
    fsdp_tokenize_config config = config_of(t, "rows.jsonl", "rows");
    config.task = FSDP_TASK_MASKED_LM;
    config.block_size = 3;
    ASSERT_ERROR(run(&config), FSDP_ERR_UNSUPPORTED, "row 2 has no labels, but other rows do");
    put(t, "rows.jsonl", "{\"input_ids\": [5, 3, 7, 8], \"labels\": [-100, 6, -100, -100]}\n");
    ASSERT_OK(run(&config));
    ASSERT_OK(open_masked(t, "rows", &set));
    ASSERT_OK(fsdp_dataset_get(set, 0, &e));
    ASSERT_INT(count_labels(&e), 1);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}
