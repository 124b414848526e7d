/* See token_runs.h. */
#include "src/kernels/cuda/token_runs.h"

#include <string.h>

#include "src/base/alloc.h"

enum {
    DIGIT_BITS = 11,
    DIGITS = 1 << DIGIT_BITS
};

/* Sort the token numbers [0, n) by their ids, with a stable radix sort, least significant digit
 * first. The sort moves the numbers between the buffers `order` and `other`. Return the buffer that
 * contains the result. */
static int32_t *sort_by_id(int32_t *order, int32_t *other, const int32_t *ids, int64_t n,
                           int64_t vocab)
{
    for (int shift = 0; shift < 31 && (vocab - 1) >> shift > 0; shift += DIGIT_BITS) {
        int32_t start[DIGITS + 1] = {0};
        for (int64_t i = 0; i < n; i++)
            start[(ids[order[i]] >> shift & (DIGITS - 1)) + 1]++;
        for (int d = 0; d < DIGITS; d++)
            start[d + 1] += start[d];
        for (int64_t i = 0; i < n; i++)
            other[start[ids[order[i]] >> shift & (DIGITS - 1)]++] = order[i];
        int32_t *sorted = other;
        other = order;
        order = sorted;
    }
    return order;
}

/* Add the pieces for tokens [begin, end) of the sorted order. All of these tokens have the id
 * `id`. */
static void add_run(fsdp_token_runs *runs, int64_t begin, int64_t end, int32_t id)
{
    const int64_t n = (end - begin + FSDP_TOKEN_PIECE - 1) / FSDP_TOKEN_PIECE;
    if (n > 1)
        runs->longs[runs->n_longs++] =
            (fsdp_token_long){.id = id, .slot = (int32_t)runs->n_slots, .n = (int32_t)n};
    for (int64_t i = 0; i < n; i++)
        runs->pieces[runs->n_pieces++] =
            (fsdp_token_piece){.begin = (int32_t)(begin + i * FSDP_TOKEN_PIECE),
                               .id = id,
                               .slot = n > 1 ? (int32_t)runs->n_slots++ : -1};
}

static void make_pieces(fsdp_token_runs *runs, const int32_t *ids)
{
    const int32_t *order = runs->order;
    for (int64_t begin = 0, end = 0; begin < runs->n_tokens; begin = end) {
        const int32_t id = ids[order[begin]];
        while (end < runs->n_tokens && ids[order[end]] == id)
            end++;
        add_run(runs, begin, end, id);
    }
    runs->pieces[runs->n_pieces] = (fsdp_token_piece){.begin = (int32_t)runs->n_tokens};
}

/* runs->memory is large enough for two buffers of token numbers, for the pieces (at most one per
 * token) and for the ids that have several pieces. The pieces are written directly after the sorted
 * numbers, which may be in the first or in the second buffer. */
fsdp_status fsdp_token_runs_init(fsdp_token_runs *runs, const int32_t *ids, int64_t tokens,
                                 int64_t vocab, int32_t padding_idx)
{
    const size_t most_longs = (size_t)tokens / FSDP_TOKEN_PIECE;
    const size_t n = (size_t)tokens, words = 2 * n + 3 * (n + 1) + 3 * most_longs;
    *runs = (fsdp_token_runs){.memory = fsdp_realloc(NULL, words, sizeof(int32_t))};
    if (!runs->memory)
        return fsdp_error_nomem();
    int32_t *other = runs->memory, *order = other + n;
    for (int64_t i = 0; i < tokens; i++)
        if (ids[i] != padding_idx)
            order[runs->n_tokens++] = (int32_t)i;
    runs->order = sort_by_id(order, other, ids, runs->n_tokens, vocab);
    runs->pieces = (fsdp_token_piece *)(void *)(runs->order + runs->n_tokens);
    runs->longs = (fsdp_token_long *)(void *)((int32_t *)runs->memory + 2 * n + 3 * (n + 1));
    make_pieces(runs, ids);
    fsdp_token_piece *end = runs->pieces + runs->n_pieces + 1;
    memmove(end, runs->longs, (size_t)runs->n_longs * sizeof *runs->longs);
    runs->longs = (fsdp_token_long *)(void *)end;
    runs->bytes = (size_t)((char *)(runs->longs + runs->n_longs) - (char *)runs->order);
    return FSDP_OK;
}

void fsdp_token_runs_fini(fsdp_token_runs *runs)
{
    fsdp_free(runs->memory);
    *runs = (fsdp_token_runs){0};
}
