/* The values of one column that wait to be written as a batch. */
#pragma once
#include "src/data/arrow/layout.h"

typedef enum fsdp_arrow_column_type {
    FSDP_ARROW_COLUMN_I32_LIST, /* list<int32>: ids */
    FSDP_ARROW_COLUMN_I8_LIST,  /* list<int8>: masks, as tokenizers of transformers make them */
    FSDP_ARROW_COLUMN_I64_LIST, /* list<int64>: classes of a row */
    FSDP_ARROW_COLUMN_F32_LIST, /* list<float>: numbers of a row, such as one for each class */
    FSDP_ARROW_COLUMN_TEXT,     /* string */
    FSDP_ARROW_COLUMN_I64,
    FSDP_ARROW_COLUMN_F32,
    FSDP_ARROW_COLUMN_F64,
} fsdp_arrow_column_type;

bool fsdp_arrow_column_is_list(fsdp_arrow_column_type type);

/* The values of a column in the rows that were not written yet. Initialize it with {.type =
 * ...}. */
typedef struct fsdp_arrow_pending {
    fsdp_arrow_column_type type;
    int64_t rows, null_count;
    unsigned char *validity; /* a bit for each row */
    /* [rows + 1] for a list or a text: where each row begins in `values`, in entries; offsets[0] is
     * 0. */
    int32_t *offsets;
    unsigned char *values; /* entries of lists, bytes of texts, or numbers */
    size_t values_bytes, validity_cap, offsets_cap, values_cap;
    bool is_set; /* the value of the next row was set */
} fsdp_arrow_pending;

void fsdp_arrow_pending_fini(fsdp_arrow_pending *column);

/* Set the value of the next row: `count` entries of `type` at `values`, each of `width` bytes. A
 * number has one entry. Fails if the row has a value already, or if the column has another type. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_pending_set(fsdp_arrow_pending *column,
                                                   fsdp_arrow_column_type type, const void *values,
                                                   size_t count, size_t width);
/* End the row. If its value was not set, it is null. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_pending_end_row(fsdp_arrow_pending *column);
/* Forget all rows, but keep the memory. */
void fsdp_arrow_pending_clear(fsdp_arrow_pending *column);

/* Return approximately how many bytes this column has in a batch of the rows. */
size_t fsdp_arrow_pending_bytes(const fsdp_arrow_pending *column);

enum {
    FSDP_ARROW_MAX_NODES_WRITTEN = 2,  /* nodes of a column: a list and its entries */
    FSDP_ARROW_MAX_BUFFERS_WRITTEN = 4 /* buffers of a column */
};

/* Set `nodes` [FSDP_ARROW_MAX_NODES_WRITTEN] and `buffers` [FSDP_ARROW_MAX_BUFFERS_WRITTEN] to the
 * nodes and the buffers that the column has in a batch. *n_nodes and *n_buffers are set to their
 * numbers. The buffers point into *column. */
void fsdp_arrow_pending_layout(const fsdp_arrow_pending *column, fsdp_arrow_node *nodes,
                               size_t *n_nodes, fsdp_arrow_buffer *buffers, size_t *n_buffers);
