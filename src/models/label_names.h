/* The names of a classifier's classes: id2label and label2id of config.json. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

/* Read id2label of `path`, a config.json. *names [n] is the caller's, ended by
 * fsdp_label_names_free(); an entry is NULL where a class has no name. *names is NULL if the file
 * names another number of classes, or none: transformers then calls them LABEL_0, LABEL_1, ... */
FSDP_MUST_CHECK fsdp_status fsdp_label_names_read(const char *path, int64_t n, char ***names);

/* Owned copies of names [n], which are all different. */
FSDP_MUST_CHECK fsdp_status fsdp_label_names_copy(const char *const *names, int64_t n, char ***out);

/* Set id2label and label2id of `path`, a config.json. Whole or not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_label_names_write(const char *path, char *const *names, int64_t n);

void fsdp_label_names_free(char **names, int64_t n); /* accepts NULL */
