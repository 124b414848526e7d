/* Compares generated ids with transformers' ids, for any distribution of prompts over ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/generate/generate.h"
#include "src/generate/generate_run.h"
#include "src/generate/prompts.h"
#include "tests/test.h"

enum {
    MAX_ROWS = 64,
    MAX_IDS = 40
};

/* Generated or expected sequences. */
typedef struct sequences {
    int32_t ids[MAX_ROWS][MAX_IDS];
    size_t len[MAX_ROWS], n;
    double score[MAX_ROWS];
} sequences;

/* A file of tests/golden/generation, and the results. */
typedef struct golden {
    char model[600], prompts_path[300];
    fsdp_generation_settings settings;
    sequences want, got;
    size_t n_prompts, per_prompt;
    bool misplaced; /* results were not in order */
} golden;

static void read_row(fsdp_test *t, fsdp_json_node node, sequences *s)
{
    int64_t *ids;
    size_t n;
    ASSERT_OK(fsdp_json_get_i64s(node, NULL, 0, 400, &ids, &n));
    ASSERT(n <= MAX_IDS && s->n < MAX_ROWS);
    for (size_t i = 0; i < n; i++)
        s->ids[s->n][i] = (int32_t)ids[i];
    s->len[s->n++] = n;
    fsdp_free(ids);
}

static void write_prompts(fsdp_test *t, fsdp_json_node rows, const char *path)
{
    FILE *file = fopen(path, "w");
    ASSERT(file);
    for (size_t i = 0; i < fsdp_json_len(rows); i++) {
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

/* The settings that the file was made with; all sequences of each prompt if it has several. */
static void read_settings(fsdp_test *t, fsdp_json *doc, golden *g)
{
    const fsdp_json_node root = fsdp_json_root(doc);
    fsdp_generation_settings *s = &g->settings;
    ASSERT_OK(fsdp_generation_config_parse(doc, &s->values));
#define GIVEN(name) s->given.name = fsdp_json_has(root, #name);
    FSDP_GENERATION_SETTINGS(GIVEN)
#undef GIVEN
    g->per_prompt = (size_t)(fsdp_json_has(root, "all_sequences") ? s->values.num_beams : 1);
}

static void read_wanted(fsdp_test *t, fsdp_json_node root, golden *g)
{
    fsdp_json_node best, all, scores;
    ASSERT_OK(fsdp_json_get_array(root, "sequences", &best));
    ASSERT_OK(fsdp_json_opt_array(root, "all_sequences", &all));
    ASSERT_OK(fsdp_json_opt_array(root, "all_scores", &scores));
    g->n_prompts = fsdp_json_len(best);
    for (size_t i = 0; i < g->n_prompts; i++) {
        fsdp_json_node rows = fsdp_json_at(all, i), values = fsdp_json_at(scores, i);
        for (size_t k = 0; k < g->per_prompt; k++) {
            if (fsdp_json_len(all))
                ASSERT_OK(
                    fsdp_json_get_f64(fsdp_json_at(values, k), NULL, &g->want.score[g->want.n]));
            read_row(t, fsdp_json_len(all) ? fsdp_json_at(rows, k) : fsdp_json_at(best, i),
                     &g->want);
            CHECK_HERE();
        }
    }
}

static void open_golden(fsdp_test *t, const char *name, golden *g)
{
    char path[600];
    const char *model;
    fsdp_json *doc;
    fsdp_json_node rows;
    *g = (golden){0};
    snprintf(path, sizeof path, "%s/%s", fsdp_test_path("golden/generation"), name);
    ASSERT_OK(fsdp_json_read(path, &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    ASSERT_OK(fsdp_json_get_str(root, "model", &model));
    snprintf(g->model, sizeof g->model, "%s/%s", fsdp_test_path("golden/generation"), model);
    read_settings(t, doc, g);
    CHECK_HERE();
    read_wanted(t, root, g);
    CHECK_HERE();
    ASSERT(g->n_prompts > 3);
    if (t->group) /* some rank may still be reading the previous prompts */
        ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0) {
        snprintf(g->prompts_path, sizeof g->prompts_path, "%s/prompts.jsonl", fsdp_test_dir(t));
        ASSERT_OK(fsdp_json_get_array(root, "prompts", &rows));
        write_prompts(t, rows, g->prompts_path);
        CHECK_HERE();
    }
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, g->prompts_path, sizeof g->prompts_path, 0));
    fsdp_json_destroy(doc);
}

static void take_result(const fsdp_generate_result *r, void *arg)
{
    golden *g = arg;
    sequences *got = &g->got;
    g->misplaced |= got->n == MAX_ROWS || r->n_ids > MAX_IDS ||
                    r->index != got->n / g->per_prompt || r->sequence != got->n % g->per_prompt ||
                    r->prompt_length >= r->n_ids;
    if (g->misplaced)
        return;
    memcpy(got->ids[got->n], r->ids, r->n_ids * sizeof *r->ids);
    got->score[got->n] = r->score;
    got->len[got->n++] = r->n_ids;
}

static fsdp_generate_config config_of(const golden *g, int batch_size)
{
    return (fsdp_generate_config){.model = g->model,
                                  .input_ids = g->prompts_path,
                                  .generation = g->settings,
                                  .num_return_sequences = (int64_t)g->per_prompt,
                                  .seed = 5,
                                  .batch_size = batch_size,
                                  .threads_per_rank = 1};
}

static void check_same(fsdp_test *t, const sequences *got, const sequences *want)
{
    ASSERT_INT(got->n, want->n);
    for (size_t i = 0; i < want->n; i++) {
        ASSERT_INT(got->len[i], want->len[i]);
        for (size_t k = 0; k < want->len[i]; k++)
            ASSERT_INT(got->ids[i][k], want->ids[i][k]);
        ASSERT_NEAR(got->score[i], want->score[i], 1e-4);
    }
}

static void check_golden(fsdp_test *t, const char *name, int batch_size, bool reshard_each_step)
{
    golden g;
    open_golden(t, name, &g);
    CHECK_HERE();
    fsdp_generate_config config = config_of(&g, batch_size);
    config.reshard_each_step = reshard_each_step;
    ASSERT_OK(fsdp_generate_run(&config, t->group, take_result, NULL, &g));
    ASSERT(!g.misplaced);
    if (t->rank == 0)
        check_same(t, &g.got, &g.want);
    else
        ASSERT_INT(g.got.n, 0);
}

static const char *const files[] = {
    "t5_greedy.json",          "t5_beam4.json",    "llama3_greedy.json",   "llama3_topk1.json",
    "llama3_rules.json",       "t5_rules.json",    "t5_encoder.json",      "t5_bias.json",
    "llama3_encoder.json",     "llama3_bias.json", "llama3_guidance.json", "llama3_negative.json",
    "llama3_guided_beams.json"};

TEST(ids_and_scores_are_transformers)
{
    for (size_t i = 0; i < FSDP_LENGTH(files); i++) {
        check_golden(t, files[i], 1, false);
        CHECK_HERE();
        check_golden(t, files[i], 4, false);
        CHECK_HERE();
        check_golden(t, files[i], 100, true);
        CHECK_HERE();
    }
}
/* 4 or 6 prompts in batches of 4: the third rank has none */
TEST_RANKS(ids_and_scores_are_transformers_on_3_ranks, 3)
{
    for (size_t i = 0; i < FSDP_LENGTH(files); i++) {
        check_golden(t, files[i], 4, false);
        CHECK_HERE();
        check_golden(t, files[i], 1, true);
        CHECK_HERE();
    }
}

/* --- results do not depend on batches or ranks --- */

/* Three samples a prompt, then three of four beams, with every processor: on one rank in one batch,
 * and in batches of 1 to 5 on these ranks. */
static void check_sharing(fsdp_test *t, const char *name, bool sample)
{
    golden g;
    open_golden(t, name, &g);
    CHECK_HERE();
    g.settings = (fsdp_generation_settings){.values = {.do_sample = sample,
                                                       .num_beams = sample ? 1 : 4,
                                                       .temperature = 1.5,
                                                       .repetition_penalty = 1.1,
                                                       .no_repeat_ngram_size = 3,
                                                       .min_new_tokens = 3,
                                                       .max_new_tokens = 12},
                                            .given = {.do_sample = true,
                                                      .num_beams = true,
                                                      .temperature = true,
                                                      .repetition_penalty = true,
                                                      .no_repeat_ngram_size = true,
                                                      .min_new_tokens = true,
                                                      .max_new_tokens = true}};
    g.per_prompt = 3;
    fsdp_generate_config config = config_of(&g, 100);
    ASSERT_OK(fsdp_generate_run(&config, NULL, take_result, NULL, &g));
    const sequences alone = g.got;
    ASSERT_INT(alone.n, 3 * g.n_prompts);
    for (config.batch_size = 1; config.batch_size <= 5; config.batch_size++) {
        g.got.n = 0;
        ASSERT_OK(fsdp_generate_run(&config, t->group, take_result, NULL, &g));
        ASSERT(!g.misplaced);
        if (t->rank == 0)
            check_same(t, &g.got, &alone);
        CHECK_HERE();
    }
    config.seed = 6;
    g.got.n = 0;
    ASSERT_OK(fsdp_generate_run(&config, NULL, take_result, NULL, &g));
    bool other = false;
    for (size_t i = 0; i < alone.n; i++)
        other |= alone.len[i] != g.got.len[i] ||
                 memcmp(alone.ids[i], g.got.ids[i], alone.len[i] * sizeof(int32_t)) != 0;
    ASSERT(other == sample);
}
static void check_all_sharing(fsdp_test *t)
{
    for (int i = 0; i < 4; i++) {
        check_sharing(t, i / 2 ? "llama3_greedy.json" : "t5_greedy.json", i % 2);
        CHECK_HERE();
    }
}
TEST(batches_change_nothing)
{
    check_all_sharing(t);
}
TEST_RANKS(two_ranks_change_nothing, 2)
{
    check_all_sharing(t);
}
TEST_RANKS(three_ranks_change_nothing, 3)
{
    check_all_sharing(t);
}

/* --- lengths and ends --- */

TEST(lengths_count_as_in_transformers)
{
    typedef fsdp_generation_config config;
    ASSERT_INT(fsdp_generation_config_max_new(&(config){0}, 1), 20);
    ASSERT_INT(fsdp_generation_config_max_new(&(config){0}, 30), 20);
    ASSERT_INT(fsdp_generation_config_max_new(&(config){.max_length = 20}, 1), 19);
    ASSERT_INT(fsdp_generation_config_max_new(&(config){.max_length = 20}, 22), -2);
    ASSERT_INT(fsdp_generation_config_max_new(&(config){.max_length = 20, .max_new_tokens = 64}, 5),
               64);
    ASSERT_INT(fsdp_generation_config_min_new(&(config){.min_length = 9}, 5), 4);
    ASSERT_INT(fsdp_generation_config_min_new(&(config){.min_length = 9, .min_new_tokens = 2}, 5),
               2);
    config c = {.max_new_tokens = 64, .min_new_tokens = 3};
    fsdp_generation_settings s = {.values = {.max_length = 9, .min_length = 2},
                                  .given = {.max_length = true, .min_length = true}};
    fsdp_generation_config_set(&c, &s);
    ASSERT(c.max_new_tokens == 0 && c.max_length == 9);
    ASSERT(c.min_new_tokens == 0 && c.min_length == 2);
    s.values.min_new_tokens = 0;
    s.given.min_new_tokens = true;
    fsdp_generation_config_set(&c, &s);
    ASSERT_INT(fsdp_generation_config_min_new(&c, 0), 0);
    fsdp_model model = {.info = {.max_positions = 10}};
    ASSERT_INT(fsdp_generate_max_new(&model, &c, 5), 4);
    ASSERT_INT(fsdp_generate_max_new(&model, &(config){0}, 5), 6);
    ASSERT_INT(fsdp_generate_max_new(&model, &(config){0}, 10), 1);
    ASSERT_INT(fsdp_generate_max_new(&model, &(config){0}, 11), 0);
}

/* Lengths of all outputs with some settings. */
static void run_with(fsdp_test *t, golden *g, const char *name, fsdp_generation_settings settings,
                     fsdp_status expected, const char *text)
{
    open_golden(t, name, g);
    CHECK_HERE();
    g->settings = settings;
    g->per_prompt = 1;
    fsdp_generate_config config = config_of(g, 3);
    fsdp_status status = fsdp_generate_run(&config, NULL, take_result, NULL, g);
    if (expected == FSDP_OK)
        ASSERT_OK(status);
    else
        ASSERT_ERROR(status, expected, text);
    ASSERT(!g->misplaced);
}

TEST(one_new_token_and_no_room)
{
    golden g;
    for (int beams = 1; beams <= 3; beams += 2) {
        const fsdp_generation_settings one = {.values = {.max_new_tokens = 1, .num_beams = beams},
                                              .given = {.max_new_tokens = true, .num_beams = true}};
        run_with(t, &g, "t5_greedy.json", one, FSDP_OK, "");
        CHECK_HERE();
        for (size_t i = 0; i < g.n_prompts; i++)
            ASSERT_INT(g.got.len[i], 2);
        run_with(t, &g, "llama3_greedy.json", one, FSDP_OK, "");
        CHECK_HERE();
        const size_t lengths[] = {5, 10, 7, 4}; /* lengths of the prompts, plus one */
        for (size_t i = 0; i < g.n_prompts; i++)
            ASSERT_INT(g.got.len[i], lengths[i]);
    }
    const fsdp_generation_settings by_length = {.values = {.max_length = 9},
                                                .given = {.max_length = true}};
    run_with(t, &g, "llama3_greedy.json", by_length, FSDP_ERR_INVALID, "prompt 2 has 9 ids");
    CHECK_HERE();
    run_with(t, &g, "t5_greedy.json", by_length, FSDP_OK, "");
    CHECK_HERE();
    for (size_t i = 0; i < g.n_prompts; i++)
        ASSERT(g.got.len[i] <= 9);
    ASSERT_INT(g.got.len[4], 9);
}

/* The first new id comes after more than a nanosecond, so it is the last one; it is that of a run
 * without the limit. A long time changes nothing. */
TEST(texts_end_when_their_time_is_over)
{
    golden g;
    for (int i = 0; i < 4; i++) {
        const char *name = i / 2 ? "llama3_greedy.json" : "t5_greedy.json";
        fsdp_generation_settings s = {
            .values = {.max_new_tokens = 6, .num_beams = i % 2 ? 3 : 1, .max_time = 1e-9},
            .given = {.max_new_tokens = true, .num_beams = true}};
        run_with(t, &g, name, s, FSDP_OK, "");
        CHECK_HERE();
        const sequences whole = g.got;
        s.given.max_time = true;
        run_with(t, &g, name, s, FSDP_OK, "");
        CHECK_HERE();
        for (size_t k = 0; k < g.n_prompts; k++) {
            const size_t before = i / 2 ? g.got.len[k] - 1 : 1;
            ASSERT_INT(g.got.len[k], before + 1);
            ASSERT(i % 2 || g.got.ids[k][before] == whole.ids[k][before]);
        }
        s.values.max_time = 1e6;
        run_with(t, &g, name, s, FSDP_OK, "");
        CHECK_HERE();
        check_same(t, &g.got, &whole);
        CHECK_HERE();
    }
}

TEST(guidance_is_for_causal_models)
{
    golden g;
    const fsdp_generation_settings on = {.values = {.guidance_scale = 2},
                                         .given = {.guidance_scale = true}};
    run_with(t, &g, "t5_greedy.json", on, FSDP_ERR_UNSUPPORTED,
             "guidance_scale 2: classifier-free guidance is for causal models");
    CHECK_HERE();
    fsdp_generation_settings unused = {.values = {.negative_prompt_ids = {.ids = {5}, .n = 1}},
                                       .given = {.negative_prompt_ids = true},
                                       .asked_for = {.negative_prompt_ids = true}};
    run_with(t, &g, "llama3_greedy.json", unused, FSDP_ERR_INVALID,
             "--negative-prompt-ids needs --guidance-scale");
}

TEST(settings_that_do_not_go_together_are_refused)
{
    fsdp_generation_config c = {.num_beams = 2, .num_return_sequences = 3};
    ASSERT_ERROR(fsdp_generation_config_check(&c), FSDP_ERR_INVALID, "num_return_sequences 3");
    c = (fsdp_generation_config){.num_beams = 2, .num_return_sequences = 1, .do_sample = true};
    ASSERT_ERROR(fsdp_generation_config_check(&c), FSDP_ERR_UNSUPPORTED, "do_sample");
    c = (fsdp_generation_config){.num_beams = 1,
                                 .num_return_sequences = 3,
                                 .do_sample = true,
                                 .temperature = 1,
                                 .top_p = 1,
                                 .typical_p = 1};
    ASSERT_OK(fsdp_generation_config_check(&c));
}

static fsdp_status parse_settings(const char *text, fsdp_generation_config *c)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_parse("generation_config.json", 1, text, strlen(text), &doc));
    fsdp_status status = fsdp_generation_config_parse(doc, c);
    fsdp_json_destroy(doc);
    return status;
}

/* transformers checks settings of sampling only when it samples, and accepts ids that never occur.
 */
TEST(settings_of_sampling_count_where_there_is_some)
{
    static const struct {
        const char *name, *value;
    } settings[] = {{"temperature", "0.0"}, {"top_p", "1.5"}, {"min_p", "-1"}};
    fsdp_generation_config c;
    char text[128];
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "{\"%s\": %s, \"num_beams\": null}", settings[i].name,
                 settings[i].value);
        ASSERT_OK(parse_settings(text, &c));
        ASSERT_OK(fsdp_generation_config_check(&c));
        c.do_sample = true;
        snprintf(text, sizeof text, "do_sample with %s %g: it takes", settings[i].name,
                 atof(settings[i].value));
        ASSERT_ERROR(fsdp_generation_config_check(&c), FSDP_ERR_INVALID, text);
    }
    ASSERT_OK(parse_settings("{\"eos_token_id\": -1, \"pad_token_id\": -1}", &c));
    ASSERT(c.n_eos == 1 && c.eos_token_ids[0] == -1 && c.pad_token_id == -1);
    ASSERT_ERROR(parse_settings("{\"eos_token_id\": [2, -2]}", &c), FSDP_ERR_FORMAT,
                 "eos_token_id[1]: expected");
}

typedef struct t5_prompt {
    fsdp_device *device;
    fsdp_model *model;
    fsdp_batch *batch;
} t5_prompt;

static void open_prompt(fsdp_test *t, t5_prompt *p)
{
    static const int32_t prompt[] = {116, 116, 116, 61, 116, 1};
    const fsdp_batch_row row = {.source = prompt, .source_len = 6};
    const fsdp_model_options options = {.name = fsdp_test_path("golden/generation/t5_model")};
    ASSERT_OK(fsdp_device_create(NULL, &p->device));
    ASSERT_OK(fsdp_model_open(&options, NULL, p->device, &p->model));
    ASSERT_OK(fsdp_batch_create(&row, 1, NULL, &p->batch));
}

static void close_prompt(t5_prompt *p)
{
    fsdp_batch_release(p->batch);
    fsdp_model_close(p->model);
    fsdp_device_destroy(p->device);
}

/* Any of several ends of sequence ends the text, even as the first new id. */
TEST(several_ids_may_end_a_sequence)
{
    t5_prompt p;
    static const int32_t want[] = {0, 116, 50, 71, 210}; /* transformers continues with 252 */
    static const int64_t ends[] = {210, 116};
    open_prompt(t, &p);
    CHECK_HERE();
    fsdp_generation_config config;
    ASSERT_OK(fsdp_model_generation_config(p.model, &config));
    ASSERT_INT(config.eos_token_ids[0], 1);
    config.n_eos = 2;
    for (int i = 0; i < 2; i++) {
        fsdp_generated *output;
        const fsdp_generate_options options = {.config = &config};
        config.eos_token_ids[1] = ends[i];
        ASSERT_OK(fsdp_generate(p.model, p.device, p.batch, &options, &output));
        ASSERT_INT(output->ids.len, i ? 2 : 5);
        ASSERT_INT(output->prompt_length, 1);
        ASSERT(memcmp(output->ids.ids, want, output->ids.len * sizeof *want) == 0);
        fsdp_generated_free(output, 1);
    }
    config.decoder_start_token_id = 7;
    fsdp_generated *output;
    ASSERT_ERROR(fsdp_generate(p.model, p.device, p.batch,
                               &(fsdp_generate_options){.config = &config}, &output),
                 FSDP_ERR_UNSUPPORTED, "decoder_start_token_id");
    close_prompt(&p);
}

/* Each allocation in turn fails: an error each time, and the model remains usable. */
static void check_memory(fsdp_test *t, const char *name)
{
    golden g;
    open_golden(t, name, &g);
    CHECK_HERE();
    fsdp_generate_config config = config_of(&g, 0);
    config.generation.values.max_new_tokens = 3;
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n += n < 50 ? 1 : 23) {
        g.got.n = 0;
        fsdp_alloc_fail_at(n);
        status = fsdp_generate_run(&config, NULL, take_result, NULL, &g);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_ERROR(status, FSDP_ERR_NOMEM, "");
    }
    ASSERT_INT(g.got.n, g.n_prompts * g.per_prompt);
}
TEST(memory_that_runs_out_is_an_error)
{
    check_memory(t, "t5_greedy.json");
    CHECK_HERE();
    check_memory(t, "t5_beam4.json");
}

/* --- prompts --- */

/* Encode "x y z" as a source text and as a text to be continued, whole and cut to three ids. */
static void add_prompts(fsdp_test *t, const fsdp_tokenizer *tokenizer, fsdp_prompts *p)
{
    for (int i = 0; i < 4; i++) {
        const fsdp_prompt_encoding e = {.tokenizer = tokenizer,
                                        .prefix = "x ",
                                        .max_length = i < 2 ? 0 : 3,
                                        .to_continue = i % 2};
        ASSERT_OK(fsdp_prompts_add_text(p, &e, "y z"));
    }
}

/* T5's texts end with </s>, also after cutting, but not those that are to be continued. Llama's
 * begin with <s>. */
TEST(texts_become_ids_as_the_model_wants_them)
{
    NEEDS_SENTENCEPIECE();
    static const char *const paths[] = {"fixtures/text/llama", "../data/tokenizers/t5"};
    for (int is_t5 = 0; is_t5 < 2; is_t5++) {
        fsdp_tokenizer *tokenizer;
        fsdp_token_list ids = {0};
        fsdp_prompts p = {0};
        ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path(paths[is_t5]), &tokenizer));
        ASSERT_OK(fsdp_tokenizer_encode_text(tokenizer, "x y z", 5, 0, &ids));
        add_prompts(t, tokenizer, &p);
        CHECK_HERE();
        const size_t begin = is_t5 ? 0 : 1;
        ASSERT(ids.len > 2);
        for (size_t i = 0; i < 4; i++) {
            const fsdp_token_list *got = &p.items[i].ids;
            const bool ends = is_t5 && i % 2 == 0;
            ASSERT_INT(got->len, i < 2 ? begin + ids.len + ends : 3);
            if (!is_t5)
                ASSERT_INT(got->ids[0], fsdp_tokenizer_bos_id(tokenizer));
            for (size_t k = begin; k + ends < got->len; k++)
                ASSERT_INT(got->ids[k], ids.ids[k - begin]);
            if (ends)
                ASSERT_INT(got->ids[got->len - 1], fsdp_tokenizer_eos_id(tokenizer));
        }
        fsdp_prompts_free(&p);
        fsdp_token_list_fini(&ids);
        fsdp_tokenizer_close(tokenizer);
    }
}

TEST(each_line_is_a_prompt_and_empty_ones_too)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer;
    fsdp_prompts p = {0};
    char path[300];
    const char *text = "\xEF\xBB\xBFx y\n\nz\r\n\r\ny";
    const char *const lines[] = {"x y", "", "z", "", "y"};
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("fixtures/text/llama"), &tokenizer));
    const fsdp_prompt_encoding e = {.tokenizer = tokenizer};
    snprintf(path, sizeof path, "%s/texts", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
    ASSERT_OK(fsdp_prompts_read_file(&p, &e, path));
    ASSERT_INT(p.n, 5);
    for (size_t i = 0; i < p.n; i++)
        ASSERT_STR(p.items[i].text, lines[i]);
    ASSERT_INT(p.items[1].ids.len, 1);
    ASSERT_INT(p.items[1].ids.ids[0], fsdp_tokenizer_bos_id(tokenizer));
    fsdp_prompts_free(&p);
    fsdp_tokenizer_close(tokenizer);
}

static void read_ids(fsdp_test *t, const char *text, fsdp_status *status, fsdp_prompts *prompts)
{
    char path[300];
    snprintf(path, sizeof path, "%s/ids", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
    *prompts = (fsdp_prompts){0};
    const fsdp_prompt_ids rows = {.vocab_size = 10, .eos_id = -1};
    *status = fsdp_prompts_read_ids(prompts, &rows, path);
}

TEST(ids_are_read_as_array_or_by_line)
{
    static const char *const texts[] = {"[[1, 2], [3]]",
                                        "[\n [1,\n 2],\n [3]\n]\n",
                                        "[1, 2]\n\n{\"input_ids\": [3], \"labels\": [4]}\n",
                                        "{\"input_ids\": [1, 2]}\r\n[3]",
                                        "\xEF\xBB\xBF[1, 2]\n[3]\n",
                                        "\n \n[1, 2]\n[3]\n",
                                        "\xEF\xBB\xBF\r\n[[1, 2],\n [3]]\n"};
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

/* Padding on either side, as accepted by 'fsdp train'. */
TEST(ids_that_are_masked_are_no_prompt)
{
    fsdp_prompts p;
    fsdp_status status;
    read_ids(t,
             "{\"input_ids\": [5, 6, 0, 0], \"attention_mask\": [1, 1, 0, 0]}\n"
             "{\"attention_mask\": [0, 1], \"input_ids\": [0, 7]}\n"
             "{\"input_ids\": [8, 0], \"attention_mask\": null}\n",
             &status, &p);
    CHECK_HERE();
    ASSERT_OK(status);
    ASSERT_INT(p.n, 3);
    ASSERT_INT(p.items[0].ids.len, 2);
    ASSERT_INT(p.items[0].ids.ids[1], 6);
    ASSERT_INT(p.items[1].ids.len, 1);
    ASSERT_INT(p.items[1].ids.ids[0], 7);
    ASSERT_INT(p.items[2].ids.len, 2);
    fsdp_prompts_free(&p);
    read_ids(t, "{\"input_ids\": [5, 6], \"attention_mask\": [1]}\n", &status, &p);
    ASSERT_ERROR(status, FSDP_ERR_FORMAT, "attention_mask");
    fsdp_prompts_free(&p);
    read_ids(t, "[1]\n{\"input_ids\": [5, 6, 7], \"attention_mask\": [1, 0, 1]}\n", &status, &p);
    ASSERT_ERROR(status, FSDP_ERR_FORMAT, "ids: attention_mask: expected ones side by side");
    fsdp_prompts_free(&p);
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
