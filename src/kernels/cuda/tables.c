/* See tables.h. */
#include "src/kernels/cuda/tables.h"

#include <string.h>

#include "src/base/alloc.h"

enum {
    /* A table is copied in pieces of at most this size, because fsdp_cuda_from_host() does not wait
     * for such small copies. */
    PIECE_BYTES = 1 << 16,
    /* Initial capacity of the host memory of each table. */
    SMALL_BYTES = 1 << 13
};

typedef struct table {
    char *next; /* the table that the caller is writing */
    size_t next_bytes, next_capacity;
    char *host; /* a copy of the table that the device has */
    size_t bytes, capacity;
    void *device;
    size_t device_capacity;
} table;

typedef struct tables {
    table of[FSDP_CUDA_N_TABLES];
    int64_t copies;
} tables;

static void destroy_tables(fsdp_cuda_context *c, void *data)
{
    tables *all = data;
    for (int i = 0; i < FSDP_CUDA_N_TABLES; i++) {
        table *t = &all->of[i];
        if (t->device)
            cudaFreeAsync(t->device, fsdp_cuda_stream(c));
        fsdp_free(t->host);
        fsdp_free(t->next);
    }
    fsdp_free(all);
}

static tables *tables_of(fsdp_cuda_context *c)
{
    return fsdp_cuda_attachment_of(c, FSDP_CUDA_TABLES)->data;
}

fsdp_status fsdp_cuda_tables_create(fsdp_cuda_context *c)
{
    tables *all = fsdp_calloc(1, sizeof *all);
    if (!all)
        return FSDP_ERR_NOMEM;
    *fsdp_cuda_attachment_of(c, FSDP_CUDA_TABLES) = (fsdp_cuda_attachment){all, destroy_tables};
    for (int i = 0; i < FSDP_CUDA_N_TABLES; i++) {
        table *t = &all->of[i];
        if (!FSDP_GROW(t->next, t->next_capacity, SMALL_BYTES) ||
            !FSDP_GROW(t->host, t->capacity, SMALL_BYTES))
            return FSDP_ERR_NOMEM;
    }
    return FSDP_OK;
}

int64_t fsdp_cuda_table_copies(fsdp_kernel_context *context)
{
    return tables_of(fsdp_cuda_of(context))->copies;
}

void *fsdp_cuda_table_begin(fsdp_cuda_context *c, fsdp_cuda_table which, size_t bytes)
{
    table *t = &tables_of(c)->of[which];
    if (!FSDP_GROW(t->next, t->next_capacity, bytes)) {
        fsdp_cuda_fail(c, FSDP_ERR_NOMEM);
        return NULL;
    }
    memset(t->next, 0, bytes);
    t->next_bytes = bytes;
    return t->next;
}

/* Make sure that the device memory of the table is large enough. Kernels that were started earlier
 * may still read the old memory, so it is freed in the order of the stream. */
static bool reserve(fsdp_cuda_context *c, table *t)
{
    if (t->next_bytes <= t->device_capacity)
        return true;
    const size_t bytes = t->next_bytes + t->next_bytes / 2;
    if (t->device)
        fsdp_cuda_check(c, cudaFreeAsync(t->device, fsdp_cuda_stream(c)), "table");
    t->device = NULL;
    t->device_capacity = t->bytes = 0;
    if (!fsdp_cuda_check(c, cudaMallocAsync(&t->device, bytes, fsdp_cuda_stream(c)), "table"))
        return false;
    t->device_capacity = bytes;
    return true;
}

/* Swap the two host buffers `next` and `host`, so that `host` is the table that the caller has just
 * written. */
static void exchange(table *t)
{
    const table old = *t;
    t->host = old.next;
    t->bytes = old.next_bytes;
    t->capacity = old.next_capacity;
    t->next = old.host;
    t->next_capacity = old.capacity;
}

const void *fsdp_cuda_table_end(fsdp_cuda_context *c, fsdp_cuda_table which)
{
    table *t = &tables_of(c)->of[which];
    if (t->next_bytes == t->bytes && t->bytes && memcmp(t->next, t->host, t->bytes) == 0)
        return t->device;
    if (!reserve(c, t))
        return NULL;
    exchange(t);
    tables_of(c)->copies++;
    for (size_t at = 0; at < t->bytes; at += PIECE_BYTES)
        fsdp_cuda_from_host(c, (char *)t->device + at, t->host + at,
                            t->bytes - at < PIECE_BYTES ? t->bytes - at : PIECE_BYTES);
    if (fsdp_cuda_status(c) == FSDP_OK)
        return t->device;
    t->bytes = 0; /* the device may not have the table, so the next equal table is copied again */
    return NULL;
}
