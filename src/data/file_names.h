/* What the name of a file of data says: the endings that are known are here and nowhere else. An
 * ending of a compressed file (.gz, .zst, .zstd) is left out first. Case does not matter. */
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
/* Return true for the names of files that are next to data or models, and have no rows. `name` is
 * without a folder. */
bool fsdp_name_is_metadata(const char *name);
