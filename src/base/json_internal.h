/* Shared by json.c and json_write.c. */
#pragma once
#include <jansson.h>

#include "src/base/json.h"

struct fsdp_json {
    char *name;         /* what errors call it */
    json_t *root;       /* an object or an array */
    fsdp_status status; /* first failure while building; writing returns it */
};

/* jansson supports neither integers beyond 64 bits nor NaN and Infinity. They are kept as strings
 * that begin with a NUL followed by the literal. Strings from parsed text cannot contain a NUL. */
const char *fsdp_json_raw_number(const json_t *value); /* the literal, or NULL */
