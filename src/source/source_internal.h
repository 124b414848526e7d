/* Declarations that are shared by the files that implement source.h. */
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
    fsdp_arena arena;        /* owns names, keys and entries */
    fsdp_source_item *items; /* [n] */
    size_t n, cap;
    fsdp_source_item *base_items; /* the items that fsdp_source_translate_lit() replaced; NULL: it
                                     was not called */

    fsdp_dcp_reader *dcp;            /* set if the format is DCP; otherwise NULL */
    fsdp_checkpoint_reader *weights; /* set if the format is HF, or SAFETENSORS with a single file;
                                        otherwise NULL */
    fsdp_torch_archive *archive;     /* set if the format is TORCH; otherwise NULL */
    fsdp_mapping map;                /* the mapped file of `archive` */
    /* [n_ranks] TORCH: the files of all ranks. They are opened when the first DTensor is found. */
    struct fsdp_source_rank *ranks;
    size_t n_ranks;
    fsdp_safetensors **shards; /* [n_shards] SAFETENSORS with a folder: the files of all ranks */
    size_t n_shards;

    fsdp_torch_archive **values; /* [n] DCP: the archives of the plain values; each is opened when
                                    its value is first needed */
    /* The rows that were read last from a DCP tensor or a joined tensor. They are kept for the next
     * read. */
    struct {
        const fsdp_source_item *item; /* NULL if the window is empty */
        unsigned char *rows;          /* rows [begin, end) of the item; owned */
        int64_t begin, end;
    } window;
};

/* Append an item, and set its name and keys. The keys are copied. The caller sets the other
 * fields. */
FSDP_MUST_CHECK fsdp_status fsdp_source_add(fsdp_source *source, const fsdp_nesting_key *keys,
                                            int n_keys, fsdp_source_item **item);
/* Set the fields of an item from the entry of its tensor. The entry must outlive the source. */
void fsdp_source_set_entry(fsdp_source_item *item, const fsdp_checkpoint_entry *entry);
/* Return FSDP_ERR_INVALID if `path` is one file of a DCP checkpoint. The message names the folder
 * of the checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_file(const char *path);
/* Return the error for a folder that is not a checkpoint. If the folder contains checkpoints, this
 * is FSDP_ERR_INVALID, and the message names them. Otherwise it is FSDP_ERR_NOT_FOUND, and the
 * message says what was searched for. */
FSDP_MUST_CHECK fsdp_status fsdp_source_refuse_folder(const char *path);
/* The torch.save file of one rank, if each rank has saved its own file. */
typedef struct fsdp_source_rank {
    /* NULL if the file is missing, or if it is the file that fsdp_source_open() opened. */
    char *path;
    fsdp_mapping map;
    fsdp_torch_archive *archive;
} fsdp_source_rank;

/* Add the tensor that has these keys. The DTensor `value` is the tensor's part in the opened file.
 * The tensor's other parts are in the files of the other ranks. All these files are in the same
 * folder, and their names differ only in the rank. */
FSDP_MUST_CHECK fsdp_status fsdp_source_add_dtensor(fsdp_source *source,
                                                    const fsdp_nesting_key *keys, int n_keys,
                                                    const fsdp_pickle_value *value);
/* Check `joined`, and set the fields of `item` to those of the whole tensor. `path` is used in
 * messages. */
FSDP_MUST_CHECK fsdp_status fsdp_source_set_joined(fsdp_source_item *item, const char *path,
                                                   fsdp_joined *joined);
void fsdp_source_close_ranks(fsdp_source *source);

/* Open the source and list its items. The path and the format of the source must be set. Each
 * function is for one format. fsdp_source_open_dcp_names() does not open the data files
 * (fsdp_source_open_names()). On failure, fsdp_source_close() frees what was opened. */
FSDP_MUST_CHECK fsdp_status fsdp_source_open_dcp(fsdp_source *source);
FSDP_MUST_CHECK fsdp_status fsdp_source_open_dcp_names(fsdp_source *source);
FSDP_MUST_CHECK fsdp_status fsdp_source_open_torch(fsdp_source *source);
/* Open a folder with one safetensors file for each rank (rank_shards.h). */
FSDP_MUST_CHECK fsdp_status fsdp_source_open_shards(fsdp_source *source);
