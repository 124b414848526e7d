/* Shared by json.c and json_write.c. */
#pragma once
#include <jansson.h>

#include "src/base/json.h"

struct fsdp_json {
    char *name;         /* the name of the document in errors */
    json_t *root;       /* an object or an array */
    fsdp_status status; /* the first failure while the document was built; writing returns it */
};

/* jansson supports neither integers beyond 64 bits nor NaN and Infinity. Such a number is kept as a
 * string: a NUL followed by the literal. Strings from parsed text cannot contain a NUL. The
 * function returns the literal of such a number, or NULL for any other value. */
const char *fsdp_json_raw_number(const json_t *value);
