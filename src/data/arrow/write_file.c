/* See write_file.h. */
#include "src/data/arrow/write_file.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"

enum {
    ALIGNMENT = 8 /* alignment of metadata and buffers */
};

struct fsdp_arrow_stream {
    fsdp_atomic_file *file;
};

static size_t padding(size_t bytes)
{
    return (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
}

static fsdp_status append_padded(fsdp_atomic_file *file, const void *data, size_t bytes)
{
    static const char zeros[ALIGNMENT];
    if (bytes)
        FSDP_TRY(fsdp_atomic_file_append(file, data, bytes));
    return padding(bytes) ? fsdp_atomic_file_append(file, zeros, padding(bytes)) : FSDP_OK;
}

/* Append the prefix of a message and its metadata. */
static fsdp_status append_metadata(fsdp_atomic_file *file, const void *data, size_t bytes)
{
    const uint32_t prefix[2] = {UINT32_MAX, (uint32_t)(bytes + padding(bytes))};
    FSDP_TRY(fsdp_atomic_file_append(file, prefix, sizeof prefix));
    return append_padded(file, data, bytes);
}

fsdp_status fsdp_arrow_stream_begin(const char *path, const fsdp_arrow_field *fields,
                                    size_t n_fields, const char *huggingface,
                                    fsdp_arrow_stream **out)
{
    void *data = NULL;
    size_t bytes = 0;
    fsdp_arrow_stream *stream = fsdp_calloc(1, sizeof *stream);
    if (!stream)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_arrow_schema_write(fields, n_fields, huggingface, &data, &bytes);
    if (status == FSDP_OK)
        status = fsdp_atomic_file_begin(path, 0, &stream->file);
    if (status == FSDP_OK)
        status = append_metadata(stream->file, data, bytes);
    fsdp_free(data);
    if (status == FSDP_OK)
        *out = stream;
    else
        fsdp_arrow_stream_discard(stream);
    return status;
}

/* The nodes and buffers of a batch. */
typedef struct batch {
    fsdp_arrow_message message;
    fsdp_arrow_buffer *contents; /* [message.n_buffers] */
} batch;

/* Collect the nodes and buffers of all columns, and give each buffer an offset in the body. */
static fsdp_status collect_buffers(const fsdp_arrow_pending *columns, size_t n, batch *b)
{
    fsdp_arrow_message *m = &b->message;
    m->rows = n ? columns[0].rows : 0;
    m->nodes = fsdp_calloc(n * FSDP_ARROW_MAX_NODES_WRITTEN, sizeof *m->nodes);
    m->buffers = fsdp_calloc(n * FSDP_ARROW_MAX_BUFFERS_WRITTEN, sizeof *m->buffers);
    b->contents = fsdp_calloc(n * FSDP_ARROW_MAX_BUFFERS_WRITTEN, sizeof *b->contents);
    if (!m->nodes || !m->buffers || !b->contents)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        size_t n_nodes, n_buffers;
        fsdp_arrow_pending_layout(&columns[i], m->nodes + m->n_nodes, &n_nodes,
                                  b->contents + m->n_buffers, &n_buffers);
        m->n_nodes += n_nodes;
        m->n_buffers += n_buffers;
    }
    for (size_t i = 0; i < m->n_buffers; i++) {
        const size_t bytes = b->contents[i].bytes;
        m->buffers[i] = (fsdp_arrow_range){m->body_bytes, (int64_t)bytes};
        m->body_bytes += (int64_t)(bytes + padding(bytes));
    }
    return FSDP_OK;
}

static uint64_t hash_bytes(uint64_t hash, const unsigned char *data, size_t bytes)
{
    uint64_t word;
    size_t at = 0;
    for (; bytes - at >= sizeof word; at += sizeof word) {
        memcpy(&word, data + at, sizeof word);
        hash = fsdp_mix64(hash ^ word);
    }
    word = bytes;
    if (bytes > at)
        memcpy(&word, data + at, bytes - at);
    return fsdp_mix64(hash ^ word ^ (uint64_t)bytes << 56);
}

static fsdp_status append_batch(fsdp_atomic_file *file, const batch *b, uint64_t *hash)
{
    void *data;
    size_t bytes;
    FSDP_TRY(fsdp_arrow_batch_write(&b->message, &data, &bytes));
    fsdp_status status = append_metadata(file, data, bytes);
    fsdp_free(data);
    for (size_t i = 0; status == FSDP_OK && i < b->message.n_buffers; i++) {
        status = append_padded(file, b->contents[i].data, b->contents[i].bytes);
        *hash = hash_bytes(*hash, b->contents[i].data, b->contents[i].bytes);
    }
    return status;
}

fsdp_status fsdp_arrow_stream_append(fsdp_arrow_stream *stream, const fsdp_arrow_pending *columns,
                                     size_t n_columns, uint64_t *hash)
{
    batch b = {0};
    fsdp_status status = collect_buffers(columns, n_columns, &b);
    if (status == FSDP_OK)
        status = append_batch(stream->file, &b, hash);
    fsdp_arrow_message_fini(&b.message);
    fsdp_free(b.contents);
    return status;
}

uint64_t fsdp_arrow_stream_bytes(const fsdp_arrow_stream *stream)
{
    return fsdp_atomic_file_appended(stream->file);
}

fsdp_status fsdp_arrow_stream_commit(fsdp_arrow_stream *stream)
{
    const uint32_t end[2] = {UINT32_MAX, 0};
    fsdp_status status = fsdp_atomic_file_append(stream->file, end, sizeof end);
    if (status == FSDP_OK) {
        status = fsdp_atomic_file_commit(stream->file);
        stream->file = NULL;
    }
    fsdp_arrow_stream_discard(stream);
    return status;
}

void fsdp_arrow_stream_discard(fsdp_arrow_stream *stream)
{
    if (!stream)
        return;
    fsdp_atomic_file_discard(stream->file);
    fsdp_free(stream);
}
