/* Lists of titles. A row of WikiHow belongs to a split if its title is in the list of that split.
 * The authors of WikiHow published the lists as all_train.txt and all_val.txt, with one title per
 * line, without spaces. */
#pragma once
#include <fsdp/data.h>

/* Find the list of `split` in the folder of `file`. Set *path to the path of the list; the caller
 * frees the path with fsdp_free(). Set *path to NULL if there are no lists, or if `split` is
 * FSDP_SPLIT_ALL. Returns FSDP_ERR_NOT_FOUND if only the list of the other split exists. */
FSDP_MUST_CHECK fsdp_status fsdp_titles_find(const char *file, fsdp_split split, char **path);

typedef struct fsdp_titles fsdp_titles;

FSDP_MUST_CHECK fsdp_status fsdp_titles_open(const char *path, fsdp_titles **out);
void fsdp_titles_close(fsdp_titles *titles); /* accepts NULL */
/* Return true if `title` [length] is in the list. title[length] must be a NUL. Spaces are removed
 * from `title` in place. */
bool fsdp_titles_have(const fsdp_titles *titles, char *title, size_t length);
