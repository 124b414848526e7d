/* What the files of source.h share. */
#pragma once
#include <fsdp/ckpt.h>

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
    fsdp_mapping map;                /* of `archive` */
    struct fsdp_source_rank *ranks;  /* [n_ranks] TORCH: files of other ranks, once needed */
    size_t n_ranks;
    fsdp_safetensors **shards; /* [n_shards] SAFETENSORS: a file of each rank; else NULL */
    size_t n_shards;

    fsdp_torch_archive **values; /* [n] of DCP's plain values, once opened */
    struct {
        const fsdp_source_item *item; /* NULL: none */
        unsigned char *rows;          /* [end - begin rows] of it; owned */
        int64_t begin, end;
    } window; /* what was read last of a DCP tensor */
};

/* A new item at the end, all zero but for its keys, which are copied. */
FSDP_MUST_CHECK fsdp_status fsdp_source_add(fsdp_source *source, const fsdp_nesting_key *keys,
                                            int n_keys, fsdp_source_item **item);
/* What an entry tells of a tensor. The entry must outlive the source. */
void fsdp_source_set_entry(fsdp_source_item *item, const fsdp_checkpoint_entry *entry);
/* FSDP_ERR_INVALID for a file of DCP, naming the folder that is the checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_source_check_file(const char *path);
/* Of a folder that is no checkpoint, always an error: FSDP_ERR_INVALID naming those that it lies
 * around, else FSDP_ERR_NOT_FOUND with what was looked for. */
FSDP_MUST_CHECK fsdp_status fsdp_source_refuse_folder(const char *path);
/* One of several ranks' files of torch.save. */
typedef struct fsdp_source_rank {
    char *path; /* NULL: this is the one that `source` opened */
    fsdp_mapping map;
    fsdp_torch_archive *archive;
} fsdp_source_rank;

/* The tensor that the DTensor `value` of the file that was opened is a part of, below `keys`, with
 * the files of the other ranks beside that one, whose names differ in the rank. */
FSDP_MUST_CHECK fsdp_status fsdp_source_add_dtensor(fsdp_source *source,
                                                    const fsdp_nesting_key *keys, int n_keys,
                                                    const fsdp_pickle_value *value);
/* Give `item` what a joined tensor is. */
FSDP_MUST_CHECK fsdp_status fsdp_source_set_joined(fsdp_source_item *item, const char *path,
                                                   fsdp_joined *joined);
void fsdp_source_close_ranks(fsdp_source *source);

/* List the tensors that the files in the folder of `source` have parts of (torch_shards.h). */
FSDP_MUST_CHECK fsdp_status fsdp_source_open_shards(fsdp_source *source);
/* List the value of an archive: dicts and lists become keys. */
FSDP_MUST_CHECK fsdp_status fsdp_source_list_archive(fsdp_source *source);
