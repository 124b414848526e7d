/* A manifest lists what a checkpoint of torch.distributed.checkpoint (DCP) will contain: tensors
 * and plain values. A tensor is distributed over the ranks by rows or by boxes.
 *
 * Every rank adds the same tensors and values in the same order. If several ranks have the same
 * rows, as with a replicated tensor, the lowest of these ranks writes them.
 *
 *     fsdp_dcp_manifest_create(&manifest);
 *     fsdp_dcp_key weight[] = {{.name = "model"}, {.name = "emb.weight"}};
 *     fsdp_dcp_manifest_tensor(manifest, weight, 2, &tensor);
 *     fsdp_dcp_key lr[] = {{.name = "groups"}, {.index = 0}, {.name = "lr"}};
 *     fsdp_pickle_put_float(&value, 0.1);
 *     fsdp_dcp_manifest_value(manifest, lr, 3, &value);
 *
 * Python loads this checkpoint as {"model": {"emb.weight": ...}, "groups": [{"lr": 0.1}]}. The
 * names of its items (fqn) are "model.emb.weight" and "groups.0.lr". */
#pragma once
#include <fsdp/comm.h>

#include "src/base/arena.h"
#include "src/torchfile/pickle_writer.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    FSDP_DCP_MAX_NDIM = 64,
    FSDP_DCP_BOX_NDIM = 6 /* only the first 6 dimensions of a tensor may be split among the ranks */
};

/* One key on the path from the outermost dict to an item. */
typedef struct fsdp_dcp_key {
    const char *name; /* UTF-8 key in a dict; NULL: the container is a list */
    int64_t index;    /* index in the list, if name is NULL */
} fsdp_dcp_key;

typedef struct fsdp_dcp_tensor {
    const char *dtype_name; /* name in safetensors, such as "F32" */
    const int64_t *shape;   /* [ndim] shape of the whole tensor; copied when the tensor is added */
    int ndim;
    /* This rank's rows [begin, end), which may be empty; used if `offsets` is NULL. A scalar has
     * one row. */
    int64_t begin, end;
    /* This rank's box: offsets [ndim] and sizes [ndim], copied when the tensor is added. Only the
     * first FSDP_DCP_BOX_NDIM dimensions may be split among the ranks. NULL: the box consists of
     * rows [begin, end). */
    const int64_t *offsets, *sizes;
    /* Set `offsets` [ndim] and `sizes` [ndim] to the box of another rank, `rank`. The box is
     * computed from `owner`, without communication. Return false if this rank cannot compute the
     * box. If part_of is NULL, or if it returns false on any rank, the ranks exchange their boxes
     * instead. */
    bool (*part_of)(const void *owner, const fsdp_group *group, int rank, int64_t *offsets,
                    int64_t *sizes);
    /* Argument of part_of(). It must be valid until fsdp_dcp_job_create() returns. */
    const void *owner;
    /* The data of this rank's box, row-major; borrowed until the manifest is destroyed. NULL: the
     * data are fetched with read(). */
    const void *data;
    /* Copy bytes [offset, offset + bytes) of the data of this rank's box to `out`. The range
     * consists of whole elements. Each call has a larger offset than the call before it. */
    fsdp_status (*read)(void *context, uint64_t offset, void *out, size_t bytes);
    void *context;
} fsdp_dcp_tensor;

/* The part of a tensor that one rank has. This part is a box. For a scalar, size[0] is 1 if the
 * rank has the scalar, otherwise 0. Dimension FSDP_DCP_BOX_NDIM and all later dimensions are not
 * split. */
typedef struct fsdp_dcp_box {
    int64_t offset[FSDP_DCP_BOX_NDIM], size[FSDP_DCP_BOX_NDIM];
} fsdp_dcp_box;

typedef struct fsdp_dcp_entry {
    char *fqn;               /* the keys, joined with dots */
    fsdp_pickle_value *path; /* the keys as a TUPLE */
    uint32_t signature; /* checksum of the fqn, the length of `path`, the dtype and the shape; must
                           be the same on all ranks */
    const fsdp_safetensors_dtype *dtype; /* NULL: a plain value */
    fsdp_dcp_tensor tensor; /* as the caller passed it, but `shape` is a copy that the manifest
                               owns, and `offsets` and `sizes` are NULL */
    fsdp_dcp_box box;       /* this rank's box of the tensor */
    fsdp_str value; /* the pickle of a plain value, as fsdp_pickle_put_written() expects it */
} fsdp_dcp_entry;

typedef struct fsdp_dcp_manifest {
    fsdp_arena arena;         /* owns the paths and shapes of the entries */
    fsdp_dcp_entry **entries; /* [n] in the order in which they were added */
    size_t n, cap;
    bool is_sparse; /* set by the caller: write blocks of zeros as holes in the files, and do not
                       check free disk space */
    /* Name of the companion, a further file in the folder of the checkpoint
     * (fsdp_dcp_metadata_companion()); NULL: none. The name is written to .metadata. Set by the
     * caller; borrowed. */
    const char *companion;
} fsdp_dcp_manifest;

FSDP_MUST_CHECK fsdp_status fsdp_dcp_manifest_create(fsdp_dcp_manifest **manifest);
void fsdp_dcp_manifest_destroy(fsdp_dcp_manifest *manifest); /* accepts NULL */
/* Add a tensor. `keys` [n_keys] are copied. Returns FSDP_ERR_UNSUPPORTED for a dtype that torch
 * does not have. Returns FSDP_ERR_INVALID if the tensor has too many bytes, or if this rank's box
 * is outside the tensor. The message contains the fqn. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_manifest_tensor(fsdp_dcp_manifest *manifest,
                                                     const fsdp_dcp_key *keys, int n_keys,
                                                     const fsdp_dcp_tensor *tensor);
/* Add the content of `value` as a plain value. After the call, `value` is empty, also on failure.
 * Only rank 0's value is written to the checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_manifest_value(fsdp_dcp_manifest *manifest,
                                                    const fsdp_dcp_key *keys, int n_keys,
                                                    fsdp_pickle_writer *value);
/* Return FSDP_ERR_INVALID if two entries have the same fqn; the message contains this fqn. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_manifest_check(const fsdp_dcp_manifest *manifest);
/* Set *box to the part of the entry's tensor that `rank` has. `rank` must not be this rank. Return
 * false if this rank cannot compute the box (fsdp_dcp_tensor.part_of). */
bool fsdp_dcp_entry_part(const fsdp_dcp_entry *entry, const fsdp_group *group, int rank,
                         fsdp_dcp_box *box);
/* Return the number of rows of a tensor, which is the size of dimension 0, or 1 for a scalar. */
int64_t fsdp_dcp_entry_rows(const fsdp_dcp_entry *entry);
/* Return the number of elements in a box. */
int64_t fsdp_dcp_box_numel(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box);
/* Return the number of bytes in a box. */
uint64_t fsdp_dcp_box_bytes(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box);
