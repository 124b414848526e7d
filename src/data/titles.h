/* Lists of titles that define the rows of a split of WikiHow: all_train.txt and all_val.txt of its
 * authors, one title per line, without spaces. */
#pragma once
#include <fsdp/data.h>

/* The path of the list of `split` next to `file`, owned by the caller and freed by fsdp_free().
 * NULL if there are no lists or all rows are wanted. FSDP_ERR_NOT_FOUND if only the other list
 * exists. */
FSDP_MUST_CHECK fsdp_status fsdp_titles_find(const char *file, fsdp_split split, char **path);

typedef struct fsdp_titles fsdp_titles;

FSDP_MUST_CHECK fsdp_status fsdp_titles_open(const char *path, fsdp_titles **out);
void fsdp_titles_close(fsdp_titles *titles); /* accepts NULL */
/* Whether the title [length], followed by NUL, is in the list. Removes its spaces. */
bool fsdp_titles_have(const fsdp_titles *titles, char *title, size_t length);
