/* Lists of titles, which say which rows belong to a split of WikiHow. The authors of WikiHow
 * published them as all_train.txt and all_val.txt, with one title per line, without spaces. */
#pragma once
#include <fsdp/data.h>

/* Find the list of `split` next to `file`. The caller frees *path with fsdp_free(). *path is NULL
 * if there are no lists, or if `split` is FSDP_SPLIT_ALL. Returns FSDP_ERR_NOT_FOUND if only the
 * list of the other split exists. */
FSDP_MUST_CHECK fsdp_status fsdp_titles_find(const char *file, fsdp_split split, char **path);

typedef struct fsdp_titles fsdp_titles;

FSDP_MUST_CHECK fsdp_status fsdp_titles_open(const char *path, fsdp_titles **out);
void fsdp_titles_close(fsdp_titles *titles); /* accepts NULL */
/* Is the title [length] in the list? A NUL must follow the title. The title's spaces are removed in
 * place. */
bool fsdp_titles_have(const fsdp_titles *titles, char *title, size_t length);
