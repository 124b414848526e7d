/* Greedy generation against transformers' ids, with any sharing of prompts over ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/train/generate.h"
#include "src/train/generate_run.h"
#include "src/train/prompts.h"
#include "tests/test.h"

enum {
    MAX_ROWS = 16,
    MAX_IDS = 32
};

/* tests/golden/generation/t5_greedy.json, and what came out. */
typedef struct greedy {
    char model[600], prompts_path[300];
    int64_t want[MAX_ROWS][MAX_IDS];
    size_t want_len[MAX_ROWS], n;
    size_t seen;    /* results so far; they come in order */
    bool differs;   /* one was not as wanted */
    size_t longest; /* ids of a result at most */
} greedy;

static void open_greedy(fsdp_test *t, greedy *g)
{
    char path[600];
    fsdp_json *doc;
    fsdp_json_node rows;
    *g = (greedy){0};
    snprintf(g->model, sizeof g->model, "%s", fsdp_test_path("golden/generation/t5_model"));
    snprintf(path, sizeof path, "%s", fsdp_test_path("golden/generation/t5_greedy.json"));
    ASSERT_OK(fsdp_json_read(path, &doc));
    ASSERT_OK(fsdp_json_get_array(fsdp_json_root(doc), "sequences", &rows));
    g->n = fsdp_json_len(rows);
    ASSERT(g->n > 3 && g->n <= MAX_ROWS);
    for (size_t i = 0; i < g->n; i++) {
        int64_t *ids;
        ASSERT_OK(fsdp_json_get_i64s(fsdp_json_at(rows, i), NULL, 0, 400, &ids, &g->want_len[i]));
        ASSERT(g->want_len[i] <= MAX_IDS);
        memcpy(g->want[i], ids, g->want_len[i] * sizeof *ids);
        fsdp_free(ids);
    }
    if (t->rank == 0) {
        snprintf(g->prompts_path, sizeof g->prompts_path, "%s/prompts.jsonl", fsdp_test_dir(t));
        FILE *file = fopen(g->prompts_path, "w");
        ASSERT(file);
        ASSERT_OK(fsdp_json_get_array(fsdp_json_root(doc), "prompts", &rows));
        for (size_t i = 0; i < g->n; i++) {
            int64_t *ids;
            size_t n;
            ASSERT_OK(fsdp_json_get_i64s(fsdp_json_at(rows, i), NULL, 0, 400, &ids, &n));
            for (size_t k = 0; k < n; k++)
                fprintf(file, "%s%d", k ? ", " : i % 2 ? "[" : "{\"input_ids\": [", (int)ids[k]);
            fprintf(file, i % 2 ? "]\n" : "]}\n");
            fsdp_free(ids);
        }
        ASSERT(fclose(file) == 0);
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, g->prompts_path, sizeof g->prompts_path, 0));
    fsdp_json_destroy(doc);
}

static void check_result(const fsdp_generate_result *r, void *arg)
{
    greedy *g = arg;
    g->differs |= r->index != g->seen || r->index >= g->n || r->n_ids != g->want_len[r->index];
    for (size_t i = 0; !g->differs && i < r->n_ids; i++)
        g->differs |= r->ids[i] != g->want[r->index][i];
    g->longest = r->n_ids > g->longest ? r->n_ids : g->longest;
    g->seen++;
}

static void check_greedy(fsdp_test *t, int batch_size, bool reshard_each_step)
{
    greedy g;
    open_greedy(t, &g);
    CHECK_HERE();
    fsdp_generate_config config = {.model = g.model,
                                   .input_ids = g.prompts_path,
                                   .max_new_tokens = 20,
                                   .batch_size = batch_size,
                                   .reshard_each_step = reshard_each_step,
                                   .threads_per_rank = 1};
    ASSERT_OK(fsdp_generate_run(&config, t->group, check_result, NULL, &g));
    ASSERT(!g.differs);
    ASSERT_INT(g.seen, t->rank == 0 ? g.n : 0);
}

TEST(greedy_ids_are_transformers)
{
    check_greedy(t, 1, false);
    CHECK_HERE();
    check_greedy(t, 4, false);
    CHECK_HERE();
    check_greedy(t, 100, true);
}
/* 6 prompts in batches of 4: the third rank has none */
TEST_RANKS(greedy_ids_are_transformers_on_3_ranks, 3)
{
    check_greedy(t, 4, false);
    CHECK_HERE();
    check_greedy(t, 1, true);
}

/* transformers' default: 20 ids, the start included. */
TEST(without_a_limit_the_configs_counts)
{
    greedy g;
    open_greedy(t, &g);
    CHECK_HERE();
    fsdp_generate_config config = {
        .model = g.model, .input_ids = g.prompts_path, .max_new_tokens = 5, .threads_per_rank = 1};
    ASSERT_OK(fsdp_generate_run(&config, NULL, check_result, NULL, &g));
    ASSERT_INT(g.longest, 6);
    fsdp_generation_config read;
    ASSERT_INT(fsdp_generate_max_steps(0, &(fsdp_generation_config){.max_length = 20}), 19);
    ASSERT_INT(fsdp_generate_max_steps(
                   0, &(fsdp_generation_config){.max_length = 20, .max_new_tokens = 64}),
               64);
    ASSERT_INT(fsdp_generate_max_steps(7, &(fsdp_generation_config){.max_length = 20}), 7);
    fsdp_device *device;
    fsdp_model *model;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_model_open(&(fsdp_model_options){.name = g.model}, NULL, device, &model));
    ASSERT_OK(fsdp_model_generation_config(model, &read));
    ASSERT_INT(fsdp_generate_max_steps(0, &read), 19);
    ASSERT_INT(read.eos_token_ids[0], 1);
    fsdp_model_close(model);
    fsdp_device_destroy(device);
}

/* Any of several ends of sequence ends it. */
TEST(several_ids_may_end_a_sequence)
{
    fsdp_device *device;
    fsdp_model *model;
    fsdp_batch *batch;
    fsdp_token_list list = {0};
    const int32_t prompt[] = {116, 116, 116, 61, 116, 1};
    const fsdp_batch_row row = {.source = prompt, .source_len = 6};
    const fsdp_generation_config config = {.eos_token_ids = {1, 210}, .n_eos = 2, .max_length = 20};
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(
        fsdp_model_open(&(fsdp_model_options){.name = fsdp_test_path("golden/generation/t5_model")},
                        NULL, device, &model));
    ASSERT_OK(fsdp_batch_create(&row, 1, 0, 0, &batch));
    ASSERT_OK(fsdp_generate_greedy(model, device, batch,
                                   &(fsdp_generate_options){.config = &config}, &list));
    const int32_t want[] = {0, 116, 50, 71, 210}; /* transformers goes on with 252 */
    ASSERT_INT(list.len, 5);
    ASSERT(memcmp(list.ids, want, sizeof want) == 0);
    fsdp_token_list_fini(&list);
    fsdp_batch_release(batch);
    fsdp_model_close(model);
    fsdp_device_destroy(device);
}

/* Each allocation in turn fails: an error each time, and the model is good for the next call. */
TEST(memory_that_runs_out_is_an_error)
{
    greedy g;
    open_greedy(t, &g);
    CHECK_HERE();
    fsdp_generate_config config = {
        .model = g.model, .input_ids = g.prompts_path, .max_new_tokens = 4, .threads_per_rank = 1};
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n += n < 50 ? 1 : 23) {
        g.seen = 0;
        fsdp_alloc_fail_at(n);
        status = fsdp_generate_run(&config, NULL, check_result, NULL, &g);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_ERROR(status, FSDP_ERR_NOMEM, "");
    }
    ASSERT_INT(g.seen, g.n);
}

/* --- prompts --- */

static void read_ids(fsdp_test *t, const char *text, fsdp_status *status, fsdp_prompts *prompts)
{
    char path[300];
    snprintf(path, sizeof path, "%s/ids", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
    *prompts = (fsdp_prompts){0};
    *status = fsdp_prompts_read_ids(prompts, path, 10);
}

TEST(ids_are_read_as_array_or_by_line)
{
    static const char *const texts[] = {"[[1, 2], [3]]", "[\n [1,\n 2],\n [3]\n]\n",
                                        "[1, 2]\n\n{\"input_ids\": [3], \"labels\": [4]}\n",
                                        "{\"input_ids\": [1, 2]}\r\n[3]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fsdp_prompts p;
        fsdp_status status;
        read_ids(t, texts[i], &status, &p);
        CHECK_HERE();
        ASSERT_OK(status);
        ASSERT_INT(p.n, 2);
        ASSERT_INT(p.items[0].ids.len, 2);
        ASSERT_INT(p.items[0].ids.ids[1], 2);
        ASSERT_INT(p.items[1].ids.len, 1);
        ASSERT_INT(p.items[1].ids.ids[0], 3);
        fsdp_prompts_free(&p);
    }
}

TEST(bad_ids_are_named_by_line)
{
    fsdp_prompts p;
    fsdp_status status;
    read_ids(t, "[1]\n[10]\n", &status, &p);
    ASSERT_ERROR(status, FSDP_ERR_FORMAT, "line 2");
    fsdp_prompts_free(&p);
    read_ids(t, "[1]\n{\"ids\": [1]}\n", &status, &p);
    ASSERT_ERROR(status, FSDP_ERR_NOT_FOUND, "input_ids");
    fsdp_prompts_free(&p);
    read_ids(t, "[1]\nx\n", &status, &p);
    ASSERT_ERROR(status, FSDP_ERR_FORMAT, "ids");
    fsdp_prompts_free(&p);
}
