/* Lists of titles, which say what rows a split of WikiHow has: all_train.txt and all_val.txt of its
 * authors, a title a line, written without spaces. */
#pragma once
#include <fsdp/data.h>

/* The list of `split` beside `file`: the caller's, ended by fsdp_free(). NULL if there are no lists
 * or all rows are wanted; FSDP_ERR_NOT_FOUND if there is the other list alone. */
FSDP_MUST_CHECK fsdp_status fsdp_titles_find(const char *file, fsdp_split split, char **path);

typedef struct fsdp_titles fsdp_titles;

FSDP_MUST_CHECK fsdp_status fsdp_titles_open(const char *path, fsdp_titles **out);
void fsdp_titles_close(fsdp_titles *titles); /* accepts NULL */
/* Is it listed? The title [length], followed by NUL, loses its spaces. */
bool fsdp_titles_have(const fsdp_titles *titles, char *title, size_t length);
