/* What a checkpoint of torch.distributed.checkpoint (DCP) will hold: tensors, of which each rank
 * has some rows, and plain values.
 *
 * Every rank tells the same tensors and values in the same order. A tensor's rows that several
 * ranks have (all of them where it is replicated) are written by the first of these.
 *
 *     fsdp_dcp_plan_create(&plan);
 *     fsdp_dcp_key weight[] = {{.name = "model"}, {.name = "emb.weight"}};
 *     fsdp_dcp_plan_tensor(plan, weight, 2, &tensor);
 *     fsdp_dcp_key lr[] = {{.name = "groups"}, {.index = 0}, {.name = "lr"}};
 *     fsdp_pickle_put_float(&value, 0.1);
 *     fsdp_dcp_plan_value(plan, lr, 3, &value);
 *
 * Loaded in Python this is {"model": {"emb.weight": ...}, "groups": [{"lr": 0.1}]}, and its items
 * are named "model.emb.weight" and "groups.0.lr". */
#pragma once
#include <fsdp/comm.h>

#include "src/base/arena.h"
#include "src/torchfile/pickle_writer.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    FSDP_DCP_MAX_NDIM = 64,
    FSDP_DCP_BOX_NDIM = 6 /* dimensions along which a tensor may be cut: the first ones */
};

/* One step from the whole state dict to an item. */
typedef struct fsdp_dcp_key {
    const char *name; /* UTF-8, key of a dict; NULL: of a list */
    int64_t index;    /* place in that list */
} fsdp_dcp_key;

typedef struct fsdp_dcp_tensor {
    const char *dtype_name; /* safetensors' name */
    const int64_t *shape;   /* [ndim] of the whole tensor; read at once */
    int ndim;
    int64_t begin, end; /* this rank's rows; none if they are equal; a scalar has one row */
    /* In place of begin and end: this rank's box, [ndim] each, read at once. Only the first
     * FSDP_DCP_BOX_NDIM dimensions may be less than whole. NULL: rows. */
    const int64_t *offsets, *sizes;
    /* The box of another rank of the group that saves, [ndim] each, from what every rank knows of
     * `owner`. False: it is not known here. NULL, or false on any rank: ranks ask each other. */
    bool (*part_of)(const void *owner, const fsdp_group *group, int rank, int64_t *offsets,
                    int64_t *sizes);
    const void *owner; /* needed until the save has begun */
    /* This rank's part, row-major; borrowed until the plan is gone. NULL: read() gives it. */
    const void *data;
    /* Fill `out` with bytes [offset, offset + bytes) of this rank's part, whole elements. Called
     * with rising offsets. */
    fsdp_status (*read)(void *context, uint64_t offset, void *out, size_t bytes);
    void *context;
} fsdp_dcp_tensor;

/* The part of a tensor that a rank has; of a scalar, size[0] is 1, or 0 for nothing. Dimensions
 * beyond these are whole. */
typedef struct fsdp_dcp_box {
    int64_t offset[FSDP_DCP_BOX_NDIM], size[FSDP_DCP_BOX_NDIM];
} fsdp_dcp_box;

typedef struct fsdp_dcp_entry {
    char *fqn;                           /* keys, joined with dots */
    fsdp_pickle_value *path;             /* TUPLE of the keys */
    uint32_t signature;                  /* of everything that must be the same on all ranks */
    const fsdp_safetensors_dtype *dtype; /* NULL: a plain value */
    fsdp_dcp_tensor tensor;              /* its shape is the plan's; offsets and sizes are NULL */
    fsdp_dcp_box box;                    /* this rank's part */
    fsdp_str value;                      /* text of a pickle_writer */
} fsdp_dcp_entry;

typedef struct fsdp_dcp_plan {
    fsdp_arena arena;         /* names, paths and shapes */
    fsdp_dcp_entry **entries; /* [n] in the order in which they were told */
    size_t n, cap;
    bool is_sparse; /* set by the caller: blocks of zeros become holes of the files, and no room is
                       asked for */
    const char *companion; /* set by the caller, borrowed: a file that belongs beside .metadata,
                              which names it; NULL: none */
} fsdp_dcp_plan;

FSDP_MUST_CHECK fsdp_status fsdp_dcp_plan_create(fsdp_dcp_plan **plan);
void fsdp_dcp_plan_destroy(fsdp_dcp_plan *plan); /* accepts NULL */
/* Add a tensor. `keys` [n_keys] are copied. FSDP_ERR_UNSUPPORTED for a dtype that torch has not;
 * FSDP_ERR_INVALID for a shape of too many bytes and for rows that it has not; each names the fqn.
 */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_plan_tensor(fsdp_dcp_plan *plan, const fsdp_dcp_key *keys,
                                                 int n_keys, const fsdp_dcp_tensor *tensor);
/* Add a plain value, all that `value` was told; `value` is empty afterwards, also on failure. Only
 * rank 0's is written. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_plan_value(fsdp_dcp_plan *plan, const fsdp_dcp_key *keys,
                                                int n_keys, fsdp_pickle_writer *value);
/* FSDP_ERR_INVALID naming an fqn that two entries have. */
FSDP_MUST_CHECK fsdp_status fsdp_dcp_plan_check(const fsdp_dcp_plan *plan);
/* What `rank` has of the entry, as far as its part_of() says. */
bool fsdp_dcp_entry_part(const fsdp_dcp_entry *entry, const fsdp_group *group, int rank,
                         fsdp_dcp_box *box);
/* Rows of dimension 0; a scalar has one. */
int64_t fsdp_dcp_entry_rows(const fsdp_dcp_entry *entry);
/* Elements and bytes of a box. */
int64_t fsdp_dcp_box_numel(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box);
uint64_t fsdp_dcp_box_bytes(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box);
