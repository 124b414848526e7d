/* BPE against a loop that is as simple as the definition, on random words and merges. */
#include <stdio.h>

#include "src/text/models/bpe.h"
#include "tests/text/models/models.h"

enum {
    LETTERS = 4,
    TOKENS = 60,
    WORD_MAX = 400
};

typedef struct random_model {
    fsdp_bpe_merge merges[TOKENS];
    size_t n_merges;
    char texts[TOKENS][64];
    int n_tokens;
} random_model;

static uint64_t state = 1;

static int below(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

/* Letters, and tokens that are joined from two earlier ones. Some merges share a rank. */
static fsdp_status make_model(random_model *m, bool marks, fsdp_token_model **out)
{
    static const char *const letters[LETTERS] = {"a", "b", ".", "\xE2\x96\x81"};
    fsdp_vocabulary *vocabulary = NULL;
    FSDP_TRY(fsdp_vocabulary_create(&vocabulary));
    *m = (random_model){.n_tokens = LETTERS};
    for (int i = 0; i < LETTERS; i++)
        strcpy(m->texts[i], letters[i]);
    while (m->n_tokens < TOKENS) {
        int left = below(m->n_tokens), right = below(m->n_tokens), result = m->n_tokens;
        if (strlen(m->texts[left]) + strlen(m->texts[right]) >= sizeof m->texts[0])
            continue;
        /* With few tokens that have U+2581 behind another letter, pieces have parts. */
        bool joins = strstr(m->texts[right], letters[3]) == m->texts[right];
        if (marks && joins && below(8) != 0)
            continue;
        char text[128];
        snprintf(text, sizeof text, "%s%s", m->texts[left], m->texts[right]);
        for (int i = 0; i < m->n_tokens; i++)
            result = strcmp(m->texts[i], text) == 0 ? i : result;
        if (result == m->n_tokens)
            strcpy(m->texts[m->n_tokens++], text);
        if (m->n_merges < TOKENS)
            m->merges[m->n_merges++] = (fsdp_bpe_merge){left, right, result, (uint32_t)below(40)};
    }
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < TOKENS && status == FSDP_OK; i++)
        status = fsdp_vocabulary_add(vocabulary, m->texts[i], strlen(m->texts[i]), i);
    if (status != FSDP_OK) {
        fsdp_vocabulary_destroy(vocabulary);
        return status;
    }
    /* Every letter has a token, so none is unknown; but only models that have an unknown token
     * split a piece into parts. */
    const fsdp_bpe_options options = {.unk_token = "a"};
    return fsdp_bpe_create(vocabulary, m->merges, m->n_merges, &options, out);
}

/* The last merge of the pair counts. */
static const fsdp_bpe_merge *find_merge(const random_model *m, int32_t left, int32_t right)
{
    for (size_t i = m->n_merges; i-- > 0;)
        if (m->merges[i].left == left && m->merges[i].right == right)
            return &m->merges[i];
    return NULL;
}

/* Merge ids [n] by the definition, and return their number. */
static size_t merge_simply(const random_model *m, int32_t *ids, size_t n)
{
    for (;;) {
        const fsdp_bpe_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const fsdp_bpe_merge *merge = find_merge(m, ids[i], ids[i + 1]);
            if (merge && (!best || merge->rank < best->rank)) {
                best = merge;
                at = i;
            }
        }
        if (!best)
            return n;
        ids[at] = best->result;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void check_random_word(fsdp_test *t, const random_model *m, const fsdp_token_model *model,
                              fsdp_token_work *work)
{
    int32_t ids[WORD_MAX];
    char piece[3 * WORD_MAX + 1] = "";
    size_t letters = (size_t)below(below(3) ? 30 : WORD_MAX) + 1, length = 0;
    int kinds = below(LETTERS) + 1;
    for (size_t i = 0; i < letters; i++) {
        ids[i] = LETTERS - 1 - below(kinds);
        strcpy(piece + length, m->texts[ids[i]]);
        length += strlen(m->texts[ids[i]]);
    }
    size_t n = merge_simply(m, ids, letters);
    fsdp_token_spans spans = {0};
    ASSERT_OK(model->ops->encode(model, work, piece, length, &spans));
    bool same = spans.len == n;
    uint32_t end = 0;
    for (size_t i = 0; i < n && same; i++) {
        same = spans.items[i].id == ids[i] && spans.items[i].begin == end;
        end += (uint32_t)strlen(m->texts[ids[i]]);
        same = same && spans.items[i].end == end;
    }
    fsdp_token_spans_fini(&spans);
    if (!same)
        FAIL("'%s' has other tokens", piece);
}

/* Words of up to 48 letters have no heap. */
TEST(random_words_are_merged_as_the_definition_says)
{
    fsdp_token_work *work = NULL;
    ASSERT_OK(fsdp_token_work_create(&work));
    for (int i = 0; i < 60 && !t->failed; i++) {
        random_model m;
        fsdp_token_model *model = NULL;
        ASSERT_OK(make_model(&m, i % 2, &model));
        for (int k = 0; k < 60 && !t->failed; k++)
            check_random_word(t, &m, model, work);
        fsdp_token_model_destroy(model);
    }
    fsdp_token_work_destroy(work);
}

TEST(merges_of_ids_that_are_no_tokens_are_refused)
{
    static const fsdp_bpe_merge merges[] = {{0, 1, 2, 0}, {0, 0, 1, UINT32_MAX}};
    for (int i = 0; i < 2; i++) {
        fsdp_vocabulary *vocabulary = NULL;
        fsdp_token_model *model = NULL;
        const fsdp_bpe_options options = {0};
        ASSERT_OK(fsdp_vocabulary_create(&vocabulary));
        ASSERT_OK(fsdp_vocabulary_add(vocabulary, "a", 1, 0));
        ASSERT_OK(fsdp_vocabulary_add(vocabulary, "aa", 2, 1));
        ASSERT_ERROR(fsdp_bpe_create(vocabulary, &merges[i], 1, &options, &model),
                     i ? FSDP_ERR_FORMAT : FSDP_ERR_INVALID, i ? "4294967295" : "not all of them");
    }
}
