/* A YAML file, such as a configuration file of Accelerate, as a tree that can be changed and
 * written again. Comments are lost. Keys are written in alphabetical order, and values in the form
 * of PyYAML's safe_dump(), which Accelerate uses. */
#pragma once
#include <fsdp/base.h>

typedef enum fsdp_yaml_kind {
    FSDP_YAML_SCALAR,
    FSDP_YAML_LIST,
    FSDP_YAML_MAP
} fsdp_yaml_kind;

typedef struct fsdp_yaml {
    fsdp_yaml_kind kind;
    char *key;  /* key of this entry in a map; NULL: an item of a list, or the root */
    char *text; /* SCALAR: the value, without quotes */
    /* SCALAR: the text is a string even if it looks like a number or a boolean, as in 'no' */
    bool quoted;
    int line; /* line number in the file; 0: the value was not read from a file */
    struct fsdp_yaml *items;
    size_t n, cap;
} fsdp_yaml;

/* Read a file whose top level is a map. Error messages contain the path and the line. */
FSDP_MUST_CHECK fsdp_status fsdp_yaml_read(const char *path, fsdp_yaml *root);
void fsdp_yaml_fini(fsdp_yaml *node);

/* Return the entry `key` of `map`; NULL: there is none. The pointer is valid until an entry is
 * added to `map` or removed from it. */
fsdp_yaml *fsdp_yaml_find(const fsdp_yaml *map, const char *key);
/* Return the text of the scalar `key`; NULL if there is no such scalar. */
const char *fsdp_yaml_text(const fsdp_yaml *map, const char *key);
/* Set `key` to a scalar. If `is_string` is true and `text` looks like a number, a boolean or null,
 * it is written in quotes. */
FSDP_MUST_CHECK fsdp_status fsdp_yaml_set(fsdp_yaml *map, const char *key, const char *text,
                                          bool is_string);
/* Set `key` to an empty list or map, and set *value to this list or map. */
FSDP_MUST_CHECK fsdp_status fsdp_yaml_set_empty(fsdp_yaml *map, const char *key,
                                                fsdp_yaml_kind kind, fsdp_yaml **value);
void fsdp_yaml_remove(fsdp_yaml *map, const char *key); /* `key` may be absent */

/* Sort the keys of all maps, and return the text of the YAML file; NULL when out of memory. The
 * caller frees the text with fsdp_free(). */
char *fsdp_yaml_print(fsdp_yaml *root);
/* Set *text to the JSON text that Accelerate writes to a file whose name ends with .json. The
 * caller frees *text with fsdp_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_yaml_print_json(const fsdp_yaml *root, char **text);
