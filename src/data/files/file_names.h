/* What the name of a data file says about its contents. Only file_names.c knows the endings. The
 * ending of a compressed file (.gz, .zst, .zstd) is removed before the rest of the name is
 * compared. Case does not matter. */
#pragma once
#include <stdbool.h>

typedef enum fsdp_name_kind {
    FSDP_NAME_UNKNOWN,
    FSDP_NAME_JSON,  /* .jsonl, .json, .ndjson */
    FSDP_NAME_CSV,   /* .csv, .tsv, .tab */
    FSDP_NAME_TEXT,  /* .txt, .text, .raw, .md, .tokens: plain text */
    FSDP_NAME_ARROW, /* .arrow, .feather, .parquet */
} fsdp_name_kind;

fsdp_name_kind fsdp_name_kind_of(const char *path);
/* Return true if the name ends with `ending`, such as ".tsv". */
bool fsdp_name_ends_with(const char *path, const char *ending);
/* Return true if the name is that of a compressed file. */
bool fsdp_name_is_compressed(const char *path);
/* Return true if `name`, which is without a folder, is the name of a file of metadata, such as
 * config.json. Such files are next to data or models, and have no rows. */
bool fsdp_name_is_metadata(const char *name);
