/* The names of a classifier's classes: id2label and label2id of config.json. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

/* Read id2label of `path`, a config.json. Set *names to an array of n names, in which the entry of
 * a class without a name is NULL. If id2label does not have exactly n entries, set *names to NULL;
 * in this case, transformers calls the classes LABEL_0, LABEL_1, ... The caller frees *names with
 * fsdp_label_names_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_label_names_read(const char *path, int64_t n, char ***names);

/* Copy names [n], none of which is NULL. The caller frees *out with fsdp_label_names_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_label_names_copy(const char *const *names, int64_t n, char ***out);

/* Set id2label and label2id of `path`, a config.json. The names must all be different, because they
 * are keys of label2id. On failure the file is not changed. */
FSDP_MUST_CHECK fsdp_status fsdp_label_names_write(const char *path, char *const *names, int64_t n);

void fsdp_label_names_free(char **names, int64_t n); /* accepts NULL */
