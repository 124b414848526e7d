/* What the files that implement source.h share. */
#pragma once
#include <fsdp/hf.h>

#include "src/base/arena.h"
#include "src/base/io.h"
#include "src/dcp/dcp_reader.h"
#include "src/source/joined.h"
#include "src/source/source.h"

struct fsdp_source {
    char *path;
    fsdp_source_format format;
    fsdp_arena arena;        /* names, keys, entries */
    fsdp_source_item *items; /* [n] */
    size_t n, cap;

    fsdp_dcp_reader *dcp;            /* DCP; else NULL */
    fsdp_checkpoint_reader *weights; /* SAFETENSORS, HF; else NULL */
    fsdp_torch_archive *archive;     /* TORCH; else NULL */
    fsdp_mapping map;                /* mapping of `archive` */
    struct fsdp_source_rank
        *ranks; /* [n_ranks] TORCH: files of all ranks, opened when first needed */
    size_t n_ranks;
    fsdp_safetensors **shards; /* [n_shards] SAFETENSORS: a file of each rank; else NULL */
    size_t n_shards;

    fsdp_torch_archive **values; /* [n] plain values of DCP, opened when first needed */
    struct {
        const fsdp_source_item *item; /* NULL: none */
        unsigned char *rows;          /* [end - begin rows] of the item; owned */
        int64_t begin, end;
    } window; /* the rows of a DCP tensor that were read last */
};

/* Append an item that is zero except for its keys, which are copied. */
FSDP_MUST_CHECK fsdp_status fsdp_source_add(fsdp_source *source, const fsdp_nesting_key *keys,
                                            int n_keys, fsdp_source_item **item);
/* Set the item's fields from the entry of a tensor, which must outlive the source. */
void fsdp_source_set_entry(fsdp_source_item *item, const fsdp_checkpoint_entry *entry);
/* FSDP_ERR_INVALID for a file of DCP, naming the folder that is the whole checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_file(const char *path);
/* Report the error for a folder that is not a checkpoint: FSDP_ERR_INVALID naming checkpoints
 * inside it, otherwise FSDP_ERR_NOT_FOUND with what was searched for. */
FSDP_MUST_CHECK fsdp_status fsdp_source_refuse_folder(const char *path);
/* The file of torch.save of one of several ranks. */
typedef struct fsdp_source_rank {
    char *path; /* NULL: the file that `source` opened */
    fsdp_mapping map;
    fsdp_torch_archive *archive;
} fsdp_source_rank;

/* Add the tensor at `keys` of which the opened file has the part `value`, a DTensor. The other
 * parts are in the files of the other ranks, in the same folder, whose names differ only in the
 * rank. */
FSDP_MUST_CHECK fsdp_status fsdp_source_add_dtensor(fsdp_source *source,
                                                    const fsdp_nesting_key *keys, int n_keys,
                                                    const fsdp_pickle_value *value);
/* Set the fields of `item` from a joined tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_source_set_joined(fsdp_source_item *item, const char *path,
                                                   fsdp_joined *joined);
void fsdp_source_close_ranks(fsdp_source *source);

/* List the tensors whose parts are in the files in the folder of `source` (rank_shards.h). */
FSDP_MUST_CHECK fsdp_status fsdp_source_open_shards(fsdp_source *source);
/* List the value of an archive: dicts and lists become keys. */
FSDP_MUST_CHECK fsdp_status fsdp_source_list_archive(fsdp_source *source);
