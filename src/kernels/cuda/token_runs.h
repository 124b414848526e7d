/* The order in which embedding_backward() adds gradients: tokens are sorted by id, and tokens with
 * the same id stay in their order. The tokens of an id are divided into pieces of at most
 * FSDP_TOKEN_PIECE tokens, and each piece is added up by one block. An id with several pieces is
 * called long. A second step adds the sums of its pieces to the row of the id, in order. */
#pragma once
#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FSDP_TOKEN_PIECE = 128
};

typedef struct fsdp_token_piece {
    /* the piece has the tokens order[i] for i in [begin, end), where `end` is the `begin` of the
     * next piece */
    int32_t begin;
    int32_t id;
    /* -1: the sum of the piece is added directly to the row of the id. Otherwise the sum is stored
     * in this row of the partial sums. */
    int32_t slot;
} fsdp_token_piece;

/* An id with several pieces. */
typedef struct fsdp_token_long {
    int32_t id, slot, n; /* the partial sums of the id are in rows [slot, slot + n) */
} fsdp_token_long;

/* `order`, `pieces` and `longs` are consecutive in memory, so that one upload copies all three:
 * `bytes` bytes from `order` on. */
typedef struct fsdp_token_runs {
    int32_t *order;           /* [n_tokens] */
    fsdp_token_piece *pieces; /* [n_pieces + 1]; in the last element, only `begin` is set */
    fsdp_token_long *longs;   /* [n_longs] */
    int64_t n_tokens, n_pieces, n_longs, n_slots;
    size_t bytes;
    void *memory;
} fsdp_token_runs;

/* Sort the tokens [0, tokens) by ids[token], which must be in [0, vocab). Tokens whose id is
 * padding_idx are left out. The caller must call fsdp_token_runs_fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_token_runs_init(fsdp_token_runs *runs, const int32_t *ids,
                                                 int64_t tokens, int64_t vocab,
                                                 int32_t padding_idx);
void fsdp_token_runs_fini(fsdp_token_runs *runs);

#ifdef __cplusplus
}
#endif
