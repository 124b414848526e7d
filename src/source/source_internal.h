/* Declarations that the files that implement source.h share. */
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
    fsdp_arena arena;        /* contains names, keys and entries */
    fsdp_source_item *items; /* [n] */
    size_t n, cap;

    fsdp_dcp_reader *dcp;            /* set for DCP; otherwise NULL */
    fsdp_checkpoint_reader *weights; /* set for SAFETENSORS and HF; otherwise NULL */
    fsdp_torch_archive *archive;     /* set for TORCH; otherwise NULL */
    fsdp_mapping map;                /* mapping of `archive` */
    struct fsdp_source_rank
        *ranks; /* [n_ranks] TORCH: the files of all ranks, which are opened when first needed */
    size_t n_ranks;
    fsdp_safetensors **shards; /* [n_shards] SAFETENSORS: the files of all ranks */
    size_t n_shards;

    fsdp_torch_archive **values; /* [n] plain values of DCP, each opened when first needed */
    struct {
        const fsdp_source_item *item; /* NULL if the window is empty */
        unsigned char *rows;          /* rows [begin, end) of the item; owned */
        int64_t begin, end;
    } window; /* the rows of a DCP tensor or a joined tensor that were read last, kept for the next
                 read */
};

/* Append an item and set its name and its keys, which are copied. The caller sets the other
 * fields. */
FSDP_MUST_CHECK fsdp_status fsdp_source_add(fsdp_source *source, const fsdp_nesting_key *keys,
                                            int n_keys, fsdp_source_item **item);
/* Set the fields of an item from the entry of a tensor. The entry must outlive the source. */
void fsdp_source_set_entry(fsdp_source_item *item, const fsdp_checkpoint_entry *entry);
/* Return FSDP_ERR_INVALID if `path` is one file of a DCP checkpoint. The message names the folder
 * that is the checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_file(const char *path);
/* Return the error for a folder that is not a checkpoint. This is FSDP_ERR_INVALID if it contains
 * checkpoints, which the message names. Otherwise it is FSDP_ERR_NOT_FOUND, and the message says
 * what was searched for. */
FSDP_MUST_CHECK fsdp_status fsdp_source_refuse_folder(const char *path);
/* One rank's file of torch.save, if each rank has saved a file. */
typedef struct fsdp_source_rank {
    char *path; /* NULL for a missing file, and for the file that fsdp_source_open() opened */
    fsdp_mapping map;
    fsdp_torch_archive *archive;
} fsdp_source_rank;

/* Add the tensor at `keys`, whose part in the opened file is the DTensor `value`. The other parts
 * are in the files of the other ranks. These files are in the same folder, and their names differ
 * only in the rank. */
FSDP_MUST_CHECK fsdp_status fsdp_source_add_dtensor(fsdp_source *source,
                                                    const fsdp_nesting_key *keys, int n_keys,
                                                    const fsdp_pickle_value *value);
/* Check `joined` and set the fields of `item` to describe the tensor that it makes up. `path` is
 * used in messages. */
FSDP_MUST_CHECK fsdp_status fsdp_source_set_joined(fsdp_source_item *item, const char *path,
                                                   fsdp_joined *joined);
void fsdp_source_close_ranks(fsdp_source *source);

/* Open the source, whose path and format must be set, and list its items. There is one function for
 * each format. On failure, fsdp_source_close() frees what was opened. */
FSDP_MUST_CHECK fsdp_status fsdp_source_open_dcp(fsdp_source *source);
FSDP_MUST_CHECK fsdp_status fsdp_source_open_torch(fsdp_source *source);
/* For a path that is a folder with a safetensors file for each rank (rank_shards.h). */
FSDP_MUST_CHECK fsdp_status fsdp_source_open_shards(fsdp_source *source);
