/* See tables.h. */
#include "src/kernels/cuda/tables.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"

enum {
    /* A table is copied in pieces of at most this size, because fsdp_cuda_from_host() does not wait
     * for such small copies. */
    PIECE_BYTES = 1 << 16,
    /* Initial capacity of the host memory into which tables of a kind are written. */
    SMALL_BYTES = 1 << 13,
    /* The device keeps up to SETS * WAYS tables of each kind. A table can be in the WAYS places of
     * one set, which its first bytes choose. So a call looks at few tables, although an optimizer
     * such as Adafactor or Muon needs a small table for each parameter. All large tables are in set
     * 0, so that few of them are kept if the tensors have other addresses in each step. */
    SETS = 128,
    WAYS = 8,
    LARGE_BYTES = 1 << 12,
    HASHED_BYTES = 128
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
    kept_table kept[SETS][WAYS];
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
        for (int k = 0; k < SETS * WAYS; k++) {
            const kept_table *t = &all->of[i].kept[k / WAYS][k % WAYS];
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
        if (!FSDP_GROW(kind->next, kind->next_capacity, SMALL_BYTES))
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

/* Return the set of the table that the caller has just written. */
static kept_table *set_of(table_kind *kind)
{
    uint64_t hash = kind->next_bytes, word;
    if (kind->next_bytes > LARGE_BYTES)
        return kind->kept[0];
    for (size_t at = 0; at + sizeof word <= kind->next_bytes && at < HASHED_BYTES;
         at += sizeof word) {
        memcpy(&word, kind->next + at, sizeof word);
        hash = fsdp_mix64(hash ^ word);
    }
    return kind->kept[hash % SETS];
}

/* Return the table of the set that equals the table that the caller has just written, or NULL. */
static kept_table *find_equal(const table_kind *kind, kept_table *set)
{
    for (kept_table *t = set; t < set + WAYS; t++)
        if (t->bytes && t->bytes == kind->next_bytes && memcmp(t->host, kind->next, t->bytes) == 0)
            return t;
    return NULL;
}

/* Return the table of the set that has not been used for the longest time. */
static kept_table *find_oldest(kept_table *set)
{
    kept_table *oldest = set;
    for (kept_table *t = set; t < set + WAYS; t++)
        if (t->used < oldest->used)
            oldest = t;
    return oldest;
}

/* Make sure that the device memory of the table is large enough. Kernels that were started earlier
 * may still read the old memory, so it is freed in the order of the stream. */
static bool reserve(fsdp_cuda_context *c, kept_table *t, size_t bytes)
{
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

/* Replace the kept table *t by the table that the caller has just written. Without host memory for
 * a copy, no later table equals this one. */
static bool replace(fsdp_cuda_context *c, kept_table *t, const table_kind *kind)
{
    const size_t bytes = kind->next_bytes;
    t->bytes = 0;
    if (!reserve(c, t, bytes))
        return false;
    tables_of(c)->copies++;
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        fsdp_cuda_from_host(c, (char *)t->device + at, kind->next + at,
                            bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
    if (fsdp_cuda_status(c) != FSDP_OK)
        return false;
    if (FSDP_GROW(t->host, t->capacity, bytes)) {
        memcpy(t->host, kind->next, bytes);
        t->bytes = bytes;
    }
    return true;
}

const void *fsdp_cuda_table_end(fsdp_cuda_context *c, fsdp_cuda_table which)
{
    tables *all = tables_of(c);
    table_kind *kind = &all->of[which];
    kept_table *const set = set_of(kind), *t = find_equal(kind, set);
    if (!t) {
        t = find_oldest(set);
        if (!replace(c, t, kind))
            return NULL;
    }
    t->used = ++all->n_uses;
    return t->device;
}
