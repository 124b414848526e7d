/* Finds out from the name of a file or a folder which split of a data set it has. Case matters, as
 * it does in Hugging Face's datasets. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef enum fsdp_split_kind {
    FSDP_SPLIT_KIND_TRAIN,
    FSDP_SPLIT_KIND_VALIDATION,
    FSDP_SPLIT_KIND_TEST, /* for neither training nor validation */
} fsdp_split_kind;

/* Return the split of a file. `name` is without a folder. The words are those of SPLIT_KEYWORDS in
 * datasets/data_files.py: "validation", "valid", "dev" and "val" for VALIDATION, and "test",
 * "testing", "eval" and "evaluation" for TEST. If a name has words of both, the file is for TEST.
 * If it has none, it is for TRAIN. A word is between two of the separators "-._ 0123456789", or
 * between a separator and an end of the name: "fineweb_val_000000.bin" has the word "val", but
 * "interval.bin" does not have it. */
fsdp_split_kind fsdp_split_kind_of(const char *name);
/* Return true if the name has the word "eval" or "evaluation", but neither "test" nor "testing".
 * Such a file is for validation if no file of its folder is for VALIDATION. In Hugging Face's
 * datasets, the file would be for testing. The difference is intended: many programs write a folder
 * with train.jsonl and eval.jsonl, and all commands must use these two files in the same way. */
bool fsdp_split_is_evaluation(const char *name);
/* If `validation` is true, return true if a word of the name says that the file is for validation.
 * If `validation` is false, return true if the name has the word "train" or "training". */
bool fsdp_split_is_named(const char *name, bool validation);
/* Return name `i` of the names that a split for validation may have, in order of preference:
 * "validation", "valid", "val", "dev", "eval". After the last name, return NULL. A split of a
 * DatasetDict is for validation only if its whole name is one of these names. The same is true for
 * a file or folder that is next to a file or folder with the name "train". */
const char *fsdp_validation_name(size_t i);
