/* A YAML file as a tree that can be changed and written again: configuration files of Accelerate.
 * Comments are lost. Keys are written in alphabetical order and values as PyYAML's safe_dump()
 * writes them, since Accelerate writes its files with it. */
#pragma once
#include <fsdp/base.h>

typedef enum fsdp_yaml_kind {
    FSDP_YAML_SCALAR,
    FSDP_YAML_LIST,
    FSDP_YAML_MAP
} fsdp_yaml_kind;

typedef struct fsdp_yaml {
    fsdp_yaml_kind kind;
    char *key;  /* name of this entry of a map; NULL in a list, and for the root */
    char *text; /* SCALAR */
    /* SCALAR: the text is a string even if it looks like a number or a boolean, as in 'no' */
    bool quoted;
    int line; /* in the file; 0: the value was made here */
    struct fsdp_yaml *items;
    size_t n, cap;
} fsdp_yaml;

/* Read a file that holds a map. Errors name the file and the line. */
FSDP_MUST_CHECK fsdp_status fsdp_yaml_read(const char *path, fsdp_yaml *root);
void fsdp_yaml_fini(fsdp_yaml *node);

/* Return the value of `key`; NULL if `map` lacks it. Valid until an entry is added or removed. */
fsdp_yaml *fsdp_yaml_find(const fsdp_yaml *map, const char *key);
/* Return the text of the scalar `key`; NULL if there is no such scalar. */
const char *fsdp_yaml_text(const fsdp_yaml *map, const char *key);
/* Set `key` to a scalar. `is_string`: if the text looks like another type, it is quoted. */
FSDP_MUST_CHECK fsdp_status fsdp_yaml_set(fsdp_yaml *map, const char *key, const char *text,
                                          bool is_string);
/* Set `key` to an empty list or map, and return it in *value. */
FSDP_MUST_CHECK fsdp_status fsdp_yaml_set_empty(fsdp_yaml *map, const char *key,
                                                fsdp_yaml_kind kind, fsdp_yaml **value);
void fsdp_yaml_remove(fsdp_yaml *map, const char *key); /* `key` may be absent */

/* Return the text of the file; NULL when out of memory. Free it with fsdp_free(). Keys are sorted
 * in place. */
char *fsdp_yaml_print(fsdp_yaml *root);
/* Set *text to the configuration as JSON, as Accelerate writes files whose name ends with .json.
 * The caller frees it with fsdp_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_yaml_print_json(const fsdp_yaml *root, char **text);
