/* Assigns the buffers of a batch's body to the fields of the schema. */
#pragma once
#include "src/data/arrow/metadata.h"

enum {
    FSDP_ARROW_MAX_BUFFERS = 3 /* buffers of one field, without the data buffers of a view */
};

typedef struct fsdp_arrow_buffer {
    const unsigned char *data; /* [bytes], any alignment; NULL if bytes is 0 */
    size_t bytes;
} fsdp_arrow_buffer;

/* The values of one field in one batch. The first buffer is the validity bitmap, if the type has
 * one; the meaning of the others depends on the type (Note [Buffers of a field] in layout.c). */
typedef struct fsdp_arrow_array {
    bool is_present; /* false: the batch does not have this field, because one of its parents has a
                        dictionary */
    int64_t length, null_count; /* 0 <= null_count <= length */
    fsdp_arrow_buffer buffers[FSDP_ARROW_MAX_BUFFERS];
    size_t n_buffers;
    size_t first_data, n_data; /* BINARY_VIEW, STRING_VIEW: range of fsdp_arrow_layout.data */
} fsdp_arrow_array;

typedef struct fsdp_arrow_layout {
    fsdp_arrow_array
        *arrays; /* [n_arrays], for fields [first_field, first_field + n_arrays); owned */
    size_t first_field, n_arrays;
    fsdp_arrow_buffer *data; /* [n_data], the data buffers of views; owned */
    size_t n_data;
} fsdp_arrow_layout;

enum {
    FSDP_ARROW_ALL_FIELDS = -1
};

/* Find the arrays of a batch in `body` [bytes]. If the batch has the values of a dictionary, `root`
 * is the index of the dictionary's field, and only that field and its children are present.
 * Otherwise `root` is FSDP_ARROW_ALL_FIELDS. Returns FSDP_ERR_FORMAT if a buffer is not within the
 * body, or if the batch does not have the nodes and buffers of the schema. Nothing in the body is
 * read. On success, the caller frees *out with fsdp_arrow_layout_fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_layout_find(const fsdp_arrow_schema *schema, int64_t root,
                                                   const fsdp_arrow_message *message,
                                                   const unsigned char *body, size_t bytes,
                                                   fsdp_arrow_layout *out);
/* Return the array of a field. first_field <= field < first_field + n_arrays. */
const fsdp_arrow_array *fsdp_arrow_layout_at(const fsdp_arrow_layout *layout, size_t field);
void fsdp_arrow_layout_fini(fsdp_arrow_layout *layout);
