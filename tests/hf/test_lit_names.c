/* Names and rows of Lit-LLaMA and LitGPT: each row of a joined projection must become the row that
 * a naive loop over heads finds, and what does not fit must be named. */
#include <string.h>

#include "src/base/assert.h"
#include "src/hf/lit_names.h"
#include "tests/test.h"

enum {
    HEADS = 6,
    KV_HEADS = 2,
    HEAD_DIM = 4,
    ROWS = (HEADS + 2 * KV_HEADS) * HEAD_DIM
};

static const fsdp_lit_model model = {"DIR", HEADS, KV_HEADS, HEAD_DIM, 50};

/* Translate a tensor [ROWS, 8] called `name` and an embedding, and find the part `wanted`. */
static void translate(fsdp_test *t, const char *name, const char *wanted, fsdp_arena *arena,
                      const fsdp_lit_part **part)
{
    const int64_t shape[] = {ROWS, 8}, embedding[] = {64, 8};
    const fsdp_lit_tensor tensors[] = {{name, shape, 2}, {"transformer.wte.weight", embedding, 2}};
    const fsdp_lit_format format = strstr(name, "c_attn") ? FSDP_LIT_LLAMA : FSDP_LIT_GPT;
    fsdp_lit_parts parts;
    ASSERT_OK(fsdp_lit_translate("file", format, &model, tensors, 2, arena, &parts));
    *part = NULL;
    for (size_t i = 0; i < parts.n; i++)
        if (strcmp(parts.items[i].name, wanted) == 0)
            *part = &parts.items[i];
    ASSERT(*part);
}

/* Compare the rows of q (0), k (1) or v (2) with those that the layout has: `row_of` is the old row
 * of element 0 of a head, and `pairs` says whether elements 2i and 2i + 1 are rotated together. */
static void check_part(fsdp_test *t, const char *name, int which,
                       int64_t (*row_of)(int which, int64_t head), bool pairs)
{
    static const char *const wanted[] = {"model.layers.7.self_attn.q_proj.weight",
                                         "model.layers.7.self_attn.k_proj.weight",
                                         "model.layers.7.self_attn.v_proj.weight"};
    fsdp_arena arena = {0};
    const fsdp_lit_part *part;
    translate(t, name, wanted[which], &arena, &part);
    CHECK_HERE();
    const int64_t heads = which ? KV_HEADS : HEADS;
    ASSERT(part->shape[0] == heads * HEAD_DIM && part->shape[1] == 8 && part->from == 0);
    for (int64_t head = 0; head < heads; head++)
        for (int64_t i = 0; i < HEAD_DIM; i++) {
            /* element i of Hugging Face's head is rotated with element i + HEAD_DIM / 2 */
            const int64_t half = HEAD_DIM / 2;
            const int64_t old = pairs && which < 2 ? 2 * (i % half) + i / half : i;
            const int64_t row = head * HEAD_DIM + i;
            ASSERT(fsdp_row_order_at(&part->order, row) == row_of(which, head) + old);
        }
    for (int64_t row = 0; row < part->shape[0]; row++) {
        const int64_t run = fsdp_row_order_run(&part->order, row);
        ASSERT(run >= 1);
        for (int64_t i = 0; i < run && row + i < part->shape[0]; i++)
            ASSERT(fsdp_row_order_at(&part->order, row + i) ==
                   fsdp_row_order_at(&part->order, row) + i);
    }
    fsdp_arena_fini(&arena);
}

static int64_t stacked(int which, int64_t head)
{
    const int64_t before[] = {0, HEADS, HEADS + KV_HEADS};
    return (before[which] + head) * HEAD_DIM;
}

static int64_t grouped(int which, int64_t head)
{
    const int64_t queries = HEADS / KV_HEADS, group = which ? head : head / queries;
    const int64_t within = which ? queries + which - 1 : head % queries;
    return (group * (queries + 2) + within) * HEAD_DIM;
}

TEST(rows_of_query_key_and_value_are_those_of_each_layout)
{
    for (int which = 0; which < 3; which++) {
        check_part(t, "transformer.h.7.attn.c_attn.weight", which, stacked, true);
        CHECK_HERE();
        check_part(t, "transformer.h.7.attn.qkv.weight", which, stacked, false);
        CHECK_HERE();
        check_part(t, "transformer.h.7.attn.attn.weight", which, grouped, false);
        CHECK_HERE();
    }
}

/* The embedding has the rows of the vocabulary if it was padded to a multiple of 64 or 512. Any
 * other number of rows is kept, so that loading reports the difference. */
TEST(rows_beyond_the_vocabulary_are_left_out)
{
    static const struct {
        int64_t rows, kept;
    } cases[] = {{50, 50}, {64, 50}, {512, 50}, {128, 128}, {52, 52}, {49, 49}};
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        const int64_t shape[] = {cases[i].rows, 8};
        const fsdp_lit_tensor head = {"lm_head.weight", shape, 2};
        fsdp_arena arena = {0};
        fsdp_lit_parts parts;
        ASSERT_OK(fsdp_lit_translate("file", FSDP_LIT_GPT, &model, &head, 1, &arena, &parts));
        ASSERT(parts.n == 1 && parts.items[0].shape[0] == cases[i].kept);
        fsdp_arena_fini(&arena);
    }
}

static fsdp_status translate_names(const char *const *names, size_t n, int64_t rows)
{
    const int64_t shape[] = {rows, 8};
    fsdp_lit_tensor tensors[4];
    fsdp_arena arena = {0};
    fsdp_lit_parts parts;
    for (size_t i = 0; i < n; i++)
        tensors[i] = (fsdp_lit_tensor){names[i], shape, 2};
    const fsdp_status status =
        fsdp_lit_translate("file", FSDP_LIT_GPT, &model, tensors, n, &arena, &parts);
    fsdp_arena_fini(&arena);
    return status;
}

TEST(what_does_not_fit_is_named)
{
    static const char *const joined[] = {"transformer.h.0.attn.qkv.weight"};
    static const char *const adapter[] = {"transformer.h.0.attn.qkv.lora_A"};
    static const char *const falcon[] = {"transformer.h.0.mlp.fc.weight"};
    static const char *const twice[] = {"transformer.h.0.attn.qkv.weight",
                                        "transformer.h.0.attn.attn.weight"};
    static const char *const no_number[] = {"transformer.h.x.norm_1.weight"};
    static const char *const prefixes[] = {"model.transformer.wte.weight", "lm_head.weight"};
    static const char *const prefixed[] = {"model.transformer.wte.weight", "model.lm_head.weight"};
    ASSERT_ERROR(translate_names(joined, 1, ROWS + 1), FSDP_ERR_INVALID,
                 "has 41 rows, but query, key and value of the config.json of DIR have 40");
    ASSERT_ERROR(translate_names(adapter, 1, 8), FSDP_ERR_INVALID, "merge the adapter");
    ASSERT_ERROR(translate_names(falcon, 1, 8), FSDP_ERR_INVALID, falcon[0]);
    ASSERT_ERROR(translate_names(twice, 2, ROWS), FSDP_ERR_INVALID, "self_attn.k_proj.weight");
    ASSERT_ERROR(translate_names(no_number, 1, 8), FSDP_ERR_INVALID, no_number[0]);
    ASSERT_ERROR(translate_names(prefixes, 2, 8), FSDP_ERR_INVALID, "begin with 'model.'");
    ASSERT_OK(translate_names(prefixed, 2, 8));
}

TEST(programs_are_recognized_by_their_norms)
{
    static const char *const llama[] = {"lm_head.weight", "transformer.h.0.rms_1.scale"};
    static const char *const gpt[] = {"model.transformer.h.3.norm_1.weight"};
    static const char *const gpt2[] = {"transformer.h.0.ln_1.weight", "transformer.wte.weight"};
    ASSERT(fsdp_lit_recognize(llama, 2) == FSDP_LIT_LLAMA);
    ASSERT(fsdp_lit_recognize(gpt, 1) == FSDP_LIT_GPT);
    ASSERT(fsdp_lit_recognize(gpt2, 2) == FSDP_LIT_NONE);
    ASSERT(fsdp_lit_recognize(NULL, 0) == FSDP_LIT_NONE);
}
