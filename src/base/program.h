/* Finds programs in $PATH. Implemented in path.c. */
#pragma once
#include <stdbool.h>

/* Return true for a regular file that this process may execute. Follows links. */
bool fsdp_is_program(const char *path);
/* Search the folders of $PATH for the program `name`, which has no slash, as execvp() does. The
 * caller owns the path. Return NULL if there is no such program, or when out of memory. */
char *fsdp_program_find(const char *name);
