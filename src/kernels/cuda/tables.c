/* See tables.h. */
#include "src/kernels/cuda/tables.h"

#include <string.h>

#include "src/base/alloc.h"

enum {
    /* A table is copied in pieces of at most this size, because fsdp_cuda_from_host() does not wait
     * for such small copies. */
    PIECE_BYTES = 1 << 16,
    /* Initial capacity of the host memory of each kind of table. */
    SMALL_BYTES = 1 << 13,
    /* The device keeps this many tables of each kind. */
    MOST_KEPT = 16
};

/* A table that the device has. */
typedef struct kept_table {
    char *host; /* a copy of the table in host memory */
    size_t bytes, capacity;
    void *device;
    size_t device_capacity;
    uint64_t used; /* the value of tables.n_uses when this table was last used; 0: never */
} kept_table;

typedef struct table_kind {
    char *next; /* the table that the caller is writing */
    size_t next_bytes, next_capacity;
    kept_table kept[MOST_KEPT];
} table_kind;

typedef struct tables {
    table_kind of[FSDP_CUDA_N_TABLES];
    uint64_t n_uses;
    int64_t copies;
} tables;

static void destroy_tables(fsdp_cuda_context *c, void *data)
{
    tables *all = data;
    for (int i = 0; i < FSDP_CUDA_N_TABLES; i++) {
        for (int k = 0; k < MOST_KEPT; k++) {
            kept_table *t = &all->of[i].kept[k];
            if (t->device)
                cudaFreeAsync(t->device, fsdp_cuda_stream(c));
            fsdp_free(t->host);
        }
        fsdp_free(all->of[i].next);
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
        table_kind *kind = &all->of[i];
        if (!FSDP_GROW(kind->next, kind->next_capacity, SMALL_BYTES) ||
            !FSDP_GROW(kind->kept[0].host, kind->kept[0].capacity, SMALL_BYTES))
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
    table_kind *kind = &tables_of(c)->of[which];
    if (!FSDP_GROW(kind->next, kind->next_capacity, bytes)) {
        fsdp_cuda_fail(c, FSDP_ERR_NOMEM);
        return NULL;
    }
    memset(kind->next, 0, bytes);
    kind->next_bytes = bytes;
    return kind->next;
}

/* Return the kept table that equals the table that the caller has just written, or NULL. */
static kept_table *find_equal(table_kind *kind)
{
    for (int k = 0; k < MOST_KEPT; k++) {
        kept_table *t = &kind->kept[k];
        if (t->bytes && t->bytes == kind->next_bytes && memcmp(t->host, kind->next, t->bytes) == 0)
            return t;
    }
    return NULL;
}

/* Return the kept table that has not been used for the longest time. */
static kept_table *find_oldest(table_kind *kind)
{
    kept_table *oldest = &kind->kept[0];
    for (int k = 1; k < MOST_KEPT; k++)
        if (kind->kept[k].used < oldest->used)
            oldest = &kind->kept[k];
    return oldest;
}

/* Make sure that the memory of the table is large enough on the host and on the device. Kernels
 * that were started earlier may still read the old device memory, so it is freed in the order of
 * the stream. */
static bool reserve(fsdp_cuda_context *c, kept_table *t, size_t bytes)
{
    if (!FSDP_GROW(t->host, t->capacity, bytes)) {
        fsdp_cuda_fail(c, FSDP_ERR_NOMEM);
        return false;
    }
    if (bytes <= t->device_capacity)
        return true;
    bytes += bytes / 2;
    if (t->device)
        fsdp_cuda_check(c, cudaFreeAsync(t->device, fsdp_cuda_stream(c)), "table");
    t->device = NULL;
    t->device_capacity = 0;
    if (!fsdp_cuda_check(c, cudaMallocAsync(&t->device, bytes, fsdp_cuda_stream(c)), "table"))
        return false;
    t->device_capacity = bytes;
    return true;
}

/* Replace the kept table *t by the table that the caller has just written. */
static bool replace(fsdp_cuda_context *c, kept_table *t, const table_kind *kind)
{
    const size_t bytes = kind->next_bytes;
    t->bytes = 0; /* in case of a failure, no later table equals this one */
    if (!reserve(c, t, bytes))
        return false;
    memcpy(t->host, kind->next, bytes);
    tables_of(c)->copies++;
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        fsdp_cuda_from_host(c, (char *)t->device + at, t->host + at,
                            bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
    if (fsdp_cuda_status(c) != FSDP_OK)
        return false;
    t->bytes = bytes;
    return true;
}

const void *fsdp_cuda_table_end(fsdp_cuda_context *c, fsdp_cuda_table which)
{
    tables *all = tables_of(c);
    table_kind *kind = &all->of[which];
    kept_table *t = find_equal(kind);
    if (!t) {
        t = find_oldest(kind);
        if (!replace(c, t, kind))
            return NULL;
    }
    t->used = ++all->n_uses;
    return t->device;
}
