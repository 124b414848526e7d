/* Buffers with a part for each rank of a group: gradient buffers, and the buffers of an all-reduce
 * over replicas, whose parts are called lanes.
 *
 * The buffer begins with flags: one byte for each rank and parameter. A flag is 0 if the rank has
 * no gradient of the parameter. The flags come before the parts, so the place of a flag does not
 * depend on the layout of the parts. So ranks can compare their flags even if their layouts differ,
 * for example because one rank has frozen a parameter that its peers train.
 *
 * A buffer without a group is private and has no flags, because there is no peer to compare them
 * with.
 *
 * Note [Parts on other cards]. If each rank has a card of its own, a rank reads only its own rows
 * of the parts of the other ranks. So in its mirror of a gradient buffer (Note [Several cards] in
 * src/comm/cards/exchange.h), its own part is whole, and the parts of the other ranks have room for
 * its rows only: rank r's mirror has the flags, the part of rank r, and the other parts in rank
 * order. In these parts, the rows of a parameter are contiguous and begin at
 * fsdp_param_grad.peer_offset. With N ranks, such a mirror takes at most twice the memory of the
 * unit's gradients, instead of N times this memory. A gradient that is a table takes the same room
 * in all parts. */
#pragma once
#include "src/fsdp/grad_buffer.h"

typedef struct fsdp_grad_parts {
    fsdp_buffer *buffer;
    fsdp_group *group;
    int64_t numel; /* Elements of one part, without flags. */
    /* Elements of the part of a rank on another card: Note [Parts on other cards]. 0: all parts
     * have `numel` elements. */
    int64_t peer_numel;
    int leaves;       /* Number of micro-batches whose gradients each part contains. */
    bool is_split;    /* Each rank reads only its own elements of the parts. */
    bool has_results; /* The buffer has one more part, for sums, after the parts of all ranks. */
} fsdp_grad_parts;

/* What a sum adds up: one tensor in all parts of a buffer. */
typedef struct fsdp_grad_source {
    const fsdp_grad_parts *parts;
    int64_t offset;          /* the first element of the tensor in each part */
    int64_t peer_offset;     /* the first element in parts with peer_numel elements */
    const fsdp_slice *slice; /* the elements of the tensor to sum */
    bool is_table;           /* the parts contain tables: Note [Gradients by row] in grad_rows.h */
    /* If is_piece is true, sum only elements [begin, end) of the slice. */
    bool is_piece;
    int64_t begin, end;
} fsdp_grad_source;

/* Return the info for a phase that moves `numel` elements of gradients. If ranks ran different
 * code, their `numel` may differ; fsdp_buffer_begin() then returns an error. */
fsdp_phase_info fsdp_grad_phase(const fsdp_grad_buffer *b, fsdp_phase_kind kind, size_t numel);
/* Return the parts of a gradient buffer of b. `numel` and `peer_numel` are those of its layout. */
fsdp_grad_parts fsdp_grad_parts_of_buffer(const fsdp_grad_buffer *b, fsdp_buffer *buffer,
                                          int64_t numel, int64_t peer_numel);
/* Return the size of the whole buffer in bytes. `parts->buffer` is not used. */
size_t fsdp_grad_parts_bytes(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts);
/* Copy b->flags to this rank's flags in the buffer. No effect on meta and without a group. */
void fsdp_grad_parts_write_flags(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts);
/* Elements [first, first + n) of this rank's part. In parts with peer_numel elements, they begin at
 * element `peer_first`. */
typedef struct fsdp_grad_elements {
    int64_t first, peer_first, n;
} fsdp_grad_elements;

/* Declare with fsdp_buffer_wrote() that rank `reader` (or every rank: FSDP_ALL_READERS) reads these
 * elements of this rank's part. Only elements that are declared are sent to ranks on other hosts or
 * cards. Call this before the WRITE phase ends. */
void fsdp_grad_parts_name(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts, int reader,
                          fsdp_grad_elements elements);
/* Do what fsdp_grad_parts_name() does for all elements of p's whole gradient in this rank's part.
 * Each rank reads the rows that it owns. */
void fsdp_grad_parts_name_whole(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                const fsdp_param *p);
/* Return true if `rank` is on another card, and its part has only peer_numel elements. */
bool fsdp_grad_parts_are_rows(const fsdp_grad_parts *parts, int rank);
/* Return the part of a rank, or the part after the parts of all ranks (has_results). Return NULL on
 * meta. */
char *fsdp_grad_parts_of_rank(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts, int rank);
/* Check that all ranks have gradients of the same parameters and, in a section, that these
 * gradients arrived in the same order. If not, all ranks get FSDP_ERR_COMM. The message names a
 * parameter for which the ranks differ. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_parts_compare_flags(const fsdp_grad_buffer *b,
                                                          const fsdp_grad_parts *parts);
/* What fsdp_grad_parts_sum() sums: elements [begin, begin + n) of this rank's rows, over the parts
 * [first, first + parts). */
typedef struct fsdp_grad_range {
    int first, parts;
    int64_t begin, n;
} fsdp_grad_range;

/* Sum a range of the source's slice, multiply the sum by `scale`, and store it in `to` [range->n].
 * The kernel tree_sum adds the parts in a binary tree. Do not call this on meta. */
void fsdp_grad_parts_sum(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                         const fsdp_grad_range *range, float *to, float scale);
