/* Decoding one token at a time compared with whole sequences, the cache for it, and losses that
 * read few rows. */
#include "src/base/alloc.h"
#include "src/models/causal.h"
#include "tests/models/llama_shape.h"
#include "tests/models/model_checks.h"

enum {
    MAX_SEQUENCES = 6,
    MAX_LENGTH = 40,
    VOCAB = 17
};

/* The ids that a decoder has received. */
typedef struct sequences {
    int n;
    struct {
        int32_t ids[MAX_LENGTH];
        int length;
    } of[MAX_SEQUENCES];
} sequences;

/* Prompts of uneven lengths with arbitrary ids. */
static sequences prompts(int n)
{
    static const int lengths[] = {5, 1, 9};
    sequences all = {.n = n};
    for (int i = 0; i < n; i++)
        for (all.of[i].length = 0; all.of[i].length < lengths[i]; all.of[i].length++)
            all.of[i].ids[all.of[i].length] = (i * 5 + all.of[i].length * 7) % VOCAB;
    return all;
}

static void pack(fsdp_test *t, const fsdp_model_config *config, const sequences *all,
                 fsdp_batch **batch)
{
    fsdp_batch_row rows[MAX_SEQUENCES] = {{0}};
    for (int i = 0; i < all->n; i++)
        rows[i] = (fsdp_batch_row){.source = all->of[i].ids, .source_len = all->of[i].length};
    model_make_batch(t, config, (model_rows){rows, all->n}, batch);
}

/* Checks that `logits` [n, VOCAB] are those of the last token of each whole sequence. */
static void compare(fsdp_test *t, model_case *c, const fsdp_model_config *config,
                    const sequences *all, const fsdp_tensor *logits)
{
    float got[MAX_SEQUENCES * VOCAB], *whole;
    pack(t, config, all, &c->batch);
    CHECK_HERE();
    model_case_logits(t, c, &whole);
    CHECK_HERE();
    ASSERT_INT(fsdp_tensor_size(logits, 0), all->n);
    ASSERT_INT(fsdp_tensor_size(logits, 1), VOCAB);
    ASSERT_OK(fsdp_tensor_to_floats(logits, got));
    for (int i = 0; i < all->n * VOCAB; i++) {
        const int last = c->batch->source_offsets[i / VOCAB + 1] - 1;
        ASSERT_NEAR(got[i], whole[last * VOCAB + i % VOCAB], 2e-5);
    }
    fsdp_free(whole);
    fsdp_batch_release(c->batch);
    c->batch = NULL;
}

static void run_prompt(fsdp_test *t, model_case *c, const fsdp_model_config *config,
                       const sequences *all, fsdp_decode_cache **cache)
{
    fsdp_scope *s;
    fsdp_batch *batch;
    pack(t, config, all, &batch);
    CHECK_HERE();
    ASSERT_OK(fsdp_causal_decoder.create(c->model, cache));
    ASSERT_OK(fsdp_scope_open(c->device, NULL, &(fsdp_scope_options){.batch = batch}, &s));
    fsdp_tensor *logits = fsdp_causal_decoder.prompt(s, c->model, *cache);
    ASSERT_OK(fsdp_scope_status(s));
    compare(t, c, config, all, logits);
    fsdp_scope_close(s);
    fsdp_batch_release(batch);
}

/* Continues with sequences rows[0 .. n) and adds one token to each. */
static void run_step(fsdp_test *t, model_case *c, const fsdp_model_config *config, sequences *all,
                     const int32_t *rows, int n, fsdp_decode_cache *cache)
{
    fsdp_scope *s;
    int32_t ids[MAX_SEQUENCES];
    sequences next = {.n = n};
    ASSERT_OK(fsdp_scope_open(c->device, NULL, NULL, &s));
    if (rows)
        fsdp_causal_decoder.select(s, cache, rows, n);
    for (int i = 0; i < n; i++) {
        next.of[i] = all->of[rows ? rows[i] : i];
        ids[i] = (next.of[i].length * 3 + i * 4) % VOCAB; /* copies of a sequence diverge here */
        next.of[i].ids[next.of[i].length++] = ids[i];
    }
    fsdp_tensor *logits = fsdp_causal_decoder.step(s, c->model, cache, ids);
    ASSERT_OK(fsdp_scope_status(s));
    compare(t, c, config, &next, logits);
    fsdp_scope_close(s);
    *all = next;
}

/* n prompts, then beams of three, which are reordered, end, and all end. */
static void check_decoding(fsdp_test *t, fsdp_llama_family family, int n)
{
    static const int32_t beams[] = {0, 0, 1, 1, 2, 2}, swapped[] = {1, 1, 3, 2, 5, 5};
    static const int32_t outer[] = {0, 4}, last[] = {1};
    model_case c;
    fsdp_decode_cache *cache;
    sequences all = prompts(n);
    const fsdp_model_config config = llama_odd_shape(family);
    model_case_create(t, &config, &c);
    CHECK_HERE();
    run_prompt(t, &c, &config, &all, &cache);
    CHECK_HERE();
    for (int step = 0; step < 20; step++) {
        const int32_t *rows = step == 2    ? beams
                              : step == 4  ? swapped
                              : step == 8  ? outer
                              : step == 12 ? last
                                           : NULL;
        const int count = step < 2 ? 3 : step < 8 ? 6 : step < 12 ? 2 : step < 18 ? 1 : 0;
        if (step == 18)
            rows = last; /* no rows are read */
        run_step(t, &c, &config, &all, n ? rows : NULL, n ? count : 0, cache);
        CHECK_HERE();
    }
    fsdp_causal_decoder.destroy(cache);
    model_case_close(&c);
}

TEST(decoding_step_by_step_gives_the_logits_of_the_whole)
{
    for (int family = FSDP_LLAMA; family <= FSDP_QWEN3; family++) {
        check_decoding(t, (fsdp_llama_family)family, 3);
        CHECK_HERE();
    }
}
TEST_RANKS(decoding_step_by_step_gives_the_logits_of_the_whole_on_3_ranks, 3)
{
    check_decoding(t, FSDP_LLAMA, 3);
}
TEST_RANKS(a_rank_without_sequences_decodes_along, 2)
{
    check_decoding(t, FSDP_MISTRAL, t->rank ? 0 : 3);
}

TEST(a_prompt_without_tokens_is_refused)
{
    model_case c;
    fsdp_decode_cache *cache;
    fsdp_scope *s;
    sequences all = prompts(3);
    const fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    all.of[1].length = 0;
    model_case_create(t, &config, &c);
    CHECK_HERE();
    pack(t, &config, &all, &c.batch);
    CHECK_HERE();
    ASSERT_OK(fsdp_causal_decoder.create(c.model, &cache));
    ASSERT_OK(fsdp_scope_open(c.device, NULL, &(fsdp_scope_options){.batch = c.batch}, &s));
    ASSERT(!fsdp_causal_decoder.prompt(s, c.model, cache));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "prompt: row 1 is empty");
    ASSERT(!fsdp_causal_decoder.step(s, c.model, cache, NULL));
    fsdp_scope_close(s);
    fsdp_causal_decoder.destroy(cache);
    fsdp_causal_decoder.destroy(NULL);
    model_case_close(&c);
}

TEST(an_id_outside_of_the_vocabulary_is_refused)
{
    model_case c;
    fsdp_decode_cache *cache;
    fsdp_scope *s;
    const int32_t ids[] = {3, VOCAB, 0};
    const sequences all = prompts(3);
    const fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    model_case_create(t, &config, &c);
    CHECK_HERE();
    run_prompt(t, &c, &config, &all, &cache);
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(c.device, NULL, NULL, &s));
    ASSERT(!fsdp_causal_decoder.step(s, c.model, cache, ids));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "id 17 at token 1");
    fsdp_scope_close(s);
    fsdp_causal_decoder.destroy(cache);
    model_case_close(&c);
}

/* A T5 batch has as many labels as target tokens, which may be fewer than ids. */
TEST(a_batch_of_another_task_is_refused)
{
    model_case c;
    fsdp_scope *s;
    const int32_t ids[] = {3, 1, 4, 1, 5}, labels[] = {2};
    const fsdp_batch_row row = {.source = ids, .labels = labels, .source_len = 5, .labels_len = 1};
    const fsdp_model_config config = llama_odd_shape(FSDP_LLAMA);
    model_case_create(t, &config, &c);
    CHECK_HERE();
    ASSERT_OK(fsdp_batch_create(&row, 1, NULL, &c.batch));
    ASSERT_OK(fsdp_scope_open(c.device, NULL, &(fsdp_scope_options){.batch = c.batch}, &s));
    ASSERT(!fsdp_model_loss(s, c.model, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "LlamaForCausalLM: the batch has labels");
    fsdp_scope_close(s);
    model_case_close(&c);
}

/* --- rows that are read (Note [Rows that are read] in causal.h) --- */

static const int32_t read_ids[] = {3, 9, 4, 16, 5, 8, 2, 1, 7, 7, 11, 0};
/* Labels at the end; some in the middle; none; all. */
static const int32_t end_labels[] = {-100, -100, -100, -100, -100, -100, -100, 1, 7};
static const int32_t middle_labels[] = {-100, -100, -100, -100, 12, 3, -100, -100};
static const int32_t no_labels[] = {-100, -100, -100, -100, -100, -100};
static const fsdp_batch_row masked_rows[] = {
    {.source = read_ids, .labels = end_labels, .source_len = 9, .labels_len = 9},
    {.source = read_ids + 1, .labels = no_labels, .source_len = 6, .labels_len = 6},
    {.source = read_ids + 2, .labels = middle_labels, .source_len = 8, .labels_len = 8},
    {.source = read_ids + 9, .source_len = 2}};
static const model_rows masked = {masked_rows, 4};
static const fsdp_batch_row unmasked_rows[] = {{.source = read_ids, .source_len = 9},
                                               {.source = read_ids + 4, .source_len = 5}};
static const model_rows unmasked = {unmasked_rows, 2};

static fsdp_model_config small_gpt2(void)
{
    fsdp_model_config config = {0};
    if (fsdp_model_config_preset("gpt2", &config) != FSDP_OK)
        return config;
    config.gpt2.vocab_size = 17;
    config.gpt2.n_positions = 12;
    config.gpt2.n_embd = 15;
    config.gpt2.n_layer = 2;
    config.gpt2.n_head = 3;
    config.gpt2.n_inner = 40;
    config.gpt2.bos_token_id = config.gpt2.eos_token_id = 16;
    return config;
}

static fsdp_model_config causal_config(int i)
{
    return i <= FSDP_QWEN3 ? llama_odd_shape((fsdp_llama_family)i) : small_gpt2();
}

TEST(a_loss_that_computes_rows_that_are_read_has_the_numbers_of_all)
{
    for (int i = FSDP_LLAMA; i <= FSDP_QWEN3 + 1; i++) {
        const fsdp_model_config config = causal_config(i);
        model_check_rows_read(t, &config, masked, 80);
        CHECK_HERE();
    }
}

TEST_RANKS(masked_prompts_train_alike_on_2_ranks, 2)
{
    for (int i = FSDP_LLAMA; i <= FSDP_QWEN3 + 1; i++) {
        fsdp_model_config config = causal_config(i);
        fsdp_model_config_set_dropout(&config, 0.2);
        model_check_sharding(t, &config, NULL, masked);
        CHECK_HERE();
    }
}

/* One rank whose prompts are masked and one that reads all rows: sections end at the same
 * places. */
TEST_RANKS(ranks_may_read_other_rows, 2)
{
    for (int i = FSDP_LLAMA; i <= FSDP_QWEN3 + 1; i++) {
        const fsdp_model_config config = causal_config(i);
        model_check_batches_of_ranks(t, &config, (const model_rows[]){masked, unmasked});
        CHECK_HERE();
    }
}
