/* A manifest lists what a checkpoint of torch.distributed.checkpoint (DCP) will contain: tensors,
 * which are distributed over the ranks by rows or boxes, and plain values.
 *
 * Every rank adds the same tensors and values in the same order. If several ranks have the same
 * rows (all rows of a replicated tensor), the first of these ranks writes them.
 *
 *     fsdp_dcp_manifest_create(&manifest);
 *     fsdp_dcp_key weight[] = {{.name = "model"}, {.name = "emb.weight"}};
 *     fsdp_dcp_manifest_tensor(manifest, weight, 2, &tensor);
 *     fsdp_dcp_key lr[] = {{.name = "groups"}, {.index = 0}, {.name = "lr"}};
 *     fsdp_pickle_put_float(&value, 0.1);
 *     fsdp_dcp_manifest_value(manifest, lr, 3, &value);
 *
 * Python loads this checkpoint as {"model": {"emb.weight": ...}, "groups": [{"lr": 0.1}]}. Its
 * items are named "model.emb.weight" and "groups.0.lr". */
#pragma once
#include <fsdp/comm.h>

#include "src/base/arena.h"
#include "src/torchfile/pickle_writer.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    FSDP_DCP_MAX_NDIM = 64,
    FSDP_DCP_BOX_NDIM = 6 /* only the first 6 dimensions of a tensor may be cut */
};

/* One key on the path from the whole state dict to an item. */
typedef struct fsdp_dcp_key {
    const char *name; /* UTF-8 key in a dict; NULL: the container is a list */
    int64_t index;    /* index in the list, if name is NULL */
} fsdp_dcp_key;

typedef struct fsdp_dcp_tensor {
    const char *dtype_name; /* name in safetensors, such as "F32" */
    const int64_t *shape;   /* [ndim] of the whole tensor; copied when the tensor is added */
    int ndim;
    /* This rank's rows [begin, end), which may be empty. A scalar has one row. */
    int64_t begin, end;
    /* Offsets and sizes of this rank's box, [ndim] each; copied when the tensor is added. Only the
     * first FSDP_DCP_BOX_NDIM dimensions may be cut. NULL: the box is rows [begin, end). */
    const int64_t *offsets, *sizes;
    /* Get the box of another rank of the saving group: its offsets and sizes, [ndim] each. This
     * works without communication, from what this rank knows about `owner`. Returns false if this
     * rank does not know enough. If part_of is NULL, or returns false on any rank, the ranks
     * exchange their boxes. */
    bool (*part_of)(const void *owner, const fsdp_group *group, int rank, int64_t *offsets,
                    int64_t *sizes);
    const void *owner; /* argument of part_of(); must be valid until the save has begun */
    /* This rank's part, row-major; borrowed until the manifest is destroyed. NULL: read() is called
     * instead. */
    const void *data;
    /* Copy bytes [offset, offset + bytes) of this rank's part to `out`. The range consists of whole
     * elements. Calls have increasing offsets. */
    fsdp_status (*read)(void *context, uint64_t offset, void *out, size_t bytes);
    void *context;
} fsdp_dcp_tensor;

/* The part of a tensor that a rank has. For a scalar, size[0] is 1, or 0 if the rank does not have
 * the scalar. Dimensions beyond FSDP_DCP_BOX_NDIM are not cut. */
typedef struct fsdp_dcp_box {
    int64_t offset[FSDP_DCP_BOX_NDIM], size[FSDP_DCP_BOX_NDIM];
} fsdp_dcp_box;

typedef struct fsdp_dcp_entry {
    char *fqn;               /* the keys, joined with dots */
    fsdp_pickle_value *path; /* the keys as a TUPLE */
    uint32_t signature;      /* checksum of everything that must be the same on all ranks */
    const fsdp_safetensors_dtype *dtype; /* NULL: a plain value */
    fsdp_dcp_tensor tensor; /* its shape is owned by the manifest; offsets and sizes are NULL */
    fsdp_dcp_box box;       /* this rank's part */
    fsdp_str value;         /* the plain value, as text of an fsdp_pickle_writer */
} fsdp_dcp_entry;

typedef struct fsdp_dcp_manifest {
    fsdp_arena arena;         /* owns names, paths and shapes */
    fsdp_dcp_entry **entries; /* [n] in the order in which they were added */
    size_t n, cap;
    bool is_sparse; /* set by the caller; blocks of zeros become holes in the files, and free disk
                       space is not checked */
    const char *companion; /* set by the caller, borrowed; name of another file in the folder,
                              recorded in .metadata; NULL: none */
} fsdp_dcp_manifest;

FSDP_MUST_CHECK fsdp_status fsdp_dcp_manifest_create(fsdp_dcp_manifest **manifest);
void fsdp_dcp_manifest_destroy(fsdp_dcp_manifest *manifest); /* accepts NULL */
/* Add a tensor. `keys` [n_keys] are copied. FSDP_ERR_UNSUPPORTED for a dtype that torch does not
 * have; FSDP_ERR_INVALID if the tensor has too many bytes, or if this rank's rows are outside the
 * tensor. Errors name the fqn. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_manifest_tensor(fsdp_dcp_manifest *manifest,
                                                     const fsdp_dcp_key *keys, int n_keys,
                                                     const fsdp_dcp_tensor *tensor);
/* Add the content of `value` as a plain value. Afterwards `value` is empty, also on failure. Only
 * the value of rank 0 is written. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_manifest_value(fsdp_dcp_manifest *manifest,
                                                    const fsdp_dcp_key *keys, int n_keys,
                                                    fsdp_pickle_writer *value);
/* Check that every entry has its own fqn. FSDP_ERR_INVALID naming an fqn that two entries have. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_manifest_check(const fsdp_dcp_manifest *manifest);
/* Get the part of the entry that `rank` has. Returns false if part_of is NULL or returns false. */
bool fsdp_dcp_entry_part(const fsdp_dcp_entry *entry, const fsdp_group *group, int rank,
                         fsdp_dcp_box *box);
/* Return the size of dimension 0, or 1 for a scalar. */
int64_t fsdp_dcp_entry_rows(const fsdp_dcp_entry *entry);
/* Return the number of elements in a box. */
int64_t fsdp_dcp_box_numel(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box);
/* Return the number of bytes in a box. */
uint64_t fsdp_dcp_box_bytes(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box);
