/* Inside of tensors and storages. Layers above tensor attach what they know through the opaque
 * fields: autograd its node and gradient sink, dtensor its spec. */
#pragma once
#include <fsdp/tensor.h>

#include "src/tensor/device.h"

struct fsdp_tensor;

/* Chained: fsdp waits for readers, a checkpoint copies before the first write. Any slot but self
 * may be NULL. */
typedef struct fsdp_storage_guard {
    /* May operations read what lies there? The same answer on meta, where there is never data. */
    fsdp_status (*check_read)(void *self, const struct fsdp_tensor *tensor);
    fsdp_status (*begin_write)(void *self);
    void (*end_write)(void *self);
    void (*leave)(void *self); /* the storage is about to lose its memory, and this guard */
    void *self;
    struct fsdp_storage_guard *next;
} fsdp_storage_guard;

typedef struct fsdp_staged fsdp_staged;
typedef struct fsdp_halved fsdp_halved;

struct fsdp_storage {
    int refs;
    fsdp_device *device;
    size_t bytes;
    void *data;                 /* NULL while resharded or on meta: reading then is an error */
    fsdp_block *block;          /* the allocator's, or NULL for foreign memory */
    fsdp_storage_guard *guards; /* borrowed from who added them */
    fsdp_staged *staged;        /* it lies elsewhere between uses: offload.h; NULL: it does not */
    fsdp_halved *halved;        /* it lies in two halves: halved.h; NULL: it does not */
    fsdp_tag tag;               /* of a staged or halved one's memory */
    bool is_skipped;            /* fsdp_tensor_without_memory()'s */
};

/* A foreign buffer (a shared mapping) as a storage; data may be NULL and set later. */
FSDP_MUST_CHECK fsdp_status fsdp_storage_from_memory(fsdp_device *device, void *data, size_t bytes,
                                                     fsdp_storage **storage);
void fsdp_storage_release(fsdp_storage *storage);
/* Empty or refill a storage of foreign memory under its views. */
void fsdp_storage_set_data(fsdp_storage *storage, void *data);
/* Before its memory goes: every guard has its last say, and is no longer one. */
void fsdp_storage_drop_guards(fsdp_storage *storage);
FSDP_MUST_CHECK fsdp_status fsdp_storage_begin_write(fsdp_storage *storage);
void fsdp_storage_end_write(fsdp_storage *storage);
FSDP_MUST_CHECK fsdp_status fsdp_storage_begin_read(fsdp_storage *storage);
void fsdp_storage_end_read(fsdp_storage *storage);
/* Does every guard of its storage let operations read `tensor`? */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_check_read(const struct fsdp_tensor *tensor);

struct fsdp_derived;
struct fsdp_grad_sink;
struct fsdp_tensor_spec;

struct fsdp_tensor {
    int refs;
    bool has_values; /* a write of it has ended: fsdp_tensor_end_write(), fsdp_writing */
    fsdp_dtype dtype;
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];
    int64_t stride[FSDP_MAX_DIMS]; /* elements */
    int64_t offset;                /* elements, from the storage's start */
    fsdp_storage *storage;
    /* What operations take in float32 whatever dtype activations have (rotary tables, T5's bias by
     * distance): mixed precision leaves it as it is. */
    bool is_table;
    /* autograd: the node that made it (index + 1 in the tape of this generation; 0: none) */
    uint32_t node;
    uint64_t generation;
    uint16_t output;
    struct fsdp_grad_sink *sink; /* a leaf: where its gradient goes; NULL: not a leaf */
    void (*sink_destroy)(struct fsdp_grad_sink *sink); /* NULL: the sink is borrowed */
    struct fsdp_tensor_spec *spec;                     /* dtensor's; owned, freed by spec_destroy */
    void (*spec_destroy)(struct fsdp_tensor_spec *spec);
    struct fsdp_derived *derived; /* autograd's: how backward makes it again; NULL: it does not */
    void (*derived_forget)(struct fsdp_derived *derived); /* called when the tensor goes */
};

/* A tensor over `storage` at element `offset`, contiguous. Retains the storage. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_over(fsdp_storage *storage, fsdp_dtype dtype, int ndim,
                                             const int64_t *shape, int64_t offset,
                                             fsdp_tensor **tensor);
/* One that stands for values which nobody needs: it has a shape, and no data. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_without_memory(fsdp_device *device, fsdp_dtype dtype,
                                                       int ndim, const int64_t *shape,
                                                       fsdp_tensor **tensor);
/* Each lies from now on where the other one did, in its dtype, for whoever holds it. Both are
 * contiguous and of one shape; nobody reads or writes them. */
void fsdp_tensor_exchange(fsdp_tensor *a, fsdp_tensor *b);
/* Where kernels find it, without a wait or a check: NULL on meta and while resharded. The host
 * reads and writes through fsdp_tensor_data() and fsdp_tensor_host(): Note [Streams]. */
static inline void *fsdp_tensor_ptr(const fsdp_tensor *t)
{
    char *base = t->storage->data;
    return base ? base + (size_t)t->offset * fsdp_dtype_size(t->dtype) : NULL;
}
/* fsdp_tensor_data() as an error; *data NULL on meta. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_host(const fsdp_tensor *t, void **data);
/* Elements [at, at + n) of a contiguous tensor become those of `src` in host memory, rounded to its
 * dtype; src is aligned for `dtype`, and the caller's again on return. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_from_host(fsdp_tensor *t, int64_t at, const void *src,
                                                  fsdp_dtype dtype, int64_t n);
/* FSDP_ERR_STATE, saying why, if it has no data now. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_check_data(const fsdp_tensor *t);
/* Has a contiguous tensor of floats neither NaN nor infinity? On meta: yes. */
FSDP_MUST_CHECK fsdp_status fsdp_all_finite(const fsdp_tensor *t, bool *yes);
/* Does it have data only between the begin and the end of a use? */
static inline bool fsdp_tensor_is_held_elsewhere(const fsdp_tensor *t)
{
    return t->storage->staged || t->storage->halved;
}
/* Writes of tensors in turn: those in a row that share a storage are one write, and of halved ones
 * those that are best used together are one for the guards. Starts as zeros. */
typedef struct fsdp_writing {
    fsdp_tensor *open; /* borrowed: the last one, whose storage is being written */
    bool in_halves;    /* the caller writes halved ones as such: they get no joined copy */
} fsdp_writing;
FSDP_MUST_CHECK fsdp_status fsdp_writing_next(fsdp_writing *writing, fsdp_tensor *tensor);
void fsdp_writing_end(fsdp_writing *writing);
/* Elements in one row of dimension 0 (1 for a vector or scalar). */
int64_t fsdp_tensor_row_numel(const fsdp_tensor *t);
/* "[2, 3]" into buf, returned. */
enum {
    FSDP_SHAPE_TEXT = 128
};
const char *fsdp_shape_text(int ndim, const int64_t *shape, char buf[FSDP_SHAPE_TEXT]);
/* prod(shape), checked against overflow. */
FSDP_MUST_CHECK fsdp_status fsdp_shape_numel(int ndim, const int64_t *shape, int64_t *numel);
