/* What is in a folder that datasets.save_to_disk() wrote: which Arrow files have the rows, and what
 * the rows mean. A folder has one split, or, if it has dataset_dict.json, a folder for each split.
 */
#pragma once
#include "src/base/json.h"

/* The split of a DatasetDict that is to be opened. */
typedef enum fsdp_arrow_split {
    FSDP_ARROW_SPLIT_TRAIN,      /* "train" */
    FSDP_ARROW_SPLIT_VALIDATION, /* "validation" or a usual spelling of it, else "test" */
} fsdp_arrow_split;

typedef struct fsdp_arrow_folder {
    char *path;  /* folder of the split, or the path of the only Arrow file, or a pattern */
    char *split; /* name of the split that was chosen from a DatasetDict; NULL: the folder is not a
                    DatasetDict */
    char **files, **indices; /* paths of Arrow files with rows, and with indices of rows */
    size_t n_files, n_indices;
    char **columns; /* [n_columns] names of the columns that set_format(columns=...) chose */
    size_t n_columns;
    bool has_columns; /* false: rows have all columns */
    fsdp_json *info;  /* dataset_info.json; NULL: none */
} fsdp_arrow_folder;

/* Return true if `path` is an Arrow file or a folder with Arrow files. Also return true for a
 * Parquet or Feather file, or a folder with Parquet files: opening these fails with an
 * explanation. */
bool fsdp_is_arrow_path(const char *path);

/* Return true if `path` is the folder of a DatasetDict with a split for validation (not "test"). */
bool fsdp_arrow_has_validation(const char *path);

/* Find the Arrow files of `path`, which is a folder, an Arrow file, or a pattern ("dir/" followed
 * by "*.arrow"). The JSON files of a folder are read, but the Arrow files are not opened. On
 * success, the caller frees *out with fsdp_arrow_folder_fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_folder_open(const char *path, fsdp_arrow_split split,
                                                   fsdp_arrow_folder *out);
void fsdp_arrow_folder_fini(fsdp_arrow_folder *folder);
